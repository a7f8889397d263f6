//! Wake-up latency: CPUs wake slowly from an idle state, and somebody waits for them.
//!
//! Signal: how late each CPU was to timers and to calls of other CPUs, by the idle state it came from; who spun or slept
//! meanwhile. Lost: that time. Not this rule: CPUs that ran with interrupts off (`irqs-off`), reads that sleep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{
    Culprit, Finding, Hop, Missing, Recording, RuledOut, Subject, SubjectKind, command, seconds,
};

use super::Rule;
use crate::Evidence;
use crate::cpu::numbers;
use crate::irq::latency::{
    IdleState, Payer, Payers, Wait, asked_through, idle_state, interrupted, own_ns, slow_states,
};

pub const RULE: Rule = Rule {
    id: "wakeup-latency",
    question: "Do CPUs wake slowly from idle states, and does somebody wait for them?",
    what: "A CPU in a deep idle state needs long to wake, more than its driver says: broken firmware tables, a state that the \
           hardware does badly, a hypervisor. Whoever asks it for something (its frequency, a flush of its address \
           translations, a change of kernel code) spins until it comes; timers that are due there go off late.",
    how: "Two clocks that nobody has to set: when a call was queued for a CPU and when it ran it; when a timer was due and \
          when it went off. By CPU and by the idle state it came from: a state is slow if three of four wakes out of it \
          take 2 ms or more. Time lost = the time threads spun for these CPUs (counted once where they waited for many at \
          once); the upper bound adds the time by which threads' timers were late. Where a command or a process is watched, and it \
          lost enough, its threads alone count. If nobody spun it is that, of the threads \
          of the name that it hits most, and may be nothing: a sleep may be the better for being longer.",
    limits: "Calls of other CPUs are seen on Linux 6.4 and newer, before only those of a single CPU, where \
             functions can be traced. Wake-ups of threads by a call are not counted. In a virtual machine waking a CPU is the \
             hypervisor's work: then the state is reported, and the delay is its; but not where it took as much of the CPU in other ways, or \
             where that one stood still as long while it ran. Isolated and nohz_full CPUs are called \
             seldom, and late by design only while they are in the kernel.",
    sources: "kernel/smp.c (csd_queue_cpu, csd_function_entry since 6.4; smp_call_function_single); kernel/time/hrtimer.c; \
              drivers/cpuidle/cpuidle.c; Documentation/admin-guide/pm/cpuidle.rst.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::WakeupLatency,
};

/// Less than this share of one task's window is nobody's trouble.
const WORTH_IT: f64 = 0.02;
/// A CPU that stands still for less of the window is not worth a line where nobody can be named.
const STILL: f64 = 0.05;
/// ... and fewer times say nothing.
const TIMES: usize = 5;
/// Hops of a chain that tell single CPUs.
const MOST: usize = 8;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.irq_latencies()?;
    let mut found = slow_wakes(ev);
    found.extend(nobody_there(ev));
    Ok(found)
}

/// Of each idle state, by name: the CPUs that wake slowly from it.
fn slow_wakes(ev: &Evidence<'_>) -> Vec<Finding> {
    let rec = ev.recording();
    let mut shallowest: BTreeMap<u32, u32> = BTreeMap::new();
    for (cpu, state) in slow_states(rec) {
        let least = shallowest.entry(cpu).or_insert(state);
        *least = state.min(*least);
    }
    // A deeper state of the same CPU is as slow, or slower: it may be too rare to say so by itself.
    let payers =
        Payers::of(rec, |cpu, state| shallowest.get(&cpu).zip(state).is_some_and(|(least, s)| s >= *least))
            .named(ev);
    let mut groups: BTreeMap<String, (IdleState, BTreeSet<u32>, Payers)> = BTreeMap::new();
    for (cpu, least) in &shallowest {
        let own: Vec<Payer> = payers.0.iter().filter(|payer| payer.cpu == *cpu).cloned().collect();
        let state = own.iter().max_by_key(|payer| payer.ns).and_then(|payer| payer.state).unwrap_or(*least);
        let state = idle_state(rec, *cpu, state);
        let group = groups.entry(state.name.clone()).or_insert((state, BTreeSet::new(), Payers::default()));
        group.1.insert(*cpu);
        group.2.0.extend(own);
    }
    groups.into_values().map(|(state, cpus, payers)| finding(ev, &state, &cpus, &payers)).collect()
}

