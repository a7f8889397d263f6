//! A tracer stops a task at its system calls: strace, a debugger, a sandbox.
//!
//! Signal: time in which a task was stopped for its tracer (stacks of waits). Lost: that time, the CPU time on the way into the stops and
//! out of them, and the stops' share of the time that the task was ready after a sleep, less what the task's other sleeps absorb. Not this
//! rule: tasks that wait for a task which its tracer has stopped (`held-up`).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command, seconds};

use super::Rule;
use super::homes::Homes;
use super::one_end::{Waits, lost};
use crate::Evidence;
use crate::MAX_DEPTH;
use crate::names;
use crate::stacks::symbol;

pub const RULE: Rule = Rule {
    id: "traced",
    question: "Does a tracer stop tasks at their system calls?",
    what: "strace, ltrace, a debugger or a sandbox has attached to a process with ptrace(2). At each traced system call, signal or breakpoint \
           the kernel stops the process and wakes the tracer, until the tracer lets it continue: two context switches for each stop, and the \
           tracer's own time. A program that makes many system calls becomes some tens or hundreds of times slower.",
    how: "The kernel's own list says which task has a tracer. Counterfactual: no tracer. Time lost = the time in stops, the CPU time to get into \
          them and out, and the wait for a CPU after them, less what the task's other sleeps absorb; from 5 % of its time and 1 % of the \
          window on.",
    limits: "A program that its tracer has started itself: a risk only, because the tracing is intended. Cold caches after a context switch: not \
             counted. A tracer that has detached before the window ends: not reported. Short-lived tasks that are summed up: their tracer is \
             known only where all had the same one.",
    sources: "ptrace(2); kernel/signal.c (ptrace_stop).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Where a traced task is stopped. kernel/signal.c.
const STOP: &str = "ptrace_stop";
/// Functions in which the kernel works for a tracer on the tracee's CPU time: kernel/signal.c, kernel/entry/common.c,
/// include/linux/entry-common.h.
const TRACING: [&str; 8] = [
    STOP,
    "ptrace_notify",
    "ptrace_do_notify",
    "ptrace_report_syscall",
    "syscall_trace_enter",
    "syscall_exit_work",
    "syscall_exit_to_user_mode_work",
    "ptracer_stop",
];

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let tasks = ev.tasks()?;
    let traced: Vec<&Task> = tasks.iter().filter(|task| task.tracer != 0).collect();
    if traced.is_empty() {
        return Ok(Vec::new());
    }
    let mut stopped = Waits::new();
    for wait in ev.waits()?.iter().filter(|wait| wait.kernel.iter().any(|frame| symbol(frame) == STOP)) {
        let time = stopped.entry(wait.pid).or_default();
        *time = time.saturating_add(Duration::from_nanos(wait.ns));
    }
    let mut worked = Waits::new();
    let is_tracing = |frame: &String| TRACING.contains(&symbol(frame));
    for sample in ev.samples()?.iter().filter(|sample| sample.kernel.iter().any(is_tracing)) {
        let time = worked.entry(sample.pid).or_default();
        *time = time.saturating_add(Duration::from_nanos(sample.ns));
    }
    let mut by_tracer: BTreeMap<u32, Vec<&Task>> = BTreeMap::new();
    for task in traced
        .into_iter()
        .filter(|task| stopped.contains_key(&task.pid) && !ev.is_own(task.tracer, task.tracer))
    {
        by_tracer.entry(task.tracer).or_default().push(task);
    }
    let homes = Homes::of(ev, tasks);
    let cost: Waits =
        by_tracer.values().flatten().map(|task| (task.pid, cost(task, &stopped, &worked))).collect();
    let found = by_tracer.iter();
    let found =
        found.filter_map(|(tracer, victims)| finding(ev, &homes, *tracer, victims, [&stopped, &cost]));
    Ok(found.collect())
}

/// The cost of a task's stops: the time in them, the CPU time on the way into them and out, and their share of the time that the task was
/// ready after a sleep.
fn cost(task: &Task, stopped: &Waits, worked: &Waits) -> Duration {
    let of = |times: &Waits| times.get(&task.pid).copied().unwrap_or_default();
    let slept = Duration::from_nanos(task.sleep_ns).max(Duration::from_nanos(1));
    let part = (of(stopped).as_secs_f64() / slept.as_secs_f64()).min(1.0);
    let ready = Duration::from_nanos(task.runnable_ns).mul_f64(part);
    let all = of(stopped).saturating_add(of(worked)).saturating_add(ready);
    all.min(Duration::from_nanos(task.lived_ns))
}

/// Whether the tracer has started this task: it is the parent of the topmost tracee above the task.
fn was_started(ev: &Evidence<'_>, task: &Task) -> bool {
    let up = |task: &&Task| {
        ev.task(task.ppid).filter(|parent| parent.tracer == task.tracer && parent.pid != task.pid)
    };
    let above = std::iter::successors(Some(task), |task| up(task)).take(MAX_DEPTH);
    above.last().is_some_and(|first| first.ppid == first.tracer)
}

