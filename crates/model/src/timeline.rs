//! Timelines: what tasks did, in order, and for whom or what they waited. All times are nanoseconds since the window began.

use serde::{Deserialize, Serialize};

/// Most fields of most rows are as by default. Left out of the line they are read back as such: 200,000 rows are 62 MB
/// instead of 106, and take three quarters of the time to save and to open.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a task is doing, to the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is said.
    #[default]
    None,
    /// On a CPU.
    Running,
    /// Ready for a CPU.
    Runnable,
    /// Uninterruptible sleep that the kernel marks as I/O wait.
    Io,
    /// Other uninterruptible sleep.
    Blocked,
    /// Interruptible sleep, and sleep that the kernel does not count as load.
    Sleep,
}

/// In what the waker ran. In an interrupt, "the current task" is only who was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Not seen.
    #[default]
    Unknown,
    /// A task (a worker and other kernel threads, too).
    Task,
    /// A softirq: network receive, timers, RCU callbacks, block completion.
    Softirq,
    /// A hardware interrupt: high-resolution timers, devices, calls from other CPUs.
    Hardirq,
    /// A non-maskable interrupt.
    Nmi,
}

/// Time by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateTimes {
    /// On a CPU.
    #[serde(skip_serializing_if = "is_default")]
    pub running_ns: u64,
    /// Ready for one.
    #[serde(skip_serializing_if = "is_default")]
    pub runnable_ns: u64,
    /// I/O wait.
    #[serde(skip_serializing_if = "is_default")]
    pub io_ns: u64,
    /// Other uninterruptible sleep.
    #[serde(skip_serializing_if = "is_default")]
    pub blocked_ns: u64,
    /// Interruptible sleep.
    #[serde(skip_serializing_if = "is_default")]
    pub sleep_ns: u64,
    /// The tracer missed how this time began.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown_ns: u64,
}

impl StateTimes {
    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        [self.running_ns, self.runnable_ns, self.io_ns, self.blocked_ns, self.sleep_ns, self.unknown_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// The two ends of a network socket, as "address:port"; "" for an end that is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Ends {
    /// Its own.
    #[serde(skip_serializing_if = "is_default")]
    pub local: String,
    /// The other one.
    #[serde(skip_serializing_if = "is_default")]
    pub peer: String,
    /// The smoothed round-trip time that TCP has measured between them; not to be had: `None`.
    #[serde(skip_serializing_if = "is_default")]
    pub round_trip_ns: Option<u64>,
    /// It was made by accept(2); of UDP: it has no peer. The process that made it is the service then. A service that listens with a
    /// backlog of 0 is not known by that.
    #[serde(skip_serializing_if = "is_default")]
    pub serves: bool,
    /// Of TCP: data had come that nobody had read.
    #[serde(skip_serializing_if = "is_default")]
    pub unread: bool,
    /// Inode of its network namespace; 0: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub netns: u32,
}

/// The waker of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waker {
    /// Thread id of the current task: the waker itself only if `context` is a task's. 0: the idle task.
    pub pid: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub tgid: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub comm: String,
    /// In what it ran.
    #[serde(skip_serializing_if = "is_default")]
    pub context: Context,
    /// If it is a worker: the function of the work item that it ran.
    #[serde(skip_serializing_if = "is_default")]
    pub work: Option<String>,
    /// Its kernel stack (`Stack::id`): only for long waits.
    #[serde(skip_serializing_if = "is_default")]
    pub stack: Option<u32>,
    /// In a softirq: from where to where something was brought; of a task: through which end of a unix socket. Few wakers have it: kept apart, rows stay small.
    #[serde(skip_serializing_if = "is_default")]
    pub delivery: Option<Box<Delivery>>,
}

/// What was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// The socket at which data had come last (Linux 6.3 and newer).
    #[serde(skip_serializing_if = "is_default")]
    pub ready: Option<Ends>,
    /// The network socket of the system call that the current task was in.
    #[serde(skip_serializing_if = "is_default")]
    pub sends: Option<Ends>,
    /// That system call, by number (x86-64).
    #[serde(skip_serializing_if = "is_default")]
    pub syscall: Option<u32>,
    /// So long before that the socket at which data came had sent something itself, to a tick of the kernel (TCP). Of a unix socket: its process had
    /// woken the thread that answers, by connecting or sending, and that one has answered no other client since (Linux 6.3 and newer).
    #[serde(skip_serializing_if = "is_default")]
    pub sent_before_ns: Option<u64>,
    /// Of a unix socket: which end sent.
    #[serde(skip_serializing_if = "is_default")]
    pub role: Option<Role>,
}

