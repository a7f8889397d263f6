//! Does a call take longer the more there is of something? Calls of one sort over the window, against counts of the host over the window.
//!
//! Three answers: it grows with this count; it does not, or nobody can tell: then nothing is said. Said is what was measured: calls grew, a
//! count grew, and the two went together, also within the window. It is no proof that the one made the other.

use std::time::Duration;

use whyslow_model::churn::{Population, Thing};

/// Calls of which growth is told: fewer can come in this order by chance.
const FEW: usize = 12;
/// ... and in each the first and the last third of the window.
const FEW_IN_A_THIRD: usize = 3;
/// Calls that are compared: of more, every second, third ...
const MOST: usize = 4096;
/// The last third's calls against those of the first: less is seen where the load changes a little.
const LONGER: f64 = 1.5;
/// The same of a count: what hardly changed made nothing longer.
const MORE: f64 = 1.1;
/// A call may go through a part of what was counted, or through each pair of it, and so grow faster than the count. A count that grew by a tenth does not
/// explain a call that takes twice as long: at most this power of it.
const STEEPEST: f64 = 4.0;
/// Parts of the window whose means are compared: four in each third.
const SLOTS: u64 = 12;
/// ... of which so many must have calls.
const FEW_SLOTS: usize = 6;
/// Rank correlation of the means with the count, and of single calls, which vary more. Of 4,000 drawn windows of steady calls (even, exponential or
/// Pareto, 12 calls and more) beside a count that rises, 12 at most pass both and [`LONGER`].
const MEANS_AGREE: f64 = 0.7;
const CALLS_AGREE: f64 = 0.4;

/// A call: when it was, and how long it took, in ns of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub at: u64,
    pub ns: u64,
}

/// Calls that grew with a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The time of a call in the last third of the window.
    pub per_call: Duration,
    /// The count it grew with ...
    pub thing: Thing,
    /// ... at the end.
    pub count: u64,
}

impl std::fmt::Display for Growth {
    /// "9,000 cgroups".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.count.to_string();
        for (at, digit) in digits.chars().enumerate() {
            let comma = if at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
            write!(f, "{comma}{digit}")?;
        }
        write!(f, " {}", self.thing)
    }
}

/// Counts that rose in the window.
#[derive(Debug, Default)]
pub(crate) struct Risen {
    window: u64,
    counts: Vec<Counts>,
}

/// A count over the window.
#[derive(Debug)]
struct Counts {
    thing: Thing,
    /// When, and how many; in order.
    seen: Vec<(u64, u64)>,
}

impl Counts {
    /// As last seen; before the first time, as seen then.
    fn at(&self, at: u64) -> f64 {
        let before = self.seen.partition_point(|(then, _)| *then <= at).saturating_sub(1);
        self.seen.get(before).map_or(0.0, |(_, count)| *count as f64)
    }
}

impl Risen {
    /// Of these rows, in a window of this length.
    pub fn of(rows: &[Population], window: u64) -> Self {
        let counts = Thing::ALL.iter().map(|thing| {
            let its = rows.iter().filter(|row| row.what == thing.word());
            let mut seen: Vec<(u64, u64)> = its.map(|row| (row.at_ns, row.count)).collect();
            seen.sort_unstable();
            Counts { thing: *thing, seen }
        });
        let rises = |counts: &Counts| {
            let mean = |from: u64| (from..from + SLOTS / 3).map(|slot| counts.at(middle(slot, window))).sum();
            let (first, last): (f64, f64) = (mean(0), mean(SLOTS - SLOTS / 3));
            first > 0.0 && last >= MORE * first
        };
        Risen { window, counts: counts.filter(rises).collect() }
    }

