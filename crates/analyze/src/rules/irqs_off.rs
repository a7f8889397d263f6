//! Somebody keeps interrupts off on a CPU for long, and others stand still.
//!
//! Signal: timers and calls that a running CPU took late, and the kernel stack at that moment, which is that of who let
//! interrupts in again. Lost: what threads waited for their timers and calls on that CPU, and those that were ready for it.
//! Not this rule: CPUs that wake slowly (`wakeup-latency`), long handlers and softirqs, in which interrupts are on.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::irq::latency::{Doubt, Keeper, Payer, Payers, Wait, judged, own_ns};

pub const RULE: Rule = Rule {
    id: "irqs-off",
    question: "Does somebody keep interrupts off on a CPU for long?",
    what: "A part of the kernel (a driver, a flush of statistics, a walk over a long list under a lock) runs with interrupts \
           off. Meanwhile the CPU takes no timer, no packet and no call of another CPU: who sleeps there is woken late, who \
           is ready there waits, and who called it from elsewhere spins. A profile does not show it: its timer is an \
           interrupt, too.",
    how: "A timer that goes off, or a call that is taken, a millisecond late or more on a CPU that ran: the stack there is \
          that of who has just let interrupts in again. A function is named if it was met three times or more, right behind the \
          instruction that lets interrupts in (x86), if such gaps are more than 40 % of the time that was seen in it, and more \
          than 30 % of all gaps of that CPU while it ran: firmware and hypervisors stop a CPU wherever it is. Where the instruction is not \
          known it must be twice as much as elsewhere. What the hypervisor says it took is taken off each gap (KVM), else it must be \
          less than half of them, as must be the times in which a virtual CPU stood still where interrupts are on; or nobody is named. Time lost = latency of \
          threads' timers and of calls that were waited for there, in proportion to this function's share of that CPU's \
          gaps, and the wait of threads that were ready for this CPU during them. The lower bound leaves out the timers: a \
          sleep may be the better for being longer.",
    limits: "A gap begins when something is due: what is reported is a lower bound. A handler of an interrupt that is long itself \
             is over before the next one is taken: the stack is that of whom it interrupted. Where a hypervisor takes \
             CPUs often and does not tell, or not when, only long times with interrupts off stand out. One that does not tell, \
             and stops CPUs only where the kernel has interrupts off, cannot be told from the kernel.",
    sources: "kernel/time/hrtimer.c (hrtimer_expire_entry); kernel/smp.c (csd_function_entry); arch/x86/entry/entry_64.S.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less than this share of one task's window is nobody's trouble.
const WORTH_IT: f64 = 0.02;
/// Shorter times with interrupts off that nobody pays for are the kernel's daily life: half a tick at 100 Hz.
const LONG: Duration = Duration::from_millis(5);
/// Beyond these there is one fault with many faces.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.gaps()?;
    let (found, doubts) = judged(ev.recording());
    if let Some(doubt) = doubts.first().filter(|_| found.is_empty()) {
        return Err(untold(doubt));
    }
    let mut told: Vec<Finding> = found.iter().filter_map(|keeper| finding(ev, keeper)).collect();
    super::first_few(&mut told, MOST);
    Ok(told)
}

fn untold(Doubt { keeper, why }: &Doubt) -> Missing {
    let Keeper { cpu, function, count, total, .. } = keeper;
    let what = format!("whether somebody kept interrupts off on CPU {cpu}");
    let reason =
        format!("it took none {count} times, {} together, up to {function}, but {why}", seconds(*total));
    Missing::unclear(what, reason)
}

