//! The affinity mask of busy tasks allowed only few CPUs, while other CPUs were idle or ran tasks of lesser weight.
//!
//! Signal: tasks that may use fewer than all CPUs and were ready and not running, while CPU time was left over or went to
//! tasks of lesser weight.
//! Lost: what the tasks would have got with the mask lifted (`cpu_loss.rs`).
//! Idle time counts only on CPUs outside the mask, and not on CPUs that are reserved (isolcpus, nohz_full, partitions of cpusets,
//! exclusive CPUs of the kubelet): a mask that leaves out only such CPUs is no binding. A wait counts as far as all CPUs of the mask were
//! busy with other tasks. A task that waits for a CPU only to spin there loses nothing. CPU time that whyslow itself used there is
//! taken out, and so are waits behind a task that could not be preempted: times in which the CPU took no interrupt although one was due, and a
//! real-time task that waits for another one.
//! If no CPU time was left over, the rule reports only if more tasks are bound there than the mask has CPUs, while other tasks,
//! due less than a third of what these are due, had the rest, or a third of their time was lost.
//! Not this rule: kernel threads that belong to their CPU, a mask on CPUs that are no fuller than the others, CPUs that are all about
//! equally full, and waits behind a task that could not be preempted (`unpreempted.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu::allowed::Cpus;
use crate::cpu::loss::{FairShareModel, LEFT_OVER, Lift, Loss, Room};
use crate::hashing::Table;
use crate::names;
use crate::parse::cpulist;

pub const RULE: Rule = Rule {
    id: "cpu-pinned",
    question: "Were busy tasks bound to few CPUs while other CPUs were idle?",
    what: "Tasks that are bound to a set of CPUs (taskset, sched_setaffinity, cpuset, NUMA binding) queue for those CPUs while \
           other CPUs are idle. Averages over the host look half idle.",
    how: "Affinity masks come from the task iterator, ready and running time from the scheduler tracepoints and the \
          kernel's own totals. Counterfactual: an ideal fair scheduler with the masks of these tasks lifted; time lost = \
          task time x (1 - CPU got / CPU it would have got), at most one CPU for each task, above 5 % of the window. Reported if the \
          other CPUs were idle; else only if more tasks are bound there than the mask has CPUs, and the other CPUs ran tasks that are \
          due less than a third of what these are due, or these lost a third of their time.",
    limits: "Deliberate bindings (cache, NUMA locality, isolation): the loss is real, but the fix may cost more. \
             Memory locality: not modelled. Reserved CPUs (isolcpus, nohz_full, partitions of cpusets, exclusive CPUs of the \
             kubelet): their idle time does not count. Waits behind a task that could not be preempted, and waits for a CPU only to \
             spin on it: not counted. Rows of runs on CPUs that were dropped for want of room: only the time that the \
             other CPUs must have been idle during the waits counts. With a sched_ext scheduler: it cannot tell.",
    sources: "kernel/sched/core.c (set_cpus_allowed_ptr); sched(7), cpuset(7).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.05;
/// If less than `LEFT_OVER` of CPU time is free, a task without its mask takes CPU time from its equals. That is reported if the task
/// would get half as much again: then a third of its time is lost. Below that, all CPUs count as equally full.
const UNEVEN: f64 = 1.0 / 3.0;
/// A thread that spins for more of its CPU time than this has no other work.
const SPINS: f64 = 0.5;
/// Why it may not be known which tasks ran on the other CPUs meanwhile.
const LET_GO: &str =
    "there were more runs on CPUs than there was room for, and the shorter ones were dropped";
/// Groups of tasks that are examined: those that waited longest. More findings would not be read.
const MOST_GROUPS: usize = 64;
/// A real-time task with this part of a CPU leaves others next to nothing, mask or not.
const RULES_A_CPU: f64 = 0.8;
/// A task that waits less than this share of its time is not held back.
const HELD_BACK: f64 = 0.02;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let fair = ev.counterfactual()?;
    let (mut found, mut unclear) = (Vec::new(), None);
    let held_up = ev.unpreempted();
    let mut elsewhere = None;
    for (key, members) in groups(ev, fair, held_up).into_iter().take(MOST_GROUPS) {
        let judged = judged(ev, fair, held_up, &members, &mut elsewhere);
        let Judged { loss, reported, room, is_free } = judged;
        if worth_it(ev, loss.low) && is_free {
            found.push(finding(ev, fair, key, &members, &loss, room)?);
        } else if worth_it(ev, reported.low) && is_free {
            unclear = Some(Missing::unclear("whether other CPUs were free while bound tasks waited", LET_GO));
        }
    }
    match unclear {
        Some(why) if found.is_empty() => return Err(why),
        Some(why) => found.push(Finding::cannot_tell(RULE.id, why)),
        None => {}
    }
    Ok(found)
}

