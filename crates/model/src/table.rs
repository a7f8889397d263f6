//! The tables of a recording: one struct is one row of one NDJSON file. All times are nanoseconds of the window.
//!
//! A table that is `None` was not recorded: its probe did not run, and `Recording::missing` says why.

use serde::{Deserialize, Serialize};

use crate::timeline::is_default;

pub use crate::blocked::Blocked;
pub use crate::churn::{Churn, Population};
pub use crate::failed::FailedCall;
pub use crate::group::{Group, User};
pub use crate::io_file::{IoFile, IoOf};
pub use crate::latency::{CrossCall, Gap, IrqLatency, LateTimer};
pub use crate::napi::{Poll, Socket};
pub use crate::ping::Ping;
pub use crate::speed::{Loop, Speed};
pub use crate::spin::{Met, Spin};
pub use crate::stall::{Stall, StallSeen};
pub use crate::stat_read::StatRead;
pub use crate::task::Task;
pub use crate::timeline::{Call, Hold, Lock, Request, Run, SlowCall, Span, Stack};
pub use crate::work::Work;

/// All tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tables {
    /// One row a task (thread), from the scheduler. Those that ended in the window are here too.
    pub tasks: Option<Vec<Task>>,
    /// One row a cgroup that had a task in the window, and its ancestors.
    pub cgroups: Option<Vec<Cgroup>>,
    /// One row a cgroup with a name that a runtime or systemd gave it.
    pub groups: Option<Vec<Group>>,
    /// One row a user with a task in the window and a name.
    pub users: Option<Vec<User>>,
    /// One row a stack sampled on CPU.
    pub samples: Option<Vec<Sample>>,
    /// One row a stack of a wait.
    pub waits: Option<Vec<Wait>>,
    /// One row a CPU.
    pub cpus: Option<Vec<Cpu>>,
    /// One row a task that reclaimed memory or filled the page cache.
    pub memory: Option<Vec<Memory>>,
    /// One row a (device, cgroup, direction).
    pub disk: Option<Vec<Disk>>,
    /// One row a (process, device, direction, file): the most expensive ones.
    pub io_files: Option<Vec<IoFile>>,
    /// One row a (task, network namespace, remote port) that opened connections.
    pub connects: Option<Vec<Connect>>,
    /// One row a listening socket whose queue was full in the window.
    pub listeners: Option<Vec<Listener>>,
    /// One row a BPF program of another process that ran in the window.
    pub programs: Option<Vec<Program>>,
    /// Timelines: rows of one task touch, in order of time.
    pub spans: Option<Vec<Span>>,
    /// Requests without an answer when the window ended; only with a wait that was open then, or with watched tasks.
    pub requests: Option<Vec<Request>>,
    /// Stacks that rows of spans, locks and slow calls point to.
    pub stacks: Option<Vec<Stack>>,
    /// Long runs of tasks on CPUs.
    pub runs: Option<Vec<Run>>,
    /// Holders of contended locks, with times.
    pub holds: Option<Vec<Hold>>,
    /// One row a (lock, mode, call site).
    pub locks: Option<Vec<Lock>>,
    /// One row a (process, system call, file), of watched tasks.
    pub calls: Option<Vec<Call>>,
    /// Single slow system calls of watched tasks.
    pub slow_calls: Option<Vec<SlowCall>>,
    /// One row a work function.
    pub works: Option<Vec<Work>>,
    /// One row a (process, system call, error, file system): calls that failed for want of something.
    pub failed_calls: Option<Vec<FailedCall>>,
    /// One row a process that wants wake-ups to be quick.
    pub latency_holders: Option<Vec<LatencyHolder>>,
    /// One row a CPU that polled network devices.
    pub polls: Option<Vec<Poll>>,
    /// One row a socket whose packets waited for a reader.
    pub sockets: Option<Vec<Socket>>,
    /// One row an online CPU: loops of known length.
    pub speeds: Option<Vec<Speed>>,
    /// One row a (thread, CPU, function, state) of calls that came late.
    pub cross_calls: Option<Vec<CrossCall>>,
    /// One row a (thread, CPU, function, state) of timers that came late.
    pub late_timers: Option<Vec<LateTimer>>,
    /// One row each time that a CPU took no interrupt for long although one was due.
    pub gaps: Option<Vec<Gap>>,
    /// One row a (CPU, state).
    pub irq_latencies: Option<Vec<IrqLatency>>,
    /// One row each time that packets waited long for their CPU.
    pub stalls: Option<Vec<Stall>>,
    /// One row a (process, name) of statistics files that were read when a CPU was sampled.
    pub stat_reads: Option<Vec<StatRead>>,
    /// One row a (process tree, kind) of cgroups, namespaces and mounts that were made or removed.
    pub churn: Option<Vec<Churn>>,
    /// One row a (thing, moment): how many cgroups, namespaces and mounts there were.
    pub populations: Option<Vec<Population>>,
    /// One row a (thread, stack, lock, holder) that was sampled in D state.
    pub blocked: Option<Vec<Blocked>>,
    /// One row a request to another host (`whyslow net TARGET`), in the order in which they were sent.
    pub pings: Option<Vec<Ping>>,
    /// One row a block of user code in which a thread was met often, with the code.
    pub spins: Option<Vec<Spin>>,
}

