//! Wake-up latency: CPUs wake slowly from an idle state, and threads wait for them.
//!
//! Signal: the delay of each CPU to timers and to calls of other CPUs, by the idle state that it woke from; the threads that spun or slept
//! meanwhile. Lost: that time. Not this rule: CPUs that ran with interrupts off (`irqs-off`), reads that sleep.
//!
//! A delay is the difference of two times: a call was queued for a CPU and the CPU ran it; a timer was due and it went off. A state is slow
//! if three of four wake-ups from it take 2 ms or more. The time that threads spun counts once where they waited for many CPUs at once. If
//! no thread spun, the time by which timers were late counts, of the threads of the name that it hits most. That may be no loss: some
//! threads sleep only to check again, and lose nothing by a longer sleep. If a command or a process is watched and lost enough, only its
//! threads count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{
    Culprit, Finding, Hop, Missing, Recording, RuledOut, Subject, SubjectKind, command, seconds, times,
};

use super::Rule;
use crate::Evidence;
use crate::cpu::numbers;
use crate::irq::latency::{
    IdleState, LatencyVictim, LatencyVictims, VictimWait, asked_through, idle_state, interrupted, own_ns,
    slow_states,
};

pub const RULE: Rule = Rule {
    id: "wakeup-latency",
    question: "Do CPUs wake slowly from idle states, while threads wait for them?",
    what: "A CPU in a deep idle state takes longer to wake than its driver says: broken firmware tables, a defect of the hardware's idle state, \
           a hypervisor. A thread that calls this CPU (for its frequency, a flush of its address translations, a change of kernel code) spins \
           until the CPU answers; timers that are due there go off late.",
    how: "The delay from a call for a CPU to its run, and from a timer's due time to its run, by CPU and idle state: a state is slow if three of \
          four wake-ups take 2 ms or more. Time lost = the time that threads spun for these CPUs; the upper bound adds the time by which threads' \
          timers were late. Reported as a cause from 2 % of the window on.",
    limits: "Calls of other CPUs: seen from Linux 6.4 on; before that only calls to a single CPU, where functions can be traced. Threads that a \
             call wakes up: not counted. No thread spun: the loss is the delay of timers, and may be none, because some sleeps may as well be \
             longer. A watched command or process that lost enough: only its threads count. A virtual machine: the hypervisor wakes the CPU, so \
             the state is reported and the delay is the hypervisor's; not reported where the hypervisor took as much of the CPU in other ways, or \
             where the CPU stood still as long while it ran. Isolated and nohz_full CPUs: they are called seldom, and are late by design only \
             while they are in the kernel.",
    sources: "kernel/smp.c (csd_queue_cpu, csd_function_entry since 6.4; smp_call_function_single); kernel/time/hrtimer.c; \
              drivers/cpuidle/cpuidle.c; Documentation/admin-guide/pm/cpuidle.rst.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::WakeupLatency,
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.02;
/// A CPU that stands still for a smaller share of the window is not worth a line where no culprit can be named.
const STILL: f64 = 0.05;
/// Fewer times prove nothing.
const TIMES: usize = 5;
/// Most hops of a chain that name single CPUs.
const MOST: usize = 8;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.irq_latencies()?;
    let mut found = slow_wakes(ev);
    found.extend(nobody_there(ev));
    Ok(found)
}