/// Cgroup and mask (`Allowed::masks`), and the tasks.
type Group = ((u64, usize), BTreeSet<usize>);

fn worth_it(ev: &Evidence<'_>, lost: Duration) -> bool {
    lost.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64()
}

/// Groups of bound tasks that waited for long: the longest wait first.
fn groups(ev: &Evidence<'_>, fair: &FairShareModel<'_>, held_up: &HeldUp) -> Vec<Group> {
    let mut groups: Vec<Group> = bound(fair, held_up).into_iter().collect();
    // A task does not lose more than it waited.
    let waited = |members: &BTreeSet<usize>| {
        members.iter().map(|at| for_others(fair, held_up, *at)).fold(0, u64::saturating_add)
    };
    groups.retain(|(_, members)| worth_it(ev, Duration::from_nanos(waited(members))));
    groups.sort_by_key(|(key, members)| (std::cmp::Reverse(waited(members)), *key));
    groups
}

/// What the tasks of a mask lose to it.
struct Judged {
    loss: Loss,
    /// The loss as far as the rows of runs on CPUs tell.
    reported: Loss,
    room: Room,
    /// Other CPUs were free, or far less full.
    is_free: bool,
}

fn judged(
    ev: &Evidence<'_>,
    fair: &FairShareModel<'_>,
    held_up: &HeldUp,
    members: &BTreeSet<usize>,
    elsewhere: &mut Option<Elsewhere>,
) -> Judged {
    let lift = Lift { masks: members.clone(), ..Lift::default() };
    let loss = of_the_mask(fair, members, held_up, fair.loss(members, &lift));
    if !worth_it(ev, loss.high) {
        return Judged { loss, reported: loss, room: Room::default(), is_free: false };
    }
    let room = fair.room(members, &lift);
    let uneven = room.crowded && is_uneven(&loss);
    let (loss, reported) = match enough(room.idle, ev) && !enough(room.of_lesser, ev) && !uneven {
        true => {
            let elsewhere = elsewhere.get_or_insert_with(|| Elsewhere::of(ev));
            let part = elsewhere.part_with_room(fair, members, room.idle);
            let reported = loss.part(part.reported);
            (Loss { high: reported.high, ..loss.part(part.least) }, reported)
        }
        false => (loss, loss),
    };
    let is_free = enough(room.idle + room.of_lesser, ev) || uneven;
    Judged { loss, reported, room, is_free }
}

/// The time that each task was ready behind a task that could not be preempted.
type HeldUp = Table<u32, u64>;

/// The part of a loss that the mask caused. Time that the tasks may have waited for whyslow itself counts only in the upper bound.
fn of_the_mask(fair: &FairShareModel<'_>, members: &BTreeSet<usize>, held_up: &HeldUp, loss: Loss) -> Loss {
    let raw: f64 =
        members.iter().filter_map(|at| fair.tasks().get(*at)).map(|task| task.runnable_ns as f64).sum();
    let own = fair.behind_own(members);
    let part = |own: u64| {
        let waited = |at: &usize| for_others(fair, held_up, *at).saturating_sub(own) as f64;
        let waited: f64 = members.iter().map(waited).sum();
        loss.part(if raw > 0.0 { waited / raw } else { 1.0 })
    };
    Loss { high: part(0).high, ..part(own) }
}

/// The time that a task was ready because its CPUs ran other tasks that could be preempted.
fn for_others(fair: &FairShareModel<'_>, held_up: &HeldUp, at: usize) -> u64 {
    let Some(task) = fair.tasks().get(at) else { return 0 };
    let held = held_up.get(&task.pid).copied().unwrap_or(0);
    task.runnable_ns.saturating_sub(held).min(fair.behind_others(at))
}

fn enough(room: Duration, ev: &Evidence<'_>) -> bool {
    room.as_secs_f64() >= LEFT_OVER * ev.window().as_secs_f64()
}

/// By the lower bound of the loss: if all CPUs are full, there is no other evidence than this estimate.
fn is_uneven(loss: &Loss) -> bool {
    loss.tasks > 0 && loss.low.as_secs_f64() >= UNEVEN * loss.lived.as_secs_f64()
}

