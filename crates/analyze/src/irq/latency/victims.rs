//! Threads that stood still because a CPU came late: threads that spun for it, and threads whose timer it had to serve.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Hop, Recording, Subject, SubjectKind};

use super::{asked_through, spun_in};
use crate::Evidence;

/// How a thread waited for a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VictimWait {
    /// On a CPU, until the other CPU had served its call.
    Spun,
    /// Asleep, beyond the time that it had set.
    Slept,
    /// Ready to run there.
    Ready,
}

/// One thread that waited for one CPU in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LatencyVictim {
    pub pid: u32,
    pub tgid: u32,
    pub comm: String,
    pub cpu: u32,
    /// The idle state that the CPU was in.
    pub state: Option<u32>,
    pub wait: VictimWait,
    /// The function that the CPU was to run for most of the calls.
    pub function: String,
    pub ns: u64,
    pub count: u64,
    pub worst: u64,
}

impl LatencyVictim {
    /// How it waited, and what it read meanwhile.
    pub fn hop(&self, rec: &Recording) -> Hop {
        let cpu = self.cpu;
        let and =
            |doing: &str, what: Option<String>| what.map_or_else(String::new, |w| format!(", {doing} {w}"));
        let (reason, what, state) = match self.wait {
            VictimWait::Spun => {
                let spins = and("spinning in", spun_in(rec, self.pid));
                let reads = and("reading", asked_through(rec, self.pid, self.tgid));
                (
                    Reason::CrossCall,
                    format!("CPU {cpu} to run {}{spins}{reads}", self.function),
                    TaskState::Running,
                )
            }
            VictimWait::Slept => (Reason::Timer, format!("its timer on CPU {cpu}"), TaskState::Sleeping),
            VictimWait::Ready => (Reason::Runnable, format!("CPU {cpu}"), TaskState::Runnable),
        };
        let (lost, worst) = (Duration::from_nanos(self.ns), Duration::from_nanos(self.worst));
        let who = format!("{} (pid {})", self.comm, self.pid);
        Hop::new(reason, who, what, state, lost).times(self.count, worst)
    }
}

/// Time of the window in which a task lived; the whole window where its row does not show it.
fn lived(rec: &Recording, task: &Task) -> u64 {
    let window = rec.meta.window_ns;
    if task.lived_ns == 0 { window } else { task.lived_ns.min(window) }
}

/// All threads that waited.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatencyVictims(pub Vec<LatencyVictim>);

impl LatencyVictims {
    /// Threads that waited for the wanted CPUs and states. whyslow itself does not count.
    pub fn of(rec: &Recording, wanted: impl Fn(u32, Option<u32>) -> bool) -> Self {
        let tables = &rec.tables;
        let is_one = |pid: u32, tgid: u32| pid != 0 && !rec.meta.is_own(pid, tgid);
        let calls = tables.cross_calls.iter().flatten().filter(|row| is_one(row.pid, row.tgid)).map(|row| {
            LatencyVictim {
                pid: row.pid,
                tgid: row.tgid,
                comm: row.comm.clone(),
                cpu: row.cpu,
                state: row.state,
                wait: VictimWait::Spun,
                function: row.function.clone(),
                ns: row.paid_ns,
                count: row.count,
                worst: row.worst_ns,
            }
        });
        let timers = tables.late_timers.iter().flatten().filter(|row| is_one(row.pid, row.tgid)).map(|row| {
            LatencyVictim {
                pid: row.pid,
                tgid: row.tgid,
                comm: row.comm.clone(),
                cpu: row.cpu,
                state: row.state,
                wait: VictimWait::Slept,
                function: row.function.clone(),
                ns: row.paid_ns,
                count: row.count,
                worst: row.worst_ns,
            }
        });
        LatencyVictims(calls.chain(timers).filter(|victim| wanted(victim.cpu, victim.state)).collect())
    }

    /// With the names of the report.
    #[must_use]
    pub fn named(mut self, ev: &Evidence<'_>) -> Self {
        self.0.iter_mut().for_each(|victim| victim.comm = ev.called(victim.pid, &victim.comm));
        self
    }

