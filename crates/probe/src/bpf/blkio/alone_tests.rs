//! How long a request is alone at its device, by the C that the kernel runs.

use std::fmt::Write as _;
use std::sync::OnceLock;

use proptest::prelude::*;

use crate::bpf::tested_c::Program;

/// Feeds begins ("1 id time") and ends ("0 id time"), and prints how many requests were left alone, and for how long.
const HARNESS: &str = r#"
#include <stdio.h>
#include "alone.bpf.h"
int main(void)
{
	static struct { unsigned int ahead, number; unsigned long long issued; } all[64];
	unsigned long long now, ns = 0, until;
	struct blkio_load load = { 0 };
	unsigned int comes_now, id, alone = 0;

	while (scanf("%u %u %llu", &comes_now, &id, &now) == 3) {
		id %= 64;
		if (comes_now) {
			all[id].ahead = load.now++;
			all[id].issued = now;
			all[id].number = comes(&load, all[id].ahead, now);
			continue;
		}
		load.now--;
		if (all[id].ahead)
			continue;
		until = alone_until(&load, all[id].number, now);
		ns += until - all[id].issued;
		alone += load.issued == all[id].number;
	}
	printf("%u %llu\n", alone, ns);
	return 0;
}
"#;

/// (left alone, time alone) for requests that are there between given moments, all of which differ.
fn seen(requests: &[(u64, u64)]) -> (u64, u64) {
    static BUILT: OnceLock<Program> = OnceLock::new();
    let mut events: Vec<(u64, u32, usize)> = Vec::new();
    for (id, (from, to)) in requests.iter().enumerate() {
        events.extend([(*from, 1, id), (*to, 0, id)]);
    }
    events.sort_unstable();
    let mut lines = String::new();
    for (at, comes, id) in events {
        writeln!(lines, "{comes} {id} {at}").unwrap();
    }
    let sums = BUILT.get_or_init(|| Program::of("alone", HARNESS)).run(&lines);
    (sums[0], sums[1])
}

/// The same, by comparing all of them.
fn wanted(requests: &[(u64, u64)]) -> (u64, u64) {
    let found_none =
        requests.iter().filter(|(at, _)| !requests.iter().any(|(from, to)| from < at && to > at));
    let mut sums = (0, 0);
    for (from, to) in found_none {
        let next = requests.iter().map(|(other, _)| *other).filter(|other| other > from && other < to).min();
        sums.0 += u64::from(next.is_none());
        sums.1 += next.unwrap_or(*to) - from;
    }
    sums
}

/// A large request during which small ones come and go: it was alone until the first of them came, and no request was left alone.
#[test]
fn a_request_is_alone_until_another_comes() {
    assert_eq!(seen(&[(100, 1000), (130, 150), (400, 420)]), (0, 30));
    assert_eq!(seen(&[(100, 1000), (1100, 1110), (1105, 1300)]), (1, 905));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn time_alone_is_what_a_look_at_all_requests_tells(
        mut moments in proptest::collection::btree_set(1_u64..100_000, 2..100)
            .prop_map(|all| all.into_iter().collect::<Vec<_>>())
            .prop_shuffle(),
        long in 1_usize..8,
    ) {
        // Of sorted stretches of `long` moments each has its begin and its end: few are long, or many.
        moments.truncate(moments.len() & !1);
        moments.chunks_mut(2 * long).for_each(<[u64]>::sort_unstable);
        let requests: Vec<_> =
            moments.chunks_exact(2).map(|two| (two[0].min(two[1]), two[0].max(two[1]))).collect();
        prop_assert_eq!(seen(&requests), wanted(&requests));
    }
}
