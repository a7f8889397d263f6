//! Requests: a client that has asked a service, and waits for its answer. On a whole host these waits are losses; to wait until somebody
//! has something to tell (a service for requests, a subscriber for messages) is how programs are built.

use whyslow_model::timeline::{Delivery, Role, Span, Waker};
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::culprit::Step;
use super::facts::Graph;
use crate::wait_reasons::{Class, TICK, ended_by_timer, is_answer, is_asked, task_behind};

/// How it is known that a client has asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It woke the service, which waited for requests; or the service had read all that it sent, when it answered.
    Seen,
    /// It sent something, or had asked before: the service was awake, and may have had something else to do.
    Maybe,
}

impl Graph<'_> {
    /// Whether a wait is for the answer of another process of this host.
    pub fn is_for_answer(&self, row: usize) -> bool {
        self.asked(row).is_some() || self.is_unanswered(row)
    }

    /// Whether another process of this host ended it whose client this one is, or is to end it. Where nobody says when something was sent it need not have
    /// been seen to ask: who has asked for news only does so once.
    pub fn is_answered(&self, row: usize) -> bool {
        let is_told = |task: &Waker| {
            let delivery = task.delivery.as_ref();
            delivery.is_some_and(|delivery| delivery.sent_before_ns.is_some())
        };
        match self.answered_by(row) {
            Some((_, task)) => !is_told(task) || self.is_for_answer(row),
            None => self.awaits_other_end(row),
        }
    }

    /// The service whose client a waiter is: the process that answered it, or that it has asked through a connection.
    pub fn service_of(&self, row: usize) -> Option<u32> {
        let answered = self.answered_by(row).map(|(_, task)| task.tgid);
        answered.or_else(|| self.asked_at_other_end(row))
    }

    fn answered_by(&self, row: usize) -> Option<(&Span, &Waker)> {
        let span = self.spans.get(row)?;
        let end = self.end_of_looks(row).and_then(|row| self.spans.get(row)).unwrap_or(span);
        let task = task_behind(end).filter(|task| task.tgid != span.tgid && is_answer(end, task))?;
        Some((end, task))
    }

    /// How it is known that it was asked for since the thread's last wait; where nobody says when something was sent (UDP, most of unix sockets,
    /// before Linux 6.3), in the window.
    fn asked(&self, row: usize) -> Option<(Asked, &Waker)> {
        let span = self.spans.get(row)?;
        let (end, task) = self.answered_by(row)?;
        let begin = self.longer_wait(row).map_or(span.at_ns, |(begin, _)| begin);
        let since = self.awake_since(span.pid, begin);
        let delivery = task.delivery.as_deref();
        // Where a time is told that says it.
        let asks_each_time = || {
            let is_timed = delivery.is_some_and(|delivery| delivery.sent_before_ns.is_some());
            !is_timed && self.wakes.asks_each_time(span.pid, task.tgid)
        };
        let is_seen = self.had_asked(span) || self.wakes.any_of(span.pid, since, begin, task.tgid);
        if is_seen || asks_each_time() {
            return Some((Asked::Seen, task));
        }
        let is_asked = match delivery.and_then(|delivery| delivery.sent_before_ns) {
            Some(before) => {
                let sent = i128::from(end.woken_ns) - i128::from(before);
                sent + i128::from(TICK) >= since.into() && sent <= i128::from(begin) + i128::from(TICK)
            }
            None => self.wakes.any_of(span.pid, 0, begin, task.tgid),
        };
        // Who tells news of its own accord has no need to read what says that the last ones have come.
        let answers = |delivery: &Delivery| {
            let has_read = delivery.sends.as_ref().is_some_and(|sends| sends.serves && !sends.unread);
            // Through a unix socket it is told of who has read it all.
            delivery.sent_before_ns.is_some() && (has_read || delivery.role == Some(Role::Answers))
        };
        let how = if delivery.is_some_and(answers) { Asked::Seen } else { Asked::Maybe };
        is_asked.then_some((how, task))
    }

    /// When the last wait of a thread before this one ended.
    fn awake_since(&self, pid: u32, begin: u64) -> u64 {
        let last = self.lines.get(&pid).and_then(|line| line.rows_before(begin).next());
        last.and_then(|row| self.spans.get(row)).map_or(0, |span| span.woken_ns)
    }

    /// A way down from a wait for an answer to which nobody is to blame: there was nothing to answer yet. The service waits for something
    /// to do, or looks at its watch (long polling); another client has brought it what it then told (a queue of jobs, a bus of messages);
    /// or it sleeps of its own accord, and was not seen to be asked.
    pub fn ends_idle(&self, way: &[Step<'_>]) -> bool {
        let kind = |step: &Step<'_>| step.node.row.map(|row| (row, self.kind(row)));
        let is_timer = |step: &Step<'_>| step.node.row.is_none() && step.key.reason == Reason::Timer;
        // Of a wait whose call was not seen the timer that ended it is told behind it.
        let waits = way.split_last().map_or(way, |(last, rest)| if is_timer(last) { rest } else { way });
        let (Some(head), Some(leaf)) = (way.first().and_then(kind), waits.last()) else { return false };
        if !matches!(head.1.class, Class::Idle | Class::Peer) || self.is_to_be_taken(head.0) {
            return false;
        }
        let service = self.asked(head.0).map(|(_, task)| task.tgid);
        // Deeper down a service that waits for its client may hold something (a row, idle in a transaction).
        let asks = |two: &[Step<'_>]| {
            let [one, next] = two else { return false };
            let row = kind(one).filter(|(_, kind)| kind.class == Class::Idle).map(|(row, _)| row);
            let of_service = |span: &&Span| Some(span.tgid) == service && is_asked(span);
            let span = row.and_then(|row| self.spans.get(row)).filter(of_service);
            span.and_then(task_behind).is_some_and(|asker| asker.pid == next.node.pid)
        };
        way.windows(2).skip(1).any(asks) || self.had_nothing_to_do(head.0, leaf)
    }

    fn had_nothing_to_do(&self, head: usize, leaf: &Step<'_>) -> bool {
        const WATCHES: [WaitTarget; 4] = [
            WaitTarget::EpollTimeout,
            WaitTarget::PollTimeout,
            WaitTarget::FutexTimeout,
            WaitTarget::TimerfdTimer,
        ];
        let Some((row, span)) = leaf.node.row.and_then(|row| Some((row, self.spans.get(row)?))) else {
            return false;
        };
        let kind = self.kind(row);
        let detail = self.details.of(kind.what);
        let is_one = |things: &[WaitTarget]| things.iter().any(|thing| *detail == Detail::Target(*thing));
        let of_service = |task: &Waker| task.tgid == span.tgid;
        let of_its_own =
            || self.asked(head).is_some_and(|(asked, task)| asked == Asked::Maybe && of_service(task));
        match kind.class {
            // What came from outside is another matter.
            Class::Idle => {
                let came = span.waker.as_ref().is_some_and(|waker| waker.delivery.is_some());
                is_asked(span) || !came
            }
            Class::Timer => is_one(&WATCHES) || of_its_own(),
            Class::Unknown => ended_by_timer(span, &self.stacks) && of_its_own(),
            _ => false,
        }
    }
}
