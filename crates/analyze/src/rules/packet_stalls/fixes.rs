//! What helps against stalls of packets, and what does not.

use std::time::Duration;

use whyslow_model::Finding;
use whyslow_model::stall::{StallAccount, StallCulprit};

use super::Stalled;
use crate::Evidence;
use crate::stat_reads::{MANY_DYING, is_flush};

/// Nothing kept the softirq from its work: there is too much of it for one CPU.
pub fn shorter_queue(ev: &Evidence<'_>, found: Finding, cpu: u32, who: &str) -> Finding {
    let found = match ev.recording().meta.cpus > 1 {
        true => found.advice(
            "spread the packets over more CPUs (more of them in /sys/class/net/DEVICE/queues/rx-0/rps_cpus, or more queues of the device: \
             ethtool -L; undo: the old values)",
        ),
        false => found,
    };
    found
        .advice(format!(
            "let the softirq do less for each packet (ipset, or sets and maps of nft, instead of long lists of rules; no filter on this \
             path): perf top -C {cpu} shows what {who} calls; undo: the old rules"
        ))
        .advice(
            "send this host fewer packets (tcpdump -c 1000 -ni any shows who sends them), or move a part of the load to another host",
        )
}

/// A kernel thread does what other tasks hand to it: there is nobody to tell.
fn is_kernel_thread(ev: &Evidence<'_>, culprit: &StallCulprit) -> bool {
    ev.task(culprit.pid).is_some_and(|task| task.kthread)
}

pub fn less_often(ev: &Evidence<'_>, found: Finding, one: &StallAccount, culprit: &StallCulprit) -> Finding {
    let who = &culprit.who;
    let found = match &one.thread {
        Some(thread) => found.advice(format!(
            "give {thread} a higher real-time priority than {who} has (chrt -f -p; undo: the policy and priority that chrt -p shows now)"
        )),
        None => found,
    };
    match culprit.file.as_deref().filter(|_| culprit.call.as_deref() == Some("read")) {
        Some(file) => {
            let found = found.advice(format!("let {who} read {file} less often (its interval; undo: the old one)"));
            fewer_cgroups(ev, found, culprit)
        }
        None if is_kernel_thread(ev, culprit) => fewer_cgroups(ev, found, culprit),
        None if ev.task(culprit.pid).is_some_and(|task| task.is_real_time()) => found.advice(format!(
            "give {who} ordinary priority (chrt -o -p 0 {}; undo: the policy and priority that chrt -p shows now)",
            culprit.pid
        )),
        None => found.advice(format!("let {who} work in smaller steps there, or less often")),
    }
}

/// To fold the statistics of cgroups, the kernel goes through all of them that have changed, removed ones, too.
fn fewer_cgroups(ev: &Evidence<'_>, found: Finding, culprit: &StallCulprit) -> Finding {
    let folds = culprit.function.as_deref().is_some_and(is_flush);
    match ev.dying_memory_cgroups() {
        Ok(dying) if folds && dying >= MANY_DYING => found.advice(format!(
            "free what keeps {dying} dying cgroups in the kernel: their statistics are folded, too (whyslow explain dying-cgroups; files that are \
             dropped from the cache are read again from the disks: no undo)"
        )),
        _ => found,
    }
}

/// Kernel threads of workqueues refuse masks (PF_NO_SETAFFINITY), and softirqs run where they were raised.
pub fn apart(ev: &Evidence<'_>, found: Finding, one: &StallAccount, culprit: &StallCulprit) -> Finding {
    let who = &culprit.who;
    let packets = match &one.thread {
        Some(thread) => {
            format!("{thread} off its CPU (taskset; undo: the mask as it was)")
        }
        None => "the packets off its CPU (/proc/irq/NUMBER/smp_affinity, rps_cpus; undo: the old masks)"
            .to_owned(),
    };
    match culprit.pid == 0 || is_kernel_thread(ev, culprit) {
        true => found.advice(format!("keep {packets}")),
        false => found.advice(format!(
            "keep {who} off the CPUs that take packets (taskset; undo: the mask as it was), or {packets}"
        )),
    }
}

pub fn with_others(found: Finding, stalled: &Stalled, culprit: &StallCulprit) -> Finding {
    let Some(((first, _), others)) = stalled.0.split_first() else { return found };
    let Some((_, other)) = others.first() else { return found };
    let theirs = others.iter().fold(Duration::ZERO, |sum, (one, _)| sum.saturating_add(one.total));
    let helps = if theirs >= first.total / 2 { "will not help" } else { "helps in part" };
    let at = culprit.function.as_ref().map(|function| format!(", in {function}")).unwrap_or_default();
    found.advice(format!("stopping {} alone {helps}: {} does the same{at}", culprit.who, other.who))
}
