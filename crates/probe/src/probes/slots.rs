//! Memory for the objects of the probes, which outlives them.

use super::probe::Slot;
use super::registry;

/// Where the kernel's copies of the programs live.
pub struct Slots {
    pub(super) tasks: Slot,
    pub(super) sched: Slot,
    pub(super) pidns: Slot,
    /// Slots of the registry's probes, in its order.
    pub(super) entries: [Slot; registry::ALL.len()],
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            tasks: Slot::uninit(),
            sched: Slot::uninit(),
            pidns: Slot::uninit(),
            entries: [const { Slot::uninit() }; registry::ALL.len()],
        }
    }
}
