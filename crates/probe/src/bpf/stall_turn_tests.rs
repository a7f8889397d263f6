use std::sync::OnceLock;

use crate::bpf::tested_c::Program;

/// Feeds what happens on one CPU, one a line, to the C that the kernel runs; prints a number for each line. "p began now handled left": a poll of
/// the queue (the wait of the watched packet, or 0); "s now ns": a stall was told (0); "d work in_run": a poll while a stall is pending (is it
/// told?); "e": a stall is pending from here on; "r since mark": is the row over?
const HARNESS: &str = r#"
#include <stdio.h>
#include "stall_turn.bpf.h"
int main(void)
{
	struct stall_watch w = { 0 };
	unsigned long long a, b, c, d, turn;
	unsigned int pending = 0;
	char what;
	int work, in_run;

	while (scanf(" %c", &what) == 1) {
		unsigned long long said = 0;

		if (what == 'p' && scanf("%llu %llu %llu %llu", &a, &b, &c, &d) == 4) {
			turn = watch_polled(&w, a, b, c, d);
			said = turn ? turn - w.mark : 0;
			if (!w.mark || turn) {
				w.mark = 0;
				watch_next(&w, b, d);
			}
		} else if (what == 's' && scanf("%llu %llu", &a, &b) == 2) {
			watch_stalled(&w, a, b);
		} else if (what == 'd' && scanf("%d %d", &work, &in_run) == 2) {
			said = stall_is_told(&pending, work, in_run);
		} else if (what == 'e') {
			pending = 1;
		} else if (what == 'r' && scanf("%llu %llu", &a, &b) == 2) {
			said = row_is_over(a, b);
		}
		printf("%llu ", said);
	}
	return 0;
}
"#;

fn run_c(lines: &str) -> Vec<u64> {
    static BUILT: OnceLock<Program> = OnceLock::new();
    BUILT.get_or_init(|| Program::of("stall-turn", HARNESS)).run(lines)
}

#[test]
fn a_stall_is_told_by_the_first_poll_of_its_run_that_has_a_packet() {
    assert_eq!(run_c("e d 0 1 d 300 1 d 64 1"), [0, 0, 1, 0], "the first poll of the run has none");
    assert_eq!(run_c("d 300 1"), [0], "none is pending");
    assert_eq!(run_c("e d 8 0 d 8 1"), [0, 0, 1], "busy polling beside the run");
    assert_eq!(run_c("e d -1 1 d 1 1"), [0, 0, 1]);
}

#[test]
fn its_turn_is_within_the_poll_as_evenly_as_packets_are_handled() {
    // It comes to 32 packets at 1,000; a poll of 64 packets lasts from 1,000 to 7,400: its turn is in the middle.
    assert_eq!(run_c("p 0 1000 64 32  p 1000 7400 64 0"), [0, 3200]);
    assert_eq!(run_c("p 0 1000 64 100  p 1000 7400 64 60  p 7400 13800 64 0"), [0, 0, 10_000]);
    assert_eq!(run_c("p 0 1000 64 100  p 1000 7400 3 0"), [0, 6400], "the others were removed");
}

#[test]
fn what_a_stall_leaves_behind_belongs_to_the_stall() {
    // 20 ms: the packets that came meanwhile have been handled at 40.
    assert_eq!(
        run_c("s 20 20  p 21 30 64 500  p 30 39 64 436  p 39 48 64 372  p 48 57 372 0"),
        [0, 0, 0, 0, 9]
    );
    assert_eq!(run_c("p 0 10 64 64  s 20 20  p 20 50 64 0"), [0, 0, 0], "the watched packet, too");
}

#[test]
fn a_row_is_over_when_a_packet_comes_a_second_after_its_begin() {
    const MS: u64 = 1_000_000;
    let over = |mark| run_c(&format!("r {} {mark}", 5000 * MS))[0];
    assert_eq!([5000, 5999, 6000, 65_000].map(|ms| over(ms * MS)), [0, 0, 1, 1]);
    assert_eq!(over(4000 * MS), 0);
}