/// Side of a connection that sent; the service's end has the name that it listens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The service.
    Answers,
    /// Its client.
    Asks,
    /// The service, which has sent nothing: it read what its client had sent, and there was room again.
    Takes,
}

/// The file or socket that a system call waited on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// File descriptor; -1: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub fd: i32,
    /// "file", "dir", "pipe", "socket", "chr", "blk", "anon".
    #[serde(skip_serializing_if = "is_default")]
    pub kind: String,
    /// Last part of its name, for anonymous inodes the kernel's own ("[eventpoll]"), for sockets the family.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// Inode number.
    #[serde(skip_serializing_if = "is_default")]
    pub ino: u64,
    /// Device (major:minor), "" where there is none.
    #[serde(skip_serializing_if = "is_default")]
    pub dev: String,
    /// A socket's other end: "127.0.0.1:80".
    #[serde(skip_serializing_if = "is_default")]
    pub peer: Option<String>,
}

/// The network socket with another end that a poll, select or epoll looks at, if it is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Polled {
    /// Its other end: "10.0.0.2:53".
    pub peer: String,
    /// It is not connected yet: a SYN was sent, and not answered.
    #[serde(skip_serializing_if = "is_default")]
    pub connecting: bool,
    /// As of `Ends`.
    #[serde(skip_serializing_if = "is_default")]
    pub serves: bool,
}

/// Whether a client that waits has asked for something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Not known: a unix socket's data were read, or of TCP both ends have sent in one tick.
    #[default]
    Unknown,
    /// Data came last, or it has sent nothing.
    No,
    /// It has sent since data came last (TCP; in ticks).
    Sent,
    /// What it sent is not read yet.
    Unread,
}

/// The processes that had the service's end of a client's connection (TCP, unix streams) open when the window ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherEnd {
    /// Processes: a fork shares it. Of a connection that nobody has accepted, those that listen there. None: not on this host, or more
    /// than 16.
    pub processes: Vec<u32>,
    /// Whether the client has asked.
    #[serde(skip_serializing_if = "is_default")]
    pub asked: Asked,
    /// No process has accepted it.
    #[serde(skip_serializing_if = "is_default")]
    pub queued: bool,
    /// Whether a task waited at an epoll that looks at the service's end. False: epolls do, and no task waited at any of them. `None`: not
    /// known, or no epoll looks at it.
    #[serde(skip_serializing_if = "is_default")]
    pub watched: Option<bool>,
    /// So long before the window's end it had sent something last, to a tick of the kernel (TCP).
    #[serde(skip_serializing_if = "is_default")]
    pub sent_before_ns: Option<u64>,
}

/// A request of a process that nobody had answered when the window ended: of TCP what it has sent since data came last, through a connection that
/// it made itself; through a unix stream whatever may be one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The process that sent it.
    pub tgid: u32,
    /// Its peer: "10.0.0.7:5432"; of a unix socket: `None`.
    #[serde(skip_serializing_if = "is_default")]
    pub peer: Option<String>,
    /// For a connection: a SYN was sent, and not answered.
    #[serde(skip_serializing_if = "is_default")]
    pub connecting: bool,
    /// The processes that may answer.
    pub other_end: OtherEnd,
}

/// What sort of lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// Not known.
    #[default]
    Unknown,
    /// struct mutex.
    Mutex,
    /// struct rw_semaphore.
    Rwsem,
    /// struct rt_mutex.
    Rtmutex,
    /// struct percpu_rw_semaphore.
    PercpuRwsem,
    /// struct semaphore.
    Semaphore,
}

impl LockKind {
    /// As people and the report's documents call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            LockKind::Unknown => "lock",
            LockKind::Mutex => "mutex",
            LockKind::Rwsem => "rwsem",
            LockKind::Rtmutex => "rtmutex",
            LockKind::PercpuRwsem => "percpu rwsem",
            LockKind::Semaphore => "semaphore",
        }
    }
}

impl std::fmt::Display for LockKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// The kernel lock that a task waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockWait {
    /// Which lock: a number of this recording, the same wherever it is that lock's. No address of the kernel is kept.
    pub address: u64,
    /// What sort of lock.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: LockKind,
    /// It is to be taken for writing (mutexes always).
    #[serde(skip_serializing_if = "is_default")]
    pub write: bool,
    /// When the wait for the lock began (it may be before the wait of this row, and hold several).
    #[serde(skip_serializing_if = "is_default")]
    pub since_ns: u64,
    /// Owner in the lock word when the wait began; 0: none, or not readable.
    #[serde(skip_serializing_if = "is_default")]
    pub owner: u32,
    /// Owner in the lock word when it was last read again during the wait; 0: not read again.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_again: u32,
    /// The word said "owned by readers": the owner is the last reader, perhaps gone.
    #[serde(skip_serializing_if = "is_default")]
    pub reader_owned: bool,
}

