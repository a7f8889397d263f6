//! Where the tracer and the kernel's own totals of a task disagree.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::TaskState;
use crate::{seconds, times};

/// Where the tracer and the kernel's own totals of a task disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// About its time in a state.
    Time {
        /// The thread's name.
        comm: String,
        pid: u32,
        /// On a CPU, or ready for one.
        state: TaskState,
        /// By the tracer.
        ours: Duration,
        /// By the kernel: /proc/PID/schedstat.
        kernels: Duration,
    },
    /// About how often it was put on a CPU.
    Switches {
        /// The thread's name.
        comm: String,
        pid: u32,
        /// By the tracer.
        ours: u64,
        /// By the kernel: /proc/PID/schedstat.
        kernels: u64,
    },
    /// So many more like these.
    More(usize),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Time { comm, pid, state, ours, kernels } => {
                let what = if *state == TaskState::Running { "on CPU" } else { "ready for a CPU" };
                let more = if ours > kernels { "more" } else { "less" };
                let (differ, kernels) = (seconds(ours.abs_diff(*kernels)), seconds(*kernels));
                write!(
                    f,
                    "{comm} ({pid}) was {what} for {kernels} by the kernel's count, {differ} {more} by our tracer"
                )
            }
            Mismatch::Switches { comm, pid, ours, kernels } => write!(
                f,
                "{comm} ({pid}) was put on a CPU {} by our tracer, {} by the kernel's count",
                times(*ours),
                times(*kernels)
            ),
            Mismatch::More(more) => write!(f, "... and {more} more like these"),
        }
    }
}

impl Serialize for Mismatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
