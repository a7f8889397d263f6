//! CPU quotas: which of nested quotas hold back tasks, how often they ran out, and how long a task can have been throttled.

use std::time::Duration;

use whyslow_model::table::{Cgroup, Task};
use whyslow_model::{Missing, Share};

use super::loss::FairShareModel;
use crate::Evidence;
use crate::MAX_DEPTH;
use crate::hashing::Table;

mod nested;
pub(crate) use nested::Held;
#[cfg(test)]
pub(crate) use nested::MOST_CLASSES;

/// Less than this share of one task's window is not worth a line.
pub(crate) const WORTH_IT: f64 = 0.01;
/// A quota that runs out less often than this is doing its job unnoticed.
const NOTICEABLE: Share = Share::percent(5);

/// The time that each thread was seen throttled by quotas.
pub(crate) type ThrottledTime = Table<u32, u64>;

/// Tasks that quotas held back.
pub(crate) struct HeldBack<'r> {
    /// By the quota that binds first.
    pub held: Vec<Held<'r>>,
    /// All sets of nested quotas were examined.
    pub are_all: bool,
}

impl<'r> HeldBack<'r> {
    /// All tasks with a loss that is worth a line.
    pub fn of(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let (cgroups, fair) = (ev.cgroups()?, ev.counterfactual()?);
        let least = WORTH_IT * ev.window().as_nanos() as f64;
        let (held, are_all) = nested::held(fair, ev.throttled_times(), cgroups, least);
        Ok(HeldBack { held, are_all })
    }
}

/// How long quotas throttled threads, as far as rows of their waits show.
pub(crate) fn throttled_times(ev: &Evidence<'_>) -> ThrottledTime {
    let mut throttled = ThrottledTime::default();
    for span in ev.spans().unwrap_or_default().iter().filter(|span| span.throttled_ns > 0) {
        let sum = throttled.entry(span.pid).or_default();
        *sum = sum.saturating_add(span.throttled_ns);
    }
    throttled
}

/// The quota that binds first, by the group of the tasks that it holds back.
pub(crate) fn binding(ev: &Evidence<'_>) -> Result<Table<u64, u64>, Missing> {
    let (held_back, fair) = (ev.held_back_by_quotas()?, ev.counterfactual()?);
    let of = |held: &Held<'_>| {
        let tasks = held.tasks.iter().filter_map(|at| fair.tasks().get(*at));
        tasks.map(|task| (task.cpu_cgroup, held.group.id)).collect::<Vec<_>>()
    };
    Ok(held_back.held.iter().flat_map(of).collect())
}

/// Whether this quota ran out so often that the tasks noticed it.
pub(crate) fn is_throttled(group: &Cgroup) -> bool {
    throttled_ratio(group) >= NOTICEABLE
}

/// The share of its periods in which a group's quota ran out.
pub(crate) fn throttled_ratio(group: &Cgroup) -> Share {
    let cpu = group.cpu.clone().unwrap_or_default();
    match cpu.quota_ns {
        Some(_) => Share::of(cpu.throttled_periods as f64, cpu.periods as f64),
        None => Share::default(),
    }
}

/// A group and those above it.
pub(crate) fn path<'r>(ev: &Evidence<'r>, group: u64) -> impl Iterator<Item = &'r Cgroup> {
    std::iter::successors(ev.cgroup(group), |group| ev.cgroup(group.parent)).take(MAX_DEPTH)
}

/// The time that quotas can have throttled these tasks: a task is throttled until the quota's next period begins, so for
/// less than one period each time. One throttling may have begun before the window. The other waits are for CPUs that other tasks had.
pub(crate) fn standing(ev: &Evidence<'_>, fair: &FairShareModel<'_>, held: &Held<'_>) -> Duration {
    let mut by_group: Table<u64, u64> = Table::default();
    let tasks = held.tasks.iter().filter_map(|at| fair.tasks().get(*at));
    tasks
        .map(|task| {
            let group = task.cpu_cgroup;
            let most = *by_group.entry(group).or_insert_with(|| standing_below(ev, group));
            Duration::from_nanos(most.min(task.lived_ns))
        })
        .sum()
}

/// The periods in which a quota above a group ran out, together.
fn standing_below(ev: &Evidence<'_>, group: u64) -> u64 {
    let (mut sum, mut id) = (0u64, group);
    for _ in 0..MAX_DEPTH {
        let Some(group) = ev.cgroup(id) else { break };
        if let Some(cpu) = group.cpu.as_ref().filter(|cpu| cpu.quota_ns.is_some()) {
            if group.uncounted {
                return u64::MAX;
            }
            sum = sum.saturating_add(cpu.throttled_periods.saturating_add(1).saturating_mul(cpu.period_ns));
        }
        id = group.parent;
    }
    sum
}

/// Whether a task may have waited for a quota for as long as for all else: by the periods in which the quota ran out, or, where these
/// were not counted, by the time that the task was seen throttled.
pub(crate) fn holds(ev: &Evidence<'_>, throttled: &ThrottledTime, task: &Task) -> bool {
    let has_quota = |group: &&Cgroup| group.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some());
    let quotas = || path(ev, task.cpu_cgroup).filter(has_quota);
    let most = if quotas().any(|group| group.uncounted) {
        throttled.get(&task.pid).copied().unwrap_or(0)
    } else if quotas().any(is_throttled) {
        standing_below(ev, task.cpu_cgroup)
    } else {
        0
    };
    most > 0 && most >= task.runnable_ns / 2
}
