//! The probes that fill tables, by name: the code that fills a table and the code that misses it use one name.

use crate::words::words;

words! {
    /// A probe: it fills a table. Its word stands in `missing[].what` and among lost events.
    Probe {
        /// Requests of block devices.
        BlockIo "block I/O",
        /// Samples of tasks in D state.
        BlockedTasks "samples of tasks in D state",
        /// BPF programs of other processes.
        BpfPrograms "BPF programs",
        /// Cgroups and namespaces that were made and removed.
        Churn "cgroups and namespaces made",
        /// Machine code around on-CPU samples.
        Code "code of on-CPU samples",
        /// Speed of each CPU.
        CpuSpeed "CPU speed",
        /// Function calls on other CPUs that were late.
        CrossCalls "cross-CPU calls",
        /// System calls that failed because something was used up.
        FailedCalls "calls that failed",
        /// Time of each CPU in interrupt handlers.
        InterruptTime "interrupt time",
        /// Contention of kernel locks, and their holders.
        KernelLocks "kernel locks",
        /// Times in which a CPU took no interrupt, and late timers.
        IrqLatency "IRQ latency",
        /// Processes that want wake-ups to be quick.
        LatencyHolders "holders of wake-up limits",
        /// Listening sockets that turned connections away.
        ListeningSockets "listening sockets",
        /// Reclaim, refaults, swap.
        MemoryEvents "memory events",
        /// Timelines of tasks: runs and waits, in order.
        OffCpuStacks "off-CPU stacks",
        /// Stacks that had a CPU.
        OnCpuSamples "on-CPU samples",
        /// Packets that waited for their CPU.
        PacketStalls "packet stalls",
        /// Sockets whose packets waited for a reader.
        ReceiveQueues "receive queues",
        /// What the receive softirq did.
        ReceivedPackets "received packets",
        /// Reads of files that the kernel makes when they are read.
        StatReads "reads of statistics files",
        /// System calls of watched tasks.
        SystemCalls "system calls",
        /// Tasks and cgroups, with their sums.
        TaskList "task list",
        /// TCP connections that tasks opened.
        TcpConnects "TCP connects",
        /// Work items of the kernel.
        WorkItems "work items",
    }
}

impl Probe {
    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Probe::ALL.iter().find(|probe| probe.word() == name).copied()
    }
}
