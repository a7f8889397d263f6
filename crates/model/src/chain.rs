//! Results of the wait graph: where wall time went, and the chains from the waiter down to the cause of its wait.

use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::finding::{in_seconds, round};
use crate::timeline::LockKind;
use crate::wait::{Deed, Detail, Mismatch, NamedBy, Note, Reason, TaskState, Who};
use crate::{Culprit, Hop, Share};

/// The wall time of the watched tasks, or of a command, explained.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WallAccount {
    /// The subject: a command line, a process, a cgroup.
    pub of: String,
    /// `wall` is the sum of several tasks' time, no duration that passed.
    #[serde(skip)]
    pub is_sum: bool,
    /// Wall time: of a command, from its start to its end; of many tasks, summed over them.
    #[serde(rename = "wall_s", serialize_with = "in_seconds")]
    pub wall: Duration,
    /// CPU time of all its tasks.
    #[serde(rename = "cpu_s", serialize_with = "in_seconds")]
    pub cpu: Duration,
    /// Part of `wall` in which the subject itself did not run.
    #[serde(rename = "off_cpu_s", serialize_with = "in_seconds")]
    pub off_cpu: Duration,
    /// Part of `wall` that no evidence explains, and waits whose leaf has no name.
    #[serde(rename = "unexplained_s", serialize_with = "in_seconds")]
    pub unexplained: Duration,
    /// The rest, as a share of `wall`.
    pub said: Option<Share>,
    /// Where it went; the parts add up to `wall`.
    pub parts: Vec<Part>,
    /// Where our tracer and the kernel's own totals disagree.
    pub mismatches: Vec<Mismatch>,
}

/// A part of some wall time. Its own parts add up to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    /// Why it passed.
    pub reason: Reason,
    /// Its task; [`Who::Nobody`]: the task of the part above, or none.
    pub who: Who,
    /// The thing waited for, or the work done.
    pub detail: Detail,
    /// How long.
    pub time: Duration,
    /// Share of the whole wall time.
    pub share: Option<Share>,
    /// How many waits or calls, where counted.
    pub count: Option<u64>,
    /// The longest, where measured.
    pub worst: Option<Duration>,
    /// Where this part went in turn; empty: a leaf.
    pub parts: Vec<Part>,
}

/// JSON has names as text, and beside them the data they are made of.
impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut part = serializer.serialize_struct("Part", 10)?;
        part.serialize_field("reason", &self.reason)?;
        if !self.who.is_nobody() {
            part.serialize_field("who", &self.who)?;
        }
        if let Some(work) = self.who.work() {
            part.serialize_field("work", work)?;
        }
        part.serialize_field("what", &self.detail.to_string())?;
        if self.detail.is_typed() {
            part.serialize_field("detail", &self.detail)?;
        }
        part.serialize_field("time_s", &round(self.time.as_secs_f64()))?;
        part.serialize_field("share", &self.share)?;
        part.serialize_field("count", &self.count)?;
        part.serialize_field("worst_s", &self.worst.map(|worst| round(worst.as_secs_f64())))?;
        if !self.parts.is_empty() {
            part.serialize_field("parts", &self.parts)?;
        }
        part.end()
    }
}

/// Time of something in one state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StateTime {
    pub state: TaskState,
    /// How long.
    #[serde(rename = "time_s", serialize_with = "in_seconds")]
    pub time: Duration,
    /// Share of all of it.
    pub share: Option<Share>,
}

/// A chain of waits, folded over all that were alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chain {
    /// Time of the first waiter that this chain explains.
    #[serde(rename = "time_s", serialize_with = "in_seconds")]
    pub time: Duration,
    /// Chains that were folded into this one.
    pub count: u64,
    /// The longest of them.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
    /// From the waiter to the leaf: each hop's `waits_for` is reported by the next hop's `who`. The last one is the leaf.
    pub hops: Vec<Hop>,
    /// Threads of each hop, in the order of `hops`: (pid, name), up to 8 a hop.
    pub tasks: Vec<Vec<(u32, Who)>>,
    /// The end of the chain.
    pub leaf: Culprit,
    /// Remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// Contention on one lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LockAccount {
    /// By symbol, or by its waiters: "cgroup_mutex", "mmap_lock of postgres (4242)", "taken by foo, probably
    /// cgroup_mutex".
    pub name: String,
    /// How the name is known.
    pub named_by: NamedBy,
    /// Its number: kernel addresses are not recorded. The same number is the same lock; 0 are those without a row.
    pub address: String,
    #[serde(serialize_with = "as_word")]
    pub kind: LockKind,
    /// Readers' waits.
    pub read: LockWaits,
    /// Writers' waits (mutexes: all).
    pub write: LockWaits,
    /// Where they waited: the functions that took the lock, with time.
    pub sites: Vec<LockSite>,
    /// Holders that were seen, with the waiting they caused.
    pub holders: Vec<Holder>,
}

/// Waits for one lock in one mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LockWaits {
    /// How many.
    pub count: u64,
    /// Their time, summed.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}

/// Waits for one lock at one call site.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LockSite {
    /// Functions, the one that takes the lock first: "cgroup_kn_lock_live < cgroup_mkdir < ...".
    pub site: String,
    /// How many waits.
    pub count: u64,
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
}

/// A holder of a lock that others waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Holder {
    /// Thread id.
    pub pid: u32,
    /// Its name.
    pub who: Who,
    /// Waiting that happened while it held the lock.
    #[serde(rename = "caused_s", serialize_with = "in_seconds")]
    pub caused: Duration,
    /// What it did meanwhile, the longest first.
    pub did: Vec<Deed>,
}

/// System calls on one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CallAccount {
    /// The system call's name.
    pub syscall: String,
    /// The file, numbers folded: "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq".
    pub path: Option<String>,
    /// How many files were folded into it.
    pub files: u64,
    /// Calls.
    pub count: u64,
    /// ... that failed.
    pub errors: u64,
    #[serde(rename = "time_s", serialize_with = "in_seconds")]
    pub time: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
    /// On CPU in the kernel.
    #[serde(rename = "running_s", serialize_with = "in_seconds")]
    pub running: Duration,
    /// Ready for a CPU.
    #[serde(rename = "runnable_s", serialize_with = "in_seconds")]
    pub runnable: Duration,
    /// Waiting for I/O.
    #[serde(rename = "io_wait_s", serialize_with = "in_seconds")]
    pub io_wait: Duration,
    /// Other uninterruptible sleep.
    #[serde(rename = "uninterruptible_s", serialize_with = "in_seconds")]
    pub uninterruptible: Duration,
    /// Interruptible sleep.
    #[serde(rename = "sleeping_s", serialize_with = "in_seconds")]
    pub sleeping: Duration,
}

/// One slow system call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlowCallAccount {
    /// When it began, since the window did.
    #[serde(rename = "at_s", serialize_with = "in_seconds")]
    pub at: Duration,
    /// Thread id.
    pub pid: u32,
    /// The thread's name.
    pub who: String,
    /// The call; its file, if one, with numbers as they were.
    pub syscall: String,
    pub path: Option<String>,
    /// Where a container's file is on the host, as long as the thread is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// How long.
    #[serde(rename = "time_s", serialize_with = "in_seconds")]
    pub time: Duration,
    /// It had not come back when the window ended.
    pub open: bool,
    /// Its time by state.
    pub split: Vec<StateTime>,
}

pub(crate) fn as_word<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.word())
}
