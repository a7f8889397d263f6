//! Names of kernel locks. Most kernels have no symbols for data: then those who wait for a lock name it.

use std::collections::HashMap;

use whyslow_model::Recording;
use whyslow_model::timeline::{LockKind, Target};

use super::lock_sites::{BY_FUNCTION, Of};
use super::locks::{innermost, outside};
use super::wait::meaningful;
use super::{Stacks, Wait};

/// A lock's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockName {
    /// "cgroup_mutex", "mmap_lock of postgres (4242)", "taken by foo".
    pub name: String,
    /// "call sites", "address".
    pub by: &'static str,
    /// How sure it is: 3 a known name ([`SURE`]), 2 without saying whose, 1 the function that takes it, 0 an address.
    pub rank: u8,
}

/// No waiter could name it better.
const SURE: u8 = 3;

/// Where somebody waited for a lock.
pub(crate) struct Site<'a> {
    pub kind: LockKind,
    /// Meaningful frames, innermost first.
    pub frames: &'a [&'a str],
    pub tgid: u32,
    pub process: &'a str,
    pub target: Option<&'a Target>,
}

/// A lock is taken by the function outside of the slow path or, where that is a wrapper, by one of its nearest callers.
const NEAR: usize = 6;

/// The best name that one call site gives.
pub(crate) fn name(site: &Site<'_>, address: u64) -> LockName {
    let taken = outside(site.frames);
    let known = taken.iter().take(NEAR).find_map(|function| known(site, function));
    if let Some((name, rank)) = known {
        return LockName { name, by: "call sites", rank };
    }
    match taken.first() {
        Some(function) => LockName { name: format!("taken by {function}"), by: "call sites", rank: 1 },
        None => LockName { name: format!("at {address:#x}"), by: "address", rank: 0 },
    }
}

/// A name from the table, and its rank.
fn known(site: &Site<'_>, function: &str) -> Option<(String, u8)> {
    let fits = |kinds: &[LockKind]| site.kind == LockKind::Unknown || kinds.contains(&site.kind);
    let row = BY_FUNCTION.get(function)?.iter().find(|row| fits(row.kinds))?;
    let file = site.target.filter(|target| !target.name.is_empty());
    Some(match row.of {
        Of::Host => (row.name.to_owned(), SURE),
        Of::Process => (format!("{} of {} ({})", row.name, site.process, site.tgid), SURE),
        Of::OtherProcess => (format!("{} of another process", row.name), 2),
        Of::Directory => match file.filter(|target| target.kind == "dir") {
            Some(target) => (format!("{} of directory {}", row.name, target.name), SURE),
            None => (format!("{} of a directory", row.name), 2),
        },
        Of::File => match file.filter(|target| target.kind == "file") {
            Some(target) => (format!("{} of {}", row.name, target.name), SURE),
            None => (format!("{} of a file", row.name), 2),
        },
        // /proc/PID/maps and /proc/PID/mountinfo begin with functions of the same name, as do two modules' lists.
        Of::SequenceFile => match file.map(|target| target.name.as_str()) {
            Some("mountinfo" | "mounts" | "mountstats") => ("namespace_sem".to_owned(), SURE),
            _ => ("mmap_lock of another process".to_owned(), 2),
        },
        Of::CpufreqFile => {
            file.filter(|target| target.name.starts_with("scaling_") || target.name.starts_with("cpuinfo_"))?;
            (row.name.to_owned(), SURE)
        }
    })
}

/// The name of the lock at an address, from all its waiters.
pub(crate) fn lock_name(stacks: &Stacks<'_>, address: u64, kind: LockKind) -> LockName {
    let nameless = || name(&Site { kind, frames: &[], tgid: 0, process: "", target: None }, address);
    stacks.lock(address).cloned().unwrap_or_else(nameless)
}

/// Names by address, from all that waited.
#[derive(Debug, Default)]
pub(crate) struct LockNames(HashMap<u64, LockName>);

impl LockNames {
    /// From the waits and the contention that a recording holds: the surest name wins, then the first.
    pub fn of(recording: &Recording, stacks: &Stacks<'_>) -> Self {
        let mut names = LockNames::default();
        for span in recording.tables.spans.iter().flatten() {
            let Some(lock) = span.lock.as_ref().filter(|lock| lock.address != 0) else { continue };
            if names.at(lock.address).is_some_and(|name| name.rank == SURE) {
                continue;
            }
            let wait = Wait::of(span, stacks);
            // A stack that was taken elsewhere (before it went to sleep for the lock) says nothing of the lock.
            if innermost(&wait.frames).is_none() {
                continue;
            }
            let process = stacks.process(span.tgid).unwrap_or(&span.comm);
            let site = Site {
                kind: lock.kind,
                frames: &wait.frames,
                tgid: span.tgid,
                process,
                target: span.target.as_ref(),
            };
            names.better(lock.address, name(&site, lock.address));
        }
        for lock in recording.tables.locks.iter().flatten() {
            let frames = meaningful(stacks.kernel(lock.stack));
            let site = Site { kind: lock.kind, frames: &frames, tgid: 0, process: "", target: None };
            let mut name = name(&site, lock.address);
            if name.name.ends_with(" of  (0)") {
                // A row of contention does not say whose process it was.
                name.name.truncate(name.name.len() - " of  (0)".len());
                name.name.push_str(" of a process");
                name.rank = 2;
            }
            names.better(lock.address, name);
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
