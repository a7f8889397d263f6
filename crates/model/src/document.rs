//! The JSON document: what every verb that reports prints with `--json`.
//!
//! Schema 0. Names may be added, not changed, once it is frozen.

use std::time::Duration;

use serde::Serialize;

use crate::blocked::BlockedAccount;
use crate::chain::{CallAccount, Chain, LockAccount, SlowCallAccount, WallAccount};
use crate::finding::{in_seconds, in_seconds_or_null};
use crate::job::{ChurnAccount, JobAccount};
use crate::ping::PingAccount;
use crate::resource::Resource;
use crate::stall::StallAccount;
use crate::work::{GraceWaits, WorkAccount};
use crate::{Finding, Missing, MissingNote, Probe, RuledOut, Share};

/// The version of the JSON document.
pub const SCHEMA: u32 = 0;

/// A process, a group, a user: what was asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// What it is called.
    pub name: String,
    /// It slept nearly all the time, and no task waited for it.
    pub idle: bool,
}

/// One report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document {
    /// Version of this document.
    pub schema: u32,
    /// Version of whyslow.
    pub whyslow: String,
    /// The host's name.
    pub host: String,
    /// The kernel's boot id, where readable.
    pub boot_id: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// RFC 3339.
    pub started_at: String,
    /// Length of the window.
    #[serde(rename = "window_s", serialize_with = "in_seconds")]
    pub window: Duration,
    /// Causes by time lost, then risks, then "cannot tell".
    pub findings: Vec<Finding>,
    /// What the evidence rules out.
    pub ruled_out: Vec<RuledOut>,
    /// Where the report shows what a rule rules out: one of the two is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<Contradiction>,
    /// Where the time went.
    pub account: Account,
    /// CPUs, memory, disks, devices, tables, and limits that were met: used, waited for, refused, and the main user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// The subject of the question. The document then has its findings and chains, and those of the host as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Wall time of the watched tasks or of a command, explained; only with watched tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<WallAccount>,
    /// Chains of waits, the most expensive first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<Chain>,
    /// Contended kernel locks, the most expensive first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockAccount>,
    /// Work items of the kernel by function, the longest time in the queue and at work first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub works: Vec<WorkAccount>,
    /// Processes that began in the window, by the process that started them and their command; the longest time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobAccount>,
    /// Cgroups, namespaces and mounts that processes and their jobs made and removed; the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub churn: Vec<ChurnAccount>,
    /// Samples of tasks in D state; `None`: none were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockedAccount>,
    /// RCU grace periods that threads waited for, by the function that needed them; the longest time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grace_periods: Vec<GraceWaits>,
    /// Packets that waited for their CPU for 5 ms or more, by CPU and cause; the longest time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<StallAccount>,
    /// Answers of the host that was asked; only with `whyslow net TARGET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pings: Option<PingAccount>,
    /// System calls of the watched tasks by file, the most expensive first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallAccount>,
    /// Slow system calls of the watched tasks, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slow_calls: Vec<SlowCallAccount>,
    /// The online CPUs, and what each delivered; only where that was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuAccount>,
    /// What could not be looked at, and why.
    pub missing: Vec<MissingNote>,
    /// What looking cost.
    pub own_cost: OwnCost,
}

impl Document {
    /// A host was asked, and nothing else was looked at.
    #[must_use]
    pub fn is_of_pings_alone(&self) -> bool {
        self.pings.is_some() && self.account.cpu.is_none() && self.account.by_state.is_empty()
    }

    /// Why nothing is known of what the tasks did; `None`: they were seen, or what was recorded are files alone.
    #[must_use]
    pub fn why_unseen(&self) -> Option<String> {
        if self.account.cpu.is_some() {
            return None;
        }
        match self.said_of(Probe::TaskList) {
            Some(Missing::NotRecorded { .. }) | None if !self.account.by_state.is_empty() => None,
            said => Some(refusal(said, Probe::TaskList)),
        }
    }

    /// Why nothing is known of what the tasks waited for; `None`: it was seen.
    #[must_use]
    pub fn why_waits_unseen(&self) -> Option<String> {
        let unseen = || refusal(self.said_of(Probe::OffCpuStacks), Probe::OffCpuStacks);
        self.why_unseen().or_else(|| self.account.off_cpu.is_none().then(unseen))
    }

    /// Why this probe has reported nothing; `None`: it has looked.
    #[must_use]
    pub fn why_unseen_by(&self, probe: Probe) -> Option<String> {
        self.why_unseen().or_else(|| self.said_of(probe).map(|said| refusal(Some(said), probe)))
    }

    fn said_of(&self, probe: Probe) -> Option<&Missing> {
        self.missing.iter().map(|note| &note.missing).find(|missing| missing.what() == probe.word())
    }

    /// Why what is known of tasks and of their waits is not all; `None`: it is.
    #[must_use]
    pub fn why_in_part(&self) -> Option<String> {
        let of_tasks = [Probe::TaskList.word(), Probe::OffCpuStacks.word()];
        let part = |note: &MissingNote| {
            let (probe, reason) =
                note.missing.probe_in_part().filter(|(probe, _)| of_tasks.contains(probe))?;
            Some(format!("{probe}: {reason}"))
        };
        self.missing.iter().find_map(part)
    }
}

fn refusal(said: Option<&Missing>, probe: Probe) -> String {
    match said {
        Some(Missing::NotAllowed { way_out, .. }) => format!("BPF programs are refused; {way_out}"),
        Some(missing) => missing.to_string(),
        None => Missing::not_recorded(probe.word()).to_string(),
    }
}

