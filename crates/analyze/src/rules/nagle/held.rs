//! Sleeps while TCP held back data that the thread had written, and the threads that waited for these data.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::timeline::{Ends, Span};

use super::IT;
use crate::graph::HostChain;
use crate::wait_reasons::{held_back, is_answer, task_behind};

/// The source and the destination address of data, and the network namespace.
type Way<'r> = (&'r str, &'r str, u32);

/// The time in one sleep for which data were held back.
#[derive(Clone, Copy)]
struct Stretch {
    from: u64,
    to: u64,
    /// The thread that had written it.
    by: u32,
}

/// A thread's sleeps with data held back.
#[derive(Default, Clone)]
struct Thread {
    held_ns: u64,
    waited_ns: u64,
    /// The service's end of the connection.
    service: String,
}

/// All such sleeps of the window.
#[derive(Default)]
pub(super) struct Held<'r> {
    /// By connection, sorted by time.
    ways: BTreeMap<Way<'r>, Vec<Stretch>>,
    threads: BTreeMap<u32, Thread>,
}

/// A thread's waits for data that were held back.
pub(super) struct Late {
    pub pid: u32,
    pub time: Duration,
    pub times: u64,
    pub worst: Duration,
    /// The thread that had written it.
    pub by: u32,
}

impl<'r> Held<'r> {
    pub fn of(spans: &'r [Span]) -> Self {
        let mut all = Held::default();
        for (span, (ns, ends)) in spans.iter().filter_map(|span| Some((span, held_back(span)?))) {
            let stretch = Stretch { from: span.at_ns, to: span.at_ns.saturating_add(ns), by: span.pid };
            all.ways.entry((&ends.local, &ends.peer, ends.netns)).or_default().push(stretch);
            let thread = all.threads.entry(span.pid).or_default();
            thread.held_ns = thread.held_ns.saturating_add(ns);
            thread.waited_ns = thread.waited_ns.saturating_add(span.woken_ns.saturating_sub(span.at_ns));
            thread.service.clone_from(if ends.serves { &ends.local } else { &ends.peer });
        }
        all.ways.values_mut().for_each(|stretches| stretches.sort_unstable_by_key(|one| one.from));
        all
    }

    /// Waits for the second part of an answer that was written together with the first part. The acknowledgement timer makes TCP send it, in
    /// the context of any task: so the waker does not name the sender, and the waiter has sent no request since the first part.
    pub fn late(&self, spans: &'r [Span]) -> Vec<Late> {
        if self.ways.is_empty() {
            return Vec::new();
        }
        spans.iter().filter_map(|span| self.behind(span)).collect()
    }

    fn behind(&self, span: &Span) -> Option<Late> {
        let waker = span.waker.as_ref()?;
        let Ends { local, peer, netns, .. } = waker.delivery.as_ref()?.ready.as_ref()?;
        let stretches = self.ways.get(&(peer.as_str(), local.as_str(), *netns))?;
        if span.held_back || !is_answer(span, waker) || task_behind(span).is_some() {
            return None;
        }
        let within = |one: &Stretch| span.woken_ns.min(one.to).saturating_sub(span.at_ns.max(one.from));
        let until = stretches.partition_point(|one| one.from < span.woken_ns);
        let (ns, by) =
            stretches.get(..until)?.iter().rev().take(MOST_LOOKS).map(|one| (within(one), one.by)).max()?;
        let time = Duration::from_nanos(ns);
        (ns > 0).then_some(Late { pid: span.pid, time, times: 1, worst: time, by })
    }

    /// The part of a chain's time for which data were held back, if the chain ends at such a wait.
    pub fn shared_out(&self, reported: &HostChain<'_>) -> Vec<Late> {
        let chain = &reported.chain;
        let is_it = chain.hops.last().is_some_and(|last| last.detail == IT);
        let end = chain.tasks.last().and_then(|threads| threads.first()).map(|(pid, _)| *pid);
        let Some((by, thread)) = end.and_then(|pid| Some((pid, self.threads.get(&pid)?))).filter(|_| is_it)
        else {
            return Vec::new();
        };
        let part = (thread.held_ns as f64 / thread.waited_ns.max(1) as f64).min(1.0);
        let (worst, heads) = (chain.worst.mul_f64(part), reported.heads.len().max(1) as u64);
        let late = |(pid, time): (&u32, &Duration)| Late {
            pid: *pid,
            time: time.mul_f64(part),
            times: chain.count.div_ceil(heads),
            worst,
            by,
        };
        reported.heads.iter().map(late).collect()
    }

    /// The address of the service that this thread wrote to, or that it belongs to.
    pub fn service(&self, thread: Option<u32>) -> Option<&str> {
        Some(self.threads.get(&thread?)?.service.as_str()).filter(|address| !address.is_empty())
    }
}

/// Most stretches of one connection that are searched for a wait: the wait lies in one of them, or ends with one of them.
const MOST_LOOKS: usize = 4;