/// A stretch of a task's timeline. Rows of one task touch: `to_ns` is the `from_ns` of its next row.
///
/// It has up to three parts: `from_ns..at_ns`, in which waits were short and are only summed (`mixed`); one wait that
/// is reported in full, `at_ns..woken_ns` in `state`; and `woken_ns..to_ns`, ready for a CPU. With `State::Runnable` the
/// task did not sleep (`woken_ns == at_ns`); with `State::None` there is no wait (`to_ns == at_ns`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// The thread's name.
    #[serde(skip_serializing_if = "is_default")]
    pub comm: String,
    /// The row begins.
    pub from_ns: u64,
    /// The mixed part ends, the wait begins.
    pub at_ns: u64,
    /// The wait ends: it is woken.
    pub woken_ns: u64,
    /// It runs (or the window, or its life, ends): the row ends.
    pub to_ns: u64,
    /// Time by state in `from_ns..at_ns`.
    #[serde(skip_serializing_if = "is_default")]
    pub mixed: StateTimes,
    /// What sort of wait; `None`: none.
    #[serde(skip_serializing_if = "is_default")]
    pub state: State,
    /// The window ended in this wait.
    #[serde(skip_serializing_if = "is_default")]
    pub open: bool,
    /// The task ended with this row.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
    /// The CPU it ran on last, or waited for.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu: u32,
    /// Its waker.
    #[serde(skip_serializing_if = "is_default")]
    pub waker: Option<Waker>,
    /// Its kernel stack in the wait (`Stack::id`).
    #[serde(skip_serializing_if = "is_default")]
    pub stack: Option<u32>,
    /// Waiting in `state` that this stack stands for: this wait and those without one since the last stack of that state.
    #[serde(alias = "stands_ns", skip_serializing_if = "is_default")]
    pub sampled_wait_ns: u64,
    /// If it is a worker: the function of the work item that waited.
    #[serde(skip_serializing_if = "is_default")]
    pub work: Option<String>,
    /// The system call it waited in, by number (x86-64).
    #[serde(skip_serializing_if = "is_default")]
    pub syscall: Option<u32>,
    /// That call's first four arguments: numbers below 65,536 and errors as they are, else 1. Of futexes the first is a
    /// number that tells words of a process apart, the next two are kept. No address is.
    #[serde(skip_serializing_if = "is_default")]
    pub args: [u64; 4],
    /// The file of the call's first argument, if that is a file descriptor; with `refused` the locked one.
    #[serde(skip_serializing_if = "is_default")]
    pub target: Option<Target>,
    /// Of a call that waits for several files, and that no event had ended: the socket that it looked at.
    #[serde(skip_serializing_if = "is_default")]
    pub polled: Option<Box<Polled>>,
    /// Block device of the last I/O that it queued (major:minor).
    #[serde(skip_serializing_if = "is_default")]
    pub device: Option<String>,
    /// What it had queued I/O about, with no other sleep in between (`IoFile::id`); 0: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub io_file: u32,
    /// The kernel lock that it waited for.
    #[serde(skip_serializing_if = "is_default")]
    pub lock: Option<LockWait>,
    /// Holder of the user-space lock that it waited for: the thread by a mutex's own word when the wait began, the process by
    /// the kernel's list of file locks when the wait was over, also with `refused`; 0: not known.
    #[serde(skip_serializing_if = "is_default")]
    pub holder: u32,
    /// It was refused a lock on the file `target`, as once before, then slept, and the lock was still held when it woke.
    #[serde(skip_serializing_if = "is_default")]
    pub refused: bool,
    /// As it went to sleep the service at the other end of its unix socket had not read yet what it had sent. Not known of each such wait: a
    /// thread's first sleeps are looked at, and those after a long wait for an answer.
    #[serde(skip_serializing_if = "is_default")]
    pub asked: bool,
    /// As it went to sleep what it had written to the connection of TCP whose data woke it was held back: it was little, and some little was
    /// sent and not acknowledged; before it woke it was sent, and acknowledged. Looked for in the sleeps after a long one that data of that connection ended (Linux 6.3 and newer).
    #[serde(skip_serializing_if = "is_default")]
    pub held_back: bool,
    /// While it was runnable, its cgroup's CPU quota had run out for this long.
    #[serde(skip_serializing_if = "is_default")]
    pub throttled_ns: u64,
    /// For a client's wait that is open at the window's end: the processes at the other end of the connection. Looked up for followed
    /// tasks, and for clients that have sent a request.
    #[serde(skip_serializing_if = "is_default")]
    pub other_end: Option<Box<OtherEnd>>,
}

