//! IRQ latency: which CPU is late for its interrupts, and what did it run? The kernel half is `irq_latency.bpf.c`.
//!
//! Cost: 40 ns an idle state, 60 ns a timer, 100 ns a call that a thread waits for; a late one 2 to 10 us.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::mapped_ring::MappedRing;
use super::{clear, map_sizes, missing, percpu, types, value};
use crate::irq_latency_table;
use crate::kallsyms::Kallsyms;
use crate::probes::{Ending, Entry, LentMaps, LoadOrder, Probe, own};

skeleton!("irq_latency");
pub use skel::types::{irqlat_gap, irqlat_key, irqlat_row, irqlat_wakes};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for irqlat_gap {}
// SAFETY: as above.
unsafe impl plain::Plain for irqlat_key {}
// SAFETY: as above.
unsafe impl plain::Plain for irqlat_row {}
// SAFETY: as above.
unsafe impl plain::Plain for irqlat_wakes {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::IrqLatency.word();
/// Name of the part that sees calls of other CPUs.
pub const CALLS: &str = whyslow_model::Probe::CrossCalls.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: IRQ latency",
    lost: "IRQ latency of each CPU: which idle state it woke from, or which code kept interrupts off",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: true,
    start: |slot, start| {
        let (symbols, kernel) = (start.kernel.symbols(), start.kernel.types().irq_latency);
        Ok(Some(Box::new(IrqLatency::start(slot, symbols, kernel)?)))
    },
};

use super::constants::irq_latency_h::STATES;
/// The state of a CPU that runs, and the kind of a row of calls.
pub use super::constants::irq_latency_h::{LATE_CALL, RUNS};

/// Which of these events and variables this kernel has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel {
    /// Calls of other CPUs.
    pub calls: bool,
    /// Offset from a CPU's run queue to where KVM writes the time that it took from it: `steal_time` in arch/x86/kernel/kvm.c.
    pub steal_at: Option<i64>,
}

/// The function of the tick's timer, the newest name first: since 6.9, in 6.8, before.
const TICK: [&str; 3] = ["tick_nohz_handler", "tick_nohz_highres_handler", "tick_sched_timer"];

impl Kernel {
    /// From the kernel's types.
    #[must_use]
    pub fn of(btf: &Btf<'_>) -> Self {
        let is_there = |name: &&str| btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some();
        let at = percpu::variables(btf);
        Kernel {
            calls: ["csd_queue_cpu", "csd_function_entry"].iter().all(is_there),
            steal_at: at.get("steal_time").zip(at.get("runqueues")).map(|(steal, queue)| steal - queue),
        }
    }
}

/// The running probe. Dropping it detaches it from the kernel.
pub struct IrqLatency<'slot> {
    skel: skel::IrqLatencySkel<'slot>,
}

/// What the probe saw. Times are CLOCK_MONOTONIC.
#[derive(Default)]
pub struct RawIrqLatency {
    /// Calls and timers that were late.
    pub rows: Vec<(irqlat_key, irqlat_row)>,
    /// Gaps, with the stack at their end.
    pub gaps: Vec<(irqlat_gap, Vec<u64>)>,
    /// By CPU and state.
    pub wakes: Vec<Vec<irqlat_wakes>>,
    /// Calls were recorded.
    pub calls: bool,
    /// Calls that were not recorded, because a CPU made too many.
    pub unseen: u64,
}

