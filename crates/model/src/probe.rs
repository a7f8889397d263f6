//! The probes that fill tables, by name: who fills one and who misses it call it alike.

use crate::words::words;

words! {
    /// What fills a table. Its word stands in `missing[].what` and among lost events.
    Probe {
        /// Requests of block devices.
        BlockIo "block I/O",
        /// BPF programs of others.
        BpfPrograms "BPF programs",
        /// The machine code around what had a CPU.
        Code "code of on-CPU samples",
        /// What each CPU delivers.
        CpuSpeed "CPU speed",
        /// Calls of other CPUs that came late.
        CrossCalls "cross-CPU calls",
        /// System calls that failed for want of something.
        FailedCalls "calls that failed",
        /// Time of each CPU in interrupt handlers.
        InterruptTime "interrupt time",
        /// Contention of kernel locks, and who held them.
        KernelLocks "kernel locks",
        /// Times in which a CPU took no interrupt, and timers that came late.
        IrqLatency "IRQ latency",
        /// Processes that want wake-ups to be quick.
        LatencyHolders "holders of wake-up limits",
        /// Listening sockets that turned connections away.
        ListeningSockets "listening sockets",
        /// Reclaim, refaults, swap.
        MemoryEvents "memory events",
        /// What tasks did and waited for, in order.
        OffCpuStacks "off-CPU stacks",
        /// Stacks that had a CPU.
        OnCpuSamples "on-CPU samples",
        /// Sockets whose packets waited for a reader.
        ReceiveQueues "receive queues",
        /// What the receive softirq did.
        ReceivedPackets "received packets",
        /// System calls of watched tasks.
        SystemCalls "system calls",
        /// Tasks and cgroups, with their sums.
        TaskList "task list",
        /// Who opened TCP connections.
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
