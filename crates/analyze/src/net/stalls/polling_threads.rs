//! Threads that poll network devices (threaded NAPI) and wait for a CPU: so do the packets.
//!
//! No softirq is late then: an interrupt wakes the thread, and the thread is ready and does not run.

use std::collections::BTreeMap;

use whyslow_model::Missing;
use whyslow_model::stall::{StallCulprit, StallKind, StallSeen};
use whyslow_model::table::Task;
use whyslow_model::timeline::{Run, Span};

use super::{A_TURN, Told, of_thread};
use crate::Evidence;

/// net/core/dev.c: "napi/DEVICE-ID" (napi_kthread_create, since v5.12), and "backlog_napi/CPU" for packets that other CPUs hand over
/// (with PREEMPT_RT or thread_backlog_napi, since v6.10).
const NAMES: [&str; 2] = ["napi/", "backlog_napi/"];
/// A shorter wait is no stall: as of softirqs.
const STALL: u64 = 5_000_000;
/// A thread that had the CPU for less of the wait did not keep the others out.
const MOST: f64 = 0.5;
/// Runs that are looked at: only invalid rows need more.
const LOOKS: usize = 4_000_000;

fn polls(task: &Task) -> bool {
    task.kthread && NAMES.iter().any(|name| task.comm.starts_with(name))
}

fn polling<'r>(ev: &Evidence<'r>) -> BTreeMap<u32, &'r Task> {
    let tasks = ev.recording().tables.tasks.iter().flatten().filter(|task| polls(task));
    tasks.map(|task| (task.pid, task)).collect()
}

/// How long it was ready for a CPU at the end of this row.
fn ready_ns(span: &Span) -> u64 {
    span.to_ns.saturating_sub(span.woken_ns)
}

/// Why waits of such threads may not be known; without such threads all are. Rows that had no room leave the thread's longest wait behind.
pub(crate) fn are_known(ev: &Evidence<'_>) -> Result<(), Missing> {
    let threads = polling(ev);
    if threads.is_empty() {
        return Ok(());
    }
    ev.runs()?;
    let mut longest: BTreeMap<u32, u64> = BTreeMap::new();
    for span in ev.spans()? {
        let most = longest.entry(span.pid).or_default();
        *most = ready_ns(span).max(*most);
    }
    let is_lost = |task: &&Task| {
        let seen = longest.get(&task.pid).copied().unwrap_or(0);
        task.unseen || task.runnable_worst_ns >= STALL && task.runnable_worst_ns / 2 > seen
    };
    match threads.into_values().find(is_lost) {
        None => Ok(()),
        Some(task) => {
            let what =
                format!("how long {} (pid {}), which polls a network device, waited", task.comm, task.pid);
            Err(Missing::unclear(what, "rows of its timeline were dropped"))
        }
    }
}

/// What delays packets of such threads and is no wait for a CPU: a poll that takes long, or interrupts that are off.
pub(crate) fn may_be_late_otherwise(ev: &Evidence<'_>) -> bool {
    let threads = polling(ev);
    let runs = ev.runs().unwrap_or_default().iter();
    let mut long = runs.filter(|run| run.to_ns.saturating_sub(run.from_ns) >= STALL);
    let mut gaps = ev.gaps().unwrap_or_default().iter();
    !threads.is_empty() && (gaps.any(|gap| gap.ns >= STALL) || long.any(|run| threads.contains_key(&run.pid)))
}

/// Their waits, in order of time.
pub(super) fn stalls(ev: &Evidence<'_>) -> Vec<Told> {
    let threads = polling(ev);
    if threads.is_empty() {
        return Vec::new();
    }
    let mut runs = Runs::of(ev);
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    let mut all: Vec<Told> = Vec::new();
    for span in ev.spans().unwrap_or_default() {
        let Some(thread) = threads.get(&span.pid) else { continue };
        let before = last.insert(span.pid, span.cpu);
        if ready_ns(span) >= STALL {
            all.push(told(ev, &mut runs, thread, span, before));
        }
    }
    counted_once(&mut all);
    all
}

