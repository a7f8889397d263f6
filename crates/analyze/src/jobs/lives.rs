//! Which process started which.

use std::collections::BTreeMap;

use whyslow_model::table::Task;

use super::{is_in_a_job, is_process};
use crate::Evidence;

/// A task's begin and its time are from different clocks.
const SLACK_NS: u64 = 10_000_000;
/// Wrappers in wrappers: the search goes no further up.
const MOST_STEPS: usize = 16;

pub(super) struct Lives<'r> {
    /// Tasks by pid and start time.
    tasks: Vec<&'r Task>,
    /// Processes by name: the first one, or nothing where one of that name began in the window.
    older: BTreeMap<&'r str, Option<&'r Task>>,
}

/// The job of a task.
pub(super) struct Place<'r> {
    /// The first process of the job.
    pub first: &'r Task,
    pub starter: Starter<'r>,
}

pub(super) enum Starter<'r> {
    Process(&'r Task),
    /// One of the processes that are called as this one: the row is of several tasks, whose parents are known by name only.
    OfTheName(&'r Task),
}

impl<'r> Lives<'r> {
    pub fn of(tasks: &'r [Task]) -> Self {
        let mut all: Vec<&Task> = tasks.iter().filter(|task| task.folded == 0).collect();
        all.sort_by_key(|task| (task.pid, task.begun_ns));
        let mut older = BTreeMap::new();
        for task in tasks.iter().filter(|task| is_process(task)) {
            let of_name = older.entry(task.comm.as_str()).or_insert(Some(task));
            *of_name = of_name.filter(|_| !is_in_a_job(task));
        }
        Lives { tasks: all, older }
    }

    /// The process that had this pid when `child` began.
    fn process(&self, pid: u32, child: &Task) -> Option<&'r Task> {
        let begun = if child.begun_ns == 0 { u64::MAX } else { child.begun_ns };
        let after = self.tasks.partition_point(|task| (task.pid, task.begun_ns) <= (pid, begun));
        let found = self.tasks.get(after.checked_sub(1)?).copied();
        let found = found.filter(|task| task.pid == pid && task.pid == task.tgid)?;
        // One of the same number that had ended before is another process.
        let end = found.begun_ns.saturating_add(found.lived_ns).saturating_add(SLACK_NS);
        let is_gone = found.born && found.ended && child.begun_ns != 0 && end < child.begun_ns;
        (!is_gone).then_some(found)
    }

    /// Nothing for threads of an older process, for what whyslow itself started (a command that it runs is the starter of its children), and
    /// where a parent has no row of its own and may have begun in the window.
    pub fn place_of(&self, ev: &Evidence<'r>, task: &'r Task) -> Option<Place<'r>> {
        let mut first = match is_process(task) {
            true => task,
            false => self.process(task.tgid, task).filter(|it| is_in_a_job(it))?,
        };
        let mut below = None;
        for _ in 0..MOST_STEPS {
            let Some(above) = self.process(self.above(first), first) else {
                let of_name = self.older.get(first.parent.as_str()).copied().flatten();
                return of_name.map(|it| Place { first, starter: Starter::OfTheName(it) });
            };
            if ev.is_own(above.pid, above.tgid) {
                return below.map(|job| Place { first: job, starter: Starter::Process(first) });
            }
            if !is_in_a_job(above) {
                return (!above.kthread).then_some(Place { first, starter: Starter::Process(above) });
            }
            below = Some(first);
            first = above;
        }
        None
    }

    /// The process that created it, not the one that took it over as an orphan.
    fn above(&self, task: &Task) -> u32 {
        let creator =
            self.tasks.partition_point(|other| (other.pid, other.begun_ns) <= (task.creator, task.begun_ns));
        let creator =
            creator.checked_sub(1).and_then(|at| self.tasks.get(at)).filter(|it| it.pid == task.creator);
        creator.filter(|it| task.creator != 0 && it.tgid != 0).map_or(task.ppid, |it| it.tgid)
    }
}
