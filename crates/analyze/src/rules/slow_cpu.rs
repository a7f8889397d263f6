//! A CPU does less in its time than it should: less than the others, than its nominal frequency, or than before.
//!
//! Signal: loops of known length, run on each CPU in turn (`speed`). Lost: the time that tasks were on slow CPUs x (1 - what
//! the loop should take / what it takes). Not this rule: waiting for a CPU, a quota's too, which is not in the loops' time.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{self, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, Probe, RuledOut, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::cpu::numbers;
use crate::cpu::speed::{
    Against, CpuSpeeds, Measured, Reason, Reasons, SLOW, Verdict, Victims, of_disks, reasons, requester,
    victims,
};

pub const RULE: Rule = Rule {
    id: whyslow_model::SLOW_CPU,
    question: "Did a CPU do less in its time than it should?",
    what: "A CPU runs below the speed that it was bought for: a governor or limit holds its clock down, heat or a power \
           limit throttles it, or something that is no task takes its time in pieces. What runs there is slow, and queues \
           that it serves fill.",
    how: "A thread goes from CPU to CPU and runs loops of dependent additions, one cycle each: 12 loops of 2 ms a CPU, half of \
          them in each half of the window. The fastest loop of each half must take at least 1.25 times as long as that of the \
          median CPU, as the time stamp counter's frequency would have it, as in the recording given by --baseline, or as the sum \
          of its own fastest pieces. (One loop may slip in between two interrupts: it is left out where nothing interrupts the \
          loops of the median CPU.) Time lost = time that tasks were on that CPU x (1 - time the loop should take / time it takes).",
    limits: "Only what the loops' clock sees: slow memory, a busy sibling of the core and small caches do not slow them. All \
             CPUs slow alike are seen only against nominal (not on an emulator, not on arm64) or a baseline. Isolated, \
             nohz_full and real-time CPUs are measured with --all-cpus only; idle CPUs under a governor that raises the \
             clock with load are not judged. Where whyslow follows a command, CPUs are not measured. Beside many interrupts \
             of devices (10 us each would explain half of what is taken) it names no victim: firmware may hide there. \
             A process that sent nearly all requests of the disks, and waited for each, is no victim of their interrupts; one that \
             sends many at once (io_uring) may be reported as one.",
    sources: "Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst; drivers/cpufreq/{cpufreq_powersave,intel_pstate}.c; \
              drivers/thermal/intel/therm_throt.c; kernel/sched/cputime.c.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    shows: super::NOTHING,
};

/// Less than this share of one CPU's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// Victims that are named.
const NAMED: usize = 3;

/// Slow CPUs of one kind: compared with the same, for the same reasons.
pub(super) struct Group {
    pub(super) cpus: Vec<(Measured, Verdict)>,
    pub(super) why: Reasons,
}

impl Group {
    /// The middle one of their ratios.
    pub(super) fn ratio(&self) -> f64 {
        let mut all: Vec<f64> = self.cpus.iter().map(|(_, verdict)| verdict.ratio).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(1.0)
    }

    fn against(&self) -> Against {
        self.cpus.first().map_or(Against::Median, |(_, verdict)| verdict.against)
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.cpus.iter().map(|(seen, _)| seen.cpu).collect()
    }

    fn ratios(&self, pick: fn(&Verdict) -> f64) -> BTreeMap<u32, f64> {
        self.cpus.iter().map(|(seen, verdict)| (seen.cpu, pick(verdict))).collect()
    }
}

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

/// "CPU 3 is 1.5 times slower than the median CPU: governor powersave keeps it at ...".
pub(super) fn slower(group: &Group) -> String {
    let is = if group.cpus.len() == 1 { "is" } else { "are" };
    format!("{} {is} {}{}", numbers::named(&group.numbers()), compared(group), because(group))
}

/// The same as a place: "CPU 3, which is 1.5 times slower than ...".
pub(super) fn slow_place(group: &Group) -> String {
    let is = if group.cpus.len() == 1 { "is" } else { "are" };
    format!("{}, which {is} {}", numbers::named(&group.numbers()), compared(group))
}

fn compared(group: &Group) -> String {
    let one = group.cpus.len() == 1;
    let than = match group.against() {
        Against::Median => "the median CPU".to_owned(),
        Against::Nominal => {
            let nominal = group.cpus.iter().find_map(|(seen, _)| seen.nominal_mhz).unwrap_or(0.0);
            format!("{} nominal {nominal:.0} MHz", if one { "its" } else { "their" })
        }
        Against::Baseline => "in the baseline".to_owned(),
        Against::Itself => format!("when nothing interrupts {}", if one { "it" } else { "them" }),
    };
    format!("{:.1} times slower than {than}", group.ratio())
}

fn because(group: &Group) -> String {
    let words = group.why.words();
    if group.why.hold.is_empty() { format!(", for a reason that is {words}") } else { format!(": {words}") }
}

