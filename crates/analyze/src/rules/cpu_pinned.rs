//! Busy tasks were held to few CPUs by their affinity mask, while other CPUs idled or had lesser work.
//!
//! Signal: tasks that may use fewer than all CPUs, were ready and not running, while CPU time was left over or went to
//! tasks of lesser weight.
//! Lost: what they would have got with the mask lifted (`cpu_loss.rs`). Not this rule: kernel threads that belong to
//! their CPU, a mask on CPUs that are no fuller than the others, and CPUs that are all full of work of about their weight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::{Culprit, Finding, Hop, Missing, Not, Subject, SubjectKind, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu_loss::{Lift, Loss, Room, World};
use crate::names;

/// The rule.
pub const RULE: Rule = Rule {
    id: "cpu-pinned",
    question: "Were busy tasks pinned to few CPUs while others idled?",
    what: "Tasks bound to a set of CPUs (taskset, sched_setaffinity, cpuset, NUMA binding) queue for those CPUs while \
           others have nothing to do. Host averages look half idle.",
    how: "Affinity masks come from the task iterator, ready and running time from the scheduler tracepoints and the \
          kernel's own totals. Counterfactual: an ideal fair scheduler with the masks of these tasks lifted; time lost = \
          task time x (1 - CPU got / CPU it would have got), at most one CPU a task. Told only if CPU time was left over, or if \
          more of them than their CPUs can take waited there while others, due less than a third of what they are, had the rest.",
    limits: "A binding can be deliberate (cache, NUMA locality, isolation): the loss is real, the cure may cost more. \
             Memory locality is not modelled.",
    sources: "kernel/sched/core.c (set_cpus_allowed_ptr); sched(7), cpuset(7).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// With less of one CPU to be had there was nothing to gain: whoever is let out of its mask takes it from his equals.
const ROOM: f64 = 0.05;
/// A task that waits less than this share of its time is not held back.
const HELD_BACK: f64 = 0.02;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let world = World::of(ev)?;
    let mut found = Vec::new();
    for (mask, members) in bound(&world) {
        let lift = Lift { masks: members.clone(), ..Lift::default() };
        let loss = world.loss(&members, &lift);
        if loss.low.as_secs_f64() <= WORTH_IT * ev.window().as_secs_f64() {
            continue;
        }
        let room = world.room(&members, &lift);
        if enough(room.idle + room.of_lesser, ev) {
            found.push(finding(ev, &world, &mask, &members, &loss, room)?);
        }
    }
    Ok(found)
}

fn enough(room: Duration, ev: &Evidence<'_>) -> bool {
    room.as_secs_f64() >= ROOM * ev.window().as_secs_f64()
}