/// Stands between the arguments of `Task::cmdline`: they may have blanks in them.
pub const BETWEEN_ARGUMENTS: char = '\u{1f}';

/// A cgroup at the end of the window, with what changed in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// kernfs node id, with the number of its hierarchy (0: unified) in the top byte: v1 hierarchies count alike.
    pub id: u64,
    /// Its parent, 0 at a root.
    pub parent: u64,
    /// Controllers that this row speaks for: "cpu", "memory", "io", "unified".
    pub controllers: Vec<String>,
    /// The last part of its path.
    pub name: String,
    /// Path below its hierarchy's root, from "/".
    pub path: String,
    /// Where its files are, if its hierarchy is mounted: "/sys/fs/cgroup/cpu/web".
    pub files: Option<String>,
    /// CPU facts, if it has the CPU controller.
    pub cpu: Option<CgroupCpu>,
    /// Memory facts, if it has the memory controller.
    pub memory: Option<CgroupMemory>,
    /// It is older than the window, and held no task when that began: how often its limits were met since is not known,
    /// and the counters here are zero.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
}

/// What a cgroup's CPU controller says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupCpu {
    /// cpu.shares as the kernel scales them: 1024 is the default.
    pub weight: u64,
    /// CPU time it may use each period; `None`: no quota.
    #[serde(skip_serializing_if = "is_default")]
    pub quota_ns: Option<u64>,
    /// Of it so much may be saved up that a period leaves; `None`: this kernel has no such setting (before 5.14).
    #[serde(skip_serializing_if = "is_default")]
    pub burst_ns: Option<u64>,
    /// Length of a period.
    pub period_ns: u64,
    /// Periods in the window.
    #[serde(skip_serializing_if = "is_default")]
    pub periods: u64,
    /// ... in which the quota ran out.
    #[serde(skip_serializing_if = "is_default")]
    pub throttled_periods: u64,
    /// Time throttled, added over CPUs, by the kernel.
    #[serde(skip_serializing_if = "is_default")]
    pub throttled_ns: u64,
}

/// What a cgroup's memory controller says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupMemory {
    /// Bytes in use at the end (may lag by a few pages per CPU).
    pub usage: u64,
    /// Limit in bytes; `None`: no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub limit: Option<u64>,
    /// Soft throttle limit (memory.high); `None`: none.
    #[serde(skip_serializing_if = "is_default")]
    pub high: Option<u64>,
    /// Times an allocation met this very limit, in the window (before Linux 5.3: or one below it).
    #[serde(skip_serializing_if = "is_default")]
    pub limit_hits: u64,
    /// OOM kills in the window.
    #[serde(skip_serializing_if = "is_default")]
    pub oom_kills: u64,
    /// Bytes of its anonymous memory in swap at the end.
    #[serde(skip_serializing_if = "is_default")]
    pub swap: u64,
}

/// A stack seen on CPU, with how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Thread id; 0 is the idle task.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// Times seen.
    pub count: u64,
    /// CPU time it stands for: count x sampling period.
    pub ns: u64,
    /// Kernel frames, innermost first.
    pub kernel: Vec<String>,
    /// User frames, innermost first.
    pub user: Vec<String>,
    /// There was no room for its stacks: only the thread is known (thread 4294967295: only the name).
    pub bare: bool,
}

