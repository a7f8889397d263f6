//! The resource that a failed call needed.

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

/// File systems of the kernel itself: ENOSPC there does not mean that a file system is full (a cpuset without CPUs returns ENOSPC).
const OF_THE_KERNEL: [&str; 8] =
    ["cgroup", "cgroup2", "configfs", "debugfs", "proc", "securityfs", "sysfs", "tracefs"];

/// The resource that was used up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    /// Room on a file system, or in a quota there. `place`: the device; for a call with a path, the folder.
    Room { place: String, quota: bool },
    /// Files and folders that a user watches.
    Watches,
    /// Inotify instances of a user.
    WatchQueues,
    /// Open files of a process.
    Descriptors(u32),
    /// Open files of the host.
    Files,
    /// Local ports for connections to one address.
    Ports(String),
    /// Tasks.
    Tasks,
    /// A place in the listen queue of a unix socket.
    Accepted(String),
    /// A process that listens at a unix socket.
    Listener(String),
}

impl Want {
    /// A healthy program may reach such a limit once, on purpose or by its own choice of a port, and go on.
    pub fn may_be_probed(&self) -> bool {
        !matches!(self, Want::Room { .. } | Want::Watches | Want::WatchQueues | Want::Files)
    }

    /// Its name in the table of resources; `None`: the resource has no measure.
    pub fn resource(&self, of: &str) -> Option<String> {
        Some(match self {
            Want::Room { .. } => format!("room on {of}"),
            Want::Watches => "inotify watches".to_owned(),
            Want::WatchQueues => "inotify instances".to_owned(),
            Want::Descriptors(pid) => format!("open files of pid {pid}"),
            Want::Files => resource::OPEN_FILES.to_owned(),
            Want::Ports(peer) => format!("local ports to {peer}"),
            // The limit of the host, a user or a cgroup: which of them was reached is not known.
            Want::Tasks => "a limit on tasks".to_owned(),
            Want::Accepted(socket) => format!("listen queue of {socket}"),
            Want::Listener(_) => return None,
        })
    }

    /// `None`: a call can also fail like this where nothing is used up.
    pub fn of(row: &FailedCall) -> Option<Self> {
        match row.error {
            ENOSPC if row.syscall == INOTIFY_ADD_WATCH => Some(Want::Watches),
            ENOSPC | EDQUOT => Some(Want::Room { place: place(row)?, quota: row.error == EDQUOT }),
            EMFILE if INOTIFY_INIT.contains(&row.syscall) => Some(Want::WatchQueues),
            EMFILE => Some(Want::Descriptors(row.tgid)),
            ENFILE => Some(Want::Files),
            // On a host without an IPv6 address each IPv6 connection fails with the same error (net/ipv6/tcp_ipv6.c).
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

/// The file system of the call, as far as it is known.
fn place(row: &FailedCall) -> Option<String> {
    if !row.dev.is_empty() {
        return (!OF_THE_KERNEL.contains(&row.file_system.as_str())).then(|| row.dev.clone());
    }
    // An open file without a file system: /dev/full.
    if !row.file_system.is_empty() || row.file.is_empty() {
        return None;
    }
    let folder = row.file.rsplit_once('/').map_or("", |(folder, _)| folder);
    match row.file.starts_with('/') {
        // There a call is about something else: a cgroup, a terminal.
        true if ["/proc", "/sys", "/dev"]
            .iter()
            .any(|of| folder == *of || folder.starts_with(&format!("{of}/"))) =>
        {
            None
        }
        true if folder.is_empty() => Some("/".to_owned()),
        true => Some(folder.to_owned()),
        // The path starts at a folder that the call does not name.
        false => Some("its folder".to_owned()),
    }
}
