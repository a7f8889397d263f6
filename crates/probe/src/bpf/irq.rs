//! How long do softirqs and interrupt handlers hold each CPU? The kernel half is `irq.bpf.c`.

pub mod duty;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use self::duty::{Duty, Step, whole};
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
    start: |slot, _| Ok(Some(Box::new(Irq::start(slot)?))),
};

/// include/linux/interrupt.h: the order has not changed since v2.6.31.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The running probe. Dropping it detaches it from the kernel.
pub struct Irq<'slot> {
    skel: skel::IrqSkel<'slot>,
    before: Vec<table::Cpu>,
    duty: Duty,
    is_resting: Arc<AtomicBool>,
}

impl<'slot> Irq<'slot> {
    /// Load and attach.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut skel = types::builder::<skel::IrqSkelBuilder>().open(slot)?.load()?;
        skel.attach()?;
        Ok(Self { skel, before: Vec::new(), duty: Duty::default(), is_resting: Arc::default() })
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

    /// The rows; softirqs from the part of the window in which they were timed to all of it.
    fn whole_rows(&self, window: Duration) -> Result<Vec<table::Cpu>, Missing> {
        let (mut rows, timed) = (self.rows()?, self.duty.timed(window));
        for (_, ns, count) in rows.iter_mut().flat_map(|row| &mut row.softirqs) {
            (*ns, *count) = (whole(*ns, timed, window), whole(*count, timed, window));
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

    /// Softirqs so far, by CPU.
    fn counts(&self) -> Vec<u64> {
        let soft = self.skel.maps.soft.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let sum = |soft: irq_soft| soft.count.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        soft.ok().flatten().unwrap_or_default().iter().map(|bytes| sum(value(bytes))).collect()
    }

    /// A refusal shows in the sums: nothing is added from then on.
    fn take(&mut self, step: Step) {
        let (links, progs) = (&mut self.skel.links, &self.skel.progs);
        match step {
            Step::Stay => {}
            Step::Warn => self.is_resting.store(true, Ordering::Relaxed),
            Step::LetGo => links.softirq_began = None,
            Step::Close => links.softirq_ended = None,
            Step::Open => {
                links.softirq_ended = progs.softirq_ended.attach().ok();
                links.softirq_began = progs.softirq_began.attach().ok();
            }
            Step::Welcome => self.is_resting.store(false, Ordering::Relaxed),
        }
    }

    /// Handlers that the kernel half saw and could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Irq<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.before = self.counted()?;
        self.duty.begin(self.counts());
        Ok(())
    }

    fn poll(&mut self, at: Duration) -> bool {
        let step = self.duty.beat(at, self.counts());
        self.take(step);
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.tables.cpus = Some(self.whole_rows(ending.window)?);
        let rested = ending.window.saturating_sub(self.duty.timed(ending.window));
        if !rested.is_zero() {
            ending.missing.push(Missing::skipped("the time of each softirq", not_timed(rested)).into());
        }
        Ok(())
    }

    fn lend(&self, lent: &mut LentMaps) {
        lent.soft = own(self.soft());
        lent.is_resting = self.is_resting.clone();
    }
}

fn not_timed(rested: Duration) -> String {
    let ms = rested.as_millis();
    format!(
        "for {ms} ms of the window a CPU had too many to time each: the sums are those of the rest, scaled up"
    )
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

    /// NET_RX of all CPUs, as the kernel counts it.
    fn received() -> u64 {
        let text = std::fs::read_to_string("/proc/softirqs").unwrap();
        let line = text.lines().find(|line| line.trim_start().starts_with("NET_RX:")).unwrap();
        line.split_whitespace().skip(1).map(|count| count.parse::<u64>().unwrap()).sum()
    }

    /// Packets over loopback, as fast as they go, from one thread to itself: each is a softirq.
    fn send_until(ends: std::time::Instant) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        while std::time::Instant::now() < ends {
            for _ in 0..64 {
                socket.send_to(b"x", to).unwrap();
                socket.recv(&mut [0; 1]).unwrap();
            }
        }
    }

    #[test]
    fn root_what_is_timed_in_a_part_of_the_window_stands_for_all_of_it() {
        let mut slot = MaybeUninit::uninit();
        let mut irq = Irq::start(&mut slot).expect("root may trace interrupts");
        let before = received();
        irq.begin().unwrap();
        let began = std::time::Instant::now();
        let load = std::thread::spawn(move || send_until(began + Duration::from_secs(4)));
        while !load.is_finished() {
            std::thread::sleep(Duration::from_millis(100));
            irq.poll(began.elapsed());
        }
        let (window, counted) = (began.elapsed(), received() - before);
        let timed = irq.duty.timed(window);
        let rows = irq.whole_rows(window).unwrap();
        let lines = rows.iter().flat_map(|row| &row.softirqs).filter(|line| line.0 == "NET_RX");
        let (ns, count) = lines.fold((0, 0), |sum, line| (sum.0 + line.1, sum.1 + line.2));
        println!("timed for {timed:?} of {window:?}: {count} of {counted}");
        let is_many = counted as f64 > 12_000.0 * window.as_secs_f64() * rows.len() as f64;
        assert!(!is_many || timed < window / 2, "it rests where there are many: {timed:?} of {window:?}");
        let ratio = count as f64 / counted as f64;
        assert!((0.7..1.4).contains(&ratio), "{count} of {counted}, {timed:?} of {window:?}");
        assert!(ns > 0 && u128::from(ns) < window.as_nanos() * rows.len() as u128, "{ns}");
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