    /// No count rose.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The count that these calls grew with, if they grew: of several, the one that they agree with best.
    pub fn grown(&self, calls: &[Call]) -> Option<Growth> {
        if self.is_empty() || calls.len() < FEW {
            return None;
        }
        let calls: Vec<Call> = calls.iter().step_by(calls.len().div_ceil(MOST)).copied().collect();
        let (longer, last) = self.thirds(&calls, |call| call.ns as f64)?;
        if longer < LONGER {
            return None;
        }
        let agreed =
            self.counts.iter().filter_map(|counts| Some((self.agrees(&calls, counts, longer)?, counts)));
        let (_, best) = agreed.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        let count = best.seen.last().map_or(0, |(_, count)| *count);
        Some(Growth { per_call: Duration::from_nanos(last as u64), thing: best.thing, count })
    }

    /// How well: the rank correlation of single calls.
    fn agrees(&self, calls: &[Call], counts: &Counts, longer: f64) -> Option<f64> {
        let (more, _) = self.thirds(calls, |call| counts.at(call.at))?;
        if more < MORE || longer > more.powf(STEEPEST) {
            return None;
        }
        let means = self.means(calls, counts);
        if means.len() < FEW_SLOTS || correlation(&means) < MEANS_AGREE {
            return None;
        }
        let singles: Vec<(f64, f64)> =
            calls.iter().map(|call| (call.ns as f64, counts.at(call.at))).collect();
        Some(correlation(&singles)).filter(|agrees| *agrees >= CALLS_AGREE)
    }

    /// The mean over calls of the last third: against that of the first third, and itself. `None`: too few calls.
    fn thirds(&self, calls: &[Call], value: impl Fn(&Call) -> f64) -> Option<(f64, f64)> {
        let mean = |is_in: fn(u64) -> bool| {
            let values: Vec<f64> = calls.iter().filter(|call| is_in(self.slot(call))).map(&value).collect();
            (values.len() >= FEW_IN_A_THIRD).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let first = mean(|slot| slot < SLOTS / 3).filter(|first| *first > 0.0)?;
        let last = mean(|slot| slot >= SLOTS - SLOTS / 3)?;
        Some((last / first, last))
    }

    /// Of each part of the window with calls: their mean, and that of the count meanwhile.
    fn means(&self, calls: &[Call], counts: &Counts) -> Vec<(f64, f64)> {
        let mut sums = [(0.0, 0.0, 0.0); SLOTS as usize];
        for call in calls {
            let slot = usize::try_from(self.slot(call)).unwrap_or(0);
            if let Some((number, ns, count)) = sums.get_mut(slot) {
                *number += 1.0;
                *ns += call.ns as f64;
                *count += counts.at(call.at);
            }
        }
        let met = sums.iter().filter(|(number, ..)| *number > 0.0);
        met.map(|(number, ns, count)| (ns / number, count / number)).collect()
    }

    fn slot(&self, call: &Call) -> u64 {
        let slot = u128::from(call.at) * u128::from(SLOTS) / u128::from(self.window.max(1));
        u64::try_from(slot).unwrap_or(SLOTS).min(SLOTS - 1)
    }
}

fn middle(slot: u64, window: u64) -> u64 {
    window / (2 * SLOTS) * (2 * slot + 1)
}

/// Spearman's: 1 where the larger of one is the larger of the other each time, 0 where one does not change.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |value: fn(&(f64, f64)) -> f64| ranks(&pairs.iter().map(value).collect::<Vec<_>>());
    let (ones, others) = (ranks(|pair| pair.0), ranks(|pair| pair.1));
    let middle = (pairs.len() as f64 - 1.0) / 2.0;
    let sum =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum() };
    let spread = (sum(&ones, &ones) * sum(&others, &others)).sqrt();
    if spread > 0.0 { sum(&ones, &others) / spread } else { 0.0 }
}

/// The place of each value in their order; equal ones share the middle of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        for (_, at) in equal {
            if let Some(rank) = ranks.get_mut(*at) {
                *rank = first as f64 + (equal.len() as f64 - 1.0) / 2.0;
            }
        }
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
