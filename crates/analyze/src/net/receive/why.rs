//! Why a process reads late: it is on a CPU, ready for one, blocked, or asleep.

use std::collections::BTreeMap;

use whyslow_model::table::{Span, Task};
use whyslow_model::wait::Detail;
use whyslow_model::{Missing, Share, timeline};

use super::Reader;
use crate::Evidence;
use crate::cpu::speed::Places;
use crate::wait_reasons::{self, Class};

/// A state with less of a thread's time than this does not explain why it is late.
const MOSTLY: f64 = 0.5;

/// What it does instead of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs.
    Running,
    /// It is ready for a CPU.
    Runnable,
    /// It waits for the disk or the kernel.
    Blocked,
    /// It sleeps, and not for data.
    Asleep,
    /// It is in none of these states for most of its time, or it waits for data.
    Unknown,
}

/// The thread that should read, and what it does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Why<'r> {
    /// Its busiest thread.
    pub thread: &'r Task,
    /// What it does.
    pub state: State,
    /// The share of its time for that.
    pub share: Share,
    /// "user code (parse)", "its own sleep".
    pub what: String,
    /// The function at work, where known.
    pub function: Option<String>,
    /// The CPU that it used most, and the other task that used that CPU most.
    pub cpu: Option<u32>,
}

/// Why `reader` is late.
pub(crate) fn why<'r>(ev: &Evidence<'r>, reader: &Reader<'_>) -> Result<Option<Why<'r>>, Missing> {
    let threads = ev.tasks()?.iter().filter(|task| task.tgid == reader.tgid);
    let busy = |task: &&Task| (task.exec_ns.saturating_add(task.run_delay_ns), task.lived_ns);
    let Some(thread) = threads.max_by_key(busy) else { return Ok(None) };
    let blocked = thread.io_ns.saturating_add(thread.blocked_ns);
    let states = [
        (State::Running, thread.exec_ns.max(thread.traced_ns)),
        (State::Runnable, thread.run_delay_ns),
        (State::Blocked, blocked),
        (State::Asleep, thread.sleep_ns),
    ];
    let (state, ns) = states.into_iter().max_by_key(|(_, ns)| *ns).unwrap_or((State::Unknown, 0));
    let share = Share::of(ns as f64, thread.lived_ns.max(1) as f64);
    let mut why = Why { thread, state, share, what: String::new(), function: None, cpu: place(ev, thread) };
    match state {
        State::Running => {
            let did = ev.on_cpu().did(thread.pid);
            let most = did.into_iter().next().map(|(doing, _)| doing);
            why.what = most.as_ref().map_or("its own work".to_owned(), |doing| doing.0.to_string());
            why.function = most.and_then(|doing| doing.function().map(str::to_owned));
        }
        State::Runnable => why.what = competitor(ev, thread, why.cpu),
        State::Blocked | State::Asleep => wait(ev, &mut why),
        State::Unknown => {}
    }
    if share.ratio() < MOSTLY {
        why.state = State::Unknown;
    }
    Ok(Some(why))
}

/// The CPU of most of its time.
fn place(ev: &Evidence<'_>, thread: &Task) -> Option<u32> {
    let most = Places::of(ev).of_task(thread).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= MOSTLY).then_some(most.0)
}

/// The other task that had that CPU longest.
fn competitor(ev: &Evidence<'_>, thread: &Task, cpu: Option<u32>) -> String {
    let (Some(cpu), Ok(runs)) = (cpu, ev.runs()) else {
        return "a CPU".to_owned();
    };
    let mut by_pid: BTreeMap<u32, u64> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.cpu == cpu && run.pid != thread.pid && run.pid != 0) {
        let time = by_pid.entry(run.pid).or_default();
        *time = time.saturating_add(run.to_ns.saturating_sub(run.from_ns));
    }
    let most = by_pid.into_iter().max_by_key(|(_, ns)| *ns).map(|(pid, _)| pid);
    match most.and_then(|pid| ev.task(pid)) {
        Some(task) => {
            format!("CPU {cpu}, which {} (pid {}) had most", ev.called(task.pid, &task.comm), task.pid)
        }
        None => format!("CPU {cpu}"),
    }
}

/// What most of its waiting was for. A reader that waits for data is not late.
fn wait(ev: &Evidence<'_>, why: &mut Why<'_>) {
    let stacks = ev.stacks();
    let is_state = |span: &&Span| match why.state {
        State::Asleep => span.state == timeline::State::Sleep,
        _ => matches!(span.state, timeline::State::Io | timeline::State::Blocked),
    };
    let mut by_kind: BTreeMap<Detail, (u64, bool)> = BTreeMap::new();
    for span in ev.spans().unwrap_or_default().iter().filter(|s| s.pid == why.thread.pid).filter(is_state) {
        let kind = wait_reasons::of(span, stacks);
        let is_idle = matches!(kind.class, Class::Idle | Class::Peer);
        let entry = by_kind.entry(kind.detail).or_insert((0, is_idle));
        entry.0 = entry.0.saturating_add(span.woken_ns.saturating_sub(span.at_ns).max(span.sampled_wait_ns));
    }
    match by_kind.into_iter().max_by_key(|(_, (ns, _))| *ns) {
        Some((what, (_, is_idle))) => {
            why.what = what.to_string();
            if is_idle {
                why.state = State::Unknown;
            }
        }
        None => why.what = "something that was not seen".to_owned(),
    }
}
