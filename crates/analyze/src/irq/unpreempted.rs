//! Waits for a CPU behind a thread that could not be preempted: the kernel ran there with interrupts off, or with
//! preemption off. All threads that were ready there waited for that, whatever their mask, weight or quota.
//!
//! The source is the times in which a CPU took no interrupt although one was due (`gaps`). For a CPU without such rows it is
//! the long runs without a break (`runs`), and late sampling timers there.

use std::collections::BTreeMap;

use whyslow_model::table::{Gap, Run, Task};
use whyslow_model::timeline::Span;

use crate::Evidence;
use crate::hashing::{Set, Table};
use crate::parse::cpulist;

/// A task of a real-time class preempts others within microseconds; with emulated CPUs within some milliseconds.
const REAL_TIME_NS: u64 = 10_000_000;
/// A task of another class has a slice of 3 to 32 ms before another one gets the CPU.
const WITHOUT_A_BREAK_NS: u64 = 50_000_000;
/// A sampling timer that is as late as this was delayed by interrupts that were off (or by a stolen CPU).
const LATE_TIMER_NS: u64 = 50_000_000;
/// A gap begins when an interrupt was due. Interrupts had been off before that, on a busy CPU since its last tick at most: 4 ms
/// on most kernels. The added time is never more than the gap itself, so that short gaps are not blown up.
const TICK_NS: u64 = 4_000_000;
/// include/uapi/linux/sched.h: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE.
const REAL_TIME: [u32; 3] = [1, 2, 6];

/// From, to.
type Stretch = (u64, u64);

/// Time, by thread, for which it was ready and waited behind such a stretch.
pub fn waits(ev: &Evidence<'_>, tasks: &[Task]) -> Table<u32, u64> {
    let spans = ev.spans().unwrap_or_default();
    let mut waits = by_spans(ev, tasks, spans, &closed(ev, |_| true));
    // On an idle CPU no task waits in the run queue.
    let closed = closed(ev, |gap| gap.state.is_none());
    let lengths = Lengths::of(&closed);
    // Masks are few, tasks are many.
    let mut by_mask: Table<&str, u64> = Table::default();
    for task in tasks.iter().filter(|task| task.runnable_ns > 0) {
        // Short waits have no rows of their own: only their CPUs are known.
        let ns = match waits.get(&task.pid) {
            Some(_) => continue,
            None => {
                let on_its = by_mask.entry(&task.allowed).or_insert_with(|| lengths.on_cpus(&task.allowed));
                (*on_its).min(task.runnable_ns)
            }
        };
        if ns > 0 {
            waits.insert(task.pid, ns);
        }
    }
    waits
}

/// When each CPU took no interrupts: in order, without overlaps.
fn closed(ev: &Evidence<'_>, counts: impl Fn(&Gap) -> bool) -> BTreeMap<u32, Vec<Stretch>> {
    let mut closed: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
    for gap in ev.gaps().unwrap_or_default().iter().filter(|gap| counts(gap)) {
        let from = gap.at_ns.saturating_sub(gap.ns).saturating_sub(gap.ns.min(TICK_NS));
        closed.entry(gap.cpu).or_default().push((from, gap.at_ns));
    }
    closed.into_iter().map(|(cpu, stretches)| (cpu, merged(stretches))).collect()
}

fn merged(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut merged: Vec<Stretch> = Vec::with_capacity(stretches.len());
    for (from, to) in stretches.into_iter().filter(|(from, to)| from < to) {
        match merged.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => merged.push((from, to)),
        }
    }
    merged
}

fn length(stretches: &[Stretch]) -> u64 {
    stretches.iter().map(|(from, to)| to.saturating_sub(*from)).fold(0, u64::saturating_add)
}

/// How long CPUs took no interrupts, in order of their numbers, as running sums: each mask asks for ranges of them.
struct Lengths {
    cpus: Vec<u32>,
    /// The sum of the first n.
    sums: Vec<u128>,
}

impl Lengths {
    fn of(closed: &BTreeMap<u32, Vec<Stretch>>) -> Self {
        let mut sums = vec![0u128];
        for stretches in closed.values() {
            let before = sums.last().copied().unwrap_or(0);
            sums.push(before.saturating_add(u128::from(length(stretches))));
        }
        Lengths { cpus: closed.keys().copied().collect(), sums }
    }

