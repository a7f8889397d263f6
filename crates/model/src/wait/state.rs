//! State of a task, as the scheduler has it; in a hop about a CPU or a queue, the state of that.

use crate::timeline::State;
use crate::words::words;

words! {
    /// State of a task, by the names of the kernel's documentation (`ps`, `/proc/PID/stat`, include/linux/sched.h).
    #[derive(Default)]
    TaskState {
        /// On a CPU.
        Running "running",
        /// Ready for a CPU.
        Runnable "runnable",
        /// Uninterruptible sleep that the kernel counts as I/O wait (`in_iowait`).
        IoWait "io-wait",
        /// Other uninterruptible sleep: "D".
        Uninterruptible "uninterruptible",
        /// Interruptible sleep, and sleep that the kernel does not count as load: "S", "I".
        Sleeping "sleeping",
        /// A CPU that has nothing to run.
        Idle "idle",
        /// A receive queue that takes no more.
        WindowClosed "window-closed",
        /// Not seen.
        #[default]
        Unknown "unknown",
    }
}

impl TaskState {
    /// State of a task that was in uninterruptible sleep for `io_ns` with I/O wait and for `others_ns` without: the longer of the two.
    #[must_use]
    pub const fn of_uninterruptible(io_ns: u64, others_ns: u64) -> Self {
        if io_ns > others_ns { TaskState::IoWait } else { TaskState::Uninterruptible }
    }
}

impl From<State> for TaskState {
    fn from(state: State) -> Self {
        match state {
            State::None => TaskState::Unknown,
            State::Running => TaskState::Running,
            State::Runnable => TaskState::Runnable,
            State::Io => TaskState::IoWait,
            State::Blocked => TaskState::Uninterruptible,
            State::Sleep => TaskState::Sleeping,
        }
    }
}
