//! Who waits for which kernel lock, for how long, and who holds it? The kernel half is `locks.bpf.c`.

use std::collections::HashMap;
use std::mem::{MaybeUninit, size_of};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject, RingBufferBuilder};
use whyslow_model::Missing;

use super::shared::Shared;
use super::{missing, oncpu, value, walk};
use crate::host;

skeleton!("locks");
pub use skel::types::{lock_wait, locks_hold, locks_open};
use skel::types::{locks_key, locks_row};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for locks_key {}
// SAFETY: as above.
unsafe impl plain::Plain for locks_row {}
// SAFETY: as above.
unsafe impl plain::Plain for locks_hold {}
// SAFETY: as above.
unsafe impl plain::Plain for locks_open {}

/// The name of this probe in reports.
pub const WHAT: &str = "kernel locks";

/// How often each timer looks again at waits that last.
const HERTZ: u64 = 99;
/// CPUs with such a timer: with one alone, whoever keeps interrupts off there would blind us.
const TIMERS: usize = 2;
/// Waiters whose stack is taken when the window ends: 13 us each.
const MAX_STACKS: u64 = 1000;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Locks<'slot> {
    skel: skel::LocksSkel<'slot>,
    timers: Vec<Link>,
    walk: Link,
    holds: Vec<locks_hold>,
    counts_from: u64,
}

/// The waits for one lock from one call site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Address of the lock; 0: several, for which there was no room.
    pub lock: u64,
    /// `enum lock_kind` of the kernel half.
    pub kind: u32,
    /// To be taken for writing.
    pub write: bool,
    /// The waiters' kernel addresses, innermost first; empty: short waits, and what was over the rate.
    pub frames: Vec<u64>,
    /// Waits that ended.
    pub count: u64,
    /// Their time, summed.
    pub total_ns: u64,
    /// The longest.
    pub worst_ns: u64,
}

/// What the probe saw. Times are CLOCK_MONOTONIC.
#[derive(Default)]
pub struct Seen {
    /// Waits that ended.
    pub rows: Vec<Row>,
    /// Waits that have not ended.
    pub open: Vec<locks_open>,
    /// Holders of locks that somebody waited long for.
    pub holds: Vec<locks_hold>,
    /// Holders that were not told, to stay cheap.
    pub shed: u64,
}

impl<'slot> Locks<'slot> {
    /// Load, attach, and find the waits that have begun already: the window begins.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        cpus: &[u32],
    ) -> Result<Self, Missing> {
        let probe = Self::load(slot, shared).map_err(|err| not_started(&err))?;
        probe.timed(cpus)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>, shared: Option<Shared<'_>>) -> libbpf_rs::Result<Self> {
        let mut open = skel::LocksSkelBuilder::default().open(slot)?;
        if let Some(shared) = shared {
            open.maps.lock_waits.reuse_fd(shared.lock_waits)?;
        }
        let mut skel = open.load()?;
        let (seed, walk) = (skel.progs.seed.attach()?, skel.progs.walk.attach()?);
        skel.links = skel::LocksLinks {
            ends: Some(skel.progs.ends.attach()?),
            begins: Some(skel.progs.begins.attach()?),
            seed: Some(seed),
            ..skel.links
        };
        Ok(Self { skel, timers: Vec::new(), walk, holds: Vec::new(), counts_from: 0 })
    }

    fn timed(mut self, cpus: &[u32]) -> Result<Self, Missing> {
        if let Some(seed) = &self.skel.links.seed {
            walk(WHAT, seed)?;
        }
        for cpu in cpus.iter().take(TIMERS) {
            let timer = oncpu::open_timer(WHAT, *cpu, HERTZ)?;
            let link = self.skel.progs.again.attach_perf_event(timer).map_err(|err| missing(WHAT, &err))?;
            self.timers.push(link);
        }
        Ok(self)
    }

    /// The window begins now, and lasts until `end` is told: what lies outside is not told.
    pub fn begin(&mut self) {
        self.counts_from = host::monotonic_ns();
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counts_from = self.counts_from;
        }
    }

    /// The window has ended when it was so long.
    pub fn end(&mut self, window: Duration) {
        let ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counts_to = self.counts_from.saturating_add(ns);
        }
    }

    /// Take what waits in the ring buffer. To be called a few times a second.
    pub fn poll(&mut self) -> Result<(), Missing> {
        let Self { skel, holds, .. } = self;
        let note = |bytes: &[u8]| {
            holds.push(value(bytes));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.holds, note).map_err(|err| missing(WHAT, &err))?;
        builder.build().and_then(|ring| ring.consume()).map_err(|err| missing(WHAT, &err))
    }

    /// Who waits for a lock at this moment, and who owns it: all tasks are looked at once.
    /// `since` is 0 where the wait's begin was not seen.
    pub fn sample(&self) -> Result<Vec<locks_open>, Missing> {
        Ok(walk(WHAT, &self.walk)?.chunks_exact(size_of::<locks_open>()).map(value).collect())
    }

    /// The window ends: detach, and tell.
    pub fn finish(mut self) -> Result<(Seen, u64), Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.stacks_left = MAX_STACKS;
        }
        let open = self.sample()?;
        self.timers.clear();
        self.skel.links.begins = None;
        self.skel.links.ends = None;
        self.poll()?;
        let rows = self.rows()?;
        let (shed, lost) = self.skel.maps.bss_data.as_ref().map_or((0, 0), |bss| (bss.shed, bss.lost));
        Ok((Seen { rows, open, holds: std::mem::take(&mut self.holds), shed }, lost))
    }

    fn rows(&self) -> Result<Vec<Row>, Missing> {
        let map = &self.skel.maps.rows;
        let mut stacks = HashMap::new();
        let mut rows = Vec::new();
        for bytes in map.keys() {
            let Some(row) = map.lookup(&bytes, MapFlags::ANY).map_err(|err| missing(WHAT, &err))? else {
                continue;
            };
            let (key, row): (locks_key, locks_row) = (value(&bytes), value(&row));
            let frames: &Vec<u64> =
                stacks.entry(key.stack).or_insert_with(|| self.stack(key.stack).unwrap_or_default());
            rows.push(Row {
                lock: key.lock,
                kind: key.kind.into(),
                write: key.write != 0,
                frames: frames.clone(),
                count: row.count,
                total_ns: row.total_ns,
                worst_ns: row.worst_ns,
            });
        }
        Ok(rows)
    }

    fn stack(&self, id: i32) -> Option<Vec<u64>> {
        let id = u32::try_from(id).ok()?; // negative: no such stack
        let bytes = self.skel.maps.sites.lookup(&id.to_ne_bytes(), MapFlags::ANY).ok()??;
        let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        Some(words.take_while(|address| *address != 0).collect())
    }
}

fn not_started(err: &libbpf_rs::Error) -> Missing {
    let why = missing(WHAT, err);
    if super::has_tracepoint("contention_begin") {
        return why;
    }
    Missing::NotInKernel { what: "lock contention tracepoints".to_owned(), needs: "Linux 5.19".to_owned() }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "locks_mmap_tests.rs"]
mod mmap_tests;
