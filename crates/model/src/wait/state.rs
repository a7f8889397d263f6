//! What a task is to the scheduler; in a hop that is about a CPU or a queue: what that is.

use crate::timeline::State;
use crate::words::words;

words! {
    /// What a task is to the scheduler, by the names that its documentation has (`ps`, `/proc/PID/stat`, include/linux/sched.h).
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
    /// Of who was in uninterruptible sleep so long with I/O wait, and so long without: what it was for longer.
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
