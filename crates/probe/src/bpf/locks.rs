//! Which tasks wait for which kernel lock, for how long, and which task holds it? The kernel half is `locks.bpf.c`.

use std::collections::HashMap;
use std::fs::File;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsFd as _;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::constants::locks_c::MAX_ROWS;
use super::constants::shared_h::LOCK_SEMAPHORE;
use super::decimated::Decimated;
use super::mapped_ring::MappedRing;
use super::shared::{Shared, homes};
use super::{map_sizes, missing, oncpu, value, walk};
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::{host, lock_table};

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
pub const WHAT: &str = whyslow_model::Probe::KernelLocks.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: kernel locks",
    lost: "which task holds the kernel lock that others wait for",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[],
    of_waits: true,
    // Its timers are set when it is known which CPUs are free for them.
    start: |slot, start| Ok(Some(Box::new(Locks::start(slot, start.shared, &[])?))),
};

/// Members of `enum lock_kind`: each has a row for the locks that have none, for reading and for writing.
const KINDS: u16 = LOCK_SEMAPHORE as u16 + 1;

/// How often each timer reads the owner again of waits that last.
const HERTZ: u64 = 99;
/// CPUs with such a timer: with one alone, code that keeps interrupts off there would blind us.
const TIMERS: usize = 2;
/// Waiters whose stack is taken when the window ends: 13 us each.
const MAX_STACKS: u64 = 1000;
/// Records of holders that are kept, 64 bytes each: half a minute of the most that the kernel half reports.
const MOST_HOLDS: usize = 200_000;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Locks<'slot> {
    skel: skel::LocksSkel<'slot>,
    held: MappedRing,
    /// By CPU.
    timers: Vec<(u32, File)>,
    walk: Link,
    holds: Decimated<locks_hold>,
    counts_from: u64,
}

/// The waits for one lock from one call site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Address of the lock; 0: several, for which there was no room.
    pub lock: u64,
    /// `enum lock_kind` of the kernel half.
    pub kind: u32,
    /// The lock is wanted for writing.
    pub write: bool,
    /// The waiters' kernel addresses, innermost first; empty: short waits, and waits over the rate.
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
pub struct RawLocks {
    /// Waits that ended.
    pub rows: Vec<Row>,
    /// Waits that have not ended.
    pub open: Vec<locks_open>,
    /// Holders of locks that a task waited long for.
    pub holds: Vec<locks_hold>,
    /// Holders that were not reported, to stay cheap.
    pub shed: u64,
}

