//! A task over the window. All times are nanoseconds of the window.

use serde::{Deserialize, Serialize};

use crate::timeline::{StateTimes, is_default};

/// A task over the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// Parent's process id; of a thread the one of its process.
    pub ppid: u32,
    /// The thread that made it, if it was seen to; else 0.
    #[serde(skip_serializing_if = "is_default")]
    pub creator: u32,
    /// The thread's name.
    pub comm: String,
    /// The name of its parent, of a task that ended.
    #[serde(skip_serializing_if = "is_default")]
    pub parent: String,
    /// The process's command line, where it could be read in time: arguments with `BETWEEN_ARGUMENTS` between them (blanks in
    /// recordings of before December 2026), or what it has written over them.
    #[serde(skip_serializing_if = "is_default")]
    pub cmdline: Option<String>,
    /// A kernel thread.
    #[serde(skip_serializing_if = "is_default")]
    pub kthread: bool,
    /// Its real user id, in the initial user namespace; `None`: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: Option<u32>,
    /// When it began, on the kernel's monotonic clock (`start_time`); 0: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub begun_ns: u64,
    /// Its cgroup in the hierarchy that holds the CPU controller (`Cgroup::id`).
    pub cpu_cgroup: u64,
    /// ... the memory controller.
    pub memory_cgroup: u64,
    /// ... the I/O controller.
    pub io_cgroup: u64,
    /// ... the unified (v2) hierarchy.
    pub unified_cgroup: u64,
    /// The session of its process (setsid(2)), by the id of the session leader; 0: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub session: u32,
    /// The process that traces it (ptrace(2)), when it was seen last; 0: none does.
    #[serde(skip_serializing_if = "is_default")]
    pub tracer: u32,
    /// The group of its session, in which it is scheduled if its CPU cgroup is the root (sched(7), autogrouping); 0: none.
    #[serde(skip_serializing_if = "is_default")]
    pub autogroup: u64,
    /// The weight of that group.
    #[serde(skip_serializing_if = "is_default")]
    pub autogroup_weight: u64,
    /// Time of the window in which it existed.
    pub lived_ns: u64,
    /// It was born in the window.
    #[serde(skip_serializing_if = "is_default")]
    pub born: bool,
    /// It ended in the window.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
    /// Further tasks of the same parent, cgroup and name that this row stands for, too.
    #[serde(skip_serializing_if = "is_default")]
    pub folded: u64,
    /// Time of which our tracer missed the beginning.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown_ns: u64,
    /// There was no place to note its waits, or it was never seen to leave a CPU: they are not known, and not zero.
    #[serde(skip_serializing_if = "is_default")]
    pub unseen: bool,
    /// CPU time, by the kernel (`sum_exec_runtime`).
    pub exec_ns: u64,
    /// Time ready and not running, by the kernel (`sched_info.run_delay`); a throttled group's time is in it.
    #[serde(skip_serializing_if = "is_default")]
    pub run_delay_ns: u64,
    /// Times it was put on a CPU, by the kernel (`sched_info.pcount`).
    #[serde(skip_serializing_if = "is_default")]
    pub switches_in: u64,
    /// Voluntary switches.
    #[serde(skip_serializing_if = "is_default")]
    pub voluntary: u64,
    /// Involuntary switches.
    #[serde(skip_serializing_if = "is_default")]
    pub involuntary: u64,
    /// Bytes that it made dirty in the page cache or sent to a disk itself, by the kernel (`task_io_account_write`), whoever writes them
    /// out; `None`: not counted (CONFIG_TASK_IO_ACCOUNTING), or not known of the window.
    #[serde(skip_serializing_if = "is_default")]
    pub written_bytes: Option<u64>,
    /// CPUs it may use, as a list ("0-1,3").
    pub allowed: String,
    /// How many CPUs it may use; offline ones may be among them.
    pub allowed_count: u32,
    /// Scheduling policy (0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline).
    #[serde(skip_serializing_if = "is_default")]
    pub policy: u32,
    /// Load weight of its nice value (1024 at nice 0).
    pub weight: u64,
    /// Time on CPU, by our tracer.
    #[serde(skip_serializing_if = "is_default")]
    pub traced_ns: u64,
    /// Time ready and not running, by our tracer.
    #[serde(skip_serializing_if = "is_default")]
    pub runnable_ns: u64,
    /// The longest such wait.
    #[serde(skip_serializing_if = "is_default")]
    pub runnable_worst_ns: u64,
    /// How many.
    #[serde(skip_serializing_if = "is_default")]
    pub runnable_count: u64,
    /// Time in uninterruptible sleep that the kernel marks as I/O wait.
    #[serde(skip_serializing_if = "is_default")]
    pub io_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub io_worst_ns: u64,
    /// How many.
    #[serde(skip_serializing_if = "is_default")]
    pub io_count: u64,
    /// Time in other uninterruptible sleep (TASK_NOLOAD sleeps are `sleep`).
    #[serde(skip_serializing_if = "is_default")]
    pub blocked_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub blocked_worst_ns: u64,
    /// How many.
    #[serde(skip_serializing_if = "is_default")]
    pub blocked_count: u64,
    /// Time in interruptible sleep.
    #[serde(skip_serializing_if = "is_default")]
    pub sleep_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub sleep_worst_ns: u64,
    /// How many.
    #[serde(skip_serializing_if = "is_default")]
    pub sleep_count: u64,
    /// Cycles (sleep, then ready and running) that ended in the window.
    #[serde(skip_serializing_if = "is_default")]
    pub cycles: u64,
    /// Over its cycles: sum of the time ready, running, waiting for I/O or blocked, in 1024 ns: sums that were rounded on the way
    /// would tell no slope.
    #[serde(skip_serializing_if = "is_default")]
    pub awake: u64,
    /// ... of the sleep that followed, in 1024 ns.
    #[serde(skip_serializing_if = "is_default")]
    pub rest: u64,
    /// ... of the time awake squared, in (1024 ns)^2.
    #[serde(skip_serializing_if = "is_default")]
    pub awake_awake: u64,
    /// ... of the time awake x following sleep, in (1024 ns)^2.
    #[serde(skip_serializing_if = "is_default")]
    pub awake_rest: u64,
    /// ... of following sleep squared, in (1024 ns)^2.
    #[serde(skip_serializing_if = "is_default")]
    pub rest_rest: u64,
    /// Of a process that ended: what its time went to before its program, and after it.
    #[serde(skip_serializing_if = "is_default")]
    pub phases: Option<Box<Phases>>,
}

/// The three phases of a process: set-up before it executed its program, the program, teardown after it began to end. The program's part is the
/// rest of the task's sums. Of tasks that are reported together the sums of all, and one of the moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phases {
    /// When it executed its last program; `None`: it was not seen to.
    #[serde(skip_serializing_if = "is_default")]
    pub executed_at_ns: Option<u64>,
    /// Its time until then.
    #[serde(skip_serializing_if = "is_default")]
    pub setup: StateTimes,
    /// When it began to end.
    pub ending_at_ns: u64,
    /// Its time since then.
    #[serde(skip_serializing_if = "is_default")]
    pub teardown: StateTimes,
}

impl Task {
    /// sched(7): FIFO, RR and DEADLINE are served before all others, whatever their weights, groups and quotas.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }
}
