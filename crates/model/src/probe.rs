//! The probes that fill tables, by name: who fills one and who misses it call it alike.

use std::fmt;

macro_rules! probes {
    ($($variant:ident $name:literal: $doc:literal,)*) => {
        /// What fills a table. Its name stands in `missing[].what` and among lost events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Probe {
            $(#[doc = $doc] $variant,)*
        }

        impl Probe {
            /// All of them.
            pub const ALL: &[Probe] = &[$(Probe::$variant),*];

            /// As documents and recordings call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Probe::$variant => $name,)*
                }
            }
        }
    };
}

probes! {
    BlockIo "block I/O": "Requests of block devices.",
    BpfPrograms "BPF programs": "BPF programs of others.",
    Code "code of on-CPU samples": "The machine code around what had a CPU.",
    CpuSpeed "CPU speed": "What each CPU delivers.",
    CrossCalls "cross-CPU calls": "Calls of other CPUs that came late.",
    InterruptTime "interrupt time": "Time of each CPU in interrupt handlers.",
    KernelLocks "kernel locks": "Contention of kernel locks, and who held them.",
    LateCpus "late CPUs": "Times in which a CPU took no interrupt, and timers that came late.",
    LatencyHolders "holders of wake-up limits": "Processes that want wake-ups to be quick.",
    ListeningSockets "listening sockets": "Listening sockets that turned connections away.",
    MemoryEvents "memory events": "Reclaim, refaults, swap.",
    OffCpuStacks "off-CPU stacks": "What tasks did and waited for, in order.",
    OnCpuSamples "on-CPU samples": "Stacks that had a CPU.",
    ReceiveQueues "receive queues": "Sockets whose packets waited for a reader.",
    ReceivedPackets "received packets": "What the receive softirq did.",
    SystemCalls "system calls": "System calls of watched tasks.",
    TaskList "task list": "Tasks and cgroups, with their sums.",
    TcpConnects "TCP connects": "Who opened TCP connections.",
    WorkItems "work items": "Work items of the kernel.",
}

impl Probe {
    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Probe::ALL.iter().find(|probe| probe.name() == name).copied()
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
