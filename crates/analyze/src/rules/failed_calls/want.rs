//! What a call that failed was in want of.

use whyslow_model::resource;
use whyslow_model::table::FailedCall;

/// x86-64 (arch/x86/entry/syscalls/syscall_64.tbl): inotify_init, inotify_add_watch, inotify_init1.
const INOTIFY_INIT: [u32; 2] = [253, 294];
const INOTIFY_ADD_WATCH: u32 = 254;
const CONNECT: u32 = 42;

/// include/uapi/asm-generic/errno-base.h, errno.h
const EAGAIN: u32 = 11;
const ENFILE: u32 = 23;
const EMFILE: u32 = 24;
const ENOSPC: u32 = 28;
const EADDRNOTAVAIL: u32 = 99;
const ECONNREFUSED: u32 = 111;
const EDQUOT: u32 = 122;

/// Their files are the kernel's own: what they have no room for is in no file system (a cpuset without CPUs says ENOSPC).
const OF_THE_KERNEL: [&str; 8] =
    ["cgroup", "cgroup2", "configfs", "debugfs", "proc", "securityfs", "sysfs", "tracefs"];

/// What was used up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    /// Room on a file system, or on what one may have of it. By its device; of a path by the folder.
    Room { place: String, quota: bool },
    /// Files and folders that a user may watch.
    Watches,
    /// Queues of such.
    WatchQueues,
    /// Open files of a process.
    Descriptors(u32),
    /// Open files of the host.
    Files,
    /// Local ports for connections to one place.
    Ports(String),
    /// Tasks.
    Tasks,
    /// A place in the listen queue of a unix socket.
    Accepted(String),
    /// A process that listens at a unix socket.
    Listener(String),
}

impl Want {
    /// A healthy program may meet such a limit once, on purpose or by its own choice of a port, and go on.
    pub fn may_be_probed(&self) -> bool {
        !matches!(self, Want::Room { .. } | Want::Watches | Want::WatchQueues | Want::Files)
    }

    /// Its name in the table of resources; `None`: what is wanted has no measure.
    pub fn resource(&self, of: &str) -> Option<String> {
        Some(match self {
            Want::Room { .. } => format!("room on {of}"),
            Want::Watches => "inotify watches".to_owned(),
            Want::WatchQueues => "inotify instances".to_owned(),
            Want::Descriptors(pid) => format!("open files of pid {pid}"),
            Want::Files => resource::OPEN_FILES.to_owned(),
            Want::Ports(peer) => format!("local ports to {peer}"),
            // The host's, a user's or a group's: which was met is not known.
            Want::Tasks => "a limit on tasks".to_owned(),
            Want::Accepted(socket) => format!("listen queue of {socket}"),
            Want::Listener(_) => return None,
        })
    }

    /// `None`: a call may fail so where nothing is used up.
    pub fn of(row: &FailedCall) -> Option<Self> {
        match row.error {
            ENOSPC if row.syscall == INOTIFY_ADD_WATCH => Some(Want::Watches),
            ENOSPC | EDQUOT => Some(Want::Room { place: place(row)?, quota: row.error == EDQUOT }),
            EMFILE if INOTIFY_INIT.contains(&row.syscall) => Some(Want::WatchQueues),
            EMFILE => Some(Want::Descriptors(row.tgid)),
            ENFILE => Some(Want::Files),
            // A host without an address of IPv6 says the same of each connection (net/ipv6/tcp_ipv6.c).
            EADDRNOTAVAIL if !row.peer.is_empty() && !row.peer.starts_with('[') => {
                Some(Want::Ports(row.peer.clone()))
            }
            EAGAIN | ECONNREFUSED if row.syscall == CONNECT && row.file.is_empty() => None,
            EAGAIN if row.syscall == CONNECT => Some(Want::Accepted(row.file.clone())),
            ECONNREFUSED if row.syscall == CONNECT => Some(Want::Listener(row.file.clone())),
            EAGAIN => Some(Want::Tasks),
            _ => None,
        }
    }
}

/// Which file system, as far as it is known.
fn place(row: &FailedCall) -> Option<String> {
    if !row.dev.is_empty() {
        return (!OF_THE_KERNEL.contains(&row.file_system.as_str())).then(|| row.dev.clone());
    }
    // An open file that is none: /dev/full.
    if !row.file_system.is_empty() || row.file.is_empty() {
        return None;
    }
    let folder = row.file.rsplit_once('/').map_or("", |(folder, _)| folder);
    match row.file.starts_with('/') {
        // There a call means something else: a group, a terminal.
        true if ["/proc", "/sys", "/dev"]
            .iter()
            .any(|of| folder == *of || folder.starts_with(&format!("{of}/"))) =>
        {
            None
        }
        true if folder.is_empty() => Some("/".to_owned()),
        true => Some(folder.to_owned()),
        // Below a folder that the call does not name.
        false => Some("its folder".to_owned()),
    }
}
