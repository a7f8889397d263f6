//! Numbers of one CPU from its loops.

use whyslow_model::table::{Loop, Speed};

/// Loops that each half of the window must hold: a single loop may have been disturbed, which nothing would show.
const LEAST: usize = 2;
/// Numbers are nanoseconds for this many additions.
pub(crate) const ADDITIONS: f64 = 1000.0;

/// What a CPU delivered. Times are nanoseconds of a thousand additions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    pub cpu: u32,
    /// The fastest loop of each half of the window, as tasks get it.
    pub halves: [f64; 2],
    /// The fastest loop of each half without the best visit: loops of that visit may have fitted between two interrupts.
    pub seconds: [f64; 2],
    /// The median loop of each half: more than half of the loops do not fit between interrupts.
    pub middles: [f64; 2],
    /// A quarter of the loops was faster than this.
    pub typical: f64,
    /// The fastest piece of each half: nothing interrupted it.
    pub pieces: [f64; 2],
    /// An addition takes one cycle here: the CPU is no emulator.
    pub cycle_exact: bool,
    /// The frequency at which it ran that piece, in MHz; `None` on an emulator.
    pub mhz: Option<f64>,
    /// The frequency of its time stamp counter, in MHz: the nominal one.
    pub nominal_mhz: Option<f64>,
    /// The mean frequency while it was busy, in MHz, where cycles were counted.
    pub busy_mhz: Option<f64>,
}

impl Measured {
    /// `None`: too few loops.
    pub fn of(row: &Speed, window_ns: u64) -> Option<Measured> {
        let half = |at: usize| {
            let inside = move |turn: &&Loop| (turn.at_ns < window_ns / 2) == (at == 0);
            row.loops.iter().filter(inside)
        };
        let reported = |turn: &Loop| Some((gained(turn)?, piece(turn)?));
        let halves = [0, 1].map(|at| half(at).filter_map(reported).collect::<Vec<_>>());
        if halves.iter().any(|loops| loops.len() < LEAST) {
            return None;
        }
        let least = |pick: fn(&(f64, f64)) -> f64| {
            halves
                .each_ref()
                .map(|loops: &Vec<(f64, f64)>| loops.iter().map(pick).fold(f64::INFINITY, f64::min))
        };
        let sorted = |loops: &mut dyn Iterator<Item = &(f64, f64)>| {
            let mut all: Vec<f64> = loops.map(|(got, _)| *got).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let ordered = halves.each_ref().map(|loops| sorted(&mut loops.iter()));
        let nth = |at: fn(usize) -> usize| ordered.each_ref().map(|half| half.get(at(half.len())).copied());
        let [second, second_late] = [0, 1].map(|at| but_one_visit(half(at), window_ns));
        let [Some(second), Some(second_late)] = [second, second_late] else { return None };
        let [Some(middle), Some(middle_late)] = nth(|of| of / 2) else { return None };
        let all = sorted(&mut halves.iter().flatten());
        let typical = *all.get(all.len() / 4)?;
        let pieces = least(|(_, piece)| *piece);
        let exact = |mhz: f64| (row.cycle_exact && mhz.is_finite()).then_some(mhz);
        let nominal_mhz = exact(nominal(row)?).filter(|mhz| *mhz > 0.0);
        let busy = (row.reference_cycles > 0).then(|| row.busy_cycles as f64 / row.reference_cycles as f64);
        Some(Measured {
            cpu: row.cpu,
            halves: least(|(got, _)| *got),
            seconds: [second, second_late],
            middles: [middle, middle_late],
            typical,
            pieces,
            cycle_exact: row.cycle_exact,
            mhz: exact(ADDITIONS * 1000.0 / pieces[0].min(pieces[1])),
            nominal_mhz,
            busy_mhz: nominal_mhz.zip(busy).map(|(nominal, busy)| nominal * busy).filter(|mhz| *mhz > 0.0),
        })
    }

    /// The part of the time for which tasks seem to run but something else had the CPU.
    pub fn taken(&self) -> f64 {
        let undisturbed = self.pieces[0].min(self.pieces[1]);
        (1.0 - undisturbed / self.typical).clamp(0.0, 1.0)
    }
}

/// Loops of one visit follow each other closely; two visits are at least 1/24 of the window apart.
const VISIT_APART: u64 = 24;

/// The fastest loop without the loops of the best visit; if there is one visit only, its second fastest loop.
fn but_one_visit<'l>(loops: impl Iterator<Item = &'l Loop>, window_ns: u64) -> Option<f64> {
    let mut visits: Vec<Vec<f64>> = Vec::new();
    let mut ended = None;
    for turn in loops {
        let follows = |ended: u64| turn.at_ns.saturating_sub(ended) < window_ns / VISIT_APART;
        if !ended.is_some_and(follows) {
            visits.push(Vec::new());
        }
        ended = Some(turn.at_ns.saturating_add(turn.wall_ns));
        if let Some(visit) = visits.last_mut() {
            visit.extend(gained(turn));
        }
    }
    for visit in &mut visits {
        visit.sort_by(f64::total_cmp);
    }
    visits.retain(|visit| !visit.is_empty());
    visits.sort_by(|a, b| f64::total_cmp(&a[0], &b[0]));
    let alone = || visits.first()?.get(1).copied();
    visits.get(1).and_then(|visit| visit.first().copied()).or_else(alone)
}

