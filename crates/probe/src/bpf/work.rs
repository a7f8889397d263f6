//! How long do work items wait in their queue, and how long do they run? The kernel half is `work.bpf.c`.

use std::mem::{MaybeUninit, size_of};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::shared::homes;
use super::{clear, map_sizes, missing, types, value, walk};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::work_table;

skeleton!("work");
pub use skel::types::{work_open, work_row, work_running};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for work_row {}
// SAFETY: as above.
unsafe impl plain::Plain for work_running {}
// SAFETY: as above.
unsafe impl plain::Plain for work_open {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::WorkItems.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: work items",
    lost: "how long work waits for a kernel worker, and runs",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: true,
    start: |slot, _| Ok(Some(Box::new(Work::start(slot)?))),
};

/// The running probe. Dropping it detaches it from the kernel.
pub struct Work<'slot> {
    skel: skel::WorkSkel<'slot>,
    walk: Link,
}

/// What the probe saw. Times are CLOCK_MONOTONIC.
#[derive(Default)]
pub struct RawWork {
    /// Items that ended, by the address of their function.
    pub rows: Vec<(u64, work_row)>,
    /// Items that still run.
    pub open: Vec<work_open>,
}

impl<'slot> Work<'slot> {
    /// Load, attach, and find the items that run already: the window begins.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        let probe = Self::load(slot).map_err(|err| not_started(&err))?;
        if let Some(seed) = &probe.skel.links.seed {
            walk(WHAT, seed)?;
        }
        Ok(probe)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::WorkSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.homes = homes();
        }
        let mut skel = open.load()?;
        let (seed, walk) = (skel.progs.seed.attach()?, skel.progs.walk.attach()?);
        skel.links = skel::WorkLinks {
            ends: Some(skel.progs.ends.attach()?),
            starts: Some(skel.progs.starts.attach()?),
            activated: Some(skel.progs.activated.attach()?),
            queued: Some(skel.progs.queued.attach()?),
            seed: Some(seed),
            ..skel.links
        };
        Ok(Self { skel, walk })
    }

    /// The window ends: detach, and report.
    pub fn finish(mut self) -> Result<(RawWork, u64), Missing> {
        self.told()
    }

    fn told(&mut self) -> Result<(RawWork, u64), Missing> {
        let open = walk(WHAT, &self.walk)?.chunks_exact(size_of::<work_open>()).map(value).collect();
        self.skel.links.queued = None;
        self.skel.links.activated = None;
        self.skel.links.starts = None;
        self.skel.links.ends = None;
        let rows = self.rows()?;
        let lost = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost);
        Ok((RawWork { rows, open }, lost))
    }

    fn rows(&self) -> Result<Vec<(u64, work_row)>, Missing> {
        let map = &self.skel.maps.rows;
        let mut rows = Vec::new();
        for key in map.keys() {
            let Some(row) = map.lookup(&key, MapFlags::ANY).map_err(|err| missing(WHAT, &err))? else {
                continue;
            };
            rows.push((key.as_slice().try_into().map_or(0, u64::from_ne_bytes), value(&row)));
        }
        Ok(rows)
    }
}

impl Probe for Work<'_> {
    /// Sums start anew, items that wait or run stay known: their time before is not counted.
    fn begin(&mut self) -> Result<(), Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.began = host::monotonic_ns();
        }
        clear(&self.skel.maps.rows);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let (seen, lost) = self.told()?;
        ending.lost(WHAT, lost);
        ending.later(move |naming| {
            let window = naming.window;
            naming.tables.works = Some(work_table::works(&seen, window.start_ns, window.ns, naming.kernel));
        });
        Ok(())
    }
}

fn not_started(err: &libbpf_rs::Error) -> Missing {
    let why = missing(WHAT, err);
    if super::has_tracepoint("workqueue_queue_work") {
        return why;
    }
    Missing::NotInKernel { what: "workqueue tracepoints".to_owned(), needs: "CONFIG_TRACEPOINTS".to_owned() }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