/// Bound user tasks that wait, by cgroup and by mask. A task that waits only to spin loses nothing.
fn bound(fair: &FairShareModel<'_>, held_up: &HeldUp) -> BTreeMap<(u64, usize), BTreeSet<usize>> {
    let mut groups: BTreeMap<(u64, usize), BTreeSet<usize>> = BTreeMap::new();
    // Threads of whyslow are no victims: the thread that measures CPUs moves from one CPU to the next by its mask.
    let others = fair.tasks().iter().enumerate().filter(|(at, task)| !task.kthread && !fair.is_own(*at));
    for (at, task) in others {
        let Some(mask) = fair.allowed().number(at).filter(|_| fair.allowed().is_bound(at)) else {
            continue;
        };
        let spins = fair.spun().of_task(task.pid).1 >= SPINS;
        if !spins && for_others(fair, held_up, at) as f64 > HELD_BACK * task.lived_ns as f64 {
            groups.entry((task.cpu_cgroup, mask)).or_default().insert(at);
        }
    }
    groups
}

fn finding(
    ev: &Evidence<'_>,
    fair: &FairShareModel<'_>,
    (group, mask): (u64, usize),
    members: &BTreeSet<usize>,
    loss: &Loss,
    room: Room,
) -> Result<Finding, Missing> {
    let tasks: Vec<&Task> = members.iter().filter_map(|at| fair.tasks().get(*at)).collect();
    let victim = victim(ev, fair, group, members)?;
    let most = tasks.iter().max_by_key(|task| (task.runnable_ns, std::cmp::Reverse(task.pid)));
    let (pid, tgid) = most.map_or((0, 0), |task| (task.pid, task.tgid));
    let cpus = fair.allowed().masks().get(mask).cloned().unwrap_or_default();
    let mask = &cpus.list();
    let free = match [room.idle, room.of_lesser].map(|time| enough(time, ev)) {
        [true, _] => format!("{} of CPU time was left idle", seconds(room.idle)),
        [_, true] => format!("tasks of lesser weight had {} on the other CPUs", seconds(room.of_lesser)),
        _ => "fewer tasks shared each of the other CPUs".to_owned(),
    };
    let busy =
        if tasks.len() == 1 { "a busy task".to_owned() } else { format!("{} busy tasks", tasks.len()) };
    let place = place(ev, mask);
    let behind = match had(ev, fair, &cpus) {
        Some(who) => format!("{place}, which {} had", who.name),
        None => format!("{place}, behind other tasks"),
    };
    let first = urgent(fair, &cpus, members, ev);
    let found = Finding::cause(RULE.id, victim.clone(), loss.likely);
    let found = match first {
        Some(task) => {
            before_all(ev, found, task, &format!("{busy} may use {place} only, while {free}"), &place)
        }
        None => found.titled(format!("{busy} may use {place} only, while {free}")).by(Culprit::new(
            SubjectKind::Cpu,
            format!("cpu{mask}"),
            format!("affinity to {place}"),
        )),
    };
    Ok(found
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(loss.raw)
        .hop(Hop::new(Reason::Runnable, who(fair, members, &busy, &victim), behind, TaskState::Runnable, loss.likely).times(loss.waits, loss.worst))
        .check("the affinity mask of one of the tasks", command!("taskset -cp {}", pid))
        .fix(
            format!(
                "let the tasks use all CPUs (costs locality), if the binding is not deliberate; if a cpuset binds them, change its cpus (undo: {})",
                &*command!("taskset -acp {} {}", mask, tgid)
            ),
            command!("taskset -acp {} {}", fair.allowed().common().list(), tgid),
        ))
}

/// A real-time task that had nearly all the time of these CPUs, and is not one of the waiting tasks: these get the time that it leaves.
fn urgent<'f>(
    fair: &'f FairShareModel<'_>,
    cpus: &Cpus,
    members: &BTreeSet<usize>,
    ev: &Evidence<'_>,
) -> Option<&'f Task> {
    let within = |at: usize| fair.allowed().mask(at).is_some_and(|mask| mask.are_in(cpus));
    let all = fair.tasks().iter().enumerate();
    let others =
        all.filter(|(at, task)| task.is_real_time() && !task.kthread && within(*at) && !members.contains(at));
    let first =
        others.map(|(_, task)| task).max_by_key(|task| (task.exec_ns, std::cmp::Reverse(task.pid)))?;
    let time = ev.window().as_nanos() as f64 * f64::from(cpus.count());
    (first.exec_ns as f64 >= RULES_A_CPU * time).then_some(first)
}

