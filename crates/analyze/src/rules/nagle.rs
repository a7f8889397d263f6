//! Small writes wait for an acknowledgement: Nagle's algorithm at one end of the connection, a delayed acknowledgement at the other end.
//!
//! Signal: chains of the wait-for graph that end at a task which waits for data while TCP holds back what it wrote to the connection.
//! Lost: the waits that the chains explain, less what the waiters' other sleeps absorb. Not this rule: a peer that does not read, or a
//! slow network.
//!
//! When a task goes to sleep, the probe reads the state of the connection whose data ended the task's last long wait: less than a full
//! packet is not sent yet, and a small packet is not acknowledged yet. Of a wait only the time before the connection sends counts.

mod held;

use std::collections::BTreeSet;

use whyslow_model::table::Task;
use whyslow_model::wait::{Detail, Reason, TaskState, WaitTarget};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command};

use self::held::Held;
use super::Rule;
use super::homes::Homes;
use super::one_end::{Waits, lost};
use crate::{Evidence, names};

pub const RULE: Rule = Rule {
    id: "nagle",
    question: "Do small writes to connections wait for acknowledgements?",
    what: "A program writes a message in two small pieces and waits for the answer. TCP sends the first piece and holds back the second until the \
           first is acknowledged (Nagle's algorithm); the peer cannot answer yet, and delays its acknowledgement for 40 ms or more. Each message \
           takes that long, on an idle network and idle CPUs.",
    how: "The state of a connection when a task goes to sleep: a small packet is not acknowledged, and less than a full packet is not sent. The \
          wait-for graph leads to the tasks that wait for this task. Counterfactual: TCP_NODELAY, so that the data are sent at once. Time lost = \
          the waits until the connection sends, less what the waiters' other sleeps absorb.",
    limits: "Needs Linux 6.3 (sk_data_ready). The first such wait of a connection: not seen. A thread that has long waits on many connections in \
             turn: not seen. A service whose client is on another host or in another network namespace: what it holds back is not seen. A peer that \
             takes longer to answer than the data were held back: the wait is reported as a wait for that peer. A subscriber that acknowledges each \
             message in two small writes: looks like a client that requests the next message. One round trip to a distant peer: reported, too.",
    sources: "RFC 896, RFC 1122 section 4.2.3; net/ipv4/tcp_output.c (tcp_nagle_check), net/ipv4/tcp_timer.c (tcp_delack_timer); tcp(7).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

pub(super) const IT: Detail = Detail::Target(WaitTarget::Acknowledgement);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let held = Held::of(ev.spans()?);
    let tasks = ev.tasks()?;
    let (mut waits, mut all) = (Waits::new(), Vec::new());
    all.extend(held.late(ev.spans()?));
    all.extend(ev.host_chains().iter().flat_map(|reported| held.shared_out(reported)));
    for wait in &all {
        let sum = waits.entry(wait.pid).or_default();
        *sum = sum.saturating_add(wait.time);
    }
    let mut victims: Vec<&Task> = tasks.iter().filter(|task| waits.contains_key(&task.pid)).collect();
    victims.sort_by_key(|task| std::cmp::Reverse(waits.get(&task.pid)));
    let loss = lost(ev, &victims, Reason::Socket, &waits, 1.0);
    let (Some(first), true) = (victims.first(), loss.is_felt(ev.window())) else { return Ok(Vec::new()) };
    let holders: BTreeSet<String> = all.iter().filter_map(|wait| called(ev, wait.by)).collect();
    let holders = names::listed(&holders.into_iter().collect::<Vec<_>>());
    let times = all.iter().map(|wait| wait.times).sum();
    let worst = all.iter().map(|wait| wait.worst).max().unwrap_or_default();
    let most = all.iter().max_by_key(|wait| wait.time).map(|wait| wait.by);
    let to = held.service(most);
    let towards = to.as_ref().map_or_else(String::new, |address| format!(" on connections to {address}"));
    let victim = Homes::of(ev, tasks).payer(ev, &victims, None);
    let who = names::tasks_of(victims.len() as u64, &victim.name);
    let hop = Hop::new(Reason::Socket, who, IT, TaskState::Sleeping, loss.likely).times(times, worst);
    let finding = Finding::cause(RULE.id, victim, loss.likely)
        .titled(format!(
            "small writes of {holders}{towards} wait for an acknowledgement before they are sent (Nagle's algorithm)"
        ))
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(waits.values().sum())
        .by(Culprit::new(SubjectKind::Limit, "nagle", "Nagle's algorithm"))
        .hop(hop)
        .check(
            "its connections, with the bytes not sent (notsent) and the packets not acknowledged (unacked)",
            command!("nsenter -n -t {} ss -tinp", first.tgid),
        )
        .advice(format!(
            "let {holders} write each message in one call (writev, a buffered writer), or set TCP_NODELAY (costs a larger number of small packets)"
        ));
    Ok(vec![Finding { paid_by: waits.keys().copied().collect(), ..finding }])
}

/// The name of a thread's process.
fn called(ev: &Evidence<'_>, pid: u32) -> Option<String> {
    ev.task(pid).map(|task| ev.process_name(task.tgid, &task.comm))
}

#[cfg(test)]
mod tests;
