//! Busy tasks were held to few CPUs by their affinity mask, while other CPUs idled or had lesser work.
//!
//! Signal: tasks that may use fewer than all CPUs, were ready and not running, while CPU time was left over or went to
//! tasks of lesser weight.
//! Lost: what they would have got with the mask lifted (`cpu_loss.rs`). Not this rule: kernel threads that belong to
//! their CPU, a mask on CPUs that are no fuller than the others, CPUs that are all about as full, and waits behind one
//! that could not be preempted (`unpreempted.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::{Culprit, Finding, Hop, Missing, Not, Subject, SubjectKind, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu_loss::{LEFT_OVER, Lift, Loss, Room, World};
use crate::names;
use crate::parse::cpulist;
use crate::unpreempted;

/// The rule.
pub const RULE: Rule = Rule {
    id: "cpu-pinned",
    question: "Were busy tasks pinned to few CPUs while others idled?",
    what: "Tasks bound to a set of CPUs (taskset, sched_setaffinity, cpuset, NUMA binding) queue for those CPUs while \
           others have nothing to do. Host averages look half idle.",
    how: "Affinity masks come from the task iterator, ready and running time from the scheduler tracepoints and the \
          kernel's own totals. Counterfactual: an ideal fair scheduler with the masks of these tasks lifted; time lost = \
          task time x (1 - CPU got / CPU it would have got), at most one CPU a task. Waits behind one that could not be \
          preempted (times in which the CPU took no interrupt although one was due; a real-time task that waits for another \
          one) are not the mask's, and are taken out. Where no CPU time was left over it is told only if more of them than \
          their CPUs can take waited there, while others, due less than a third of what they are, had the rest, or a third \
          of their time was lost.",
    limits: "A binding can be deliberate (cache, NUMA locality, isolation): the loss is real, the cure may cost more. \
             Memory locality is not modelled.",
    sources: "kernel/sched/core.c (set_cpus_allowed_ptr); sched(7), cpuset(7).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// With less than `LEFT_OVER` to be had, whoever is let out of its mask takes it from his equals. That is worth a word if it would give him half as much again: a third of his time is lost. Below that, CPUs that are
/// all full are about as full as others.
const UNEVEN: f64 = 1.0 / 3.0;
/// A task that waits less than this share of its time is not held back.
const HELD_BACK: f64 = 0.02;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let world = World::of(ev)?;
    let mut found = Vec::new();
    let held_up = unpreempted::waits(ev, world.tasks());
    for (mask, members) in bound(&world, &held_up) {
        let lift = Lift { masks: members.clone(), ..Lift::default() };
        let loss = of_the_mask(&world, &members, &held_up, world.loss(&members, &lift));
        let room = world.room(&members, &lift);
        let worth_it = loss.low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
        let uneven = room.crowded && is_uneven(&loss);
        if worth_it && (enough(room.idle + room.of_lesser, ev) || uneven) {
            found.push(finding(ev, &world, &mask, &members, &loss, room)?);
        }
    }
    Ok(found)
}

/// Time of a task that it was ready and held up by somebody who could not be preempted.
type HeldUp = HashMap<u32, u64>;

/// The part of a loss that is the mask's.
fn of_the_mask(world: &World<'_>, members: &BTreeSet<usize>, held_up: &HeldUp, loss: Loss) -> Loss {
    let tasks = || members.iter().filter_map(|at| world.tasks().get(*at));
    let raw: f64 = tasks().map(|task| task.runnable_ns as f64).sum();
    let held: f64 = tasks().map(|task| held(held_up, task) as f64).sum();
    let part = if raw > 0.0 { 1.0 - (held / raw).clamp(0.0, 1.0) } else { 1.0 };
    let [likely, low, high] = [loss.likely, loss.low, loss.high].map(|lost| lost.mul_f64(part));
    Loss { likely, low, high, ..loss }
}

fn held(held_up: &HeldUp, task: &Task) -> u64 {
    held_up.get(&task.pid).copied().unwrap_or(0).min(task.runnable_ns)
}

fn enough(room: Duration, ev: &Evidence<'_>) -> bool {
    room.as_secs_f64() >= LEFT_OVER * ev.window().as_secs_f64()
}

/// Even the least that they may have lost: on CPUs that are all full the guess is the finding.
fn is_uneven(loss: &Loss) -> bool {
    loss.tasks > 0 && loss.low.as_secs_f64() >= UNEVEN * loss.lived.as_secs_f64()
}