/// The CPUs that wake slowly from each idle state, by the name of the state.
fn slow_wakes(ev: &Evidence<'_>) -> Vec<Finding> {
    let rec = ev.recording();
    let mut shallowest: BTreeMap<u32, u32> = BTreeMap::new();
    for (cpu, state) in slow_states(rec) {
        let least = shallowest.entry(cpu).or_insert(state);
        *least = state.min(*least);
    }
    // A deeper state of the same CPU is as slow or slower, but may be too rare to show it.
    let victims = LatencyVictims::of(rec, |cpu, state| {
        shallowest.get(&cpu).zip(state).is_some_and(|(least, s)| s >= *least)
    })
    .named(ev);
    let mut groups: BTreeMap<String, (IdleState, BTreeSet<u32>, LatencyVictims)> = BTreeMap::new();
    for (cpu, least) in &shallowest {
        let own: Vec<LatencyVictim> = victims.0.iter().filter(|victim| victim.cpu == *cpu).cloned().collect();
        let state =
            own.iter().max_by_key(|victim| victim.ns).and_then(|victim| victim.state).unwrap_or(*least);
        let state = idle_state(rec, *cpu, state);
        let group =
            groups.entry(state.name.clone()).or_insert((state, BTreeSet::new(), LatencyVictims::default()));
        group.1.insert(*cpu);
        group.2.0.extend(own);
    }
    groups.into_values().map(|(state, cpus, victims)| finding(ev, &state, &cpus, &victims)).collect()
}

fn finding(ev: &Evidence<'_>, state: &IdleState, cpus: &BTreeSet<u32>, all: &LatencyVictims) -> Finding {
    let watched = watched(ev, all);
    let all = watched.as_ref().unwrap_or(all);
    let (which, words) = (numbers::named(cpus), state.words());
    let is_one = cpus.len() == 1;
    let cpu = cpus.first().copied().unwrap_or_default();
    let finding = match paid(ev, all) {
        None => {
            let subject = Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), which.clone());
            let (they, it) = if is_one { ("it wakes", "it") } else { ("they wake", "them") };
            let title = format!("{they} slowly from {words}; no thread was seen to wait for {it}");
            Finding::risk(RULE.id, subject).titled(title)
        }
        Some((victims, first)) => {
            let wake = if is_one { "wakes" } else { "wake" };
            cause(ev, (&which, wake, &words), cpus, &victims, &first, all)
        }
    };
    finding
        .check(format!("idle states of CPU {cpu}, with their exit latency in us and their use"), command!("grep . /sys/devices/system/cpu/cpu{}/cpuidle/state*/{{name,latency,usage,disable}}", cpu))
        .fix(
            "keep all CPUs out of slow states while this command runs (undo: end it); it costs power and, on some machines, the \
             turbo of other cores",
            "sh -c 'exec 3>/dev/cpu_dma_latency; printf \"\\\\012\\\\0\\\\0\\\\0\" >&3; sleep 3600'",
        )
        .advice(
            "write 1 to the file `disable` of the state in that folder (undo: write 0), or set processor.max_cstate= or \
             intel_idle.max_cstate= on the kernel's command line for good, or disable the state in the firmware's setup; it costs power",
        )
}

/// The watched threads among the victims, if their loss is worth a line: the user asked about them, and other threads' loss is not their time.
fn watched(ev: &Evidence<'_>, all: &LatencyVictims) -> Option<LatencyVictims> {
    let pids: BTreeSet<u32> = ev.recording().meta.watched.as_ref()?.pids.iter().copied().collect();
    let own = LatencyVictims(all.0.iter().filter(|victim| pids.contains(&victim.pid)).cloned().collect());
    paid(ev, &own).is_some().then_some(own)
}

/// The threads that spun, if their loss is worth a line: they did nothing else meanwhile. Else the threads whose timers were late, but only
/// those of the name that it hits most: many threads sleep only to check again. The second value is the thread that lost most.
fn paid(ev: &Evidence<'_>, all: &LatencyVictims) -> Option<(LatencyVictims, LatencyVictim)> {
    let least = WORTH_IT * ev.window().as_secs_f64();
    [VictimWait::Spun, VictimWait::Slept].into_iter().find_map(|wait| {
        let mut victims =
            LatencyVictims(all.0.iter().filter(|victim| victim.wait == wait).cloned().collect());
        let first = victims.first().cloned()?;
        victims.0.retain(|victim| wait == VictimWait::Spun || victim.comm == first.comm);
        let lost = victims.time(ev.recording(), |_| true);
        (lost.as_secs_f64() >= least).then_some((victims, first))
    })
}

