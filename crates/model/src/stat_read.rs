//! Reads of files that the kernel makes when they are read: statistics in /proc, /sys and cgroups.

use serde::{Deserialize, Serialize};

use crate::timeline::is_default;

/// How long a read takes that is long: as long a CPU that makes statistics keeps others waiting, which a user sees in answers over the network.
pub const LONG_READ_NS: u64 = 10_000_000;

/// What one process read of files of one name, as far as samples of the CPUs met it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatRead {
    pub tgid: u32,
    /// The thread of the longest read.
    pub pid: u32,
    pub comm: String,
    /// The file system: "proc", "sysfs", "cgroup", "cgroup2".
    pub fs: String,
    /// "memory.stat", "/proc/stat", or "/proc/PID/smaps" for the files of all processes.
    pub file: String,
    /// The folder of the longest read: the name of a cgroup, the number of a process as its reader sees it; empty: the root.
    #[serde(skip_serializing_if = "is_default")]
    pub folder: String,
    /// Read calls that met a sample. Of reads that are shorter than the time between two samples, a part.
    pub reads: u64,
    /// The CPU time of all reads, estimated from samples.
    pub ns: u64,
    /// Reads in which the reader had a CPU for [`LONG_READ_NS`] or more.
    #[serde(skip_serializing_if = "is_default")]
    pub long_reads: u64,
    /// Their CPU time.
    #[serde(skip_serializing_if = "is_default")]
    pub long_ns: u64,
    /// The part of `long_ns` in which the sampler's timer was late: interrupts were off, or a hypervisor did not run the CPU.
    #[serde(skip_serializing_if = "is_default")]
    pub late_ns: u64,
    /// CPU time of the longest read.
    pub worst_ns: u64,
}
