//! How many packets does a run of the receive softirq take, which limit stops it, and which receive queues are full? The kernel half is
//! `napi.bpf.c`; the begin of a run is read from the irq object's map (`soft.bpf.h`).

mod sockets;

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::{missing, types, value};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("napi");
use skel::types::{napi_cpu, napi_socket};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for napi_cpu {}
// SAFETY: as above, and bytes; without padding.
unsafe impl plain::Plain for napi_socket {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::ReceivedPackets.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: received packets",
    lost: "which limit stops the receive softirq, and which process reads too late",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: false,
    start: |slot, start| Ok(Some(Box::new(Napi::start(slot, start.lent.soft.as_ref().map(AsFd::as_fd))?))),
};

/// The kernel's default.
const USUAL_BUDGET: u64 = 300;
/// Before v4.12 (7acf8a1e8a28) the limit was two ticks, without a setting.
const USUAL_TICKS: u64 = 2;

/// When net_rx_action stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    budget: u64,
    ticks: u64,
    tick_ns: u64,
}

impl Limits {
    fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Limits::of(number("netdev_budget"), number("netdev_budget_usecs"), host::tick_ns())
    }

    /// usecs_to_jiffies() rounds up.
    fn of(budget: Option<u64>, usecs: Option<u64>, tick_ns: u64) -> Self {
        let ticks = usecs.map_or(USUAL_TICKS, |us| us.saturating_mul(1000).div_ceil(tick_ns.max(1)));
        Limits { budget: budget.unwrap_or(USUAL_BUDGET), ticks, tick_ns }
    }
}

/// The running probe. Dropping it detaches it from the kernel.
pub struct Napi<'slot> {
    skel: skel::NapiSkel<'slot>,
    walk: Link,
    limits: Limits,
    before: Vec<napi_cpu>,
    queues: sockets::Queues,
    first_look: Result<(), Missing>,
}

impl<'slot> Napi<'slot> {
    /// Load and attach. `soft`: the irq object's map.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        soft: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Missing> {
        let Some(soft) = soft else {
            return Err(Missing::skipped(
                WHAT,
                "the interrupt probe, which reports when a softirq began, did not start",
            ));
        };
        Self::load(slot, soft, Limits::read()).map_err(|err| not_started(&err))
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        soft: BorrowedFd<'_>,
        limits: Limits,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::NapiSkelBuilder>().open(slot)?;
        open.maps.soft.reuse_fd(soft)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.budget = limits.budget;
            rodata.tick_limit = limits.ticks;
        }
        let mut skel = open.load()?;
        let walk = skel.progs.queues.attach()?;
        skel.links.polled = Some(skel.progs.polled.attach()?);
        Ok(Self {
            skel,
            walk,
            limits,
            before: Vec::new(),
            queues: sockets::Queues::default(),
            first_look: Ok(()),
        })
    }

    /// One row per CPU that polled.
    pub fn rows(&self) -> Result<Vec<table::Poll>, Missing> {
        let now = self.counted()?;
        let rows = now.iter().enumerate().map(|(cpu, now)| {
            let before = self.before.get(cpu).copied().unwrap_or_default();
            row(cpu, now, &before, self.limits)
        });
        Ok(rows.filter(|row| row.polls > 0 || row.other_polls > 0).collect())
    }

    /// Sockets whose receive queue was seen full, that dropped packets, or that were held up by their peer's window.
    pub fn sockets(&mut self, window: Duration) -> Result<Vec<table::Socket>, Missing> {
        self.queues.look(&self.walk, window)?;
        Ok(self.queues.rows(self.limits.tick_ns, window))
    }

    /// Sockets that were seen but could not be noted.
    pub fn lost(&self) -> u64 {
        self.queues.left
    }

    fn counted(&self) -> Result<Vec<napi_cpu>, Missing> {
        let cpus = self.skel.maps.cpus.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(|err| missing(WHAT, &err))?.unwrap_or_default();
        Ok(cpus.iter().map(|bytes| value(bytes)).collect())
    }
}

impl Probe for Napi<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.before = self.counted()?;
        // Queues are read several times: a read that took too long costs none of the rest.
        self.first_look = self.queues.look(&self.walk, Duration::ZERO);
        Ok(())
    }

    /// Read the queues again, if it is time to, and costs little.
    fn poll(&mut self, at: Duration) -> bool {
        let _ = self.queues.look_again(&self.walk, at);
        false
    }

    /// Without the hooks of the softirq it is not known which run a poll belongs to.
    fn let_go(&mut self) {
        self.skel.links.polled = None;
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.keep(self.first_look.clone());
        let polls = match self.skel.links.polled {
            Some(_) => self.rows(),
            None => Err(Missing::skipped(WHAT, "a CPU had too many softirqs to check each")),
        };
        ending.tables.polls = ending.keep(polls);
        ending.tables.sockets = ending.keep(self.sockets(ending.window));
        ending.lost(WHAT, self.lost());
        Ok(())
    }
}

fn row(cpu: usize, now: &napi_cpu, before: &napi_cpu, limits: Limits) -> table::Poll {
    let rise = |of: fn(&napi_cpu) -> u64| of(now).saturating_sub(of(before));
    table::Poll {
        cpu: cpu as u32,
        runs: rise(|c| c.runs),
        polls: rise(|c| c.polls),
        packets: rise(|c| c.packets),
        budget_stops: rise(|c| c.budget_stops),
        budget_ns: rise(|c| c.budget_ns),
        budget_packets: rise(|c| c.budget_packets),
        time_stops: rise(|c| c.time_stops),
        time_ns: rise(|c| c.time_ns),
        time_packets: rise(|c| c.time_packets),
        other_polls: rise(|c| c.other_polls),
        other_packets: rise(|c| c.other_packets),
        backlog_packets: rise(|c| c.backlog_packets),
        budget: limits.budget,
        limit_ns: limits.ticks.saturating_mul(limits.tick_ns),
    }
}

fn not_started(err: &libbpf_rs::Error) -> Missing {
    let why = missing(WHAT, err);
    if super::has_tracepoint("napi_poll") {
        return why;
    }
    Missing::NotInKernel {
        what: "tracepoint napi:napi_poll".to_owned(),
        needs: "CONFIG_NET and tracepoints".to_owned(),
    }
}

#[cfg(test)]
#[path = "napi_tests.rs"]
pub(super) mod tests;
