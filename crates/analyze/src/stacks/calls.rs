//! System calls of the watched tasks: where their time went, by call and file.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::cgroup_path::CgroupPath;
use whyslow_model::chain::{CallAccount, SlowCallAccount, StateTime};
use whyslow_model::timeline::{Call, SlowCall, StateTimes};
use whyslow_model::wait::TaskState;
use whyslow_model::{Recording, Share};

use crate::process_names::ProcessNames;
use crate::stacks::syscalls::syscall_name;

mod paths;

/// Single calls that are reported: the slowest.
const SLOWEST: usize = 200;
/// Files of one directory that are listed one by one for a system call; more become one row, so that a directory of sessions or
/// mails does not hide the rest.
const FILES_OF_A_DIRECTORY: usize = 16;

/// Calls by (system call, folded path), the costliest first.
#[must_use]
pub fn calls(recording: &Recording) -> Vec<CallAccount> {
    let rows: Vec<(String, Option<String>, &Call)> = recording
        .tables
        .calls
        .iter()
        .flatten()
        .map(|row| (syscall_name(row.syscall).into_owned(), row.path.as_deref().map(paths::folded), row))
        .collect();
    let crowded = crowded(&rows);
    let mut sums: BTreeMap<(String, Option<String>), Sum<'_>> = BTreeMap::new();
    for (name, path, row) in rows {
        let dir = path.as_deref().and_then(paths::split).map(|(dir, _)| dir.to_owned());
        let dir = dir.filter(|dir| crowded.contains(&(name.clone(), dir.clone())));
        let sum = sums.entry((name, dir.map(|dir| format!("{dir}/*")).or(path))).or_default();
        sum.add(row);
    }
    let mut accounts: Vec<CallAccount> = sums.into_iter().map(|(key, sum)| sum.reported(key)).collect();
    accounts
        .sort_by(|a, b| b.time.cmp(&a.time).then_with(|| (&a.syscall, &a.path).cmp(&(&b.syscall, &b.path))));
    accounts
}

/// (system call, directory) with too many files.
fn crowded(rows: &[(String, Option<String>, &Call)]) -> BTreeSet<(String, String)> {
    let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (name, path, _) in rows {
        if let Some((dir, file)) = path.as_deref().and_then(paths::split) {
            files.entry((name, dir)).or_default().insert(file);
        }
    }
    let many = files.into_iter().filter(|(_, files)| files.len() > FILES_OF_A_DIRECTORY);
    many.map(|((name, dir), _)| (name.to_owned(), dir.to_owned())).collect()
}

#[derive(Default)]
struct Sum<'r> {
    files: BTreeSet<&'r str>,
    count: u64,
    errors: u64,
    total_ns: u64,
    worst_ns: u64,
    split: StateTimes,
}

impl<'r> Sum<'r> {
    fn add(&mut self, row: &'r Call) {
        self.files.extend(row.path.as_deref());
        self.count = self.count.saturating_add(row.count);
        self.errors = self.errors.saturating_add(row.errors);
        self.total_ns = self.total_ns.saturating_add(row.total_ns);
        self.worst_ns = self.worst_ns.max(row.worst_ns);
        let (to, from) = (&mut self.split, &row.split);
        to.running_ns = to.running_ns.saturating_add(from.running_ns);
        to.runnable_ns = to.runnable_ns.saturating_add(from.runnable_ns);
        to.io_ns = to.io_ns.saturating_add(from.io_ns);
        to.blocked_ns = to.blocked_ns.saturating_add(from.blocked_ns);
        to.sleep_ns = to.sleep_ns.saturating_add(from.sleep_ns);
    }

    fn reported(self, (syscall, path): (String, Option<String>)) -> CallAccount {
        let files = self.files.len() as u64;
        CallAccount {
            syscall,
            path,
            files,
            count: self.count,
            errors: self.errors,
            time: Duration::from_nanos(self.total_ns),
            worst: Duration::from_nanos(self.worst_ns),
            running: Duration::from_nanos(self.split.running_ns),
            runnable: Duration::from_nanos(self.split.runnable_ns),
            io_wait: Duration::from_nanos(self.split.io_ns),
            uninterruptible: Duration::from_nanos(self.split.blocked_ns),
            sleeping: Duration::from_nanos(self.split.sleep_ns),
        }
    }
}