/// Something that one line of a report shows, and another rules out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// The rule whose evidence rules it out.
    pub rule: String,
    /// What it is about: "a CPU quota".
    pub what: String,
    /// Waits for it that the report shows.
    #[serde(rename = "shown_s", serialize_with = "in_seconds")]
    pub shown: Duration,
    /// Both sides in a sentence.
    pub text: String,
}

/// Where the time of the window went. Seconds are task-seconds, all tasks together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Account {
    /// Window x online CPUs.
    #[serde(rename = "wall_s", serialize_with = "in_seconds")]
    pub wall: Duration,
    /// CPU time that tasks got; `None`: no task was seen.
    #[serde(rename = "cpu_s", serialize_with = "in_seconds_or_null")]
    pub cpu: Option<Duration>,
    /// Off-CPU time of tasks: runnable or blocked; `None`: no wait could be seen.
    #[serde(rename = "off_cpu_s", serialize_with = "in_seconds_or_null")]
    pub off_cpu: Option<Duration>,
    /// CPU time of the host that no counter explains; `None`: its counters are not known.
    #[serde(rename = "unexplained_s", serialize_with = "in_seconds_or_null")]
    pub unexplained: Option<Duration>,
    /// The host's CPU time by state (user, system, softirq, steal, idle ...) and the tasks' waits by kind.
    pub by_state: Vec<StateShare>,
    /// CPU time and waits by cgroup, the largest first.
    pub by_cgroup: Vec<CgroupShare>,
    /// Sentences: what a reader should know first.
    pub notes: Vec<String>,
    /// Sentences: where two ways to measure disagree, and what hides from them.
    pub doubts: Vec<String>,
}

/// Time in one state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StateShare {
    /// "cpu": the host's CPU time. "wait": the tasks' wait time.
    pub of: String,
    /// "user", "system", "idle", "runnable", "disk", ...
    pub state: String,
    /// How long.
    #[serde(rename = "time_s", serialize_with = "in_seconds")]
    pub time: Duration,
}

/// What one cgroup used and waited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CgroupShare {
    /// Its path, under its hierarchy's root.
    pub id: String,
    /// Unit, container, pod or path.
    pub name: String,
    /// Tasks seen in it.
    pub tasks: u64,
    /// CPU time it got.
    #[serde(rename = "cpu_s", serialize_with = "in_seconds")]
    pub cpu: Duration,
    /// Time its tasks were ready and not running; `None`: no wait could be seen.
    #[serde(rename = "runnable_s", serialize_with = "in_seconds_or_null")]
    pub runnable: Option<Duration>,
    /// Time its tasks were in uninterruptible sleep; `None`: no wait could be seen.
    #[serde(rename = "uninterruptible_s", serialize_with = "in_seconds_or_null")]
    pub uninterruptible: Option<Duration>,
}

/// What one CPU delivered in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CpuAccount {
    pub cpu: u32,
    /// Its NUMA node, where the kernel knows nodes.
    pub node: Option<u32>,
    /// Why it was not measured; `None`: it was.
    pub not_measured: Option<String>,
    /// Time that a task gets for a million additions, each waiting for the one before.
    #[serde(rename = "million_s", serialize_with = "in_seconds_or_null")]
    pub million: Option<Duration>,
    /// That time by the median of the CPUs like it; `None`: it is the only one.
    pub ratio: Option<f64>,
    /// It is slow: so many times slower than `slow_against`.
    pub slow: Option<f64>,
    /// "the median CPU", "its nominal frequency", "the baseline", "when nothing interrupts it".
    pub slow_against: Option<String>,
    /// Why it is slow, as far as the evidence goes.
    pub reasons: Vec<String>,
    /// Share of the loops' time that something took in pieces.
    pub taken: Option<Share>,
    /// Frequency at which the loops ran when nothing interrupted them, in MHz; `None` on an emulator.
    pub mhz: Option<f64>,
    /// Nominal frequency in MHz.
    pub nominal_mhz: Option<f64>,
    /// Mean frequency while it was not idle, in MHz, where cycles can be counted.
    pub busy_mhz: Option<f64>,
    /// Share of the window in which it was busy.
    pub busy: Option<Share>,
    /// The idle state in which it was longest.
    pub idle_state: Option<String>,
    /// Share of the window in interrupt handlers that can be traced.
    pub hardirq: Option<Share>,
    /// ... in softirqs.
    pub softirq: Option<Share>,
    /// ... that the hypervisor says it took.
    pub steal: Option<Share>,
    /// The cpufreq governor.
    pub governor: Option<String>,
    /// The cpufreq driver.
    pub driver: Option<String>,
}

/// What looking cost the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OwnCost {
    /// CPU time of our processes.
    #[serde(rename = "cpu_s", serialize_with = "in_seconds")]
    pub cpu: Duration,
    /// Peak resident memory.
    pub rss_bytes: u64,
    /// Run time of our BPF programs, extrapolated from a sample; `None` where the kernel does not tell.
    #[serde(rename = "bpf_s")]
    pub bpf_s: Option<f64>,
    /// Time in which our threads slept in D state other than for I/O, as for kernel locks and RCU; `None`: not measured.
    #[serde(rename = "blocked_s", serialize_with = "in_seconds_or_null")]
    pub blocked: Option<Duration>,
    /// Events that the kernel half saw and could not note.
    pub lost_events: u64,
}
