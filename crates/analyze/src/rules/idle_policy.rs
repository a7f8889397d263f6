//! How CPUs may idle: parameters that have no effect, CPUs that differ, idle states that are slow to leave.
//!
//! Signal: the command line and module parameters, compared with the driver in charge; idle states of each CPU with their
//! exit latency and use; limits on wake-ups; and the processes that hold /dev/cpu_dma_latency open, with the request of each open
//! file. No time lost is computed here: the rule `wakeup-latency` measures the cost of late wake-ups. Not this rule: frequencies.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::{Culprit, Finding, Missing, Share, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::cpu::numbers;
use crate::cpu::parameters::{self, Effect};
use crate::evidence::IdleState;
use crate::parse::cpulist;

pub const RULE: Rule = Rule {
    id: "idle-policy",
    question: "Do the parameters for idle CPUs have an effect, and are all CPUs alike?",
    what: "Parameters that were copied from another machine limit a driver that is not in charge here; one CPU has other idle \
           states than its peers; CPUs sleep so deep that waking them takes milliseconds, or are kept from sleeping at all. \
           None of this is visible until a task waits for a CPU that wakes up late.",
    how: "/proc/cmdline and /sys/module/*/parameters are compared with the driver in charge (cpuidle/current_driver, \
          scaling_driver) and the CPU's maker, and the states that are enabled on each CPU with those of the others. A state is slow if \
          its exit latency is 1 ms or more and CPUs were in it for 10 % of the window or more (cpuidle/state*/time). CPUs are kept awake \
          if a process holds /dev/cpu_dma_latency open at a value below the exit latency of all states.",
    limits: "Risks only: no time lost is measured here. Exit latencies: the values that the driver states, firmware can take longer. \
             Isolated and nohz_full CPUs: set apart on purpose, and not compared.",
    sources: "Documentation/admin-guide/pm/cpuidle.rst, intel_idle.rst, kernel-parameters.txt; drivers/idle/intel_idle.c, \
              drivers/acpi/processor_idle.c.",
    can_be_cause: false,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// The deepest states of servers take 50 to 900 us to leave. Longer exit latencies delay every packet and every release of a lock.
const SLOW_US: u64 = 1000;
/// A CPU that is in a state for less of the window usually wakes from another state.
const USED: f64 = 0.10;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let driver = driver(ev)?;
    let mut found: Vec<Finding> = parameters::judged(ev, &driver)?
        .into_iter()
        .filter_map(|(text, effect)| reported(&text, effect))
        .collect();
    // A driver without states (idle=poll, "none") has no files of states: then there is nothing to compare.
    let states = ev.idle_states_by_cpu().unwrap_or_default();
    found.extend(differences(ev, &states));
    found.extend(slow(ev, &states));
    found.extend(kept_awake(ev, &states));
    Ok(found)
}

fn risk(id: &str, title: String) -> Finding {
    Finding::risk(RULE.id, Subject::host()).titled(title).by(Culprit::new(SubjectKind::Kernel, id, id))
}

/// The risk of one parameter, if it has one.
fn reported(text: &str, effect: Effect) -> Option<Finding> {
    let finding = match effect {
        Effect::Has => return None,
        Effect::None(why) => {
            risk(text, format!("the kernel was started with {text:?}, which has no effect here: {why}"))
                .advice("take it out of the boot entry, where it misleads readers (undo: put it back)")
        }
        Effect::Other(runs) => risk(
            text,
            format!("the kernel was started with {text:?}, and runs with something else: {runs}"),
        )
        .advice(
            "make the boot entry and the running value equal: a reboot, or the options of a module, undoes one of them",
        ),
        Effect::Price(price) => risk(text, format!("the kernel was started with {text:?}: {price}"))
            .advice("undo: boot without it"),
    };
    Some(
        finding
            .check("the kernel's command line", "cat /proc/cmdline")
            .check("the idle driver in charge", "cat /sys/devices/system/cpu/cpuidle/current_driver"),
    )
}

/// The driver of idle states. A kernel without CONFIG_CPU_IDLE has none, like a kernel that loaded no driver. If no file of CPUs could be
/// read either, the driver is not known.
fn driver(ev: &Evidence<'_>) -> Result<String, Missing> {
    match ev.idle_driver() {
        Err(Missing::NotInKernel { .. }) if ev.last("sys/devices/system/cpu/online").is_ok() => {
            Ok("none".to_owned())
        }
        driver => driver,
    }
}

