//! The tasks that waited for the CPUs on which a process spun, and the CPU time that they would have had without it.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Hop, Subject};

use super::{COST_OF_WAKING, Spinner};
use crate::Evidence;
use crate::cpu::loss::{FairShareModel, Lift, Loss};
use crate::cpu::quota;
use crate::names;

/// Less than this share of one task's window is not worth a cause.
const WORTH_IT: f64 = 0.05;

/// The tasks that waited for the CPUs meanwhile, and their loss. A task that may have waited for a quota as long as for everything else is
/// left out: its own rule reports the quota, and the task's waits for CPUs cannot be distinguished from it.
pub(super) fn of(
    spinner: &Spinner<'_>,
    ev: &Evidence<'_>,
    fair: &FairShareModel<'_>,
) -> Option<(Subject, Loss)> {
    let mut lift = Lift::default();
    let mut others = BTreeSet::new();
    let shares: BTreeMap<u32, f64> =
        spinner.process.threads.iter().map(|thread| (thread.pid, thread.sum.share().1)).collect();
    let throttled = ev.throttled_times();
    for (at, task) in fair.tasks().iter().enumerate() {
        if task.tgid != spinner.process.tgid && !ev.is_own(task.pid, task.tgid) && !task.kthread {
            if !quota::holds(ev, throttled, task) {
                others.insert(at);
            }
        } else if let Some(share) = shares.get(&task.pid) {
            let useful = 1.0 - share.clamp(0.0, 1.0) * (1.0 - COST_OF_WAKING);
            lift.beyond.insert(at, task.exec_ns as f64 * useful);
        }
    }
    let (with, without) = (fair.loss(&others, &Lift::default()), fair.loss(&others, &lift));
    let loss = Loss {
        likely: without.likely.saturating_sub(with.likely),
        low: without.low.saturating_sub(with.low),
        high: without.high.saturating_sub(with.high),
        ..without
    };
    let worth_it = loss.low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
    worth_it.then(|| (waiters(fair, &others), loss))
}

/// The victims' wait, as a hop.
pub(super) fn waited(victim: &Subject, loss: &Loss, spinner: &str) -> Hop {
    let waits_for = format!("a CPU, while {spinner} spins on one");
    Hop::new(Reason::Runnable, &victim.name, waits_for, TaskState::Runnable, loss.likely)
        .times(loss.waits, loss.worst)
}

/// The processes that waited for CPUs; the one that waited most comes first.
fn waiters(fair: &FairShareModel<'_>, others: &BTreeSet<usize>) -> Subject {
    let waited = |at: &usize| Some((*at, fair.tasks().get(*at)?.runnable_ns)).filter(|(_, ns)| *ns > 0);
    names::processes(fair.tasks(), others.iter().filter_map(waited)).unwrap_or_else(Subject::host)
}
