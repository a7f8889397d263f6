//! How long do softirqs and interrupt handlers hold each CPU? The kernel half is `irq.bpf.c`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::{missing, text, types, value};
use crate::probes::{Ending, Entry, LentMaps, LoadOrder, Probe, own};

skeleton!("irq");
use skel::types::{irq_hard, irq_soft};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for irq_hard {}
// SAFETY: as above.
unsafe impl plain::Plain for irq_soft {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::InterruptTime.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: interrupt time",
    lost: "which device's interrupts take the CPU",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[],
    of_waits: false,
    start: |slot, _| Ok(Some(Box::new(Irq::start(slot)?))),
};

/// include/linux/interrupt.h: the order has not changed since v2.6.31.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The running probe. Dropping it detaches it from the kernel.
pub struct Irq<'slot> {
    skel: skel::IrqSkel<'slot>,
    before: Vec<table::Cpu>,
}

impl<'slot> Irq<'slot> {
    /// Load and attach.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut skel = types::builder::<skel::IrqSkelBuilder>().open(slot)?.load()?;
        skel.attach()?;
        Ok(Self { skel, before: Vec::new() })
    }

    /// What the kernel half notes of softirqs, for the napi object to read.
    pub fn soft(&self) -> BorrowedFd<'_> {
        self.skel.maps.soft.as_fd()
    }

    /// One row a possible CPU.
    pub fn rows(&self) -> Result<Vec<table::Cpu>, Missing> {
        let mut rows = self.counted()?;
        for (row, before) in rows.iter_mut().zip(&self.before) {
            since(row, before);
        }
        Ok(rows)
    }

    fn counted(&self) -> Result<Vec<table::Cpu>, Missing> {
        let soft = self.skel.maps.soft.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let soft = soft.map_err(|err| missing(WHAT, &err))?.unwrap_or_default();
        let mut rows: Vec<_> = soft.iter().enumerate().map(|(cpu, bytes)| row(cpu, &value(bytes))).collect();
        let hard = &self.skel.maps.hard;
        for key in hard.keys() {
            let irq = u32::from_ne_bytes(key.as_slice().try_into().unwrap_or_default());
            let per_cpu = hard.lookup_percpu(&key, MapFlags::ANY).map_err(|err| missing(WHAT, &err))?;
            for (row, bytes) in rows.iter_mut().zip(per_cpu.unwrap_or_default()) {
                let line: irq_hard = value(&bytes);
                if line.count > 0 {
                    row.hardirqs.push((irq, text(&line.name), line.ns, line.count));
                }
            }
        }
        Ok(rows)
    }

    /// Handlers that the kernel half saw and could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Irq<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.before = self.counted()?;
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.tables.cpus = Some(self.rows()?);
        Ok(())
    }

    fn lend(&self, lent: &mut LentMaps) {
        lent.soft = own(self.soft());
    }
}

/// What came since `before`. Lines that were not heard of since are not told.
fn since(now: &mut table::Cpu, before: &table::Cpu) {
    for (name, ns, count) in &mut now.softirqs {
        if let Some((_, ns_then, count_then)) = before.softirqs.iter().find(|line| line.0 == *name) {
            *ns = ns.saturating_sub(*ns_then);
            *count = count.saturating_sub(*count_then);
        }
    }
    for (irq, _, ns, count) in &mut now.hardirqs {
        if let Some((_, _, ns_then, count_then)) = before.hardirqs.iter().find(|line| line.0 == *irq) {
            *ns = ns.saturating_sub(*ns_then);
            *count = count.saturating_sub(*count_then);
        }
    }
    now.softirqs.retain(|line| line.2 > 0);
    now.hardirqs.retain(|line| line.3 > 0);
}

fn row(cpu: usize, soft: &irq_soft) -> table::Cpu {
    let vector = |at: usize| (SOFTIRQS[at].to_owned(), soft.ns[at], soft.count[at]);
    let softirqs = (0..SOFTIRQS.len()).map(vector).filter(|(_, _, count)| *count > 0).collect();
    table::Cpu { cpu: cpu as u32, softirqs, ..table::Cpu::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_counted_before_the_window_is_not_reported() {
        let cpu = |timer: (u64, u64), disk: (u64, u64)| table::Cpu {
            softirqs: vec![("TIMER".into(), timer.0, timer.1), ("RCU".into(), 7, 1)],
            hardirqs: vec![(27, "virtio0".into(), disk.0, disk.1)],
            ..table::Cpu::default()
        };
        let mut now = cpu((100, 10), (50, 5));
        since(&mut now, &cpu((60, 4), (50, 5)));
        assert_eq!(now.softirqs, [("TIMER".to_owned(), 40, 6)]);
        assert!(now.hardirqs.is_empty());
    }

    #[test]
    fn root_timer_softirqs_are_counted_and_shorter_than_the_window() {
        let mut slot = MaybeUninit::uninit();
        let irq = Irq::start(&mut slot).expect("root may trace interrupts");
        let began = std::time::Instant::now();
        let busy = |rows: &[table::Cpu]| {
            rows.iter().flat_map(|r| &r.softirqs).any(|(_, ns, count)| *ns > 0 && *count > 0)
        };
        while !busy(&irq.rows().unwrap()) {
            assert!(began.elapsed() < Duration::from_secs(20), "no softirq in 20 s");
        }
        let rows = irq.rows().unwrap();
        let life = began.elapsed().as_nanos() as u64 + 1_000_000_000;
        assert!(rows.iter().flat_map(|r| &r.softirqs).all(|(_, ns, _)| *ns < life));
        assert_eq!(irq.lost(), 0);
    }
}