/// CPUs that may use other states, or have other limits on wake-ups, than most.
fn differences(ev: &Evidence<'_>, states: &BTreeMap<u32, Vec<IdleState>>) -> Option<Finding> {
    let apart = apart(ev);
    let limits = ev.wakeup_limits();
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (cpu, states) in states.iter().filter(|(cpu, _)| !apart.contains(cpu)) {
        let enabled: Vec<&str> =
            states.iter().filter(|state| !state.disabled).map(|state| state.name.as_str()).collect();
        let limit = limits.get(cpu).map(|us| format!(", and wake-ups within {us} us")).unwrap_or_default();
        groups.entry(format!("{}{limit}", enabled.join(" "))).or_default().push(*cpu);
    }
    let most = groups.iter().max_by_key(|(_, cpus)| cpus.len())?.0.clone();
    if groups.len() < 2 {
        return None;
    }
    let others: Vec<String> = groups
        .iter()
        .filter(|(how, _)| **how != most)
        .map(|(how, cpus)| {
            format!("{} may use {}", numbers::named(cpus), if how.is_empty() { "none" } else { how })
        })
        .collect();
    let title = format!("CPUs differ in their idle states: {}; the others may use {most}", others.join("; "));
    Some(
        risk("idle states of CPUs", title)
            .check("the states that are switched off (1)", "grep . /sys/devices/system/cpu/cpu*/cpuidle/state*/disable")
            .advice("make them alike, if it is not on purpose: tasks on these CPUs wake up later, or sooner, than on other CPUs"),
    )
}

/// CPUs that were set apart on purpose: isolated and nohz_full CPUs.
fn apart(ev: &Evidence<'_>) -> BTreeSet<u32> {
    let list = |file| ev.file(file, cpulist::parse).unwrap_or_default();
    let lists = ["sys/devices/system/cpu/isolated", "sys/devices/system/cpu/nohz_full"].map(list);
    let most = ev.recording().meta.cpus.max(1).saturating_mul(4);
    (0..most).filter(|cpu| lists.iter().any(|list| list.contains(*cpu))).collect()
}

/// States that are used much and take long to leave.
fn slow(ev: &Evidence<'_>, states: &BTreeMap<u32, Vec<IdleState>>) -> Option<Finding> {
    let window = ev.window();
    let mut used: BTreeMap<(u64, u32, &str), Vec<(u32, f64)>> = BTreeMap::new();
    for (cpu, states) in states {
        for state in states.iter().filter(|state| state.latency_us >= SLOW_US) {
            let share = state.share(window);
            if share >= USED {
                used.entry((state.latency_us, state.index, &state.name)).or_default().push((*cpu, share));
            }
        }
    }
    let ((latency, index, name), cpus) = used.into_iter().max_by_key(|(state, _)| *state)?;
    let share = cpus.iter().map(|(_, share)| share).sum::<f64>() / cpus.len().max(1) as f64;
    let cpus: Vec<u32> = cpus.into_iter().map(|(cpu, _)| cpu).collect();
    let title = format!(
        "{} slept in idle state {name} for {} of the time; by its driver's own account it takes {latency} us to leave: \
         each wake-up is that much later",
        numbers::named(&cpus),
        Share::of(share.min(1.0), 1.0),
    );
    Some(
        risk(&format!("idle state {name}"), title)
            .check("exit latencies in us", "grep . /sys/devices/system/cpu/cpu0/cpuidle/state*/latency")
            .fix(
                "if wake-ups matter more than power: switch the state off (costs power; undo: the same with echo 0)",
                command!(
                    "for f in /sys/devices/system/cpu/cpu*/cpuidle/state{}/disable; do echo 1 > $f; done",
                    index
                ),
            ),
    )
}

/// A process requests wake-ups so quick that no CPU sleeps at all.
fn kept_awake(ev: &Evidence<'_>, states: &BTreeMap<u32, Vec<IdleState>>) -> Option<Finding> {
    // If the holders are not known, this part is left out: the other answers stay valid.
    let holder = ev.latency_holders().ok()?.first()?;
    let sleeps = |state: &&IdleState| !state.polls() && !state.disabled;
    let quickest = states.values().flatten().filter(sleeps).map(|state| state.latency_us).min()?;
    if holder.value_us >= quickest {
        return None;
    }
    let title = format!(
        "{} ({}) holds /dev/cpu_dma_latency at {} us, less than any idle state takes to leave ({quickest} us): idle CPUs poll \
         at full power, and slow down the other hardware thread of their core",
        ev.called(holder.pid, &holder.comm),
        holder.pid,
        holder.value_us,
    );
    Some(
        Finding::risk(RULE.id, Subject::host())
            .titled(title)
            .by(Culprit::new(SubjectKind::Task, holder.pid.to_string(), ev.called(holder.pid, &holder.comm)))
            .check("the processes that have it open", "fuser -v /dev/cpu_dma_latency")
            .advice(
                "if it is not on purpose, let that process request a larger value, or end it: its request ends with it (costs: CPUs wake \
                 up more slowly)",
            ),
    )
}

#[cfg(test)]
#[path = "idle_policy_tests.rs"]
mod tests;
