//! Clients wait for one thread that answers one request after the other, and that takes long for one of them.
//!
//! Signal: chains of the wait-for graph that lead from several clients' connections to one thread that runs. Lost: the part of the
//! clients' waits that the thread cannot have spent on their own requests, because it ran for one client at a time. Not this rule: a
//! service that is stopped or sleeps (`held-up`), and a service that gets no CPU (`full-cpus`).

use whyslow_model::{Finding, Missing, command, seconds};

use super::Rule;
use super::homes::Homes;
use super::queues::{self, Queue};
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "request-queue",
    question: "Do clients wait for one thread that takes long for one request?",
    what: "A program answers all its clients in one thread (an event loop). While the thread computes for one client, all other clients \
           wait, although the host may be nearly idle.",
    how: "The wait-for graph: two clients or more that wait for data from a socket, and one thread at the other end of it that ran \
          meanwhile. The thread ran for one client at a time, so time lost = the clients' waits less all CPU time of the thread, less what \
          the clients' other sleeps absorb. Reported where the waits are at least 1.5 times that CPU time and 15 ms on average, and the \
          loss is more than 5 % of the clients' time and 1 % of the window.",
    limits: "The client that the thread ran for: not known, so one long request and many requests of medium length are reported alike. A \
             thread that hands work to other threads and waits for them: only the chain shows it.",
    sources: "epoll(7), select(2); Linux net/ (the sender of the data that ended a wait).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Threads that are reported.
const MOST: usize = 3;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.spans()?;
    let homes = Homes::of(ev, ev.tasks()?);
    let queues = queues::all(ev, &homes);
    let mut found: Vec<Finding> =
        queues.iter().filter_map(|(pid, queue)| finding(ev, &homes, *pid, queue)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    super::first_few(&mut found, MOST);
    Ok(found)
}

fn finding(ev: &Evidence<'_>, homes: &Homes, server: u32, queue: &Queue) -> Option<Finding> {
    let its = ev.task(server)?;
    let told = queue.told(ev, homes, server)?;
    let name = &queue.server.name;
    let title = format!(
        "one thread of {name} answers {} clients one after the other: each answer took {} on average, worst {}",
        told.victims.len(),
        seconds(told.mean),
        seconds(queue.worst)
    );
    let overlaps = vec!["full-cpus".to_owned()];
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &told.victims, Some(server)), told.loss.likely)
        .titled(title)
        .share_of(told.loss.lived)
        .between(told.loss.low, told.loss.high)
        .raw_wait(told.time)
        .by(queue.server.clone())
        .check("the CPU time of each of its threads", command!("top -H -b -n 1 -w 120 -p {}", its.tgid))
        .check("what each task waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain.clone_from(&queue.hops);
    finding.paid_by = told.victims.iter().map(|task| task.pid).collect();
    finding.overlaps = overlaps;
    Some(finding.advice(format!(
        "let {name} answer in more threads or processes (costs memory), or move the long work out of this thread (a profile of the \
         thread shows it)"
    )))
}

#[cfg(test)]
#[path = "request_queue_tests.rs"]
mod tests;
