//! Which packets waited for their CPU, and what ran there meanwhile? The kernel half is `stall.bpf.c`.
//!
//! Cost, with 30 ns to enter each: 130 ns a raise of the receive softirq, 80 ns an entry, 90 ns a poll, 130 ns a timer.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::mapped_ring::MappedRing;
use super::{map_sizes, missing, types, value};
use crate::bpf::constants::stall_h::{SEEN, STALL_DEFERRED};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::stall_table;

skeleton!("stall");
use skel::types::stall_cpu;
pub use skel::types::{stall, stall_seen};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for stall {}
// SAFETY: the same.
unsafe impl plain::Plain for stall_cpu {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::PacketStalls.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: packet stalls",
    lost: "which task kept a CPU from its packets",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: false,
    start: |slot, start| {
        let Some(shared) = &start.lent.irq_latency else {
            return Err(Missing::skipped(
                WHAT,
                "it reads the maps of the IRQ latency probe, which did not start",
            ));
        };
        let layout = start.kernel.types().layout.or_from(start.kernel.symbols());
        let count_at = layout.preempt_count_at.unwrap_or(0);
        let stalls = Stalls::start(slot, shared.each_ref().map(|fd| fd.as_fd()), count_at)?;
        Ok(Some(Box::new(Stalls { stays: start.watches_packets, ..stalls })))
    },
};

/// Packets that wait until the end of the window are a stall from here on: the kernel half's own bound.
const STALL: u64 = 5_000_000;
/// The last tick of a CPU that still waits is no longer ago (100 Hz).
const TICK: u64 = 10_000_000;
/// Stalls that are kept. Each lasts 5 ms at least: one CPU has 200 a second at most.
const MOST: usize = 4096;

/// What the probe saw. Times are CLOCK_MONOTONIC.
#[derive(Default)]
pub struct RawStalls {
    /// Stalls.
    pub rows: Vec<stall>,
    /// Their stacks, by number.
    pub stacks: HashMap<i32, Vec<u64>>,
}

/// The running probe. Dropping it detaches it from the kernel.
pub struct Stalls<'slot> {
    skel: skel::StallSkel<'slot>,
    ring: MappedRing,
    seen: Vec<stall>,
    /// Stalls that the end of the window cuts off.
    cut: Vec<stall>,
    left: u64,
    /// Raises and entries are watched however many there are.
    stays: bool,
    /// It is known whether a CPU serves a softirq.
    knows_softirqs: bool,
}