/// Single slow calls, the slowest first, with unfolded paths.
#[must_use]
pub fn slow_calls(recording: &Recording) -> Vec<SlowCallAccount> {
    let mut rows: Vec<&SlowCall> = recording.tables.slow_calls.iter().flatten().collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.at_ns, a.pid).cmp(&(b.at_ns, b.pid))));
    rows.truncate(SLOWEST);
    let names = LazyCell::new(|| ProcessNames::in_tables(&recording.tables));
    let contained = contained(recording, &rows);
    rows.into_iter()
        .map(|row| SlowCallAccount {
            at: Duration::from_nanos(row.at_ns),
            pid: row.pid,
            who: names.shown(row.pid, &row.comm),
            syscall: syscall_name(row.syscall).into_owned(),
            path: row.path.clone(),
            host_path: row
                .path
                .as_deref()
                .filter(|_| contained.contains(&row.pid))
                .and_then(|path| on_host(row.pid, path)),
            time: Duration::from_nanos(row.ns),
            open: row.open,
            split: split(&row.split, row.ns),
        })
        .collect()
}

/// Threads of containers among the threads of these calls.
fn contained(recording: &Recording, calls: &[&SlowCall]) -> BTreeSet<u32> {
    let asked: BTreeSet<u32> = calls.iter().map(|call| call.pid).collect();
    let tasks = recording.tables.tasks.iter().flatten().filter(|task| asked.contains(&task.pid));
    let homes: Vec<(u32, [u64; 3])> =
        tasks.map(|task| (task.pid, [task.unified_cgroup, task.cpu_cgroup, task.memory_cgroup])).collect();
    let ids: BTreeSet<u64> = homes.iter().flat_map(|(_, homes)| *homes).collect();
    let is_container =
        |path: &str| CgroupPath::of(path).container.is_some_and(|container| !container.is_monitor);
    let groups = recording.tables.cgroups.iter().flatten();
    let of_containers: BTreeSet<u64> = groups
        .filter(|group| ids.contains(&group.id) && is_container(&group.path))
        .map(|group| group.id)
        .collect();
    let is_in = |homes: &[u64; 3]| homes.iter().any(|home| of_containers.contains(home));
    homes.iter().filter(|(_, homes)| is_in(homes)).map(|(pid, _)| *pid).collect()
}

/// The path below /proc/PID/root, through which the host sees a thread's own root (proc(5)). `None` for a path that leads out of that
/// root, and for one that is no file or has no name.
fn on_host(pid: u32, path: &str) -> Option<String> {
    let is_there = path.starts_with('/') && !path.ends_with(" (deleted)") && !path.ends_with("/[unnamed]");
    let leads_out = path.split('/').any(|part| matches!(part, ".." | "self" | "thread-self"));
    (is_there && !leads_out).then(|| format!("/proc/{pid}/root{path}"))
}

/// A call's time by state, without states that took no time.
fn split(mix: &StateTimes, all_ns: u64) -> Vec<StateTime> {
    let states = [
        (TaskState::Running, mix.running_ns),
        (TaskState::Runnable, mix.runnable_ns),
        (TaskState::IoWait, mix.io_ns),
        (TaskState::Uninterruptible, mix.blocked_ns),
        (TaskState::Sleeping, mix.sleep_ns),
        (TaskState::Unknown, mix.unknown_ns),
    ];
    let spent = states.into_iter().filter(|(_, ns)| *ns > 0);
    let time = |(state, ns): (TaskState, u64)| StateTime {
        state,
        time: Duration::from_nanos(ns),
        share: (all_ns > 0).then(|| Share::of(ns as f64, all_ns as f64)),
    };
    spent.map(time).collect()
}

#[cfg(test)]
mod tests;