/// Bound user tasks that wait, by who they are and by mask.
fn bound(world: &World<'_>) -> BTreeMap<(u64, String), BTreeSet<usize>> {
    let mut groups: BTreeMap<(u64, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, task) in world.tasks().iter().enumerate() {
        let bound = !task.kthread && task.allowed_count < world.cpus() && !task.allowed.is_empty();
        if bound && task.runnable_ns as f64 > HELD_BACK * task.lived_ns as f64 {
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
    let free = match enough(room.idle, ev) {
        true => format!("{} of CPU time was left idle", seconds(room.idle)),
        false => format!("tasks of lesser weight had {} of the other CPUs", seconds(room.of_lesser)),
    };
    let busy =
        if tasks.len() == 1 { "a busy task".to_owned() } else { format!("{} busy tasks", tasks.len()) };
    let all = format!("0-{}", world.cpus().saturating_sub(1));
    Ok(Finding::cause(RULE.id, victim.clone(), loss.likely)
        .titled(format!("{busy} may use CPU {mask} only, while {free}"))
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(loss.raw)
        .by(Culprit::new(SubjectKind::Cpu, format!("cpu{mask}"), format!("affinity to CPU {mask}")))
        .hop(Hop {
            edge: "runnable".into(),
            who: format!("{busy} of {}", victim.name),
            waits_for: format!("CPU {mask}, behind others"),
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
    let evidence = match bound(&world).is_empty() {
        true => format!(
            "no bound task waited for its CPUs (all tasks: {} ready and not running)",
            seconds(waiting)
        ),
        false => "bound tasks waited, but other CPUs had no time to spare for them".to_owned(),
    };
    Ok(Some(Not { what: "an affinity mask".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Cgroup, CgroupCpu, Tables};
    use whyslow_model::{Kind, Meta, Recording};

    use super::*;

    /// `n` busy threads of /batch for 1 s on two CPUs, allowed on `mask`; each got `got_ms`.
    fn host(n: usize, mask: &str, allowed_count: u32, got_ms: u64) -> Recording {
        let batch = Cgroup {
            id: 9,
            path: "/batch".into(),
            cpu: Some(CgroupCpu { weight: 1024, ..CgroupCpu::default() }),
            ..Cgroup::default()
        };
        let task = Task {
            cpu_cgroup: 9,
            lived_ns: 1_000_000_000,
            exec_ns: got_ms * 1_000_000,
            runnable_ns: 1_000_000_000 - got_ms * 1_000_000,
            weight: 1024,
            allowed: mask.into(),
            allowed_count,
            ..Task::default()
        };
        Recording {
            meta: Meta { window_ns: 1_000_000_000, cpus: 2, ..Meta::default() },
            tables: Tables { tasks: Some(vec![task; n]), cgroups: Some(vec![batch]), ..Tables::default() },
            ..Recording::default()
        }
    }

    #[test]
    fn fires_when_sixteen_share_one_cpu_and_the_other_idles() {
        let rec = host(16, "1", 1, 62);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Cause, "/batch"));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 8.0).abs() < 0.3, "{lost}");
        assert_eq!(found[0].culprit.as_ref().unwrap().id, "cpu1");
    }

    #[test]
    fn is_quiet_when_all_cpus_are_allowed() {
        assert_eq!(check(&Evidence::of(&host(16, "0-1", 2, 125))), Ok(vec![]));
    }

    #[test]
    fn is_quiet_when_the_other_cpu_is_as_full() {
        let mut rec = host(8, "1", 1, 125);
        let other = host(8, "0", 1, 125).tables.tasks.unwrap();
        rec.tables.tasks.as_mut().unwrap().extend(other);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    /// Sixteen crowd on one CPU and two have the other: a mask lifted would shift the queue, not shorten it.
    #[test]
    fn is_quiet_when_no_cpu_idled() {
        let mut rec = host(16, "1", 1, 62);
        let other = host(2, "0", 1, 500).tables.tasks.unwrap();
        rec.tables.tasks.as_mut().unwrap().extend(other);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    /// It shares its CPU with half of a crowd, whose group weighs as much as its own; on the other CPU is the other half.
    #[test]
    fn is_quiet_about_one_task_that_would_meet_as_many_on_the_other_cpu() {
        let mut rec = host(1, "1", 1, 667);
        let crowd =
            Cgroup { id: 8, path: "/crowd".into(), ..rec.tables.cgroups.as_ref().unwrap()[0].clone() };
        rec.tables.cgroups.as_mut().unwrap().push(crowd);
        let others = host(40, "0-1", 2, 33).tables.tasks.unwrap().into_iter();
        rec.tables.tasks.as_mut().unwrap().extend(others.map(|task| Task { cpu_cgroup: 8, ..task }));
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    /// Sixteen crowd on one CPU and two at nice 19 have the other: the sixteen would have most of CPU 0 but for the mask.
    #[test]
    fn fires_when_the_other_cpu_went_to_tasks_of_lesser_weight() {
        let mut rec = host(16, "1", 1, 62);
        let other = host(2, "0", 1, 500).tables.tasks.unwrap();
        rec.tables.tasks.as_mut().unwrap().extend(other.into_iter().map(|task| Task { weight: 15, ..task }));
        let found = check(&Evidence::of(&rec)).unwrap();
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!(found.len() == 1 && (lost - 8.0).abs() < 0.3, "{lost}");
        assert!(found[0].title.contains("lesser weight had 1.0 s"), "{}", found[0].title);
    }

    #[test]
    fn is_quiet_about_pinned_tasks_that_need_little() {
        let mut rec = host(16, "1", 1, 10);
        for task in rec.tables.tasks.iter_mut().flatten() {
            (task.runnable_ns, task.sleep_ns) = (3_000_000, 987_000_000);
        }
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert!(check(&Evidence::of(&Recording::default())).is_err());
    }
}
