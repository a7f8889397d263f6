//! Slow, compared with what: the other CPUs, the nominal frequency, an earlier recording, or itself when not interrupted.

use std::collections::BTreeMap;

use whyslow_model::{Missing, Recording};

use super::measure::{ADDITIONS, Measured};
use crate::Evidence;

/// A CPU is slow that takes so many times longer, in each half of the window. Cores of one machine differ by less: by their turbo
/// frequencies, what their neighbours leave them of it, and what the best of some loops still holds of interrupts.
pub(crate) const SLOW: f64 = 1.25;
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
pub(crate) struct World {
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
        Some(Median { halves, typical: median(&|m| m.typical)?, of: all.len() })
    }
}

impl World {
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
        Ok(World { unjudged: idle(ev), measured, skipped, class, medians, first_class, baseline })
    }

    /// The slowest comparison that holds in both halves of the window; `None`: the CPU is not slow.
    pub fn judge(&self, seen: &Measured) -> Option<Verdict> {
        if self.unjudged.contains(&seen.cpu) {
            return None;
        }
        let comparisons =
            [self.to_median(seen), self.to_nominal(seen), self.to_baseline(seen), Some(to_itself(seen))];
        let slow = comparisons.into_iter().flatten().filter(|v| v.least >= SLOW && v.ratio.is_finite());
        // Interrupts are found by two comparisons, nearly alike: what others see comes first.
        slow.reduce(|best, next| if next.ratio > best.ratio * 1.1 { next } else { best })
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

    fn to_median(&self, seen: &Measured) -> Option<Verdict> {
        self.median(seen).filter(|median| median.of > 1).map(|median| versus(Against::Median, seen, median))
    }

    /// Small cores may be meant to run below the large ones' nominal frequency.
    fn to_nominal(&self, seen: &Measured) -> Option<Verdict> {
        let is_large = self.class.get(&seen.cpu) == Some(&self.first_class);
        let nominal = seen.nominal_mhz.filter(|_| is_large)?;
        let ideal = ADDITIONS * 1000.0 / nominal;
        Some(versus(Against::Nominal, seen, &Median { halves: [ideal; 2], typical: ideal, of: 1 }))
    }

    fn to_baseline(&self, seen: &Measured) -> Option<Verdict> {
        self.baseline.as_ref().map(|median| versus(Against::Baseline, seen, median))
    }
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
mod tests {
    use proptest::prelude::*;
    use whyslow_model::table::{Loop, Speed};

    use super::super::measure::tests::{WINDOW, speed};
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn host(rows: Vec<Speed>) -> Fixture {
        Fixture::window(std::time::Duration::from_nanos(WINDOW)).with(|t| t.speeds = Some(rows))
    }

    fn flagged(fixture: &Fixture) -> Vec<(u32, Against)> {
        let world = World::of(&fixture.ev()).unwrap();
        world.measured.iter().filter_map(|seen| Some((seen.cpu, world.judge(seen)?.against))).collect()
    }

    #[test]
    fn one_slow_cpu_of_four_and_one_of_two_are_found() {
        let three = [(0, 4000), (1, 4100), (3, 3900)].map(|(cpu, mhz)| speed(cpu, mhz, 0.0));
        let slow = host([three.to_vec(), vec![speed(2, 2700, 0.0)]].concat());
        assert_eq!(flagged(&slow), [(2, Against::Median)]);
        assert_eq!(flagged(&host(vec![speed(0, 4000, 0.0), speed(1, 2700, 0.0)])), [(1, Against::Median)]);
        assert_eq!(flagged(&host(three.to_vec())), []);
    }

    #[test]
    fn all_slow_alike_are_found_by_nominal_by_a_baseline_or_by_what_is_taken() {
        let alike = |mhz, taken| vec![speed(0, mhz, taken), speed(1, mhz, taken)];
        assert_eq!(flagged(&host(alike(1200, 0.0))), [(0, Against::Nominal), (1, Against::Nominal)]);
        assert_eq!(flagged(&host(alike(9000, 0.6))), [(0, Against::Itself), (1, Against::Itself)]);
        let (slow, before) = (host(alike(2700, 0.0)), host(alike(4300, 0.0)));
        assert_eq!(flagged(&slow), []);
        let world = World::of(&slow.ev().beside(Some(&before.0))).unwrap();
        let verdict = world.judge(&world.measured[0]).unwrap();
        assert_eq!(verdict.against, Against::Baseline);
        assert!((verdict.ratio - 4300.0 / 2700.0).abs() < 0.01);
    }

    #[test]
    fn cores_of_another_sort_are_not_compared() {
        let mixed =
            host(vec![speed(0, 5000, 0.0), speed(1, 5000, 0.0), speed(2, 3600, 0.0), speed(3, 3600, 0.0)])
                .end("sys/devices/cpu_atom/cpus", "2-3\n");
        assert_eq!(flagged(&mixed), []);
    }

    #[test]
    fn the_clock_of_an_idle_cpu_is_not_judged() {
        let stat = |busy: u64, idle: u64| {
            format!("cpu  {busy} 0 0 {idle} 0 0 0 0\ncpu1 {busy} 0 0 {idle} 0 0 0 0\n")
        };
        let policy = "sys/devices/system/cpu/cpufreq/policy1";
        let with = |idle: u64| {
            host(vec![speed(0, 4000, 0.0), speed(1, 1000, 0.0)])
                .start("proc/stat", &stat(0, 0))
                .end("proc/stat", &stat(1000 - idle, idle))
                .end(&format!("{policy}/scaling_driver"), "intel_pstate\n")
                .end(&format!("{policy}/affected_cpus"), "1\n")
        };
        assert_eq!(flagged(&with(990)), []);
        assert_eq!(flagged(&with(500)).len(), 1);
    }

    #[test]
    fn a_burst_in_one_half_flags_nobody() {
        let mut row = speed(1, 4000, 0.0);
        for turn in row.loops.iter_mut().filter(|turn| turn.at_ns < WINDOW / 2) {
            turn.work /= 3;
            turn.pieces /= 3;
        }
        assert_eq!(flagged(&host(vec![speed(0, 4000, 0.0), row])), []);
    }

    /// A CPU of a healthy host at a load of 20: loops wait for their turn, and most are cut by interrupts and by a hypervisor;
    /// each third is let alone.
    fn busy(cpu: u32, noise: &[(u64, u64)], per_mille: u64) -> Speed {
        let mut row = speed(cpu, 4000, 0.0);
        for (at, (turn, (wait, taken))) in row.loops.iter_mut().zip(noise).enumerate() {
            let taken = if at % 3 == 0 { 0 } else { taken % 8_000_000 };
            let cpu_ns = turn.cpu_ns + turn.cpu_ns * per_mille / 1000 + taken;
            let wait = wait % 80_000_000;
            *turn = Loop { wall_ns: cpu_ns + wait, cpu_ns, wait_ns: Some(wait), ..*turn };
        }
        row
    }

    proptest! {
        #[test]
        fn noise_on_healthy_cpus_flags_none(
            noise in prop::collection::vec(prop::collection::vec(any::<(u64, u64)>(), 12), 2..8),
            jitter in prop::collection::vec(0u64..40, 8),
        ) {
            let rows = noise.iter().zip(&jitter).zip(0u32..).map(|((noise, jitter), cpu)| busy(cpu, noise, *jitter));
            prop_assert_eq!(flagged(&host(rows.collect())), vec![]);
        }

        #[test]
        fn a_cpu_that_is_slow_throughout_is_flagged_whatever_the_noise(
            noise in prop::collection::vec(0u64..30_000_000, 12), mhz in 500u64..3000, cpus in 2u32..8,
        ) {
            let mut slow = speed(0, mhz, 0.0);
            for (turn, wait) in slow.loops.iter_mut().zip(&noise) {
                turn.wall_ns += wait;
                turn.wait_ns = Some(*wait);
            }
            let rows = std::iter::once(slow).chain((1..cpus).map(|cpu| speed(cpu, 4000, 0.0)));
            prop_assert_eq!(flagged(&host(rows.collect())), vec![(0, Against::Median)]);
        }
    }
}
