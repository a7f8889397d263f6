//! Block I/O by file: a row of the table `io_files`.

use serde::{Deserialize, Serialize};

use crate::timeline::is_default;

/// What a request is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoOf {
    /// Not known: direct I/O, swap, what a file system packs or encrypts.
    #[default]
    Unknown,
    /// A file's pages.
    File,
    /// Blocks of a device itself: of its file system, if it is mounted.
    Blocks,
    /// The journal of a file system (jbd2).
    Journal,
}

/// Block I/O that one process queued, on one device, in one direction, about one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoFile {
    /// What `Span::io_file` points to: several rows of one file have one. 0: what it is about is not known.
    pub id: u32,
    /// Process that queued it: a kernel worker, of what it writes out for others; 0: not known.
    pub tgid: u32,
    /// That thread's name.
    pub comm: String,
    /// Device of the requests (major:minor).
    pub dev: String,
    /// Its name: "vda".
    pub device: String,
    /// "read", "write", "other".
    pub op: String,
    /// What it is about.
    pub of: IoOf,
    /// Path within its file system, from "/"; begins with "..." where folders above are not told; "": it has no name any more.
    pub path: String,
    /// Device of that file system, or whose blocks or journal it is (major:minor).
    pub file_dev: String,
    /// Inode number.
    pub ino: u64,
    /// It has no name any more: the path is where it was.
    pub deleted: bool,
    /// Requests done.
    pub requests: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Time from handing the request to the device until done, summed.
    pub device_ns: u64,
    /// The longest.
    pub device_worst_ns: u64,
    /// Time from queueing them until handing them to the device, summed.
    #[serde(skip_serializing_if = "is_default")]
    pub queue_ns: u64,
    /// Requests that were at the device when each was handed to it, summed: divided by `requests` the mean queue it met there.
    #[serde(skip_serializing_if = "is_default")]
    pub ahead: u64,
    /// Rows of other files and processes that this one stands for, too.
    pub folded: u64,
}
