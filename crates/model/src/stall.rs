//! Packets that waited for their CPU.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::finding::in_seconds;
use crate::timeline::is_default;
use crate::words::words;

words! {
    /// What kept packets from a CPU.
    StallKind {
        /// Interrupts were off: no interrupt announced the packets.
        IrqsOff "interrupts-off",
        /// The receive softirq was raised, and began late: bottom halves were off, other softirqs ran, or ksoftirqd waited for the CPU.
        Deferred "softirq-deferred",
        /// One poll of the receive softirq took long.
        Poll "long-poll",
        /// A thread that polls a device (threaded NAPI) waited for the CPU.
        Thread "polling-thread",
        /// Packets waited behind other packets in the queue of their CPU.
        Queued "queue",
    }
}

/// Packets waited on a CPU for 5 ms or more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    pub cpu: u32,
    /// When it was over: the receive softirq began, or a long poll ended.
    pub at_ns: u64,
    /// Since the interrupt was due, the softirq was raised, or the poll began. Of [`StallKind::Queued`]: the sum of `waits`.
    pub ns: u64,
    /// A word of [`StallKind`].
    pub kind: String,
    /// Of [`StallKind::Queued`]: one packet after another was watched from its arrival to its turn, and so many waited for 5 ms or more.
    #[serde(skip_serializing_if = "is_default")]
    pub waits: u32,
    /// Of these the longest.
    #[serde(skip_serializing_if = "is_default")]
    pub worst_ns: u64,
    /// What ran there meanwhile, by ticks of the CPU, in order of time; the last ones. The last row is what the end interrupted.
    pub seen: Vec<StallSeen>,
}

/// A thread that ran on a CPU while packets waited there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallSeen {
    /// The last time.
    pub at_ns: u64,
    /// Ticks that met it.
    pub count: u32,
    /// 0: the idle task.
    pub pid: u32,
    pub tgid: u32,
    pub comm: String,
    /// A softirq ran there, in its context.
    #[serde(skip_serializing_if = "is_default")]
    pub softirq: bool,
    /// The system call that it was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscall: Option<u32>,
    /// Name of the file of that call, with its folder's: "docker/memory.stat".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Kernel frames, innermost first, those of the interrupt included.
    pub kernel: Vec<String>,
}

/// Stalls of one CPU with the same cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StallAccount {
    pub cpu: u32,
    /// What kept the packets out.
    pub kind: StallKind,
    /// How many stalls; of [`StallKind::Queued`] waits of packets, one after another.
    pub count: u64,
    /// Their time.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
    /// When the first one began, since the window began.
    #[serde(rename = "at_s", serialize_with = "in_seconds")]
    pub at: Duration,
    /// The polling thread that waited: "napi/eth0-1 (pid 77)".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What ran there meanwhile; `None`: cannot tell.
    pub culprit: Option<StallCulprit>,
    /// Why it cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What kept a CPU from its packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StallCulprit {
    /// The thread; 0: code of the softirqs, whatever thread they interrupt.
    pub pid: u32,
    /// Its name.
    pub who: String,
    /// Its cgroup: a container, pod or unit where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The system call that it was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The file of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The kernel function at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Kernel functions there, innermost first, of the longest stall.
    pub stack: Vec<String>,
}

impl StallAccount {
    /// How long one of them took, on average.
    #[must_use]
    pub fn usual(&self) -> Duration {
        self.total / u32::try_from(self.count.max(1)).unwrap_or(u32::MAX)
    }

    /// What happened, as the end of a sentence: ": css_rstat_flush in read(memory.stat)"; empty where it is not known.
    #[must_use]
    pub fn work(&self) -> String {
        match (&self.thread, &self.culprit) {
            (Some(thread), _) => format!(": {thread} was ready to poll and did not run"),
            (None, Some(culprit)) => culprit.work(),
            (None, None) => String::new(),
        }
    }
}

impl StallCulprit {
    /// "cadvisor (pid 9)", "nft_do_chain in a softirq".
    #[must_use]
    pub fn named(&self) -> String {
        match (self.pid, &self.function) {
            (0, Some(function)) => format!("{function} in a {}", self.who),
            (0, None) => self.who.clone(),
            (pid, _) => format!("{} (pid {pid})", self.who),
        }
    }

    /// As [`StallAccount::work`].
    #[must_use]
    pub fn work(&self) -> String {
        let file = self.file.as_deref().unwrap_or_default();
        let call = self.call.as_ref().map(|call| format!("{call}({file})"));
        let parts = [self.function.clone().filter(|_| self.pid > 0), call];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!(": {}", parts.join(" in ")) }
    }
}
