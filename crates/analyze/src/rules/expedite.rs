//! The switch that makes RCU grace periods short, for every rule whose waiters need them.

use whyslow_model::{Finding, command};

/// kernel/rcu/update.c, rcu_gp_is_expedited; rcu_normal wins.
pub(super) fn expedite(finding: Finding) -> Finding {
    finding.fix(
        "make grace periods short (interrupts to all CPUs pay for it; no effect where /sys/kernel/rcu_normal is 1, as on PREEMPT_RT; undo: write 0)",
        command!("echo {} > /sys/kernel/rcu_expedited", 1),
    )
}