fn cause(
    ev: &Evidence<'_>,
    (which, wake, words): (&str, &str, &str),
    cpus: &BTreeSet<u32>,
    victims: &LatencyVictims,
    first: &LatencyVictim,
    all: &LatencyVictims,
) -> Finding {
    let rec = ev.recording();
    let lost = victims.time(rec, |_| true);
    let file = asked_through(rec, first.pid, first.tgid).filter(|_| first.wait == VictimWait::Spun);
    let subject = victims.subject();
    let read = |file: &str| format!("reading {file}, ");
    let worst = seconds(Duration::from_nanos(first.worst));
    let who = match (subject.kind, first.wait) {
        (SubjectKind::Task, VictimWait::Slept) => "its timers were late on".to_owned(),
        (SubjectKind::Task, _) => format!("{}it waited for", file.as_deref().map_or_else(String::new, read)),
        (_, VictimWait::Slept) => {
            format!("timers of threads like {} (pid {}) were late on", first.comm, first.pid)
        }
        (_, _) => {
            let read = file.as_deref().map_or(String::from(" "), |file| format!(", {}", read(file)));
            format!("{} (pid {}){read}and others waited for", first.comm, first.pid)
        }
    };
    let title = format!("{who} {which}, which {wake} slowly from {words}; the longest wait was {worst}");
    let spun = all.time(rec, |victim| victim.wait == VictimWait::Spun);
    let mut finding = Finding::cause(RULE.id, subject, lost)
        .titled(title)
        .share_of(victims.lived(rec))
        .between(spun.min(lost), all.time(rec, |_| true))
        .raw_wait(lost)
        .by(culprit(cpus, which, first, file.clone()));
    finding.chain = chain(rec, victims, cpus, words);
    finding
}

fn culprit(cpus: &BTreeSet<u32>, which: &str, first: &LatencyVictim, file: Option<String>) -> Culprit {
    let id = cpus.iter().map(|cpu| format!("cpu{cpu}")).collect::<Vec<_>>().join(",");
    let culprit = Culprit::new(SubjectKind::Cpu, id, which).in_function(first.function.clone());
    Culprit { file, ..culprit }
}

/// The threads that wait for each CPU, the costliest first, and the idle state of that CPU.
fn chain(rec: &Recording, victims: &LatencyVictims, cpus: &BTreeSet<u32>, words: &str) -> Vec<Hop> {
    let rows = victims.by_call();
    // A wait that a thread had only once is in the sums, but says nothing about what this thread usually does.
    let reported = rows.iter().enumerate().filter(|(n, victim)| *n == 0 || victim.count > 1);
    let mut hops: Vec<Hop> = reported.take(MOST).map(|(_, victim)| victim.hop(rec)).collect();
    for cpu in cpus.iter().take(MOST) {
        let own = victims.0.iter().filter(|victim| victim.cpu == *cpu);
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

/// CPUs that stood still in user code: this kernel cannot do that. Steal, where it is reported, belongs to another rule.
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
    let reported = still.into_iter().filter(|(cpu, (ns, count, _))| {
        let untold = stolen.get(cpu).copied().filter(|_| !is_reported).unwrap_or_default();
        let own = Duration::from_nanos(*ns).saturating_sub(untold);
        own.as_secs_f64() >= least && *count >= TIMES
    });
    reported.map(|(cpu, (ns, count, worst))| {
        let often = times(count as u64);
        Finding::risk(RULE.id, Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), format!("CPU {cpu}")))
            .titled(format!(
                "it stood still {often} while programs ran, for {}, worst {}: firmware (SMI), or a hypervisor that does not \
                 report it",
                seconds(Duration::from_nanos(ns)),
                seconds(Duration::from_nanos(worst))
            ))
            .check(
                "the times for which the hardware took the CPU (needs the hwlat tracer)",
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
    let evidence = format!("{late} of {all} timers and calls were late by half a millisecond or more");
    Ok(Some(RuledOut { what: "IRQ latency".into(), evidence }))
}

#[cfg(test)]
#[path = "wakeup_latency_tests.rs"]
mod tests;