/// Bound user tasks that wait, by who they are and by mask.
fn bound(world: &World<'_>, held_up: &HeldUp) -> BTreeMap<(u64, String), BTreeSet<usize>> {
    let mut groups: BTreeMap<(u64, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, task) in world.tasks().iter().enumerate() {
        let bound = !task.kthread && task.allowed_count < world.cpus() && !task.allowed.is_empty();
        let waited = task.runnable_ns.saturating_sub(held(held_up, task));
        if bound && waited as f64 > HELD_BACK * task.lived_ns as f64 {
            groups.entry((task.cpu_cgroup, task.allowed.clone())).or_default().insert(at);
        }
    }
    groups
}

fn finding(
    ev: &Evidence<'_>,
    world: &World<'_>,
    (group, mask): &(u64, String),
    members: &BTreeSet<usize>,
    loss: &Loss,
    room: Room,
) -> Result<Finding, Missing> {
    let tasks: Vec<&Task> = members.iter().map(|at| &world.tasks()[*at]).collect();
    let victim = victim(ev, *group, &tasks)?;
    let pid = tasks.iter().map(|t| t.pid).min().unwrap_or_default();
    let free = match [room.idle, room.of_lesser].map(|time| enough(time, ev)) {
        [true, _] => format!("{} of CPU time was left idle", seconds(room.idle)),
        [_, true] => format!("tasks of lesser weight had {} of the other CPUs", seconds(room.of_lesser)),
        _ => "fewer shared each of the others".to_owned(),
    };
    let busy =
        if tasks.len() == 1 { "a busy task".to_owned() } else { format!("{} busy tasks", tasks.len()) };
    let all = format!("0-{}", world.cpus().saturating_sub(1));
    let place = place(ev, mask);
    Ok(Finding::cause(RULE.id, victim.clone(), loss.likely)
        .titled(format!("{busy} may use {place} only, while {free}"))
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(loss.raw)
        .by(Culprit::new(SubjectKind::Cpu, format!("cpu{mask}"), format!("affinity to {place}")))
        .hop(Hop {
            edge: "runnable".into(),
            who: format!("{busy} of {}", victim.name),
            waits_for: format!("{place}, behind others"),
            state: "runnable".into(),
            lost: loss.likely,
            worst: Some(loss.worst),
            count: Some(loss.waits),
            per_call: None,
            grows_with: None,
        })
        .check("the mask of one of the tasks", format!("taskset -cp {pid}"))
        .fix(
            format!("let them use all CPUs, if the binding is not deliberate (undo: taskset -acp {mask} PID; or the cpuset's cpus)"),
            format!("taskset -acp {all} {}", tasks.iter().map(|t| t.tgid).min().unwrap_or_default()),
        ))
}

/// The CPUs of a mask, and the NUMA node if they are all of one.
fn place(ev: &Evidence<'_>, mask: &str) -> String {
    let cpus = cpulist::parse(mask).ok();
    let nodes = ev.nodes().unwrap_or_default();
    match nodes.iter().find(|(_, of_node)| nodes.len() > 1 && Some(of_node) == cpus.as_ref()) {
        Some((node, _)) => format!("CPU {mask} (all of NUMA node {node})"),
        None => format!("CPU {mask}"),
    }
}

/// The cgroup, or in the root cgroup the process or processes.
fn victim(ev: &Evidence<'_>, group: u64, tasks: &[&Task]) -> Result<Subject, Missing> {
    if let Some(cgroup) = ev.cgroups()?.iter().find(|c| c.id == group && c.path != "/") {
        return Ok(names::cgroup_subject(cgroup));
    }
    let processes: BTreeSet<u32> = tasks.iter().map(|t| t.tgid).collect();
    let (first, comm) =
        (processes.first().copied().unwrap_or_default(), tasks.first().map_or("", |t| t.comm.as_str()));
    let name = match processes.len() {
        1 => comm.to_owned(),
        n => format!("{comm} and others ({n} processes)"),
    };
    Ok(Subject::new(SubjectKind::Task, first.to_string(), name))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<Not>, Missing> {
    let world = World::of(ev)?;
    let waiting: Duration = world.tasks().iter().map(|t| Duration::from_nanos(t.runnable_ns)).sum();
    let held_up = unpreempted::waits(ev, world.tasks());
    let evidence = match bound(&world, &held_up).is_empty() {
        true => format!(
            "no bound task waited for its CPUs (all tasks: {} ready and not running)",
            seconds(waiting)
        ),
        false => "bound tasks waited, but the other CPUs were about as full as theirs".to_owned(),
    };
    Ok(Some(Not { what: "an affinity mask".into(), evidence }))
}

#[cfg(test)]
#[path = "cpu_pinned_tests.rs"]
mod tests;
