//! Decides, before the first map is made, which tables and probes fit into the memory and CPU limits of whyslow itself.
//!
//! At a memory limit the kernel kills whyslow before the answer; with a tenth of a CPU the answer comes ten times as late. So the tables
//! are halved until they fit. Where CPU time is scarce, probes that few users need are not loaded. The report names what is left out.

use std::thread::sleep;
use std::time::{Duration, Instant};

use whyslow_model::{Bytes, Missing, Share};

use crate::bpf::map_sizes::MOST_HALVINGS;
use crate::bpf::shared;
use crate::files::own_limits::{CpuLimit, MemoryLimit, OwnLimits};
use crate::probes::registry;
use crate::speed;

#[cfg(test)]
mod tests;

const MIB: u64 = 1 << 20;
/// Memory beside the tables: symbols, types, rows, the report, and the child that names user code. Idle hosts take 14 to 21 MiB; beside a
/// build 32 MiB of heap and 6 MiB of shared memory were measured, and with 22 MiB here a limit of 48 to 53 or of 72 MiB killed it. Code is
/// page cache, which the kernel can reclaim.
const OWN: u64 = 34 * MIB;
/// All tables of a window on the host at full size (measured: 140 MiB on 2 CPUs).
const TABLES: u64 = 140 * MIB;
/// More tables for system calls of followed tasks (187 MiB in all).
const TABLES_OF_CALLS: u64 = 48 * MIB;
/// Tables that are not halved (of CPUs, places by hash), and programs with their types: 13 MiB were measured.
const FIXED: u64 = 13 * MIB;
/// Bytes of one more place in all tables by pid, with and without system calls.
const PLACE: u64 = 1024;
/// With less than this part of a CPU the answer would be late by seconds: loading takes 0.6 s of CPU.
const SCARCE: f64 = 0.5;
/// How often the tables are halved where CPU time is scarce: making and freeing whole ones takes 60 ms.
const HALVINGS_WHEN_SCARCE: u32 = 2;
/// The same where a memory limit may exist that cannot be read: whyslow then fits into 64 MiB. Few containers have less,
/// and such tables are large enough for a host of some hundred tasks.
const HALVINGS_WHEN_UNKNOWN: u32 = 4;

/// The time that an ending process of the same cgroup gets to give its memory back. BPF maps are freed by a worker after a grace period
/// of RCU (kernel/bpf/syscall.c, bpf_map_free_deferred): 15 to 30 MiB of the run before were still charged for a second.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(3);
/// No event reports that memory was given back on both versions of cgroups.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(200);

/// How large the tables are, and which probes run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnBudget {
    /// How often each table is halved.
    pub(crate) halvings: u32,
    /// Probes that few users need are left out, for this reason.
    pub(crate) thrift: Option<String>,
    /// Why, in words for the user.
    reasons: Vec<String>,
    /// Limits that may exist, and could not be read. The memory limit is reported before the window: a killed whyslow reports nothing after.
    unknown_memory: Option<Missing>,
    unknown_cpu: Option<Missing>,
}

/// Even the smallest tables do not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the memory limit of cgroup {cgroup} ({limit}) leaves {left}, and whyslow needs at least {needed} there: it would be \
     killed; the way out is to raise that limit, or to start whyslow in another cgroup"
)]
pub struct OverBudget {
    cgroup: String,
    limit: Bytes,
    left: Bytes,
    needed: Bytes,
}

impl OverBudget {
    /// It would fit if other processes there used less.
    fn may_pass(&self) -> bool {
        self.needed <= self.limit
    }
}

impl OwnBudget {
    /// The budget under the limits of this process. `follows`: the system calls of followed tasks are reported as well. While other processes
    /// use the memory that is needed, it waits for a while.
    pub fn here(follows: bool) -> Result<Self, OverBudget> {
        let until = Instant::now() + GIVEN_BACK_WITHIN;
        loop {
            match Self::into(&OwnLimits::read(), shared::threads(), follows) {
                Err(why) if why.may_pass() && Instant::now() < until => sleep(LOOKED_AT_EVERY),
                reported => return reported,
            }
        }
    }

    fn into(limits: &OwnLimits, threads: u32, follows: bool) -> Result<Self, OverBudget> {
        let mut budget = OwnBudget {
            unknown_memory: limits.memory.as_ref().err().cloned(),
            unknown_cpu: limits.cpu.as_ref().err().cloned(),
            ..OwnBudget::default()
        };
        match &limits.memory {
            Ok(Some(memory)) => budget.shrink(memory, threads, follows)?,
            Ok(None) => {}
            Err(_) => budget.be_careful(),
        }
        if let Ok(Some(cpu)) = &limits.cpu {
            budget.save(cpu);
        }
        Ok(budget)
    }

