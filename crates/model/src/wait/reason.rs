//! Why a task waited, or that it ran.

use crate::words::words;

words! {
    /// Why a task waited, or that it ran: one word, the same in chains, accounts, causes and JSON.
    #[derive(Default)]
    Reason {
        /// A 9p server.
        NineP "9p",
        /// A connection to accept.
        Accept "accept",
        /// Completions of Linux asynchronous I/O.
        Aio "aio",
        /// The automount daemon.
        Automount "automount",
        /// A binder transaction.
        Binder "binder",
        /// A block device.
        BlockIo "block-io",
        /// In uninterruptible sleep, whatever for.
        Blocked "blocked",
        /// The host to come up.
        Boot "boot",
        /// A Ceph cluster.
        Ceph "ceph",
        /// Dying cgroups.
        Cgroup "cgroup",
        /// A child to end.
        Child "child",
        /// Pages to be moved.
        Compaction "compaction",
        /// A completion of the kernel.
        Completion "completion",
        /// A connection to be accepted.
        Connect "connect",
        /// A core dump.
        Coredump "coredump",
        /// A cgroup's CPU quota had run out, by where it waited.
        CpuQuota "cpu-quota",
        /// A CPU to run a function for it (smp_call_function).
        CrossCall "cross-call",
        /// They wait for each other.
        Cycle "cycle",
        /// A device that is no block device.
        Device "device",
        /// The kernel pauses writers until dirty pages are written (balance_dirty_pages).
        DirtyThrottling "dirty-throttling",
        /// Events of many descriptors (epoll).
        Epoll "epoll",
        /// A count in an eventfd.
        Eventfd "eventfd",
        /// Accesses to files, or the listener that permits them.
        Fanotify "fanotify",
        /// A lock on a file.
        FileLock "file-lock",
        /// Stopped by the freezer.
        Frozen "frozen",
        /// A FUSE server, or its clients.
        Fuse "fuse",
        /// A lock or signal of user space.
        Futex "futex",
        /// A virtual CPU without work.
        GuestIdle "guest-idle",
        /// Waits for work, together.
        Handed "handed",
        /// A program that the kernel started.
        Helper "helper",
        /// Nothing to do.
        Idle "idle",
        /// The depth of idle states.
        IdleState "idle-state",
        /// An inode that another task frees or reads.
        Inode "inode",
        /// Changes of files.
        Inotify "inotify",
        /// A cgroup's limit on a disk.
        IoThrottle "io-throttle",
        /// Completions of io_uring.
        IoUring "io-uring",
        /// Other CPUs to answer.
        Ipi "ipi",
        /// A CPU on which interrupts were off.
        IrqsOff "irqs-off",
        /// A file system's journal.
        Journal "journal",
        /// Messages of the kernel's log.
        KernelLog "kernel-log",
        /// A kernel thread to begin or end.
        Kthread "kthread",
        /// A CPU that was asked and did not come.
        WakeupLatency "wakeup-latency",
        /// A kernel lock.
        Lock "lock",
        /// Another task's lookup of a name.
        Lookup "lookup",
        /// A cgroup's memory limit.
        MemoryLimit "memory-limit",
        /// A message queue's other end.
        MessageQueue "message-queue",
        /// References to a network device.
        Netdev "netdev",
        /// Messages of the kernel.
        Netlink "netlink",
        /// A packet.
        Network "network",
        /// An NFS server.
        Nfs "nfs",
        /// It had not begun.
        NotBegun "not-begun",
        /// No wakeup came in the window.
        Open "open",
        /// Parts too small to be told apart.
        Other "other",
        /// Pages of a file system without a device.
        Page "page",
        /// Pages of files to be allocated and filled.
        PageCacheFill "page-cache-fill",
        /// A pipe's other end.
        Pipe "pipe",
        /// Events of many descriptors (poll, select).
        Poll "poll",
        /// A cgroup's CPU quota had run out, by the scheduler's clock.
        Quota "quota",
        /// A grace period of RCU.
        Rcu "rcu",
        /// A receive queue.
        ReceiveQueue "receive-queue",
        /// Memory to be reclaimed.
        Reclaim "reclaim",
        /// Pages of files that were evicted, to be refaulted.
        Refault "refault",
        /// Ready for a CPU.
        Runnable "runnable",
        /// It did not wait: it had a CPU.
        Running "running",
        /// A supervisor of system calls.
        Seccomp "seccomp",
        /// A System V semaphore.
        Semaphore "semaphore",
        Signal "signal",
        /// A sleep of set length while others may wait.
        Sleep "sleep",
        /// A CPU that delivers less than others.
        SlowCpu "slow-cpu",
        /// An SMB server.
        Smb "smb",
        /// A network socket's other end.
        Socket "socket",
        Softirq "softirq",
        /// User code that burns a CPU to wait.
        Spin "spin",
        /// It had a CPU, and burned it to wait.
        Spinning "spinning",
        /// The hypervisor had the CPU.
        Steal "steal",
        /// Stopped by a signal.
        Stopped "stopped",
        /// Pages that swap had, to be found, read and mapped.
        SwapFault "swap-fault",
        /// Pages to come back from swap.
        SwapIn "swap-in",
        /// A thread to end.
        Thread "thread",
        /// Its own timer.
        Timer "timer",
        /// A tracer.
        Traced "traced",
        /// Events of a tracer's buffer.
        Tracing "tracing",
        /// A terminal.
        Tty "tty",
        /// No evidence says what happened.
        Unexplained "unexplained",
        /// A unix socket's other end.
        UnixSocket "unix-socket",
        /// Not known.
        #[default]
        Unknown "unknown",
        /// Page faults that another process handles.
        Userfault "userfault",
        /// A child to exec or end.
        Vfork "vfork",
        /// Sleeps that the task asked for, together.
        Voluntary "voluntary",
        /// Writeback throttling of the block layer.
        Wbt "wbt",
        /// A work item.
        Work "work",
        /// Dirty pages to be written.
        Writeback "writeback",
        /// A task writes.
        Writes "writes",
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
