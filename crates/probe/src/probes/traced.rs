//! What the probes of a window saw, and its names: from that to tables.

use std::collections::HashMap;
use std::ops::Range;

use whyslow_model::table::{self, Tables};
use whyslow_model::{Missing, MissingNote};

use crate::bpf::{calls, irq_latency, locks, oncpu, sched, tasks, work};
use crate::files::Files;
use crate::kallsyms::Kallsyms;
use crate::numbers::Numbers;
use crate::span_table::{self, Window};
use crate::symbols::KernelNames;
use crate::{addresses, call_table, host, irq_latency_table, lock_table, sample_table, task_table};

/// What the probes saw.
#[derive(Default)]
pub struct Traced {
    pub(super) code: Vec<Range<u64>>,
    /// Ids of our pid namespace; `None`: they are the initial one's.
    pub(super) numbers: Option<Numbers>,
    pub(super) start: tasks::Snapshot,
    pub(super) end: Option<tasks::Snapshot>,
    pub(super) sched: Option<sched::Raw>,
    pub(super) locks: Option<locks::Raw>,
    pub(super) work: Option<work::Raw>,
    pub(super) calls: Option<calls::Raw>,
    pub(super) irq_latency: Option<irq_latency::Raw>,
    pub(super) seen_on_cpu: Option<(oncpu::Raw, oncpu::Pace)>,
    pub(super) cpus: Option<Vec<table::Cpu>>,
    pub(super) disk: Option<Vec<table::Disk>>,
    pub(super) memory: Option<Vec<table::Memory>>,
    pub(super) connects: Option<Vec<table::Connect>>,
    pub(super) listeners: Option<Vec<table::Listener>>,
    pub(super) programs: Option<Vec<table::Program>>,
    pub(super) latency_holders: Option<Vec<table::LatencyHolder>>,
    pub(super) polls: Option<Vec<table::Poll>>,
    pub(super) sockets: Option<Vec<table::Socket>>,
    pub(super) speeds: Option<Vec<table::Speed>>,
    /// Run time of our BPF programs.
    pub own_bpf_ns: Option<u64>,
    /// Events seen and not noted, by probe.
    pub lost: Vec<(String, u64)>,
}

impl Traced {
    pub(super) fn note_lost(&mut self, what: &str, lost: u64) {
        if lost > 0 {
            self.lost.push((what.to_owned(), lost));
        }
    }

    pub(super) fn note_gaps(&mut self, seen: &[oncpu::oncpu_cpu]) {
        let rows = self.cpus.get_or_insert_with(Vec::new);
        for (cpu, gaps) in seen.iter().enumerate().filter(|(_, cpu)| cpu.samples > 0) {
            let at = rows.iter().position(|row| row.cpu == cpu as u32).unwrap_or_else(|| {
                rows.push(table::Cpu { cpu: cpu as u32, ..table::Cpu::default() });
                rows.len() - 1
            });
            rows[at].samples = gaps.samples;
            rows[at].gaps = gaps.gaps;
            rows[at].worst_gap_ns = gaps.worst_gap_ns;
        }
    }

