//! How long does a thread spin until a CPU has answered, on kernels that do not tell? The kernel half is `ipi.bpf.c`.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use whyslow_model::Missing;

use super::irq_latency::CALLS;
use super::{missing, types};

skeleton!("ipi");

/// The running probe. Dropping it detaches it from the kernel. Its rows are those of `late`.
pub struct Ipi<'slot> {
    skel: skel::IpiSkel<'slot>,
}

impl<'slot> Ipi<'slot> {
    /// Load and attach; it fills the maps of `late`, if that runs.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<[BorrowedFd<'_>; 4]>,
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
        shared: Option<[BorrowedFd<'_>; 4]>,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::IpiSkelBuilder>().open(slot)?;
        if let Some([cpus, rows, payers, wakes]) = shared {
            open.maps.irqlat_cpus.reuse_fd(cpus)?;
            open.maps.irqlat_rows.reuse_fd(rows)?;
            open.maps.irqlat_payers.reuse_fd(payers)?;
            open.maps.irqlat_wakes.reuse_fd(wakes)?;
        }
        let mut skel = open.load()?;
        skel.attach()?;
        Ok(Ipi { skel })
    }

    /// Calls that could not be noted.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}
