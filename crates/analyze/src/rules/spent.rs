//! Time that processes spent on one sort of work, and what they lost.

mod rests;
pub(super) mod works;

use std::collections::BTreeMap;
use std::iter::Sum;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Finding, Hop, Subject, SubjectKind, seconds};

use super::homes::of_one_name;
use crate::Evidence;
use crate::cpu::spread::{self, Loss};
use crate::names;

/// A victim lost more than this part of its own time: many tasks that lost a little lost little.
const FELT: f64 = 0.15;

/// What one sort of work cost a thread.
#[derive(Default, Clone, Copy)]
pub(super) struct Time {
    pub on_cpu: Duration,
    pub waited: Duration,
}

impl Time {
    pub fn all(self) -> Duration {
        self.on_cpu.saturating_add(self.waited)
    }

    /// "5.4 s of its CPU time and 1.2 s of waits".
    pub fn words(self) -> String {
        let on_cpu = format!("{} of its CPU time", seconds(self.on_cpu));
        let waited = format!("{} of waits", seconds(self.waited));
        match (self.on_cpu.is_zero(), self.waited < self.on_cpu / 20) {
            (false, true) => on_cpu,
            (false, false) => format!("{on_cpu} and {waited}"),
            (true, _) => waited,
        }
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(all: I) -> Time {
        let add = |sum: Time, one: Time| Time {
            on_cpu: sum.on_cpu.saturating_add(one.on_cpu),
            waited: sum.waited.saturating_add(one.waited),
        };
        all.fold(Time::default(), add)
    }
}

/// What one sort of work cost the threads of one name.
#[derive(Default)]
pub(super) struct Spent {
    pub by_thread: BTreeMap<u32, Time>,
    /// The functions in which the threads were sampled, and their time.
    functions: BTreeMap<&'static str, Duration>,
}

impl Spent {
    pub fn add(&mut self, pid: u32, function: &'static str, time: Time) {
        let sum = self.by_thread.entry(pid).or_default();
        *sum = [*sum, time].into_iter().sum();
        let sum = self.functions.entry(function).or_default();
        *sum = sum.saturating_add(time.all());
    }

    fn of(&self, pid: u32) -> Time {
        self.by_thread.get(&pid).copied().unwrap_or_default()
    }

    pub fn function(&self) -> &'static str {
        self.functions.iter().max_by_key(|(_, time)| **time).map_or("", |(function, _)| function)
    }

    /// The victims and their loss; `None`: no task lost a noticeable time.
    pub fn felt(&self, ev: &Evidence<'_>) -> Option<Felt> {
        let victims: Vec<&Task> = self.by_thread.keys().filter_map(|pid| ev.task(*pid)).collect();
        let mut victims: Vec<&Task> = victims.into_iter().filter(|task| !task.kthread).collect();
        let of = |task: &Task| self.of(task.pid).all();
        victims.retain(|task| of(task).as_nanos() as f64 > FELT * task.lived_ns as f64);
        victims.sort_by_key(|task| std::cmp::Reverse(of(task)));
        let weight = |task: &Task| u64::try_from(of(task).as_nanos()).unwrap_or(u64::MAX);
        let time: Time = victims.iter().map(|task| self.of(task.pid)).sum();
        let rested = rests::of(ev, &victims);
        let loss = spread::lost(&rested.iter().collect::<Vec<_>>(), weight, time.all().as_nanos() as f64);
        if !loss.is_felt(ev.window()) {
            return None;
        }
        let victim = victim(ev, &victims);
        let first = victims.first()?.tgid;
        let pid = victim.id.parse().unwrap_or(first);
        // The name of the victim says already that there are several processes.
        let who = match victims.iter().all(|task| task.tgid == first) {
            true => names::tasks_of(victims.len() as u64, &victim.name),
            false => victim.name.clone(),
        };
        Some(Felt { victim, who, pid, time, loss })
    }
}

/// What such work cost.
pub(super) struct Felt {
    victim: Subject,
    who: String,
    loss: Loss,
    /// The pid of the victim, or of the first of them.
    pub pid: u32,
    pub time: Time,
}

impl Felt {
    pub fn cause(&self, rule: &str) -> Finding {
        Finding::cause(rule, self.victim.clone(), self.loss.likely)
            .share_of(self.loss.lived)
            .between(self.loss.low, self.loss.high)
            .raw_wait(self.time.all())
    }

    /// The chain: the victims ran, doing `what`.
    pub fn hop(self, what: String) -> Hop {
        Hop::new(Reason::Running, self.who, what, TaskState::Running, self.loss.likely)
    }
}

/// The name under which a process is summed up: that of the children that one parent starts by the dozen, or its own name.
pub(super) fn name(ev: &Evidence<'_>, tgid: u32, comm: &str) -> String {
    match ev.broods().of_child(tgid) {
        Some(brood) => brood.together(),
        None => ev.process_name(tgid, comm),
    }
}

/// A process, several processes of one name, or the children that one parent starts by the dozen.
fn victim(ev: &Evidence<'_>, victims: &[&Task]) -> Subject {
    let Some(first) = victims.first() else { return Subject::host() };
    let of = |pid: u32, name: String| Subject::new(SubjectKind::Task, pid.to_string(), name);
    if let Some(brood) = ev.broods().of_child(first.tgid) {
        return of(brood.tgid, brood.together());
    }
    if victims.iter().all(|task| task.tgid == first.tgid) {
        return of(first.tgid, ev.process_name(first.tgid, &first.comm));
    }
    // Until a child has started its own program it has the name of its parent.
    if first.born && victims.iter().all(|task| task.born && task.ppid == first.ppid) {
        let parent = ev.task(first.ppid).map_or("", |task| task.comm.as_str());
        return of(first.ppid, format!("children of {}", ev.process_name(first.ppid, parent)));
    }
    of_one_name(ev, victims).unwrap_or_else(Subject::host)
}
