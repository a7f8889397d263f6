//! Which calls failed for want of something: room, a descriptor, a port, a task? Which processes do nothing but fail? The kernel half is
//! `failed.bpf.c`.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::connect::socket_address;
use super::crowd::{Step, Visits, counts};
use super::populations::Populations;
use super::{churn, map_sizes, missing, text, types, value};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("failed");
use skel::types::{failed_calls, failed_key, vain_calls, vain_key};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for failed_key {}
// SAFETY: as above, and bytes; without padding.
unsafe impl plain::Plain for failed_calls {}
// SAFETY: as the key above.
unsafe impl plain::Plain for vain_key {}
// SAFETY: as above, and bytes; without padding.
unsafe impl plain::Plain for vain_calls {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::FailedCalls.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: calls that failed",
    lost: "calls that fail for want of room, descriptors, ports or tasks",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: false,
    // A followed command has its calls counted with their errors already, and pays for each hook.
    start: |slot, start| match start.follow {
        Some(_) => Ok(None),
        None => Ok(Some(Box::new(Failed::load(slot)?))),
    },
};

/// Calls a second of one CPU from which on they are too many: the hook and the kernel's slow way to it take 0.1 us of each, here 0.6 % of a
/// CPU.
const TOO_MANY: f64 = 60_000.0;
/// The kernel marks each thread when the first hook is attached, and when the last is detached (kernel/tracepoint.c, syscall_regfunc): 0.1
/// us each. With more threads than these the hook is not attached.
const MANY_THREADS: u64 = 10_000;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Failed<'slot> {
    skel: skel::FailedSkel<'slot>,
    visits: Visits,
    populations: Populations,
}

impl<'slot> Failed<'slot> {
    /// Load it: it counts from the begin of the window on.
    pub fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        Self::try_load(slot).map_err(|err| missing(WHAT, &err))
    }

    fn try_load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::FailedSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        // Each CPU keeps up to 128 free places of an LRU map to itself (kernel/bpf/bpf_lru_list.c).
        let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1);
        open.maps.retries.set_max_entries(cpus.saturating_mul(256).clamp(1024, 1 << 17))?;
        let skel = open.load()?;
        Ok(Self { skel, visits: Visits::new(TOO_MANY), populations: Populations::default() })
    }

    fn look(&mut self) -> Result<(), Missing> {
        let attached = self.skel.progs.returned.attach();
        self.skel.links.returned = Some(attached.map_err(|err| missing(WHAT, &err))?);
        Ok(())
    }

    fn look_in(&mut self) {
        let is_back = !has_many_threads() && self.look().is_ok();
        let counts = is_back.then(|| counts(&self.skel.maps.ended_calls)).flatten();
        self.visits.back(counts, Instant::now());
    }

    fn look_at_populations(&mut self, at: Duration) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            self.populations.look(at, bss.populations.iter_mut().map(|one| (one.of, &mut one.count)));
        }
    }

    fn row_in_vain(&self, key: &vain_key, calls: &vain_calls) -> table::FailedCall {
        table::FailedCall {
            tgid: key.tgid,
            pid: calls.pid,
            comm: text(&calls.comm),
            syscall: key.call,
            error: key.error,
            count: calls.count,
            streak_ns: calls.ns,
            of_children: key.of_children != 0,
            away_ns: self.away_ns(),
            ..table::FailedCall::default()
        }
    }

    /// Calls that made or entered a namespace, made or removed a mount.
    pub(super) fn churn(&self) -> Vec<churn::Churn> {
        churn::rows(&self.skel.maps.churns, self.away_ns())
    }

    /// How many namespaces and mounts there were over the window.
    #[cfg(test)]
    pub(super) fn populations(&self) -> Vec<whyslow_model::churn::Population> {
        self.populations.rows()
    }

    fn away_ns(&self) -> u64 {
        u64::try_from(self.visits.away(Instant::now()).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Calls that failed, most often first.
    fn rows(&self) -> Vec<table::FailedCall> {
        let map = &self.skel.maps.failures;
        let found =
            map.keys().filter_map(|key| Some((value(&key), value(&map.lookup(&key, MapFlags::ANY).ok()??))));
        let map = &self.skel.maps.vain;
        let in_vain =
            map.keys().filter_map(|key| Some((value(&key), value(&map.lookup(&key, MapFlags::ANY).ok()??))));
        let in_vain = in_vain.map(|(key, calls)| self.row_in_vain(&key, &calls));
        let mut rows: Vec<_> = found.map(|(key, calls)| row(&key, &calls)).chain(in_vain).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.count), row.tgid, row.syscall));
        rows
    }
}

impl Probe for Failed<'_> {
    fn leave_out(&mut self, own: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.own_tgid = own;
        }
    }

    fn begin(&mut self) -> Result<(), Missing> {
        if has_many_threads() {
            let reason = format!("the kernel would have to mark each of more than {MANY_THREADS} threads");
            return Err(Missing::skipped(WHAT, reason));
        }
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.began = host::monotonic_ns();
        }
        self.look()
    }

    fn poll(&mut self, at: Duration) -> bool {
        self.look_at_populations(at);
        let ended = &self.skel.maps.ended_calls;
        match self.visits.judge(|| counts(ended), Instant::now()) {
            // The kernel waits for tasks that are in the hook: calls that it saw before are counted.
            Some(Step::Leave) => self.skel.links.returned = None,
            Some(Step::LookIn) => self.look_in(),
            None => {}
        }
        false
    }

    fn stop(&mut self, window: Duration) -> Result<(), Missing> {
        self.look_at_populations(window);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.tables.failed_calls = Some(self.rows());
        ending.lost(WHAT, self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost));
        ending.lost(churn::WHAT, self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.churn_lost));
        ending.tables.churn.get_or_insert_default().extend(self.churn());
        self.populations.add_to(ending.tables.populations.get_or_insert_default());
        let away = self.visits.away(Instant::now());
        if !away.is_zero() {
            let ms = away.as_millis();
            let reason = format!("for {ms} ms a CPU had too many system calls to check each");
            ending.missing.push(Missing::skipped(WHAT, reason).into());
        }
        Ok(())
    }
}

/// By /proc/loadavg: "0.12 0.08 0.05 1/345 6789".
fn has_many_threads() -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    threads(&text).is_none_or(|threads| threads > MANY_THREADS)
}

fn threads(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

fn row(key: &failed_key, calls: &failed_calls) -> table::FailedCall {
    const MINOR_BITS: u32 = 20;
    let device = |dev: u32| format!("{}:{}", dev >> MINOR_BITS, dev & ((1 << MINOR_BITS) - 1));
    const REGULAR_OR_FOLDER: [u32; 2] = [0o100_000, 0o040_000];
    let is_file = REGULAR_OR_FOLDER.contains(&(calls.mode & 0o170_000));
    table::FailedCall {
        tgid: key.tgid,
        pid: calls.pid,
        comm: text(&calls.comm),
        syscall: key.call,
        error: key.error,
        count: calls.count,
        slept_ns: calls.slept_ns,
        dev: if key.dev == 0 || !is_file { String::new() } else { device(key.dev) },
        file_system: text(&calls.r#type),
        device: text(&calls.device),
        file: text(&calls.file),
        peer: if calls.family == 0 {
            String::new()
        } else {
            socket_address(calls.address, calls.port).to_string()
        },
        ..table::FailedCall::default()
    }
}

#[cfg(test)]
#[path = "failed_tests.rs"]
mod tests;