fn finding(
    ev: &Evidence<'_>,
    homes: &Homes,
    tracer: u32,
    victims: &[&Task],
    [stopped, cost]: [&Waits; 2],
) -> Option<Finding> {
    let loss = lost(ev, victims, Reason::Traced, cost, 1.0);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let time: Duration = victims.iter().filter_map(|task| stopped.get(&task.pid)).sum();
    let name = ev.process_name(tracer, ev.task(tracer).map_or("a tracer", |task| task.comm.as_str()));
    let victim = homes.payer(ev, victims, None);
    let who = names::tasks_of(victims.len() as u64, &victim.name);
    let title = format!("{name} traces it (ptrace), and stopped it for {}", seconds(time));
    // One victim that the tracer has started makes it a risk: daemons among the others may have another parent by now.
    let finding = match victims.iter().any(|task| was_started(ev, task)) {
        true => Finding::risk(RULE.id, victim),
        false => {
            Finding::cause(RULE.id, victim, loss.likely).share_of(loss.lived).between(loss.low, loss.high)
        }
    };
    let first = victims.first()?.pid;
    Some(
        finding
            .titled(title)
            .raw_wait(time)
            .by(Culprit::new(SubjectKind::Task, tracer.to_string(), name.clone()))
            .hop(Hop::new(Reason::Traced, who, format!("{name}, its tracer"), TaskState::Sleeping, time))
            .check("the pid of its tracer", command!("grep TracerPid /proc/{}/status", first))
            .advice(format!(
                "let {name} detach: it detaches when it is interrupted (kill -INT {tracer}); this costs its trace or session"
            )),
    )
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Tables, Wait};
    use whyslow_model::{Kind, Meta, Recording};

    use super::*;

    const MS: u64 = 1_000_000;

    fn task(pid: u32, comm: &str) -> Task {
        Task { pid, tgid: pid, ppid: 1, comm: comm.into(), lived_ns: 1000 * MS, ..Task::default() }
    }

    /// Task 9 traces task 7, which was stopped for `ms` of 1 s.
    fn host(ms: u64) -> Recording {
        let victim = Task { tracer: 9, exec_ns: (1000 - ms) * MS, sleep_ns: ms * MS, ..task(7, "db") };
        let wait = |frames: &[&str], ms: u64| Wait {
            pid: 7,
            state: "sleep".into(),
            ns: ms * MS,
            kernel: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            ..Wait::default()
        };
        let waits = vec![wait(&["schedule", "ptrace_stop+0x1d3", "syscall_trace_enter"], ms)];
        let tables = Tables {
            tasks: Some(vec![victim, task(9, "strace")]),
            waits: Some(waits),
            spans: Some(Vec::new()),
            samples: Some(Vec::new()),
            ..Tables::default()
        };
        let meta = Meta { window_ns: 1000 * MS, cpus: 2, ..Meta::default() };
        Recording { meta, tables, ..Recording::default() }
    }

    fn found(rec: &Recording) -> Vec<Finding> {
        check(&Evidence::of(rec)).unwrap()
    }

    #[test]
    fn fires_when_a_tracer_has_attached() {
        let found = found(&host(800));
        assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
        assert_eq!((found[0].culprit.as_ref().unwrap().id.as_str(), found[0].victim.id.as_str()), ("9", "7"));
        assert_eq!(found[0].lost, Some(Duration::from_millis(800)));
    }

    #[test]
    fn cpu_time_for_the_tracer_and_the_way_back_to_a_cpu_are_its_too() {
        let mut rec = host(800);
        rec.tables.tasks.as_mut().unwrap()[0].runnable_ns = 50 * MS;
        let sample = |frame: &str, ms: u64| whyslow_model::table::Sample {
            pid: 7,
            ns: ms * MS,
            kernel: vec!["schedule".into(), frame.into()],
            ..whyslow_model::table::Sample::default()
        };
        rec.tables.samples = Some(vec![sample("ptrace_notify", 100), sample("vfs_read", 50)]);
        assert_eq!(found(&rec)[0].lost, Some(Duration::from_millis(950)));
    }

    #[test]
    fn of_what_the_tracer_has_started_it_is_a_risk() {
        let mut rec = host(800);
        let tasks = rec.tables.tasks.as_mut().unwrap();
        tasks[0].ppid = 9;
        assert_eq!(found(&rec)[0].kind, Kind::Risk);
        let tasks = rec.tables.tasks.as_mut().unwrap();
        tasks[0].ppid = 8;
        tasks.push(Task { tracer: 9, ppid: 9, ..task(8, "sh") });
        assert_eq!(found(&rec)[0].kind, Kind::Risk, "a child of a task that the tracer has started");
        rec.tables.tasks.as_mut().unwrap()[2].ppid = 1;
        assert_eq!(found(&rec)[0].kind, Kind::Cause);
        let daemon = Task { sleep_ns: 900 * MS, ..rec.tables.tasks.as_ref().unwrap()[0].clone() };
        let tasks = rec.tables.tasks.as_mut().unwrap();
        tasks.push(Task { pid: 8, tgid: 8, ppid: 9, ..daemon.clone() });
        let stop = Wait { pid: 8, ..rec.tables.waits.as_ref().unwrap()[0].clone() };
        rec.tables.waits.as_mut().unwrap().push(stop);
        tasks.retain(|task| task.pid != 8 || task.ppid == 9);
        assert_eq!(found(&rec)[0].kind, Kind::Risk, "a daemon that has left its parent");
    }

    #[test]
    fn is_quiet_where_nobody_traces_or_hardly_stops() {
        assert_eq!(found(&host(20)), Vec::new());
        let mut rec = host(800);
        rec.tables.tasks.as_mut().unwrap()[0].tracer = 0;
        assert_eq!(found(&rec), Vec::new());
    }

    #[test]
    fn tasks_that_are_each_others_parents_end() {
        let mut rec = host(800);
        let tasks = rec.tables.tasks.as_mut().unwrap();
        (tasks[0].ppid, tasks[1].ppid) = (9, 7);
        tasks[1].tracer = 9;
        assert_eq!(found(&rec).len(), 1);
    }

    #[test]
    fn cannot_tell_without_stacks_of_waits() {
        let mut rec = host(800);
        rec.tables.waits = None;
        assert!(check(&Evidence::of(&rec)).is_err());
    }
}
