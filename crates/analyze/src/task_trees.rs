//! Trees of tasks: tasks that were started as one job. A tree is a cgroup with an owner (a container, a unit, a job), or each of several
//! sessions in it (jobs of one terminal, of one runner); at the root of the hierarchy a session, as the kernel groups them for the
//! scheduler; else a process and all that it started.

mod by_name;
mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::table::{Cgroup, Task};
use whyslow_model::{Subject, SubjectKind};

use self::jobs::Jobs;
use crate::Evidence;
use crate::MAX_DEPTH;
use crate::hashing::Table;
use crate::process_names;

/// A process with this part of what its tree used gives the tree its name.
const MOST_OF_IT: f64 = 0.9;
/// A command that used less than this part of what its tree used is not the tree's main work.
const LITTLE: f64 = 0.01;

/// One tree.
#[derive(Debug, Clone)]
pub struct TaskTree {
    key: Key,
    /// Its tasks: indexes into the table.
    pub tasks: BTreeSet<usize>,
    /// The cgroup that contains all of them.
    pub group: Option<u64>,
    /// Its weight among its siblings, and its parent, if the scheduler knows it as one entity.
    pub weight: Option<(u64, u64)>,
    /// CPU time.
    pub used_ns: u64,
    /// Time that its tasks were ready.
    pub ready_ns: u64,
    /// How many further trees of its name it stands for.
    pub alike: usize,
    /// For parts of a cgroup: their sessions, ...
    sessions: BTreeSet<u32>,
    /// ... and the sessions that started them.
    above: BTreeSet<u32>,
}

impl TaskTree {
    /// Some of its processes, as a tree of their own; there are `alike` more such trees.
    #[must_use]
    pub fn part(&self, tasks: &[Task], members: BTreeSet<usize>, alike: usize) -> Self {
        let all = || members.iter().filter_map(|at| tasks.get(*at));
        let sum = |of: fn(&Task) -> u64| all().map(of).fold(0, u64::saturating_add);
        TaskTree {
            key: Key::Process(all().next().map_or(0, |task| task.tgid)),
            used_ns: sum(|task| task.exec_ns),
            ready_ns: sum(|task| task.runnable_ns),
            tasks: members,
            group: self.group,
            weight: None,
            alike,
            sessions: BTreeSet::new(),
            above: BTreeSet::new(),
        }
    }

    /// All of it belongs to one program: a service, a container.
    #[must_use]
    pub fn is_one_program(&self) -> bool {
        match &self.key {
            Key::Group(path) | Key::Part(path, _) => jobs::is_one_program(path),
            Key::Session(_) | Key::Process(_) => false,
        }
    }

    /// The process at the top of most of what was used.
    #[must_use]
    pub fn first(&self, ev: &Evidence<'_>) -> Option<u32> {
        let tasks = ev.tasks().unwrap_or_default();
        let all: Vec<&Task> = self.tasks.iter().filter_map(|at| tasks.get(*at)).collect();
        leading(&all, self.used_ns)
    }

