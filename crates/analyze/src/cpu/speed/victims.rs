//! Which task ran on which CPU, and so what a slow CPU cost the task.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::table::Task;

use crate::Evidence;

/// Rows of long runs show the CPU exactly; where they hold less of a task's time than this, its rows of short runs are better.
const MOSTLY: f64 = 0.5;

/// Time lost on slow CPUs, by process, the most first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Victims {
    /// (process, name of its busiest thread, time lost).
    pub processes: Vec<(u32, String, Duration)>,
    /// The time lost by all processes together.
    pub lost: Duration,
    /// Time that the processes were on these CPUs.
    pub on_cpu: Duration,
}

/// The process that waits for nearly all I/O of the host, so that the completion of requests is its own work. Kernel threads
/// wait for processes that no row names.
pub(crate) fn requester(ev: &Evidence<'_>) -> Option<u32> {
    const NEARLY_ALL: f64 = 0.9;
    const MOST_REQUESTS: f64 = 0.8;
    let mut waits: BTreeMap<u32, u64> = BTreeMap::new();
    for task in ev.tasks().ok()? {
        let sum = waits.entry(task.tgid).or_default();
        *sum = sum.saturating_add(task.io_count);
    }
    let all = waits.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let (tgid, most) = waits.into_iter().max_by_key(|(_, count)| *count)?;
    // A process that sends requests without waiting for each (io_uring, libaio) has none of these waits.
    let rows = ev.recording().tables.disk.as_deref()?;
    let requests = rows.iter().map(|row| row.requests).fold(0, u64::saturating_add);
    // Other waits are marked as I/O waits, too (NFS): more waits than requests are not waits for these requests.
    let part = most as f64 / requests.max(1) as f64;
    let is_most = most > 0 && (MOST_REQUESTS..=1.1).contains(&part);
    let is_kernels = || ev.task(tgid).is_none_or(|task| task.kthread);
    (is_most && most as f64 >= NEARLY_ALL * all as f64 && !is_kernels()).then_some(tgid)
}

/// What tasks lost on CPUs that take `ratio` times longer than they should; the process `but` lost nothing: it was its own work.
pub(crate) fn victims(
    ev: &Evidence<'_>,
    slow: &BTreeMap<u32, f64>,
    but: Option<u32>,
) -> Result<Victims, Missing> {
    let tasks = ev.tasks()?;
    let places = Places::of(ev);
    let mut processes: BTreeMap<u32, (String, f64, f64)> = BTreeMap::new();
    let mut on_cpu = 0.0;
    let may_lose = |task: &&Task| !task.kthread && !ev.is_own(task.pid, task.tgid) && Some(task.tgid) != but;
    for task in tasks.iter().filter(may_lose) {
        // Wall-clock time: where the kernel accounts for interrupts, the CPU time does not contain the time that an interrupt takes.
        let ran = task.exec_ns.max(task.traced_ns) as f64;
        let mut lost = 0.0;
        for (cpu, share) in places.of_task(task) {
            let Some(ratio) = slow.get(&cpu) else { continue };
            on_cpu += ran * share;
            lost += ran * share * (1.0 - 1.0 / ratio.max(1.0));
        }
        let entry = processes.entry(task.tgid).or_default();
        if lost > entry.2 || entry.0.is_empty() {
            (entry.0, entry.2) = (ev.called(task.pid, &task.comm), lost);
        }
        entry.1 += lost;
    }
    let time = |ns: f64| Duration::from_nanos(ns.max(0.0) as u64);
    let lost = time(processes.values().map(|(_, lost, _)| *lost).sum());
    let mut processes: Vec<_> =
        processes.into_iter().map(|(pid, (name, lost, _))| (pid, name, time(lost))).collect();
    processes.retain(|(_, _, lost)| !lost.is_zero());
    processes.sort_by_key(|(pid, _, lost)| (std::cmp::Reverse(*lost), *pid));
    Ok(Victims { processes, lost, on_cpu: time(on_cpu) })
}

/// Time of each task by CPU.
pub(crate) struct Places {
    long: BTreeMap<u32, BTreeMap<u32, u64>>,
    rows: BTreeMap<u32, BTreeMap<u32, u64>>,
}

