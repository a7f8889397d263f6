//! Who had a CPU in runs that are too short for a row each, by slices of the window.
//!
//! A stretch of short runs has a sum, and a CPU: that of one that began and ended there. Of two tasks that take turns each has half of
//! what the other waits for. The sum is spread evenly over the stretch, and long runs, which are known, are taken out.

use whyslow_model::timeline::{Run, Span};

use crate::hashing::Table;

/// Some stretches long: they are told each 10 ms where there is no long wait in them.
const SLICE: u64 = 50_000_000;
/// Of a window beyond 54 minutes slices are longer, ...
const MOST_SLICES: u64 = 65_536;
/// ... and of more rows nobody is named.
const MOST_ENTRIES: usize = 4_000_000;

/// Time in short runs by CPU and slice.
#[derive(Debug)]
pub(super) struct ShortRuns {
    slice: u64,
    by_slice: Table<(u32, u64), Table<u32, u64>>,
}

impl ShortRuns {
    pub fn of(spans: &[Span], runs: &[Run], window: u64) -> Self {
        let mut all = ShortRuns { slice: SLICE.max(window / MOST_SLICES), by_slice: Table::default() };
        if all.add(spans, window).and_then(|()| all.take_out(runs, window)).is_none() {
            all.by_slice.clear();
        }
        all
    }

    /// `None`: there are too many.
    fn add(&mut self, spans: &[Span], window: u64) -> Option<()> {
        let mut left = MOST_ENTRIES;
        let mut before: Table<u32, (u64, u32)> = Table::default();
        for span in spans {
            // The row before tells on which CPU it began.
            let last = before.insert(span.pid, (span.to_ns, span.cpu));
            let stayed = last.is_some_and(|(to, cpu)| to <= span.from_ns && cpu == span.cpu);
            if !stayed || span.mixed.running_ns == 0 {
                continue;
            }
            let (from, to) = (span.from_ns, span.at_ns.min(span.to_ns).min(window));
            for at in slices(self.slice, from, to) {
                left = left.checked_sub(1)?;
                let part = u128::from(span.mixed.running_ns) * u128::from(within(self.slice, at, from, to))
                    / u128::from(to - from);
                let sum = self.by_slice.entry((span.cpu, at)).or_default().entry(span.pid).or_insert(0);
                *sum = sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
            }
        }
        Some(())
    }

    fn take_out(&mut self, runs: &[Run], window: u64) -> Option<()> {
        let mut left = MOST_ENTRIES;
        for run in runs {
            let (from, to) = (run.from_ns, run.to_ns.min(window));
            for at in slices(self.slice, from, to) {
                left = left.checked_sub(1)?;
                let sums = self.by_slice.get_mut(&(run.cpu, at));
                if let Some(sum) = sums.and_then(|sums| sums.get_mut(&run.pid)) {
                    *sum = sum.saturating_sub(within(self.slice, at, from, to));
                }
            }
        }
        Some(())
    }

    /// How many sums `had` looks at.
    pub fn entries(&self, cpu: u32, from: u64, to: u64) -> usize {
        let at = |at| 1 + self.by_slice.get(&(cpu, at)).map_or(0, Table::len);
        slices(self.slice, from, to).map(at).sum()
    }

    /// Who had this CPU in short runs around a stretch, but for `pid`, and for how much of it, the longest first.
    pub fn had(&self, cpu: u32, from: u64, to: u64, pid: u32) -> Vec<(u32, u64)> {
        let mut had: Table<u32, u64> = Table::default();
        for at in slices(self.slice, from, to) {
            let part = u128::from(within(self.slice, at, from, to));
            let sums = self.by_slice.get(&(cpu, at)).into_iter().flatten();
            for (other, ns) in sums.filter(|(other, _)| **other != pid) {
                let ns = u128::from((*ns).min(self.slice)) * part / u128::from(self.slice);
                let sum = had.entry(*other).or_insert(0);
                *sum = sum.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
            }
        }
        let mut had: Vec<(u32, u64)> = had.into_iter().filter(|(_, ns)| *ns > 0).collect();
        had.sort_unstable_by_key(|(other, ns)| (std::cmp::Reverse(*ns), *other));
        had
    }
}

fn slices(slice: u64, from: u64, to: u64) -> std::ops::Range<u64> {
    if from < to { from / slice..to.div_ceil(slice) } else { 0..0 }
}

fn within(slice: u64, at: u64, from: u64, to: u64) -> u64 {
    let begin = at.saturating_mul(slice);
    to.min(begin.saturating_add(slice)).saturating_sub(from.max(begin))
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::StateTimes;

    use super::*;

    const MS: u64 = 1_000_000;

    /// It came to this CPU, and then there is a stretch.
    fn ran(pid: u32, cpus: [u32; 2], from: u64, at: u64, ms: u64) -> [Span; 2] {
        let mixed = StateTimes { running_ns: ms.saturating_mul(MS), ..StateTimes::default() };
        let [from, at] = [from, at].map(|ms| ms.saturating_mul(MS));
        let row = |cpu, from, at| Span {
            pid,
            cpu,
            from_ns: from,
            at_ns: at,
            woken_ns: at,
            to_ns: at,
            ..Span::default()
        };
        [row(cpus[0], from, from), Span { mixed, ..row(cpus[1], from, at) }]
    }

    #[test]
    fn a_cpu_is_had_by_those_who_ran_there_then() {
        let rows = [
            ran(1, [0, 0], 0, 100, 40),
            ran(2, [0, 0], 0, 100, 50),
            ran(3, [1, 1], 0, 100, 90),
            ran(4, [0, 0], 200, 300, 90),
        ];
        let all = ShortRuns::of(&rows.concat(), &[], 400 * MS);
        assert_eq!(all.had(0, 20 * MS, 80 * MS, 1), [(2, 30 * MS)]);
        assert_eq!(all.had(0, 0, 100 * MS, 9), [(2, 50 * MS), (1, 40 * MS)]);
        assert_eq!(all.had(0, 120 * MS, 180 * MS, 9), []);
    }

    #[test]
    fn who_ran_before_it_came_to_a_cpu_did_not_run_there() {
        let rows = [ran(1, [1, 0], 0, 100, 40).to_vec(), ran(2, [0, 0], 0, 100, 30)[1..].to_vec()];
        let all = ShortRuns::of(&rows.concat(), &[], 400 * MS);
        assert_eq!(all.had(0, 0, 100 * MS, 9), []);
    }

    #[test]
    fn long_runs_are_no_short_ones() {
        let run = Run { cpu: 0, pid: 1, from_ns: 0, to_ns: 30 * MS };
        let all = ShortRuns::of(&ran(1, [0, 0], 0, 50, 40), &[run], 400 * MS);
        assert_eq!(all.had(0, 0, 50 * MS, 9), [(1, 10 * MS)]);
    }

    #[test]
    fn garbage_ends_and_names_nobody() {
        let spans: Vec<Span> = (0..3_000).flat_map(|pid| ran(pid, [0, 0], 0, u64::MAX, u64::MAX)).collect();
        let all = ShortRuns::of(&spans, &[Run { cpu: 0, pid: 1, from_ns: 9, to_ns: 3 }], u64::MAX);
        assert_eq!((all.had(0, 0, u64::MAX, 1), all.had(0, 9, 3, 1)), (vec![], vec![]));
    }
}
