//! A thread, or a softirq, keeps a CPU from its packets for long.
//!
//! Signal: packet stalls (`net::stalls`): the receive softirq came late to a CPU, one of its polls took long, or packets waited behind each other in
//! the queue of the CPU, and what ran there meanwhile.
//! Lost: the time that packets waited; each of them waited up to that long. Not this rule: full queues (`softnet-drops`),
//! readers that do not keep up (`slow-receiver`), threads that lose time by the same interrupts (`irqs-off`).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::stall::{StallAccount, StallCulprit, StallKind};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{
    Culprit, Finding, Hop, Kind, Missing, PACKET_STALLS, Probe, RuledOut, Subject, SubjectKind, command,
    seconds, times,
};

use self::fixes::{apart, less_often, shorter_queue, with_others};
use self::stalled::Stalled;
use super::{Fold, Rule};
use crate::Evidence;
use crate::irq::latency::culprits;
use crate::net::stalls::{accounts, are_all_seen, polling_threads, queues};

mod fixes;
mod stalled;

pub const RULE: Rule = Rule {
    id: PACKET_STALLS,
    question: "Did packets wait because something kept their CPU?",
    what: "A packet that has arrived waits until its CPU runs the receive softirq. Code that keeps interrupts off, or bottom halves, or a \
           thread that ksoftirqd or a polling thread (threaded NAPI) may not interrupt, or a softirq that takes long, makes all packets of that CPU wait, whichever process \
           they are for. So do packets that come faster than the softirq handles them. Its users see answers that come late in bursts; the sender and the network are healthy.",
    how: "The time from the raise of the receive softirq to its entry, the interrupts that came late just before it, the polls that \
          took long, the waits of packets behind others in the queue of their CPU (one after another is watched until its turn comes), \
          and the time in which a polling thread was ready and did not run, 5 ms or more each, with what ran there meanwhile. Reported from 1 % of the window on, or if one stall took 50 ms. A \
          function that keeps interrupts off is named if three gaps or more ended in it (rule irqs-off). Ordinary threads that take \
          turns with ksoftirqd or a polling thread (below 50 ms) are not. Counterfactual: no such stall; time lost = the time in which \
          packets waited.",
    limits: "Packets of busy polling have no softirq, and how long packets wait in the ring of a device is not seen. With interrupts off, \
             the time counts from the moment at which a timer was due, not from the arrival of the packet. A CPU with very many softirqs is \
             not watched. Which connections the packets belong to is not known; `whyslow net HOST --watch` ties late answers of HOST to such \
             stalls here, and tells on its own which side kept them.",
    sources: "kernel/softirq.c (raise_softirq, handle_softirqs); net/core/dev.c (net_rx_action, napi_poll); docs/net.md.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: Some(Fold { of: &["irqs-off"], fold }),
    shows: super::NOTHING,
};

/// A smaller part of the window is no cause: one packet in a hundred waits.
const WORTH_IT: f64 = 0.01;
/// ... but one stall of this length is seen by a user.
const LONG: Duration = Duration::from_millis(50);
/// Findings that are reported.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.stalls()?;
    ev.gaps()?;
    let accounts = accounts(ev);
    let mut found = mechanisms(ev, &accounts);
    found.retain(|stalled| is_worth_it(ev, stalled.total(), stalled.worst()));
    found.sort_by_key(|stalled| std::cmp::Reverse(stalled.total()));
    let mut told: Vec<Finding> = found.iter().filter_map(|stalled| finding(ev, stalled)).collect();
    super::first_few(&mut told, MOST);
    let unknown = || polling_threads::are_known(ev).err();
    match untold(ev, &accounts, &found).or_else(|| queues::unseen(ev)).or_else(unknown) {
        Some(missing) if told.is_empty() => return Err(missing),
        Some(missing) => told.push(Finding::cannot_tell(RULE.id, missing)),
        None if told.is_empty() && is_blind(ev) => {
            let why = "a CPU had too many softirqs to check each";
            return Err(Missing::unclear("whether packets waited for their CPU", why));
        }
        None => {}
    }
    Ok(told)
}

fn is_worth_it(ev: &Evidence<'_>, total: Duration, worst: Duration) -> bool {
    worst >= LONG || total.as_secs_f64() >= WORTH_IT * ev.window().as_secs_f64()
}

