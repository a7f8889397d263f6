//! Protects the host from a live test: one test at a time, bounded in time and memory, nothing left behind.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::{Group, Hierarchies};
use crate::leftovers::{self, Owner};
use crate::spec::{Network, Spec, Work};
use crate::{host, sys, thresholds, work};

/// No live test lasts longer than this on real CPUs.
pub const AT_MOST: Duration = Duration::from_secs(60);
/// Memory limit for all victims of a test.
pub const MEMORY_LIMIT: u64 = 512 << 20;
const PIDS_LIMIT: u64 = 512;
const MUST_BE_AVAILABLE: u64 = 2 << 30;
/// A place on a disk: /tmp may be memory.
const FILES: &str = "/var/tmp";

/// The fence around one live test. Dropping it, also after a panic, ends and removes everything that the test made.
pub struct Fence {
    began: Instant,
    dir: PathBuf,
    top: Group,
    hierarchies: Hierarchies,
    groups: RefCell<Vec<Group>>,
    turns_per_us: f64,
    // Last: fields are dropped in order, and the lock must be held until all is clean.
    _lock: File,
}

impl Fence {
    /// Wait for other live tests to end, remove leftovers of dead tests, check the host, make the groups.
    pub fn enter() -> io::Result<Self> {
        Fence::with_room(MUST_BE_AVAILABLE)
    }

    /// The same with less free memory: a guest exists only for this test.
    pub fn with_room(must_be_available: u64) -> io::Result<Self> {
        if !sys::is_root() {
            return Err(io::Error::other("live tests make cgroups and swap: run them as root"));
        }
        let lock = wait_for_others()?;
        let available = host::available_memory()?;
        if available < must_be_available {
            return Err(io::Error::other(format!(
                "only {} MiB of memory are available; a live test wants {}",
                available >> 20,
                must_be_available >> 20
            )));
        }
        let hierarchies = Hierarchies::here()?;
        leftovers::sweep(&hierarchies, Path::new(FILES));
        let name = Owner::me().name();
        let dir = Path::new(FILES).join(&name);
        leftovers::clear(&dir);
        fs::create_dir(&dir)?;
        let top = Group::make(&hierarchies, &format!("/{name}"))?;
        let turns_per_us = work::turns_per_us();
        let groups = RefCell::new(Vec::new());
        let fence = Fence { began: Instant::now(), dir, top, hierarchies, groups, turns_per_us, _lock: lock };
        fence.top.set_memory_limit(Some(MEMORY_LIMIT))?;
        fence.top.set_pids_limit(PIDS_LIMIT)?;
        Ok(fence)
    }

    /// A cgroup inside the fence.
    pub fn group(&self, label: &str) -> io::Result<Group> {
        let group = Group::make(&self.hierarchies, &format!("{}/{label}", self.top.path()))?;
        self.groups.borrow_mut().push(group.clone());
        Ok(group)
    }

    /// A directory on a disk, for files of the test.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The group that holds all other groups: no victim is outside it.
    #[must_use]
    pub fn top(&self) -> &Group {
        &self.top
    }

    /// Time left for the test.
    #[must_use]
    pub fn left(&self) -> Duration {
        thresholds::patient(AT_MOST).saturating_sub(self.began.elapsed())
    }

    /// Fail if the test has used up its time.
    pub fn check_time(&self) -> io::Result<()> {
        if self.left().is_zero() {
            let why = format!("a live test may last {} s", thresholds::patient(AT_MOST).as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        Ok(())
    }

    /// The spec for a victim in `group`.
    #[must_use]
    pub fn spec(&self, group: &Group, comm: &str, threads: u64, work: Work) -> Spec {
        Spec {
            comm: comm.to_owned(),
            threads: threads as usize,
            apart: false,
            work,
            join: group.procs_files(),
            among: Vec::new(),
            ledger: -1,
            network: Network::Shared,
            turns_per_us: self.turns_per_us,
            lifetime_s: self.left().as_secs().max(1) as u32,
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        for group in self.groups.borrow().iter().rev() {
            group.remove();
        }
        self.top.remove();
        leftovers::clear(&self.dir);
    }
}

/// Wait until no other live test runs. No other test begins while the file is open.
pub fn wait_for_others() -> io::Result<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(Path::new(FILES).join("whyslow-test.lock"))?;
    sys::lock(&lock)?;
    Ok(lock)
}
