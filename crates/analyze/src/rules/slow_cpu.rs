//! A CPU is slower than it should be: slower than the other CPUs, than its nominal frequency, or than before.
//!
//! Signal: loops of known length, run on each CPU in turn (`speed`). Lost: the time that tasks ran on slow CPUs x (1 - the time
//! that the loop should take / the time that it takes). Not this rule: waits for a CPU or for a quota, which are not in the loops' time.
//!
//! A thread goes from CPU to CPU and runs loops of dependent additions, one cycle each: 12 loops of 2 ms on each CPU, half of them in
//! each half of the window. The fastest loop of each half must take at least 1.25 times as long as it should. The loop should take as
//! long as that of the median CPU, as the frequency of the time stamp counter says, as in the recording given by --baseline, or as the
//! sum of its own fastest pieces. A single loop may run between two interrupts: it is left out where no interrupt meets the loops of
//! the median CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{self, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, Probe, RuledOut, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::cpu::numbers;
use crate::cpu::speed::{
    Against, CpuSpeeds, Group, Reason, SLOW, Victims, of_disks, reasons, requester, victims,
};

pub const RULE: Rule = Rule {
    id: whyslow_model::SLOW_CPU,
    question: "Did a CPU run slower than it should?",
    what: "A CPU is slower than the others, than its nominal frequency, or than before: a governor or a limit lowers its clock, heat or a power limit throttles it, or \
           something that is no task takes its time in pieces. Tasks on this CPU are slow, and the queues that it serves fill.",
    how: "A thread runs loops of known length on each CPU in turn. The fastest loop in each half of the window must take at least 1.25 \
          times as long as on the median CPU, as the nominal frequency says, as in the recording given by --baseline, or as the sum of its own fastest pieces. Time lost = time that tasks ran on that CPU x (1 - time the loop should take / time it takes), more than 5 % \
          of the window.",
    limits: "Slow memory, a busy sibling of the core, small caches: they do not slow the loops, and are not seen. All CPUs equally slow: \
             seen only against the nominal frequency (not on an emulator, not on arm64) or a baseline. Isolated, nohz_full and real-time \
             CPUs: measured with --all-cpus only. Idle CPUs under a governor that raises the clock with load: not judged. With a command \
             that whyslow follows: CPUs are not measured. Many interrupts of devices (if 10 us each explain half of the time taken): no \
             victim is named, because firmware may hide there. A process that sent nearly all requests of the disks, and waited for each: no \
             victim of their interrupts. A process that sends many at once (io_uring): may be reported as a victim.",
    sources: "Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst; drivers/cpufreq/{cpufreq_powersave,intel_pstate}.c; \
              drivers/thermal/intel/therm_throt.c; kernel/sched/cputime.c.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less than this share of one CPU's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// Victims that are named.
const NAMED: usize = 3;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let speeds = speeds(ev)?;
    let mut groups: BTreeMap<(Against, Vec<&'static str>), Group> = BTreeMap::new();
    for seen in &speeds.measured {
        let Some(verdict) = speeds.judge(seen) else { continue };
        let why = reasons(ev, seen, &verdict);
        let group = groups.entry((verdict.against, why.key())).or_insert(Group { cpus: Vec::new(), why });
        group.cpus.push((*seen, verdict));
    }
    let mut found = Vec::new();
    for group in groups.values() {
        found.push(finding(ev, group)?);
    }
    if found.is_empty() {
        found.extend(pinned(ev));
    }
    Ok(found)
}

fn speeds(ev: &Evidence<'_>) -> Result<CpuSpeeds, Missing> {
    let speeds = CpuSpeeds::of(ev)?;
    match (speeds.measured.is_empty(), speeds.skipped.first()) {
        (true, Some((cpu, why))) => {
            Err(Missing::skipped(Probe::CpuSpeed.word(), format!("CPU {cpu} and all others: {why}")))
        }
        (true, None) => Err(Missing::broken(Probe::CpuSpeed.word(), "no CPU is online")),
        _ => Ok(speeds),
    }
}

fn finding(ev: &Evidence<'_>, group: &Group) -> Result<Finding, Missing> {
    let key = group.why.key();
    let of_disks = || key == ["interrupts"] && group.numbers().iter().all(|cpu| of_disks(ev, *cpu));
    let own_requests = if of_disks() { requester(ev) } else { None };
    let lost = victims(ev, &group.ratios(|verdict| verdict.ratio), own_requests)?;
    let least = victims(ev, &group.ratios(|verdict| verdict.least), own_requests)?;
    // Traced interrupt handlers, and the entry into them, are work for packets or requests of the host.
    let is_work = key == ["exits"] || (group.against() == Against::Itself && key == ["interrupts"]);
    let noticed = lost.lost.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() && !is_work;
    let culprit = group.culprit();
    let mut f = match noticed {
        true => {
            let (low, high) = (lost.lost.min(least.lost), lost.lost.max(least.lost));
            Finding::cause(RULE.id, victim(&lost), lost.lost).between(low, high).share_of(lost.on_cpu)
        }
        false => Finding::risk(RULE.id, Subject::host()),
    };
    f = f.titled(group.slower()).by(culprit);
    for hop in hops(group, &lost).into_iter().filter(|_| noticed) {
        f = f.hop(hop);
    }
    f = f.check("the same measurement, CPU by CPU", "whyslow cpu --for 5s");
    Ok(group.fixes(f))
}

/// The process that lost most, if that is nearly all of the loss; else the host.
fn victim(lost: &Victims) -> Subject {
    const NEARLY: f64 = 0.6;
    match lost.processes.first() {
        Some((pid, name, time)) if time.as_secs_f64() >= NEARLY * lost.lost.as_secs_f64() => {
            Subject::new(SubjectKind::Task, pid.to_string(), name)
        }
        _ => Subject::host(),
    }
}

fn hops(group: &Group, lost: &Victims) -> Vec<Hop> {
    let place = group.place();
    let hop = |(pid, name, time): &(u32, String, Duration)| {
        Hop::new(
            wait::Reason::SlowCpu,
            format!("{name} (pid {pid})"),
            place.clone(),
            TaskState::Running,
            *time,
        )
    };
    lost.processes.iter().take(NAMED).map(hop).collect()
}

/// A governor that pins the lowest frequency, where no loss was measured.
fn pinned(ev: &Evidence<'_>) -> Option<Finding> {
    let policies = ev.cpufreq_policies();
    let pinned: Vec<_> = policies.iter().filter_map(|policy| Some((policy, policy.pinned_low()?))).collect();
    let (policy, (lowest, highest)) = pinned.first()?;
    let mut cpus: Vec<u32> = pinned.iter().flat_map(|(policy, _)| policy.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    let file = format!("{}/scaling_governor", policy.folder);
    let words = format!(
        "governor powersave of {} keeps {} at {} of {} MHz; no loss was measured",
        policy.driver,
        numbers::named(&cpus),
        lowest / 1000,
        highest / 1000
    );
    let reason = Reason { kind: "governor", text: words.clone(), file: None, values: None };
    let f = Finding::risk(RULE.id, Subject::host()).titled(words);
    let f = f.by(Culprit::new(SubjectKind::Kernel, "governor", "governor powersave").at_file(&file));
    Some(reason.lifted(f.check("governors", command!("grep . {}", file)), &file, "powersave", "performance"))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let speeds = speeds(ev)?;
    if speeds.measured.iter().any(|seen| speeds.judge(seen).is_some()) {
        return Ok(None);
    }
    let judged = speeds.measured.iter().filter(|seen| !speeds.is_idle(seen.cpu));
    let slowest = judged.clone().max_by(|a, b| a.typical.total_cmp(&b.typical));
    let Some(slowest) = slowest else { return Ok(None) };
    let mut evidence = match speeds.ratio(slowest) {
        Some(ratio) => {
            format!("the slowest of {} is {ratio:.2} times the median, {SLOW} is slow", judged.count())
        }
        None => "the only CPU is not interrupted for long".to_owned(),
    };
    if let (Some(mhz), Some(nominal)) = (slowest.mhz, slowest.nominal_mhz) {
        evidence.push_str(&format!("; it ran at {mhz:.0} MHz, nominal is {nominal:.0}"));
    } else if !speeds.has_baseline() {
        evidence.push_str("; only a baseline can tell whether all CPUs are equally slow");
    }
    if !speeds.skipped.is_empty() {
        evidence.push_str(&format!("; CPUs not measured: {}", speeds.skipped.len()));
    }
    Ok(Some(RuledOut { what: "a slow CPU".into(), evidence }))
}

#[cfg(test)]
#[path = "slow_cpu_tests.rs"]
mod tests;