/// The hooks were removed for a part of the window.
fn is_blind(ev: &Evidence<'_>) -> bool {
    ev.lacks_a_part(Probe::PacketStalls)
}

/// The CPU whose packets waited longest for what no finding names, and why.
fn untold(ev: &Evidence<'_>, accounts: &[StallAccount], found: &[Stalled]) -> Option<Missing> {
    let is_told = |one: &StallAccount| {
        let culprit = one.culprit.as_ref();
        let of = |stalled: &Stalled| {
            let same = |(other, known): &(StallAccount, StallCulprit)| {
                (other.cpu, other.kind) == (one.cpu, one.kind)
                    && culprit.is_some_and(|one| one.pid == known.pid)
            };
            stalled.0.iter().any(same)
        };
        culprit.is_some() && found.iter().any(of)
    };
    let mut by_cpu: BTreeMap<u32, Vec<&StallAccount>> = BTreeMap::new();
    for one in accounts.iter().filter(|one| !is_told(one)) {
        by_cpu.entry(one.cpu).or_default().push(one);
    }
    let sum =
        |all: &[&StallAccount]| all.iter().fold(Duration::ZERO, |sum, one| sum.saturating_add(one.total));
    let worst = |all: &[&StallAccount]| all.iter().map(|one| one.worst).max().unwrap_or_default();
    by_cpu.retain(|_, all| is_worth_it(ev, sum(all), worst(all)));
    let (cpu, all) = by_cpu.into_iter().max_by_key(|(_, all)| sum(all))?;
    let (first, total) = (all.first()?, sum(&all)); // accounts come with the longest first
    let count = all.iter().fold(0u64, |sum, one| sum.saturating_add(one.count));
    let why = match (&first.unknown, first.culprit.as_ref().and_then(|culprit| culprit.function.as_ref())) {
        (Some(why), _) => why.clone(),
        (None, Some(function)) if first.kind == StallKind::IrqsOff => {
            format!(
                "{function}, which ran at the end, is not known to keep interrupts off: it was seen too rarely"
            )
        }
        (None, _) => format!("by {} causes, none of which is large", all.len()),
    };
    let what = format!("what kept CPU {cpu} from its packets");
    Some(Missing::unclear(what, format!("they waited for {}, {}, but {why}", seconds(total), times(count))))
}

/// A function that keeps interrupts off must be known for it: one gap may end in any.
fn mechanisms(ev: &Evidence<'_>, accounts: &[StallAccount]) -> Vec<Stalled> {
    let keeps_off = culprits(ev.recording());
    let is_known =
        |cpu, function: &str| keeps_off.iter().any(|one| (one.cpu, one.function.as_str()) == (cpu, function));
    let mut found: BTreeMap<_, Stalled> = BTreeMap::new();
    for (one, culprit) in accounts.iter().filter_map(|one| Some((one, one.culprit.as_ref()?))) {
        let function = culprit.function.as_deref();
        let key = match one.kind {
            StallKind::IrqsOff if !function.is_some_and(|function| is_known(one.cpu, function)) => continue,
            StallKind::IrqsOff => (one.cpu, one.kind, 0, function),
            _ => (one.cpu, one.kind, culprit.pid, function.filter(|_| culprit.pid == 0)),
        };
        found.entry(key).or_insert_with(|| Stalled(Vec::new())).add(one, culprit);
    }
    let mut found: Vec<Stalled> = found.into_values().collect();
    found.iter_mut().for_each(|stalled| stalled.0.sort_by_key(|(one, _)| std::cmp::Reverse(one.total)));
    found
}