impl<'slot> Stalls<'slot> {
    /// Load and attach. `shared`: the maps of the IRQ latency object. `count_at`: from a run queue to its CPU's preempt count, 0: not known.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: [BorrowedFd<'_>; 4],
        count_at: i64,
    ) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        Self::load(slot, shared, count_at).map_err(|err| missing(WHAT, &err))
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: [BorrowedFd<'_>; 4],
        count_at: i64,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::StallSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        let [cpus, rows, victims, wakes] = shared;
        open.maps.irqlat_cpus.reuse_fd(cpus)?;
        open.maps.irqlat_rows.reuse_fd(rows)?;
        open.maps.irqlat_victims.reuse_fd(victims)?;
        open.maps.irqlat_wakes.reuse_fd(wakes)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.preempt_count_at = count_at;
            rodata.stall_ns = STALL;
            rodata.longer_than_a_tick = u32::from(host::tick_ns() < STALL);
        }
        let mut skel = open.load()?;
        skel.attach()?;
        Ok(Stalls {
            skel,
            ring: MappedRing::default(),
            seen: Vec::new(),
            cut: Vec::new(),
            left: 0,
            stays: false,
            knows_softirqs: count_at != 0,
        })
    }

    /// The window begins.
    pub fn begin(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counting = 1;
        }
    }

    /// Take what was reported so far.
    fn take(&mut self) -> libbpf_rs::Result<bool> {
        let (seen, left) = (&mut self.seen, &mut self.left);
        self.ring.take_some(&self.skel.maps.stalls, |record| match seen.len() < MOST {
            true => seen.push(value(record)),
            false => *left += 1,
        })
    }

    /// The stalls that last until now: the softirq is raised, and has not begun. And waits in queues that were not told yet.
    fn open(&self, now: u64) -> Vec<stall> {
        let all = self.skel.maps.stall_cpus.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let sees_entries = self.skel.links.began.is_some() && self.skel.links.raised.is_some();
        let all: Vec<stall_cpu> =
            all.ok().flatten().unwrap_or_default().iter().map(|bytes| value(bytes)).collect();
        let still = |(cpu, number)| still_open(cpu, number, now).filter(|_| sees_entries);
        all.iter().zip(0..).filter_map(still).chain(all.iter().filter_map(not_told)).collect()
    }

    /// The window is over: what comes later is not told.
    pub fn end(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counting = 0;
        }
        self.cut = self.open(host::monotonic_ns());
    }

    /// The stalls; and how many could not be kept.
    pub fn finish(&mut self) -> Result<(RawStalls, u64), Missing> {
        while self.take().map_err(|err| missing(WHAT, &err))? {}
        self.seen.append(&mut self.cut);
        let mut stacks = HashMap::new();
        for seen in self.seen.iter().flat_map(|stall| stall.seen.iter().chain([&stall.end])) {
            stacks.entry(seen.stack).or_insert_with(|| {
                super::stack(&self.skel.maps.stall_stacks, seen.stack).unwrap_or_default()
            });
        }
        let lost = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost);
        let rows = std::mem::take(&mut self.seen);
        Ok((RawStalls { rows, stacks }, lost.saturating_add(self.left)))
    }
}

/// A CPU whose softirq has waited until now, by ticks that saw it wait: one that went offline has none.
fn still_open(cpu: &stall_cpu, number: u32, now: u64) -> Option<stall> {
    let last = cpu.stall.rows.checked_sub(1)?;
    let end = *cpu.stall.seen.get((last % SEEN) as usize)?;
    let ns = now.checked_sub(cpu.raised).filter(|_| cpu.raised > 0)?;
    let is_watched = end.at > cpu.raised && now.saturating_sub(end.at) <= TICK;
    let open = stall { at: now, since: cpu.raised, ns, cpu: number, kind: STALL_DEFERRED, end, ..cpu.stall };
    (is_watched && ns >= STALL).then_some(open)
}

/// Waits of packets in the queue of this CPU that are no whole row. How long the packet waits whose turn has not come yet is not known.
fn not_told(cpu: &stall_cpu) -> Option<stall> {
    (cpu.queue.waits > 0).then_some(cpu.queue)
}

impl Probe for Stalls<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        Stalls::begin(self);
        Ok(())
    }

    fn poll(&mut self, _at: Duration) -> bool {
        self.take().unwrap_or(false)
    }

    fn let_go(&mut self) {
        // From now on a stall is told without a look at the packets behind it.
        if let Some(data) = self.skel.maps.data_data.as_mut() {
            data.polls_seen = 0;
        }
        let links = &mut self.skel.links;
        links.polled = None;
        if !self.stays {
            (links.raised, links.began) = (None, None);
        }
    }

    fn stop(&mut self, _window: Duration) -> Result<(), Missing> {
        self.end();
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let links = &self.skel.links;
        if links.polled.is_none() || !self.knows_softirqs {
            let what = if links.began.is_none() { WHAT } else { "long polls of packets" };
            let why = if self.knows_softirqs {
                "a CPU had too many softirqs to check each"
            } else {
                "this kernel does not say where a CPU's preempt count is"
            };
            ending.missing.push(Missing::skipped(what, why).into());
        }
        let (seen, lost) = Stalls::finish(self)?;
        ending.lost(WHAT, lost);
        ending.later(move |naming| {
            let rows = stall_table::stalls(&seen, naming.window, naming.kernel);
            naming.tables.stalls = Some(rows);
        });
        Ok(())
    }
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "stall_turn_tests.rs"]
mod turn_tests;
