//! Waiting for a CPU, or for the quota of a cgroup.

use whyslow_model::timeline::State;
use whyslow_model::wait::WaitTarget;

use super::{Class, WaitContext, WaitKind};

/// Since v6.18 (e1fad12dcb66, "sched/fair: Switch to task based throttle model") a task whose quota is used up is taken
/// off the run queue on its way to user mode.
const THROTTLED: &[&str] = &["throttle_cfs_rq_work"];

pub(super) fn ask(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let span = wait.span;
    let ready_ns = span.to_ns.saturating_sub(span.woken_ns);
    let by_stack = wait.first().is_some_and(|first| THROTTLED.contains(&first));
    // The larger part gives the name; code that needs both has `throttled_ns`.
    let by_time = span.state == State::Runnable && span.throttled_ns > 0 && span.throttled_ns >= ready_ns / 2;
    if by_stack || by_time {
        return Some(WaitKind::target(WaitTarget::CpuQuota, Class::Limit));
    }
    (span.state == State::Runnable).then(|| WaitKind::target(WaitTarget::Cpu, Class::Cpu))
}
