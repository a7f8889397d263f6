//! Names of kernel locks. Most kernels have no symbols for data: then the functions that wait for a lock give its name.

use std::collections::BTreeMap;

use crate::hashing::Table;
use whyslow_model::Recording;
use whyslow_model::timeline::{LockKind, Target};
use whyslow_model::wait::NamedBy;

use super::lock_sites::{BY_FUNCTION, Of};
use super::locks::{innermost, outside};
use super::wait::meaningful;
use super::{Stacks, WaitContext};

/// A lock's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockName {
    /// "cgroup_mutex", "mmap_lock of postgres (4242)", "taken by foo", "taken by foo, probably cgroup_mutex".
    pub name: String,
    /// The source of the name.
    pub by: NamedBy,
    /// How certain the name is: 4 a known name ([`SURE`]), 3 a known name without its owner, 2 a probable name, 1 the function that
    /// takes the lock, 0 a number.
    pub rank: u8,
}

/// No waiter could give a better name.
const SURE: u8 = 4;
/// A known lock of an unknown owner.
const SOMEBODYS: u8 = 3;
/// The name comes from a caller further out.
const PROBABLE: u8 = 2;

/// A call site that waited for a lock.
pub(crate) struct Site<'a> {
    pub kind: LockKind,
    /// Meaningful frames, innermost first.
    pub frames: &'a [&'a str],
    /// The waiting process: name and id.
    pub process: Option<(&'a str, u32)>,
    pub target: Option<&'a Target>,
}

/// The function outside the slow path takes the lock. If that function is in no table it may be a wrapper: then one of its
/// nearest callers gives the lock a probable name.
const NEAR: usize = 6;

/// Functions that call code of a driver, a file system or a module through a table of function pointers. A lock below them is as
/// likely one of that code as one of theirs: these functions name only a lock that they take themselves.
const CALLS_ANYTHING: &[&str] = &[
    "seq_read_iter",
    "seq_read",
    "seq_lseek",
    "traverse",
    "kernfs_fop_read_iter",
    "kernfs_fop_write_iter",
    "kernfs_file_read_iter",
    "kernfs_seq_start",
    "kernfs_fop_open",
    "kernfs_fop_release",
    "queue_attr_store",
    "queue_attr_show",
    "show",
    "store",
    "vfs_write",
    "iterate_dir",
    "path_openat",
    "do_epoll_ctl",
    "ep_send_events",
    "ep_poll",
    "eventpoll_release_file",
    "__ep_eventpoll_poll",
    "ep_eventpoll_poll",
    "iterate_supers",
    "__driver_attach",
    "__device_attach",
    "device_del",
    "device_release_driver",
    "device_release_driver_internal",
    "blkdev_get_whole",
    "bdev_open",
    "blkdev_get_by_dev",
    "bdev_release",
    "blkdev_put",
    "do_user_addr_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
    "shrink_slab",
    "shrink_slab_memcg",
    "dev_ioctl",
    "genl_rcv_msg",
    "netlink_dump",
    "ops_exit_list",
    "setup_net",
    "cleanup_net",
    "do_exit_mm",
    "exit_mm",
];

/// The best name that one call site gives.
pub(crate) fn name(site: &Site<'_>, address: u64) -> LockName {
    let taken = outside(site.frames);
    let Some(first) = taken.first() else {
        return LockName { name: format!("no. {address}"), by: NamedBy::Number, rank: 0 };
    };
    if let Some((name, rank)) = known(site, first) {
        return LockName { name, by: NamedBy::CallSites, rank };
    }
    let further = taken.iter().take(NEAR).skip(1).filter(|function| !CALLS_ANYTHING.contains(function));
    match further.filter_map(|function| known(site, function)).next() {
        Some((name, _)) => LockName {
            name: format!("taken by {first}, probably {name}"),
            by: NamedBy::Inferred,
            rank: PROBABLE,
        },
        None => LockName { name: format!("taken by {first}"), by: NamedBy::CallSites, rank: 1 },
    }
}