fn finding(ev: &Evidence<'_>, state: &IdleState, cpus: &BTreeSet<u32>, all: &Payers) -> Finding {
    let watched = watched(ev, all);
    let all = watched.as_ref().unwrap_or(all);
    let (which, words) = (numbers::named(cpus), state.words());
    let is_one = cpus.len() == 1;
    let cpu = cpus.first().copied().unwrap_or_default();
    let finding = match paid(ev, all) {
        None => {
            let subject = Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), which.clone());
            let they = if is_one { "it wakes" } else { "they wake" };
            let title = format!("{they} slowly from {words}; nobody was seen to wait for it");
            Finding::risk(RULE.id, subject).titled(title)
        }
        Some((payers, first)) => {
            let wake = if is_one { "wakes" } else { "wake" };
            cause(ev, (&which, wake, &words), cpus, &payers, &first, all)
        }
    };
    finding
        .check(format!("idle states of CPU {cpu}, with their exit latency in us and their use"), command!("grep . /sys/devices/system/cpu/cpu{}/cpuidle/state*/{{name,latency,usage,disable}}", cpu))
        .fix(
            "keep all CPUs out of slow states as long as this command runs (undo: end it); it costs power and, on some machines, \
             the turbo of other cores",
            "sh -c 'exec 3>/dev/cpu_dma_latency; printf \"\\\\012\\\\0\\\\0\\\\0\" >&3; sleep 3600'",
        )
        .advice(
            "switch the state off by its file `disable` in that folder (undo: write 0), and for good by processor.max_cstate= or \
             intel_idle.max_cstate= on the kernel's command line, or in the firmware's setup",
        )
}

/// Of those who paid, whom the user asked about, if it was worth it to them: what others lost there is not their time.
fn watched(ev: &Evidence<'_>, all: &Payers) -> Option<Payers> {
    let pids: BTreeSet<u32> = ev.recording().meta.watched.as_ref()?.pids.iter().copied().collect();
    let own = Payers(all.0.iter().filter(|payer| pids.contains(&payer.pid)).cloned().collect());
    paid(ev, &own).is_some().then_some(own)
}

/// Those who spun, if that was worth it: they did nothing else meanwhile. Else those whose timers were late; of these the
/// threads of the name that it hits most: many sleep for no other reason than to look again. With the costliest.
fn paid(ev: &Evidence<'_>, all: &Payers) -> Option<(Payers, Payer)> {
    let least = WORTH_IT * ev.window().as_secs_f64();
    [Wait::Spun, Wait::Slept].into_iter().find_map(|wait| {
        let mut payers = Payers(all.0.iter().filter(|payer| payer.wait == wait).cloned().collect());
        let first = payers.first().cloned()?;
        payers.0.retain(|payer| wait == Wait::Spun || payer.comm == first.comm);
        let lost = payers.time(ev.recording(), |_| true);
        (lost.as_secs_f64() >= least).then_some((payers, first))
    })
}

fn cause(
    ev: &Evidence<'_>,
    (which, wake, words): (&str, &str, &str),
    cpus: &BTreeSet<u32>,
    payers: &Payers,
    first: &Payer,
    all: &Payers,
) -> Finding {
    let rec = ev.recording();
    let lost = payers.time(rec, |_| true);
    let file = asked_through(rec, first.pid, first.tgid).filter(|_| first.wait == Wait::Spun);
    let subject = payers.subject();
    let read = |file: &str| format!("reading {file}, ");
    let worst = seconds(Duration::from_nanos(first.worst));
    let who = match (subject.kind, first.wait) {
        (SubjectKind::Task, Wait::Slept) => "its timers were late on".to_owned(),
        (SubjectKind::Task, _) => format!("{}it waited for", file.as_deref().map_or_else(String::new, read)),
        (_, Wait::Slept) => format!("timers of threads like {} (pid {}) were late on", first.comm, first.pid),
        (_, _) => {
            let read = file.as_deref().map_or(String::from(" "), |file| format!(", {}", read(file)));
            format!("{} (pid {}){read}and others waited for", first.comm, first.pid)
        }
    };
    let title = format!("{who} {which}, which {wake} slowly from {words}, {worst} at worst");
    let spun = all.time(rec, |payer| payer.wait == Wait::Spun);
    let mut finding = Finding::cause(RULE.id, subject, lost)
        .titled(title)
        .share_of(payers.lived(rec))
        .between(spun.min(lost), all.time(rec, |_| true))
        .raw_wait(lost)
        .by(culprit(cpus, which, first, file.clone()));
    finding.chain = chain(rec, payers, cpus, words);
    finding
}

