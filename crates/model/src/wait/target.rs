//! Things to wait for that have no name of their own.

use std::fmt;

use serde::Serialize;

use super::Reason;

macro_rules! targets {
    ($($variant:ident $reason:ident $words:literal,)*) => {
        /// Things to wait for that have no name of their own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum WaitTarget {
            $(#[doc = $words] $variant,)*
        }

        impl WaitTarget {
            /// All of them.
            pub const ALL: &[WaitTarget] = &[$(WaitTarget::$variant),*];

            /// Why a task that waits for it waits.
            #[must_use]
            pub const fn reason(self) -> Reason {
                match self {
                    $(WaitTarget::$variant => Reason::$reason,)*
                }
            }

            /// What it is called.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(WaitTarget::$variant => $words,)*
                }
            }
        }
    };
}

targets! {
    Cpu Runnable "a CPU",
    CpuQuota CpuQuota "its cgroup's CPU quota",
    MemoryLimit MemoryLimit "its cgroup's memory limit",
    DirtyPages Writeback "dirty pages to be written",
    DirtyThrottling DirtyThrottling "dirty pages to be written (balance_dirty_pages)",
    Memory Reclaim "memory to be reclaimed",
    MemoryAtLimit Reclaim "memory to be reclaimed at its cgroup's limit",
    MovedPage Compaction "a page to be moved",
    MovedPages Compaction "pages to be moved",
    PageWithoutDevice Page "a page of a file system without a device",
    JournalCommit Journal "a journal commit",
    RunningCommit Journal "the journal's running commit",
    RunningOperations Journal "running file system operations to end",
    XfsLog Journal "the XFS log",
    BtrfsTransaction Journal "a btrfs transaction",
    DirectIo Lock "direct I/O on the same file",
    SocketLock Lock "lock of a socket (lock_sock)",
    TerminalLock Lock "lock of a terminal (ldisc_sem)",
    KernfsUsers Lock "users of a kernfs file to leave",
    FileLease FileLock "a lease to be given back",
    PiFutex Futex "a user-space lock (PI futex)",
    UserLock Futex "a user-space lock (futex)",
    FutexSignal Futex "another thread's signal (futex)",
    SystemVSemaphore Semaphore "a System V semaphore",
    PipeData Pipe "data from a pipe",
    PipeReader Pipe "the reader of a full pipe",
    FifoEnd Pipe "the other end of a FIFO to be opened",
    UnixData UnixSocket "data from a unix socket",
    UnixReader UnixSocket "the reader of a full socket",
    UnixListener UnixSocket "the listener to accept",
    SocketData Socket "data from a socket",
    Connection Accept "a connection",
    Acknowledgement Socket "an acknowledgement, before a small write is sent (Nagle)",
    NetlinkMessages Netlink "messages from the kernel (netlink)",
    NetlinkReader Netlink "the reader of a full netlink socket",
    AuditRoom Netlink "room in the queue of audit records",
    SystemVMessage MessageQueue "a System V message",
    PosixMessage MessageQueue "a POSIX message",
    MessageReader MessageQueue "the reader of a full message queue",
    EpollEvents Epoll "events (epoll)",
    EpollElsewhere Epoll "events other than its client's (epoll)",
    PollEvents Poll "events (poll)",
    Completions IoUring "completions (io_uring)",
    AsyncIo Aio "asynchronous I/O to end",
    EventfdCount Eventfd "a count in an eventfd",
    EventfdReader Eventfd "the reader of a full eventfd",
    ASignal Signal "a signal",
    FileChanges Inotify "changes of files",
    FileAccesses Fanotify "accesses to files",
    FanotifyLeave Fanotify "permission from a fanotify listener",
    UserfaultHandler Userfault "its page fault handler (userfaultfd)",
    Userfaults Userfault "page faults to handle (userfaultfd)",
    KernelMessages KernelLog "messages of the kernel",
    TraceEvents Tracing "events",
    TerminalInput Tty "input at a terminal",
    TerminalOutput Tty "a terminal to take output",
    FuseAnswer Fuse "a FUSE server's answer",
    FuseRequests Fuse "requests of a FUSE file system",
    NfsServer Nfs "the NFS server",
    NinePServer NineP "the 9p server",
    SmbServer Smb "the SMB server",
    CephCluster Ceph "the Ceph cluster",
    ChildEnd Child "a child to end",
    ProcessEnd Child "a process to end",
    NamespaceEnd Child "the processes of its pid namespace to end",
    ChildExec Vfork "a child to exec or end (vfork)",
    ThreadEnd Thread "a thread to end",
    OtherThreads Thread "its other threads to end (exec)",
    Tracer Traced "its tracer",
    TracedTask Traced "a traced task to stop",
    Continuation Stopped "SIGCONT (stopped by a signal)",
    Thaw Frozen "the freezer to thaw it",
    OwnCoredump Coredump "a core dump of its process",
    CoredumpTaken Coredump "a core dump to be taken",
    SupervisorAnswer Seccomp "a supervisor's answer (seccomp)",
    SupervisedCalls Seccomp "calls to supervise (seccomp)",
    BinderTransaction Binder "a binder transaction",
    VirtualCpuWork GuestIdle "work for its virtual CPU",
    RcuCallbacks Rcu "RCU callbacks to be done (reporter: cannot tell)",
    QuiescentStates Rcu "CPUs to pass a quiescent state (reporter: cannot tell)",
    StoppedCpus Ipi "other CPUs to stop for it (stop_machine)",
    CallOnCpu Ipi "a call on another CPU",
    Hotplug Ipi "a CPU to come or go (hotplug)",
    InterruptHandlers Completion "interrupt handlers to end",
    KthreadEnd Kthread "a kernel thread to end",
    KthreadStart Kthread "a kernel thread to be created",
    UsermodeHelper Helper "a program that the kernel started (usermode helper)",
    Firmware Helper "firmware",
    DyingCgroups Cgroup "dying child cgroups",
    OthersLookup Lookup "another task's lookup of the same name",
    OthersInode Inode "another task to free or read the inode",
    AutomountDaemon Automount "the automount daemon",
    DeviceReferences Netdev "references to a network device",
    UsbDevice Device "a USB device",
    SomeDevice Device "a device",
    HypervisorDevice Device "a device of the hypervisor",
    Gpu Device "the GPU",
    HostStart Boot "the host to come up",
    OwnSleep Timer "its own sleep",
    EpollTimeout Timer "its own timeout (epoll)",
    PollTimeout Timer "its own timeout (poll)",
    FutexTimeout Timer "its own timeout (futex)",
    TimerfdTimer Timer "its own timer (timerfd)",
    WorkToDo Idle "work to do",
    ATimer Timer "a timer",
    BlockIo BlockIo "block I/O",
    Packet Network "a packet",
    RoundTrip Network "the round trip to the peer",
    PeerTime Socket "the peer's own time",
    GracePeriod Rcu "an RCU grace period",
    CallOfCpu Ipi "another CPU's call",
    OnCpu Running "on CPU",
    OwnTracing Running "whyslow's own tracing",
    HadCpu Running "had the CPU",
    ShortRuns Running "short runs of other tasks",
    KernelCode Running "the kernel (no symbol)",
    OtherUserCode Running "other functions (user code)",
    PromptCpus WakeupLatency "CPUs that answered within half a millisecond",
    InTurn Cycle "waits for this task in turn",
    NobodyWoke Open "no wakeup came in the window",
    NotBegun NotBegun "it had not begun",
    AsleepThroughout Sleep "asleep through the whole window",
    GivenWork Handed "waiting for work",
    OwnSleeps Voluntary "its own sleep",
    SmallerParts Other "smaller parts",
    Something Unknown "something",
    NotExplained Unexplained "not explained",
    NotSeenToRun Unexplained "it was not seen to run",
    HadEnded Unexplained "it had ended",
    TracerMissed Unexplained "missed by the tracer",
    NotFollowed Unexplained "not followed any further",
    ThreadNotKnown Unexplained "the thread is not known",
    AnInterrupt Unexplained "an interrupt ended the wait",
    WakerNotSeen Unexplained "its waker was not seen",
    HolderNotSeen Unexplained "the lock holder was not seen",
    ChangedHands Unexplained "the lock changed hands unseen",
    ShortIo Unexplained "short waits for I/O, without a stack",
    ShortBlocked Unexplained "short waits, blocked, without a stack",
    ShortSleeps Unexplained "short sleeps, without a stack",
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