    /// The first thread of that process.
    fn leader<'r>(&self, ev: &Evidence<'r>) -> Option<&'r Task> {
        let first = self.first(ev)?;
        let tasks = ev.tasks().unwrap_or_default();
        self.tasks.iter().filter_map(|at| tasks.get(*at)).find(|task| task.pid == first)
    }

    /// The command line of the script above the leading process.
    fn script<'r>(&self, ev: &Evidence<'r>) -> Option<&'r str> {
        let tasks = ev.tasks().unwrap_or_default();
        let rows = self.tasks.iter().filter_map(|at| tasks.get(*at)).filter(|task| task.pid == task.tgid);
        let rows: BTreeMap<u32, &Task> = rows.map(|task| (task.pid, task)).collect();
        let up = |task: &&'r Task| rows.get(&task.ppid).copied();
        let top = std::iter::successors(rows.get(&self.first(ev)?).copied(), up).take(MAX_DEPTH).last()?;
        process_names::script_line(top)
    }

    /// The place of trees with this name; `None`: the tree stays alone.
    fn place(&self) -> Option<String> {
        match &self.key {
            Key::Group(_) => None,
            Key::Part(path, _) => Some(path.clone()),
            Key::Session(_) | Key::Process(_) => Some("/".to_owned()),
        }
    }

    /// Names of the commands that used a CPU in it, without the one that starts the others.
    fn commands<'r>(&self, tasks: &'r [Task]) -> BTreeSet<&'r str> {
        let rows = self.tasks.iter().filter_map(|at| tasks.get(*at));
        let rows = rows.filter(|task| task.exec_ns as f64 >= LITTLE * self.used_ns as f64);
        rows.map(|task| task.comm.as_str()).collect()
    }

    /// None of its tasks ran or was ready in the window.
    fn is_asleep(&self, tasks: &[Task]) -> bool {
        let mut rows = self.tasks.iter().filter_map(|at| tasks.get(*at));
        self.wanted_ns() == 0 && rows.all(|task| task.io_ns == 0 && task.blocked_ns == 0)
    }

    /// The kernel groups its tasks by session: their nice values count only among themselves.
    #[must_use]
    pub fn is_session(&self) -> bool {
        matches!(self.key, Key::Session(_))
    }

    /// Joins the tasks of both trees.
    fn join(&mut self, other: TaskTree) {
        self.tasks.extend(other.tasks);
        self.used_ns = self.used_ns.saturating_add(other.used_ns);
        self.ready_ns = self.ready_ns.saturating_add(other.ready_ns);
        self.alike += other.alike + 1;
        self.sessions.extend(other.sessions);
        self.above.extend(other.above);
        self.weight = self.weight.filter(|_| self.weight == other.weight);
        self.group = self.group.filter(|_| self.group == other.group);
    }

    /// Both are parts of one cgroup, and one has started the other: a program and its workers. Or the cgroup of one is below
    /// that of the other, which has created it for its own use.
    #[must_use]
    pub fn is_kin(&self, other: &TaskTree) -> bool {
        let has_started = |one: &TaskTree, other: &TaskTree| !other.above.is_disjoint(&one.sessions);
        match (&self.key, &other.key) {
            (Key::Part(group, _), Key::Part(beside, _)) if group == beside => {
                has_started(self, other) || has_started(other, self)
            }
            (Key::Part(one, _) | Key::Group(one), Key::Part(other, _) | Key::Group(other)) => {
                let is_owned = |path: &str| {
                    let known = CgroupPath::of(path);
                    known.container.is_some() || known.unit.is_some()
                };
                // A container or unit is independent, wherever its cgroup is.
                is_below(one, other) && !is_owned(one) || is_below(other, one) && !is_owned(other)
            }
            _ => false,
        }
    }

    /// "make and 3 more of this name".
    #[must_use]
    pub fn called(&self, ev: &Evidence<'_>) -> String {
        let name = self.subject(ev).name;
        if self.alike > 0 { format!("{name} and {} more of this name", self.alike) } else { name }
    }

    /// ... and the verb for it in a sentence.
    #[must_use]
    pub fn keeps(&self) -> &'static str {
        if self.alike > 0 { "keep" } else { "keeps" }
    }

    /// The name of the tree.
    #[must_use]
    pub fn subject(&self, ev: &Evidence<'_>) -> Subject {
        if let Key::Group(path) = &self.key {
            return ev.names().subject(path);
        }
        let tasks = ev.tasks().unwrap_or_default();
        self.first(ev).map_or_else(Subject::host, |pid| {
            let own = self.tasks.iter().filter_map(|at| tasks.get(*at));
            let comm = own.into_iter().find(|task| task.tgid == pid).map_or("", |task| task.comm.as_str());
            Subject::new(SubjectKind::Task, pid.to_string(), ev.process_name(pid, comm))
        })
    }

    /// Time that its tasks ran or were ready.
    #[must_use]
    pub fn wanted_ns(&self) -> u64 {
        self.used_ns.saturating_add(self.ready_ns)
    }

    /// How many of its tasks ran or were ready at the same time, on average.
    #[must_use]
    pub fn wanted(&self, window_ns: f64) -> f64 {
        if window_ns > 0.0 { self.wanted_ns() as f64 / window_ns } else { 0.0 }
    }
}