fn finding(ev: &Evidence<'_>, group: &Group) -> Result<Finding, Missing> {
    let key = group.why.key();
    let of_disks = || key == ["interrupts"] && group.numbers().iter().all(|cpu| of_disks(ev, *cpu));
    let own_work = if of_disks() { requester(ev) } else { None };
    let lost = victims(ev, &group.ratios(|verdict| verdict.ratio), own_work)?;
    let least = victims(ev, &group.ratios(|verdict| verdict.least), own_work)?;
    // Traced handlers are the host's own work: what they take is somebody's packets; and so is the way into them.
    let is_work = key == ["exits"] || (group.against() == Against::Itself && key == ["interrupts"]);
    let noticed = lost.lost.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() && !is_work;
    let culprit = culprit(group);
    let mut f = match noticed {
        true => {
            let (low, high) = (lost.lost.min(least.lost), lost.lost.max(least.lost));
            Finding::cause(RULE.id, victim(&lost), lost.lost).between(low, high).share_of(lost.on_cpu)
        }
        false => Finding::risk(RULE.id, Subject::host()),
    };
    f = f.titled(slower(group)).by(culprit);
    for hop in hops(group, &lost).into_iter().filter(|_| noticed) {
        f = f.hop(hop);
    }
    f = f.check("the same measurement, CPU by CPU", "whyslow cpu --for 5s");
    Ok(fixes(f, group))
}

/// Who lost most, if that is nearly all; else the host.
fn victim(lost: &Victims) -> Subject {
    const NEARLY: f64 = 0.6;
    match lost.processes.first() {
        Some((pid, name, time)) if time.as_secs_f64() >= NEARLY * lost.lost.as_secs_f64() => {
            Subject::new(SubjectKind::Task, pid.to_string(), name)
        }
        _ => Subject::host(),
    }
}

pub(super) fn culprit(group: &Group) -> Culprit {
    let cpus = group.numbers();
    let set = group.why.hold.iter().find_map(|reason| Some((reason, reason.file.clone()?)));
    match set {
        Some((reason, file)) => Culprit::new(
            SubjectKind::Kernel,
            reason.kind,
            format!("{} of {}", reason.kind, numbers::named(&cpus)),
        )
        .at_file(file),
        None => {
            let id = cpus.first().map_or_else(String::new, |cpu| format!("cpu{cpu}"));
            Culprit::new(SubjectKind::Cpu, id, numbers::named(&cpus))
        }
    }
}

fn hops(group: &Group, lost: &Victims) -> Vec<Hop> {
    let place = slow_place(group);
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

pub(super) fn fixes(mut f: Finding, group: &Group) -> Finding {
    for reason in &group.why.hold {
        f = match (&reason.file, &reason.values) {
            (Some(file), Some((is, better))) => set(f, reason, file, is, better),
            _ => advice(f, reason.kind),
        };
    }
    if group.why.hold.is_empty() {
        f = f.advice(
            "compare with the firmware's settings (power profile, speed limits) and with a host of the same model; on a \
             virtual machine ask who runs the hypervisor for the speed that was promised",
        );
    }
    f
}

/// A file of each policy or CPU: all are to be set alike.
fn set(f: Finding, reason: &Reason, file: &str, is: &str, better: &str) -> Finding {
    let to = |value: &str| match file
        .split_once("/policy")
        .and_then(|(above, below)| Some((above, below.split_once('/')?.1)))
    {
        Some((above, name)) => command!("echo {} | tee {}/policy*/{}", value, above, name),
        None => command!("echo {} | tee {}", value, file),
    };
    let undo = to(is);
    let f = f.fix(format!("let it run faster; it takes more power (undo: {})", &*undo), to(better));
    match reason.kind {
        "governor" | "epp" => f.advice(
            "to make it last: the profile of tuned or power-profiles-daemon, cpupower.service, or cpufreq.default_governor=performance \
             on the kernel's command line (undo: the old profile; remove it and boot)",
        ),
        _ => f,
    }
}

fn advice(f: Finding, kind: &str) -> Finding {
    match kind {
        "bios" => f.advice("raise the limit in the firmware's power settings, or look for a failed power supply or fan"),
        "thermal" => f.advice("look at fans, filters, heat sinks and the temperature of the room"),
        "power" => f.advice("raise the power limit (RAPL, BMC), if supply and cooling allow it (undo: the old limit)"),
        "steal" => f.advice("ask who runs the hypervisor for CPUs of your own, or a less crowded machine"),
        "interrupts" | "exits" => f.advice("spread its interrupts over more CPUs (undo: the old affinity)"),
        "taken" => f.advice(
            "look for timers and firmware interrupts on it: perf stat -a -A -e msr/smi/, the hwlat tracer, irq_vectors \
             tracepoints",
        ),
        _ => f.advice("leave its sibling idle, or switch SMT off, if single threads matter more than throughput"),
    }
}

/// A governor that pins the lowest frequency, where nobody could measure that it costs anything.
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
    Some(set(f.check("governors", command!("grep . {}", file)), &reason, &file, "powersave", "performance"))
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
        None => "the one CPU is not interrupted for long".to_owned(),
    };
    if let (Some(mhz), Some(nominal)) = (slowest.mhz, slowest.nominal_mhz) {
        evidence.push_str(&format!("; it ran at {mhz:.0} MHz, nominal is {nominal:.0}"));
    } else if !speeds.has_baseline() {
        evidence.push_str("; whether all are slow alike only a baseline can tell");
    }
    if !speeds.skipped.is_empty() {
        evidence.push_str(&format!("; {} not measured", speeds.skipped.len()));
    }
    Ok(Some(RuledOut { what: "a slow CPU".into(), evidence }))
}

#[cfg(test)]
#[path = "slow_cpu_tests.rs"]
mod tests;
