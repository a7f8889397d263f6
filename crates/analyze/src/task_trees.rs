//! Trees of tasks: what somebody started as one. A cgroup that has an owner (a container, a unit, a job), or each of several sessions
//! in it (jobs of one terminal, of one runner); at the root of the hierarchy a session, as the kernel groups them for the
//! scheduler; else a process and all that it started.

mod jobs;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::table::{Cgroup, Task};
use whyslow_model::{Subject, SubjectKind};

use self::jobs::Jobs;
use crate::Evidence;
use crate::hashing::Table;
use crate::process_names;

/// Ancestors that are followed; the deepest trees of processes have some tens.
const MAX_DEPTH: usize = 64;
/// A process that has this part of what its tree used is what the tree is called by.
const MOST_OF_IT: f64 = 0.9;
/// A command that used less than this part of what its tree used is not what the tree is about.
const LITTLE: f64 = 0.01;

/// One of them.
#[derive(Debug, Clone)]
pub struct TaskTree {
    key: Key,
    /// Its tasks: places in the table.
    pub tasks: BTreeSet<usize>,
    /// The cgroup that all of them are in, or below.
    pub group: Option<u64>,
    /// Its weight among its siblings, and whose child it is, if the scheduler knows it as one.
    pub weight: Option<(u64, u64)>,
    /// CPU time.
    pub used_ns: u64,
    /// Time that its tasks were ready.
    pub ready_ns: u64,
    /// Further trees of its name that it stands for, too.
    pub alike: usize,
    /// Of parts of a cgroup: their sessions, ...
    sessions: BTreeSet<u32>,
    /// ... and those of who started them.
    above: BTreeSet<u32>,
}

impl TaskTree {
    /// Some of its processes, as a tree of their own; so many of them are alike beside the first.
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

    /// What is in it is one program's: a service, a container.
    #[must_use]
    pub fn is_one_program(&self) -> bool {
        match &self.key {
            Key::Group(path) | Key::Part(path, _) => jobs::is_one_program(path),
            Key::Session(_) | Key::Process(_) => false,
        }
    }

    /// The process that most of what was used is below.
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

    /// The command line of the script above the process that leads it.
    fn script<'r>(&self, ev: &Evidence<'r>) -> Option<&'r str> {
        let tasks = ev.tasks().unwrap_or_default();
        let rows = self.tasks.iter().filter_map(|at| tasks.get(*at)).filter(|task| task.pid == task.tgid);
        let rows: BTreeMap<u32, &Task> = rows.map(|task| (task.pid, task)).collect();
        let up = |task: &&'r Task| rows.get(&task.ppid).copied();
        let top = std::iter::successors(rows.get(&self.first(ev)?).copied(), up).take(MAX_DEPTH).last()?;
        process_names::script_line(top)
    }

    /// Where those of its name are; `None`: it is alone.
    fn place(&self) -> Option<String> {
        match &self.key {
            Key::Group(_) => None,
            Key::Part(path, _) => Some(path.clone()),
            Key::Session(_) | Key::Process(_) => Some("/".to_owned()),
        }
    }

    /// Names of what used a CPU in it, but for what starts the others.
    fn commands<'r>(&self, tasks: &'r [Task]) -> BTreeSet<&'r str> {
        let rows = self.tasks.iter().filter_map(|at| tasks.get(*at));
        let rows = rows.filter(|task| task.exec_ns as f64 >= LITTLE * self.used_ns as f64);
        rows.map(|task| task.comm.as_str()).collect()
    }

    /// It asked for nothing in the window.
    fn is_asleep(&self, tasks: &[Task]) -> bool {
        let mut rows = self.tasks.iter().filter_map(|at| tasks.get(*at));
        self.wanted_ns() == 0 && rows.all(|task| task.io_ns == 0 && task.blocked_ns == 0)
    }

    /// The kernel groups its tasks by session: their niceness counts among themselves alone.
    #[must_use]
    pub fn is_session(&self) -> bool {
        matches!(self.key, Key::Session(_))
    }

    /// Tasks of both, as one.
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

    /// Both are parts of one cgroup, and one has started the other: a program and what it works with. Or the cgroup of one is below
    /// that of the other, which has made it for its own ends.
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
                // A container or unit is a matter of its own, wherever it lies.
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

    /// ... and the verb of a sentence about it.
    #[must_use]
    pub fn keeps(&self) -> &'static str {
        if self.alike > 0 { "keep" } else { "keeps" }
    }

    /// What it is called.
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

    /// How many of its tasks ran, or wanted to, at once, in the mean.
    #[must_use]
    pub fn wanted(&self, window_ns: f64) -> f64 {
        if window_ns > 0.0 { self.wanted_ns() as f64 / window_ns } else { 0.0 }
    }
}

