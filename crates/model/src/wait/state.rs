//! What a task is to the scheduler; in a hop that is about a CPU or a queue: what that is.

use std::fmt;

use serde::Serialize;

use crate::timeline::State;

/// What a task is to the scheduler, by the names that its documentation has (`ps`, `/proc/PID/stat`, include/linux/sched.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// On a CPU.
    Running,
    /// Ready for a CPU.
    Runnable,
    /// Uninterruptible sleep that the kernel counts as I/O wait (`in_iowait`).
    IoWait,
    /// Other uninterruptible sleep: "D".
    Uninterruptible,
    /// Interruptible sleep, and sleep that the kernel does not count as load: "S", "I".
    Sleeping,
    /// A CPU that has nothing to run.
    Idle,
    /// A receive queue that takes no more.
    WindowClosed,
    /// Not seen.
    #[default]
    Unknown,
}

impl TaskState {
    /// All of them.
    pub const ALL: &[TaskState] = &[
        TaskState::Running,
        TaskState::Runnable,
        TaskState::IoWait,
        TaskState::Uninterruptible,
        TaskState::Sleeping,
        TaskState::Idle,
        TaskState::WindowClosed,
        TaskState::Unknown,
    ];

    /// Of who was in uninterruptible sleep so long with I/O wait, and so long without: what it was for longer.
    #[must_use]
    pub const fn of_uninterruptible(io_ns: u64, others_ns: u64) -> Self {
        if io_ns > others_ns { TaskState::IoWait } else { TaskState::Uninterruptible }
    }

    /// The word of the JSON document.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            TaskState::Running => "running",
            TaskState::Runnable => "runnable",
            TaskState::IoWait => "io-wait",
            TaskState::Uninterruptible => "uninterruptible",
            TaskState::Sleeping => "sleeping",
            TaskState::Idle => "idle",
            TaskState::WindowClosed => "window-closed",
            TaskState::Unknown => "unknown",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
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