/// The trees of one recording.
#[derive(Debug, Clone, Default)]
pub struct TaskTrees {
    /// The order has no meaning.
    pub all: Vec<TaskTree>,
}

/// The identity of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The path of the cgroup, up to its owner.
    Group(String),
    /// ... and one of the sessions in it.
    Part(String, u32),
    Session(u64),
    Process(u32),
}

impl TaskTrees {
    /// Kernel threads work for others, and whyslow for its user: they are in no tree.
    pub fn of(ev: &Evidence<'_>) -> Self {
        Self::sorted(ev, true)
    }

    /// ... with all sessions of a cgroup as one.
    pub fn by_group(ev: &Evidence<'_>) -> Self {
        Self::sorted(ev, false)
    }

    fn sorted(ev: &Evidence<'_>, apart: bool) -> Self {
        let tasks = ev.tasks().unwrap_or_default();
        let groups = ev.cgroups().unwrap_or_default();
        let by_id: BTreeMap<u64, &Cgroup> = groups.iter().map(|group| (group.id, group)).collect();
        let parents = parents(tasks);
        let homes = homes(tasks, &by_id);
        let jobs = apart.then(|| Jobs::of(tasks, &homes, ev.window()));
        let mut members: BTreeMap<Key, BTreeSet<usize>> = BTreeMap::new();
        let is_in = |task: &Task| !task.kthread && !ev.is_own(task.pid, task.tgid);
        for (at, (task, home)) in tasks.iter().zip(&homes).enumerate().filter(|(_, (task, _))| is_in(task)) {
            members.entry(key(task, home.as_deref(), &parents, jobs.as_ref())).or_default().insert(at);
        }
        let mut by_path: BTreeMap<&str, &Cgroup> = BTreeMap::new();
        for group in groups {
            let known = by_path.entry(&group.path).or_insert(group);
            if known.cpu.is_none() {
                *known = group;
            }
        }
        let tree = |(key, members): (Key, BTreeSet<usize>)| {
            let mut tree = tree(tasks, &by_path, key, members);
            if let (Key::Part(group, session), Some(jobs)) = (&tree.key, &jobs) {
                (tree.sessions, tree.above) = (BTreeSet::from([*session]), jobs.above(group, *session));
            }
            tree
        };
        TaskTrees { all: members.into_iter().map(tree).collect() }
    }
}

/// Whether a cgroup is inside another one, at any depth.
fn is_below(path: &str, above: &str) -> bool {
    Path::new(path) != Path::new(above) && Path::new(path).starts_with(above)
}

/// The parent of each process, and its session. A process that has ended has left its session (sched_autogroup_exit_task): then its parent's counts.
type Parents = BTreeMap<u32, (u32, Option<u64>)>;

fn parents(tasks: &[Task]) -> Parents {
    let all = tasks.iter().filter(|task| !task.kthread && task.tgid != 0);
    let mut parents = Parents::new();
    for task in all {
        let session = Some(task.autogroup).filter(|session| *session != 0);
        let known = parents.entry(task.tgid).or_insert((task.ppid, session));
        known.1 = known.1.or(session);
    }
    parents
}

/// For rows that stand for several processes only their parent is known.
fn process_of(task: &Task) -> u32 {
    if task.tgid == 0 { task.ppid } else { task.tgid }
}

/// The cgroup of each task, up to the cgroup's owner; `None`: none.
fn homes(tasks: &[Task], groups: &BTreeMap<u64, &Cgroup>) -> Vec<Option<Rc<str>>> {
    let mut known: Table<[u64; 4], Option<Rc<str>>> = Table::default();
    let find = |task: &Task| {
        // A controller sees a group only as deep as it is enabled (cgroup_subtree_control): the deepest path is the task's place.
        let ids = [task.unified_cgroup, task.cpu_cgroup, task.memory_cgroup, task.io_cgroup];
        let home = known.entry(ids).or_insert_with(|| {
            let groups = ids.iter().rev().filter_map(|id| groups.get(id)).filter(|group| group.path != "/");
            let home = groups.max_by_key(|group| group.path.matches('/').count());
            home.map(|group| held_by(&group.path).into())
        });
        home.clone()
    };
    tasks.iter().map(find).collect()
}