    fn on_cpus(&self, allowed: &str) -> u64 {
        let Ok(allowed) = cpulist::parse(allowed) else { return 0 };
        let before = |at: usize| self.sums.get(at).copied().unwrap_or(0);
        let of = |(first, last): (u32, u32)| {
            let from = self.cpus.partition_point(|cpu| *cpu < first);
            let to = self.cpus.partition_point(|cpu| *cpu <= last);
            before(to).saturating_sub(before(from))
        };
        let sum = allowed.ranges().into_iter().map(of).fold(0, u128::saturating_add);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}

/// Runs that are compared with waits. A CPU runs one task at a time, but each task that waits for it at that time is
/// compared with each run there: at a load of 500 on each CPU 100,000 runs fit. Only invalid rows have more.
const MOST_LOOKS: usize = 50_000_000;

/// Tasks that had a CPU for long without a break.
struct Long<'r> {
    /// The CPU's sampling timer was late.
    late: bool,
    /// The runs, by their begin.
    runs: Vec<&'r Run>,
    /// The latest end of the first n + 1.
    ends: Vec<u64>,
}

impl<'r> Long<'r> {
    fn new(late: bool) -> Self {
        Long { late, runs: Vec::new(), ends: Vec::new() }
    }

    fn sort(&mut self) {
        self.runs.sort_by_key(|run| (run.from_ns, run.to_ns));
        let mut latest = 0;
        self.ends = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            latest = latest.max(run.to_ns);
            self.ends.push(latest);
        }
    }

    /// The runs that overlap the time for which this thread was ready; if rows overlap each other, a few more.
    fn during(&self, span: &Span) -> &[&'r Run] {
        let begin = self.ends.partition_point(|end| *end <= span.woken_ns);
        let end = self.runs.partition_point(|run| run.from_ns < span.to_ns);
        self.runs.get(begin..end).unwrap_or_default()
    }
}

/// For threads that have rows of their waits.
fn by_spans(
    ev: &Evidence<'_>,
    tasks: &[Task],
    spans: &[Span],
    closed: &BTreeMap<u32, Vec<Stretch>>,
) -> Table<u32, u64> {
    let real_time = real_time(tasks);
    let runs = long_runs(ev);
    let mut waits: Table<u32, u64> = Table::default();
    let mut looks = MOST_LOOKS;
    for span in spans.iter().filter(|span| span.to_ns > span.woken_ns) {
        let own = closed.get(&span.cpu).map_or(&[][..], Vec::as_slice);
        let near = during(own, span);
        let long = runs.get(&span.cpu);
        let urgent = real_time.contains(&span.pid);
        // Where gaps show the delay, or the timer was on time, a run does not delay a thread that has no right to the CPU at once.
        let late = own.is_empty() && long.is_some_and(|long| long.late);
        let runs = long.filter(|_| urgent || late).map_or(&[][..], |long| long.during(span));
        let sum = waits.entry(span.pid).or_default();
        if near.is_empty() && runs.is_empty() {
            continue; // most waits end here
        }
        let Some(left) = looks.checked_sub(near.len().saturating_add(runs.len())) else {
            *sum = sum.saturating_add(span.to_ns.saturating_sub(span.woken_ns)); // all of it may have been such a wait
            continue;
        };
        looks = left;
        let mut stretches: Vec<Stretch> = near.iter().filter_map(|stretch| within(span, *stretch)).collect();
        // A run as short as that delays no thread, whatever the running task: most runs are, and their class need not be known.
        let shortest = if urgent { REAL_TIME_NS } else { WITHOUT_A_BREAK_NS };
        for run in runs.iter().filter(|run| run.pid != span.pid) {
            let Some((from, to)) = within(span, (run.from_ns, run.to_ns)) else { continue };
            let ns = to.saturating_sub(from);
            if ns < shortest {
                continue;
            }
            let held = match (urgent, real_time.contains(&run.pid)) {
                (true, false) => true,
                // The running task had the right to keep the CPU.
                (false, true) => false,
                _ => ns >= WITHOUT_A_BREAK_NS && late,
            };
            if held {
                stretches.push((from, to));
            }
        }
        *sum = sum.saturating_add(length(&merged(stretches)));
    }
    waits
}

/// By CPU: whether its sampling timer was late, and the tasks that had it for long without a break.
fn long_runs<'r>(ev: &Evidence<'r>) -> Table<u32, Long<'r>> {
    let cpus = ev.cpus().unwrap_or_default().iter();
    let late: Set<u32> = cpus.filter(|row| row.worst_gap_ns >= LATE_TIMER_NS).map(|row| row.cpu).collect();
    let mut by_cpu: Table<u32, Long<'_>> = Table::default();
    let runs = ev.runs().unwrap_or_default().iter();
    for run in runs.filter(|run| run.to_ns.saturating_sub(run.from_ns) >= REAL_TIME_NS) {
        by_cpu.entry(run.cpu).or_insert_with(|| Long::new(late.contains(&run.cpu))).runs.push(run);
    }
    by_cpu.values_mut().for_each(Long::sort);
    by_cpu
}