fn culprit(cpus: &BTreeSet<u32>, which: &str, first: &Payer, file: Option<String>) -> Culprit {
    let id = cpus.iter().map(|cpu| format!("cpu{cpu}")).collect::<Vec<_>>().join(",");
    let culprit = Culprit::new(SubjectKind::Cpu, id, which).in_function(first.function.clone());
    Culprit { file, ..culprit }
}

/// Who waits for each CPU, the costliest first, and what that CPU does.
fn chain(rec: &Recording, payers: &Payers, cpus: &BTreeSet<u32>, words: &str) -> Vec<Hop> {
    let rows = payers.by_call();
    // What hit somebody once is in the sums: it says nothing of what that one does.
    let reported = rows.iter().enumerate().filter(|(n, payer)| *n == 0 || payer.count > 1);
    let mut hops: Vec<Hop> = reported.take(MOST).map(|(_, payer)| payer.hop(rec)).collect();
    for cpu in cpus.iter().take(MOST) {
        let own = payers.0.iter().filter(|payer| payer.cpu == *cpu);
        let (ns, count, worst) = own.fold((0u64, 0u64, 0u64), |(ns, count, worst), p| {
            (ns.saturating_add(p.ns), count.saturating_add(p.count), worst.max(p.worst))
        });
        let (lost, worst) = (Duration::from_nanos(ns), Duration::from_nanos(worst));
        hops.push(
            Hop::new(Reason::IdleState, format!("CPU {cpu}"), words, TaskState::Idle, lost)
                .times(count, worst),
        );
    }
    hops
}

/// CPUs that stood still in user code: nobody in this kernel can do that. Steal, where it is reported, is another rule's.
fn nobody_there(ev: &Evidence<'_>) -> Vec<Finding> {
    let Ok(gaps) = ev.gaps() else { return Vec::new() };
    let is_reported = gaps.iter().any(|gap| gap.stolen_ns.is_some());
    let mut still: BTreeMap<u32, (u64, usize, u64)> = BTreeMap::new();
    let is_still = |gap: &&whyslow_model::table::Gap| {
        interrupted(gap).is_some_and(|frames| frames.is_empty()) && own_ns(gap) >= gap.ns / 2
    };
    for gap in gaps.iter().filter(is_still) {
        let sum = still.entry(gap.cpu).or_default();
        *sum = (sum.0.saturating_add(own_ns(gap)), sum.1 + 1, sum.2.max(own_ns(gap)));
    }
    let stolen: BTreeMap<u32, Duration> =
        ev.cpu_time_by_cpu().unwrap_or_default().into_iter().map(|(cpu, time)| (cpu, time.steal)).collect();
    let least = STILL * ev.window().as_secs_f64();
    let reported = still.into_iter().filter(|(cpu, (ns, times, _))| {
        let untold = stolen.get(cpu).copied().filter(|_| !is_reported).unwrap_or_default();
        let own = Duration::from_nanos(*ns).saturating_sub(untold);
        own.as_secs_f64() >= least && *times >= TIMES
    });
    reported.map(|(cpu, (ns, times, worst))| {
        Finding::risk(RULE.id, Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), format!("CPU {cpu}")))
            .titled(format!(
                "it stood still {times} times in the middle of programs, {} together, {} at worst: firmware (SMI), or a \
                 hypervisor that does not tell",
                seconds(Duration::from_nanos(ns)),
                seconds(Duration::from_nanos(worst))
            ))
            .check(
                "times in which the hardware took the CPU (needs the hwlat tracer)",
                command!("rtla hwnoise -c {} -d 10s", cpu),
            )
    })
    .collect()
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let rows = ev.irq_latencies()?;
    let (all, late) = rows.iter().fold((0u64, 0u64), |(all, late), row| {
        (all.saturating_add(row.count), late.saturating_add(row.late))
    });
    if all == 0 || late.saturating_mul(100) > all {
        return Ok(None);
    }
    let evidence = format!("of {all} timers and calls, {late} were half a millisecond late or more");
    Ok(Some(RuledOut { what: "IRQ latency".into(), evidence }))
}

#[cfg(test)]
#[path = "wakeup_latency_tests.rs"]
mod tests;
