//! The turns of those who had a lock: when each of them let it go, and how long it had had it.
//!
//! A lock that goes from a holder to the next in its queue shows each turn whole: the task that lets it go wakes the next. A turn for which nobody was
//! in the queue for most of its time is left out: when it began is not known. So a load that grows, with holders that do not, makes no turn longer.

use whyslow_model::syscall::FUTEX;
use whyslow_model::timeline::Span;
use whyslow_model::wait::Reason;

use super::facts::Graph;
use super::names::Called;
use crate::growth::Call;
use crate::hashing::Table;
use crate::wait_reasons::Class;

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LockId {
    /// One of the kernel, by its number.
    Kernel(u64),
    /// A word of a process.
    Word(u32, u64),
    /// A file: device and inode.
    File(String, u64),
}

/// One that had a lock, until it let it go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub who: Called,
    pub call: Call,
}

/// A lock was let go, and a waiter woken that had waited since then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LetGo {
    at: u64,
    by: u32,
    since: u64,
    who: Called,
}

/// Shorter turns are none: readers are woken one after the other, and who waits for a file lock is woken by the one before in the queue, which finds it
/// taken again (fs/locks.c, __locks_wake_up_blocks; v5.0, fd7732e033e3). Waits that are told one by one are as long.
const SHORTEST: u64 = 1_000_000;
/// A part of a turn, one in so many, in which nobody was seen to wait: when it began is known well enough.
const UNSEEN: u64 = 4;

impl Graph<'_> {
    /// The lock that this row waits for.
    pub fn lock_of(&self, row: usize) -> Option<LockId> {
        let span = self.spans.get(row)?;
        let kind = self.kind(row);
        match &span.lock {
            Some(lock) if lock.address != 0 => return Some(LockId::Kernel(lock.address)),
            _ => {}
        }
        if kind.reason == Reason::FileLock {
            let file = span.target.as_ref().filter(|file| file.ino != 0)?;
            return Some(LockId::File(file.dev.clone(), file.ino));
        }
        let is_word = kind.class == Class::Lock && span.syscall == Some(FUTEX);
        is_word.then(|| LockId::Word(span.tgid, span.args[0]))
    }

    /// The turns of those who had this lock, in order.
    pub fn turns(&self, lock: &LockId) -> &[Turn] {
        let all = self.turns.get_or_init(|| self.all_turns());
        all.get(lock).map_or(&[], Vec::as_slice)
    }

    fn all_turns(&self) -> Table<LockId, Vec<Turn>> {
        let mut all: Table<LockId, Vec<LetGo>> = Table::default();
        for (row, span) in self.spans.iter().enumerate() {
            let is_ended = !span.open && span.woken_ns > span.at_ns && self.was_let_go(span);
            let waker = span.waker.as_ref().filter(|waker| is_ended && waker.pid != span.pid);
            let Some((waker, lock)) = waker.and_then(|waker| Some((waker, self.lock_of(row)?))) else {
                continue;
            };
            let who = self.who_is(waker.pid, waker.work.as_deref()).key;
            let let_go = LetGo { at: span.woken_ns, by: waker.pid, since: since(span), who };
            all.entry(lock).or_default().push(let_go);
        }
        all.into_iter().map(|(lock, let_go)| (lock, turns(let_go))).collect()
    }
}

/// When its wait for the lock began: it may have been woken meanwhile, and have found the lock taken.
fn since(span: &Span) -> u64 {
    span.lock.as_ref().map_or(span.at_ns, |lock| lock.since_ns.min(span.at_ns))
}

fn turns(mut let_go: Vec<LetGo>) -> Vec<Turn> {
    let_go.sort_unstable();
    let mut turns = Vec::new();
    // The first turn that is seen began before.
    let mut last: Option<u64> = None;
    for next in let_go {
        if let Some(from) = last {
            let ns = next.at - from;
            if ns >= SHORTEST && next.since <= from.saturating_add(ns / UNSEEN) {
                turns.push(Turn { who: next.who, call: Call { at: from + ns / 2, ns } });
            }
        }
        last = Some(next.at);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::names::Name;

    /// The holder, the middle of the turn, and its length.
    fn let_go(rows: &[(u64, u32, u64)]) -> Vec<(u32, u64, u64)> {
        let ms = 1_000_000;
        let called = |pid: u32| Called { comm: Name::of(pid), work: None };
        let row = |(at, by, since): &(u64, u32, u64)| LetGo {
            at: at * ms,
            by: *by,
            since: since * ms,
            who: called(*by),
        };
        let pid = |turn: &Turn| (0..9).find(|pid| called(*pid) == turn.who).unwrap_or(0);
        let turns = turns(rows.iter().map(row).collect());
        turns.iter().map(|turn| (pid(turn), turn.call.at / ms, turn.call.ns / ms)).collect()
    }

    #[test]
    fn a_lock_that_goes_from_hand_to_hand_shows_each_turn() {
        assert_eq!(let_go(&[(10, 1, 0), (30, 2, 5), (34, 1, 20)]), [(2, 20, 20), (1, 32, 4)]);
    }

    #[test]
    fn a_turn_without_a_waiter_for_most_of_its_time_is_none() {
        assert_eq!(let_go(&[(10, 1, 0), (30, 2, 16), (50, 1, 35)]), [(1, 40, 20)]);
    }

    #[test]
    fn those_that_are_woken_together_are_one_turn() {
        let turns = [(10, 1, 0), (30, 2, 5), (30, 2, 6), (30, 3, 7), (40, 2, 30)];
        assert_eq!(let_go(&turns), [(2, 20, 20), (2, 35, 10)]);
    }
}
