use std::sync::OnceLock;

use crate::bpf::tested_c::Program;

/// Feeds reports to the C that the kernel runs: "l at ns woke is_tick begin now": is the gap longer? "s first second": the stolen part of both;
/// "o stolen read begin": the part that belongs to the gap. An unknown part is printed as 999.
const HARNESS: &str = r#"
#include <stdio.h>
#include "irq_gap.bpf.h"
static void said(long long n)
{
	printf("%lld ", n < 0 ? 999 : n);
}
int main(void)
{
	struct irqlat_told told;
	unsigned long long begin, now, read;
	long long first, second;
	char what;
	int tick;

	while (scanf(" %c", &what) == 1) {
		if (what == 'l' && scanf("%llu %llu %llu %d %llu %llu", &told.at, &told.ns, &told.woke, &tick, &begin, &now) == 6)
			said(gap_is_longer(&told, tick, begin, now, 1000000));
		else if (what == 's' && scanf("%lld %lld", &first, &second) == 2)
			said(stolen_of_both(first, second));
		else if (what == 'o' && scanf("%lld %llu %llu", &first, &read, &begin) == 3)
			said(stolen_since(first, read, begin));
	}
	return 0;
}
"#;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const NOT_KNOWN: u64 = 999;

fn run_c(lines: &str) -> u64 {
    static BUILT: OnceLock<Program> = OnceLock::new();
    let said = BUILT.get_or_init(|| Program::of("irq-gap", HARNESS)).run(lines);
    assert_eq!(said.len(), 1);
    said[0]
}

/// A call of another CPU reported a gap of 5 ms that ended at 100 ms. Then comes a timer that was due at `begin`.
fn is_longer(is_tick: bool, woke: u64, begin: u64, now: u64) -> bool {
    run_c(&format!("l {} {} {woke} {} {begin} {now}", 100 * MS, 5 * MS, u8::from(is_tick))) == 1
}

#[test]
fn the_tick_that_comes_with_a_call_tells_when_the_gap_began() {
    let just_behind = 100 * MS + 20 * US;
    assert!(is_longer(true, 0, 59 * MS, just_behind));
    assert!(!is_longer(true, 0, 94 * MS + 500 * US, just_behind), "as long as the call knew");
    assert!(!is_longer(true, 0, 97 * MS, just_behind), "shorter");
    assert!(!is_longer(true, 0, 59 * MS, 101 * MS), "a tick of later");
}

/// A loop that overran sleeps until a time that has passed: its timer comes at once, whatever ran before.
#[test]
fn a_timer_that_may_have_been_set_for_the_past_makes_no_gap_longer() {
    assert!(!is_longer(false, 0, 59 * MS, 100 * MS + 20 * US));
}

/// The call was queued when the CPU had left its idle state, and the tick was due before.
#[test]
fn what_an_idle_state_delayed_is_not_held_against_what_ran_since() {
    let just_behind = 100 * MS + 20 * US;
    assert!(!is_longer(true, 94 * MS, 59 * MS, just_behind));
    assert!(is_longer(true, 59 * MS, 59 * MS, just_behind));
}

#[test]
fn the_hypervisors_part_is_that_of_both_reports() {
    let both = |first: i64, second: i64| run_c(&format!("s {first} {second}"));
    assert_eq!([both(3, 4), both(0, 0), both(-1, 4), both(3, -1)], [7, 0, NOT_KNOWN, NOT_KNOWN]);
}

#[test]
fn what_was_taken_long_before_a_gap_is_not_held_against_it() {
    let of_gap = |read: u64| run_c(&format!("o 7 {read} {}", 500 * MS));
    assert_eq!(
        [of_gap(489 * MS), of_gap(490 * MS), of_gap(499 * MS), of_gap(520 * MS)],
        [NOT_KNOWN, 7, 7, 7]
    );
    assert_eq!(run_c("o -1 5 5"), NOT_KNOWN);
}
