//! How long do softirqs and interrupt handlers hold each CPU? The kernel half is `irq.bpf.c`.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::crowd::{Crowd, Verdict};
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

/// Softirqs a second of one CPU from which on timing each costs too much: two hooks, and one more where it receives packets, take 0.3 us,
/// and a small request that softirqs carry takes some 15.
pub const TOO_MANY: f64 = 20_000.0;

/// Then they are timed again, until a beat later there are still too many.
const AWAY: Duration = Duration::from_secs(2);

/// The running probe. Dropping it detaches it from the kernel.
pub struct Irq<'slot> {
    skel: skel::IrqSkel<'slot>,
    before: Vec<table::Cpu>,
    crowd: Crowd,
    let_go_at: Option<Instant>,
    /// How long the hooks were detached, so far.
    away: Duration,
    /// The kernel's own counts when the window began.
    kernels: Counts,
}

/// By CPU and name.
type Counts = HashMap<(u32, String), u64>;

impl<'slot> Irq<'slot> {
    /// Load and attach.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut skel = types::builder::<skel::IrqSkelBuilder>().open(slot)?.load()?;
        skel.attach()?;
        Ok(Self {
            skel,
            before: Vec::new(),
            crowd: Crowd::new(TOO_MANY, 0.0),
            let_go_at: None,
            away: Duration::ZERO,
            kernels: Counts::new(),
        })
    }

    /// The kernel half's notes of softirqs, for the napi object to read.
    pub fn soft(&self) -> BorrowedFd<'_> {
        self.skel.maps.soft.as_fd()
    }

    /// One row a possible CPU.
    pub fn rows(&self) -> Result<Vec<table::Cpu>, Missing> {
        let mut rows = self.counted()?;
        for (row, before) in rows.iter_mut().zip(&self.before) {
            since(row, before);
        }
        if !self.time_away().is_zero() {
            let now = kernels_counts();
            rows.iter_mut().for_each(|row| complete(row, &self.kernels, &now));
        }
        Ok(rows)
    }

    fn time_away(&self) -> Duration {
        self.away + self.let_go_at.map_or(Duration::ZERO, |then| then.elapsed())
    }

    /// The mean of the timed runs is applied to the whole window.
    fn come_back(&mut self) {
        self.away = self.time_away();
        self.let_go_at = None;
        self.crowd = Crowd::new(TOO_MANY, 0.0);
        self.skel.links.softirq_began = self.skel.progs.softirq_began.attach().ok();
        self.skel.links.softirq_ended = self.skel.progs.softirq_ended.attach().ok();
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

    /// Handlers that the kernel half saw but could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Irq<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.before = self.counted()?;
        self.kernels = kernels_counts();
        Ok(())
    }

    fn poll(&mut self, _at: Duration) -> bool {
        if self.let_go_at.is_some_and(|then| then.elapsed() >= AWAY) {
            self.come_back();
        }
        false
    }

    fn is_felt(&mut self) -> bool {
        if self.let_go_at.is_some() {
            return false;
        }
        let soft = self.skel.maps.soft.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let Ok(Some(soft)) = soft else { return false };
        let all = |bytes: &Vec<u8>| value::<irq_soft>(bytes).count.iter().sum();
        self.crowd.judge(soft.iter().map(all).collect(), Instant::now()) == Some(Verdict::TooMany)
    }

    fn let_go(&mut self) {
        self.skel.links.softirq_began = None;
        self.skel.links.softirq_ended = None;
        self.let_go_at = Some(Instant::now());
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.tables.cpus = Some(self.rows()?);
        let away = self.time_away();
        if !away.is_zero() {
            let ms = away.as_millis();
            let reason =
                format!("for {ms} ms a CPU had too many softirqs to time each: the kernel counted them");
            ending.missing.push(Missing::skipped(WHAT, reason).into());
        }
        Ok(())
    }

    fn lend(&self, lent: &mut LentMaps) {
        lent.soft = own(self.soft());
    }
}

/// Counts since `before`. Lines that have not changed since are left out.
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

/// /proc/softirqs, as it is now.
fn kernels_counts() -> Counts {
    counts(&std::fs::read_to_string("/proc/softirqs").unwrap_or_default())
}

