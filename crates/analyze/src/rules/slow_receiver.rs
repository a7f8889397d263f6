//! Packets waited for a reader that reads too late: which queue ran over, which process reads from it, and why that process is late,
//! down to the speed of its CPU.
//!
//! Signal: counters of queues that ran over, by network namespace; sockets whose receive queue was seen full, with their owner;
//! what the owner's busiest thread did instead of reading; the receive softirq's time for each packet, and the limit that stopped it;
//! the CPU's speed. Lost: time in which senders on this host had data and the reader's window had no room (the kernel's own clock of
//! each connection). Without such senders, on a slow CPU: the time that the reader lost on that CPU. Not this rule: a window that
//! closes while no queue runs over and no sender sleeps for room, because TCP holds back a sender that is faster than its reader.
//! Limits of the softirq that are reached without symptoms are not this rule either.
//!
//! What is enough to report: 5 packets or queues that ran over, by the rises of TcpExt and Udp counters over the window; or 10 closed
//! windows together with 10 runs a second of the receive softirq that stopped at a limit; or a sender that slept for room, together
//! with a closed window or with rests of that sender. A socket counts as full if it was full in half of the samples, or in one if a
//! sender waited. Runs of the softirq that stopped are split, poll by poll, into runs that used up netdev_budget and runs that reached
//! netdev_budget_usecs. The time lost of a sending process is that of its connection which waited longest for the reader's window; if
//! no queue ran over, it is the time that the process slept for room. On a slow CPU without such senders it is the reader's time on
//! that CPU x (1 - time a loop should take / time it takes).

mod case;
mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::{Culprit, Finding, Kind, Missing, RuledOut, Subject, SubjectKind};

use self::case::{Case, cases};
use super::{Fold, Rule};
use crate::Evidence;
use crate::net::receive::{State, receiving, symptoms};

pub const RULE: Rule = Rule {
    id: "slow-receiver",
    question: "Did packets wait for a reader that reads too late?",
    what: "Packets wait in queues between the network and a program: the softirq's backlog, the socket's receive queue. A program or a \
           CPU that is too slow lets them fill: TCP prunes queues and closes windows, datagrams are dropped, senders wait. It looks like \
           a problem of the network, and is none.",
    how: "Counters of queues that ran over, at least 5 in the window, or closed windows together with a softirq that stopped at a limit or a \
          sender that slept for room; sockets that were seen full; and what their owner's busiest thread did. Time lost = the time that each \
          sender waited for the reader's window, or slept for room. On a slow CPU without such senders: the reader's time on that CPU x (1 - time \
          a loop should take / time it takes).",
    limits: "Senders on other hosts: not seen, so the finding is a risk. A process with several threads: the busiest one counts as the \
             reader. Sockets are sampled a few times in a window: a queue that is full for moments may be missed. A host that hides tasks \
             from tracing: softirqs that interrupt these tasks are counted by the kernel only.",
    sources: "net/ipv4/tcp_input.c (tcp_prune_queue, tcp_collapse), tcp_output.c (tcp_chrono_start, tcp_select_window), \
              net/core/dev.c (net_rx_action), net/core/net-procfs.c; Documentation/networking/napi.rst",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: Some(Fold { of: &["softnet-drops", "retransmits", "full-cpus", whyslow_model::SLOW_CPU], fold }),
    shows: super::NOTHING,
};

/// A loss this many times as large is of another order.
const SMALL_BESIDE: u32 = 8;
/// Less than this may come from the edge of the window.
const LEAST_LOST: Duration = Duration::from_millis(100);
/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// Fewer packets than this rule nothing out.
const LEAST_PACKETS: u64 = 1000;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    Ok(cases(ev)?.iter().map(|case| finding(ev, case)).collect())
}

fn finding(ev: &Evidence<'_>, case: &Case<'_>) -> Finding {
    let lost = lost(case);
    let worth = WORTH_IT * ev.window().as_secs_f64();
    let is_cause = case.is_explained() && lost >= LEAST_LOST && lost.as_secs_f64() >= worth;
    let mut found = if is_cause {
        let high = case.reader.as_ref().map_or(lost, |reader| reader.senders.iter().map(|s| s.sum).sum());
        let victims = case.reader.as_ref().map_or(1, |reader| reader.senders.len().max(1));
        let wall = ev.window().saturating_mul(u32::try_from(victims).unwrap_or(u32::MAX));
        let found = Finding::cause(RULE.id, victim(case), lost).share_of(wall);
        if high > lost { found.between(lost, high.min(wall).max(lost)) } else { found }
    } else {
        Finding::risk(RULE.id, reader(case))
    };
    let is_subject = found.victim == reader(case);
    found = found.titled(words::title(case, is_subject));
    if let Some(culprit) = culprit(case) {
        found = found.by(culprit);
    }
    for hop in words::hops(ev, case, lost) {
        found = found.hop(hop);
    }
    if case.slow.is_some() {
        found.overlaps = vec!["slow-cpu".to_owned()];
    }
    words::advice(found, case)
}

/// The time that the senders lost, or that the reader lost on its slow CPU.
fn lost(case: &Case<'_>) -> Duration {
    if case.held >= LEAST_LOST { case.held } else { case.lost_by_speed() }
}

