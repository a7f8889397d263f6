//! Jobs: processes that began in the window, by the process that started them, with what they make and take down again.

use std::time::Duration;

use serde::Serialize;

use crate::finding::{in_seconds, in_seconds_or_null};
use crate::words::words;
use crate::work::InnerWait;

words! {
    /// A part of a job's life.
    Phase {
        /// Before it executed its program; calls that make a cgroup, a namespace or a mount.
        SetUp "set-up",
        /// The program.
        Program "program",
        /// After it began to end; calls that remove a cgroup or a mount.
        Teardown "teardown",
    }
}

/// Jobs of processes of one name with the same command.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobAccount {
    /// The process that starts them: it is older than the window.
    pub starter: String,
    /// Processes of this name that start such jobs.
    pub starters: u64,
    /// The pid of the starter; 0: not known, or several.
    pub tgid: u32,
    /// The name of a job's first process.
    pub command: String,
    /// Jobs that ended: children of the starter, each with all that it started itself.
    pub count: u64,
    /// ... a second.
    pub rate: f64,
    /// Jobs that still ran at the window's end.
    pub open: u64,
    /// Processes in the jobs that ended.
    pub processes: u64,
    /// From the begin of a job's first process to its end.
    pub wall: JobTimes,
    /// CPU time of all its processes.
    pub cpu: JobTimes,
    /// Where the time of the processes went; empty: not known.
    pub phases: Vec<PhaseAccount>,
    /// Processes whose phases are known.
    pub known: u64,
}

/// Times of jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobTimes {
    /// Their sum.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// Half of the jobs take no longer.
    #[serde(rename = "half_s", serialize_with = "in_seconds")]
    pub half: Duration,
    /// 99 % of the jobs take no longer.
    #[serde(rename = "most_s", serialize_with = "in_seconds")]
    pub most: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}

/// One phase of all jobs of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseAccount {
    /// Which.
    pub phase: Phase,
    /// CPU time.
    #[serde(rename = "cpu_s", serialize_with = "in_seconds")]
    pub cpu: Duration,
    /// Time ready for a CPU.
    #[serde(rename = "ready_s", serialize_with = "in_seconds")]
    pub ready: Duration,
    /// Time that it waited, without waits of a parent for its children.
    #[serde(rename = "waited_s", serialize_with = "in_seconds")]
    pub waited: Duration,
    /// What for, the longest time first; waits for which no stack was taken are not among them.
    pub waits: Vec<InnerWait>,
}

/// Things of one kind that a process and its jobs made or removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ChurnAccount {
    /// The process at the top.
    pub starter: String,
    /// Processes of this name that did it.
    pub starters: u64,
    /// The pid of the one; 0: several.
    pub tgid: u32,
    /// A word of [`crate::churn::ChurnKind`].
    pub what: String,
    /// How often.
    pub count: u64,
    /// ... a second of the time in which it was counted.
    pub rate: f64,
    /// Time that threads waited in the calls that do it; `None`: not told apart, because a call makes namespaces of several kinds.
    #[serde(
        rename = "waited_s",
        serialize_with = "in_seconds_or_null",
        skip_serializing_if = "Option::is_none"
    )]
    pub waited: Option<Duration>,
    /// The longest such wait.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}