impl<'slot> Locks<'slot> {
    /// Load, attach, and find the waits that have begun already: the window begins. `cpus`: as for `watch`; none, where it is not known yet
    /// which CPUs are reserved for a task.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        cpus: &[u32],
    ) -> Result<Self, Missing> {
        Self::start_with(slot, shared, cpus, map_sizes::rows(MAX_ROWS))
    }

    /// ... with a table of waits of so many rows.
    fn start_with(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        cpus: &[u32],
        max_rows: u32,
    ) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        let probe = Self::load(slot, shared, max_rows).map_err(|err| not_started(&err))?;
        probe.seeded(cpus)
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        max_rows: u32,
    ) -> libbpf_rs::Result<Self> {
        let mut open = skel::LocksSkelBuilder::default().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.homes = homes();
        }
        if let Some(shared) = shared {
            open.maps.begun.set_max_entries(shared.places)?;
            shared.lend(open.open_object_mut())?;
        }
        open.maps.rows.set_max_entries(max_rows)?;
        let mut skel = open.load()?;
        for (kind, write) in (0..KINDS).flat_map(|kind| [(kind, 0), (kind, 1)]) {
            let rest = locks_key { lock: 0, stack: -1, kind, write };
            // SAFETY: integers without padding.
            let key = unsafe { plain::as_bytes(&rest) };
            skel.maps.rows.update(key, &[0; size_of::<locks_row>()], MapFlags::ANY)?;
        }
        let (seed, walk) = (skel.progs.seed.attach()?, skel.progs.walk.attach()?);
        skel.links = skel::LocksLinks {
            ends: Some(skel.progs.ends.attach()?),
            begins: Some(skel.progs.begins.attach()?),
            seed: Some(seed),
            ..skel.links
        };
        let held = MappedRing::default();
        Ok(Self { skel, held, timers: Vec::new(), walk, holds: Decimated::of(MOST_HOLDS), counts_from: 0 })
    }

    fn seeded(mut self, cpus: &[u32]) -> Result<Self, Missing> {
        if let Some(seed) = &self.skel.links.seed {
            walk(WHAT, seed)?;
        }
        self.watch(cpus)?;
        Ok(self)
    }

    /// Read the owners of waits that last again, from the first of these CPUs, and from no others.
    pub fn watch(&mut self, cpus: &[u32]) -> Result<(), Missing> {
        self.timers.clear();
        for cpu in cpus.iter().take(TIMERS) {
            let timer = oncpu::timer(WHAT, *cpu, HERTZ, self.skel.progs.again.as_fd())?;
            self.timers.push((*cpu, timer));
        }
        Ok(())
    }

    /// The window begins now, and lasts until `end` is reported: waits outside it are not reported.
    pub fn begin(&mut self) {
        self.counts_from = host::monotonic_ns();
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counts_from = self.counts_from;
        }
    }

    /// The window has ended after this time.
    pub fn end(&mut self, window: Duration) {
        let ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counts_to = self.counts_from.saturating_add(ns);
        }
    }

    /// Tasks that wait for a lock at this moment, and the lock's owner: one walk over all tasks. `since` is 0 where the wait's begin was
    /// not seen.
    pub fn sample(&self) -> Result<Vec<locks_open>, Missing> {
        Ok(walk(WHAT, &self.walk)?.chunks_exact(size_of::<locks_open>()).map(value).collect())
    }

    /// The window ends: detach, and report.
    pub fn finish(mut self) -> Result<(RawLocks, u64), Missing> {
        self.told()
    }

    fn told(&mut self) -> Result<(RawLocks, u64), Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.stacks_left = MAX_STACKS;
        }
        let open = self.sample()?;
        self.timers.clear();
        self.skel.links.begins = None;
        self.skel.links.ends = None;
        let all = self.held.take_all(&self.skel.maps.holds, |bytes| self.holds.note(value(bytes)));
        all.map_err(|err| missing(WHAT, &err))?;
        let rows = self.rows()?;
        let (shed, lost) = self.skel.maps.bss_data.as_ref().map_or((0, 0), |bss| (bss.shed, bss.lost));
        let (holds, thinned) = self.holds.take();
        Ok((RawLocks { rows, open, holds, shed: shed.saturating_add(thinned) }, lost))
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
            if row.count == 0 {
                continue;
            }
            let frames: &Vec<u64> = stacks
                .entry(key.stack)
                .or_insert_with(|| super::stack(&self.skel.maps.sites, key.stack).unwrap_or_default());
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
}

impl Probe for Locks<'_> {
    fn may_interrupt(&mut self, cpus: &[u32]) -> Result<(), Missing> {
        self.watch(cpus)
    }

    fn begin(&mut self) -> Result<(), Missing> {
        Locks::begin(self);
        Ok(())
    }

    fn poll(&mut self, _at: Duration) -> bool {
        let holds = &mut self.holds;
        self.held.take_some(&self.skel.maps.holds, |bytes| holds.note(value(bytes))).unwrap_or_default()
    }

    fn stop(&mut self, window: Duration) -> Result<(), Missing> {
        self.end(window);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let (seen, lost) = self.told()?;
        ending.lost(WHAT, lost);
        ending.later(move |naming| {
            let (window, first) = (naming.window, naming.free_stack());
            let (locks, holds, stacks) =
                lock_table::tables(&seen, window.start_ns, window.ns, naming.kernel, first);
            naming.tables.locks = Some(locks);
            naming.tables.holds = Some(holds);
            naming.add_stacks(stacks);
        });
        Ok(())
    }

    #[cfg(test)]
    fn interrupts(&self) -> Vec<u32> {
        self.timers.iter().map(|(cpu, _)| *cpu).collect()
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
