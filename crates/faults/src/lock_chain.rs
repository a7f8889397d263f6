//! Lock chains: chains of waits that are known. Each of N threads (or processes) holds what the one before it wants; the last one, the
//! leaf, does something that takes time. All threads record when they began to wait and when they got what they wanted.
//!
//! Positions count from the top: position 0 wants what position 1 holds, and so on down to the leaf, `n - 1`, which wants nothing.

mod climb;
mod draw;
mod go;
mod ground_truth;
mod leaf;
mod links;
mod pool;
mod set;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use draw::{Ask, LinkKind};
pub use go::build as build_go;
pub use ground_truth::{Round, Told};
pub use set::LockChain;

pub(crate) use climb::run;
pub(crate) use links::prepare;

/// What connects two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wire {
    /// A pipe.
    Pipe,
    /// A unix stream socket.
    Stream,
    /// A unix datagram socket.
    Datagram,
    /// TCP over the loopback device.
    Tcp,
    /// UDP over the loopback device.
    Udp,
    /// TCP from one network namespace into another.
    TcpAcross,
    /// The same with UDP.
    UdpAcross,
    /// An eventfd.
    Event,
    /// A queue of messages (mq_overview(7)).
    Queue,
}

/// How a program waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// In read().
    Read,
    /// In poll(), followed by read().
    Poll,
    /// In epoll_wait().
    Epoll,
    /// In select().
    Select,
    /// In poll() with a timeout, in a loop.
    Looks,
    /// In an io_uring; not for message queues.
    Ring,
}

/// What two neighbours of a lock chain share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    /// A lock of our own: a word with three states (free, taken, taken and wanted) that does not name its owner.
    Futex,
    /// A lock whose word contains its owner: priority inheritance, an rtmutex in the kernel.
    Pi,
    /// `pthread_mutex_t`.
    Pthread,
    /// `std::sync::Mutex`.
    Std,
    /// `sync.Mutex` of Go; only in the lock chain of its own program.
    Go,
    /// A byte sent through a pipe.
    Pipe,
    /// A byte sent through a pair of unix sockets.
    Unix,
    /// A word sent through a connection.
    Peer {
        /// The kind of connection.
        wire: Wire,
        /// The way to wait for it.
        by: Way,
    },
    /// A page that the other thread has to provide (userfaultfd).
    Page,
    /// The lock of a file's inode: the holder writes to the file and stops at a page in the middle. `read`: the waiter wants to read.
    File {
        /// Wanted for reading.
        read: bool,
    },
    /// The lock of a directory's inode: the holder reads the directory and stops at a page; the waiter renames.
    Directory,
    /// The lock of a pipe: the holder writes to the pipe and stops at a page.
    PipeLock,
    /// The lock of the address space. `read`: page faults against a long mprotect; otherwise mmap against a long populate. Only above the
    /// leaf, which holds it in one system call.
    AddressSpace {
        /// Wanted for reading.
        read: bool,
    },
    /// The kernel's single lock for all cgroups: mkdir against attach, which waits for RCU. Only above the leaf.
    Cgroups,
}

impl Link {
    /// Whether the holder holds it within one system call, not across several.
    #[must_use]
    pub fn is_of_kernel(self) -> bool {
        matches!(
            self,
            Link::File { .. } | Link::Directory | Link::PipeLock | Link::AddressSpace { .. } | Link::Cgroups
        )
    }

    /// Whether it works between processes.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            Link::Futex
                | Link::Pi
                | Link::Pthread
                | Link::Pipe
                | Link::Unix
                | Link::Peer { .. }
                | Link::Cgroups
        )
    }

    /// Whether the waiter waits for another thread to send something, which is no lock.
    #[must_use]
    pub fn is_sent(self) -> bool {
        matches!(self, Link::Pipe | Link::Unix | Link::Peer { .. })
    }
}

/// The action of the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaf {
    /// It sleeps.
    Sleep,
    /// It computes.
    Burn,
    /// It reads from a disk, past the page cache; a limit of its cgroup throttles it.
    Disk,
    /// It computes in a cgroup whose quota runs out.
    Quota,
    /// A signal stops it; another process sends SIGCONT.
    Stopped,
    /// It waits for an RCU grace period, however long that takes.
    GracePeriod,
    /// The system call that the link above it needs.
    Link,
}

/// All parameters of a lock chain's program. The Go program reads them, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The position of each slot of the ledger: which thread has which position is drawn, too.
    pub positions: Vec<usize>,
    /// Names of the threads, by position.
    pub names: Vec<String>,
    /// Link `i` is between positions `i` and `i + 1`.
    pub links: Vec<Link>,
    /// What the leaf does.
    pub leaf: Leaf,
    /// How long the leaf acts in each round, in us, approximately.
    pub rounds: Vec<u64>,
    /// A round begins this long after the last one, if that one has ended.
    pub every_us: u64,
    /// Time between two threads, the lower one and the one above it, beginning to wait.
    pub step_us: u64,
    /// Number of idle threads beside each thread, ...
    pub rests: u64,
    /// ... and their name.
    pub rest_name: String,
    /// No thread holds anything for longer than some microseconds, and no thread waits for another.
    pub healthy: bool,
    /// Processes, not threads.
    pub apart: bool,
    /// A directory for its files, with a file that the leaf may read.
    pub dir: PathBuf,
    /// `cgroup.procs` files that the leaf's process joins.
    pub leaf_joins: Vec<PathBuf>,
    /// `cgroup.procs` of two cgroups of one hierarchy, between which the leaf moves.
    pub homes: Vec<PathBuf>,
}

impl Plan {
    /// Number of threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Never: a lock chain has at least two threads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The slot of the ledger of each position.
    #[must_use]
    pub fn slots(&self) -> Vec<usize> {
        let slot = |position| self.positions.iter().position(|p| *p == position).unwrap_or(0);
        (0..self.len()).map(slot).collect()
    }
}
