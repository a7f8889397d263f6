//! The kernel does work on top of a call that grows with the configuration: filter rules, layers, audit rules.
//!
//! Signal: stacks of CPU time and of waits that contain a function that stands for one kind of such work. Samples of interrupts in a task's
//! CPU time count, too. Lost: that time, less what the task's other sleeps absorb. Not this rule: reading statistics files
//! (`monitoring-agent`), a tracer (`traced`), locks.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::{Culprit, Finding, Missing, RuledOut, SubjectKind, seconds};

use super::spent::works::{WORKS, Work, work_of};
use super::spent::{self, Spent, Time};
use super::{Rule, first_few};
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "extra-work",
    question: "Does the kernel do work on top of system calls and packets that grows with the configuration?",
    what: "The kernel checks each packet against the rules of a packet filter, and each call against audit rules and seccomp filters; the \
           first write to a file of a container's image copies the whole file; a new connection needs a search for a free local port; a \
           table of mounts, of routing rules or of open files is read or copied. With ten rules this costs hardly anything; with tens \
           of thousands a call takes a hundred times as long. The time shows only as system time or softirqs.",
    how: "On-CPU samples (those of interrupts in a task's CPU time, too) and waits whose kernel stack contains a function that \
          stands for such work are summed by process. Counterfactual: no such work; time lost = that time, less what the task's other \
          sleeps absorb. Reported from 15 % of its time on: a short list takes some per cent, too.",
    limits: "The number of rules: not counted; the check shows it. Packets that pass through this host, which no process requested: the \
             work is only in the account of the CPUs. Packets that a CPU receives: the time counts for the task that runs on that CPU. \
             A service that sleeps for longer than the work takes: it may have had that time to spare, so it is not reported. Samples: \
             5 ms apart. A client that waits for a service that is slowed down in this way: shown in the chains.",
    sources: "net/ipv4/netfilter/ip_tables.c (ipt_do_table), net/netfilter/nf_tables_core.c (nft_do_chain), \
              fs/overlayfs/copy_up.c, kernel/auditsc.c, kernel/seccomp.c, net/ipv4/inet_hashtables.c (__inet_hash_connect), \
              net/core/fib_rules.c, fs/namespace.c, fs/file.c (dup_fd).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Processes that are reported for one kind of work.
const MOST: usize = 3;
/// If the work took more than this part of the window, it is not ruled out.
const LITTLE: f64 = 0.01;
fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.tasks()?;
    let costs = costs(ev)?;
    let is_told = |pid: u32| ev.task(pid).is_some();
    let by_thread = costs.values().flat_map(|cost| &cost.by_thread);
    let untold: Duration = by_thread.filter(|(pid, _)| !is_told(**pid)).map(|(_, time)| time.all()).sum();
    let mut found = Vec::new();
    for work in WORKS {
        let of_work = costs.iter().filter(|((of, _), _)| *of == work.what).map(|(_, cost)| cost);
        let told = of_work.filter_map(|cost| finding(ev, work, cost));
        let mut told: Vec<Finding> = told.collect();
        told.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
        first_few(&mut told, MOST);
        found.extend(told);
    }
    if found.is_empty() && is_more(ev, untold) {
        return Err(Missing::unclear(
            "which processes made the calls that took the time",
            "more tasks came and went than there are rows for",
        ));
    }
    Ok(found)
}

/// Whether a time is more than a little.
fn is_more(ev: &Evidence<'_>, time: Duration) -> bool {
    time.as_secs_f64() > LITTLE * ev.window().as_secs_f64()
}

/// The time spent, by the kind of work and the name of the process.
fn costs(ev: &Evidence<'_>) -> Result<BTreeMap<(&'static str, String), Spent>, Missing> {
    let mut all: BTreeMap<(&'static str, String), Spent> = BTreeMap::new();
    for sample in ev.samples()?.iter().filter(|one| one.tgid != 0 && !ev.is_own(one.pid, one.tgid)) {
        let Some((work, function)) = work_of(&sample.kernel) else { continue };
        let cost = all.entry((work.what, spent::name(ev, sample.tgid, &sample.comm))).or_default();
        let on_cpu = Duration::from_nanos(sample.ns);
        cost.add(sample.pid, function, Time { on_cpu, ..Time::default() });
    }
    for wait in ev.waits()?.iter().filter(|one| one.tgid != 0 && !ev.is_own(one.pid, one.tgid)) {
        let Some((work, function)) = work_of(&wait.kernel).filter(|(work, _)| work.does_io) else { continue };
        let cost = all.entry((work.what, spent::name(ev, wait.tgid, &wait.comm))).or_default();
        let waited = Duration::from_nanos(wait.ns);
        cost.add(wait.pid, function, Time { waited, ..Time::default() });
    }
    Ok(all)
}

fn finding(ev: &Evidence<'_>, work: &Work, cost: &Spent) -> Option<Finding> {
    let felt = cost.felt(ev)?;
    let function = cost.function();
    let title = format!("{} took {} ({function})", work.what, felt.time.words());
    let behind = format!("{function} (kernel), {}", work.what);
    let culprit = Culprit::new(SubjectKind::Kernel, function, work.what);
    let culprit = Culprit { function: Some(function.to_owned()), ..culprit };
    let pid = felt.pid;
    let finding = felt.cause(RULE.id).titled(title).by(culprit).advice(work.advice);
    let finding = finding.hop(felt.hop(behind));
    let checked =
        (work.checks)(pid).into_iter().fold(finding, |finding, (text, line)| finding.check(text, line));
    Some(Finding { overlaps: ["disk-queue", "traced"].map(str::to_owned).to_vec(), ..checked })
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let all: Duration =
        costs(ev)?.values().flat_map(|cost| cost.by_thread.values()).map(|time| time.all()).sum();
    // No sample shows the work that a CPU does for packets while no task runs there.
    if is_more(ev, all) || is_more(ev, ev.cpu_time()?.softirq) {
        return Ok(None);
    }
    Ok(Some(RuledOut {
        what: "extra work on system calls and packets".to_owned(),
        evidence: format!(
            "packet filters, audit, seccomp, and copies of overlays and of tables took {}",
            seconds(all)
        ),
    }))
}

#[cfg(test)]
mod tests;
