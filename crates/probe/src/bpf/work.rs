//! How long do work items wait in their queue, and how long do they run? The kernel half is `work.bpf.c`.

use std::mem::{MaybeUninit, size_of};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::crowd::{Step, Visits, counts};
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

/// Items a second that one CPU starts from which on they are too many: the hooks take some 0.5 us of each, here 1 % of a CPU.
const TOO_MANY: f64 = 20_000.0;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Work<'slot> {
    skel: skel::WorkSkel<'slot>,
    walk: Link,
    visits: Visits,
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
        let mut probe = Self::load(slot).map_err(|err| not_started(&err))?;
        probe.attach().map_err(|err| not_started(&err))?;
        probe.seed()?;
        Ok(probe)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::WorkSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.homes = homes();
        }
        let skel = open.load()?;
        let walk = skel.progs.walk.attach()?;
        Ok(Self { skel, walk, visits: Visits::new(TOO_MANY) })
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.attached = host::monotonic_ns();
        }
        let (progs, links) = (&self.skel.progs, &mut self.skel.links);
        links.ends = Some(progs.ends.attach()?);
        links.starts = Some(progs.starts.attach()?);
        links.activated = Some(progs.activated.attach()?);
        links.queued = Some(progs.queued.attach()?);
        Ok(())
    }

    /// Find the items that run already.
    fn seed(&self) -> Result<(), Missing> {
        let seed = self.skel.progs.seed.attach().map_err(|err| missing(WHAT, &err))?;
        walk(WHAT, &seed).map(drop)
    }

    fn detach(&mut self) {
        let links = &mut self.skel.links;
        (links.queued, links.activated, links.starts, links.ends) = (None, None, None, None);
        // Ends were missed: no item that is noted is known to run still.
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.attached = u64::MAX;
        }
    }

    fn look_in(&mut self) {
        let is_back = self.attach().is_ok() && self.seed().is_ok();
        if !is_back {
            self.detach();
        }
        let counts = is_back.then(|| counts(&self.skel.maps.started)).flatten();
        self.visits.back(counts, Instant::now());
    }

    /// The window ends: detach, and report.
    pub fn finish(mut self) -> Result<(RawWork, u64), Missing> {
        self.told()
    }

    fn told(&mut self) -> Result<(RawWork, u64), Missing> {
        let open = walk(WHAT, &self.walk)?.chunks_exact(size_of::<work_open>()).map(value).collect();
        self.detach();
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

    /// Hooks of each item cost too much where a CPU does little but run short items.
    fn poll(&mut self, _: Duration) -> bool {
        let started = &self.skel.maps.started;
        match self.visits.judge(|| counts(started), Instant::now()) {
            Some(Step::Leave) => self.detach(),
            Some(Step::LookIn) => self.look_in(),
            None => {}
        }
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let away = self.visits.away(Instant::now());
        let (seen, lost) = self.told()?;
        ending.lost(WHAT, lost);
        if !away.is_zero() {
            let ms = away.as_millis();
            let reason = format!("for {ms} ms a CPU started too many work items to time each");
            ending.missing.push(Missing::skipped(WHAT, reason).into());
        }
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
