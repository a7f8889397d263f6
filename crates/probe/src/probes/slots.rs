//! Memory for the objects of the probes, which outlives them.

use std::mem::MaybeUninit;

use libbpf_rs::OpenObject;

/// Where the kernel's copies of the programs live.
pub struct Slots {
    pub(super) tasks: MaybeUninit<OpenObject>,
    pub(super) sched: MaybeUninit<OpenObject>,
    pub(super) oncpu: MaybeUninit<OpenObject>,
    pub(super) irq: MaybeUninit<OpenObject>,
    pub(super) blkio: MaybeUninit<OpenObject>,
    pub(super) connect: MaybeUninit<OpenObject>,
    pub(super) memory: MaybeUninit<OpenObject>,
    pub(super) locks: MaybeUninit<OpenObject>,
    pub(super) work: MaybeUninit<OpenObject>,
    pub(super) calls: MaybeUninit<OpenObject>,
    pub(super) irq_latency: MaybeUninit<OpenObject>,
    pub(super) ipi: MaybeUninit<OpenObject>,
    pub(super) napi: MaybeUninit<OpenObject>,
    pub(super) pidns: MaybeUninit<OpenObject>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            tasks: MaybeUninit::uninit(),
            sched: MaybeUninit::uninit(),
            oncpu: MaybeUninit::uninit(),
            irq: MaybeUninit::uninit(),
            blkio: MaybeUninit::uninit(),
            connect: MaybeUninit::uninit(),
            memory: MaybeUninit::uninit(),
            locks: MaybeUninit::uninit(),
            work: MaybeUninit::uninit(),
            calls: MaybeUninit::uninit(),
            irq_latency: MaybeUninit::uninit(),
            ipi: MaybeUninit::uninit(),
            napi: MaybeUninit::uninit(),
            pidns: MaybeUninit::uninit(),
        }
    }
}

/// Those of the probes that need nothing of the others.
pub(super) struct IndependentSlots<'slot> {
    pub tasks: &'slot mut MaybeUninit<OpenObject>,
    pub irq: &'slot mut MaybeUninit<OpenObject>,
    pub oncpu: &'slot mut MaybeUninit<OpenObject>,
    pub connect: &'slot mut MaybeUninit<OpenObject>,
    pub memory: &'slot mut MaybeUninit<OpenObject>,
    pub work: &'slot mut MaybeUninit<OpenObject>,
    pub napi: &'slot mut MaybeUninit<OpenObject>,
}

/// Those of the others.
pub(super) struct LinkedSlots<'slot> {
    pub sched: &'slot mut MaybeUninit<OpenObject>,
    pub blkio: &'slot mut MaybeUninit<OpenObject>,
    pub locks: &'slot mut MaybeUninit<OpenObject>,
    pub calls: &'slot mut MaybeUninit<OpenObject>,
    pub irq_latency: &'slot mut MaybeUninit<OpenObject>,
    pub ipi: &'slot mut MaybeUninit<OpenObject>,
    pub pidns: &'slot mut MaybeUninit<OpenObject>,
}

impl Slots {
    /// For two threads.
    pub(super) fn halves(&mut self) -> (IndependentSlots<'_>, LinkedSlots<'_>) {
        let Slots {
            tasks,
            sched,
            oncpu,
            irq,
            blkio,
            connect,
            memory,
            locks,
            work,
            calls,
            irq_latency,
            ipi,
            napi,
            pidns,
        } = self;
        (
            IndependentSlots { tasks, irq, oncpu, connect, memory, work, napi },
            LinkedSlots { sched, blkio, locks, calls, irq_latency, ipi, pidns },
        )
    }
}
