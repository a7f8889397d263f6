//! Threads that have a CPU all the time, while the host as a whole looks idle.

use std::collections::BTreeMap;

use whyslow_model::table::Task;
use whyslow_model::{Missing, Share};

use crate::Evidence;

/// A thread that sleeps less than a twentieth of the time has no room for more work.
const FULL: f64 = 0.95;
/// A thread that got less than this of a CPU waits for CPUs as well: other findings report that first.
const GOT: f64 = 0.80;
/// With less than this part of the CPUs left over the averages show that the host is busy.
const LOOKS_IDLE: f64 = 0.25;
/// Processes that are reported: with more full processes the averages show that the host is busy.
const MOST: usize = 5;

/// Full threads, while the host looks idle.
#[derive(Default)]
pub(crate) struct FullThreads<'r> {
    /// The part of all CPU time that was left over.
    pub idle: Share,
    /// By process, the one with the most full threads first; the threads of each process, the busiest first.
    pub processes: Vec<Vec<&'r Task>>,
}

impl<'r> FullThreads<'r> {
    /// The threads that are reported.
    pub fn of(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let fair = ev.fair_shares()?;
        let whole = ev.window().as_secs_f64() * f64::from(fair.cpus());
        let idle = Share::of(fair.idle().as_secs_f64(), whole);
        if idle.ratio() < LOOKS_IDLE {
            return Ok(FullThreads::default());
        }
        let mut processes: BTreeMap<u32, Vec<&Task>> = BTreeMap::new();
        for task in fair.tasks().iter().filter(|task| is_full(ev, task)) {
            processes.entry(task.tgid).or_default().push(task);
        }
        let mut processes: Vec<Vec<&Task>> = processes.into_values().collect();
        for threads in &mut processes {
            threads.sort_by_key(|task| (std::cmp::Reverse(task.exec_ns), task.pid));
        }
        let first = |threads: &Vec<&Task>| threads.first().map_or((0, 0), |task| (task.exec_ns, task.pid));
        processes.sort_by_key(|threads| std::cmp::Reverse((threads.len(), first(threads))));
        processes.truncate(MOST);
        Ok(FullThreads { idle, processes })
    }
}

/// What a thread had of one CPU.
pub(crate) fn share(ev: &Evidence<'_>, task: &Task) -> Share {
    Share::of(task.exec_ns as f64, ev.window().as_nanos() as f64)
}

/// Whether it has no room for more work.
pub(crate) fn is_full(ev: &Evidence<'_>, task: &Task) -> bool {
    let wanted = task.exec_ns.saturating_add(task.runnable_ns);
    let wants = Share::of(wanted as f64, ev.window().as_nanos() as f64).ratio();
    wants >= FULL && share(ev, task).ratio() >= GOT && task.folded == 0 && !ev.is_own(task.pid, task.tgid)
}
