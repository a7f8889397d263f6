//! The settings by which the scheduler prefers one task: real-time priority, the weight of a cgroup, niceness.

use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::Reason;

use crate::Evidence;
use crate::graph::HostChain;
use crate::hashing::Set;
use crate::task_trees::TaskTree;

/// The weight of nice 10 (kernel/sched/core.c, sched_prio_to_weight).
const NICE_10: u64 = 110;
/// The weight of nice 0 (kernel/sched/sched.h, NICE_0_LOAD), and the factor of one step.
const NICE_0: f64 = 1024.0;
const STEP: f64 = 1.25;
/// A weight that is smaller than this part of the other weight explains a loss.
const LIGHT: f64 = 0.5;
/// A nice service can have clients that are not nice. They waited for it if they did so for at least this part of its time ready.
const FOR_OTHERS: f64 = 0.5;

fn yields_itself(task: &Task) -> bool {
    !task.is_real_time() && task.weight <= NICE_10
}

/// Whether most of the tree's waits for a CPU belong to tasks with nice 10 or more, or SCHED_IDLE: these leave CPUs to other tasks on
/// purpose. It is false if tasks that do not yield wait for the tree.
pub(super) fn yields(ev: &Evidence<'_>, tasks: &[Task], tree: &TaskTree) -> bool {
    let ready = |of: &dyn Fn(&Task) -> bool| {
        let all = tree.tasks.iter().filter_map(|at| tasks.get(*at)).filter(|task| of(task));
        all.map(|task| task.runnable_ns).fold(0, u64::saturating_add) as f64
    };
    let all = ready(&|_| true);
    ready(&yields_itself) > 0.5 * all && waited_for_ns(ev, tasks, tree) < FOR_OTHERS * all
}

/// Time that other tasks, which do not yield, waited for a task of the tree while that task was ready for a CPU.
fn waited_for_ns(ev: &Evidence<'_>, tasks: &[Task], tree: &TaskTree) -> f64 {
    let members: Set<u32> = tree.tasks.iter().filter_map(|at| Some(tasks.get(*at)?.pid)).collect();
    let is_of_it = |pid: u32| members.contains(&pid);
    let is_ready_behind = |reported: &&HostChain<'_>| {
        let hops = reported.chain.hops.iter().zip(&reported.chain.tasks).skip(1);
        let mut ready = hops.filter(|(hop, _)| hop.reason == Reason::Runnable);
        ready.any(|(_, threads)| threads.iter().any(|(pid, _)| is_of_it(*pid)))
    };
    let pays = |pid: u32| !is_of_it(pid) && ev.task(pid).is_some_and(|task| !yields_itself(task));
    let chains = ev.host_chains().iter().filter(is_ready_behind);
    // If many tasks wait at once, one wait counts.
    let longest = |reported: &HostChain<'_>| {
        reported.heads.iter().filter(|(pid, _)| pays(**pid)).map(|(_, time)| *time).max().unwrap_or_default()
    };
    chains.map(longest).sum::<Duration>().as_nanos() as f64
}

/// Why the victim gets less than the filler, if a setting of the scheduler explains it.
pub(super) fn why(
    tasks: &[Task],
    (victim, its_name): (&TaskTree, &str),
    (filler, name): (&TaskTree, &str),
) -> Option<String> {
    let all = |tree: &TaskTree| tree.tasks.iter().filter_map(|at| tasks.get(*at)).collect::<Vec<&Task>>();
    let (its, others) = (all(victim), all(filler));
    let urgent = others.iter().filter(|task| task.is_real_time()).map(|task| task.exec_ns);
    let urgent = urgent.fold(0, u64::saturating_add) as f64;
    if urgent > 0.5 * filler.used_ns as f64 && !its.iter().any(|task| task.is_real_time()) {
        return Some(format!("{name} has real-time priority"));
    }
    if let (Some((own, above)), Some((other, beside))) = (victim.weight, filler.weight)
        && above == beside
        && (own as f64) < LIGHT * other as f64
    {
        return Some(format!("the weight of {its_name} is {own} of {}", own.saturating_add(other)));
    }
    let mean =
        |all: &[&Task]| all.iter().map(|task| task.weight as f64).sum::<f64>() / all.len().max(1) as f64;
    let is_one_group = victim.group == filler.group && !victim.is_session() && !filler.is_session();
    if !is_one_group || mean(&its) >= LIGHT * mean(&others) {
        return None;
    }
    let waiting = its.iter().max_by_key(|task| task.runnable_ns)?;
    let running = others.iter().max_by_key(|task| task.exec_ns)?;
    Some(match [waiting, running].map(|task| nice(task.weight)) {
        [Some(own), Some(other)] => format!("{its_name} has nice {own}, {name} {other}"),
        _ => format!("{its_name} has less weight than {name}"),
    })
}

/// The niceness with this weight; SCHED_IDLE has a smaller weight than any niceness.
fn nice(weight: u64) -> Option<i32> {
    let nice = ((NICE_0 / weight.max(1) as f64).ln() / STEP.ln()).round() as i32;
    (-20..20).contains(&nice).then_some(nice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_told_as_its_niceness() {
        for (weight, told) in [(88_761, -20), (1024, 0), (820, 1), (335, 5), (110, 10), (15, 19)] {
            assert_eq!(nice(weight), Some(told), "{weight}");
        }
        assert_eq!(nice(3), None, "SCHED_IDLE");
    }
}
