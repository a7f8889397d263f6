//! How often whyslow was right, and what went wrong: by luck, or again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use whyslow_faults::proven::Ended;
use whyslow_faults::wrong::Sort;

use super::kept::{Kept, Made};

/// Largest number of tries of a cell that went wrong, including the first.
const TIMES: usize = 6;
/// So many failures are not bad luck.
const DEFECT: usize = 3;
/// After so many false accusations with one seed, whyslow is the cause, not luck.
const FALSE_AGAIN: usize = 2;
/// 95 % of a standard normal distribution are within so many deviations.
const Z: f64 = 1.96;

/// The state of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Not made yet.
    New,
    /// Right the first time.
    Right,
    /// Not made, or the scenario did not come about.
    Void,
    /// Wrong once; it must be made again.
    Open,
    /// Wrong, but right more often.
    Unlucky,
    /// Wrong, and the scenario hardly came about again.
    Unsettled,
    /// Wrong again and again.
    Defect,
}

/// From all its tries, in order.
pub fn standing(cell: &[&Made]) -> Standing {
    let count = |ended: Ended| cell.iter().filter(|made| made.row.ended == ended).count();
    let accused = cell.iter().filter(|made| made.row.wrong == Some(Sort::False)).count();
    let (failed, passed) = (count(Ended::Failed), count(Ended::Passed));
    match cell.first().map(|first| first.row.ended) {
        None => Standing::New,
        Some(Ended::Passed) => Standing::Right,
        Some(Ended::Failed) if failed >= DEFECT || accused >= FALSE_AGAIN => Standing::Defect,
        // Whatever the result of the other tries.
        Some(Ended::Failed) if passed > TIMES - DEFECT => Standing::Unlucky,
        Some(Ended::Failed) if cell.len() < TIMES => Standing::Open,
        Some(Ended::Failed) if passed >= DEFECT => Standing::Unlucky,
        Some(Ended::Failed) => Standing::Unsettled,
        Some(_) => Standing::Void,
    }
}

/// A count out of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The count.
    pub of_these: usize,
    /// The total.
    pub all: usize,
}

impl Part {
    /// The 95 % interval of the share, in percent (Wilson's, which also holds for small numbers).
    pub fn interval(self) -> [f64; 2] {
        let n = self.all as f64;
        if n == 0.0 {
            return [0.0, 100.0];
        }
        let share = self.of_these as f64 / n;
        let middle = share + Z * Z / (2.0 * n);
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        [middle - half, middle + half].map(|bound| (100.0 * bound / (1.0 + Z * Z / n)).clamp(0.0, 100.0))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.interval();
        write!(f, "{} ({low:.0}-{high:.0} %)", self.of_these)
    }
}

/// The results of one suite on one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The first answers; `None`: the test broke down, or a limit on cost was exceeded.
    wrong: BTreeMap<Option<Sort>, usize>,
    right: usize,
    /// Other processes used the host, the scenario did not come about, or the host lacks something.
    void: usize,
}

impl Tally {
    /// Right, inexact, missed, false, cannot tell, broken.
    pub fn parts(&self) -> [Part; 6] {
        let all = self.judged();
        let of = |sort: Option<Sort>| self.wrong.get(&sort).copied().unwrap_or(0);
        let sorts = [Sort::Inexact, Sort::Missed, Sort::False, Sort::CannotTell].map(|sort| of(Some(sort)));
        let [inexact, missed, falsely, blind] = sorts;
        [self.right, inexact, missed, falsely, blind, of(None)].map(|of_these| Part { of_these, all })
    }

    /// Number of judged cells.
    pub fn judged(&self) -> usize {
        self.right + self.wrong.values().sum::<usize>()
    }

    #[cfg(test)]
    pub fn of_one() -> Self {
        Tally { right: 1, ..Tally::default() }
    }

    /// Number of cells that were not judged.
    pub fn void(&self) -> usize {
        self.void
    }
}

/// A cell that went wrong the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Suite and kernel.
    pub of: (String, String),
    /// The cell.
    pub cell: String,
    /// Luck or defect.
    pub standing: Standing,
    /// One line.
    pub text: String,
}

/// The result of a proof.
#[derive(Debug, Clone, Default)]
pub struct Score {
    /// By suite and kernel.
    pub tallies: BTreeMap<(String, String), Tally>,
    /// The failures.
    pub faults: Vec<Fault>,
    /// All cells that were judged, by suite and kernel.
    pub cells: BTreeSet<(String, String, String)>,
}

/// Characters of a failure's reason that are reported.
const WORDS: usize = 300;

