//! The orders for a victim process, as the harness writes them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lock_chain::Plan;
use crate::spinners;

/// One victim process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Name of its threads (at most 15 bytes).
    pub comm: String,
    /// Number of threads that do the work.
    pub threads: usize,
    /// Each worker is a process of its own.
    pub apart: bool,
    pub work: Work,
    /// `cgroup.procs` files to join before anything else.
    pub join: Vec<PathBuf>,
    /// For workers that are processes of their own: more such files, one set for each worker in turn; empty: they stay in the first
    /// process's cgroups.
    pub among: Vec<Vec<PathBuf>>,
    /// Inherited descriptor of its ledger.
    pub ledger: i32,
    pub network: Network,
    /// CPU turns (`work::cpu`) that take a microsecond on an idle CPU.
    pub turns_per_us: f64,
    /// Its life ends after this many seconds, whatever happens.
    pub lifetime_s: u32,
}

/// The network namespace of a victim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The namespace of the harness; the victim sends nothing.
    Shared,
    /// A new one, with `lo` up.
    Own,
    /// The namespace of another victim (`/proc/PID/ns/net`).
    Of(u32),
}

/// Work that can be counted.
#[expect(missing_docs, reason = "the fields are named after what the variants say")]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Work {
    /// Compute for `burst_us` of CPU, then sleep `rest_us` (0: never).
    Spin { burst_us: u64, rest_us: u64 },
    /// Compute for `burst_us` at each tick of a clock that all threads share. A missed tick is not made up for.
    Paced { burst_us: u64, every_us: u64 },
    /// Read a file again and again through the page cache, with `burst_us` of CPU for each block.
    Reread { file: PathBuf, block: u64, random: bool, burst_us: u64 },
    /// Read the next block of a file at each tick; no block is read twice.
    Stream { file: PathBuf, block: u64, every_us: u64 },
    /// Read or write a file, past the page cache.
    Direct { file: PathBuf, block: u64, how: Direct },
    /// Write the next block of a file, which never holds more than `most` bytes; fsync after every `each` blocks, and rest.
    Sync { file: PathBuf, block: u64, each: u64, most: u64, rest_us: u64 },
    /// `count` direct reads at each tick.
    DirectPaced { file: PathBuf, block: u64, count: u64, every_us: u64 },
    /// Accept connections on a port.
    Serve { port: u16, backlog: u32 },
    /// Connect, close, think, and again.
    Connect { port: u16, think_us: u64 },
    /// Compute at each tick, and send a connect without waiting for its result.
    Fling { port: u16, burst_us: u64, every_us: u64 },
    /// Touch the pages of a region again and again, with `burst_us` of CPU for 16 pages.
    Touch { bytes: u64, burst_us: u64, random: bool },
    /// Touch `hot` bytes at each tick; write `cold` bytes once and never read them again, and a few more each tick.
    Hoard { hot: u64, cold: u64, more: u64, burst_us: u64, every_us: u64 },
    /// Send `count` datagrams of `bytes` to a port of the loopback at each tick.
    Flood { port: u16, bytes: u64, count: u64, every_us: u64 },
    /// Receive datagrams on a port, and compute for `burst_us` over each.
    Drain { port: u16, burst_us: u64 },
    /// Compute at each tick, beside `tasks` threads that wake up once in `idle_us` and sleep again.
    Herd { tasks: u64, idle_us: u64, burst_us: u64, every_us: u64 },
    /// Start a process that computes for `burst_us` and ends, wait for it, repeat.
    Fork { burst_us: u64 },
    /// Open a file, close it, rest, repeat.
    Open { file: PathBuf, rest_us: u64 },
    /// Read a small file, rest, repeat; record how long each read took.
    Read { file: PathBuf, rest_us: u64 },
    /// Read a whole file, rest, repeat; record the CPU time of its reads.
    ReadWhole { file: PathBuf, rest_us: u64 },
    /// Allocate `bytes` of memory, write to each page, free all of it, sleep `rest_us`, repeat.
    Churn { bytes: u64, rest_us: u64 },
    /// Read messages of `bytes` from one connection, and compute or sleep between two reads (`Word::AcceptPause`).
    Pull { port: u16, bytes: u64, sleeps: bool },
    /// Send messages of `bytes` to itself over one connection, which loses so many segments in a thousand.
    Lossy { port: u16, per_mille: u32, bytes: u64, every_us: u64 },
    /// Send a message of `bytes` over one connection at each tick.
    Push { port: u16, bytes: u64, every_us: u64 },
    /// Wait for other threads in a chain.
    LockChain(Box<Plan>),
    /// `Word::Mode` 1: start a process that sleeps for `child_us` and ends, stop until it has ended (vfork: in uninterruptible sleep),
    /// repeat. 2: the same, and the process computes. 0: sleep.
    Vfork { child_us: u64 },
    /// Compute beside `tasks` threads that wake up once in `idle_us` and sleep again: `Word::Mode` 1 without a break, 0 a tenth of the
    /// time.
    Few { tasks: u64, idle_us: u64 },
    /// Wait by spinning.
    Spinner(Box<spinners::Plan>),
    /// Compute with `size` words of memory, and rest after each piece.
    Loop { each: spinners::Loop, size: usize, rest_us: u64 },
    /// Answer requests on a socket from an event loop. `Word::Mode` 1: first sleep `sleep_us`, and wait for an answer from `upstream`.
    Answer { at: Place, burst_us: u64, sleep_us: u64, upstream: Option<Place> },
    /// Answer requests with several threads, which take them from a queue. `Word::Mode` 1: after a sleep of `sleep_us`. 2: each thread
    /// opens `fifo`, which has no writer, and so answers no more.
    Pool { at: Place, threads: u64, sleep_us: u64, fifo: PathBuf },
    /// Answer requests with several processes, each of which takes one connection at a time. Without `fifo`, each process waits for its
    /// client through an epoll, and for the event at another epoll.
    Prefork { at: Place, processes: u64, sleep_us: u64, fifo: Option<PathBuf> },
    /// Answer requests while holding a lock that another thread needs for its own work, as in an interpreter. `Word::Mode` 1: that thread
    /// works for `hold_us` at a time, and rests.
    Interpreter { at: Place, hold_us: u64, rest_us: u64 },
    /// Grant or refuse each open of a file in a folder (fanotify(7)). `Word::Mode` 1: after a sleep.
    Guard { dir: PathBuf, sleep_us: u64 },
    /// Answer each request with a block of a file, read past the page cache.
    Fetch { at: Place, file: PathBuf, block: u64 },
    /// Send a request, wait for the answer, repeat.
    Ask { at: Place },
    /// The same, with a new connection for each request, and a rest after it.
    Visit { at: Place, rest_us: u64 },
    /// Read the kernel's audit records. `Word::Mode` 1: with a sleep after each.
    ReadAudit { sleep_us: u64 },
    /// Make a system call that causes such a record, and rest.
    Audited { rest_us: u64 },
    /// Mount the file system in a file. `Word::Mode` 1: freeze it.
    Frozen { image: PathBuf, dir: PathBuf },
    /// Take a file's lock, hold it for `hold_us`, asleep or at work, release it, rest, repeat.
    Lock { file: PathBuf, how: FileLock, hold_us: u64, asleep: bool, rest_us: u64 },
    /// Trace a process from `Word::Mode` 1 on, and stop it at each of its system calls.
    Trace { pid: u32 },
    /// Serve a file system of one file. `Word::Mode` 1: sleep before each read is answered.
    Fuse { dir: PathBuf, sleep_us: u64 },
}

/// Locks of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileLock {
    /// flock(2).
    Flock,
    /// fcntl(2), F_SETLKW: on a byte range.
    Record,
    /// flock(2) that does not wait; the task sleeps for growing times and tries again.
    Retried,
}

/// The address of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A unix socket.
    Path(PathBuf),
    /// A port on the loopback.
    Port(u16),
}

/// A way past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direct {
    /// O_DIRECT reads.
    Read,
    /// O_DIRECT writes over blocks that exist.
    Write,
    /// Plain reads of blocks that were evicted from the cache (`posix_fadvise`) just before.
    Uncached,
}
