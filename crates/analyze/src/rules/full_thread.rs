//! One thread has a CPU all the time, while the host as a whole looks idle.
//!
//! Signal: threads that were on a CPU for nearly all of the window, while much of the CPUs' time was left over. Lost: the
//! waits of other tasks for a lock that this thread holds while it runs. Not this rule: CPUs that are all full, threads that
//! share a CPU, and waits in the kernel, which `lock-wait` reports.
//!
//! The CPU time of a thread is the kernel's sum_exec_runtime. The samples show what the thread does. A loss is a cause from 5 % of
//! one task's window on.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::table::{Sample, Task};
use whyslow_model::timeline::Context;
use whyslow_model::wait::{Detail, TaskState, WaitTarget};
use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu::full_threads::{FullThreads, is_full, share};
use crate::cpu::spread;
use crate::graph::HostChain;
use crate::hashing::Set;
use crate::stacks::symbol;
use crate::wait_reasons::Class;

pub const RULE: Rule = Rule {
    id: "full-thread",
    question: "Is a single thread on a CPU all the time, while the host looks idle?",
    what: "One thread can use one CPU and no more. A program whose work goes through one thread (an event loop, a single \
           writer, an interpreter with a global lock, one scheduler that got all the work) is at its limit when that thread \
           is. On a host with many CPUs the averages then show a few per cent, and more CPUs do not help.",
    how: "A thread that was on a CPU or ready for one for 95 % of the window or more, by the kernel's CPU time of each thread, on a \
          host with at least a quarter of its CPU time left over. It is a cause only where tasks wait for a lock of the program that this \
          thread holds while it runs. Counterfactual: no such wait; time lost = those waits, less what the waiters' sleeps absorb.",
    limits: "A thread that computes: no fault. Without measured waits the finding only says what bounds the program. Tasks that wait for \
             its answers through a socket or a pipe: reported beside it, not as a loss, because they may have nothing to do. Threads that \
             hand work to each other so that none is full: not seen. Threads that are full because they spin: reported by the rule spin, \
             which sees them only where their samples show it.",
    sources: "kernel/sched/core.c (sum_exec_runtime), fs/proc/stat.c; Amdahl, AFIPS 1967.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A loss below this part of one task's window makes a risk, not a cause.
const WORTH_IT: f64 = 0.05;
/// Threads of one process that are named.
const MOST_NAMED: usize = 4;
/// Frames of its most frequent stack that are shown.
const FRAMES: usize = 4;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let FullThreads { idle, processes } = ev.full_threads()?;
    if processes.is_empty() {
        return Ok(Vec::new());
    }
    let chains = ev.host_chains();
    Ok(processes.iter().filter_map(|threads| finding(ev, threads, *idle, chains)).collect())
}

fn finding(ev: &Evidence<'_>, threads: &[&Task], idle: Share, chains: &[HostChain<'_>]) -> Option<Finding> {
    let first = threads.first()?;
    let process = Subject::new(SubjectKind::Task, first.tgid.to_string(), process_name(ev, first));
    let title = title(ev, threads, idle)?;
    let finding = match lost(ev, threads, chains) {
        Some((chain, victim, loss)) => {
            let mut cause = Finding::cause(RULE.id, victim, loss.likely)
                .share_of(loss.lived)
                .between(loss.low, loss.high)
                .titled(format!("waits end at {}: {title}", process.name));
            cause.chain = chain.hops;
            cause
        }
        None => Finding::risk(RULE.id, process).titled(title),
    };
    let did = ev.on_cpu().did(first.pid).into_iter().next();
    let culprit = Culprit::new(SubjectKind::Task, first.pid.to_string(), ev.called(first.pid, &first.comm));
    let culprit =
        Culprit { function: did.and_then(|(doing, _)| doing.function().map(str::to_owned)), ..culprit };
    let check = command!("top -H -b -n 1 -p {}", first.tgid);
    Some(finding.by(culprit).check("its threads, the busiest first", check).advice(advice(ev, threads)))
}

/// The number of full threads and of all threads, the share of each, and what the busiest of them does.
fn title(ev: &Evidence<'_>, threads: &[&Task], idle: Share) -> Option<String> {
    let first = threads.first()?;
    let all = ev.threads(first.tgid).len();
    let of_process = ev.task(first.tgid).unwrap_or(first).comm.as_str();
    let named = |task: &&Task| match task.comm == of_process {
        true => format!("{} ({} of a CPU)", task.pid, share(ev, task)),
        false => format!("{} ({}, {} of a CPU)", task.comm, task.pid, share(ev, task)),
    };
    let named: Vec<String> = threads.iter().take(MOST_NAMED).map(named).collect();
    let noun = if first.comm == of_process { "thread " } else { "" };
    let named = format!("{noun}{}", named.join(", "));
    let (which, bound) = match (threads.len(), all) {
        (1, 1) => (format!("it had {} of a CPU", share(ev, first)), "what one CPU does"),
        (1, all) => (format!("1 of its {all} threads had a CPU all the time: {named}"), "what one CPU does"),
        (full, all) => (
            format!("{full} of its {all} threads had a CPU each all the time: {named}"),
            "what one CPU does for each",
        ),
    };
    Some(format!(
        "{which}; {idle} of the host's CPU time was left over. {}It is bound by {bound}: more CPUs do not help it",
        work(ev, first)
    ))
}

/// The name of the thread's process: that of its first thread, where it is known.
fn process_name(ev: &Evidence<'_>, task: &Task) -> String {
    ev.process_name(task.tgid, &ev.task(task.tgid).unwrap_or(task).comm)
}

