//! Waits for a CPU behind one that could not be made to let go of it: the kernel ran there with interrupts off, or with
//! preemption off. Whoever was ready there waited for that, whatever its mask, weight or quota.
//!
//! Known from who had a CPU without a break (`runs`), and from late sampling timers on that CPU.

use std::collections::HashMap;

use whyslow_model::table::{Run, Task};
use whyslow_model::timeline::Span;

use crate::Evidence;

/// A task of a real-time class takes the CPU from others within microseconds; with emulated CPUs within some milliseconds.
const REAL_TIME_NS: u64 = 10_000_000;
/// Among others each has a slice of 3 to 32 ms before another one gets the CPU.
const WITHOUT_A_BREAK_NS: u64 = 50_000_000;
/// A sampling timer that is as late as this was held up by interrupts that were off (or by a stolen CPU).
const LATE_TIMER_NS: u64 = 50_000_000;
/// include/uapi/linux/sched.h: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE.
const REAL_TIME: [u32; 3] = [1, 2, 6];

/// Time, by thread, in which it was ready and waited behind such a run.
pub fn waits(ev: &Evidence<'_>, tasks: &[Task]) -> HashMap<u32, u64> {
    let (Ok(spans), Some(runs)) = (ev.spans(), ev.recording().tables.runs.as_deref()) else {
        return HashMap::new();
    };
    let tasks: HashMap<u32, &Task> = tasks.iter().map(|task| (task.pid, task)).collect();
    let mut by_cpu: HashMap<u32, Vec<&Run>> = HashMap::new();
    for run in runs.iter().filter(|run| run.to_ns.saturating_sub(run.from_ns) >= REAL_TIME_NS) {
        by_cpu.entry(run.cpu).or_default().push(run);
    }
    let late = |cpu: u32| {
        let rows = ev.cpus().unwrap_or_default();
        rows.iter().any(|row| row.cpu == cpu && row.worst_gap_ns >= LATE_TIMER_NS)
    };
    let late: HashMap<u32, bool> = by_cpu.keys().map(|cpu| (*cpu, late(*cpu))).collect();
    let mut waits: HashMap<u32, u64> = HashMap::new();
    for span in spans {
        let runs = by_cpu.get(&span.cpu).map_or(&[][..], Vec::as_slice);
        let real_time = is_real_time(&tasks, span.pid);
        let is_late = late.get(&span.cpu).copied().unwrap_or(false);
        for run in runs.iter().filter(|run| run.pid != span.pid) {
            let ns = overlap(span, run);
            let held = match (real_time, is_real_time(&tasks, run.pid)) {
                (true, false) => ns >= REAL_TIME_NS,
                // It had the right to keep the CPU.
                (false, true) => false,
                _ => ns >= WITHOUT_A_BREAK_NS && is_late,
            };
            if held {
                let sum = waits.entry(span.pid).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
    }
    waits
}

fn is_real_time(tasks: &HashMap<u32, &Task>, pid: u32) -> bool {
    tasks.get(&pid).is_some_and(|task| REAL_TIME.contains(&task.policy))
}

/// How long the thread of `span` was ready while the other had the CPU.
fn overlap(span: &Span, run: &Run) -> u64 {
    span.to_ns.min(run.to_ns).saturating_sub(span.woken_ns.max(run.from_ns))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Cpu;
    use whyslow_model::timeline::State;

    use super::*;
    use crate::evidence::fixture::Fixture;

    const MS: u64 = 1_000_000;

    /// Thread 1 is ready on CPU 1 from 100 to 300 ms, while thread 2 has it from 90 to 290.
    fn host(policies: [u32; 2], worst_gap_ms: u64) -> Fixture {
        let task = |pid: u32, policy| Task { pid, policy, ..Task::default() };
        let wait = Span {
            pid: 1,
            cpu: 1,
            at_ns: 100 * MS,
            woken_ns: 100 * MS,
            to_ns: 300 * MS,
            state: State::Runnable,
            ..Span::default()
        };
        Fixture::second().with(|tables| {
            tables.tasks = Some(vec![task(1, policies[0]), task(2, policies[1])]);
            tables.spans = Some(vec![wait]);
            tables.runs = Some(vec![Run { cpu: 1, pid: 2, from_ns: 90 * MS, to_ns: 290 * MS }]);
            tables.cpus =
                Some(vec![Cpu { cpu: 1, worst_gap_ns: worst_gap_ms * MS, gaps: 1, ..Cpu::default() }]);
        })
    }

    fn waited(policies: [u32; 2], worst_gap_ms: u64) -> Option<u64> {
        let host = host(policies, worst_gap_ms);
        waits(&host.ev(), host.ev().tasks().unwrap()).get(&1).copied()
    }

    #[test]
    fn interrupts_that_were_off_held_up_whoever_was_ready() {
        assert_eq!(waited([0, 0], 150), Some(190 * MS));
        assert_eq!(waited([1, 1], 150), Some(190 * MS));
    }

    #[test]
    fn a_long_slice_is_not_interrupts_off() {
        assert_eq!(waited([0, 0], 8), None);
    }

    #[test]
    fn a_task_of_a_real_time_class_waits_for_nobody_else() {
        assert_eq!(waited([1, 0], 0), Some(190 * MS));
        assert_eq!(waited([0, 1], 150), None, "that one had the right to keep it");
    }

    #[test]
    fn without_timelines_nothing_is_known() {
        let mut host = host([0, 0], 150);
        host.0.tables.runs = None;
        assert!(waits(&host.ev(), &[]).is_empty());
    }
}