fn victim(case: &Case<'_>) -> Subject {
    let senders = case.reader.as_ref().map_or(&[][..], |reader| &reader.senders);
    match senders.first().filter(|sender| sender.held >= LEAST_LOST) {
        Some(sender) => {
            let others = senders.len() - 1;
            let name = match others {
                0 => sender.comm.clone(),
                1 => format!("{} and 1 other sender", sender.comm),
                _ => format!("{} and {others} other senders", sender.comm),
            };
            Subject::new(SubjectKind::Task, sender.tgid.to_string(), name)
        }
        None => reader(case),
    }
}

fn reader(case: &Case<'_>) -> Subject {
    match &case.reader {
        Some(reader) => Subject::new(SubjectKind::Task, reader.tgid.to_string(), reader.comm.clone()),
        None => {
            let netns = &case.symptoms.netns;
            Subject::new(SubjectKind::Kernel, netns.clone(), format!("network namespace {netns}"))
        }
    }
}

/// The end of the chain.
fn culprit(case: &Case<'_>) -> Option<Culprit> {
    if let Some(slow) = &case.slow {
        return Some(slow.culprit());
    }
    if case.memory.is_some() {
        return Some(
            Culprit::new(SubjectKind::Limit, "tcp_mem", "TCP memory").at_file("/proc/sys/net/ipv4/tcp_mem"),
        );
    }
    let (reader, why) = (case.reader.as_ref()?, case.why.as_ref()?);
    let itself = Culprit::new(SubjectKind::Task, reader.tgid.to_string(), reader.comm.clone());
    match (why.state, &why.function) {
        (State::Unknown, _) => None,
        (State::Runnable, _) => {
            let cpu = why.cpu.map_or_else(|| "cpu".to_owned(), |cpu| format!("cpu{cpu}"));
            Some(Culprit::new(SubjectKind::Cpu, cpu, why.what.clone()))
        }
        (State::Running, Some(function)) => Some(itself.in_function(function)),
        _ => Some(itself),
    }
}

/// Symptoms of a reported chain are no findings of their own: drops of the same CPU's backlog, segments retransmitted in the same
/// namespaces, the slow CPU if the chain's tasks are its victims, and waits of other tasks for the slow CPU that the reader uses.
fn fold(ev: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let Ok(cases) = cases(ev) else { return };
    let own = findings.iter().filter(|found| found.rule == RULE.id && found.kind == Kind::Cause);
    let most = own.filter_map(|found| found.lost).max().unwrap_or_default();
    // The cost for other tasks must be small beside that of the chain: else it stays a finding of its own.
    let is_small = |found: &Finding| found.lost.is_some_and(|lost| lost * SMALL_BESIDE <= most);
    let is_reported = |found: &Finding| {
        cases.iter().any(|case| match found.rule.as_str() {
            "softnet-drops" => case.cpus().iter().any(|cpu| found.victim.id == cpu.to_string()),
            "retransmits" => case.namespaces().contains(&found.victim.id),
            "full-cpus" => {
                is_small(found)
                    && case.slow.is_some()
                    && case.homes(ev).contains(found.culprit.as_ref().map_or("", |culprit| &culprit.id))
            }
            "slow-cpu" => case.slow.as_ref().is_some_and(|slow| {
                let same = found.culprit.as_ref() == Some(&slow.culprit());
                same && case.processes().contains(&found.victim.id)
            }),
            _ => false,
        })
    };
    findings.retain(|found| !is_reported(found));
}

impl Case<'_> {
    fn cpus(&self) -> BTreeSet<u32> {
        let reading = self.why.as_ref().and_then(|why| why.cpu);
        reading.into_iter().chain(self.receiving.map(|receiving| receiving.cpu)).collect()
    }

    fn namespaces(&self) -> BTreeSet<String> {
        let senders = self.reader.iter().flat_map(|reader| &reader.senders).flat_map(|s| &s.netns);
        senders.map(u32::to_string).chain([self.symptoms.netns.clone()]).collect()
    }

    /// Ids that `full-cpus` may use for the reader when it names the culprit.
    fn homes(&self, ev: &Evidence<'_>) -> BTreeSet<String> {
        let Some(reader) = &self.reader else { return BTreeSet::new() };
        let groups = ev.threads(reader.tgid).iter().flat_map(|task| [task.cpu_cgroup, task.unified_cgroup]);
        let paths =
            groups.filter_map(|group| Some(ev.cgroup(group)?.path.clone())).filter(|path| path != "/");
        paths.chain([reader.tgid.to_string()]).collect()
    }

    fn processes(&self) -> BTreeSet<String> {
        let senders = self.reader.iter().flat_map(|reader| &reader.senders).map(|sender| sender.tgid);
        let reader = self.reader.as_ref().map(|reader| reader.tgid);
        senders.chain(reader).map(|pid| pid.to_string()).collect()
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let spilled: u64 = symptoms(ev)?.iter().map(|net| net.spilled()).fold(0, u64::saturating_add);
    let packets: u64 = receiving(ev)?.iter().map(|cpu| cpu.packets).fold(0, u64::saturating_add);
    let clean = spilled == 0 && packets >= LEAST_PACKETS;
    Ok(clean.then(|| RuledOut {
        what: "slow readers of packets".to_owned(),
        evidence: format!("{packets} packets were received, and no receive queue ran over"),
    }))
}

#[cfg(test)]
#[path = "slow_receiver_tests.rs"]
mod tests;