    /// The total time; for no thread more than the window, nor than it slept: a timer may have been set for a time in the past.
    pub fn time(&self, rec: &Recording, counts: impl Fn(&LatencyVictim) -> bool) -> Duration {
        let tasks: BTreeMap<u32, (u64, u64)> =
            rec.tables.tasks.iter().flatten().map(|t| (t.pid, (t.sleep_ns, lived(rec, t)))).collect();
        let mut by_pid: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for victim in self.0.iter().filter(|victim| counts(victim)) {
            let (asleep, awake) = by_pid.entry(victim.pid).or_default();
            let sum = if victim.wait == VictimWait::Slept { asleep } else { awake };
            *sum = sum.saturating_add(victim.ns);
        }
        let of = |(pid, (asleep, awake)): (&u32, &(u64, u64))| {
            // The late timer was due before the window, or before the task began.
            let (slept, lived) = tasks.get(pid).copied().unwrap_or((u64::MAX, rec.meta.window_ns));
            (*asleep).min(slept).saturating_add(*awake).min(lived)
        };
        Duration::from_nanos(by_pid.iter().map(of).fold(0, u64::saturating_add))
    }

    /// Time of the window in which these threads lived.
    pub fn lived(&self, rec: &Recording) -> Duration {
        let mut pids: Vec<u32> = self.0.iter().map(|victim| victim.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let tasks: BTreeMap<u32, u64> =
            rec.tables.tasks.iter().flatten().map(|t| (t.pid, lived(rec, t))).collect();
        let lived = pids.iter().map(|pid| tasks.get(pid).copied().unwrap_or(rec.meta.window_ns));
        Duration::from_nanos(lived.fold(0, u64::saturating_add))
    }

    /// The thread that waited longest.
    pub fn first(&self) -> Option<&LatencyVictim> {
        self.0.iter().max_by_key(|victim| victim.ns)
    }

    /// The waits of one thread for one function of a CPU as one, whatever state the CPU was in; the costliest first.
    pub fn by_call(&self) -> Vec<LatencyVictim> {
        let mut rows: BTreeMap<(u32, u32, VictimWait, &str), LatencyVictim> = BTreeMap::new();
        for victim in &self.0 {
            let key = (victim.pid, victim.cpu, victim.wait, victim.function.as_str());
            let Some(row) = rows.get_mut(&key) else {
                rows.insert(key, victim.clone());
                continue;
            };
            row.ns = row.ns.saturating_add(victim.ns);
            row.count = row.count.saturating_add(victim.count);
            row.worst = row.worst.max(victim.worst);
        }
        let mut rows: Vec<LatencyVictim> = rows.into_values().collect();
        rows.sort_by_key(|victim| (std::cmp::Reverse(victim.ns), victim.pid, victim.cpu));
        rows
    }

    /// The threads as one subject: the thread with nearly all of the time, else the host.
    pub fn subject(&self) -> Subject {
        let all = self.0.iter().fold(0u64, |sum, victim| sum.saturating_add(victim.ns));
        let Some(first) = self.first() else { return Subject::host() };
        let own = self
            .0
            .iter()
            .filter(|victim| victim.pid == first.pid)
            .fold(0u64, |sum, p| sum.saturating_add(p.ns));
        match u128::from(own) * 10 >= u128::from(all) * 9 {
            true => Subject::new(SubjectKind::Task, first.pid.to_string(), first.comm.clone()),
            false => Subject::host(),
        }
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::LateTimer;

    use super::*;

    /// A window of 9 ms that ended with its last process; a timer was due before that process's last thread was born.
    #[test]
    fn victim_pays_no_more_than_its_lifetime() {
        let mut rec = crate::irq::latency::fixture::host();
        rec.meta.window_ns = 9_000_000;
        let task = Task { pid: 7, tgid: 7, lived_ns: 2_000_000, sleep_ns: 2_000_000, ..Task::default() };
        rec.tables.tasks = Some(vec![task]);
        let paid = LateTimer { pid: 7, tgid: 7, count: 1, paid_ns: 8_000_000, ..LateTimer::default() };
        let mut spun = LatencyVictims::of(&rec, |_, _| true);
        assert!(spun.0.is_empty());
        rec.tables.late_timers = Some(vec![paid]);
        spun.0.extend(
            LatencyVictims::of(&rec, |_, _| true)
                .0
                .into_iter()
                .map(|victim| LatencyVictim { wait: VictimWait::Spun, ..victim }),
        );
        for victims in [LatencyVictims::of(&rec, |_, _| true), spun] {
            assert_eq!(victims.time(&rec, |_| true), victims.lived(&rec));
            assert_eq!(victims.lived(&rec), Duration::from_millis(2));
        }
    }
}
