//! Whether the task that is waited for was at something else when the wait began: then it does not work for the one who waits, and the wait
//! is for its other work to end. An interpreter's lock, a loop or a pool that is full.

use whyslow_model::timeline::Span;

use super::culprit::Step;
use super::facts::Graph;
use super::node::Sort;
use super::other_ends::ASKED_BEFORE;
use super::timeline::What;
use crate::wait_reasons::{TICK, task_behind};

/// A task that is given something to do begins at once, a little before the one who gave it goes to sleep.
const AT_ONCE: u64 = 1_000_000;

/// Pieces of a timeline that are looked at: a server that never rests has thousands.
const LOOKED_AT: usize = 1_024;

impl Graph<'_> {
    /// Of the last wait of a way, and the task that ran at its end: it had work when that was asked for, since before, and the process that waits
    /// had not woken it for that. A task that was not seen to rest in the window may look for work all the time.
    pub fn was_at_work(&self, way: &[Step<'_>]) -> bool {
        let [.., above, last] = way else { return false };
        let row = above.node.row.filter(|_| last.key.sort == Sort::Ran);
        let Some(span) = row.and_then(|row| self.spans.get(row)) else { return false };
        let Some(line) = self.lines.get(&last.node.pid) else { return false };
        let rests = self.tasks.get(&last.node.pid).is_some_and(|task| task.sleep_ns > 0);
        // What was asked before the window has no beginning here.
        let Some((begin, margin)) = self.asked_at(span).filter(|(begin, _)| *begin > 0 && rests) else {
            return false;
        };
        let before = line.rows_before(begin).next().and_then(|row| self.spans.get(row));
        let since = before.map_or(0, |wait| wait.woken_ns);
        // What a tick tells may have been asked a tick later: then it has rested until that, and went on with it.
        let is_within = margin == AT_ONCE;
        let until = begin.saturating_add(if is_within { 1 } else { margin });
        let (mut slept, mut is_on) = (false, false);
        for (at, piece) in line.clip(since, until).enumerate() {
            is_on = matches!(piece.what, What::Mixed(_) | What::Ready(_));
            slept |= match piece.what {
                What::Mixed(row) => self.spans.get(row).is_some_and(|span| span.mixed.sleep_ns > 0),
                What::Ready(_) => false,
                _ => return false,
            } || at >= LOOKED_AT;
            if slept {
                break;
            }
        }
        let is_told_off = before.and_then(task_behind).is_some_and(|waker| waker.tgid == span.tgid);
        let has_worked = since.saturating_add(margin) <= begin;
        // In a wait that has no row it may have been given something, unless it had just begun by itself: then it waited for its turn.
        let has_begun = is_within && before.is_some() && begin.saturating_sub(since) <= ASKED_BEFORE;
        let is_long = |(from, to): (u64, u64)| from.saturating_add(margin) <= begin && to >= until;
        let runs = || self.run_at(last.node.pid, begin).is_some_and(is_long);
        match slept {
            true => has_begun && !is_told_off || runs(),
            false => is_on && !is_told_off && (is_within || has_worked),
        }
    }

    /// When a wait's request was made, and how exactly that is known: of a wait within a process when it began; of one for another process when it
    /// sent that, as TCP tells to a tick.
    fn asked_at(&self, span: &Span) -> Option<(u64, u64)> {
        let Some(waker) = task_behind(span).filter(|waker| waker.tgid != span.tgid) else {
            return Some((self.first_look(span), AT_ONCE));
        };
        let before = waker.delivery.as_ref()?.sent_before_ns?;
        Some((span.woken_ns.checked_sub(before)?, TICK))
    }
}
