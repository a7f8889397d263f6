//! How long does a thread spin until a CPU has answered, on kernels that have no event for it? The kernel half is `ipi.bpf.c`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use whyslow_model::Missing;

use super::irq_latency::{self, CALLS};
use super::{missing, types};
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("ipi");

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: cross-CPU calls",
    lost: "which CPU a thread that spins waits for",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[CALLS],
    of_waits: true,
    start: |slot, start| {
        if start.kernel.types().irq_latency.calls {
            return Ok(None); // the object of IRQ latency sees them
        }
        let Some(shared) = &start.lent.irq_latency else {
            return Err(Missing::skipped(
                CALLS,
                "its maps are those of the IRQ latency probe, which did not start",
            ));
        };
        Ok(Some(Box::new(Ipi::start(slot, shared.each_ref().map(AsFd::as_fd))?)))
    },
};

/// The running probe. Dropping it detaches it from the kernel. Its rows are those of `irq_latency`.
pub struct Ipi<'slot> {
    skel: skel::IpiSkel<'slot>,
}

impl<'slot> Ipi<'slot> {
    /// Load and attach; it fills the maps of `irq_latency`.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: [BorrowedFd<'_>; 4],
    ) -> Result<Self, Missing> {
        Self::load(slot, shared).map_err(|err| match missing(CALLS, &err) {
            // Kernels without it refuse to load the program.
            Missing::NotAllowed { .. } => Missing::NotInKernel {
                what: CALLS.to_owned(),
                needs: "Linux 6.4, or function tracing (fentry)".to_owned(),
            },
            other => other,
        })
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: [BorrowedFd<'_>; 4],
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::IpiSkelBuilder>().open(slot)?;
        let [cpus, rows, victims, wakes] = shared;
        open.maps.irqlat_cpus.reuse_fd(cpus)?;
        open.maps.irqlat_rows.reuse_fd(rows)?;
        open.maps.irqlat_victims.reuse_fd(victims)?;
        open.maps.irqlat_wakes.reuse_fd(wakes)?;
        let mut skel = open.load()?;
        skel.attach()?;
        Ok(Ipi { skel })
    }

    /// Calls that could not be noted.
    fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Ipi<'_> {
    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(irq_latency::WHAT, self.lost());
        ending.later(|naming| {
            // No call was late; where the object that keeps the rows could not report, that is not known.
            if naming.tables.irq_latencies.is_some() {
                naming.tables.cross_calls.get_or_insert_default();
            }
        });
        Ok(())
    }
}