fn counts(text: &str) -> Counts {
    let mut lines = text.lines();
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse::<u32>().ok();
    let cpus: Vec<Option<u32>> = lines.next().unwrap_or_default().split_whitespace().map(cpu).collect();
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<Option<u64>> = numbers.split_whitespace().map(|n| n.parse().ok()).collect();
        let counts = cpus.iter().zip(numbers);
        let counts = counts.filter_map(|(cpu, count)| Some((((*cpu)?, name.trim().to_owned()), count?)));
        Some(counts.collect::<Vec<_>>())
    };
    lines.filter_map(line).flatten().collect()
}

/// All runs that the kernel counted, each as long as the timed runs, in the mean.
fn complete(row: &mut table::Cpu, before: &Counts, now: &Counts) {
    for (name, ns, count) in &mut row.softirqs {
        let key = (row.cpu, name.clone());
        let (Some(before), Some(now)) = (before.get(&key), now.get(&key)) else { continue };
        let all = now.saturating_sub(*before).max(*count);
        let whole = u128::from(*ns) * u128::from(all) / u128::from(*count).max(1);
        (*ns, *count) = (u64::try_from(whole).unwrap_or(u64::MAX), all);
    }
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
    fn irq_counts_from_before_the_window_are_not_reported() {
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

    const TEXT: &str =
        "                    CPU0       CPU2\n      NET_RX:         10         20\n       HI:          1\n";

    #[test]
    fn the_kernels_counts_are_read_by_cpu_and_name_and_garbage_is_nothing() {
        let of = |cpu: u32, name: &str| (cpu, name.to_owned());
        let expected = [(of(0, "NET_RX"), 10), (of(2, "NET_RX"), 20), (of(0, "HI"), 1)];
        assert_eq!(counts(TEXT), Counts::from(expected));
        for text in
            ["", "CPU0", "x\nNET_RX: 1", "CPU0\nNET_RX: x", "CPU0\n: :\nTIMER", "CPU99999999999\nHI: 1"]
        {
            assert!(counts(text).is_empty() || counts(text).keys().all(|(cpu, _)| *cpu == 0), "{text}");
        }
    }

    #[test]
    fn untimed_softirq_runs_take_the_mean_time_of_timed_runs() {
        let row = || row(0, &irq_soft { ns: [7_000; 16], count: [10; 16], ..irq_soft::default() });
        let at = |count| Counts::from([((0, "NET_RX".to_owned()), count)]);
        let net = |row: &table::Cpu| row.softirqs.iter().find(|line| line.0 == "NET_RX").cloned().unwrap();
        let mut more = row();
        complete(&mut more, &at(100), &at(140));
        assert_eq!(net(&more), ("NET_RX".to_owned(), 28_000, 40));
        let mut fewer = row();
        complete(&mut fewer, &at(100), &at(105));
        assert_eq!(net(&fewer), net(&row()), "what was seen is not taken back");
        let mut unknown = row();
        complete(&mut unknown, &Counts::new(), &at(140));
        assert_eq!(unknown, row());
    }

    /// Packets to a socket of ours, each of which is a run of the softirq.
    #[test]
    fn root_a_cpu_that_runs_softirqs_without_end_is_left_alone_and_its_runs_are_counted() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let mut slot = MaybeUninit::uninit();
        let mut irq = Irq::start(&mut slot).expect("root may trace interrupts");
        irq.begin().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let send = |packets: u32| (0..packets).filter(|_| socket.send(b"x").is_ok()).count() as u64;
        let mut sent = 0;
        while !irq.is_felt() {
            assert!(Instant::now() < until, "{sent} packets were too few");
            sent += send(2_000);
        }
        let timed = net_rx(&irq.counted().unwrap());
        assert!(timed >= sent / 4, "{timed} runs for {sent} packets");
        irq.let_go();
        let begun = net_rx(&irq.counted().unwrap());
        let more = send(20_000);
        assert_eq!(net_rx(&irq.counted().unwrap()), begun, "no hook times them any more");
        let all = net_rx(&irq.rows().unwrap());
        assert!(all >= timed + more / 4, "{all} runs for {more} packets after {timed} for {sent}");
    }

    fn net_rx(rows: &[table::Cpu]) -> u64 {
        rows.iter().flat_map(|row| &row.softirqs).filter(|line| line.0 == "NET_RX").map(|line| line.2).sum()
    }
}
