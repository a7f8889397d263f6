//! Requests: a client that has asked a service, and waits for its answer. On a whole host these waits are losses; to wait until somebody
//! has something to tell (a service for requests, a subscriber for messages) is how programs are built.

use whyslow_model::timeline::Span;

use super::facts::Graph;
use super::node::Node;
use crate::wait_reasons::{Class, TICK, is_answer, task_behind};

impl Graph<'_> {
    /// Whether a wait is for the answer of another process of this host to what was asked since the thread's last wait.
    pub fn is_for_answer(&self, row: usize) -> bool {
        let Some(span) = self.spans.get(row) else { return false };
        let end = self.end_of_looks(row).and_then(|row| self.spans.get(row)).unwrap_or(span);
        let answers = |of: &&Span| task_behind(of).is_some_and(|task| task.tgid != span.tgid && is_answer(of, task));
        let Some(task) = Some(end).filter(answers).and_then(task_behind) else { return false };
        let begin = self.longer_wait(row).map_or(span.at_ns, |(begin, _)| begin);
        let since = self.awake_since(span.pid, begin);
        match task.delivery.as_ref().and_then(|delivery| delivery.sent_before_ns) {
            Some(before) => {
                let sent = end.woken_ns.saturating_sub(before);
                (since.saturating_sub(TICK)..=begin.saturating_add(TICK)).contains(&sent)
            }
            None => self.wakes.any_of(span.pid, since, begin, task.tgid),
        }
    }

    /// When the last wait of a thread before this one ended.
    fn awake_since(&self, pid: u32, begin: u64) -> u64 {
        let last = self.lines.get(&pid).and_then(|line| line.rows_before(begin).next());
        last.and_then(|row| self.spans.get(row)).map_or(0, |span| span.woken_ns)
    }

    /// A way down that begins with a wait for an answer and ends with somebody who has nothing to do: there was nothing to answer yet.
    pub fn ends_idle(&self, head: &Node, leaf: &Node) -> bool {
        let class = |node: &Node| node.row.map(|row| self.kind(row).class);
        matches!(class(head), Some(Class::Handed | Class::Peer)) && class(leaf) == Some(Class::Handed)
    }
}
