//! What the host has of something, how much of it was taken in the window, and whose.

use serde::Serialize;

use crate::Share;

/// The CPUs.
pub const CPUS: &str = "CPUs";
/// The host's memory.
pub const MEMORY: &str = "memory";
/// Open files of the host (fs.file-max).
pub const OPEN_FILES: &str = "open files";
/// Tasks of the host (kernel.pid_max, kernel.threads-max).
pub const TASKS: &str = "tasks";
/// Entries of the table of tracked connections (nf_conntrack_max).
pub const CONNTRACK: &str = "tracked connections";

/// One resource, or a limit on it that was met.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Resource {
    /// "CPUs", "memory", "vda", "eth0", "CPU quota of /web": as `Finding::resource` has it.
    pub name: String,
    /// How much, of how much: "1.9 of 2", "480 of 500", "12 MiB/s read, 3.1 MiB/s written"; "": not known.
    pub amount: String,
    /// That part of it was in use; `None`: it has no limit, or that is not known.
    pub used: Option<Share>,
    /// What waited for it, what it refused, or how often it was met, in words; `None`: nothing, or it is not known.
    pub saturated: Option<String>,
    /// What it refused in the window: packets, calls, processes that were killed; `None`: not counted.
    pub errors: Option<u64>,
    /// What took most of it.
    pub by: Option<String>,
    /// Victim of the first cause that is about it.
    pub paid_by: Option<String>,
}

/// The table of tracked connections of one network namespace.
#[must_use]
pub fn conntrack_of(netns: &str) -> String {
    format!("{CONNTRACK} of network namespace {netns}")
}

/// A group's CPU quota.
#[must_use]
pub fn cpu_quota(group: &str) -> String {
    format!("CPU quota of {group}")
}

/// A group's limit on memory.
#[must_use]
pub fn memory_limit(group: &str) -> String {
    format!("memory limit of {group}")
}
