//! The task tree of each task: it decides which tasks are strangers to each other.

use std::collections::BTreeSet;
use std::rc::Rc;

use whyslow_model::table::Task;
use whyslow_model::{Subject, SubjectKind};

use crate::Evidence;
use crate::MAX_DEPTH;
use crate::hashing::Table;
use crate::task_trees::{TaskTree, TaskTrees};

/// The task trees of one recording.
pub(super) struct Homes {
    trees: Rc<TaskTrees>,
    by_pid: Table<u32, usize>,
    /// The process of each task.
    processes: Table<u32, u32>,
    /// The parent of each process, and the process's name.
    started: Table<u32, (u32, String)>,
}

impl Homes {
    /// Each session is a tree of its own.
    pub fn of(ev: &Evidence<'_>, tasks: &[Task]) -> Self {
        Self::in_trees(ev.trees(), tasks)
    }

    /// Jobs of one name are one tree.
    pub fn by_name(ev: &Evidence<'_>, tasks: &[Task]) -> Self {
        Self::in_trees(ev.trees_by_name(), tasks)
    }

    fn in_trees(trees: Rc<TaskTrees>, tasks: &[Task]) -> Self {
        let members =
            trees.all.iter().enumerate().flat_map(|(tree, it)| it.tasks.iter().map(move |at| (*at, tree)));
        let by_pid = members.filter_map(|(at, tree)| Some((tasks.get(at)?.pid, tree))).collect();
        let known = || tasks.iter().filter(|task| task.tgid != 0);
        let processes = known().map(|task| (task.pid, task.tgid)).collect();
        let mut started: Table<u32, (u32, String)> = Table::default();
        for task in known() {
            let known = started.entry(task.tgid).or_insert_with(|| (task.ppid, task.comm.clone()));
            if task.pid == task.tgid {
                known.1.clone_from(&task.comm);
            }
        }
        Homes { trees, by_pid, processes, started }
    }

    /// Whether a client of the process `service` is a stranger to the service, and to thread `end` at the end of the chain, although one shell may
    /// have started all of them. Strangers do not descend from each other, and do not share name and parent as the ranks of one job do.
    pub fn is_client(&self, service: Option<u32>, client: u32, end: u32) -> bool {
        service.is_some_and(|service| [service, end].iter().all(|other| self.are_strangers(client, *other)))
    }

    /// Neither process descends from the other, and the two do not share name and parent.
    pub fn are_strangers(&self, one: u32, other: u32) -> bool {
        let process = |pid: u32| self.processes.get(&pid).copied();
        let Some((one, other)) = process(one).zip(process(other)) else { return false };
        let Some((up, beside)) = self.above(one).zip(self.above(other)) else { return false };
        !up.contains(&other) && !beside.contains(&one) && self.started.get(&one) != self.started.get(&other)
    }

    /// The process and all its ancestors. `None`: they are not known.
    fn above(&self, process: u32) -> Option<Vec<u32>> {
        let mut all = vec![process];
        for _ in 0..MAX_DEPTH {
            match self.started.get(all.last()?)?.0 {
                0 | 1 => return Some(all),
                parent => all.push(parent),
            }
        }
        None
    }

    /// The place of a task's tree.
    pub fn place(&self, pid: u32) -> Option<usize> {
        self.by_pid.get(&pid).copied()
    }

    pub fn tree(&self, place: usize) -> Option<&TaskTree> {
        self.trees.all.get(place)
    }

    /// Both trees are known, they differ, and neither has started the other.
    pub fn differ(&self, one: u32, other: u32) -> bool {
        let (one, other) = (self.place(one), self.place(other));
        let trees = one.zip(other).filter(|(one, other)| one != other);
        let trees = trees.and_then(|(one, other)| self.tree(one).zip(self.tree(other)));
        trees.is_some_and(|(one, other)| !one.is_kin(other))
    }

    /// The victim as one subject: a task, its process, the tree that holds all victims but not the culprit, or the host.
    pub fn payer(&self, ev: &Evidence<'_>, victims: &[&Task], culprit: Option<u32>) -> Subject {
        let Some((first, others)) = victims.split_first() else { return Subject::host() };
        if others.is_empty() {
            return Subject::new(SubjectKind::Task, first.pid.to_string(), ev.called(first.pid, &first.comm));
        }
        if others.iter().all(|task| task.tgid == first.tgid) {
            let name = ev.process_name(first.tgid, &first.comm);
            return Subject::new(SubjectKind::Task, first.tgid.to_string(), name);
        }
        let place =
            self.place(first.pid).filter(|one| others.iter().all(|task| self.place(task.pid) == Some(*one)));
        let Some(place) = place else {
            return of_one_name(ev, victims).unwrap_or_else(|| first_of(ev, victims, "processes"));
        };
        let is_shared = culprit.is_some_and(|pid| self.place(pid) == Some(place));
        let tree = self.tree(place).filter(|_| !is_shared).map(|tree| tree.subject(ev));
        tree.or_else(|| of_one_name(ev, victims)).unwrap_or_else(|| first_of(ev, victims, "processes"))
    }
}

/// Processes of one name, each started on its own, as one subject with the first of them.
pub(super) fn of_one_name(ev: &Evidence<'_>, victims: &[&Task]) -> Option<Subject> {
    let name = |task: &Task| ev.process_name(task.tgid, &task.comm);
    let (first, others) = victims.split_first()?;
    let own = name(first);
    let are_alike = others.iter().all(|task| name(task) == own);
    are_alike.then(|| first_of(ev, victims, "of this name"))
}

/// "curl and 3 more of this name"; for two processes of different names: both names.
fn first_of(ev: &Evidence<'_>, victims: &[&Task], what: &str) -> Subject {
    let Some(first) = victims.first() else { return Subject::host() };
    let name = |task: &Task| ev.process_name(task.tgid, &task.comm);
    let processes: BTreeSet<u32> = victims.iter().map(|task| task.tgid).collect();
    let other = victims.iter().find(|task| task.tgid != first.tgid && name(task) != name(first));
    let called = match (processes.len().saturating_sub(1), other) {
        (1, Some(other)) => format!("{} and {}", name(first), name(other)),
        (more, _) => format!("{} and {more} more {what}", name(first)),
    };
    Subject::new(SubjectKind::Task, first.tgid.to_string(), called)
}