/// A stack that rows point to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// What rows call it.
    pub id: u32,
    /// Kernel frames, innermost first.
    pub kernel: Vec<String>,
    /// User frames, innermost first, where asked for.
    pub user: Vec<String>,
}

/// What is missing where rows of [`Run`] were let go for want of room.
pub const RUNS_IN_PART: &str = "some runs on CPUs";

/// A task had a CPU for long without a break (shorter runs are only in the sums).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Which CPU.
    pub cpu: u32,
    /// Thread id.
    pub pid: u32,
    /// From.
    pub from_ns: u64,
    /// To.
    pub to_ns: u64,
}

/// How a holder was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldSeen {
    /// In the lock word, at this moment.
    #[default]
    Word,
    /// It got the lock after waiting for it, at this moment.
    Acquired,
}

/// A task held a lock at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hold {
    /// Which lock: as in `LockWait`.
    pub lock: u64,
    /// When.
    pub at_ns: u64,
    /// The holder; 0: none.
    pub pid: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub tgid: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub comm: String,
    /// How that is known.
    #[serde(skip_serializing_if = "is_default")]
    pub seen: HoldSeen,
    /// Held for reading: others may hold it, too, and this one may be gone.
    #[serde(skip_serializing_if = "is_default")]
    pub reader: bool,
}

/// Contention on one lock, from one call site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// Which lock: as in `LockWait`. 0: several, for which there was no row.
    pub address: u64,
    /// What sort of lock.
    pub kind: LockKind,
    /// For writing.
    pub write: bool,
    /// The waiters' kernel stack (`Stack::id`).
    pub stack: Option<u32>,
    /// Waits that ended in the window, and those that were open at its end.
    pub count: u64,
    /// Their time, summed.
    pub total_ns: u64,
    /// The longest.
    pub worst_ns: u64,
}

/// System calls of watched tasks: one row a (process, system call, file).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// Process id.
    pub tgid: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub comm: String,
    /// The system call, by number (x86-64).
    pub syscall: u32,
    /// The file: absolute where it could be resolved; "pipe", "socket 1.2.3.4:80", "[eventpoll]" for what has no path.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<String>,
    /// Calls that ended in the window.
    pub count: u64,
    /// ... with an error.
    #[serde(skip_serializing_if = "is_default")]
    pub errors: u64,
    /// Their time, summed.
    pub total_ns: u64,
    /// The longest.
    #[serde(skip_serializing_if = "is_default")]
    pub worst_ns: u64,
    /// How it was spent: running is in the kernel; what is left to `total_ns` is rounding.
    #[serde(skip_serializing_if = "is_default")]
    pub split: StateTimes,
}

/// One slow system call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowCall {
    /// Thread id.
    pub pid: u32,
    /// Process id.
    #[serde(skip_serializing_if = "is_default")]
    pub tgid: u32,
    /// The thread's name.
    #[serde(skip_serializing_if = "is_default")]
    pub comm: String,
    /// When it began.
    pub at_ns: u64,
    /// How long it took (until the window's end if it had not come back).
    pub ns: u64,
    /// It had not come back.
    #[serde(skip_serializing_if = "is_default")]
    pub open: bool,
    /// The system call, by number (x86-64).
    pub syscall: u32,
    /// The file, as in [`Call`].
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<String>,
    /// How it was spent.
    #[serde(skip_serializing_if = "is_default")]
    pub split: StateTimes,
    /// User frames of the caller (`Stack::id`), where asked for.
    #[serde(skip_serializing_if = "is_default")]
    pub stack: Option<u32>,
}

/// What `run` started, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Its process id.
    pub pid: u32,
    /// It began (exec).
    pub from_ns: u64,
    /// It ended, or the window did.
    pub to_ns: u64,
    /// Its exit status; `None`: it ended by a signal, or had not ended.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// User time of it and the children it waited for, by the kernel.
    pub user_ns: u64,
    /// System time, likewise.
    pub system_ns: u64,
}

/// The tasks that a trace follows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watched {
    /// As the user named it: "1234", "/sys/fs/cgroup/web", "nginx.service", a command.
    pub subject: String,
    /// Threads that were followed at any time.
    pub pids: Vec<u32>,
    /// What `run` started.
    pub command: Option<Command>,
    /// Single calls slower than this are in `slow_calls`.
    pub slow_ns: Option<u64>,
}