impl Places {
    /// Reads the rows of runs.
    pub(crate) fn of(ev: &Evidence<'_>) -> Places {
        let mut places = Places { long: BTreeMap::new(), rows: BTreeMap::new() };
        let add = |to: &mut BTreeMap<u32, BTreeMap<u32, u64>>, pid, cpu, ns: u64| {
            let time = to.entry(pid).or_default().entry(cpu).or_default();
            *time = time.saturating_add(ns);
        };
        for run in ev.runs().unwrap_or_default() {
            add(&mut places.long, run.pid, run.cpu, run.to_ns.saturating_sub(run.from_ns));
        }
        for span in ev.spans().unwrap_or_default() {
            add(&mut places.rows, span.pid, span.cpu, span.mixed.running_ns);
        }
        places
    }

    /// Shares of the task's time by CPU, as far as its CPUs are known.
    pub(crate) fn of_task(&self, task: &Task) -> Vec<(u32, f64)> {
        if let Ok(only) = task.allowed.trim().parse::<u32>() {
            return vec![(only, 1.0)];
        }
        let sum = |by_cpu: &BTreeMap<u32, u64>| {
            by_cpu.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns)) as f64
        };
        let (long, rows) = (self.long.get(&task.pid), self.rows.get(&task.pid));
        let is_reported = |by_cpu: &&BTreeMap<u32, u64>| sum(by_cpu) >= MOSTLY * task.traced_ns as f64;
        let Some(by_cpu) = long.filter(is_reported).or(rows).or(long) else { return Vec::new() };
        let whole = sum(by_cpu).max(1.0);
        by_cpu.iter().map(|(cpu, ns)| (*cpu, *ns as f64 / whole)).collect()
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Run, Span};
    use whyslow_model::timeline::StateTimes;

    use super::*;
    use crate::evidence::fixture::Fixture;

    const S: u64 = 1_000_000_000;

    fn task(pid: u32, ran: u64, allowed: &str) -> Task {
        Task {
            pid,
            tgid: pid,
            comm: format!("t{pid}"),
            exec_ns: ran,
            traced_ns: ran,
            allowed: allowed.into(),
            ..Task::default()
        }
    }

    #[test]
    fn time_on_a_slow_cpu_is_lost_by_its_ratio() {
        let runs = vec![
            Run { cpu: 1, pid: 8, from_ns: 0, to_ns: S / 2 },
            Run { cpu: 0, pid: 8, from_ns: S / 2, to_ns: S },
        ];
        let short = |cpu, ns| Span {
            pid: 9,
            cpu,
            mixed: StateTimes { running_ns: ns, ..StateTimes::default() },
            ..Span::default()
        };
        let kernel = Task { kthread: true, ..task(5, S, "1") };
        let ours = Task { tgid: 99, ..task(99, S, "1") };
        let mut host = Fixture::second().with(|t| {
            t.tasks = Some(vec![task(7, S, "1"), task(8, S, "0-1"), task(9, S, "0-1"), kernel, ours]);
            t.runs = Some(runs);
            t.spans = Some(vec![short(1, S / 8), short(0, S / 8)]);
        });
        host.0.meta.own_pids = vec![99];
        let lost = victims(&host.ev(), &BTreeMap::from([(1, 4.0)]), None).unwrap();
        let ms: Vec<_> = lost.processes.iter().map(|(pid, _, lost)| (*pid, lost.as_millis())).collect();
        assert_eq!(ms, [(7, 750), (8, 375), (9, 375)]);
        assert_eq!((lost.lost.as_millis(), lost.on_cpu.as_millis()), (1500, 2000));
    }

    #[test]
    fn task_without_known_cpus_loses_nothing() {
        let host = Fixture::second().with(|t| t.tasks = Some(vec![task(7, S, "0-1")]));
        assert_eq!(victims(&host.ev(), &BTreeMap::from([(1, 4.0)]), None).unwrap().lost, Duration::ZERO);
        assert!(victims(&Fixture::second().ev(), &BTreeMap::new(), None).is_err());
    }
}
