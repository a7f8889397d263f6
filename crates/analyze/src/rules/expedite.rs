//! The switch that makes RCU grace periods short, for every rule whose waiters need them.

use whyslow_model::wait::Who;
use whyslow_model::{Finding, command};

use crate::Evidence;
use crate::works::{for_grace_periods, is_expedited};

/// They end when all tasks have passed a safe place: kernel/rcu/tasks.h.
const OF_TASKS: &str = "synchronize_rcu_tasks";

/// Whether the switch makes a grace period short that a thread with these frames waits for: not one that is short already, or of tasks.
pub(super) fn shortens(frames: &[String]) -> bool {
    !is_expedited(frames) && !frames.iter().any(|frame| frame.starts_with(OF_TASKS))
}

/// Whether the switch shortens at least half of the time that these threads waited for grace periods.
pub(super) fn shortens_waits(ev: &Evidence<'_>, threads: &[(u32, Who)]) -> bool {
    let is_theirs = |pid: u32| threads.iter().any(|(thread, _)| *thread == pid);
    let spans = ev.spans().unwrap_or_default().iter().filter(|span| is_theirs(span.pid));
    let (mut all, mut shorter) = (0u64, 0u64);
    for (span, _) in for_grace_periods(spans, ev.stacks()) {
        all = all.saturating_add(span.sampled_wait_ns);
        if shortens(ev.stacks().kernel(span.stack)) {
            shorter = shorter.saturating_add(span.sampled_wait_ns);
        }
    }
    all > 0 && shorter >= all / 2
}

/// kernel/rcu/update.c, rcu_gp_is_expedited; rcu_normal wins.
pub(super) fn expedite(finding: Finding) -> Finding {
    finding.fix(
        "make grace periods short (interrupts to all CPUs pay for it; no effect where /sys/kernel/rcu_normal is 1, as on PREEMPT_RT; undo: write 0)",
        command!("echo {} > /sys/kernel/rcu_expedited", 1),
    )
}
