use whyslow_model::timeline::HoldSeen;

use whyslow_model::timeline::LockKind;

use super::*;
use crate::bpf::locks::{Row, lock_wait};
use crate::kallsyms::Kallsyms;

fn nameless() -> KernelNames {
    KernelNames::from(&Kallsyms::default())
}

fn row(lock: u64, count: u64, worst_ns: u64) -> Row {
    Row { lock, kind: 1, write: true, frames: Vec::new(), count, total_ns: count * worst_ns, worst_ns }
}

fn open(since: u64, owner: u32, owner_again: u32) -> locks_open {
    let wait = lock_wait { lock: 8, since, pid: 2, kind: 2, owner, owner_again, ..lock_wait::default() };
    locks_open { wait, owner_tgid: 90, depth: -14, ..locks_open::default() }
}

#[test]
fn rows_of_one_call_site_are_one_row() {
    let seen = locks::RawLocks {
        rows: vec![row(8, 3, 10), row(8, 1, 50), row(16, 1, 1)],
        ..locks::RawLocks::default()
    };
    let (locks, holds, stacks) = tables(&seen, 0, 100, &mut nameless(), 0);
    let reported: Vec<_> = locks.iter().map(|l| (l.address, l.count, l.total_ns, l.worst_ns)).collect();
    assert_eq!(reported, [(8, 4, 80, 50), (16, 1, 1, 1)]);
    assert!(holds.is_empty() && stacks.is_empty());
}

#[test]
fn an_open_wait_lasts_from_the_windows_begin_to_its_end() {
    let seen = locks::RawLocks { open: vec![open(5, 7, 9)], ..locks::RawLocks::default() };
    let (locks, holds, _) = tables(&seen, 1_000, 2_000_000, &mut nameless(), 0);
    assert_eq!((locks[0].count, locks[0].total_ns, locks[0].write), (1, 2_000_000, false));
    let reported: Vec<_> = holds.iter().map(|h| (h.at_ns, h.pid, h.tgid, h.seen)).collect();
    assert_eq!(reported, [(0, 7, 0, HoldSeen::Word), (2_000_000, 9, 90, HoldSeen::Word)]);
}

#[test]
fn a_wait_whose_begin_was_not_seen_has_no_length() {
    let seen = locks::RawLocks { open: vec![open(0, 7, 7)], ..locks::RawLocks::default() };
    let (locks, holds, _) = tables(&seen, 1_000, 2_000_000, &mut nameless(), 0);
    assert!(locks.is_empty() && holds.is_empty());
}

#[test]
fn lock_rows_with_impossible_values_cause_no_panic() {
    let wait = lock_wait { kind: 77, since: u64::MAX - 1, ..open(1, 1, 1).wait };
    let odd = locks_open { wait, depth: i32::MAX, ..open(1, 1, 1) };
    let hold = locks_hold { at: u64::MAX, ..locks_hold::default() };
    let rows = vec![row(8, u64::MAX, 1), row(8, 1, 1)];
    let seen = locks::RawLocks { rows, open: vec![odd], holds: vec![hold], shed: 0 };
    let (locks, holds, _) = tables(&seen, u64::MAX, u64::MAX, &mut nameless(), u32::MAX);
    assert!(locks.iter().any(|l| l.kind == LockKind::Unknown) && holds.len() <= 3);
}
