//! Requests: a client that has asked a service, and waits for its answer. On a whole host these waits are losses; to wait until somebody
//! has something to tell (a service for requests, a subscriber for messages) is how programs are built.

use whyslow_model::timeline::Waker;
use whyslow_model::wait::{Detail, Thing};

use super::facts::{Graph, Kind};
use super::node::Node;
use crate::wait_reasons::{Class, TICK, is_answer, task_behind};

impl Graph<'_> {
    /// Whether a wait is for the answer of another process of this host to what was asked since the thread's last wait; where nobody says when
    /// that was (UDP, unix sockets, before Linux 6.3), of one that the thread has asked in the window.
    pub fn is_for_answer(&self, row: usize) -> bool {
        let Some(span) = self.spans.get(row) else { return false };
        let end = self.end_of_looks(row).and_then(|row| self.spans.get(row)).unwrap_or(span);
        let answers = |task: &&Waker| task.tgid != span.tgid && is_answer(end, task);
        let Some(task) = task_behind(end).filter(answers) else { return false };
        let begin = self.longer_wait(row).map_or(span.at_ns, |(begin, _)| begin);
        match task.delivery.as_ref().and_then(|delivery| delivery.sent_before_ns) {
            Some(before) => {
                let since = self.awake_since(span.pid, begin);
                let sent = i128::from(end.woken_ns) - i128::from(before);
                sent + i128::from(TICK) >= since.into() && sent <= i128::from(begin + TICK)
            }
            // A service that is awake when it is asked is not woken: once in the window it was.
            None => self.wakes.any_of(span.pid, 0, begin, task.tgid),
        }
    }

    /// When the last wait of a thread before this one ended.
    fn awake_since(&self, pid: u32, begin: u64) -> u64 {
        let last = self.lines.get(&pid).and_then(|line| line.rows_before(begin).next());
        last.and_then(|row| self.spans.get(row)).map_or(0, |span| span.woken_ns)
    }

    /// A way down that begins with a wait for an answer, and ends with somebody who has nothing to do, or looks at its watch: there was nothing to
    /// answer yet, as for who asks to be told when there is (long polling).
    pub fn ends_idle(&self, head: &Node, leaf: &Node) -> bool {
        const WATCHES: [Thing; 4] =
            [Thing::EpollTimeout, Thing::PollTimeout, Thing::FutexTimeout, Thing::TimerfdTimer];
        let kind = |node: &Node| node.row.map(|row| self.kind(row));
        let is_asker = kind(head).is_some_and(|kind| matches!(kind.class, Class::Handed | Class::Peer));
        let looks_at_watch = |kind: Kind| {
            let detail = self.details.of(kind.what);
            WATCHES.iter().any(|watch| *detail == Detail::Thing(*watch))
        };
        is_asker && kind(leaf).is_some_and(|kind| kind.class == Class::Handed || looks_at_watch(kind))
    }
}
