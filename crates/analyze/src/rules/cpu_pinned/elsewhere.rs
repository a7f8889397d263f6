//! Was there room on the CPUs outside a mask at the time when its tasks waited?
//!
//! Idle time of a window may lie before or after the waits. Rows of long runs on CPUs show when all of these CPUs were
//! taken; shorter runs have no row, and count as room. If longer runs were dropped, too, for want of room, the lower bound of the
//! room is the idle time that must have been during the waits, and the upper bound is what the remaining rows leave.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::timeline::RUNS_IN_PART;

use crate::Evidence;
use crate::cpu::allowed::Cpus;
use crate::cpu::loss::FairShareModel;
use crate::hashing::Table;

/// From, to.
type Stretch = (u64, u64);

/// The part of the waits in which there was room: at least, and as far as the rows tell. Apart from the small error of short runs, the
/// two differ only where rows were dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    pub least: f64,
    pub reported: f64,
}

/// When CPUs were taken, and when each task waited. It is kept, because there are several masks.
pub(super) struct Elsewhere {
    /// A CPU was taken (1) or free again (-1), in order; at the same moment ends come before beginnings.
    changes: Vec<(u64, i64, u32)>,
    /// CPUs that were taken at some time.
    seen: Cpus,
    /// When all CPUs outside a mask were taken, by mask.
    taken: Table<usize, Times>,
    waits: Table<u32, Vec<Stretch>>,
    /// Rows were dropped for want of room.
    in_part: bool,
}

impl Elsewhere {
    pub fn of(ev: &Evidence<'_>) -> Self {
        let mut waits: Table<u32, Vec<Stretch>> = Table::default();
        for span in ev.spans().unwrap_or_default().iter().filter(|span| span.to_ns > span.woken_ns) {
            waits.entry(span.pid).or_default().push((span.woken_ns, span.to_ns));
        }
        let changes = changes(ev);
        let seen = changes.iter().map(|(.., cpu)| *cpu).collect();
        let in_part = ev.recording().missing.iter().any(|note| note.missing.what() == RUNS_IN_PART);
        Elsewhere { changes, seen, taken: Table::default(), waits, in_part }
    }

    /// The part of the waits of `members` in which not all CPUs outside their mask were taken. `idle`: CPU time left over on these CPUs.
    pub fn part_with_room(
        &mut self,
        fair: &FairShareModel<'_>,
        members: &BTreeSet<usize>,
        idle: Duration,
    ) -> Part {
        let reported = self.reported(fair, members);
        let least = if self.in_part { reported.min(at_least(fair, members, idle)) } else { reported };
        Part { least, reported }
    }

    fn reported(&mut self, fair: &FairShareModel<'_>, members: &BTreeSet<usize>) -> f64 {
        let Some(mask) = members.first().and_then(|at| fair.allowed().number(*at)) else { return 1.0 };
        let Elsewhere { changes, seen, taken, waits, .. } = self;
        let taken = taken.entry(mask).or_insert_with(|| {
            let outside = fair.allowed().masks().get(mask).map(|mask| fair.allowed().common().without(mask));
            let all = outside.filter(|outside| outside.are_in(seen));
            Times::of(all.map_or_else(Vec::new, |all| all_taken(changes, &all)))
        });
        let pids: BTreeSet<u32> =
            members.iter().filter_map(|at| fair.tasks().get(*at)).map(|task| task.pid).collect();
        let (mut waited, mut closed) = (0u64, 0u64);
        for wait in pids.iter().filter_map(|pid| waits.get(pid)).flatten() {
            waited = waited.saturating_add(wait.1.saturating_sub(wait.0));
            closed = closed.saturating_add(taken.overlap(*wait));
        }
        if waited == 0 { 1.0 } else { 1.0 - closed as f64 / waited as f64 }
    }
}

/// The lower bound: idle time that does not fit into the rest of the window was during the waits. At most all CPUs outside the mask were
/// idle at a time.
fn at_least(fair: &FairShareModel<'_>, members: &BTreeSet<usize>, idle: Duration) -> f64 {
    let Some(mask) = members.first().and_then(|at| fair.allowed().mask(*at)) else { return 0.0 };
    let cpus = f64::from(fair.allowed().common().without(mask).count().max(1));
    let (window, idle) = (fair.window_ns(), idle.as_nanos() as f64);
    let waits = || members.iter().filter_map(|at| fair.tasks().get(*at)).map(|task| task.runnable_ns as f64);
    let met: f64 = waits().map(|waited| (idle / cpus - (window - waited).max(0.0)).clamp(0.0, waited)).sum();
    let waited: f64 = waits().sum();
    if waited > 0.0 { met / waited } else { 0.0 }
}

