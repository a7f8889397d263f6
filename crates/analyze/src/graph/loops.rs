//! Event loops: one thread that serves many. Whoever waits for its answer does not wait for the requests of others that come in
//! between, but for the answer that the loop itself has asked for.

use whyslow_model::timeline::Span;
use whyslow_model::wait::Reason;

use super::facts::Graph;
use super::walk::Walk;
use crate::wait_reasons::{is_asked, task_behind};

/// Waits of the loop that are looked at for an answer.
const LOOKS: usize = 256;

/// Who is to be followed from a wait.
pub(super) enum Other {
    /// Who ended it.
    Own,
    /// Who ended the longer wait that this one is a part of.
    AtLast(u32),
    /// Who gave the loop an answer afterwards, or was asked for one.
    Later(u32),
    /// Nobody that was seen ended the longer wait.
    Unseen,
    /// Nobody that is known: the request that ended it was about something else.
    Nobody,
}

impl Graph<'_> {
    /// Of a wait that a request ended: who gave the loop the next answer, before it gave its own; or whom it had asked: an answer
    /// that comes while it is awake ends no wait. The last request before that
    /// may be what was waited for: one client's message for another.
    pub fn behind_loop(&self, walk: &Walk, row: usize) -> Other {
        let span = self.spans.get(row).filter(|span| is_asked(span) && self.is_of_many(row));
        let (Some((from, until)), Some(span)) = (walk.stretch(), span) else { return Other::Own };
        let mut next = self.waits_of_loop(span, until).filter(|span| task_behind(span).is_some()).peekable();
        let is_last = next.peek().is_none();
        let mut others = next.filter(|span| !is_asked(span)).filter_map(task_behind);
        let answered = others.find(|waker| walk.is_new(waker.pid)).map(|waker| waker.pid);
        let asked = || self.wakes.asked(span.pid, from, span.woken_ns).filter(|pid| walk.is_new(*pid));
        match answered.or_else(asked) {
            Some(pid) => Other::Later(pid),
            None if is_last => Other::Own,
            None => Other::Nobody,
        }
    }

    fn waits_of_loop(&self, span: &Span, until: u64) -> impl Iterator<Item = &Span> {
        let line = self.lines.get(&span.pid);
        let next = line.into_iter().flat_map(move |line| line.waits_after(span.woken_ns)).take(LOOKS);
        let next = next.filter(|row| self.is_of_many(*row)).filter_map(|row| self.spans.get(row));
        next.take_while(move |span| span.woken_ns <= until)
    }

    /// A wait for events of many descriptors.
    fn is_of_many(&self, row: usize) -> bool {
        matches!(self.kind(row).reason, Reason::Poll | Reason::Epoll)
    }
}
