//! Jobs: processes that began in the window, by the process that started them.
//!
//! The starter of a process is the first one above it that did not begin in the window, and its job is the process right below that one. The
//! kernel half counts what is made in the same way (churn.bpf.h, at_the_top), but by who is the parent at that moment: of a process whose
//! creator ended before it did, that is another one.

mod lives;
mod makers;
mod phases;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use whyslow_model::job::{ChurnAccount, JobAccount, JobTimes};
use whyslow_model::table::Task;

use self::lives::{Lives, Place, Starter};
use self::makers::Makers;
use self::phases::{Owner, Phases};
use crate::Evidence;
use crate::hashing::Table;
use crate::process_names;

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;

/// Starters that are listed.
const LISTED: usize = 100;
/// A process starts one or two others now and then: no account of jobs.
const FEW: u64 = 3;

/// A process by pid and start time: the kernel reuses pids.
type Life = (u32, u64);

/// The names of the starter and of the jobs' first processes.
type Key<'r> = (Rc<str>, &'r str);

/// The jobs of starters of one name with the same command.
#[derive(Default)]
struct Jobs<'r> {
    /// Process ids of the starters; 0: one without a row.
    starters: BTreeSet<u32>,
    /// Each by its first process, with the CPU time of all.
    jobs: BTreeMap<Life, (&'r Task, u64)>,
    /// Jobs that are reported together: rows that stand for several tasks.
    folded: Vec<&'r Task>,
    processes: u64,
    phases: Phases,
}

/// All jobs, those with the most time first; and what their trees made and removed.
pub(crate) fn jobs(ev: &Evidence<'_>) -> (Vec<JobAccount>, Vec<ChurnAccount>) {
    let Ok(tasks) = ev.tasks() else { return Default::default() };
    let lives = Lives::of(tasks);
    let mut all: BTreeMap<Key<'_>, Jobs<'_>> = BTreeMap::new();
    let mut owners: Table<u32, Vec<Owner<'_>>> = Table::default();
    let mut names: Table<u32, Rc<str>> = Table::default();
    // Of each task's tree, where its number was in one tree only.
    let mut tops: Table<u32, Option<u32>> = Table::default();
    for task in tasks.iter().filter(|task| is_in_a_job(task)) {
        let Some(Place { first, starter }) = lives.place_of(ev, task) else { continue };
        let (named, top) = match starter {
            Starter::Process(it) => (it, it.pid),
            Starter::OfTheName(it) => (it, 0),
        };
        let name = names.entry(named.pid).or_insert_with(|| process_names::of_row(named).into());
        let key = (Rc::clone(name), first.comm.as_str());
        let jobs = all.entry(key.clone()).or_default();
        jobs.starters.insert(top);
        jobs.add(first, task);
        tops.entry(task.pid).and_modify(|it| *it = it.filter(|it| *it == top)).or_insert(Some(top));
        if let Some(owner) = Owner::of(task, key, top).filter(|_| first.ended) {
            owners.entry(task.pid).or_default().push(owner);
        }
    }
    let mut makers = Makers::of(ev);
    phases::add_waits(ev, (&owners, &tops), &mut all, &mut makers);
    let window = ev.window();
    let mut accounts: Vec<JobAccount> =
        all.into_iter().filter_map(|(key, jobs)| jobs.account(key, window)).collect();
    accounts.sort_by(|a, b| {
        let (names, others) = ((&a.starter, &a.command), (&b.starter, &b.command));
        b.wall.total.cmp(&a.wall.total).then_with(|| names.cmp(&others))
    });
    accounts.truncate(LISTED);
    (accounts, makers.accounts(tasks, window))
}

/// It began in the window; the threads of a process are its own.
fn is_in_a_job(task: &Task) -> bool {
    task.born && !task.kthread
}

/// A row of several processes may have no number.
fn is_process(task: &Task) -> bool {
    task.tgid == 0 || task.pid == task.tgid
}

impl<'r> Jobs<'r> {
    /// Of jobs that still run, only that they do.
    fn add(&mut self, first: &'r Task, task: &'r Task) {
        if first.ended {
            if is_process(task) && task.ended {
                self.processes = self.processes.saturating_add(task.folded.saturating_add(1));
            }
            self.phases.add(task);
        }
        if first.folded > 0 {
            if std::ptr::eq(first, task) {
                self.folded.push(task);
            }
            return;
        }
        let job = self.jobs.entry((first.pid, first.begun_ns)).or_insert((first, 0));
        job.1 = job.1.saturating_add(task.exec_ns);
    }

    /// Nothing for a process that started a few.
    fn account(self, (starter, command): Key<'_>, window: Duration) -> Option<JobAccount> {
        let ended = || self.jobs.values().filter(|(first, _)| first.ended);
        let open = self.jobs.len() - ended().count();
        let mut wall: Vec<(u64, u64)> = ended().map(|(first, _)| (first.lived_ns, 1)).collect();
        let mut cpu: Vec<(u64, u64)> = ended().map(|(_, exec)| (*exec, 1)).collect();
        for row in self.folded.iter().filter(|row| row.ended) {
            let count = row.folded.saturating_add(1);
            wall.push((row.lived_ns / count, count));
            cpu.push((row.exec_ns / count, count));
        }
        let count = wall.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
        (count >= FEW).then(|| JobAccount {
            starter: starter.to_string(),
            starters: self.starters.len() as u64,
            tgid: the_only(&self.starters),
            command: command.to_owned(),
            count,
            rate: count as f64 / window.as_secs_f64().max(1e-9),
            open: open as u64,
            processes: self.processes,
            wall: times(wall),
            cpu: times(cpu),
            known: self.phases.known(),
            phases: self.phases.accounts(),
        })
    }
}

/// 0: there are several.
fn the_only(tgids: &BTreeSet<u32>) -> u32 {
    tgids.first().copied().filter(|_| tgids.len() == 1).unwrap_or(0)
}

/// Of (time, how many took it).
fn times(mut all: Vec<(u64, u64)>) -> JobTimes {
    all.sort_unstable();
    let count = all.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
    let below = |share: f64| {
        let wanted = (count as f64 * share).ceil().max(1.0);
        let mut seen = 0_u64;
        let reached = |(_, count): &&(u64, u64)| {
            seen = seen.saturating_add(*count);
            seen as f64 >= wanted
        };
        all.iter().find(reached).map_or(Duration::ZERO, |(ns, _)| Duration::from_nanos(*ns))
    };
    let total = all.iter().map(|(ns, count)| ns.saturating_mul(*count)).fold(0, u64::saturating_add);
    JobTimes { total: Duration::from_nanos(total), half: below(0.5), most: below(0.99), worst: below(1.0) }
}
