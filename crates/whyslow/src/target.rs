//! The processes that `attach` follows, and when they have ended.

mod cgroup;
mod named;

pub use named::{called, meant, must_be_here};

use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};

/// The user names a process by its pid: the pid must be the same in /proc and in the pid namespace of whyslow.
pub fn numbers_are_ours() -> Result<()> {
    whyslow_probe::why_ambiguous().map_or(Ok(()), |why| Err(anyhow!("cannot follow a process: {why}")))
}

/// Running processes to follow.
#[derive(Debug, Default)]
pub struct Target {
    /// The processes as the user named them.
    pub subject: String,
    /// Their process ids.
    pub pids: Vec<u32>,
    /// Their cgroup (`Cgroup::id`).
    pub cgroup: Option<u64>,
    /// Descriptors that become readable when their process has ended. Empty for a cgroup: other processes may start in it.
    pidfds: Arc<Vec<OwnedFd>>,
}

impl Target {
    /// The processes with these ids.
    pub fn processes(pids: &[u32]) -> Result<Self> {
        let pidfds = Arc::new(pids.iter().map(|pid| open(*pid)).collect::<Result<_>>()?);
        let subject = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Ok(Target { subject, pids: pids.to_vec(), cgroup: None, pidfds })
    }

    /// The processes of a cgroup and of the cgroups below it. `path`: the path below the root of its hierarchy, or its folder.
    pub fn cgroup(path: &str) -> Result<Self> {
        let folders = cgroup::folders(path);
        if folders.is_empty() {
            bail!(
                "cannot attach to cgroup {path}: there is no such cgroup; `cat /proc/PID/cgroup` names a process's \
                 cgroups"
            );
        }
        Self::folders(&format!("cgroup {path}"), path, &folders)
    }

    fn folders(what: &str, subject: &str, folders: &[std::path::PathBuf]) -> Result<Self> {
        let mut pids: Vec<_> = folders.iter().flat_map(|folder| cgroup::processes(folder)).collect();
        pids.sort_unstable();
        pids.dedup();
        if pids.is_empty() {
            bail!(
                "cannot attach to {what}: no process is in it; start it first, or examine the host with `whyslow`"
            );
        }
        let cgroup = folders.iter().find_map(|folder| cgroup::id(folder));
        Ok(Target { subject: subject.to_owned(), pids, cgroup, pidfds: Arc::default() })
    }

    /// Each process with its descriptor, which stays open as long as this target lives.
    pub fn pidfds(&self) -> Vec<(u32, RawFd)> {
        self.pids.iter().copied().zip(self.pidfds.iter().map(AsRawFd::as_raw_fd)).collect()
    }

    /// A descriptor that becomes readable when all processes have ended; `None`: the window does not depend on them.
    pub fn ends(&self) -> Result<Option<OwnedFd>> {
        if let [] | [_] = self.pidfds.as_slice() {
            return self.pidfds.first().map(OwnedFd::try_clone).transpose().context("cannot watch a process");
        }
        let pidfds = Arc::clone(&self.pidfds);
        let (all, ended) = io::pipe().context("cannot watch processes")?;
        // The thread ends with the processes or with whyslow. A pipe without a writer is readable.
        std::thread::spawn(move || {
            for pidfd in pidfds.iter() {
                ready(pidfd.as_raw_fd(), -1);
            }
            drop(ended);
        });
        Ok(Some(all.into()))
    }
}

fn open(pid: u32) -> Result<OwnedFd> {
    // SAFETY: plain numbers; no other code has the descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(why(pid, &io::Error::last_os_error()));
    }
    // SAFETY: the kernel just opened it for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    if ready(pidfd.as_raw_fd(), 0) {
        bail!(
            "cannot attach to process {pid}: it has ended, and its parent has not asked for its status; `ps -e` lists what runs"
        );
    }
    Ok(pidfd)
}

fn why(pid: u32, error: &io::Error) -> anyhow::Error {
    // For the id of a thread pidfd_open(2) fails with EINVAL, since Linux 6.14 with ENOENT.
    if let Some(process) = process_of(pid).filter(|process| *process != pid) {
        return anyhow!("cannot attach to {pid}: it is a thread of process {process}; attach to {process}");
    }
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => {
            anyhow!("cannot attach to process {pid}: there is no such process; `ps -e` lists what runs")
        }
        Some(libc::ENOSYS) => anyhow!("cannot attach to process {pid}: no pidfd; it needs Linux 5.3"),
        _ => anyhow!("cannot attach to process {pid}: {error}"),
    }
}

/// The process that the thread belongs to.
fn process_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Whether `fd` becomes readable within so many milliseconds; -1: waits without a timeout.
fn ready(fd: RawFd, milliseconds: i32) -> bool {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one local pollfd.
        match unsafe { libc::poll(&raw mut wanted, 1, milliseconds) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ready => return ready > 0,
        }
    }
}
