//! Threads of a watched process that have nothing to do: pools without a job, loops without events, housekeeping. What they wait for is in
//! the account; among the chains, which are sorted by time, they would come first.

use whyslow_model::wait::{Detail, WaitTarget};

use super::culprit::Step;
use super::facts::{Graph, SMALL_PART};
use super::node::Sort;
use super::timeline::What;
use crate::hashing::{Set, Table};
use crate::wait_reasons::{Class, joined_thread};

/// Who waits for a thread's end that waits for another's.
const MOST_JOINS: usize = 3;

/// A way that nobody is behind: to be given something to do, or the end of one's own sleep; or of a thread of one's own that rests (a
/// daemon's first thread joins the others).
pub(super) fn is_rest(graph: &Graph<'_>, way: &[Step<'_>]) -> bool {
    let Some((last, joins)) = way.split_last() else { return false };
    let joins_own = |step: &Step<'_>| {
        let is_join = |row| *graph.details.of(graph.kind(row).what) == Detail::Target(WaitTarget::ThreadEnd);
        step.node.row.is_some_and(is_join) && step.node.key.sort == Sort::Wait
    };
    joins.iter().all(joins_own) && last.node.row.is_some_and(|row| graph.is_restful(row))
}

/// Which of these threads rest, where others do not. `waited`: for how long each waited for somebody. The
/// command that was run does not rest: it lasted as long as its first thread did, whatever that waited for.
pub(super) fn resting(graph: &Graph<'_>, watched: &Set<u32>, waited: &Table<u32, u64>) -> Set<u32> {
    let command = graph.rec.meta.watched.as_ref().and_then(|watched| watched.command.as_ref());
    let is_command = |pid: u32| command.is_some_and(|command| command.pid == pid);
    let time = |pid: u32| waited.get(&pid).copied().unwrap_or(0);
    // Housekeeping waits for a page or a mutex, too: that is little beside what somebody here waits for.
    let least = watched.iter().map(|pid| time(*pid)).max().unwrap_or(0) / SMALL_PART;
    let (waited, felt) = (|pid: u32| time(pid) >= graph.window / SMALL_PART, |pid: u32| time(pid) > least);
    let candidates = watched.iter().copied().filter(|pid| !waited(*pid) && !is_command(*pid));
    let resting: Set<u32> = candidates.filter(|pid| graph.rests(*pid, MOST_JOINS)).collect();
    // Of whom no row tells has slept throughout, or was gone.
    let there = watched.iter().filter(|pid| graph.lines.contains_key(pid)).count();
    if resting.len() < there {
        return resting;
    }
    // All of them rest: some wait for somebody now and then.
    let idle: Set<u32> = resting.into_iter().filter(|pid| !felt(*pid)).collect();
    if idle.len() < there { idle } else { Set::default() }
}

impl Graph<'_> {
    /// It waits for something to do, and not for the other end of a connection of its own.
    fn is_restful(&self, row: usize) -> bool {
        let kind = self.kind(row);
        let is_peer = matches!(*self.details.of(kind.what), Detail::Peer { .. });
        matches!(kind.class, Class::Idle | Class::Timer) && !is_peer
    }

    /// It waits for the end of a thread that rests.
    fn joins_one_that_rests(&self, row: usize, joins: usize) -> bool {
        let is_join = *self.details.of(self.kind(row).what) == Detail::Target(WaitTarget::ThreadEnd);
        let span = self.spans.get(row).filter(|_| is_join && joins > 0);
        let thread = span.and_then(|span| joined_thread(span, &self.stacks));
        thread.is_some_and(|thread| self.rests(thread, joins - 1))
    }

    fn rests(&self, pid: u32, joins: usize) -> bool {
        let (mut all, mut rested) = (0_u64, 0_u64);
        let line = self.lines.get(&pid);
        for piece in line.into_iter().flat_map(|line| line.clip(0, self.window)) {
            match piece.what {
                What::Wait(row) if self.is_restful(row) || self.joins_one_that_rests(row, joins) => {
                    rested += piece.ns();
                }
                // Who is kept off the CPU waits for no other: that has chains of its own.
                What::Unborn | What::Gone | What::Ready(_) => continue,
                _ => {}
            }
            all += piece.ns();
        }
        all > 0 && all - rested < all / SMALL_PART
    }
}