fn finding(ev: &Evidence<'_>, stalled: &Stalled) -> Option<Finding> {
    let ((one, culprit), others) = stalled.0.split_first()?;
    let cpu = one.cpu;
    let (total, worst) = (seconds(one.total), seconds(one.worst));
    let often = format!("for {total}, {}, worst {worst}", times(one.count));
    let also = others.first().map_or_else(String::new, |(one, other)| {
        format!("; {} did the same for {}", other.named(), seconds(one.total))
    });
    let who = culprit.named();
    // What all its stalls share.
    let work = StallAccount { culprit: Some(culprit.clone()), ..one.clone() }.work();
    let victim = Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), format!("CPU {cpu}"));
    let title = match one.kind {
        StallKind::Queued => queue_title(one, &who),
        _ => format!("{who} kept the packets of CPU {cpu} waiting {often}{work}{also}"),
    };
    let mut found = Finding::cause(RULE.id, victim, stalled.total())
        .titled(title)
        .share_of(ev.window())
        .raw_wait(stalled.total())
        .by(accused(culprit))
        .check("each stall, with what ran there", "whyslow net --watch --for 30s");
    found.chain = stalled.0.iter().take(MOST).map(|(one, culprit)| hop(one, culprit)).collect();
    if one.kind == StallKind::IrqsOff {
        found.overlaps = vec!["irqs-off".to_owned()];
    }
    let found = match (culprit.pid, one.kind) {
        (_, StallKind::Queued) => shorter_queue(ev, found, cpu, &who),
        (0, StallKind::Poll) => found.advice(format!(
            "let the softirq do less for each packet (fewer rules, sets instead of lists, no filter on this path): perf top -C {cpu} \
             shows what {who} calls; undo: the old rules"
        )),
        (0, _) => found,
        (pid, _) => {
            let found = found.check("its kernel stack", command!("cat /proc/{}/stack", pid));
            less_often(ev, found, one, culprit)
        }
    };
    let can_move = ev.recording().meta.cpus > 1 && one.kind != StallKind::Queued;
    let found = if can_move { apart(ev, found, one, culprit) } else { found };
    Some(with_others(found, stalled, culprit))
}

/// Each packet waits for those before it: a sum of waits that follow each other, with the usual one.
fn queue_title(one: &StallAccount, who: &str) -> String {
    let usual = seconds(one.usual());
    format!(
        "packets came to CPU {} faster than it handled them: for {} they waited behind each other in its queue, {usual} on average, worst {}; \
         no task kept the CPU, its time went mostly to {who}",
        one.cpu,
        seconds(one.total),
        seconds(one.worst),
    )
}

fn accused(culprit: &StallCulprit) -> Culprit {
    let accused = match culprit.pid {
        0 => Culprit::new(SubjectKind::Kernel, culprit.named(), culprit.who.clone()),
        pid => Culprit::new(SubjectKind::Task, pid.to_string(), culprit.who.clone()),
    };
    match &culprit.function {
        Some(function) => accused.in_function(function.clone()),
        None => accused,
    }
}

fn hop(one: &StallAccount, culprit: &StallCulprit) -> Hop {
    let reason = match one.kind {
        StallKind::IrqsOff => Reason::IrqsOff,
        _ if culprit.pid > 0 => Reason::Running,
        _ => Reason::Softirq,
    };
    let who = if culprit.pid > 0 { culprit.named() } else { format!("a {} of CPU {}", culprit.who, one.cpu) };
    let detail = culprit.function.as_deref().unwrap_or("its own code").to_owned();
    Hop::new(reason, who, detail, TaskState::Running, one.total).times(one.count, one.worst)
}

/// Code that keeps interrupts off, and is reported with the packets that waited for it, needs no risk of its own.
fn fold(_: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let place = |found: &Finding| Some((found.culprit.as_ref()?.function.clone()?, found.victim.id.clone()));
    let reported: Vec<_> = findings.iter().filter(|found| found.rule == RULE.id).filter_map(place).collect();
    findings.retain(|found| {
        let is_risk = found.rule == "irqs-off" && found.kind == Kind::Risk;
        !(is_risk && place(found).is_some_and(|one| reported.contains(&one)))
    });
}

/// Some stalls leave no trace where hooks were removed.
fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    if !are_all_seen(ev)? {
        return Ok(None);
    }
    let longest = accounts(ev).iter().map(|one| one.worst).max();
    let evidence = match longest {
        None => "no packet waited for its CPU for 5 ms or more".to_owned(),
        Some(longest) => format!("packets waited for their CPU for {} at most", seconds(longest)),
    };
    Ok(Some(RuledOut { what: "packets that wait for their CPU".into(), evidence }))
}

#[cfg(test)]
#[path = "packet_stalls_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "packet_stalls_queue_tests.rs"]
mod queue_tests;
