//! Clients wait for one thread that answers one request after the other, and is long at one.
//!
//! Signal: chains of the wait-for graph from several clients' connections to one thread that runs. Lost: of their waits, what that
//! thread cannot have spent on the request of the one who waits: it ran for one at a time. Not this rule: a service that is stopped or
//! sleeps (`held-up`), one that gets no CPU (`full-cpus`).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Detail, Reason};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command, seconds};

use super::Rule;
use super::homes::Homes;
use super::one_end::{Waits, lost};
use crate::Evidence;
use crate::graph::{CHAIN_THRESHOLD, HostChain};

pub const RULE: Rule = Rule {
    id: "request-queue",
    question: "Do clients wait for one thread that is long at one request?",
    what: "A program that answers all its clients in one thread (an event loop) does nothing for any of them while it computes for one. A \
           host that is nearly idle has clients that wait.",
    how: "The wait-for graph: two clients or more who wait for data over a socket, and at the other end one thread that ran meanwhile. It \
          ran for one at a time: time lost = their waits less what it ran altogether, less what their other sleeps absorb. Reported \
          where they waited at least one and a half times as long as it ran, 15 ms in the mean, and lost more than 5 % of \
          their time and 1 % of the window.",
    limits: "For whom it ran is not known: one long request and many of medium length are told alike. A thread that hands work to \
             others, and waits for them, is told by the chain alone.",
    sources: "epoll(7), select(2); Linux net/ (who sent the data a wait ended with).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Waits are so many times as long as it ran: below that hardly anybody stood behind another.
const QUEUED: f64 = 1.5;
/// Threads that are reported.
const MOST: usize = 3;

/// Who waits for one thread.
struct Queue {
    /// The most expensive of the chains.
    hops: Vec<Hop>,
    server: Culprit,
    waits: Waits,
    count: u64,
    worst: Duration,
    /// Those who came to where it listens, from within its own tree.
    clients: BTreeSet<u32>,
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.spans()?;
    let tasks = ev.tasks()?;
    let homes = LazyCell::new(|| Homes::of(ev, tasks));
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
            queue.clients.extend(homes.is_client(reported.head, *pid, server).then_some(*pid));
        }
    }
    let mut found: Vec<Finding> =
        queues.iter().filter_map(|(pid, queue)| finding(ev, &homes, *pid, queue)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    found.truncate(MOST);
    Ok(found)
}

/// The thread at the other end of a socket that ran while the head of the chain waited.
fn answering(reported: &HostChain<'_>) -> Option<u32> {
    let [wait, ran] = reported.chain.hops.as_slice() else { return None };
    // What a pipe brings is the work of a stage before, for one reader.
    let is_request = wait.reason != Reason::Pipe && matches!(wait.detail, Detail::Peer { .. });
    let is_it = is_request && ran.reason == Reason::Running && reported.chain.leaf.kind == SubjectKind::Task;
    reported.chain.leaf.id.parse().ok().filter(|_| is_it)
}

fn finding(ev: &Evidence<'_>, homes: &Homes, server: u32, queue: &Queue) -> Option<Finding> {
    let its = ev.task(server)?;
    let ran = Duration::from_nanos(its.exec_ns);
    let is_others = |task: &&Task| homes.differ(task.pid, server) || queue.clients.contains(&task.pid);
    let victims: Vec<&Task> = queue.waits.keys().filter_map(|pid| ev.task(*pid)).filter(is_others).collect();
    let time: Duration = victims.iter().filter_map(|task| queue.waits.get(&task.pid)).sum();
    let mean = time.as_secs_f64() / queue.count.max(1) as f64;
    let is_queue = victims.len() > 1
        && time.as_secs_f64() >= QUEUED * ran.as_secs_f64()
        && mean >= CHAIN_THRESHOLD.as_secs_f64();
    if !is_queue {
        return None;
    }
    let part = 1.0 - ran.as_secs_f64() / time.as_secs_f64();
    let loss = lost(ev, &victims, queue.hops.first()?.reason, &queue.waits, part);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let name = &queue.server.name;
    let title = format!(
        "one thread of {name} answers {} clients one after the other: each answer took {} in the mean, up to {}",
        victims.len(),
        seconds(Duration::from_secs_f64(mean)),
        seconds(queue.worst)
    );
    let overlaps = vec!["full-cpus".to_owned()];
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &victims, Some(server)), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(time)
        .by(queue.server.clone())
        .check("what its threads use of a CPU", command!("top -H -b -n 1 -w 120 -p {}", its.tgid))
        .check("whom each waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain.clone_from(&queue.hops);
    finding.overlaps = overlaps;
    Some(finding.advice(format!(
        "let {name} answer in more threads or processes, or do elsewhere what takes it long (a profile of the thread shows what)"
    )))
}

#[cfg(test)]
#[path = "request_queue_tests.rs"]
mod tests;