impl<'slot> IrqLatency<'slot> {
    /// Load and attach; calls of other CPUs only where the kernel has events for them.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        symbols: &Kallsyms,
        kernel: Kernel,
    ) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        Self::load(slot, symbols, kernel).map_err(|err| missing(WHAT, &err))
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        symbols: &Kallsyms,
        Kernel { calls, steal_at }: Kernel,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::IrqLatencySkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        open.progs.queued.set_autoload(calls);
        open.progs.entered.set_autoload(calls);
        let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1);
        open.maps.irqlat_cpus.set_max_entries(cpus)?;
        open.maps.irqlat_wakes.set_max_entries(cpus.saturating_mul(STATES))?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.steal_at = steal_at.unwrap_or(0);
            rodata.sleeper_function = symbols.address("hrtimer_wakeup").unwrap_or(0);
            rodata.tick_function = TICK.iter().find_map(|name| symbols.address(name)).unwrap_or(0);
        }
        let mut skel = open.load()?;
        skel.attach()?;
        Ok(IrqLatency { skel })
    }

    /// What each CPU runs, which thread waited, and until when: for probes that see calls in another way.
    #[must_use]
    pub fn shared(&self) -> [BorrowedFd<'_>; 4] {
        let maps = &self.skel.maps;
        [
            maps.irqlat_cpus.as_fd(),
            maps.irqlat_rows.as_fd(),
            maps.irqlat_victims.as_fd(),
            maps.irqlat_wakes.as_fd(),
        ]
    }

    /// The window begins.
    pub fn begin(&mut self) {
        clear(&self.skel.maps.irqlat_rows);
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.counting = 1;
        }
    }

    /// The window ends: report, with the number of calls and gaps that could not be noted.
    pub fn finish(mut self) -> Result<(RawIrqLatency, u64), Missing> {
        self.told()
    }

    fn told(&mut self) -> Result<(RawIrqLatency, u64), Missing> {
        let calls = self.skel.links.entered.is_some();
        self.skel.links = skel::IrqLatencyLinks::default();
        let seen = RawIrqLatency {
            rows: rows(&self.skel.maps.irqlat_rows)?,
            gaps: self.gaps()?,
            wakes: self.wakes()?,
            calls,
            unseen: self.unseen()?,
        };
        let lost = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost);
        Ok((seen, lost))
    }

    fn gaps(&self) -> Result<Vec<(irqlat_gap, Vec<u64>)>, Missing> {
        let mut gaps = Vec::new();
        let all = MappedRing::default().take_all(&self.skel.maps.gaps, |record| gaps.push(gap(record)));
        all.map_err(|err| missing(WHAT, &err))?;
        let gaps = irq_latency_table::whole(gaps);
        let mut stacks: HashMap<i32, Vec<u64>> = HashMap::new();
        let mut with_stack = |gap: irqlat_gap| {
            let stack = stacks
                .entry(gap.stack)
                .or_insert_with(|| super::stack(&self.skel.maps.stacks, gap.stack).unwrap_or_default());
            (gap, stack.clone())
        };
        Ok(gaps.into_iter().map(&mut with_stack).collect())
    }

    fn wakes(&self) -> Result<Vec<Vec<irqlat_wakes>>, Missing> {
        let map = &self.skel.maps.irqlat_wakes;
        let mut by_cpu: Vec<Vec<irqlat_wakes>> = Vec::new();
        for at in 0..map.max_entries() {
            if at % STATES == 0 {
                by_cpu.push(Vec::new());
            }
            let bytes = map.lookup(&at.to_ne_bytes(), MapFlags::ANY).map_err(|err| missing(WHAT, &err))?;
            if let (Some(states), Some(bytes)) = (by_cpu.last_mut(), bytes) {
                states.push(value(&bytes));
            }
        }
        Ok(by_cpu)
    }

    /// The last values of the hypervisor: time that it took from each CPU since boot.
    #[cfg(test)]
    fn stolen(&self) -> Vec<u64> {
        let of =
            |cpu: u32| self.skel.maps.irqlat_cpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let cpus = (0..self.skel.maps.irqlat_cpus.max_entries()).map_while(of);
        cpus.map(|bytes| value::<skel::types::irqlat_cpu>(&bytes).stolen).collect()
    }

    fn unseen(&self) -> Result<u64, Missing> {
        let values = self.skel.maps.ration.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|err| missing(WHAT, &err))?.unwrap_or_default();
        let rations = values.iter().map(|bytes| value::<skel::types::irqlat_ration>(bytes).unseen);
        Ok(rations.fold(0, u64::saturating_add))
    }
}

impl Probe for IrqLatency<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        IrqLatency::begin(self);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let (seen, lost) = self.told()?;
        if seen.unseen > 0 {
            let reason = format!("{} were not measured: a CPU made too many at once", seen.unseen);
            ending.missing.push(Missing::skipped("some cross-CPU calls", reason).into());
        }
        ending.lost(WHAT, lost);
        ending.later(move |naming| {
            let reported = irq_latency_table::tables(&seen, naming.window, naming.kernel);
            // On kernels without events for calls there are rows only where the object for such kernels runs (`ipi`).
            let is_seen = seen.calls || !reported.calls.is_empty();
            naming.tables.cross_calls = is_seen.then_some(reported.calls);
            naming.tables.late_timers = Some(reported.timers);
            naming.tables.gaps = Some(reported.gaps);
            naming.tables.irq_latencies = Some(reported.irq_latencies);
        });
        Ok(())
    }

    fn lend(&self, lent: &mut LentMaps) {
        let [cpus, rows, victims, wakes] = self.shared().map(own);
        lent.irq_latency = cpus.zip(rows).zip(victims.zip(wakes)).map(|((c, r), (p, w))| [c, r, p, w]);
    }
}

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for skel::types::irqlat_ration {}

#[cfg(test)]
// SAFETY: as above.
unsafe impl plain::Plain for skel::types::irqlat_cpu {}

/// A record of the ring `gaps`: without the code before frames where there are none.
fn gap(record: &[u8]) -> irqlat_gap {
    let mut whole = [0; size_of::<irqlat_gap>()];
    let size = record.len().min(whole.len());
    whole[..size].copy_from_slice(&record[..size]);
    value(&whole)
}

fn rows(map: &impl MapCore) -> Result<Vec<(irqlat_key, irqlat_row)>, Missing> {
    let mut rows = Vec::new();
    for key in map.keys() {
        let row = map.lookup(&key, MapFlags::ANY).map_err(|err| missing(WHAT, &err))?;
        if let Some(row) = row {
            rows.push((value(&key), value(&row)));
        }
    }
    Ok(rows)
}

#[cfg(test)]
#[path = "irq_latency_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "irq_gap_tests.rs"]
mod gap_tests;
