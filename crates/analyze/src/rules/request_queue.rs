//! Clients wait for one thread that answers one request after the other, and is long at one.
//!
//! Signal: chains of the wait-for graph from several clients' connections to one thread that runs. Lost: of their waits, what that
//! thread cannot have spent on the request of the one who waits: it ran for one at a time. Not this rule: a service that is stopped or
//! sleeps (`held-up`), one that gets no CPU (`full-cpus`).

use whyslow_model::{Finding, Missing, command, seconds};

use super::Rule;
use super::homes::Homes;
use super::queues::{self, Queue};
use crate::Evidence;

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
        "one thread of {name} answers {} clients one after the other: each answer took {} in the mean, up to {}",
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
        .check("what its threads use of a CPU", command!("top -H -b -n 1 -w 120 -p {}", its.tgid))
        .check("whom each waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain.clone_from(&queue.hops);
    finding.paid_by = told.victims.iter().map(|task| task.pid).collect();
    finding.overlaps = overlaps;
    Some(finding.advice(format!(
        "let {name} answer in more threads or processes, or do elsewhere what takes it long (a profile of the thread shows what)"
    )))
}

#[cfg(test)]
#[path = "request_queue_tests.rs"]
mod tests;
