//! Who had a CPU in runs that are too short for a row each, by slices of the window.
//!
//! A stretch of short runs has a sum and the CPU where it ended: of two tasks that take turns each has half of what the other waits
//! for. It is spread evenly over its time, and long runs, which are known, are taken out.

use whyslow_model::timeline::{Run, Span};

use crate::hashing::Table;

/// Stretches without a long wait are told each 10 ms: shorter slices would know no more.
const SLICE: u64 = 50_000_000;
/// Of a longer window slices are longer, ...
const MOST_SLICES: u64 = 2_048;
/// ... and of more rows the first speak.
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
        let mut left = MOST_ENTRIES;
        for span in spans.iter().filter(|span| span.mixed.running_ns > 0) {
            let to = span.at_ns.min(span.to_ns).min(window);
            let ran = span.mixed.running_ns;
            all.each(span.cpu, span.from_ns, to, &mut left, |sums, within, whole| {
                let part = u128::from(ran) * u128::from(within) / u128::from(whole);
                let sum = sums.entry(span.pid).or_insert(0);
                *sum = sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
            });
        }
        for run in runs {
            all.each(run.cpu, run.from_ns, run.to_ns.min(window), &mut left, |sums, within, _| {
                if let Some(sum) = sums.get_mut(&run.pid) {
                    *sum = sum.saturating_sub(within);
                }
            });
        }
        all
    }

    /// Each slice of a stretch: how much of it is within, and how long the whole is.
    fn each(
        &mut self,
        cpu: u32,
        from: u64,
        to: u64,
        left: &mut usize,
        mut add: impl FnMut(&mut Table<u32, u64>, u64, u64),
    ) {
        for at in slices(self.slice, from, to) {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let within = within(self.slice, at, from, to);
            add(self.by_slice.entry((cpu, at)).or_default(), within, to - from);
        }
    }

    /// Who had this CPU in short runs around a stretch, but for `pid`, and for how much of it, the longest first.
    pub fn had(&self, cpu: u32, from: u64, to: u64, pid: u32) -> Vec<(u32, u64)> {
        let mut had: Table<u32, u64> = Table::default();
        for at in slices(self.slice, from, to) {
            let part = u128::from(within(self.slice, at, from, to));
            for (other, ns) in
                self.by_slice.get(&(cpu, at)).into_iter().flatten().filter(|(other, _)| **other != pid)
            {
                let ns = u128::from(*ns) * part / u128::from(self.slice);
                let sum = had.entry(*other).or_insert(0);
                *sum = sum.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
            }
        }
        let mut had: Vec<(u32, u64)> = had.into_iter().filter(|(_, ns)| *ns > 0).collect();
        had.sort_by_key(|(other, ns)| (std::cmp::Reverse(*ns), *other));
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

    fn ran(pid: u32, cpu: u32, from: u64, at: u64, ms: u64) -> Span {
        let mixed = StateTimes { running_ns: ms * MS, ..StateTimes::default() };
        Span {
            pid,
            cpu,
            from_ns: from * MS,
            at_ns: at * MS,
            woken_ns: at * MS,
            to_ns: at * MS,
            mixed,
            ..Span::default()
        }
    }

    #[test]
    fn a_cpu_is_had_by_those_who_ran_there_then() {
        let spans =
            [ran(1, 0, 0, 100, 40), ran(2, 0, 0, 100, 50), ran(3, 1, 0, 100, 90), ran(4, 0, 200, 300, 90)];
        let all = ShortRuns::of(&spans, &[], 400 * MS);
        assert_eq!(all.had(0, 20 * MS, 80 * MS, 1), [(2, 30 * MS)]);
        assert_eq!(all.had(0, 0, 100 * MS, 9), [(2, 50 * MS), (1, 40 * MS)]);
        assert_eq!(all.had(0, 120 * MS, 180 * MS, 9), []);
    }

    #[test]
    fn long_runs_are_no_short_ones() {
        let run = Run { cpu: 0, pid: 1, from_ns: 0, to_ns: 30 * MS };
        let all = ShortRuns::of(&[ran(1, 0, 0, 50, 40)], &[run], 400 * MS);
        assert_eq!(all.had(0, 0, 50 * MS, 9), [(1, 10 * MS)]);
    }

    #[test]
    fn garbage_ends_and_adds_up_to_no_more_than_it_is() {
        let spans: Vec<Span> = (0..3_000).map(|pid| ran(pid, 0, 0, u64::MAX / MS, u64::MAX / MS)).collect();
        let all = ShortRuns::of(&spans, &[Run { cpu: 0, pid: 1, from_ns: 9, to_ns: 3 }], u64::MAX);
        assert!(!all.had(0, 0, u64::MAX, 1).is_empty());
        assert_eq!(all.had(0, 9, 3, 1), []);
    }
}