/// A name from the table, and its rank.
fn known(site: &Site<'_>, function: &str) -> Option<(String, u8)> {
    let fits = |kinds: &[LockKind]| site.kind == LockKind::Unknown || kinds.contains(&site.kind);
    let row = BY_FUNCTION.get(function)?.iter().find(|row| fits(row.kinds))?;
    let file = site.target.filter(|target| !target.name.is_empty());
    Some(match row.of {
        Of::Host => (row.name.to_owned(), SURE),
        Of::Process => match site.process {
            Some((name, tgid)) => (format!("{} of {name} ({tgid})", row.name), SURE),
            None => (format!("{} of a process", row.name), SOMEBODYS),
        },
        Of::OtherProcess => (format!("{} of another process", row.name), SOMEBODYS),
        Of::Directory => match file.filter(|target| target.kind == "dir") {
            Some(target) => (format!("{} of directory {}", row.name, target.name), SURE),
            None => (format!("{} of a directory", row.name), SOMEBODYS),
        },
        Of::File => match file.filter(|target| target.kind == "file") {
            Some(target) => (format!("{} of {}", row.name, target.name), SURE),
            None => (format!("{} of a file", row.name), SOMEBODYS),
        },
        // /proc/PID/maps and /proc/PID/mountinfo begin with functions of the same name, and so do the lists of two modules.
        Of::SequenceFile => match file.map(|target| target.name.as_str()) {
            Some("mountinfo" | "mounts" | "mountstats") => ("namespace_sem".to_owned(), SURE),
            _ => ("mmap_lock of another process".to_owned(), SOMEBODYS),
        },
        Of::CpufreqFile => {
            file.filter(|target| target.name.starts_with("scaling_") || target.name.starts_with("cpuinfo_"))?;
            (row.name.to_owned(), SURE)
        }
    })
}

/// The name of the lock at an address, from all its waiters.
pub(crate) fn lock_name(stacks: &Stacks<'_>, address: u64, kind: LockKind) -> LockName {
    let nameless = || name(&Site { kind, frames: &[], process: None, target: None }, address);
    if address == 0 {
        let name = "of several, for which there was no room".to_owned();
        return LockName { name, by: NamedBy::Number, rank: 0 };
    }
    stacks.lock(address).cloned().unwrap_or_else(nameless)
}

/// Names by address, from all waiters.
#[derive(Debug, Default)]
pub(crate) struct LockNames(Table<u64, LockName>);

impl LockNames {
    /// From the waits and the contention that a recording holds: the surest name wins, then the first.
    pub fn of(recording: &Recording, stacks: &Stacks<'_>) -> Self {
        let mut names = LockNames::default();
        // Waits by process, for each lock.
        let mut waiting: Table<u64, BTreeMap<u32, u64>> = Table::default();
        for span in recording.tables.spans.iter().flatten() {
            let Some(lock) = span.lock.as_ref().filter(|lock| lock.address != 0) else { continue };
            *waiting.entry(lock.address).or_default().entry(span.tgid).or_default() += 1;
            if names.at(lock.address).is_some_and(|name| name.rank == SURE) {
                continue;
            }
            let wait = WaitContext::of(span, stacks);
            // A stack from another moment (before the task went to sleep for the lock) does not show the lock.
            if innermost(wait.frames).is_none() {
                continue;
            }
            let process = stacks.process(span.tgid).unwrap_or(&span.comm);
            let site = Site {
                kind: lock.kind,
                frames: wait.frames,
                process: Some((process, span.tgid)),
                target: span.target.as_ref(),
            };
            names.better(lock.address, name(&site, lock.address));
        }
        for row in recording.tables.blocked.iter().flatten() {
            let Some(lock) = row.lock.as_ref().filter(|lock| lock.address != 0) else { continue };
            let frames = meaningful(stacks.kernel(row.stack));
            if innermost(&frames).is_some() {
                let process = Some((stacks.process(row.tgid).unwrap_or(&row.comm), row.tgid));
                names.better(
                    lock.address,
                    name(&Site { kind: lock.kind, frames: &frames, process, target: None }, lock.address),
                );
            }
        }
        for lock in recording.tables.locks.iter().flatten() {
            let frames = meaningful(stacks.kernel(lock.stack));
            // A row of contention does not name the process; tasks that wait for an mmap_lock belong to its process, as a rule.
            let waiters = waiting.get(&lock.address);
            let process = waiters.and_then(|by| by.iter().max_by_key(|(_, count)| **count));
            let process = process.map(|(tgid, _)| (stacks.process(*tgid).unwrap_or("a process"), *tgid));
            let site = Site { kind: lock.kind, frames: &frames, process, target: None };
            names.better(lock.address, name(&site, lock.address));
        }
        names
    }

    fn better(&mut self, address: u64, name: LockName) {
        match self.0.get_mut(&address) {
            Some(known) if known.rank >= name.rank => {}
            Some(known) => *known = name,
            None => {
                self.0.insert(address, name);
            }
        }
    }

    pub fn at(&self, address: u64) -> Option<&LockName> {
        self.0.get(&address)
    }
}
