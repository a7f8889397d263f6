//! Clients that wait for one thread, which answers one request after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Detail, Reason};
use whyslow_model::{Culprit, Hop, SubjectKind};

use super::homes::Homes;
use super::one_end::{Waits, lost};
use crate::Evidence;
use crate::cpu::spread::Loss;
use crate::graph::{CHAIN_THRESHOLD, HostChain};

/// The waits are this many times as long as the thread ran: below that hardly any client waited behind another client.
const QUEUED: f64 = 1.5;
/// The clients that wait for one thread.
pub(super) struct Queue {
    /// The hops of the most expensive chain.
    pub hops: Vec<Hop>,
    pub server: Culprit,
    waits: Waits,
    count: u64,
    pub worst: Duration,
    /// Clients from the thread's own process tree that connected to the address where it listens.
    clients: BTreeSet<u32>,
}

/// A queue that costs its clients time.
pub(super) struct Told<'e> {
    pub victims: Vec<&'e Task>,
    /// How long they waited, in sum and on average.
    pub time: Duration,
    pub mean: Duration,
    pub loss: Loss,
}

/// By the thread that answers.
pub(super) fn all(ev: &Evidence<'_>, homes: &Homes) -> BTreeMap<u32, Queue> {
    let mut queues: BTreeMap<u32, Queue> = BTreeMap::new();
    for reported in ev.host_chains() {
        let Some(server) = answering(reported) else { continue };
        let chain = &reported.chain;
        let Some(head) = chain.hops.first() else { continue };
        let queue = queues.entry(server).or_insert_with(|| Queue {
            hops: chain.hops.clone(),
            server: chain.leaf.clone(),
            waits: Waits::new(),
            count: 0,
            worst: Duration::ZERO,
            clients: BTreeSet::new(),
        });
        queue.count = queue.count.saturating_add(head.count.unwrap_or(1));
        queue.worst = queue.worst.max(head.worst.unwrap_or_default());
        for (pid, time) in &reported.heads {
            queue.waits.entry(*pid).and_modify(|sum| *sum += *time).or_insert(*time);
            queue.clients.extend(homes.is_client(reported.service, *pid, server).then_some(*pid));
        }
    }
    queues
}

impl Queue {
    /// What the clients lost: the part of their waits that the thread cannot have spent on their own requests. `None`: it was no queue, or no
    /// client lost a noticeable time.
    pub fn told<'e>(&self, ev: &'e Evidence<'_>, homes: &Homes, server: u32) -> Option<Told<'e>> {
        let ran = Duration::from_nanos(ev.task(server)?.exec_ns);
        let is_others = |task: &&Task| homes.differ(task.pid, server) || self.clients.contains(&task.pid);
        let victims: Vec<&Task> =
            self.waits.keys().filter_map(|pid| ev.task(*pid)).filter(is_others).collect();
        let time: Duration = victims.iter().filter_map(|task| self.waits.get(&task.pid)).sum();
        let mean = time.as_secs_f64() / self.count.max(1) as f64;
        let is_queue = victims.len() > 1
            && time.as_secs_f64() >= QUEUED * ran.as_secs_f64()
            && mean >= CHAIN_THRESHOLD.as_secs_f64();
        if !is_queue {
            return None;
        }
        let part = 1.0 - ran.as_secs_f64() / time.as_secs_f64();
        let loss = lost(ev, &victims, self.hops.first()?.reason, &self.waits, part);
        let told = Told { victims, time, mean: Duration::from_secs_f64(mean), loss };
        told.loss.is_felt(ev.window()).then_some(told)
    }
}

/// The thread at the other end of the client's socket, which ran while the head of the chain waited.
fn answering(reported: &HostChain<'_>) -> Option<u32> {
    let [wait, ran] = reported.chain.hops.as_slice() else { return None };
    // Data from a pipe are the work of an earlier stage, for one reader.
    let is_request = wait.reason != Reason::Pipe && matches!(wait.detail, Detail::Peer { .. });
    let is_it = is_request && ran.reason == Reason::Running && reported.chain.leaf.kind == SubjectKind::Task;
    reported.chain.leaf.id.parse().ok().filter(|_| is_it)
}
