//! How long do work items wait in their queue, and how long do they run? The kernel half is `work.bpf.c`.

use std::mem::{MaybeUninit, size_of};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::crowd::{Crowd, Verdict};
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
/// Then the hooks are attached again, until a beat later there are still too many.
const AWAY: Duration = Duration::from_secs(2);

/// The running probe. Dropping it detaches it from the kernel.
pub struct Work<'slot> {
    skel: skel::WorkSkel<'slot>,
    walk: Link,
    too_many: f64,
    crowd: Crowd,
    let_go_at: Option<Instant>,
    /// How long the hooks were detached, so far.
    away: Duration,
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
        let crowd = Crowd::new(TOO_MANY, 0.0);
        Ok(Self { skel, walk, too_many: TOO_MANY, crowd, let_go_at: None, away: Duration::ZERO })
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

    /// Items that were started on each CPU.
    fn counts(&self) -> Option<Vec<u64>> {
        let counts = self.skel.maps.started.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(counts.iter().map(|bytes| value(bytes)).collect())
    }

    fn time_away(&self) -> Duration {
        self.away + self.let_go_at.map_or(Duration::ZERO, |then| then.elapsed())
    }

    /// If that is refused, the hooks stay detached, and the end reports for how long.
    fn come_back(&mut self) {
        let back = self.attach().is_ok() && self.seed().is_ok();
        self.away = self.time_away();
        self.let_go_at = (!back).then(Instant::now);
        if back {
            self.crowd = Crowd::new(self.too_many, 0.0);
            // Counted from now on: the next beat shows whether they still are too many.
            self.counts().and_then(|counts| self.crowd.judge(counts, Instant::now()));
        } else {
            self.detach();
        }
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
        match self.let_go_at {
            Some(then) if then.elapsed() >= AWAY => self.come_back(),
            Some(_) => {}
            None => {
                let counts = self.counts();
                if counts.and_then(|counts| self.crowd.judge(counts, Instant::now()))
                    == Some(Verdict::TooMany)
                {
                    self.let_go_at = Some(Instant::now());
                    self.detach();
                }
            }
        }
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let away = self.time_away();
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
