//! A thread keeps interrupts off on a CPU for long, and other threads wait meanwhile.
//!
//! Signal: timers and calls from other CPUs that a running CPU took late, and the kernel stack at that moment, which is the stack
//! of the thread that just enabled interrupts again. Lost: the time that threads waited for their timers and calls on that CPU,
//! or were ready for it. Not this rule: CPUs that wake slowly (`wakeup-latency`), long handlers and softirqs, in which interrupts
//! are on.
//!
//! A function is named if all of this holds. It was seen three times or more, right behind the instruction that enables interrupts
//! (x86). Such gaps are more than 40 % of the time that was seen in the function, and more than 30 % of all gaps of that CPU while it
//! ran, because firmware and hypervisors stop a CPU at any place. Where the instruction is not known, the part of gaps is at least
//! twice that of all other time of that CPU. The time that the hypervisor reports as taken is subtracted from each gap (KVM); without
//! such a report it must be less than half of the gaps. The times in which a virtual CPU stood still while interrupts were on must also
//! be less than half of the gaps.
//!
//! Time lost: the latency of threads' timers and of calls that were waited for there, in proportion to this function's share of that
//! CPU's gaps, and the waits of threads that were ready for this CPU during the gaps. The lower bound leaves out the timers: a longer
//! sleep may do no harm.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{
    Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds, times,
};

use super::Rule;
use crate::Evidence;
use crate::irq::latency::{Doubt, LatencyCulprit, LatencyVictim, LatencyVictims, VictimWait, judged, own_ns};

pub const RULE: Rule = Rule {
    id: "irqs-off",
    question: "Does a thread keep interrupts off on a CPU for long?",
    what: "A part of the kernel (a driver, a flush of statistics, a walk over a long list under a lock) runs with interrupts off. \
           Meanwhile the CPU takes no timer, no packet and no call of another CPU: sleepers wake up late, ready tasks wait, and CPUs \
           that call it spin. A profile does not show it, because its timer is an interrupt, too.",
    how: "Timers and calls of other CPUs that a running CPU took 1 ms late or more, with the stack of the thread that had just enabled \
          interrupts again. A function is named if it was seen so three times or more, and if firmware and the hypervisor are unlikely to \
          be the cause. Counterfactual: no such gap; time lost = this function's share of the late timers and calls of that CPU, and the \
          waits of threads that were ready for it, from 2 % of one task's window on.",
    limits: "Gaps: a gap begins when a timer or call is due, so the reported time is a lower bound. An interrupt handler that is itself \
             long: it is over before the next interrupt is taken, so the stack is that of the thread that it interrupted. A hypervisor \
             that takes CPUs often and does not report it, or not when: only long times with interrupts off stand out. A hypervisor that \
             does not report it, and stops CPUs only where the kernel has interrupts off: it looks like the kernel.",
    sources: "kernel/time/hrtimer.c (hrtimer_expire_entry); kernel/smp.c (csd_function_entry); arch/x86/entry/entry_64.S.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A loss of less than this share of one task's window is no cause.
const WORTH_IT: f64 = 0.02;
/// Shorter times with interrupts off are normal for a kernel if no thread loses time: half a tick at 100 Hz.
const LONG: Duration = Duration::from_millis(5);
/// Findings that are reported: more of them have one common fault.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.gaps()?;
    let (found, doubts) = judged(ev.recording());
    if let Some(doubt) = doubts.first().filter(|_| found.is_empty()) {
        return Err(untold(doubt));
    }
    let mut told: Vec<Finding> = found.iter().filter_map(|culprit| finding(ev, culprit)).collect();
    super::first_few(&mut told, MOST);
    Ok(told)
}

fn untold(Doubt { culprit, why }: &Doubt) -> Missing {
    let LatencyCulprit { cpu, function, count, total, .. } = culprit;
    let what = format!("whether a thread kept interrupts off on CPU {cpu}");
    let often = times(*count);
    let reason = format!(
        "the CPU took no interrupt for {} in all, {often}, each ending in {function}, but {why}",
        seconds(*total)
    );
    Missing::unclear(what, reason)
}

