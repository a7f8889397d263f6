//! Where our timelines and the kernel's own totals of a task disagree.

use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Mismatch, TaskState};

use super::facts::Graph;
use super::timeline::{What, mixed};

/// Less is rounding: the kernel's clock and ours are not the same one.
const TOLERATED: Duration = Duration::from_millis(5);
/// ... or this part (1 in 100).
const TOLERATED_PART: u64 = 100;
/// A few switches are not seen by the tracer (measured: up to two of a task's).
const SWITCHES: u64 = 5;
/// More sentences say nothing new.
const MOST: usize = 8;

/// Disagreements, the first of them about the first of `pids`.
pub(super) fn mismatches(graph: &Graph<'_>, pids: &[u32]) -> Vec<Mismatch> {
    let tasks = pids.iter().filter_map(|pid| graph.tasks.get(pid)).filter(|task| task.folded == 0);
    let mut said: Vec<Mismatch> = tasks.flat_map(|task| of_task(graph, task)).collect();
    let more = said.len().saturating_sub(MOST);
    if more > 0 {
        said.truncate(MOST);
        said.push(Mismatch::More(more));
    }
    said
}

fn of_task(graph: &Graph<'_>, task: &Task) -> Vec<Mismatch> {
    let Some((running, ready)) = on_and_for_cpu(graph, task.pid).filter(|_| is_same(graph, task)) else {
        return Vec::new();
    };
    let (comm, pid) = (&task.comm, task.pid);
    let differ = |ours: u64, kernels: u64, tolerated: u64| {
        ours.abs_diff(kernels) > tolerated.max(kernels.max(ours) / TOLERATED_PART)
    };
    let times =
        [(TaskState::Running, running, task.exec_ns), (TaskState::Runnable, ready, task.run_delay_ns)];
    let times =
        times.into_iter().filter(|(_, ours, kernels)| differ(*ours, *kernels, TOLERATED.as_nanos() as u64));
    let time = |(state, ours, kernels)| Mismatch::Time {
        comm: comm.clone(),
        pid,
        state,
        ours: Duration::from_nanos(ours),
        kernels: Duration::from_nanos(kernels),
    };
    let (ours, kernels) = (task.runnable_count, task.switches_in);
    let switches = (ours > 0 && differ(ours, kernels, SWITCHES)).then(|| Mismatch::Switches {
        comm: comm.clone(),
        pid,
        ours,
        kernels,
    });
    times.map(time).chain(switches).collect()
}

/// Whether the timeline is that of this row: an id is used again, and of short lives one or the other is reported by sums alone.
fn is_same(graph: &Graph<'_>, task: &Task) -> bool {
    let Some(line) = graph.lines.get(&task.pid).filter(|line| line.is_one()) else { return false };
    let lived = line.life().map_or(0, |(from, to)| to.saturating_sub(from));
    let tolerated = (TOLERATED.as_nanos() as u64).max(lived / TOLERATED_PART);
    !(task.born && task.ended) || lived.abs_diff(task.lived_ns) <= tolerated
}

/// Time on a CPU and ready for one, by the timeline.
fn on_and_for_cpu(graph: &Graph<'_>, pid: u32) -> Option<(u64, u64)> {
    let line = graph.lines.get(&pid)?;
    let sums = line.clip(0, graph.window).fold((0u64, 0u64), |(running, ready), piece| match piece.what {
        What::Mixed(row) => {
            let mix = graph.spans.get(row).map(|span| mixed(span, piece.ns())).unwrap_or_default();
            (running + mix.running_ns, ready + mix.runnable_ns)
        }
        What::Ready(_) => (running, ready + piece.ns()),
        _ => (running, ready),
    });
    Some(sums)
}

/// Time on a CPU in a stretch, by the timeline.
pub(super) fn ran(graph: &Graph<'_>, pid: u32, from: u64, to: u64) -> u64 {
    let Some(line) = graph.lines.get(&pid) else { return 0 };
    let mixes = line.clip(from, to).filter_map(|piece| match piece.what {
        What::Mixed(row) => Some(mixed(graph.spans.get(row)?, piece.ns()).running_ns),
        _ => None,
    });
    mixes.sum()
}
