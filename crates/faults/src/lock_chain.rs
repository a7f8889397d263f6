//! Lock chains: wait chains that are known. Each of N threads (or processes) holds what the one before it wants; the last
//! one, the leaf, does something that takes its time. All note when they began to want and when they got it.
//!
//! Positions count from the top: 0 wants what 1 holds, and so on down to the leaf, `n - 1`, which wants nothing.

mod climb;
mod draw;
mod go;
mod leaf;
mod links;
mod pool;
mod set;
mod told;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use draw::{Ask, Kind};
pub use go::build as build_go;
pub use set::LockChain;
pub use told::{Round, Told};

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
    /// UDP likewise.
    UdpAcross,
    /// An eventfd.
    Event,
    /// A queue of messages (mq_overview(7)).
    Queue,
}

/// How a program waits for what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// In read().
    Read,
    /// In poll(), and then it reads.
    Poll,
    /// In epoll_wait().
    Epoll,
    /// In select().
    Select,
    /// In poll() with a timeout, again and again.
    Looks,
    /// In an io_uring; not for messages.
    Ring,
}

/// What two neighbours of a lock chain share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Link {
    /// A lock of our own: a word with three states (free, taken, taken and wanted), no owner in it.
    Futex,
    /// A lock whose word holds its owner: priority inheritance, an rtmutex in the kernel.
    Pi,
    /// `pthread_mutex_t`.
    Pthread,
    /// `std::sync::Mutex`.
    Std,
    /// `sync.Mutex` of Go; only in the lock chain of its own program.
    Go,
    /// A byte that comes through a pipe.
    Pipe,
    /// A byte that comes through a pair of unix sockets.
    Unix,
    /// A word that comes through a connection.
    Peer {
        /// What it is.
        wire: Wire,
        /// How it is waited for.
        by: Way,
    },
    /// A page that the other thread has to give (userfaultfd).
    Page,
    /// The lock of a file's inode: the holder writes to it, and stops at a page in the middle. `read`: who wants it
    /// wants to read.
    File {
        /// Wanted for reading.
        read: bool,
    },
    /// The lock of a directory's inode: the holder reads it, and stops at a page; who wants it renames.
    Directory,
    /// The lock of a pipe: the holder writes to it, and stops at a page.
    PipeLock,
    /// The lock of the address space. `read`: page faults against a long mprotect; else mmap against a long populate.
    /// Only above the leaf, which holds it in one system call.
    AddressSpace {
        /// Wanted for reading.
        read: bool,
    },
    /// The kernel's one lock of all cgroups: mkdir against attach, which waits for RCU. Only above the leaf.
    Cgroups,
}

impl Link {
    /// Held in the middle of a system call of the holder, not over several.
    #[must_use]
    pub fn is_of_kernel(self) -> bool {
        matches!(
            self,
            Link::File { .. } | Link::Directory | Link::PipeLock | Link::AddressSpace { .. } | Link::Cgroups
        )
    }

    /// Works between processes.
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

    /// Another has to send something: no lock.
    #[must_use]
    pub fn is_sent(self) -> bool {
        matches!(self, Link::Pipe | Link::Unix | Link::Peer { .. })
    }
}

/// What the leaf does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaf {
    /// It sleeps.
    Sleep,
    /// It computes.
    Burn,
    /// It reads from a disk, past the page cache, held back by a limit of its cgroup.
    Disk,
    /// It computes in a cgroup whose quota runs out.
    Quota,
    /// A signal stops it; another process sends the one that lets it go on.
    Stopped,
    /// It waits for an RCU grace period: however long that takes.
    GracePeriod,
    /// What the link above it has it do in the kernel.
    Link,
}

/// All that a lock chain's program needs to know. The Go program reads it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The position of each slot of the ledger: who is where is drawn, too.
    pub positions: Vec<usize>,
    /// Names of the threads, by position.
    pub names: Vec<String>,
    /// Link `i` is between positions `i` and `i + 1`.
    pub links: Vec<Link>,
    /// What the leaf does.
    pub leaf: Leaf,
    /// For about so long, in us, a round each.
    pub rounds: Vec<u64>,
    /// A round begins so long after the last, if that has ended.
    pub every_us: u64,
    /// From one thread's beginning to wait to that of the one above it.
    pub step_us: u64,
    /// Beside each thread so many others that have nothing to do, ...
    pub rests: u64,
    /// ... and their name.
    pub rest_name: String,
    /// Nobody holds anything for longer than some microseconds, and nobody waits for anybody to come.
    pub healthy: bool,
    /// Processes, not threads.
    pub apart: bool,
    /// A directory for its files; has one that the leaf may read.
    pub dir: PathBuf,
    /// `cgroup.procs` files that the leaf's process joins.
    pub leaf_joins: Vec<PathBuf>,
    /// `cgroup.procs` of two cgroups of one hierarchy, between which the leaf moves.
    pub homes: Vec<PathBuf>,
}

impl Plan {
    /// How many threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// A lock chain has at least two.
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