/// Of one recording.
#[derive(Debug, Clone, Default)]
pub struct TaskTrees {
    /// In no order that matters.
    pub all: Vec<TaskTree>,
}

/// Trees of one script: those that have a command in common are copies. One script that is given different things to do is several: a
/// judge's.
#[derive(Debug, Default)]
struct Copies<'r>(Vec<(BTreeSet<&'r str>, Option<String>)>);

impl<'r> Copies<'r> {
    fn add(&mut self, commands: BTreeSet<&'r str>) {
        let (alike, mut apart): (Vec<_>, Vec<_>) =
            self.0.drain(..).partition(|(known, _)| !known.is_disjoint(&commands));
        let all = alike.into_iter().flat_map(|(known, _)| known).chain(commands).collect();
        apart.push((all, None));
        self.0 = apart;
    }

    /// The name of the first that was asked for; else its own.
    fn name(&mut self, own: String, commands: &BTreeSet<&'r str>) -> String {
        match self.0.iter_mut().find(|(known, _)| !known.is_disjoint(commands)) {
            Some((_, name)) => name.get_or_insert(own).clone(),
            None => own,
        }
    }
}

/// What tells trees apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The path of the cgroup, up to who holds it.
    Group(String),
    /// ... and one of the sessions in it.
    Part(String, u32),
    Session(u64),
    Process(u32),
}

impl TaskTrees {
    /// Kernel threads work for others, and whyslow for who looks: they are in none.
    pub fn of(ev: &Evidence<'_>) -> Self {
        Self::sorted(ev, true)
    }

    /// ... with all sessions of a cgroup as one.
    pub fn by_group(ev: &Evidence<'_>) -> Self {
        Self::sorted(ev, false)
    }

    /// ... with those of one name in one place as one: jobs of a kind, each in a session of its own. Copies of one script have the name of
    /// the largest: which of its commands leads a copy depends on where the window finds it. Words are known of who ran in the window: a tree
    /// whose leader's are not is one of those whose leader has that name in the kernel, if those have one name.
    #[must_use]
    pub fn by_name(ev: &Evidence<'_>) -> Self {
        let mut by_name: BTreeMap<(String, String, Option<u32>), TaskTree> = BTreeMap::new();
        let tasks = ev.tasks().unwrap_or_default();
        let user =
            |tree: &TaskTree| tree.tasks.first().and_then(|at| tasks.get(*at)).and_then(|task| task.uid);
        let (mut all, mut trees) = (Vec::new(), ev.trees().all.clone());
        // The largest tells who they are.
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.used_ns));
        let script = |tree: &TaskTree| Some((tree.place()?, tree.script(ev)?, user(tree)));
        let mut scripts: BTreeMap<(String, &str, Option<u32>), Copies<'_>> = BTreeMap::new();
        for (tree, script) in trees.iter().filter_map(|tree| Some((tree, script(tree)?))) {
            scripts.entry(script).or_default().add(tree.commands(tasks));
        }
        let kind =
            |tree: &TaskTree| tree.leader(ev).map(|task| (tree.place(), task.comm.as_str(), user(tree)));
        let mut told: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        let mut named = Vec::new();
        for tree in trees {
            let own = tree.subject(ev).name;
            let name = match script(&tree).and_then(|script| scripts.get_mut(&script)) {
                Some(copies) => Some(copies.name(own, &tree.commands(tasks))),
                None => tree.leader(ev).is_some_and(|task| task.cmdline.is_some()).then_some(own),
            };
            if let Some((kind, name)) = kind(&tree).zip(name.clone()) {
                told.entry(kind).or_default().insert(name);
            }
            named.push((tree, name));
        }
        for (tree, name) in named {
            let Some(place) = tree.place() else {
                all.push(tree);
                continue;
            };
            let of_kind = || told.get(&kind(&tree)?).filter(|names| names.len() == 1)?.first().cloned();
            // Who slept through the window may be any program of that name: the shell that somebody has open.
            let name = name
                .or_else(|| of_kind().filter(|_| !tree.is_asleep(tasks)))
                .unwrap_or_else(|| tree.subject(ev).name);
            match by_name.entry((place, name, user(&tree))) {
                Entry::Vacant(free) => {
                    free.insert(tree);
                }
                Entry::Occupied(mut known) => known.get_mut().join(tree),
            }
        }
        all.extend(by_name.into_values());
        TaskTrees { all }
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