/// The threads of a real-time class; if several had one id, the last one decides.
fn real_time(tasks: &[Task]) -> Set<u32> {
    let mut urgent = Set::default();
    for task in tasks {
        match REAL_TIME.contains(&task.policy) {
            true => urgent.insert(task.pid),
            false => urgent.remove(&task.pid),
        };
    }
    urgent
}

/// The `stretches` (in order, without overlaps) in which the thread of `span` was ready.
fn during<'s>(stretches: &'s [Stretch], span: &Span) -> &'s [Stretch] {
    let begin = stretches.partition_point(|(_, to)| *to <= span.woken_ns);
    let end = stretches.partition_point(|(from, _)| *from < span.to_ns);
    stretches.get(begin..end).unwrap_or_default()
}

/// The part of a stretch in which the thread of `span` was ready.
fn within(span: &Span, (from, to): Stretch) -> Option<Stretch> {
    let (from, to) = (from.max(span.woken_ns), to.min(span.to_ns));
    (from < to).then_some((from, to))
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

    fn gap(cpu: u32, from_ms: u64, to_ms: u64) -> Gap {
        Gap { cpu, at_ns: to_ms * MS, ns: (to_ms - from_ms) * MS, ..Gap::default() }
    }

    fn waited_in(host: &Fixture) -> Option<u64> {
        waits(&host.ev(), host.ev().tasks().unwrap()).get(&1).copied()
    }

    #[test]
    fn gaps_of_the_cpu_tell_to_the_moment() {
        // Two rows of one stretch, one row on another CPU, and one from before the thread was ready.
        let gaps =
            vec![gap(1, 124, 150), gap(1, 130, 150), gap(1, 180, 200), gap(0, 100, 300), gap(1, 60, 90)];
        let reported = host([0, 0], 150).with(|t| t.gaps = Some(gaps));
        // Each row is extended by up to a tick before it.
        assert_eq!(waited_in(&reported), Some((30 + 24) * MS));
        let none = host([0, 0], 0).with(|t| t.gaps = Some(vec![gap(0, 100, 300)]));
        assert_eq!(waited_in(&none), Some(0));
    }

    #[test]
    fn a_cpu_without_gaps_is_judged_by_who_had_it() {
        let host = host([0, 0], 150).with(|t| t.gaps = Some(vec![gap(0, 100, 300)]));
        assert_eq!(waited_in(&host), Some(190 * MS));
    }

    #[test]
    fn waits_without_rows_are_bounded_by_the_gaps_of_its_cpus() {
        let allowed = |mask: &str| {
            let mut host = host([0, 0], 0).with(|t| {
                t.spans = Some(Vec::new());
                let idle = Gap { state: Some(2), ..gap(1, 200, 400) };
                t.gaps = Some(vec![gap(1, 100, 120), gap(2, 100, 110), gap(3, 0, 900), idle]);
            });
            let task = &mut host.0.tables.tasks.as_mut().unwrap()[0];
            (task.allowed, task.runnable_ns) = (mask.into(), 30 * MS);
            waited_in(&host)
        };
        assert_eq!(
            (allowed("1"), allowed("1-2"), allowed("0"), allowed("x")),
            (Some(24 * MS), Some(30 * MS), None, None)
        );
    }

    #[test]
    fn no_stretch_of_time_counts_twice() {
        assert_eq!(merged(vec![(5, 9), (0, 3), (2, 4), (6, 7), (9, 9)]), [(0, 4), (5, 9)]);
        // A real-time task waits behind a task that has interrupts off for a part of its run.
        let host = host([1, 0], 0).with(|t| t.gaps = Some(vec![gap(1, 150, 200)]));
        assert_eq!(waited_in(&host), Some(190 * MS));
    }

    #[test]
    fn a_long_slice_is_not_interrupts_off() {
        assert_eq!(waited([0, 0], 8), Some(0));
    }

    #[test]
    fn a_task_of_a_real_time_class_waits_for_nobody_else() {
        assert_eq!(waited([1, 0], 0), Some(190 * MS));
        assert_eq!(waited([0, 1], 150), Some(0), "the running task had the right to keep the CPU");
    }

    #[test]
    fn without_timelines_nothing_is_known() {
        let mut host = host([0, 0], 150);
        host.0.tables.runs = None;
        assert_eq!(waited_in(&host), Some(0));
        host.0.tables.spans = None;
        assert!(waits(&host.ev(), &[]).is_empty());
    }
}