fn key(task: &Task, home: Option<&str>, parents: &Parents, jobs: Option<&Jobs>) -> Key {
    if let Some(group) = home {
        return match jobs.and_then(|jobs| jobs.job(task, group)) {
            Some(session) => Key::Part(group.to_owned(), session),
            None => Key::Group(group.to_owned()),
        };
    }
    let started_by = || ancestors(process_of(task), parents);
    match started_by().find_map(|(_, session)| session) {
        Some(session) => Key::Session(session),
        None => Key::Process(started_by().last().map_or(process_of(task), |(top, _)| top)),
    }
}

/// The path without the part below the container or unit.
fn held_by(path: &str) -> String {
    let known = CgroupPath::of(path);
    let is_held = known.container.is_some() || known.unit.is_some();
    path.strip_suffix(&known.below).filter(|_| is_held).unwrap_or(path).to_owned()
}

/// A process and its ancestors, up to the one that init has started, with their sessions.
fn ancestors(process: u32, parents: &Parents) -> impl Iterator<Item = (u32, Option<u64>)> + '_ {
    let up = |process: &u32| {
        let parent = parents.get(process).map(|(parent, _)| *parent);
        parent.filter(|parent| *parent > 2 && parents.contains_key(parent))
    };
    let all = std::iter::successors(Some(process), up).take(MAX_DEPTH);
    all.map(|process| (process, parents.get(&process).and_then(|(_, session)| *session)))
}

fn tree(tasks: &[Task], by_path: &BTreeMap<&str, &Cgroup>, key: Key, members: BTreeSet<usize>) -> TaskTree {
    let all = || members.iter().filter_map(|at| tasks.get(*at));
    let sum = |of: fn(&Task) -> u64| all().map(of).fold(0, u64::saturating_add);
    let (used_ns, ready_ns) = (sum(|task| task.exec_ns), sum(|task| task.runnable_ns));
    let row = match &key {
        Key::Group(path) | Key::Part(path, _) => by_path.get(path.as_str()),
        Key::Session(_) | Key::Process(_) => None,
    };
    let weight = match &key {
        Key::Group(_) => row.and_then(|row| Some((row.cpu.as_ref()?.weight, row.parent))),
        Key::Session(_) => all().next().map(|task| (task.autogroup_weight, 0)),
        Key::Process(_) | Key::Part(..) => None,
    };
    let group = row.map(|row| row.id);
    TaskTree {
        key,
        tasks: members,
        group,
        weight,
        used_ns,
        ready_ns,
        alike: 0,
        sessions: BTreeSet::new(),
        above: BTreeSet::new(),
    }
}

/// The innermost process that used nearly all of it, with its children.
fn leading(all: &[&Task], used_ns: u64) -> Option<u32> {
    let rows = all.iter().filter(|task| task.tgid != 0);
    let parents: BTreeMap<u32, u32> = rows.map(|task| (task.tgid, task.ppid)).collect();
    let mut below: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for task in all {
        let up = |process: &u32| parents.get(process).copied().filter(|parent| parents.contains_key(parent));
        let ancestors: Vec<u32> = std::iter::successors(Some(process_of(task)), up).take(MAX_DEPTH).collect();
        for (at, process) in ancestors.iter().enumerate() {
            let (used, depth) = below.entry(*process).or_default();
            *used = used.saturating_add(task.exec_ns);
            *depth = (ancestors.len() - at).max(*depth);
        }
    }
    below.retain(|process, _| parents.contains_key(process));
    let leads = below.iter().filter(|(_, (used, _))| *used as f64 >= MOST_OF_IT * used_ns as f64);
    let leads = leads.max_by_key(|(process, (_, depth))| (*depth, std::cmp::Reverse(**process)));
    // If no process leads, the largest one counts.
    let largest =
        || below.iter().max_by_key(|(process, (used, depth))| (*used, *depth, std::cmp::Reverse(**process)));
    leads.or_else(largest).map(|(process, _)| *process)
}

#[cfg(test)]
mod tests;