/// The time that the loop's thread got, for a thousand additions.
///
/// The thread reads its wait outside the two reads of the clock, so that part of the wait may lie outside the wall time: the CPU time
/// is a lower bound. Where the wait is not known, the CPU time is all there is.
fn gained(turn: &Loop) -> Option<f64> {
    let cpu = turn.cpu_ns.min(turn.wall_ns);
    let got = turn.wait_ns.map_or(cpu, |wait| turn.wall_ns.saturating_sub(wait).max(cpu));
    (got > 0 && turn.work > 0).then(|| got as f64 * ADDITIONS / turn.work as f64)
}

fn piece(turn: &Loop) -> Option<f64> {
    let work = turn.work.checked_div(turn.pieces).filter(|work| *work > 0)?;
    // A clock as coarse as the tick does not move during a piece: then only the time of the whole loop is known.
    let best = if turn.best_ns == 0 { gained(turn)? } else { turn.best_ns as f64 * ADDITIONS / work as f64 };
    best.is_finite().then_some(best)
}

/// Ticks of the time stamp counter a microsecond: the median of the loops.
fn nominal(row: &Speed) -> Option<f64> {
    let mut all: Vec<f64> = row
        .loops
        .iter()
        .filter(|l| l.wall_ns > 0)
        .map(|l| l.ticks as f64 * 1000.0 / l.wall_ns as f64)
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub const WINDOW: u64 = 10_000_000_000;

    /// Twelve loops of 2 ms: `mhz` additions a microsecond, of which `taken` is lost to interrupts.
    pub fn speed(cpu: u32, mhz: u64, taken: f64) -> Speed {
        let turn = |at: u64| {
            let wall_ns = 2_000_000;
            let work = (wall_ns as f64 * mhz as f64 / 1000.0 * (1.0 - taken)) as u64;
            let pieces = (work / 65_536).max(1);
            let best_ns = work / pieces * 1000 / mhz;
            let (cpu_ns, ticks) = (wall_ns, wall_ns * 26 / 10);
            Loop { at_ns: at * WINDOW / 12, wall_ns, cpu_ns, wait_ns: Some(0), work, pieces, best_ns, ticks }
        };
        Speed { cpu, loops: (0..12).map(turn).collect(), cycle_exact: true, ..Speed::default() }
    }

    #[test]
    fn a_core_that_is_slow_is_reported_from_one_that_is_interrupted() {
        let slow = Measured::of(&speed(0, 1000, 0.0), WINDOW).unwrap();
        let robbed = Measured::of(&speed(0, 4000, 0.75), WINDOW).unwrap();
        assert!((slow.typical - 1000.0).abs() < 5.0 && (robbed.typical - 1000.0).abs() < 5.0);
        assert!(slow.taken() < 0.01 && (robbed.taken() - 0.75).abs() < 0.01);
        assert!((slow.mhz.unwrap() - 1000.0).abs() < 5.0 && (robbed.mhz.unwrap() - 4000.0).abs() < 5.0);
        assert!((slow.nominal_mhz.unwrap() - 2600.0).abs() < 1.0);
    }

    #[test]
    fn a_wait_for_the_cpu_is_not_the_cpus() {
        let mut row = speed(0, 4000, 0.0);
        for turn in &mut row.loops {
            turn.wall_ns += 30_000_000;
            turn.wait_ns = Some(30_000_000);
        }
        assert!((Measured::of(&row, WINDOW).unwrap().typical - 250.0).abs() < 1.0);
        // The wait began before the thread read the clock.
        let spoilt = Loop { wait_ns: Some(60_000_000), ..row.loops[0] };
        assert!((gained(&spoilt).unwrap() - 250.0).abs() < 1.0);
    }

    #[test]
    fn of_too_few_loops_nothing_is_reported() {
        let mut row = speed(0, 4000, 0.0);
        row.loops.truncate(7);
        assert_eq!(Measured::of(&row, WINDOW), None);
        assert_eq!(Measured::of(&Speed::default(), 0), None);
    }

    #[test]
    fn an_emulator_has_no_frequency() {
        let row = Speed { cycle_exact: false, ..speed(0, 4000, 0.0) };
        let seen = Measured::of(&row, WINDOW).unwrap();
        assert_eq!((seen.mhz, seen.nominal_mhz, seen.busy_mhz), (None, None, None));
    }

    #[test]
    fn busy_mhz_is_the_nominal_frequency_by_cycles_and_reference_cycles() {
        let counted = |busy_cycles, reference_cycles| {
            let row = Speed { busy_cycles, reference_cycles, ..speed(0, 4000, 0.0) };
            Measured::of(&row, WINDOW).unwrap().busy_mhz
        };
        assert!((counted(3_000_000, 2_000_000).unwrap() - 3900.0).abs() < 2.0);
        assert_eq!((counted(3_000_000, 0), counted(0, 2_000_000)), (None, None));
    }

    proptest::proptest! {
        #[test]
        fn no_row_makes_it_panic(numbers in proptest::collection::vec(proptest::arbitrary::any::<u64>(), 8 * 8), window in proptest::arbitrary::any::<u64>()) {
            let turn = |n: &[u64]| Loop {
                at_ns: n[0], wall_ns: n[1], cpu_ns: n[2], wait_ns: Some(n[3]), work: n[4], pieces: n[5],
                best_ns: n[6], ticks: n[7],
            };
            let loops = numbers.chunks_exact(8).map(turn).collect();
            let row = Speed { loops, cycle_exact: true, busy_cycles: window, ..Speed::default() };
            if let Some(seen) = Measured::of(&row, window) {
                proptest::prop_assert!((0.0..=1.0).contains(&seen.taken()) || seen.taken().is_nan());
            }
        }
    }
}
