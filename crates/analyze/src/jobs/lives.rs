//! Which process started which.

use whyslow_model::table::Task;

use super::is_in_a_job;
use crate::Evidence;

/// Wrappers in wrappers: the search goes no further up.
const MOST_STEPS: usize = 16;

/// Tasks by pid and start time.
pub(super) struct Lives<'r>(Vec<&'r Task>);

impl<'r> Lives<'r> {
    pub fn of(tasks: &'r [Task]) -> Self {
        let mut all: Vec<&Task> = tasks.iter().filter(|task| task.folded == 0).collect();
        all.sort_by_key(|task| (task.pid, task.begun_ns));
        Lives(all)
    }

    /// The process that had this pid when `child` began.
    fn process(&self, pid: u32, child: &Task) -> Option<&'r Task> {
        let begun = if child.begun_ns == 0 { u64::MAX } else { child.begun_ns };
        let after = self.0.partition_point(|task| (task.pid, task.begun_ns) <= (pid, begun));
        self.0.get(after.checked_sub(1)?).copied().filter(|task| task.pid == pid && task.pid == task.tgid)
    }

    /// The first process of the job of `task`, and the starter, if it has a row. Nothing for threads of an older process, and for what
    /// whyslow itself started: a command that it runs is the starter of its children.
    pub fn job_of(&self, ev: &Evidence<'r>, task: &'r Task) -> Option<(&'r Task, Option<&'r Task>)> {
        let is_thread = task.tgid != 0 && task.pid != task.tgid;
        let mut first =
            if is_thread { self.process(task.tgid, task).filter(|it| is_in_a_job(it))? } else { task };
        let mut below = None;
        for _ in 0..MOST_STEPS {
            let Some(above) = self.process(self.above(first), first) else {
                let is_named = !first.parent.is_empty();
                return is_named.then_some((first, None));
            };
            if ev.is_own(above.pid, above.tgid) {
                return below.map(|job| (job, Some(first)));
            }
            if !is_in_a_job(above) {
                return (!above.kthread).then_some((first, Some(above)));
            }
            below = Some(first);
            first = above;
        }
        None
    }

    /// The process that created it, not the one that took it over as an orphan.
    fn above(&self, task: &Task) -> u32 {
        let creator =
            self.0.partition_point(|other| (other.pid, other.begun_ns) <= (task.creator, task.begun_ns));
        let creator =
            creator.checked_sub(1).and_then(|at| self.0.get(at)).filter(|it| it.pid == task.creator);
        creator.filter(|it| task.creator != 0 && it.tgid != 0).map_or(task.ppid, |it| it.tgid)
    }
}
