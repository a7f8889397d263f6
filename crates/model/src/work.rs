//! Work that the kernel puts off: work items, and RCU grace periods that tasks wait for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::finding::in_seconds;
use crate::timeline::is_default;

/// Work items of one function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// The work function.
    pub function: String,
    /// Items that were started in the window, or ran when it began.
    pub count: u64,
    /// From queueing to start, summed over those whose queueing was seen.
    pub queued_ns: u64,
    /// How many those were.
    pub queued_count: u64,
    /// The longest.
    pub queued_worst_ns: u64,
    /// Of `queued_ns`, held back because the workqueue ran as many items as it may.
    #[serde(skip_serializing_if = "is_default")]
    pub held_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub held_worst_ns: u64,
    /// From start to end (or the window's end), summed.
    pub ran_ns: u64,
    /// The longest.
    pub ran_worst_ns: u64,
    /// Items that still ran at the end.
    pub open: u64,
    /// The workqueue of one of them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workqueue: String,
    /// Items by time in the queue: number `i` counts those below 2^i us (of 1024 ns), and not below half of that; the last one longer ones, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queued_times: Vec<u64>,
    /// Items by time from start to end, likewise; those that still ran have the time until the window's end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ran_times: Vec<u64>,
}

/// Work items of one function, and what their workers waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkAccount {
    /// The work function.
    pub function: String,
    /// The workqueue of one of the items; empty: not known.
    pub workqueue: String,
    /// Items that were started in the window, or ran when it began.
    pub count: u64,
    /// Items that still ran at the window's end.
    pub open: u64,
    /// Time from queueing to start.
    pub queued: WorkTimes,
    /// The part of `queued` in which the workqueue ran as many items as it may: an item of it had to end first.
    #[serde(rename = "held_back_s", serialize_with = "in_seconds")]
    pub held_back: Duration,
    /// The longest time that an item was held back.
    #[serde(rename = "held_back_worst_s", serialize_with = "in_seconds")]
    pub held_back_worst: Duration,
    /// Time from start to end.
    pub ran: WorkTimes,
    /// What the workers waited for inside, the longest time first; the rest of `ran` is CPU time, waits for a CPU, and short waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InnerWait>,
}

/// Times of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkTimes {
    /// How many.
    pub count: u64,
    /// Their sum.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
    /// How many were how long; empty: a recording of an older whyslow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<TimeRange>,
}

/// Times below a bound, and not below half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeRange {
    /// The bound.
    #[serde(rename = "below_s", serialize_with = "in_seconds")]
    pub below: Duration,
    /// How many.
    pub count: u64,
}

/// Waits inside the work items of a function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InnerWait {
    /// What for.
    pub what: String,
    /// Waits that were recorded with their stack.
    pub count: u64,
    /// Their time.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// The longest one.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}

/// Waits for RCU grace periods by the function that needed them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraceWaits {
    /// The function that needed a grace period: "kern_unmount".
    pub caller: String,
    /// A grace period is expedited by interrupts to all CPUs: short, and paid for by others.
    pub expedited: bool,
    /// The work function in which the caller ran; empty: a system call.
    pub work: String,
    /// The thread that waited the longest time.
    pub who: String,
    /// Threads.
    pub tasks: u64,
    /// Waits that were recorded with their stack.
    pub count: u64,
    /// Their time.
    #[serde(rename = "total_s", serialize_with = "in_seconds")]
    pub total: Duration,
    /// The longest one.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}

impl WorkTimes {
    /// A time that this share of all (0 to 1) do not exceed: the bound of its range; `None`: no times.
    #[must_use]
    pub fn below(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.times.iter().map(|range| range.count).fold(0, u64::saturating_add);
        let wanted = (all as f64 * share).ceil().max(1.0);
        let mut seen = 0_u64;
        let reached = |range: &&TimeRange| {
            seen = seen.saturating_add(range.count);
            seen as f64 >= wanted
        };
        self.times.iter().find(reached).map(|range| range.below.min(self.worst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(counts: &[u64]) -> WorkTimes {
        let range =
            |(i, count): (usize, &u64)| TimeRange { below: Duration::from_micros(1 << i), count: *count };
        let times = counts.iter().enumerate().map(range).collect();
        WorkTimes { worst: Duration::from_micros(7), times, ..WorkTimes::default() }
    }

    #[test]
    fn a_share_is_the_bound_of_its_range_and_never_above_the_longest() {
        assert_eq!(times(&[]).below(0.5), None);
        let times = times(&[5, 0, 4, 1]);
        assert_eq!(times.below(0.5), Some(Duration::from_micros(1)));
        assert_eq!(times.below(0.51), Some(Duration::from_micros(4)));
        assert_eq!(times.below(0.99), Some(Duration::from_micros(7)));
        assert_eq!(times.below(0.0), Some(Duration::from_micros(1)));
    }
}