/// A stack that waited, with how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// "io": uninterruptible, marked as I/O wait; "blocked": uninterruptible; "sleep": interruptible.
    pub state: String,
    /// Waiting time it stands for: a stack is taken each time a task's waits have grown by the threshold.
    pub ns: u64,
    /// Stacks taken.
    pub count: u64,
    /// The longest single wait with this stack.
    pub worst_ns: u64,
    /// Kernel frames, innermost first.
    pub kernel: Vec<String>,
}

/// A CPU over the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub cpu: u32,
    /// Time in softirqs by vector: (name, time, count).
    pub softirqs: Vec<(String, u64, u64)>,
    /// Time in hardirq handlers by number: (number, name, time, count).
    pub hardirqs: Vec<(u32, String, u64, u64)>,
    /// On-CPU samples taken here, idle ones too.
    pub samples: u64,
    /// The longest time between two samples, where the timer should have fired.
    pub worst_gap_ns: u64,
    /// Gaps of more than three sampling periods.
    pub gaps: u64,
}

/// Memory work that one task did itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// Memory cgroup that was reclaimed from or charged, 0 for global.
    pub cgroup: u64,
    /// Wall time in memcg (limit) reclaim.
    pub limit_reclaim_ns: u64,
    /// Times.
    pub limit_reclaims: u64,
    /// The longest.
    pub limit_reclaim_worst_ns: u64,
    /// Wall time in global direct reclaim.
    pub direct_reclaim_ns: u64,
    /// Times.
    pub direct_reclaims: u64,
    /// The longest.
    pub direct_reclaim_worst_ns: u64,
    /// Pages it brought into the page cache.
    pub pages_added: u64,
    /// Of these, pages that had been evicted in the window (extrapolated from a sample of pages).
    pub pages_refaulted: u64,
    /// Of `pages_added`, those added before the first that was known to come back: whether they had been evicted before the window,
    /// nobody saw.
    pub pages_unknown: u64,
    /// Of `pages_added`, pages that it had had before, that were evicted in the window by the reclaim of another cgroup at its limit, ...
    #[serde(skip_serializing_if = "is_default")]
    pub pages_taken_at_limit: u64,
    /// ... because the host was short of memory (kswapd, direct reclaim), ...
    #[serde(skip_serializing_if = "is_default")]
    pub pages_taken_by_reclaim: u64,
    /// ... and that others told the kernel to forget (drop_caches, posix_fadvise). All are extrapolated from a sample of pages.
    #[serde(skip_serializing_if = "is_default")]
    pub pages_dropped: u64,
    /// The process that had most of those go at a limit, or that dropped most: the last one of its session.
    #[serde(skip_serializing_if = "is_default")]
    pub taken_by: u32,
    /// Its session.
    #[serde(skip_serializing_if = "is_default")]
    pub taker_session: u32,
    /// Whether it dropped them.
    #[serde(skip_serializing_if = "is_default")]
    pub taker_drops: bool,
    /// So many pages its session had go at least.
    #[serde(skip_serializing_if = "is_default")]
    pub taken_at_least: u64,
    /// Pages it swapped in.
    pub swapped_in: u64,
    /// Wall time paused for writing too fast (balance_dirty_pages).
    pub dirty_pause_ns: u64,
}

/// Block I/O of one cgroup on one device in one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Device number (major:minor).
    pub dev: String,
    /// Name: "vda".
    pub device: String,
    /// The cgroup that owns the I/O (`Cgroup::id`), 0 unknown.
    pub cgroup: u64,
    /// "read", "write", "other".
    pub op: String,
    /// Requests done.
    pub requests: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Time from handing the request to the device until done, summed.
    pub device_ns: u64,
    /// The longest.
    pub device_worst_ns: u64,
    /// Time from queueing the bio until handing it to the device, summed.
    #[serde(skip_serializing_if = "is_default")]
    pub queue_ns: u64,
    /// Requests of up to 64 KiB that found no other at the device, did not wait to be handed to it, and were done before another came.
    #[serde(skip_serializing_if = "is_default")]
    pub alone: u64,
    /// Bytes of those.
    #[serde(skip_serializing_if = "is_default")]
    pub alone_bytes: u64,
    /// Time that requests which found no other were at the device, summed, until they were done or another came: divided by `alone` it is
    /// the time that a request takes on an idle device.
    #[serde(skip_serializing_if = "is_default")]
    pub alone_ns: u64,
    /// Bios held back by a throttle before they were queued.
    #[serde(skip_serializing_if = "is_default")]
    pub held: u64,
    /// Time that tasks of the cgroup were blocked while such bios were held back, summed over tasks.
    #[serde(skip_serializing_if = "is_default")]
    pub held_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub held_worst_ns: u64,
}