/// Threads that wait together lose the same time.
fn counted_once(all: &mut [Told]) {
    all.sort_by_key(|one| (one.cpu, one.at_ns.saturating_sub(one.ns)));
    let mut until: BTreeMap<u32, u64> = BTreeMap::new();
    for one in all {
        let last = until.entry(one.cpu).or_default();
        one.new_ns = one.at_ns.saturating_sub((*last).max(one.at_ns.saturating_sub(one.ns)));
        *last = one.at_ns.max(*last);
    }
}

fn told(ev: &Evidence<'_>, runs: &mut Runs<'_>, thread: &Task, span: &Span, before: Option<u32>) -> Told {
    let ns = ready_ns(span);
    // A row has the CPU that the thread got; an open one the last that it had, if it had any.
    let bound = thread.allowed.trim().parse().ok().filter(|_| thread.allowed_count == 1);
    let cpu = bound.unwrap_or(span.cpu);
    let is_there = bound.is_some() || !span.open && before == Some(cpu);
    let culprit = match runs.most(cpu, span.woken_ns, span.to_ns) {
        _ if !is_there => Err("the polling thread may have waited for another CPU before".to_owned()),
        Some((pid, had)) if had as f64 > MOST * ns as f64 => of_runner(ev, thread, pid, ns),
        _ => Err("no one task is known to have had this CPU for most of the time".to_owned()),
    };
    let named = Some(format!("{} (pid {})", thread.comm, thread.pid));
    Told { cpu, kind: StallKind::Thread, at_ns: span.to_ns, ns, new_ns: ns, count: 1, thread: named, culprit }
}

/// The thread that ran. A limit on real-time tasks (sched_rt_runtime_us) takes 50 ms of a second from them.
fn of_runner(ev: &Evidence<'_>, waits: &Task, pid: u32, ns: u64) -> Result<StallCulprit, String> {
    let Some(task) = ev.task(pid) else { return Err("the task that ran there is not known".to_owned()) };
    if !task.is_real_time() && (ns < A_TURN || waits.is_real_time()) {
        let why = if waits.is_real_time() { "a limit on real-time tasks looks" } else { "turns look" };
        return Err(format!("an ordinary thread ran there: {why} the same"));
    }
    let ran = StallSeen { pid, tgid: task.tgid, comm: task.comm.clone(), ..StallSeen::default() };
    of_thread(ev, &ran, &[&ran])
}

/// Runs of tasks by CPU, in order of their ends.
struct Runs<'r> {
    by_cpu: BTreeMap<u32, Vec<&'r Run>>,
    looks: usize,
}

impl<'r> Runs<'r> {
    fn of(ev: &Evidence<'r>) -> Self {
        let mut by_cpu: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
        for run in ev.runs().unwrap_or_default() {
            by_cpu.entry(run.cpu).or_default().push(run);
        }
        by_cpu.values_mut().for_each(|runs| runs.sort_by_key(|run| (run.to_ns, run.from_ns)));
        Runs { by_cpu, looks: LOOKS }
    }

    /// The task that had this CPU longest in between, and for how long.
    fn most(&mut self, cpu: u32, from: u64, to: u64) -> Option<(u32, u64)> {
        let runs = self.by_cpu.get(&cpu)?;
        let first = runs.partition_point(|run| run.to_ns <= from);
        let mut had: BTreeMap<u32, u64> = BTreeMap::new();
        // A run that lasts when the wait is over ends last.
        for run in runs.get(first..)? {
            self.looks = self.looks.checked_sub(1)?;
            if run.from_ns >= to {
                break;
            }
            let sum = had.entry(run.pid).or_default();
            *sum = sum.saturating_add(run.to_ns.min(to).saturating_sub(run.from_ns.max(from)));
        }
        had.into_iter().max_by_key(|(_, ns)| *ns)
    }
}

#[cfg(test)]
#[path = "polling_threads_tests.rs"]
mod tests;
