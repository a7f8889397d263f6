use proptest::prelude::*;

use super::*;
use crate::bpf::work::work_open;
use crate::kallsyms::Kallsyms;

fn nameless() -> KernelNames {
    KernelNames::from(&Kallsyms::default())
}

fn open(since: u64, queued_ns: u64, held_us: u32) -> work_open {
    work_open {
        item: work_running { function: 0xff00, since, queued_ns, pid: 3, held_us },
        ..work_open::default()
    }
}

fn one(seen: &RawWork, begin_ns: u64, window_ns: u64) -> Work {
    works(seen, begin_ns, window_ns, &mut nameless()).remove(0)
}

#[test]
fn items_that_still_run_are_counted_with_those_that_ended() {
    let mut ended = work_row { count: 2, ran_ns: 30, ran_worst_ns: 20, ..work_row::default() };
    ended.ran_times[0] = 2;
    let seen = RawWork { rows: vec![(0xff00, ended)], open: vec![open(150, 5_000_000, 3000)] };
    let work = one(&seen, 100, 5000);
    assert_eq!((work.count, work.open, work.ran_ns, work.ran_worst_ns), (3, 1, 4980, 4950));
    assert_eq!((work.queued_count, work.queued_ns, work.queued_worst_ns), (1, 5_000_000, 5_000_000));
    assert_eq!((work.held_ns, work.held_worst_ns), (3_000_000, 3_000_000));
    assert_eq!(work.ran_times, [2, 0, 0, 1], "4950 ns is below 8 us, and not below 4");
    assert_eq!(work.queued_times.len(), 14, "5 ms is below 8.4 ms");
}

#[test]
fn an_item_that_ran_when_the_window_began_has_no_time_in_the_queue() {
    let work = one(&RawWork { rows: vec![], open: vec![open(0, NOT_SEEN, 0)] }, 100, 200);
    assert_eq!((work.count, work.queued_count, work.queued_ns, work.ran_ns), (1, 0, 0, 200));
    assert!(work.queued_times.is_empty());
}

proptest! {
    #[test]
    fn no_row_makes_it_panic(since: u64, queued_ns: u64, held_us: u32, begin: u64, window: u64, ns: u64, times: [u32; 32]) {
        let row = work_row { held_us: ns, ran_ns: ns, queued_ns: ns, ran_times: times, queued_times: times, ..work_row::default() };
        let seen = RawWork { rows: vec![(0xff00, row), (0xff00, row)], open: vec![open(since, queued_ns, held_us)] };
        let work = one(&seen, begin, window);
        prop_assert!(work.ran_times.len() <= 32 && work.queued_times.len() <= 32);
        let counted: u64 = work.ran_times.iter().sum();
        prop_assert_eq!(counted, 1 + 2 * times.iter().map(|count| u64::from(*count)).sum::<u64>());
    }
}