/// The real-time task runs before all others on its CPUs: it is the culprit, reported with the mask that keeps the others there.
fn before_all(ev: &Evidence<'_>, found: Finding, task: &Task, bound: &str, place: &str) -> Finding {
    let name = ev.called(task.pid, &task.comm);
    let had = seconds(Duration::from_nanos(task.exec_ns));
    found
        .titled(format!("{name}, a real-time task, had {place} for {had}; {bound}"))
        .by(Culprit::new(SubjectKind::Task, task.pid.to_string(), name.clone()))
        .advice(format!(
            "run {name} without a real-time policy (chrt -o -p 0 {}), which may delay it, or give it a CPU of its own",
            task.pid
        ))
}

/// The processes that wait, and their cgroup.
fn who(fair: &FairShareModel<'_>, members: &BTreeSet<usize>, busy: &str, victim: &Subject) -> String {
    match waiting(fair, members).filter(|_| victim.kind == SubjectKind::Cgroup) {
        Some(processes) => format!("{}, {busy} of {}", processes.name, victim.name),
        None => format!("{busy} of {}", victim.name),
    }
}

/// The members that waited, by process.
fn waiting(fair: &FairShareModel<'_>, members: &BTreeSet<usize>) -> Option<Subject> {
    let waited = |at: &usize| Some((*at, fair.tasks().get(*at)?.runnable_ns));
    names::processes(fair.tasks(), members.iter().filter_map(waited))
}

/// The CPUs of a mask, and the NUMA node if they are exactly the CPUs of one node.
fn place(ev: &Evidence<'_>, mask: &str) -> String {
    let cpus = cpulist::parse(mask).ok();
    let nodes = ev.nodes().unwrap_or_default();
    match nodes.iter().find(|(_, of_node)| nodes.len() > 1 && Some(of_node) == cpus.as_ref()) {
        Some((node, _)) => format!("CPU {mask} (all of NUMA node {node})"),
        None => format!("CPU {mask}"),
    }
}

/// The cgroup; in the root cgroup the process or processes, the longest wait first.
fn victim(
    ev: &Evidence<'_>,
    fair: &FairShareModel<'_>,
    group: u64,
    members: &BTreeSet<usize>,
) -> Result<Subject, Missing> {
    ev.cgroups()?;
    if let Some(cgroup) = ev.cgroup(group).filter(|c| c.path != "/") {
        return Ok(ev.names().cgroup(cgroup));
    }
    Ok(waiting(fair, members).unwrap_or_else(Subject::host))
}

/// The tasks that ran on these CPUs and may use no others.
fn had(ev: &Evidence<'_>, fair: &FairShareModel<'_>, cpus: &Cpus) -> Option<Subject> {
    let within = |at: &usize| fair.allowed().mask(*at).is_some_and(|mask| mask.are_in(cpus));
    let all = fair.tasks().iter().enumerate().map(|(at, task)| (at, task.exec_ns));
    names::culprits(ev, fair.tasks(), all.filter(|(at, ns)| *ns > 0 && within(at)))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let fair = ev.counterfactual()?;
    let waiting: Duration = fair.tasks().iter().map(|t| Duration::from_nanos(t.runnable_ns)).sum();
    let held_up = ev.unpreempted();
    let groups = groups(ev, fair, held_up);
    let mut elsewhere = None;
    // The tasks' sleeps may or may not have absorbed their waits.
    let mut may_have_lost = |members: &BTreeSet<usize>| {
        let judged = judged(ev, fair, held_up, members, &mut elsewhere);
        judged.is_free && worth_it(ev, judged.loss.high)
    };
    if groups.len() > MOST_GROUPS || groups.iter().any(|(_, members)| may_have_lost(members)) {
        return Ok(None);
    }
    let evidence = match bound(fair, held_up).is_empty() {
        true => format!(
            "no bound task waited for its CPUs (all tasks: {} ready and not running)",
            seconds(waiting)
        ),
        false => "bound tasks waited, but the other CPUs were about as full as their own".to_owned(),
    };
    Ok(Some(RuledOut { what: "an affinity mask".into(), evidence }))
}

mod elsewhere;
use elsewhere::Elsewhere;
#[cfg(test)]
mod spinners_tests;
#[cfg(test)]
#[path = "cpu_pinned_tests.rs"]
mod tests;