/// What the busiest thread does, and its most frequent stack.
fn work(ev: &Evidence<'_>, task: &Task) -> String {
    let samples = ev.samples().unwrap_or_default();
    let did = ev.on_cpu().did(task.pid);
    let Some((doing, part)) = did.first() else { return String::new() };
    let most = samples.iter().filter(|sample| sample.pid == task.pid).max_by_key(|sample| sample.count);
    let stack = most.map(|most| stack(most, doing.function())).filter(|stack| !stack.is_empty());
    let seen = stack.map(|stack| format!(", most often {stack}")).unwrap_or_default();
    format!("{} of that was {}{seen}. ", Share::of(*part, 1.0), doing.0)
}

/// "in f, called by g, called by h": the frames that have a name, without the first frame if it is `reported` already.
fn stack(sample: &Sample, reported: Option<&str>) -> String {
    let frames =
        sample.kernel.iter().map(|frame| symbol(frame)).chain(sample.user.iter().map(String::as_str));
    let named = frames.filter(|frame| !frame.is_empty() && !frame.starts_with(['[', '0']));
    let words = named.take(FRAMES).enumerate().map(|(at, frame)| match at {
        0 if Some(frame) == reported => String::new(),
        0 => format!("in {frame}"),
        _ => format!("called by {frame}"),
    });
    words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
}

/// What other tasks lost to these threads: waits for locks of programs that one of these threads held while it ran.
fn lost(
    ev: &Evidence<'_>,
    threads: &[&Task],
    chains: &[HostChain<'_>],
) -> Option<(Chain, Subject, spread::Loss)> {
    let is_one = |id: &str| threads.iter().any(|task| task.pid.to_string() == id);
    let ends_here = |reported: &&HostChain<'_>| {
        let last = reported.chain.hops.last();
        // A thread that only had the CPU for which the lock holder waited held no lock.
        let runs = last.is_some_and(|hop| {
            hop.state == TaskState::Running && hop.detail != Detail::Target(WaitTarget::HadCpu)
        });
        reported.class == Class::Lock && reported.leaf.is_none() && runs && is_one(&reported.chain.leaf.id)
    };
    let mine: Vec<&HostChain<'_>> =
        chains.iter().filter(ends_here).filter(|reported| !reported.blames_for_kernel_wait()).collect();
    let worst = mine.first()?;
    let waited: Duration = mine.iter().map(|reported| reported.chain.time).sum();
    let pids: Set<u32> = mine
        .iter()
        .flat_map(|reported| reported.chain.tasks.iter().take(1).flatten())
        .map(|(pid, _)| *pid)
        .collect();
    // The scheduler counts a wait for a futex as a sleep. Here it counts as a wait, and only the rest of the sleeps may absorb it.
    let victims: Vec<&Task> = ev.tasks().ok()?.iter().filter(|task| pids.contains(&task.pid)).collect();
    let each = waited.as_nanos() as u64 / (victims.len().max(1) as u64);
    let waiting = |task: &&Task| {
        let ns = each.min(task.sleep_ns);
        let blocked_ns = task.blocked_ns.saturating_add(ns);
        Task { blocked_ns, sleep_ns: task.sleep_ns - ns, cycles: 0, ..(*task).clone() }
    };
    let shifted: Vec<Task> = victims.iter().map(waiting).collect();
    let loss = spread::lost(&shifted.iter().collect::<Vec<_>>(), |_| 1, waited.as_nanos() as f64);
    let victim = match victims[..] {
        [one] => Subject::new(SubjectKind::Task, one.pid.to_string(), ev.called(one.pid, &one.comm)),
        _ => Subject::host(),
    };
    let worth_it = loss.likely.as_secs_f64() >= WORTH_IT * ev.window().as_secs_f64();
    worth_it.then(|| (worst.chain.clone(), victim, loss))
}

fn advice(ev: &Evidence<'_>, threads: &[&Task]) -> String {
    let mut text = "if other tasks wait for it, split its work over more threads or processes (costs memory), or make that work \
                    cheaper; a faster CPU helps, another CPU does not; if it only computes, nothing is wrong"
        .to_owned();
    if let Some((who, time)) = woken(ev, threads) {
        text.push_str(&format!(
            " (it woke up {who} after {} of waits in all: for its answers, or for something to do)",
            seconds(time)
        ));
    }
    text
}

/// The name of the threads that waited longest until these threads woke them up, and how long.
fn woken(ev: &Evidence<'_>, threads: &[&Task]) -> Option<(String, Duration)> {
    let mut waited: BTreeMap<&str, u64> = BTreeMap::new();
    for span in ev.spans().ok()? {
        let by = span.waker.as_ref().filter(|waker| waker.context == Context::Task);
        if by.is_some_and(|waker| threads.iter().any(|task| task.pid == waker.pid && task.pid != span.pid)) {
            let sum = waited.entry(&span.comm).or_default();
            *sum = sum.saturating_add(span.woken_ns.saturating_sub(span.at_ns));
        }
    }
    let (who, ns) = waited.into_iter().max_by_key(|(_, ns)| *ns)?;
    (ns > 0).then(|| (who.to_owned(), Duration::from_nanos(ns)))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let others = ev.tasks()?.iter().filter(|task| !ev.is_own(task.pid, task.tgid));
    let busiest = others.max_by_key(|task| task.exec_ns).filter(|task| !is_full(ev, task));
    Ok(busiest.map(|task| RuledOut {
        what: "a single full thread".into(),
        evidence: format!(
            "the busiest, {} ({}), used {} of a CPU",
            ev.called(task.pid, &task.comm),
            task.pid,
            share(ev, task)
        ),
    }))
}

#[cfg(test)]
#[path = "full_thread_tests.rs"]
mod tests;
