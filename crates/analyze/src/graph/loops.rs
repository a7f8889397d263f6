//! Event loops: one thread that serves many. Whoever waits for its answer does not wait for the requests of others that come in
//! between, but for the answer that the loop itself has asked for.

use whyslow_model::timeline::Waker;
use whyslow_model::wait::Reason;

use super::explain::Walk;
use super::facts::Graph;
use crate::wait_reasons::{is_request, task_behind};

/// Waits of the loop that are looked at for an answer.
const LOOKS: usize = 256;

impl Graph<'_> {
    /// A request ended this wait of a loop: who gave the loop the next answer, before it gave its own.
    pub fn answer_after(&self, walk: &Walk, row: usize) -> Option<&Waker> {
        let until = walk.until()?;
        let span = self.spans.get(row).filter(|_| self.is_of_many(row))?;
        task_behind(span).filter(|waker| is_request(waker))?;
        let line = self.lines.get(&span.pid)?;
        let next = line.waits_after(span.woken_ns).take(LOOKS).filter(|row| self.is_of_many(*row));
        let next = next.filter_map(|row| self.spans.get(row)).take_while(|span| span.woken_ns <= until);
        next.filter_map(task_behind).find(|waker| !is_request(waker) && walk.is_new(waker.pid))
    }

    /// A wait for events of many descriptors.
    fn is_of_many(&self, row: usize) -> bool {
        matches!(self.kind(row).reason, Reason::Poll | Reason::Epoll)
    }
}
