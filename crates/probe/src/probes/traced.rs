//! What the probes of a window saw, and how it gets names and becomes tables.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use whyslow_model::table::Tables;
use whyslow_model::{Missing, MissingNote};

use super::probe::{Ending, Later, Naming, Probe};
use crate::bpf::{sched, tasks};
use crate::files::Files;
use crate::kallsyms::Kallsyms;
use crate::pid_map::Numbers;
use crate::span_table::{self, Window};
use crate::symbols::KernelNames;
use crate::{addresses, host, mutex_owner, sample_table, task_table};

/// What the probes saw.
#[derive(Default)]
pub struct Traced {
    pub(super) code: Vec<Range<u64>>,
    /// Threads that were followed from the begin on.
    pub(super) followed: Vec<u32>,
    /// Ids of our pid namespace; `None`: they are the initial one's.
    pub(super) numbers: Option<Numbers>,
    pub(super) start: tasks::Snapshot,
    pub(super) end: Option<tasks::Snapshot>,
    pub(super) sched: Option<sched::RawSched>,
    /// Rows that need no names.
    pub(super) tables: Tables,
    /// Makes the rows that need names.
    pub(super) later: Vec<Later>,
    /// Processes of whyslow that worked in the window.
    pub own: Vec<u32>,
    /// Run time of our BPF programs.
    pub own_bpf_ns: Option<u64>,
    /// Events seen but not stored, by probe.
    pub lost: Vec<(String, u64)>,
}

impl Traced {
    /// Take the results of a probe for a window of this length.
    pub(crate) fn take(
        &mut self,
        probe: &mut dyn Probe,
        window: Duration,
        missing: &mut Vec<MissingNote>,
    ) -> Result<(), Missing> {
        let (tables, lost, later, own) = (&mut self.tables, &mut self.lost, &mut self.later, &mut self.own);
        probe.finish(&mut Ending { window, tables, missing, lost, later, own })
    }

    /// The processes that used the most CPU in the window.
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

    /// Look up all names, and make the tables.
    pub fn into_tables(
        mut self,
        files: &Files,
        kallsyms: &Kallsyms,
        window: Window,
        missing: &mut Vec<MissingNote>,
    ) -> Tables {
        let mut tables = std::mem::take(&mut self.tables);
        self.name_tasks(&mut tables, files, window, missing);
        let mut kernel = KernelNames::from(kallsyms).without(std::mem::take(&mut self.code));
        if let Some(seen) = &mut self.sched {
            let numbers = self.numbers.as_ref();
            tables.requests = Some(span_table::requests(seen));
            let mut timelines = span_table::timelines(seen, window, &mut kernel, numbers);
            let late = mutex_owner::note(&mut timelines.spans, &self.followed, numbers);
            missing.extend(late.map(MissingNote::from));
            tables.waits = Some(sample_table::waits(&timelines));
            tables.spans = Some(timelines.spans);
            tables.stacks = Some(timelines.stacks);
            tables.runs = Some(timelines.runs);
        }
        let numbers = self.numbers.as_ref();
        let mut naming = Naming { tables: &mut tables, kernel: &mut kernel, window, missing, numbers };
        self.later.into_iter().for_each(|name| name(&mut naming));
        if let Some(numbers) = numbers {
            numbers.show_in_tables(&mut tables);
        }
        addresses::hide(&mut tables);
        tables
    }

    fn name_tasks(&self, tables: &mut Tables, files: &Files, window: Window, missing: &mut Vec<MissingNote>) {
        let Some(end) = &self.end else { return };
        let none = sched::RawSched::default();
        let seen = self.sched.as_ref().unwrap_or(&none);
        let tasks = task_table::tasks(&self.start, end, seen, window);
        missing.extend(task_table::unseen(&tasks).map(MissingNote::from));
        tables.tasks = Some(tasks);
        let cgroups = task_table::cgroups(&self.start, end, files.cgroup_mounts(), host::page_size());
        missing.extend(task_table::uncounted(&cgroups).map(MissingNote::from));
        tables.cgroups = Some(cgroups);
    }
}