fn changes(ev: &Evidence<'_>) -> Vec<(u64, i64, u32)> {
    // Runs of whyslow itself count as room: without it these CPUs would have been free.
    let own = ev.tasks().unwrap_or_default().iter().filter(|task| ev.is_own(task.pid, task.tgid));
    let own: BTreeSet<u32> = own.map(|task| task.pid).collect();
    let mut runs: Vec<(u32, u64, u64)> = ev
        .runs()
        .unwrap_or_default()
        .iter()
        .filter(|run| run.from_ns < run.to_ns && !own.contains(&run.pid))
        .map(|run| (run.cpu, run.from_ns, run.to_ns))
        .collect();
    runs.sort_unstable();
    let mut changes = Vec::with_capacity(runs.len() * 2);
    let mut before = (0, 0);
    // A torn or foreign recording may have runs that overlap.
    for (cpu, from, to) in runs {
        let until = if before.0 == cpu { before.1 } else { 0 };
        let from = from.max(until);
        if from < to {
            changes.extend([(from, 1, cpu), (to, -1, cpu)]);
            before = (cpu, to);
        }
    }
    changes.sort_unstable();
    changes
}

/// The times when all of `cpus` were taken: in order, without overlaps.
fn all_taken(changes: &[(u64, i64, u32)], cpus: &Cpus) -> Vec<Stretch> {
    let (mut taken, mut all) = (0i64, Vec::new());
    let whole = i64::from(cpus.count());
    if whole == 0 {
        return all;
    }
    let mut since = None;
    for (at, change, _) in changes.iter().filter(|(.., cpu)| cpus.contains(*cpu)) {
        taken += change;
        match since {
            None if taken == whole => since = Some(*at),
            Some(from) if taken < whole => {
                all.push((from, *at));
                since = None;
            }
            _ => {}
        }
    }
    all
}

/// Times in order and without overlaps, with the sum of their lengths up to each: a long wait overlaps many of them.
#[derive(Default)]
struct Times {
    all: Vec<Stretch>,
    /// The sum of the lengths of the first n.
    sums: Vec<u64>,
}

impl Times {
    fn of(all: Vec<Stretch>) -> Self {
        let mut sums = vec![0u64];
        for (from, to) in &all {
            let before = sums.last().copied().unwrap_or(0);
            sums.push(before.saturating_add(to.saturating_sub(*from)));
        }
        Times { all, sums }
    }

    /// The part of these times that is before `at`.
    fn before(&self, at: u64) -> u64 {
        let ended = self.all.partition_point(|(_, to)| *to <= at);
        let within = self.all.get(ended).map_or(0, |(from, _)| at.saturating_sub(*from));
        self.sums.get(ended).copied().unwrap_or(0).saturating_add(within)
    }

    fn overlap(&self, (from, to): Stretch) -> u64 {
        self.before(to).saturating_sub(self.before(from))
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Run, Span, Task};

    use super::*;
    use crate::evidence::fixture::Fixture;

    fn part(runs: &[(u32, u64, u64)], waits: &[(u64, u64)]) -> f64 {
        part_beside(&[], runs, waits)
    }

    /// The runs are of process 9.
    fn part_beside(own: &[u32], runs: &[(u32, u64, u64)], waits: &[(u64, u64)]) -> f64 {
        let mut host = Fixture::second().with(|tables| {
            let run = |(cpu, from_ns, to_ns): &(u32, u64, u64)| Run {
                cpu: *cpu,
                pid: 9,
                from_ns: *from_ns,
                to_ns: *to_ns,
            };
            let wait =
                |(from, to): &(u64, u64)| Span { pid: 5, woken_ns: *from, to_ns: *to, ..Span::default() };
            let task =
                |pid: u32, allowed: &str| Task { pid, tgid: pid, allowed: allowed.into(), ..Task::default() };
            tables.tasks = Some(vec![task(5, "0"), task(9, "0-2")]);
            tables.cgroups = Some(Vec::new());
            tables.runs = Some(runs.iter().map(run).collect());
            tables.spans = Some(waits.iter().map(wait).collect());
        });
        host.0.meta.cpus = 3;
        host.0.meta.own_pids = own.to_vec();
        let fair = FairShareModel::of(&host.ev()).unwrap();
        let part = Elsewhere::of(&host.ev()).part_with_room(&fair, &BTreeSet::from([0]), Duration::ZERO);
        assert_eq!(part.least, part.reported, "no row was dropped");
        part.reported
    }

    #[test]
    fn room_is_where_one_of_the_other_cpus_is_free() {
        let runs = [(1, 100, 200), (2, 150, 300), (2, 290, 310), (1, 200, 250)];
        assert_eq!(part(&runs, &[(150, 250)]), 0.0);
        assert_eq!(part(&runs, &[(100, 200)]), 0.5);
        assert_eq!(part(&runs, &[(0, 100), (240, 340)]), 0.95);
    }

    #[test]
    fn runs_of_whyslow_itself_count_as_room() {
        let runs = [(1, 0, 100), (2, 0, 100)];
        assert_eq!([part_beside(&[], &runs, &[(0, 100)]), part_beside(&[9], &runs, &[(0, 100)])], [0.0, 1.0]);
    }

    #[test]
    fn missing_runs_or_waits_count_as_room() {
        assert_eq!((part(&[], &[(0, 100)]), part(&[(1, 0, 100), (2, 0, 100)], &[])), (1.0, 1.0));
        assert_eq!(part(&[(1, 0, 100)], &[(0, 100)]), 1.0, "CPU 2 was not seen taken");
    }
}
