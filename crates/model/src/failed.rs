//! Calls that failed for want of something, or one after the other: a row of the table `failed_calls`.

use serde::{Deserialize, Serialize};

/// System calls of one process that failed alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedCall {
    /// The process ...
    pub tgid: u32,
    /// ... the thread whose call was the first ...
    pub pid: u32,
    /// ... and its name.
    pub comm: String,
    /// Number of the system call (x86-64).
    pub syscall: u32,
    /// `errno`: 28 is ENOSPC.
    pub error: u32,
    /// How many.
    pub count: u64,
    /// How long its threads slept for a set time between two of them that were in want of something, where they did nothing else.
    pub slept_ns: u64,
    /// Of those that were in want of nothing, and failed one after the other, 64 times or more: how long that took. 0: they were in want of
    /// something, and each was counted.
    pub streak_ns: u64,
    /// ... the calls are of children of the process, which live for less than a second.
    pub of_children: bool,
    /// ... time of the window in which nobody looked.
    pub away_ns: u64,
    /// Device of the file system (major:minor), of a call on an open file or folder; "": not known.
    pub dev: String,
    /// The kind of that file system: "ext4".
    pub file_system: String,
    /// What the file system calls its device: "vda1"; some have none, and say what they are: "tmpfs".
    pub device: String,
    /// The first one's file: the last part of its path, if it was open, else the path as it was given, a unix socket's too ("@name": one without a
    /// place); "": none.
    pub file: String,
    /// Where the first one was to connect to; "": nowhere.
    pub peer: String,
}
