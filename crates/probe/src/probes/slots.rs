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
    pub(super) late: MaybeUninit<OpenObject>,
    pub(super) ipi: MaybeUninit<OpenObject>,
    pub(super) napi: MaybeUninit<OpenObject>,
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
            late: MaybeUninit::uninit(),
            ipi: MaybeUninit::uninit(),
            napi: MaybeUninit::uninit(),
        }
    }
}
