//! Jobs within a cgroup: sessions that a terminal or a runner started side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::table::Task;

use super::process_of;
use crate::MAX_DEPTH;
use crate::hashing::Table;
use crate::process_names;

/// If more than this part of a group cannot be assigned to a job, the group is one.
const UNPLACED: f64 = 0.05;
/// ... unless that is this part of the window or less.
const LITTLE: f64 = 0.01;

/// Tasks that are no job of their own, in a group that has jobs.
const MAIN: u32 = 0;

/// Jobs of groups that hold several.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_process: Table<u32, (Rc<str>, u32)>,
    sessions: BTreeMap<Rc<str>, BTreeSet<u32>>,
    above: BTreeMap<(Rc<str>, u32), BTreeSet<u32>>,
}

impl Jobs {
    pub fn of(tasks: &[Task], homes: &[Option<Rc<str>>], window: Duration) -> Self {
        let processes = Processes::of(tasks, homes);
        let mut jobs = Jobs::default();
        for process in processes.0.keys() {
            if let Some((group, session)) = processes.job_of(*process) {
                jobs.sessions.entry(group.clone()).or_default().insert(session);
                jobs.by_process.insert(*process, (group.clone(), session));
            }
        }
        jobs.sessions.retain(|_, sessions| sessions.len() > 1);
        for group in jobs.untold(tasks, homes, LITTLE * window.as_nanos() as f64) {
            jobs.sessions.remove(&group);
        }
        let sessions = &jobs.sessions;
        jobs.by_process.retain(|_, (group, _)| sessions.contains_key(group));
        for (process, job) in &jobs.by_process {
            let above = processes.above(*process).filter_map(|above| jobs.by_process.get(&above));
            let others = above.filter(|above| *above != job).map(|(_, session)| *session);
            jobs.above.entry(job.clone()).or_default().extend(others);
        }
        jobs
    }

    /// The job of a task in this group; `None`: the group is one.
    pub fn job(&self, task: &Task, group: &str) -> Option<u32> {
        let sessions = self.sessions.get(group)?;
        let known = self.by_process.get(&process_of(task)).filter(|(home, _)| **home == *group);
        let own = Some(task.session).filter(|session| sessions.contains(session));
        Some(known.map(|(_, session)| *session).or(own).unwrap_or(MAIN))
    }

    /// The sessions that have started it, directly or through others.
    pub fn above(&self, group: &str, session: u32) -> BTreeSet<u32> {
        self.above.get(&(group.into(), session)).cloned().unwrap_or_default()
    }

    /// Groups whose tasks cannot be assigned to jobs; `little` ns do not matter.
    fn untold(&self, tasks: &[Task], homes: &[Option<Rc<str>>], little: f64) -> Vec<Rc<str>> {
        let mut parts: BTreeMap<Rc<str>, (f64, f64)> = BTreeMap::new();
        for (task, home) in tasks.iter().zip(homes).filter(|(task, _)| !task.kthread) {
            let Some(group) = home else { continue };
            let Some(sessions) = self.sessions.get(group) else { continue };
            let known = self.by_process.get(&process_of(task)).is_some_and(|(home, _)| home == group);
            let wanted = task.exec_ns.saturating_add(task.runnable_ns) as f64;
            let (untold, all) = parts.entry(group.clone()).or_default();
            *all += wanted;
            *untold += if known || sessions.contains(&task.session) { 0.0 } else { wanted };
        }
        parts
            .into_iter()
            .filter(|(_, (untold, all))| *untold > little.max(UNPLACED * *all))
            .map(|(group, _)| group)
            .collect()
    }
}

/// Processes of cgroups, each with its group.
struct Processes<'t>(Table<u32, (&'t Task, Rc<str>)>);

impl<'t> Processes<'t> {
    fn of(tasks: &'t [Task], homes: &[Option<Rc<str>>]) -> Self {
        let mut processes: Table<u32, (&Task, Rc<str>)> = Table::default();
        for (task, home) in tasks.iter().zip(homes).filter(|(task, _)| !task.kthread && task.tgid != 0) {
            if let Some(home) = home {
                let known = processes.entry(task.tgid).or_insert_with(|| (task, home.clone()));
                if task.pid == task.tgid {
                    known.0 = task;
                }
            }
        }
        Processes(processes)
    }

    /// The task's parent, if that is in the group, too.
    fn parent(&self, (task, group): &(&Task, Rc<str>)) -> Option<&(&'t Task, Rc<str>)> {
        self.0.get(&task.ppid).filter(|parent| parent.1 == *group && parent.0.tgid != task.tgid)
    }

    fn above(&self, process: u32) -> impl Iterator<Item = u32> + '_ {
        let up = std::iter::successors(self.0.get(&process), |at| self.parent(at));
        up.take(MAX_DEPTH).skip(1).map(|(task, _)| task.tgid)
    }

    /// A program that gives each of its processes a session (PostgreSQL) is still one program: a child with its parent's program is in its
    /// session. `None`: the process has ended, and its session is not known.
    fn job_of(&self, process: u32) -> Option<(&Rc<str>, u32)> {
        let mut at = self.0.get(&process)?;
        let is_one = |parent: &Task, task: &Task| {
            task.session == 0 || parent.session == task.session || are_one_program(parent, task)
        };
        let mut parent = self.parent(at);
        for _ in 0..MAX_DEPTH {
            match parent.filter(|parent| is_one(parent.0, at.0)) {
                Some(above) => at = above,
                None => break,
            }
            parent = self.parent(at);
        }
        let session = match parent.is_some() || !is_one_program(&at.1) {
            true => Some(at.0.session).filter(|session| *session != 0)?,
            false => MAIN,
        };
        Some((&at.1, session))
    }
}

/// A shell does not give a process a new session: setsid(1) has started another script. Two scripts of one interpreter are two programs.
fn are_one_program(parent: &Task, task: &Task) -> bool {
    let [ours, theirs] =
        [parent, task].map(|one| process_names::script_line(one).map(|_| process_names::of_row(one)));
    let differ = ours.zip(theirs).is_some_and(|(ours, theirs)| ours != theirs);
    parent.comm == task.comm && !process_names::is_shell(&task.comm) && !differ
}

/// A service or a container: all that was started from inside is a part of it, whatever its name and session (the processes of one
/// database). Scopes and other groups are places where users start jobs.
pub(super) fn is_one_program(path: &str) -> bool {
    let known = CgroupPath::of(path);
    known.container.is_some() || known.unit.as_deref().is_some_and(|unit| unit.ends_with(".service"))
}
