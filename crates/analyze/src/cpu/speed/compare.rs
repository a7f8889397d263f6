//! Slow, compared with what: the other CPUs, the nominal frequency, an earlier recording, or itself when not interrupted.

use std::collections::BTreeMap;

use whyslow_model::{Missing, Recording};

use super::measure::{ADDITIONS, Measured};
use crate::Evidence;

/// A CPU is slow that takes so many times longer, in each half of the window. Cores of one machine differ by less: by their turbo
/// frequencies, what their neighbours leave them of it, and what the best of some loops still holds of interrupts.
pub(crate) const SLOW: f64 = 1.25;
/// An emulator takes so long over each interrupt (a tick, or one of our own samples, is 100 us and more) that guests in which
/// nothing was wrong took up to 1.7 times as long as when nothing interrupted them.
const SLOW_EMULATED: f64 = 1.8;
/// A CPU that is idle for more of the window has no reason to raise its clock.
const IDLE: f64 = 0.9;

/// With what a CPU is compared.
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
    /// With what it was compared.
    pub against: Against,
    /// So many times longer it takes.
    pub ratio: f64,
    /// ... in the half of the window in which it was better.
    pub least: f64,
}

/// All CPUs of a window, and what they are compared with.
pub(crate) struct CpuSpeeds {
    /// Those that were measured.
    pub measured: Vec<Measured>,
    /// Those that were not, and why.
    pub skipped: Vec<(u32, String)>,
    class: BTreeMap<u32, String>,
    medians: BTreeMap<String, Median>,
    first_class: String,
    baseline: Option<Median>,
    unjudged: Vec<u32>,
}

/// The medians of several CPUs: of their halves, of all their loops.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Median {
    halves: [f64; 2],
    middles: [f64; 2],
    typical: f64,
    of: usize,
}

impl Median {
    /// Of two CPUs the faster one: a slow one would else be half of what it is compared with.
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
    /// From the table of speeds, and that of a baseline.
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
                        row.skipped.clone().unwrap_or_else(|| "too few of our loops ran on it".to_owned());
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
        // What interrupts a slow CPU makes it slower still against itself than against others, which are interrupted, too: what
        // others see comes first, unless the rest would be a finding of its own.
        slow.reduce(|best, next| if next.ratio > best.ratio * SLOW { next } else { best })
    }

    /// How many times longer than the median of its like; `None`: there is no other.
    pub fn ratio(&self, seen: &Measured) -> Option<f64> {
        let median = self.median(seen).filter(|median| median.of > 1)?;
        Some(seen.typical / median.typical).filter(|ratio| ratio.is_finite())
    }

    /// The clock was not to be judged: idle, under a governor that raises it with load.
    pub fn is_idle(&self, cpu: u32) -> bool {
        self.unjudged.contains(&cpu)
    }

    /// Whether a baseline was there and held speeds that can be compared.
    pub fn has_baseline(&self) -> bool {
        self.baseline.is_some()
    }

    fn median(&self, seen: &Measured) -> Option<&Median> {
        self.medians.get(self.class.get(&seen.cpu)?)
    }

    /// Loops may slip in between two interrupts that take the CPU for long. Where most loops of the others are let alone, all
    /// visits but one of this CPU tell it, too; where they are not, only the fastest can.
    fn to_median(&self, seen: &Measured) -> Option<Verdict> {
        let median = self.median(seen).filter(|median| median.of > 1)?;
        let verdict = versus(Against::Median, seen, median);
        let robust = [0, 1].map(|half: usize| Some(seen.seconds.get(half)? / median.middles.get(half)?));
        let [Some(early), Some(late)] = robust else { return Some(verdict) };
        Some(Verdict { least: verdict.least.max(early.min(late)), ..verdict })
    }

    /// Small cores may be meant to run below the large ones' nominal frequency.
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

/// Of its best half: what was possible. An emulator's additions are not hardware's.
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
