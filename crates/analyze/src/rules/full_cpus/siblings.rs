//! A service beside a crowd of equal processes. One parent started both in one session and cgroup, so they are one tree, but two parties.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::table::Task;
use whyslow_model::timeline::Span;

use crate::task_trees::TaskTree;
use crate::wait_reasons::task_behind;

/// The crowd has this part of its tree's CPU time. It consists of processes of one name, each of which lived for the whole window.
const CROWD: f64 = 0.9;
/// A process that lived for this part of the window counts as living for the whole window. Jobs of a build start and end within it.
const ALL_THE_TIME: f64 = 0.9;

/// A service works when it is called, and sleeps otherwise. It sleeps at least this often in the window, however long it waited for a CPU
/// each time.
const OFTEN: u64 = 10;
/// A service uses at most this many ns of CPU between two sleeps. A linker or a script of a build wants a CPU until it is done.
const BURST_NS: f64 = 20e6;

/// Parts of a tree.
pub(super) struct Siblings {
    /// The equal processes that fill the CPUs.
    pub crowd: TaskTree,
    /// Other processes that the parent of the crowd started, and that do no work for the crowd.
    pub others: Vec<TaskTree>,
}

#[derive(Debug, Default)]
struct Process<'t> {
    comm: &'t str,
    parent: u32,
    tasks: BTreeSet<usize>,
    used: f64,
    lived: u64,
    sleeps: u64,
}

fn processes<'t>(tasks: &'t [Task], tree: &TaskTree) -> BTreeMap<u32, Process<'t>> {
    let mut all: BTreeMap<u32, Process<'_>> = BTreeMap::new();
    let rows = tree.tasks.iter().filter_map(|at| Some((*at, tasks.get(*at)?)));
    for (at, task) in rows.filter(|(_, task)| task.tgid != 0) {
        let process = all.entry(task.tgid).or_default();
        if task.pid == task.tgid || process.comm.is_empty() {
            process.comm = &task.comm;
        }
        process.parent = task.ppid;
        process.tasks.insert(at);
        process.used += task.exec_ns as f64;
        process.lived = process.lived.max(task.lived_ns);
        process.sleeps = process.sleeps.saturating_add(task.sleep_count);
    }
    all
}

/// `None`: what fills the CPUs is no crowd of equals, or it has no siblings.
pub(super) fn of(tasks: &[Task], spans: &[Span], tree: &TaskTree, window_ns: f64) -> Option<Siblings> {
    let all = processes(tasks, tree);
    let stays = |process: &Process<'_>| process.lived as f64 >= ALL_THE_TIME * window_ns;
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    for process in all.values().filter(|process| stays(process)) {
        *by_name.entry(process.comm).or_default() += process.used;
    }
    let (name, used) = by_name.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if used < CROWD * tree.used_ns as f64 {
        return None;
    }
    let is_of_crowd = |process: &Process<'_>| stays(process) && process.comm == name;
    let crowd: BTreeSet<u32> =
        all.iter().filter(|(_, process)| is_of_crowd(process)).map(|(pid, _)| *pid).collect();
    // Threads of one process are no crowd.
    if crowd.len() < 2 {
        return None;
    }
    let parents: BTreeSet<u32> =
        crowd.iter().filter_map(|pid| all.get(pid)).map(|process| process.parent).collect();
    let serves =
        |process: &Process<'_>| process.sleeps >= OFTEN && process.used <= BURST_NS * process.sleeps as f64;
    let is_beside = |process: &Process<'_>| {
        stays(process) && process.comm != name && parents.contains(&process.parent) && serves(process)
    };
    let mut others: BTreeMap<u32, &Process<'_>> =
        all.iter().filter(|(_, process)| is_beside(process)).map(|(pid, process)| (*pid, process)).collect();
    // A process that wakes the crowd or its parent, or is woken by them, works with the crowd.
    let woken = |span: &Span| task_behind(span).map(|waker| (span.tgid, waker.tgid));
    for (one, other) in spans.iter().filter_map(woken) {
        if [one, other].iter().any(|process| crowd.contains(process) || parents.contains(process)) {
            others.remove(&one);
            others.remove(&other);
        }
    }
    if others.is_empty() {
        return None;
    }
    let others = others.values().map(|process| tree.part(tasks, process.tasks.clone(), 0)).collect();
    let members =
        crowd.iter().filter_map(|pid| all.get(pid)).flat_map(|process| process.tasks.iter().copied());
    Some(Siblings { crowd: tree.part(tasks, members.collect(), crowd.len().saturating_sub(1)), others })
}