/// Connections that one task opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// Thread id of the client.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// The client's name.
    pub comm: String,
    /// Network namespace (inode).
    pub netns: u32,
    /// Where to: "127.0.0.1:8080".
    pub peer: String,
    /// Connections that were opened, or tried.
    pub count: u64,
    /// ... that got through.
    pub done: u64,
    /// Connections with a retransmitted SYN.
    pub retried: u64,
    /// ... that got through at once.
    pub prompt: u64,
    /// Time of those that got through at once.
    pub prompt_ns: u64,
    /// Time of connections with a retransmitted SYN, until made or the window's end.
    pub retried_ns: u64,
    /// The longest.
    pub worst_ns: u64,
    /// ... that got through, as the client saw it, and whose first data had to be retransmitted: the third ACK was dropped.
    pub unanswered: u64,
    /// Time of those, from the data until the last time they were sent.
    pub unanswered_ns: u64,
    /// Retried and unanswered connections that no thread waited for.
    pub abandoned: u64,
    /// ... no thread slept on them: an event loop (epoll) or another thread watched.
    #[serde(skip_serializing_if = "is_default")]
    pub watched: u64,
    /// Time in which the task did nothing but wait for retried or unanswered connects: overlapping ones count once.
    pub blocked_ns: u64,
    /// Other time in which it watched such connects (epoll) and went on with something else: overlapping ones count once.
    pub watched_ns: u64,
    /// `watched_ns`, with each moment weighed by the share of the task's connects that were being retried.
    pub watched_share_ns: u64,
    /// Connections that were refused (ECONNREFUSED): no socket listened there.
    #[serde(skip_serializing_if = "is_default")]
    pub refused: u64,
    /// Sleeps of at most 2 s between a refusal and the task's next attempt there, if it slept once or twice: for that, or until it had something
    /// to ask.
    #[serde(skip_serializing_if = "is_default")]
    pub naps: u64,
    /// Their time.
    #[serde(skip_serializing_if = "is_default")]
    pub slept_ns: u64,
    /// The same between a connection that was made and the next attempt there.
    #[serde(skip_serializing_if = "is_default")]
    pub rests: u64,
    /// Their time.
    #[serde(skip_serializing_if = "is_default")]
    pub rested_ns: u64,
    /// The peer's address is one of the task's own network namespace, so that the service is on this host. Known of refused connections.
    #[serde(skip_serializing_if = "is_default")]
    pub own: bool,
    /// The process that listened there in the window, in that network namespace, for refused connections; `None`: none was seen.
    #[serde(skip_serializing_if = "is_default")]
    pub server: Option<Server>,
}

/// A process that listened at an address where connections were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Process that began to last; of several that were there before the window, one of them.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Times in the window that no socket was left that listened.
    pub closed: u64,
    /// ... because the process ended.
    pub ended: u64,
    /// The last such process's status, as of wait(2): a signal, or 256 times what it gave exit(2).
    pub status: u32,
    /// Time of the window without a listening socket there, as far as seen.
    pub absent_ns: u64,
}

/// A listening socket whose accept queue was found full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Network namespace (inode).
    pub netns: u32,
    /// Where it listens: "127.0.0.1:8080".
    pub local: String,
    /// Length of its accept queue when seen.
    pub queue: u32,
    /// Its limit (backlog).
    pub limit: u32,
    /// Process that owns it, where found.
    pub tgid: u32,
    /// That process's name.
    pub comm: String,
    /// Times a connection met the full queue.
    pub overflows: u64,
}

/// A BPF program that is not ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    pub id: u32,
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Run time while the kernel's statistics were on, extrapolated to the window.
    pub run_ns: u64,
    /// Runs, likewise.
    pub runs: u64,
    /// Another process keeps the statistics on.
    pub counted_before: bool,
}

/// A process that holds /dev/cpu_dma_latency open, with what it wrote there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyHolder {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    pub comm: String,
    /// No CPU is to take longer than this to wake up, in us.
    pub value_us: u64,
}