fn finding(ev: &Evidence<'_>, culprit: &LatencyCulprit) -> Option<Finding> {
    let rec = ev.recording();
    let victims = victims(ev, culprit);
    let lost = victims.time(rec, |_| true);
    let LatencyCulprit { cpu, function, who, pid, count, total, worst, .. } = culprit;
    let (total, worst) = (seconds(*total), seconds(*worst));
    let where_and_when = format!("in {function} for {total}, {}, worst {worst}", times(*count));
    let named = Culprit::new(SubjectKind::Task, pid.to_string(), who.clone()).in_function(function.clone());
    let first = victims.first().filter(|_| lost.as_secs_f64() >= WORTH_IT * ev.window().as_secs_f64());
    let finding = match first {
        None if culprit.worst < LONG => return None,
        None => {
            let subject = Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), format!("CPU {cpu}"));
            let kept = format!("{who} (pid {pid}) kept interrupts off {where_and_when}");
            Finding::risk(RULE.id, subject).titled(format!("{kept}; no task was seen to lose time by it"))
        }
        Some(first) => {
            let subject = victims.subject();
            let most = match subject.kind {
                SubjectKind::Task => String::new(),
                _ => format!("; {} (pid {}) lost most by it", first.comm, first.pid),
            };
            let title = format!("{who} kept interrupts off on CPU {cpu} {where_and_when}{most}");
            let mut finding = Finding::cause(RULE.id, subject, lost)
                .titled(title)
                .share_of(victims.lived(rec))
                .between(victims.time(rec, |victim| victim.wait != VictimWait::Slept), lost)
                .raw_wait(lost);
            finding.chain = chain(ev, &victims, culprit);
            finding
        }
    };
    Some(
        finding
            .by(named)
            .check("how long interrupts are off, by the kernel's own tracer", command!("rtla timerlat top -c {} -d 10s", cpu))
            .check("its kernel stack", command!("cat /proc/{}/stack", pid))
            .advice(format!(
                "let {who} do this less often, in smaller steps, or on a CPU that no other task needs (taskset; undo: the mask as \
                 it was); if {function} belongs to a driver, look for a newer driver"
            )),
    )
}

/// The threads that waited for this CPU while interrupts were off.
fn victims(ev: &Evidence<'_>, culprit: &LatencyCulprit) -> LatencyVictims {
    let rec = ev.recording();
    let gaps = ev.gaps().unwrap_or_default();
    let running = gaps.iter().filter(|gap| gap.cpu == culprit.cpu && gap.state.is_none());
    let all = running.fold(0u64, |sum, gap| sum.saturating_add(gap.ns)).max(1);
    let share = (culprit.total.as_nanos() as f64 / all as f64).clamp(0.0, 1.0);
    let mut victims = LatencyVictims::of(rec, |cpu, state| cpu == culprit.cpu && state.is_none()).named(ev);
    victims.0.retain(|victim| victim.pid != culprit.pid);
    for victim in &mut victims.0 {
        victim.ns = (victim.ns as f64 * share) as u64;
    }
    victims.0.extend(ready(ev, culprit));
    victims
}

/// The threads that were ready for this CPU meanwhile.
fn ready(ev: &Evidence<'_>, culprit: &LatencyCulprit) -> impl Iterator<Item = LatencyVictim> {
    let mut by_pid: BTreeMap<u32, LatencyVictim> = BTreeMap::new();
    let rows = ev.spans().unwrap_or_default().iter();
    for row in
        rows.filter(|row| row.cpu == culprit.cpu && row.pid != culprit.pid && !ev.is_own(row.pid, row.tgid))
    {
        let overlap = |(from, to): &(u64, u64)| row.to_ns.min(*to).saturating_sub(row.woken_ns.max(*from));
        let ns = culprit.times.iter().map(overlap).fold(0u64, u64::saturating_add);
        if ns == 0 {
            continue;
        }
        let victim = by_pid.entry(row.pid).or_insert_with(|| LatencyVictim {
            pid: row.pid,
            tgid: row.tgid,
            comm: ev.called(row.pid, &row.comm),
            cpu: culprit.cpu,
            state: None,
            wait: VictimWait::Ready,
            function: culprit.function.clone(),
            ns: 0,
            count: 0,
            worst: 0,
        });
        victim.ns = victim.ns.saturating_add(ns);
        victim.count = victim.count.saturating_add(1);
        victim.worst = victim.worst.max(ns);
    }
    by_pid.into_values()
}

/// The most expensive waits, then the thread that caused them.
fn chain(ev: &Evidence<'_>, victims: &LatencyVictims, culprit: &LatencyCulprit) -> Vec<Hop> {
    let mut rows: Vec<&LatencyVictim> = victims.0.iter().filter(|victim| victim.ns > 0).collect();
    rows.sort_by_key(|victim| (std::cmp::Reverse(victim.ns), victim.pid, victim.wait));
    let mut hops: Vec<Hop> = rows.iter().take(MOST).map(|victim| victim.hop(ev.recording())).collect();
    let who = format!("{} (pid {})", culprit.who, culprit.pid);
    let place = &culprit.function;
    hops.push(
        Hop::new(Reason::IrqsOff, who, place.clone(), TaskState::Running, culprit.total)
            .times(culprit.count, culprit.worst),
    );
    hops
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let worst = ev.gaps()?.iter().filter(|gap| gap.state.is_none()).map(own_ns).max().unwrap_or(0);
    let evidence = match worst {
        0 => "every CPU that ran took its timers and calls within a millisecond".to_owned(),
        ns if Duration::from_nanos(ns) < LONG => {
            format!("no CPU that ran was later than {} to a timer or call", seconds(Duration::from_nanos(ns)))
        }
        _ => return Ok(None),
    };
    Ok(Some(RuledOut { what: "interrupts kept off".into(), evidence }))
}

#[cfg(test)]
#[path = "irqs_off_tests.rs"]
mod tests;