    /// Processes that used the most CPU in the window.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<u32> {
        let Some(end) = &self.end else { return Vec::new() };
        let before: HashMap<(u32, u64), u64> =
            self.start.tasks.iter().map(|t| ((t.pid, t.start_ns), t.exec_ns)).collect();
        let mut used: HashMap<u32, u64> = HashMap::new();
        for task in &end.tasks {
            let then = before.get(&(task.pid, task.start_ns)).copied().unwrap_or(0);
            *used.entry(task.tgid).or_default() += task.exec_ns.saturating_sub(then);
        }
        let mut busiest: Vec<_> = used.into_iter().filter(|(_, ns)| *ns > 0).collect();
        busiest.sort_by_key(|(pid, ns)| (std::cmp::Reverse(*ns), *pid));
        let shown = |pid| self.numbers.as_ref().map_or(Some(pid), |numbers| numbers.inside(pid));
        busiest.into_iter().filter_map(|(pid, _)| shown(pid)).take(most).collect()
    }

    /// Names for all that was seen, as tables.
    pub fn into_tables(
        mut self,
        files: &Files,
        kallsyms: &Kallsyms,
        window: Window,
        missing: &mut Vec<MissingNote>,
    ) -> Tables {
        let mut tables = Tables::default();
        let numbers = self.numbers.take();
        if let Some(numbers) = &numbers {
            let hits = self.seen_on_cpu.as_mut().map(|(seen, _)| seen);
            numbers.show_in_seen(hits, self.calls.as_mut());
        }
        let window_ns = window.ns;
        let page_size = host::page_size();
        if let Some(end) = &self.end {
            let none = sched::Raw::default();
            let seen = self.sched.as_ref().unwrap_or(&none);
            let tasks = task_table::tasks(&self.start, end, seen, window_ns);
            missing.extend(task_table::unseen(&tasks).map(MissingNote::from));
            tables.tasks = Some(tasks);
            let cgroups = task_table::cgroups(&self.start, end, files.cgroup_mounts(), page_size);
            missing.extend(task_table::uncounted(&cgroups).map(MissingNote::from));
            tables.cgroups = Some(cgroups);
        }
        let mut kernel = KernelNames::from(kallsyms).without(std::mem::take(&mut self.code));
        if let Some(seen) = &mut self.sched {
            let timelines = span_table::timelines(seen, window, &mut kernel);
            tables.waits = Some(sample_table::waits(&timelines));
            tables.spans = Some(timelines.spans);
            tables.stacks = Some(timelines.stacks);
            tables.runs = Some(timelines.runs);
        }
        self.name_waits(&mut tables, window, &mut kernel, missing);
        if let Some(seen) = self.irq_latency.take() {
            let reported = irq_latency_table::tables(&seen, window, &mut kernel);
            tables.cross_calls = seen.calls.then_some(reported.calls);
            tables.late_timers = Some(reported.timers);
            tables.gaps = Some(reported.gaps);
            tables.irq_latencies = Some(reported.irq_latencies);
        }
        (tables.samples, tables.spins) =
            sample_table::samples_of(self.seen_on_cpu, &mut kernel, missing).unzip();
        tables.cpus = self.cpus;
        tables.disk = self.disk;
        tables.memory = self.memory;
        tables.connects = self.connects;
        tables.listeners = self.listeners;
        tables.programs = self.programs;
        tables.latency_holders = self.latency_holders;
        tables.polls = self.polls;
        tables.sockets = self.sockets;
        tables.speeds = self.speeds;
        if let Some(numbers) = &numbers {
            numbers.show_in_tables(&mut tables);
        }
        addresses::hide(&mut tables);
        tables
    }

    /// Locks, work items and system calls; their stacks come after those of the timelines.
    fn name_waits(
        &mut self,
        tables: &mut Tables,
        window: Window,
        kernel: &mut KernelNames,
        missing: &mut Vec<MissingNote>,
    ) {
        let free = |stacks: &Option<Vec<table::Stack>>| {
            stacks.iter().flatten().map(|stack| stack.id.saturating_add(1)).max().unwrap_or(0)
        };
        if let Some(seen) = self.locks.take() {
            let first = free(&tables.stacks);
            let (locks, holds, stacks) = lock_table::tables(&seen, window.start_ns, window.ns, kernel, first);
            tables.locks = Some(locks);
            tables.holds = Some(holds);
            tables.stacks.get_or_insert_default().extend(stacks);
        }
        if let Some(seen) = self.work.take() {
            tables.works = Some(lock_table::works(&seen, window.start_ns, window.ns, kernel));
        }
        if let Some(seen) = self.calls.take() {
            let first = free(&tables.stacks);
            let reported = call_table::tables(seen, window.start_ns, window.ns, first, missing);
            if reported.untold > 0 {
                let reason = format!("{} more than were kept", reported.untold);
                missing.push(Missing::skipped("slow system calls", reason).into());
            }
            tables.calls = Some(reported.calls);
            tables.slow_calls = Some(reported.slow_calls);
            tables.stacks.get_or_insert_default().extend(reported.stacks);
        }
    }
}
