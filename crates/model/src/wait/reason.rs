//! Why a task did not go on, or that it did.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $word:literal,)*) => {
        /// Why a task did not go on, or that it did: one word, the same in chains, accounts, causes and JSON.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$variant),*];

            /// The word of the JSON document.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Reason::$variant => $word,)*
                }
            }
        }
    };
}

reasons! {
    /// Not known.
    #[default]
    Unknown "unknown",
    /// It did not wait: it had a CPU.
    Running "running",
    /// It had a CPU, and burned it to wait.
    Spinning "spinning",
    /// Ready for a CPU.
    Runnable "runnable",
    /// A cgroup's CPU quota had run out, by the scheduler's clock.
    Quota "quota",
    /// ... by where it waited.
    CpuQuota "cpu-quota",
    /// A kernel lock.
    Lock "lock",
    /// A lock or signal of user space.
    Futex "futex",
    /// A lock on a file.
    FileLock "file-lock",
    /// A System V semaphore.
    Semaphore "semaphore",
    /// A pipe's other end.
    Pipe "pipe",
    /// A unix socket's other end.
    UnixSocket "unix-socket",
    /// A network socket's other end.
    Socket "socket",
    /// A connection to accept.
    Accept "accept",
    /// A connection to be accepted.
    Connect "connect",
    /// Messages of the kernel.
    Netlink "netlink",
    /// A message queue's other end.
    MessageQueue "message-queue",
    /// Events of many descriptors (epoll).
    Epoll "epoll",
    /// ... (poll, select).
    Poll "poll",
    /// Completions of io_uring.
    IoUring "io-uring",
    /// Completions of Linux asynchronous I/O.
    Aio "aio",
    /// A count in an eventfd.
    Eventfd "eventfd",
    /// A signal.
    Signal "signal",
    /// Changes of files.
    Inotify "inotify",
    /// Accesses to files, and who rules on them.
    Fanotify "fanotify",
    /// Page faults that another process handles.
    Userfault "userfault",
    /// Messages of the kernel's log.
    KernelLog "kernel-log",
    /// Events of a tracer's buffer.
    Tracing "tracing",
    /// A terminal.
    Tty "tty",
    /// A FUSE server, or its clients.
    Fuse "fuse",
    /// An NFS server.
    Nfs "nfs",
    /// A 9p server.
    NineP "9p",
    /// An SMB server.
    Smb "smb",
    /// A Ceph cluster.
    Ceph "ceph",
    /// A block device.
    BlockIo "block-io",
    /// Pages to come back from swap.
    SwapIn "swap-in",
    /// Pages that swap had, to be found, read and mapped.
    SwapFault "swap-fault",
    /// Pages of files that were evicted, to be read again.
    Refault "refault",
    /// Pages of files to be allocated and filled.
    PageCacheFill "page-cache-fill",
    /// Pages of a file system without a device.
    Page "page",
    /// Memory to be reclaimed.
    Reclaim "reclaim",
    /// Pages to be moved.
    Compaction "compaction",
    /// A file system's journal.
    Journal "journal",
    /// Dirty pages to be written.
    Writeback "writeback",
    /// Writers are slowed down until others' pages are written (balance_dirty_pages).
    DirtyThrottling "dirty-throttling",
    /// Writeback throttling of the block layer.
    Wbt "wbt",
    /// A cgroup's limit on a disk.
    IoThrottle "io-throttle",
    /// A cgroup's memory limit.
    MemoryLimit "memory-limit",
    /// A child to end.
    Child "child",
    /// A child to exec or end.
    Vfork "vfork",
    /// A thread to end.
    Thread "thread",
    /// A tracer.
    Traced "traced",
    /// Stopped by a signal.
    Stopped "stopped",
    /// Stopped by the freezer.
    Frozen "frozen",
    /// A core dump.
    Coredump "coredump",
    /// A supervisor of system calls.
    Seccomp "seccomp",
    /// A binder transaction.
    Binder "binder",
    /// A virtual CPU without work.
    GuestIdle "guest-idle",
    /// A grace period of RCU.
    Rcu "rcu",
    /// A work item.
    Work "work",
    /// Other CPUs to answer.
    Ipi "ipi",
    /// A CPU to run a function for it (smp_call_function).
    CrossCall "cross-call",
    /// A completion of the kernel.
    Completion "completion",
    /// A kernel thread to begin or end.
    Kthread "kthread",
    /// A program that the kernel started.
    Helper "helper",
    /// Dying cgroups.
    Cgroup "cgroup",
    /// Another's lookup of a name.
    Lookup "lookup",
    /// An inode that another frees or reads.
    Inode "inode",
    /// The automount daemon.
    Automount "automount",
    /// References to a network device.
    Netdev "netdev",
    /// A device that is no block device.
    Device "device",
    /// The host to come up.
    Boot "boot",
    /// Its own timer.
    Timer "timer",
    /// A sleep of set length while others may wait.
    Sleep "sleep",
    /// Nothing to do.
    Idle "idle",
    /// A packet.
    Network "network",
    /// A CPU that was asked and did not come.
    LateCpu "late-cpu",
    /// The hypervisor had the CPU.
    Steal "steal",
    /// A CPU that delivers less than others.
    SlowCpu "slow-cpu",
    /// The depth of idle states.
    IdleState "idle-state",
    /// A CPU on which interrupts were off.
    IrqsOff "irqs-off",
    /// A softirq.
    Softirq "softirq",
    /// A receive queue.
    ReceiveQueue "receive-queue",
    /// User code that burns a CPU to wait.
    Spin "spin",
    /// Somebody writes.
    Writes "writes",
    /// It had not begun.
    NotBegun "not-begun",
    /// They wait for each other.
    Cycle "cycle",
    /// Nobody was woken in the window.
    Open "open",
    /// Waits to be given something to do, together.
    Handed "handed",
    /// Sleeps of one's own wish, together.
    Voluntary "voluntary",
    /// Parts too small to be told apart.
    Other "other",
    /// Nobody saw what happened.
    Unexplained "unexplained",
    /// In uninterruptible sleep, whatever for.
    Blocked "blocked",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_stands_for_two() {
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