fn finding(ev: &Evidence<'_>, keeper: &Keeper) -> Option<Finding> {
    let rec = ev.recording();
    let payers = payers(ev, keeper);
    let lost = payers.time(rec, |_| true);
    let Keeper { cpu, function, who, pid, count, total, worst, .. } = keeper;
    let (total, worst) = (seconds(*total), seconds(*worst));
    let times = format!("in {function} {count} times, {total} together, {worst} at worst");
    let culprit = Culprit::new(SubjectKind::Task, pid.to_string(), who.clone()).in_function(function.clone());
    let first = payers.first().filter(|_| lost.as_secs_f64() >= WORTH_IT * ev.window().as_secs_f64());
    let finding = match first {
        None if keeper.worst < LONG => return None,
        None => {
            let subject = Subject::new(SubjectKind::Cpu, format!("cpu{cpu}"), format!("CPU {cpu}"));
            let kept = format!("{who} (pid {pid}) kept interrupts off {times}");
            Finding::risk(RULE.id, subject).titled(format!("{kept}; nobody was seen to lose time by it"))
        }
        Some(first) => {
            let subject = payers.subject();
            let most = match subject.kind {
                SubjectKind::Task => String::new(),
                _ => format!("; {} (pid {}) lost most by it", first.comm, first.pid),
            };
            let title = format!("{who} kept interrupts off on CPU {cpu} {times}{most}");
            let mut finding = Finding::cause(RULE.id, subject, lost)
                .titled(title)
                .share_of(payers.lived(rec))
                .between(payers.time(rec, |payer| payer.wait != Wait::Slept), lost)
                .raw_wait(lost);
            finding.chain = chain(ev, &payers, keeper);
            finding
        }
    };
    Some(
        finding
            .by(culprit)
            .check("how long interrupts are off, by the kernel's own tracer", command!("rtla timerlat top -c {} -d 10s", cpu))
            .check("what it does in the kernel", command!("cat /proc/{}/stack", pid))
            .advice(format!(
                "let {who} do this less often, in smaller steps, or on a CPU that nobody else needs (taskset; undo: the mask as \
                 it was); if {function} is a driver's, look for a newer one"
            )),
    )
}

/// Who waited for this CPU while interrupts were off.
fn payers(ev: &Evidence<'_>, keeper: &Keeper) -> Payers {
    let rec = ev.recording();
    let gaps = ev.gaps().unwrap_or_default();
    let running = gaps.iter().filter(|gap| gap.cpu == keeper.cpu && gap.state.is_none());
    let all = running.fold(0u64, |sum, gap| sum.saturating_add(gap.ns)).max(1);
    let share = (keeper.total.as_nanos() as f64 / all as f64).clamp(0.0, 1.0);
    let mut payers = Payers::of(rec, |cpu, state| cpu == keeper.cpu && state.is_none()).named(ev);
    payers.0.retain(|payer| payer.pid != keeper.pid);
    for payer in &mut payers.0 {
        payer.ns = (payer.ns as f64 * share) as u64;
    }
    payers.0.extend(ready(ev, keeper));
    payers
}

/// Those who were ready for this CPU meanwhile.
fn ready(ev: &Evidence<'_>, keeper: &Keeper) -> impl Iterator<Item = Payer> {
    let mut by_pid: BTreeMap<u32, Payer> = BTreeMap::new();
    let rows = ev.spans().unwrap_or_default().iter();
    for row in
        rows.filter(|row| row.cpu == keeper.cpu && row.pid != keeper.pid && !ev.is_own(row.pid, row.tgid))
    {
        let overlap = |(from, to): &(u64, u64)| row.to_ns.min(*to).saturating_sub(row.woken_ns.max(*from));
        let ns = keeper.times.iter().map(overlap).fold(0u64, u64::saturating_add);
        if ns == 0 {
            continue;
        }
        let payer = by_pid.entry(row.pid).or_insert_with(|| Payer {
            pid: row.pid,
            tgid: row.tgid,
            comm: ev.called(row.pid, &row.comm),
            cpu: keeper.cpu,
            state: None,
            wait: Wait::Ready,
            function: keeper.function.clone(),
            ns: 0,
            count: 0,
            worst: 0,
        });
        payer.ns = payer.ns.saturating_add(ns);
        payer.count = payer.count.saturating_add(1);
        payer.worst = payer.worst.max(ns);
    }
    by_pid.into_values()
}

/// The costliest waits, then who made them.
fn chain(ev: &Evidence<'_>, payers: &Payers, keeper: &Keeper) -> Vec<Hop> {
    let mut rows: Vec<&Payer> = payers.0.iter().filter(|payer| payer.ns > 0).collect();
    rows.sort_by_key(|payer| (std::cmp::Reverse(payer.ns), payer.pid, payer.wait));
    let mut hops: Vec<Hop> = rows.iter().take(MOST).map(|payer| payer.hop(ev.recording())).collect();
    let who = format!("{} (pid {})", keeper.who, keeper.pid);
    let place = &keeper.function;
    hops.push(
        Hop::new(Reason::IrqsOff, who, place.clone(), TaskState::Running, keeper.total)
            .times(keeper.count, keeper.worst),
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
