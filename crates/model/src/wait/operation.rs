//! Operations: at a block device, of a peer, of kernel code that spins.

use serde::Serialize;

/// Operation at a block device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum Operation {
    PageFault,
    Read,
    Write,
    Fsync,
    Msync,
    Sync,
    CacheFlush,
    Discard,
    Command,
    QueueSlot,
    FileSystemBlock,
    FileSystemData,
    DirectIo,
    SoftwareRaid,
    IoUring,
    SwapIn,
    Reclaim,
    ReclaimAtLimit,
    WritebackThrottling,
    /// Only the function or system call that waits is known.
    In(String),
    NotKnown,
}

impl Operation {
    /// The operation of a waiting function or system call, by its name.
    #[must_use]
    pub fn of_function(function: String) -> Self {
        match function.as_str() {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "fsync" => Operation::Fsync,
            "msync" => Operation::Msync,
            "sync" => Operation::Sync,
            _ => Operation::In(function),
        }
    }

    pub(super) fn words(&self) -> &str {
        match self {
            Operation::PageFault => "page fault",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Fsync => "fsync",
            Operation::Msync => "msync",
            Operation::Sync => "sync",
            Operation::CacheFlush => "flush of its cache",
            Operation::Discard => "discard",
            Operation::Command => "I/O",
            Operation::QueueSlot => "a free place in the queue",
            Operation::FileSystemBlock => "a block of the file system",
            Operation::FileSystemData => "the file system's data",
            Operation::DirectIo => "direct I/O",
            Operation::SoftwareRaid => "software RAID",
            Operation::IoUring => "io_uring",
            Operation::SwapIn => "swap-in",
            Operation::Reclaim => "reclaim",
            Operation::ReclaimAtLimit => "reclaim at its cgroup's limit",
            Operation::WritebackThrottling => "writes held back by wbt",
            Operation::In(function) => function,
            Operation::NotKnown => "",
        }
    }
}

/// What the peer of a connection has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum PeerAct {
    Send,
    Accept,
    Take,
    TakeAtClose,
}

/// The thing that kernel code spins for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum Spin {
    Cpus,
    LockOwner,
    RtmutexOwner,
    Spinlock,
    ReaderWriterSpinlock,
    Time,
    StopMachine,
    TextPatch,
    InterruptHandler,
    TimerFunction,
    BitLock,
    SequenceWriter,
    PolledDevice,
}

impl Spin {
    pub(super) fn words(self) -> &'static str {
        match self {
            Spin::Cpus => "CPUs to answer",
            Spin::LockOwner => "the owner of a mutex or rwsem that runs",
            Spin::RtmutexOwner => "the owner of an rtmutex that runs",
            Spin::Spinlock => "a spinlock",
            Spin::ReaderWriterSpinlock => "a reader-writer spinlock",
            Spin::Time => "time to pass",
            Spin::StopMachine => "other CPUs to stop (stop_machine)",
            Spin::TextPatch => "code to be patched on all CPUs",
            Spin::InterruptHandler => "an interrupt handler to end",
            Spin::TimerFunction => "a timer's function to end",
            Spin::BitLock => "a bit lock",
            Spin::SequenceWriter => "a sequence count's writer",
            Spin::PolledDevice => "a device (polling for its completion)",
        }
    }
}