impl Score {
    /// Summarises the results of these items.
    pub fn of<'i>(kept: &Kept, items: impl Iterator<Item = &'i str>) -> Self {
        let mut score = Score::default();
        items.for_each(|item| score.add(&kept.of(item), kept.head().seed));
        score.faults.sort_by(|a, b| (b.standing, &a.of, &a.text).cmp(&(a.standing, &b.of, &b.text)));
        score
    }

    fn add(&mut self, making: &[&Made], seed: u64) {
        let Some(first) = making.first().filter(|first| first.row.ended != Ended::NotDrawn) else { return };
        let of = (first.row.suite.clone(), first.kernel.clone());
        let tally = self.tallies.entry(of.clone()).or_default();
        let (standing, cell) = (standing(making), first.row.cell.clone());
        if standing == Standing::Void {
            tally.void += 1;
            return;
        }
        self.cells.insert((of.0.clone(), of.1.clone(), cell.clone()));
        if standing == Standing::Right {
            tally.right += 1;
            return;
        }
        *tally.wrong.entry(first.row.wrong).or_default() += 1;
        let failed = making.iter().filter(|made| made.row.ended == Ended::Failed).count();
        let why: String = first.row.why.chars().take(WORDS).collect();
        let text = format!("{failed} of {}, seed {seed}: {why}", making.len());
        self.faults.push(Fault { of, cell, standing, text });
    }

    /// Number of judged cells.
    pub fn judged(&self) -> usize {
        self.cells.len()
    }

    /// Whether a cell goes wrong again and again.
    pub fn has_defect(&self) -> bool {
        self.faults.iter().any(|fault| fault.standing == Standing::Defect)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:<9} {:>6}  {:<15} {:<15} {:<15} {:<15} {:<15} {:<15} {:>8}",
            "suite",
            "Linux",
            "judged",
            "right",
            "inexact",
            "missed",
            "false",
            "cannot tell",
            "broken",
            "not made"
        )?;
        for ((suite, kernel), tally) in &self.tallies {
            let parts: Vec<String> =
                tally.parts().map(|part| format!("{part:<15}", part = part.to_string())).to_vec();
            writeln!(
                f,
                "{suite:<16} {kernel:<9} {:>6}  {} {:>8}",
                tally.judged(),
                parts.join(" "),
                tally.void
            )?;
        }
        for fault in &self.faults {
            let (suite, kernel) = &fault.of;
            writeln!(f, "{:?}: {suite} {kernel} `{}` {}", fault.standing, fault.cell, fault.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use whyslow_faults::proven::Row;

    use super::*;

    fn made(ended: Ended, wrong: Option<Sort>) -> Made {
        let row = Row { wrong, ..Row::of("days", "a", ended) };
        Made { item: "i".to_owned(), kernel: "6.1".to_owned(), row }
    }

    fn of(times: &str) -> Standing {
        let one = |letter: char| match letter {
            'p' => made(Ended::Passed, None),
            'm' => made(Ended::Failed, Some(Sort::Missed)),
            'f' => made(Ended::Failed, Some(Sort::False)),
            _ => made(Ended::NotIdle, None),
        };
        let all: Vec<Made> = times.chars().map(one).collect();
        standing(&all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn three_failures_of_six_are_a_defect_and_fewer_are_bad_luck() {
        for (times, expected) in [
            ("", Standing::New),
            ("p", Standing::Right),
            ("-", Standing::Void),
            ("m", Standing::Open),
            ("mmp", Standing::Open),
            ("mmm", Standing::Defect),
            ("mpmppm", Standing::Defect),
            ("mpppp", Standing::Unlucky),
            ("mppp", Standing::Open),
            ("mpmppp", Standing::Unlucky),
            ("m--p--", Standing::Unsettled),
            ("m--ppp", Standing::Unlucky),
            ("ff", Standing::Defect),
            ("fmpp", Standing::Open),
            ("fpppp", Standing::Unlucky),
        ] {
            assert_eq!(of(times), expected, "{times}");
        }
    }

    #[test]
    fn an_interval_holds_for_small_numbers_too() {
        let interval = |of_these, all| Part { of_these, all }.interval().map(|bound| bound.round());
        // As tables of Wilson's interval have them.
        assert_eq!(interval(0, 10), [0.0, 28.0]);
        assert_eq!(interval(10, 10), [72.0, 100.0]);
        assert_eq!(interval(5, 10), [24.0, 76.0]);
        assert_eq!(interval(1, 100), [0.0, 5.0]);
        assert_eq!(interval(0, 0), [0.0, 100.0]);
        assert_eq!(Part { of_these: 5, all: 10 }.to_string(), "5 (24-76 %)");
    }

    #[test]
    fn shares_are_those_of_the_first_time() {
        let mut score = Score::default();
        let right = made(Ended::Passed, None);
        let (missed, falsely) =
            (made(Ended::Failed, Some(Sort::Missed)), made(Ended::Failed, Some(Sort::False)));
        let broken = made(Ended::Failed, None);
        for cell in [
            vec![&right],
            vec![&missed, &right, &right, &right, &right],
            vec![&falsely, &falsely],
            vec![&broken],
        ] {
            score.add(&cell, 7);
        }
        score.add(&[&made(Ended::NotIdle, None)], 7);
        score.add(&[&made(Ended::NotDrawn, None)], 7);
        let tally = &score.tallies[&("days".to_owned(), "6.1".to_owned())];
        assert_eq!(tally.parts().map(|part| part.of_these), [1, 0, 1, 1, 0, 1]);
        assert_eq!((tally.judged(), tally.void()), (4, 1));
        assert_eq!(score.faults.len(), 3);
        assert!(
            score.has_defect() && score.faults[0].text.starts_with("1 of 5, seed 7"),
            "{:?}",
            score.faults
        );
    }
}
