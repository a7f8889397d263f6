//! What a CPU's speed is compared with: the other CPUs, the nominal frequency, an earlier recording, or itself when not interrupted.

use std::collections::BTreeMap;

use whyslow_model::{Missing, Recording};

use super::measure::{ADDITIONS, Measured};
use crate::Evidence;

/// A CPU is slow if it takes this many times longer, in each half of the window. Cores of one machine differ by less: by their turbo
/// frequencies, by what their neighbours leave of them, and by the interrupts that even the best loops may contain.
pub(crate) const SLOW: f64 = 1.25;
/// An emulator takes so long for each interrupt (a tick, or one of whyslow's own samples, is 100 us and more) that healthy guests
/// took up to 1.7 times as long as without interrupts.
const SLOW_EMULATED: f64 = 1.8;
/// A CPU that is idle for more of the window than this has no reason to raise its clock.
const IDLE: f64 = 0.9;

/// The reference that a CPU is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Against {
    /// The median of this host's CPUs.
    Median,
    /// The frequency of its time stamp counter.
    Nominal,
    /// The recording that the user named.
    Baseline,
    /// Its own fastest pieces: something takes the rest.
    Itself,
}

/// A slow CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// The reference.
    pub against: Against,
    /// How many times longer the CPU takes.
    pub ratio: f64,
    /// ... in the better half of the window.
    pub least: f64,
}

/// All CPUs of a window, and the references.
pub(crate) struct CpuSpeeds {
    /// CPUs that were measured.
    pub measured: Vec<Measured>,
    /// CPUs that were not measured, and why.
    pub skipped: Vec<(u32, String)>,
    class: BTreeMap<u32, String>,
    medians: BTreeMap<String, Median>,
    first_class: String,
    baseline: Option<Median>,
    unjudged: Vec<u32>,
}

/// The medians of several CPUs: for each half, and for all their loops.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Median {
    halves: [f64; 2],
    middles: [f64; 2],
    typical: f64,
    of: usize,
}

impl Median {
    /// Of two CPUs the faster one: otherwise a slow CPU would be half of its own reference.
    fn of(all: &[&Measured]) -> Option<Median> {
        let median = |pick: &dyn Fn(&Measured) -> f64| {
            let mut values: Vec<f64> = all.iter().map(|m| pick(m)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len().checked_sub(1)? / 2).copied().filter(|v| *v > 0.0 && v.is_finite())
        };
        let halves = [median(&|m| m.halves[0])?, median(&|m| m.halves[1])?];
        let middles = [median(&|m| m.middles[0])?, median(&|m| m.middles[1])?];
        Some(Median { halves, middles, typical: median(&|m| m.typical)?, of: all.len() })
    }
}

impl CpuSpeeds {
    /// Reads the table of speeds, and that of a baseline.
    pub fn of(ev: &Evidence<'_>) -> Result<Self, Missing> {
        let rows = ev.speeds()?;
        let window_ns = ev.recording().meta.window_ns;
        let mut skipped = Vec::new();
        let measured: Vec<Measured> = rows
            .iter()
            .filter_map(|row| {
                let seen = if row.skipped.is_none() { Measured::of(row, window_ns) } else { None };
                if seen.is_none() {
                    let why =
                        row.skipped.clone().unwrap_or_else(|| "too few of the loops ran on it".to_owned());
                    skipped.push((row.cpu, why));
                }
                seen
            })
            .collect();
        let class: BTreeMap<u32, String> =
            measured.iter().map(|seen| (seen.cpu, ev.core_class(seen.cpu))).collect();
        let of_class = |name: &String| {
            let all: Vec<&Measured> = measured.iter().filter(|m| class.get(&m.cpu) == Some(name)).collect();
            Some((name.clone(), Median::of(&all)?))
        };
        let medians: BTreeMap<String, Median> = class.values().filter_map(of_class).collect();
        let fastest = medians.iter().min_by(|a, b| a.1.typical.total_cmp(&b.1.typical));
        let first_class = fastest.map(|(name, _)| name.clone()).unwrap_or_default();
        let baseline = ev.baseline().and_then(|baseline| of_baseline(rows, baseline));
        Ok(CpuSpeeds { unjudged: idle(ev), measured, skipped, class, medians, first_class, baseline })
    }

    /// The slowest comparison that holds in both halves of the window; `None`: the CPU is not slow.
    pub fn judge(&self, seen: &Measured) -> Option<Verdict> {
        if self.unjudged.contains(&seen.cpu) {
            return None;
        }
        let comparisons =
            [self.to_median(seen), self.to_nominal(seen), self.to_baseline(seen), Some(to_itself(seen))];
        let slow = comparisons
            .into_iter()
            .flatten()
            .filter(|v| v.least >= SLOW && v.ratio >= bar(seen, v.against) && v.ratio.is_finite());
        // Interrupts slow a CPU down more against itself than against other CPUs, which are interrupted, too. So the comparison with
        // others comes first, unless the remaining slowdown would be a finding of its own.
        slow.reduce(|best, next| if next.ratio > best.ratio * SLOW { next } else { best })
    }

