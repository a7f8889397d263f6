//! Waits that look at their watch: a timed wait which its timer ended, and which began again at once for the same thing,
//! is part of a longer one. Who ended that at last is who was waited for.

use whyslow_model::timeline::{Context, Span, Waker};

use super::facts::Graph;

/// futex(2) on x86-64. A timed poll or epoll of something else each time could not be told apart by its arguments.
const FUTEX: u32 = 202;
/// Between two looks a thread does little: counts what is done, draws its progress.
const PAUSE: u64 = 5_000_000;
/// Looks that are gone through; a thread that looks more often than it is served waits for nobody in particular.
const LOOKS: usize = 256;

impl Graph<'_> {
    /// Who ended the longer wait of which this row is a part.
    pub fn waited_for_at_last(&self, row: usize) -> Option<&Waker> {
        let span = self.spans.get(row).filter(|span| span.syscall == Some(FUTEX) && span.args[0] != 0)?;
        let mut ended = span.woken_ns;
        for row in self.lines.get(&span.pid)?.waits_after(span.woken_ns).take(LOOKS) {
            let next = self.spans.get(row)?;
            if next.at_ns > ended.saturating_add(PAUSE) {
                return None;
            }
            if next.syscall != span.syscall || next.args[0] != span.args[0] {
                continue;
            }
            if let Some(waker) = by_another(next) {
                return Some(waker);
            }
            ended = next.woken_ns;
        }
        None
    }
}

fn by_another(span: &Span) -> Option<&Waker> {
    span.waker.as_ref().filter(|w| w.context == Context::Task && w.pid != 0 && w.pid != span.pid)
}
