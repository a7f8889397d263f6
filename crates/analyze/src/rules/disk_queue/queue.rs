//! The requests at each disk, by the tree of tasks that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::{Disk, IoFile, Task};

use super::super::homes::Homes;
use crate::self_inflicted;

/// From this many requests on, requests that met no other one show how fast a disk is.
const ENOUGH_ALONE: u64 = 5;
/// A disk that got this part of all that was written counts as the only one.
const ONE_DISK: f64 = 0.9;

/// The owner of requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    Tree(usize),
    /// A process that has ended and has no row of its own, or a kernel thread that does not work for a known tree.
    Process(String, u32),
}

/// The sum of some requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub requests: f64,
    pub bytes: f64,
    /// The time from being queued until done, summed.
    pub ns: f64,
    /// ... the part of it before the requests were handed to the disk, which had no room.
    pub queued: f64,
}

impl Load {
    pub fn of(row: &IoFile) -> Self {
        let ns = row.device_ns.saturating_add(row.queue_ns) as f64;
        Load { requests: row.requests as f64, bytes: row.bytes as f64, ns, queued: row.queue_ns as f64 }
    }

    fn add(&mut self, more: Load, part: f64) {
        self.requests += part * more.requests;
        self.bytes += part * more.bytes;
        self.ns += part * more.ns;
        self.queued += part * more.queued;
    }

    pub fn each(&self) -> Duration {
        Duration::from_nanos(if self.requests >= 1.0 { self.ns / self.requests } else { 0.0 } as u64)
    }
}

/// The requests of a disk in the window.
#[derive(Debug, Default)]
pub(super) struct Queue<'r> {
    pub device: &'r str,
    pub dev: &'r str,
    /// Reads, writes, and everything else.
    pub by_asker: BTreeMap<Asker, [Load; 3]>,
    /// The process of each owner whose requests took longest: their time, and its name.
    pub most: BTreeMap<Asker, (u64, &'r str)>,
    pub all: [Load; 3],
    /// Requests that met no other request, by cgroup.
    alone: BTreeMap<u64, [Load; 3]>,
}

/// The index of a direction. A flush or a discard does not show how long a write takes.
fn direction(op: &str) -> usize {
    match op {
        "read" => 0,
        "write" => 1,
        _ => 2,
    }
}

pub(super) fn whole(loads: &[Load; 3]) -> Load {
    let mut sum = Load::default();
    loads.iter().for_each(|load| sum.add(*load, 1.0));
    sum
}

pub(super) fn queues<'r>(
    rows: &'r [Disk],
    files: &'r [IoFile],
    tasks: &[Task],
    homes: &Homes,
) -> BTreeMap<&'r str, Queue<'r>> {
    let mut queues: BTreeMap<&str, Queue<'_>> = BTreeMap::new();
    for row in rows {
        let queue = queues.entry(&row.dev).or_default();
        (queue.device, queue.dev) = (&row.device, &row.dev);
        let alone = Load {
            requests: row.alone as f64,
            bytes: row.alone_bytes as f64,
            ns: row.alone_ns as f64,
            queued: 0.0,
        };
        queue.alone.entry(row.cgroup).or_default()[direction(&row.op)].add(alone, 1.0);
    }
    let wrote = wrote(tasks, homes);
    let kernels: BTreeMap<u32, bool> = tasks.iter().map(|task| (task.pid, task.kthread)).collect();
    let wrote = told_of_one_disk(rows, wrote);
    for row in files {
        let Some(queue) = queues.get_mut(row.dev.as_str()) else { continue };
        let (load, at) = (Load::of(row), direction(&row.op));
        queue.all[at].add(load, 1.0);
        let mut add = |asker: Asker, part: f64| {
            let most = queue.most.entry(asker.clone()).or_default();
            *most = (*most).max((row.device_ns.saturating_add(row.queue_ns), &row.comm));
            queue.by_asker.entry(asker).or_default()[at].add(load, part);
        };
        match (kernels.get(&row.tgid), homes.place(row.tgid)) {
            _ if row.tgid == 0 => {}
            (Some(true), _) if row.op == "write" && self_inflicted::is_writers_name(&row.comm) => {
                let of_disk = wrote.iter().filter(|(dev, _)| *dev == row.dev);
                of_disk.flat_map(|(_, parts)| parts).for_each(|(tree, part)| add(Asker::Tree(*tree), *part));
            }
            (_, Some(tree)) => add(Asker::Tree(tree), 1.0),
            _ => add(Asker::Process(row.comm.clone(), row.tgid), 1.0),
        }
    }
    queues
}

/// Bytes that each tree wrote to files.
fn wrote(tasks: &[Task], homes: &Homes) -> BTreeMap<usize, f64> {
    let mut wrote: BTreeMap<usize, f64> = BTreeMap::new();
    for task in tasks.iter().filter(|task| !task.kthread) {
        if let (Some(tree), Some(bytes)) = (homes.place(task.pid), task.written_bytes) {
            *wrote.entry(tree).or_default() += bytes as f64;
        }
    }
    wrote.retain(|_, bytes| *bytes > 0.0);
    wrote
}

/// The disk to which nearly all written bytes went, and the part of each tree. Written bytes are counted for all disks together, and for
/// network file systems, too: if the disks did not write as much, or if several disks did, the writers of a disk's pages are not known.
fn told_of_one_disk(rows: &[Disk], wrote: BTreeMap<usize, f64>) -> Option<(&str, Vec<(usize, f64)>)> {
    let mut disks: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.op == "write") {
        *disks.entry(&row.dev).or_default() += row.bytes as f64;
    }
    let all: f64 = disks.values().sum();
    let (dev, most) = disks.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let sum: f64 = wrote.values().sum();
    let is_it = most >= ONE_DISK * all && sum >= most / 2.0 && sum <= most * 2.0;
    is_it.then(|| (dev, wrote.into_iter().map(|(tree, bytes)| (tree, bytes / sum)).collect()))
}

impl Queue<'_> {
    pub fn of(&self, asker: &Asker) -> [Load; 3] {
        self.by_asker.get(asker).copied().unwrap_or_default()
    }

    /// The owner whose requests took longest, other than `tree`.
    pub fn most_but(&self, tree: Option<usize>) -> Option<(&Asker, Load)> {
        let others =
            self.by_asker.iter().filter(|(asker, _)| tree.is_none_or(|tree| **asker != Asker::Tree(tree)));
        others.map(|(asker, loads)| (asker, whole(loads))).max_by(|a, b| a.1.ns.total_cmp(&b.1.ns))
    }

    /// How long a request like `like` would take at most if it met no other request; `None`: not known.
    pub fn quiet(&self, at: usize, groups: &BTreeSet<u64>, like: &Load) -> Option<Duration> {
        // Only requests of these cgroups count: requests of others may be close on the disk to their previous ones.
        let mut alone = Load::default();
        let own = self.alone.iter().filter(|(group, _)| groups.contains(group));
        own.for_each(|(_, loads)| alone.add(loads[at], 1.0));
        if (alone.requests as u64) < ENOUGH_ALONE {
            return None;
        }
        let (own, usual) = (like.bytes / like.requests.max(1.0), alone.bytes / alone.requests);
        Some(alone.each().mul_f64((own / usual.max(1.0)).max(1.0)))
    }
}
