//! What a wait was for that does not say so itself: by the waits of its thread that are alike.
//!
//! Stacks have a budget a CPU. Where others spent it, a wait of any length is reported without its own stack, and its time is accumulated
//! to the thread's next stack of that state (`Span::sampled_wait_ns`), as the time of short waits is; or without the stack of who
//! ended it. And nobody ended the one that the window ended in. The code of a sleep is not seen in a sleeper's stack: that
//! it was one, only its end says (`wait_reasons/time.rs`). The waits before and after speak for such a one, where they agree.

use whyslow_model::timeline::{Context, Span, Waker};

use super::facts::{Graph, Kind};
use crate::wait_reasons::{Class, task_behind};

/// So many waits of the thread are looked at on either side: with a stack in each slice of 100 ms, those of two seconds that
/// last 30 ms. What is bounded is the work where a thread has thousands without a stack.
const MOST_LOOKS: usize = 64;

impl Graph<'_> {
    /// What those waits were for that speak for the one of `row`. `None`: none does, or it is said by a lock's word.
    pub(super) fn alike(&self, row: usize, span: &Span) -> Option<Kind> {
        // An id that was used again is another thread.
        self.lines.get(&span.pid).filter(|line| span.lock.is_none() && line.is_one())?;
        let (before, after) = match span.stack {
            None => self.around(row, span, |other| other.stack.is_some()),
            Some(_) if end_is_seen(span) => return None,
            Some(_) => self.around(row, span, |other| end_is_seen(other) && self.is_at(other, span)),
        };
        let near = || [before, after].into_iter().flatten();
        // Without a stack of its own it takes a witness on either side.
        let stood_for = span.stack.is_some() || before.is_some() && self.is_stood_for(after, span);
        let are_alike = near().filter_map(|at| self.spans.get(at)).all(|other| are_alike(other, span));
        let kind = near().next().filter(|_| stood_for && are_alike).map(|at| self.kind(at))?;
        let agree = kind.class != Class::Unknown && near().all(|at| self.kind(at) == kind);
        agree.then_some(kind)
    }

    /// The nearest waits of its thread in its state, before it and after it, that can speak.
    fn around(&self, row: usize, span: &Span, can: impl Fn(&Span) -> bool) -> (Option<usize>, Option<usize>) {
        let Some(line) = self.lines.get(&span.pid) else { return (None, None) };
        let can = |at: &usize| *at != row && self.spans.get(*at).is_some_and(&can);
        let before = line.waits_before(span.state, span.at_ns).take(MOST_LOOKS).find(can);
        let mut after = line.waits_around(span.state, span.woken_ns, u64::MAX).take(MOST_LOOKS);
        (before, after.find(can))
    }

    /// Its time is in what the stack of `next` stands for: that one is the first that was taken after it.
    fn is_stood_for(&self, next: Option<usize>, span: &Span) -> bool {
        let waited = |span: &Span| span.woken_ns.saturating_sub(span.at_ns);
        let next = next.and_then(|at| self.spans.get(at));
        next.is_some_and(|next| next.sampled_wait_ns >= waited(next).saturating_add(waited(span)))
    }

    /// Both at the same place of the kernel.
    fn is_at(&self, one: &Span, other: &Span) -> bool {
        let frames = self.stacks.kernel(one.stack);
        !frames.is_empty() && frames == self.stacks.kernel(other.stack)
    }
}

/// Both in one system call, or for one work item, and ended by an interrupt, or by one task. What has not ended yet may.
fn are_alike(one: &Span, other: &Span) -> bool {
    let by = |span: &Span| {
        let waker = span.waker.as_ref()?;
        Some((waker.context, if waker.context == Context::Task { waker.pid } else { 0 }))
    };
    // What is still open has an end that nobody saw: it passes for one like it only while it is not much longer.
    let length = |span: &Span| span.woken_ns.saturating_sub(span.at_ns);
    let may_end_alike = other.open && length(other) <= length(one).saturating_mul(3) / 2;
    let end = may_end_alike || !other.open && by(one).is_some_and(|by_one| by(other) == Some(by_one));
    end && one.target == other.target && (one.syscall, &one.work) == (other.syscall, &other.work)
}

/// All is seen of its end that the classification asks for: which task, or from where in an interrupt. Of data that another task of this host has
/// sent the probe takes no stack.
fn end_is_seen(span: &Span) -> bool {
    let is_seen = task_behind(span).is_some() || span.waker.as_ref().is_some_and(is_told);
    span.stack.is_some() && is_seen
}

fn is_told(waker: &Waker) -> bool {
    waker.context == Context::Task || waker.stack.is_some()
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::Target;

    use super::*;

    fn ended(ns: u64) -> Span {
        let waker = Waker { context: Context::Hardirq, ..Waker::default() };
        Span { woken_ns: ns, waker: Some(waker), ..Span::default() }
    }

    #[test]
    fn what_hangs_is_not_like_what_was_short() {
        let open = |ns| Span { open: true, waker: None, ..ended(ns) };
        assert!(are_alike(&ended(100), &open(120)) && !are_alike(&ended(100), &open(1000)));
    }

    #[test]
    fn waits_on_two_files_are_not_alike() {
        let of = |fd| Span { target: Some(Target { fd, ..Target::default() }), ..ended(100) };
        assert!(are_alike(&of(3), &of(3)) && !are_alike(&of(3), &of(4)));
    }
}
