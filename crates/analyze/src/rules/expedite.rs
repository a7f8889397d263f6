//! The switch that makes RCU grace periods short, for every rule whose waiters need them.

use whyslow_model::{Finding, command};

/// kernel/rcu/update.c, rcu_gp_is_expedited. The kernel's own rcu_normal, which wins, is set on PREEMPT_RT only.
pub(super) fn expedite(finding: Finding) -> Finding {
    finding.fix(
        "make grace periods short (interrupts to all CPUs pay for it; undo: write 0)",
        command!("echo {} > /sys/kernel/rcu_expedited", 1),
    )
}
