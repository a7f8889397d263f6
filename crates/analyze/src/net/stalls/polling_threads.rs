//! Threads that poll network devices (threaded NAPI) and wait for a CPU: so do the packets.
//!
//! No softirq is late then: an interrupt wakes the thread, and the thread is ready and does not run.

use std::collections::BTreeMap;

use whyslow_model::stall::{StallCulprit, StallKind, StallSeen};
use whyslow_model::timeline::{Run, Span};

use super::{A_TURN, Told, is_ordinary, of_thread};
use crate::Evidence;

/// net/core/dev.c, napi_kthread_create, since v5.12: "napi/DEVICE-ID".
const NAME: &str = "napi/";
/// A shorter wait is no stall: as of softirqs.
const STALL: u64 = 5_000_000;
/// A thread that had the CPU for less of the wait did not keep the others out.
const MOST: f64 = 0.5;
/// Runs that are looked at: only invalid rows need more.
const LOOKS: usize = 4_000_000;

/// Whether threads poll devices here, so that their timelines must be known.
pub(crate) fn are_there(ev: &Evidence<'_>) -> bool {
    let tasks = ev.recording().tables.tasks.iter().flatten();
    tasks.into_iter().any(|task| task.kthread && task.comm.starts_with(NAME))
}

/// Their waits. Where several of them wait for one CPU, that is one stall.
pub(super) fn stalls(ev: &Evidence<'_>) -> Vec<Told> {
    if !are_there(ev) {
        return Vec::new();
    }
    let mut runs = Runs::of(ev);
    let waits = merged(waits(ev));
    waits.into_iter().map(|wait| told(ev, &mut runs, &wait)).collect()
}

/// A thread is ready for a CPU that others have.
struct Wait<'r> {
    cpu: u32,
    from: u64,
    to: u64,
    first: &'r Span,
}

fn waits<'r>(ev: &Evidence<'r>) -> Vec<Wait<'r>> {
    let spans = ev.spans().unwrap_or_default().iter();
    let polls =
        |span: &Span| span.comm.starts_with(NAME) && ev.task(span.pid).is_some_and(|task| task.kthread);
    let of = |span: &'r Span| Wait { cpu: span.cpu, from: span.woken_ns, to: span.to_ns, first: span };
    let long = spans.filter(|span| span.to_ns.saturating_sub(span.woken_ns) >= STALL);
    long.filter(|span| polls(span)).map(of).collect()
}

fn merged(mut waits: Vec<Wait<'_>>) -> Vec<Wait<'_>> {
    waits.sort_by_key(|wait| (wait.cpu, wait.from));
    let mut all: Vec<Wait<'_>> = Vec::new();
    for wait in waits {
        match all.last_mut().filter(|last| last.cpu == wait.cpu && wait.from < last.to) {
            Some(last) => last.to = last.to.max(wait.to),
            None => all.push(wait),
        }
    }
    all
}

fn told(ev: &Evidence<'_>, runs: &mut Runs<'_>, wait: &Wait<'_>) -> Told {
    let ns = wait.to.saturating_sub(wait.from);
    let thread = format!("{} (pid {})", wait.first.comm, wait.first.pid);
    let culprit = match runs.most(wait.cpu, wait.from, wait.to) {
        Some((pid, had)) if had as f64 > MOST * ns as f64 => of_runner(ev, pid, ns),
        _ => Err("no one task had this CPU for most of the time".to_owned()),
    };
    Told { cpu: wait.cpu, kind: StallKind::Thread, at_ns: wait.to, ns, thread: Some(thread), culprit }
}

/// The thread that ran, with the function that it ran most in the window.
fn of_runner(ev: &Evidence<'_>, pid: u32, ns: u64) -> Result<StallCulprit, String> {
    if is_ordinary(ev, pid) && ns < A_TURN {
        return Err("the polling thread took turns with ordinary threads: this CPU is full".to_owned());
    }
    let Some(task) = ev.task(pid) else { return Err("the task that ran there is not known".to_owned()) };
    let ran = StallSeen { pid, tgid: task.tgid, comm: task.comm.clone(), ..StallSeen::default() };
    let culprit = of_thread(ev, &ran, &[&ran])?;
    let most = ev.on_cpu().did(pid).into_iter().next().filter(|(_, share)| *share > MOST);
    let function = most.and_then(|(doing, _)| doing.function().map(str::to_owned));
    Ok(StallCulprit { function, ..culprit })
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