    fn shrink(&mut self, memory: &MemoryLimit, threads: u32, follows: bool) -> Result<(), OverBudget> {
        let fits = |halvings: &u32| need(*halvings, threads, follows) <= memory.left;
        let least = need(MOST_HALVINGS, threads, follows);
        // Memory used under a hidden limit may be page cache, which can be reclaimed: refuse only what the limit itself has no room for.
        let may_fit = memory.is_hidden && least <= memory.limit;
        let fitting = (0..=MOST_HALVINGS).find(fits).or(may_fit.then_some(MOST_HALVINGS));
        self.halvings = fitting.ok_or_else(|| OverBudget {
            cgroup: memory.cgroup.clone(),
            limit: Bytes(memory.limit),
            left: Bytes(memory.left),
            needed: Bytes(least),
        })?;
        if self.halvings > 0 {
            let [limit, left] = [memory.limit, memory.left].map(Bytes);
            let whole = Bytes(need(0, threads, follows));
            let (place, at_least) = if memory.is_hidden {
                (", which no file here shows and", "at least ")
            } else {
                (", which", "")
            };
            self.reasons.push(format!(
                "whyslow itself runs under a memory limit of {limit} in cgroup {}{place} leaves {at_least}{left}, and needs \
                 {whole} for whole tables",
                memory.cgroup
            ));
        }
        Ok(())
    }

    /// A memory limit may exist that could not be read.
    fn be_careful(&mut self) {
        self.halvings = HALVINGS_WHEN_UNKNOWN;
        self.reasons.push("whyslow itself may run under a memory limit that cannot be read".to_owned());
    }

    /// How often the tables of a window on the host are halved to fit into memory. An error: even the smallest do not fit.
    pub(crate) fn halvings(limits: &OwnLimits) -> Result<u32, OverBudget> {
        let limits = OwnLimits { cpu: Ok(None), ..limits.clone() };
        Self::into(&limits, shared::threads(), false).map(|budget| budget.halvings)
    }

    /// With this part of a CPU the answer is late.
    pub(crate) fn is_scarce(cpus: f64) -> bool {
        cpus < SCARCE
    }

    fn save(&mut self, cpu: &CpuLimit) {
        if !Self::is_scarce(cpu.cpus) {
            return;
        }
        let share = Share::of(cpu.cpus, 1.0);
        let why = format!(
            "whyslow itself runs under a CPU quota of {share} of a CPU in cgroup {}: answers take longer",
            cpu.cgroup
        );
        self.halvings = self.halvings.max(HALVINGS_WHEN_SCARCE);
        self.reasons.push(why.clone());
        self.thrift = Some(why);
    }

    /// What the user must know before the window.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let unknown = self.unknown_memory.iter().map(ToString::to_string);
        let all: Vec<String> = self.reasons.iter().cloned().chain(unknown).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What is left out, and why. `measures_speeds`: the user asked for the speed of CPUs.
    pub(crate) fn notes(&self, measures_speeds: bool) -> Vec<Missing> {
        let tables = (!self.reasons.is_empty()).then(|| {
            let why = self.reasons.join("; ");
            let part = 1u32 << self.halvings;
            let reason = format!(
                "{why}; each table has 1/{part} of its rows, and events without a row are counted as lost \
                 (own_cost.lost_events)"
            );
            Missing::skipped("a part of the tables", reason)
        });
        let unknown = [&self.unknown_memory, &self.unknown_cpu].into_iter().flatten().cloned();
        let mut notes: Vec<Missing> = tables.into_iter().chain(unknown).collect();
        if let Some(why) = &self.thrift {
            let shed = registry::ALL.iter().flat_map(|entry| entry.shed).copied();
            let shed = shed.chain((!measures_speeds).then_some(speed::WHAT));
            notes.extend(shed.map(|what| Missing::skipped(what, why)));
        }
        notes
    }
}

/// Bytes needed in all.
fn need(halvings: u32, threads: u32, follows: bool) -> u64 {
    let tables = TABLES + if follows { TABLES_OF_CALLS } else { 0 };
    let places = u64::from(shared::spares(threads, halvings).saturating_sub(shared::spares(0, halvings)));
    OWN + FIXED + (tables >> halvings) + places * PLACE
}