    /// How many times longer than the median CPU of the same kind; `None`: there is no other CPU of that kind.
    pub fn ratio(&self, seen: &Measured) -> Option<f64> {
        let median = self.median(seen).filter(|median| median.of > 1)?;
        Some(seen.typical / median.typical).filter(|ratio| ratio.is_finite())
    }

    /// The clock could not be judged: the CPU was idle, under a governor that raises the clock with load.
    pub fn is_idle(&self, cpu: u32) -> bool {
        self.unjudged.contains(&cpu)
    }

    /// Whether there was a baseline with comparable speeds.
    pub fn has_baseline(&self) -> bool {
        self.baseline.is_some()
    }

    fn median(&self, seen: &Measured) -> Option<&Median> {
        self.medians.get(self.class.get(&seen.cpu)?)
    }

    /// Loops may fit between two interrupts that take the CPU for long. If most loops of the other CPUs ran without interruption,
    /// the visits of this CPU without its best one must show the slowdown, too; if not, only the fastest loop can show it.
    fn to_median(&self, seen: &Measured) -> Option<Verdict> {
        let median = self.median(seen).filter(|median| median.of > 1)?;
        let verdict = versus(Against::Median, seen, median);
        let robust = [0, 1].map(|half: usize| Some(seen.seconds.get(half)? / median.middles.get(half)?));
        let [Some(early), Some(late)] = robust else { return Some(verdict) };
        Some(Verdict { least: verdict.least.max(early.min(late)), ..verdict })
    }

    /// Small cores may be designed to run below the large cores' nominal frequency.
    fn to_nominal(&self, seen: &Measured) -> Option<Verdict> {
        let is_large = self.class.get(&seen.cpu) == Some(&self.first_class);
        let nominal = seen.nominal_mhz.filter(|_| is_large)?;
        let ideal = ADDITIONS * 1000.0 / nominal;
        Some(versus(
            Against::Nominal,
            seen,
            &Median { halves: [ideal; 2], middles: [ideal; 2], typical: ideal, of: 1 },
        ))
    }

    fn to_baseline(&self, seen: &Measured) -> Option<Verdict> {
        self.baseline.as_ref().map(|median| versus(Against::Baseline, seen, median))
    }
}

fn bar(seen: &Measured, against: Against) -> f64 {
    if against == Against::Itself && !seen.cycle_exact { SLOW_EMULATED } else { SLOW }
}

fn versus(against: Against, seen: &Measured, reference: &Median) -> Verdict {
    let halves = [seen.halves[0] / reference.halves[0], seen.halves[1] / reference.halves[1]];
    Verdict { against, ratio: seen.typical / reference.typical, least: halves[0].min(halves[1]) }
}

fn to_itself(seen: &Measured) -> Verdict {
    let halves = [seen.halves[0] / seen.pieces[0], seen.halves[1] / seen.pieces[1]];
    let ratio = seen.typical / seen.pieces[0].min(seen.pieces[1]);
    Verdict { against: Against::Itself, ratio, least: halves[0].min(halves[1]) }
}

/// From the best half of the baseline: that was possible. Additions of an emulator are not comparable with those of hardware.
fn of_baseline(rows: &[whyslow_model::table::Speed], baseline: &Recording) -> Option<Median> {
    let theirs = baseline.tables.speeds.as_ref()?;
    let is_like = rows.first().map(|row| row.cycle_exact) == theirs.first().map(|row| row.cycle_exact);
    let measured: Vec<Measured> = theirs
        .iter()
        .filter(|row| row.skipped.is_none())
        .filter_map(|row| Measured::of(row, baseline.meta.window_ns))
        .collect();
    let median = Median::of(&measured.iter().collect::<Vec<_>>()).filter(|_| is_like)?;
    let best = median.halves[0].min(median.halves[1]);
    Some(Median { halves: [best; 2], ..median })
}

/// CPUs that were idle under a governor that raises the clock with load.
fn idle(ev: &Evidence<'_>) -> Vec<u32> {
    let Ok(times) = ev.cpu_time_by_cpu() else { return Vec::new() };
    let policies = ev.cpufreq_policies();
    let rises = |cpu: u32| policies.iter().any(|p| p.rises_with_load() && p.cpus.contains(&cpu));
    let is_idle =
        |time: &crate::CpuTime| (time.idle + time.iowait).as_secs_f64() > IDLE * time.total().as_secs_f64();
    times.into_iter().filter(|(cpu, time)| rises(*cpu) && is_idle(time)).map(|(cpu, _)| cpu).collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