/// Whether a cgroup is in another one, however deep.
fn is_below(path: &str, above: &str) -> bool {
    Path::new(path) != Path::new(above) && Path::new(path).starts_with(above)
}

/// The parent of each process, and its session. Who has ended has left it (sched_autogroup_exit_task): then its parent's is taken.
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

/// Of rows that stand for several processes only who started them is known.
fn process_of(task: &Task) -> u32 {
    if task.tgid == 0 { task.ppid } else { task.tgid }
}

/// Where each task was put, up to who holds that; `None`: nowhere.
fn homes(tasks: &[Task], groups: &BTreeMap<u64, &Cgroup>) -> Vec<Option<Rc<str>>> {
    let mut known: Table<[u64; 4], Option<Rc<str>>> = Table::default();
    let find = |task: &Task| {
        // A controller sees a group only as deep as it is enabled there (cgroup_subtree_control): the deepest is where it was put.
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

/// Without what lies below the container or unit.
fn held_by(path: &str) -> String {
    let known = CgroupPath::of(path);
    let is_held = known.container.is_some() || known.unit.is_some();
    path.strip_suffix(&known.below).filter(|_| is_held).unwrap_or(path).to_owned()
}

/// A process and those it descends from, up to the one that init has started, with their sessions.
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

/// The innermost process below which nearly all of it was used.
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
    // Of several that nobody leads, the largest.
    let largest =
        || below.iter().max_by_key(|(process, (used, depth))| (*used, *depth, std::cmp::Reverse(**process)));
    leads.or_else(largest).map(|(process, _)| *process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn task(pid: u32, ppid: u32, exec_ns: u64) -> Task {
        Task { pid, tgid: pid, ppid, exec_ns, comm: format!("p{pid}"), ..Task::default() }
    }

    fn trees(tasks: Vec<Task>, groups: Vec<Cgroup>) -> Vec<(String, Option<u32>, usize)> {
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some(tasks);
            tables.cgroups = Some(groups);
        });
        let all = TaskTrees::of(&host.ev()).all;
        all.into_iter()
            .map(|tree| (tree.subject(&host.ev()).name, tree.first(&host.ev()), tree.tasks.len()))
            .collect()
    }

    #[test]
    fn without_groups_a_tree_is_what_init_has_started_and_is_called_by_who_leads_it() {
        let tasks = vec![
            task(1, 0, 1),
            task(10, 1, 2),
            task(11, 10, 3),
            task(12, 11, 500),
            task(13, 11, 500),
            task(20, 1, 9),
        ];
        let told = trees(tasks, Vec::new());
        assert_eq!(told.len(), 3);
        assert!(
            told.contains(&("p11".into(), Some(11), 4)),
            "make, not the shell, nor one of the compilers: {told:?}"
        );
        assert!(told.contains(&("p20".into(), Some(20), 1)), "{told:?}");
    }

    #[test]
    fn a_service_is_one_tree_where_its_controller_stops_above_it() {
        let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
        let groups = vec![
            group(5, "/system.slice"),
            group(6, "/system.slice/a.service"),
            group(7, "/system.slice/b.service"),
        ];
        let of = |pid, unified_cgroup| Task { cpu_cgroup: 5, unified_cgroup, ..task(pid, 1, 5) };
        let told = trees(vec![of(2, 6), of(3, 7)], groups);
        let names: BTreeSet<&str> = told.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["a.service", "b.service"]));
    }

    #[test]
    fn who_has_ended_is_of_its_parents_session_and_rows_of_several_of_who_started_them() {
        let of = |pid, ppid, autogroup| Task { autogroup, ..task(pid, ppid, 5) };
        let ended = Task { ended: true, ..of(12, 10, 0) };
        let folded = Task { tgid: 0, folded: 30, ..of(13, 10, 0) };
        let told = trees(vec![of(10, 1, 7), of(11, 10, 7), ended, folded, of(20, 1, 8)], Vec::new());
        let sizes: BTreeSet<usize> = told.iter().map(|(.., size)| *size).collect();
        assert_eq!(sizes, BTreeSet::from([4, 1]), "{told:?}");
        assert!(told.iter().all(|(_, first, _)| *first != Some(0)));
    }

    #[test]
    fn sessions_of_one_group_are_trees_of_their_own_unless_a_program_gives_each_of_its_processes_one() {
        let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
        let of = |pid: u32, ppid, session, comm: &str| Task {
            session,
            cpu_cgroup: 5,
            comm: comm.into(),
            ..task(pid, ppid, 5)
        };
        let tasks = vec![
            of(10, 1, 10, "sh"),
            of(20, 10, 20, "make"),
            of(21, 20, 20, "cc1"),
            Task { tgid: 0, folded: 7, ..of(22, 20, 0, "cc1") },
            Task { ended: true, ..of(23, 20, 0, "ld") },
            of(30, 10, 30, "postgres"),
            of(31, 30, 31, "postgres"),
            of(32, 30, 32, "postgres"),
            // Elsewhere there is one session, and so no part of it.
            Task { cpu_cgroup: 6, ..of(40, 10, 10, "b") },
        ];
        let told = trees(tasks, vec![group(5, "/a"), group(6, "/b")]);
        let firsts: BTreeSet<(Option<u32>, usize)> =
            told.iter().map(|(_, first, size)| (*first, *size)).collect();
        let expected = [(Some(10), 1), (Some(20), 4), (Some(30), 3), (Some(40), 1)];
        assert_eq!(firsts, BTreeSet::from(expected), "{told:?}");
    }

    /// A script that starts two others with setsid(1): who waits for a disk behind the other is another's victim.
    #[test]
    fn scripts_that_a_script_starts_in_sessions_of_their_own_are_trees_of_their_own() {
        let group = || vec![Cgroup { id: 5, path: "/a".into(), ..Cgroup::default() }];
        let of = |pid: u32, ppid, comm: &str, line: &str| Task {
            session: pid,
            cpu_cgroup: 5,
            comm: comm.into(),
            cmdline: Some(line.into()),
            ..task(pid, ppid, 5)
        };
        let count = |comm: &str, lines: [&str; 3]| {
            let [top, one, other] = lines;
            let tasks = vec![of(10, 1, comm, top), of(20, 10, comm, one), of(30, 10, comm, other)];
            let host = Fixture::second().with(|tables| {
                tables.tasks = Some(tasks);
                tables.cgroups = Some(group());
            });
            let all = TaskTrees::by_name(&host.ev()).all;
            let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
            (all.len(), at(1).is_kin(at(2)))
        };
        let scripts = |program: &str| ["run", "a", "b"].map(|name| format!("{program}\u{1f}/srv/{name}"));
        let shells = scripts("bash");
        assert_eq!(count("bash", shells.each_ref().map(String::as_str)), (3, false));
        let pythons = scripts("python3");
        assert_eq!(count("python3", pythons.each_ref().map(String::as_str)), (3, false));
        assert_eq!(count("python3", ["python3\u{1f}/srv/pool"; 3]), (1, false), "one that forks");
        assert_eq!(count("postgres", ["postgres: writer", "postgres: main", "postgres: a b"]), (1, false));
    }

    #[test]
    fn what_nobody_in_a_service_has_started_is_a_part_of_it_and_jobs_of_one_name_are_one() {
        let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
        let of = |pid: u32, ppid, group| Task { session: pid, unified_cgroup: group, ..task(pid, ppid, 5) };
        let groups = || vec![group(5, "/system.slice/db.service"), group(6, "/user.slice/session-3.scope")];
        let processes = vec![of(10, 1, 5), of(11, 1, 5), of(20, 1, 6), of(21, 1, 6), of(22, 21, 6)];
        let told = trees(processes, groups());
        let sizes: Vec<usize> = told.iter().map(|(.., size)| *size).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 5);
        assert_eq!(
            told.iter().filter(|(.., size)| *size == 2).count(),
            1,
            "the processes of a database: {told:?}"
        );
        assert_eq!(told.len(), 4, "each job of a login is its own: {told:?}");
        let named = |pid: u32| Task { comm: "dd".into(), ..of(pid, 1, 6) };
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some(vec![named(30), named(31), of(32, 31, 6)]);
            tables.cgroups = Some(groups());
        });
        let all = TaskTrees::by_name(&host.ev()).all;
        assert_eq!(all.len(), 2);
        let (dd, other) = if all[0].alike == 1 { (&all[0], &all[1]) } else { (&all[1], &all[0]) };
        assert_eq!((dd.alike, dd.keeps(), other.alike), (1, "keep", 0));
        assert!(dd.is_kin(other) && other.is_kin(dd) && !dd.is_kin(dd));
    }

    #[test]
    fn copies_of_one_script_are_one_whichever_command_leads_them_and_shells_to_type_in_are_not() {
        let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
        let of = |pid: u32, ppid, session, comm: &str, exec_ns| Task {
            session,
            unified_cgroup: 6,
            comm: comm.into(),
            ..task(pid, ppid, exec_ns)
        };
        let shell = |pid: u32, line: &str| Task { cmdline: Some(line.into()), ..of(pid, 1, pid, "sh", 1) };
        let count = |line: &str, last: &str| {
            let tasks = vec![
                shell(10, line),
                of(11, 10, 10, "gzip", 900),
                shell(20, line),
                of(21, 20, 20, "gzip", 400),
                of(22, 20, 20, "head", 300),
                shell(30, line),
                of(31, 30, 30, last, 800),
            ];
            let host = Fixture::second().with(|tables| {
                tables.tasks = Some(tasks);
                tables.cgroups = Some(vec![group.clone()]);
            });
            TaskTrees::by_name(&host.ev()).all.len()
        };
        let script = "sh\u{1f}-c\u{1f}while :; do head -c 9 f | gzip; done";
        assert_eq!(count(script, "head"), 1);
        assert_eq!(count(script, "python3"), 2, "one script, and another's work");
        assert_eq!(count("sh", "head"), 3);
        assert_eq!(count("sh\u{1f}-i", "head"), 3);
    }

    /// Shells that ran in the window have words, and their copies that waited have none.
    #[test]
    fn a_copy_whose_words_are_not_known_is_one_by_its_name_in_the_kernel() {
        let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
        let count = |words: [Option<&str>; 3]| {
            let shell = |(pid, words): (u32, Option<&str>)| Task {
                session: pid,
                unified_cgroup: 6,
                comm: "sh".into(),
                cmdline: words.map(|words| format!("sh\u{1f}{words}")),
                ..task(pid, 1, 500)
            };
            let host = Fixture::second().with(|tables| {
                tables.tasks = Some([10, 20, 30].into_iter().zip(words).map(shell).collect());
                tables.cgroups = Some(vec![group.clone()]);
            });
            TaskTrees::by_name(&host.ev()).all.len()
        };
        let script = "-c\u{1f}while :; do head -c 9 f | gzip; done";
        assert_eq!(count([Some(script); 3]), 1);
        assert_eq!(count([Some(script), None, Some(script)]), 1);
        assert_eq!(count([Some(script), None, None]), 1);
        let of_two = count([Some("/srv/backup.sh"), None, Some("/srv/check.sh")]);
        assert_eq!(of_two, 3, "of which it is a copy is not known");
    }

    /// The shell at a terminal has started both, and sleeps: it is no copy of the one that is a script of a shell, too.
    #[test]
    fn a_shell_that_sleeps_is_no_copy_of_a_script_that_it_has_started() {
        let of = |pid: u32, ppid, comm: &str, exec_ns, line: Option<&str>| Task {
            session: pid,
            unified_cgroup: 6,
            comm: comm.into(),
            cmdline: line.map(str::to_owned),
            ..task(pid, ppid, exec_ns)
        };
        let writes = "bash\u{1f}-c\u{1f}while :; do dd; done";
        let host = Fixture::second().with(|tables| {
            let tasks = [
                of(10, 1, "bash", 0, None),
                of(20, 10, "bash", 500, Some(writes)),
                of(30, 10, "db", 9, None),
            ];
            tables.tasks = Some(tasks.to_vec());
            tables.cgroups = Some(vec![Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() }]);
        });
        let all = TaskTrees::by_name(&host.ev()).all;
        let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
        assert_eq!(all.len(), 3);
        assert!(!at(1).is_kin(at(2)) && at(0).is_kin(at(2)));
    }

    /// Who manages groups has made those below its own.
    #[test]
    fn a_group_and_one_below_it_are_kin() {
        let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
        let of = |pid: u32, group| Task { unified_cgroup: group, ..task(pid, 1, 5) };
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some(vec![of(10, 5), of(11, 6), of(12, 7), of(13, 8)]);
            let container = format!("/judge/docker-{}.scope", "0123456789abcdef".repeat(4));
            let groups =
                [group(5, "/judge"), group(6, "/judge/box/3"), group(7, "/judges"), group(8, &container)];
            tables.cgroups = Some(groups.to_vec());
        });
        let all = TaskTrees::of(&host.ev()).all;
        let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
        assert!(at(0).is_kin(at(1)) && at(1).is_kin(at(0)));
        assert!(!at(0).is_kin(at(2)) && !at(1).is_kin(at(2)) && !at(0).is_kin(at(0)));
        assert!(!at(0).is_kin(at(3)) && !at(3).is_kin(at(0)), "a container is a matter of its own");
    }

    #[test]
    fn a_group_in_which_nobody_knows_whose_most_was_is_one() {
        let of = |pid: u32, ppid, session| Task { session, unified_cgroup: 6, ..task(pid, ppid, 5) };
        let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
        let lost = Task { tgid: 0, folded: 9, exec_ns: 20_000_000, ..of(40, 0, 0) };
        let told = trees(vec![of(20, 1, 20), of(21, 1, 21), lost], vec![group]);
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn a_container_is_one_tree_whatever_groups_it_has_within_and_a_loop_of_parents_ends() {
        let id = "0123456789abcdef".repeat(4);
        let group = |id: u64, path: String| Cgroup { id, path, ..Cgroup::default() };
        let groups = vec![
            group(5, format!("/docker/{id}/a")),
            group(6, format!("/docker/{id}/b/c")),
            group(7, "/x".into()),
        ];
        let of = |pid, cpu_cgroup| Task { cpu_cgroup, ..task(pid, 1, 5) };
        let told = trees(vec![of(2, 5), of(3, 6), of(4, 7), task(30, 31, 1), task(31, 30, 1)], groups);
        let sizes: BTreeSet<usize> = told.iter().map(|(.., size)| *size).collect();
        assert!(
            told.iter().any(|(name, _, size)| name.contains("docker 0123456789ab") && *size == 2),
            "{told:?}"
        );
        assert_eq!(sizes, BTreeSet::from([1, 2]), "{told:?}");
    }
}
