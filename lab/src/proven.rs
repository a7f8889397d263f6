//! `lab proven`: what one run of tests has proven, one row for each suite, and how often a failed test ran again until it passed.
//!
//! Each test and each cell has a row of its own (`whyslow_faults::proven`). A failure counts where it happens; this command decides only
//! one thing: in a run in which many tests failed at first, luck hides a defect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use whyslow_faults::proven::{Ended, Row};

use crate::Trouble;

/// What to sum up.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// The rows that the tests wrote (`WHYSLOW_PROVEN`).
    rows: PathBuf,
    /// Number of tests that may fail before they pass.
    #[arg(long, value_name = "N")]
    most_retried: Option<u64>,
}

/// Characters of a reason that are reported: the log may be gone when it is needed.
const WORDS: usize = 600;

/// Print the table; returns 1 if there is no row, or if more tests failed at first than allowed.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    let rows =
        Row::all(&asked.rows).map_err(|err| Trouble::new(format!("read {}", asked.rows.display()), err))?;
    let (table, retried) = sum(&rows);
    println!("{table}");
    let too_many = asked.most_retried.is_some_and(|most| retried > most);
    if too_many {
        println!("proven: {retried} tests failed at first: too many to be bad luck");
    }
    Ok(ExitCode::from(u8::from(rows.is_empty() || too_many)))
}

/// The results of one suite.
#[derive(Debug, Default, Clone)]
struct Count {
    by: BTreeMap<Ended, usize>,
    redrawn: u64,
    retried: u64,
}

impl Count {
    fn of(&self, ended: Ended) -> usize {
        self.by.get(&ended).copied().unwrap_or(0)
    }

    /// Number of cells that this run had to prove.
    fn required(&self) -> usize {
        self.by.iter().filter(|(ended, _)| **ended != Ended::NotDrawn).map(|(_, n)| n).sum()
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<16} {:>8} {:>6} {:>6} {:>8} {:>7} {:>7} {:>7} {:>9}",
            self.required(),
            self.of(Ended::Passed),
            self.of(Ended::Failed),
            self.of(Ended::NotIdle),
            self.of(Ended::NotRun),
            self.retried,
            self.redrawn,
            self.of(Ended::NotDrawn),
        )
    }
}

/// The table, and the number of failures before a pass.
fn sum(rows: &[Row]) -> (String, u64) {
    let mut suites: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for row in rows {
        for count in [suites.entry(&row.suite).or_default(), &mut all] {
            *count.by.entry(row.ended).or_default() += 1;
            count.redrawn += row.redrawn;
            count.retried += u64::from(row.retried > 0);
        }
    }
    let mut text = format!(
        "{:<16} {:>8} {:>6} {:>6} {:>8} {:>7} {:>7} {:>7} {:>9}\n",
        "suite", "required", "passed", "failed", "not idle", "not run", "retried", "redrawn", "not drawn"
    );
    for (name, count) in &suites {
        let _ = writeln!(text, "{}", count.line(name));
    }
    let _ = writeln!(text, "{}", all.line("all"));
    let unproven = rows.iter().filter(|row| !matches!(row.ended, Ended::Passed | Ended::NotDrawn));
    for row in unproven {
        let why: String = row.why.chars().take(WORDS).collect();
        let _ = writeln!(text, "  {} {}: {:?} {why}", row.suite, row.cell, row.ended);
    }
    let (required, passed) = (all.required(), all.of(Ended::Passed));
    let percent = passed as f64 * 100.0 / required.max(1) as f64;
    let _ = write!(text, "proven: {passed} of {required} required cells ({percent:.1} %)");
    (text, all.retried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(suite: &str, ended: Ended, retried: u64) -> Row {
        Row { redrawn: 1, retried, why: "why".to_owned(), ..Row::of(suite, "x", ended) }
    }

    #[test]
    fn each_suite_has_a_line_and_what_was_not_proven_has_one_too() {
        let rows = [
            row("live", Ended::Passed, 0),
            row("live", Ended::NotIdle, 0),
            row("live", Ended::NotDrawn, 0),
            row("functional", Ended::Failed, 2),
        ];
        let (text, retried) = sum(&rows);
        assert_eq!(retried, 1, "a test counts once, however often it failed");
        let lines: Vec<&str> = text.lines().collect();
        let of = |name: &str| {
            let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("live"), ["2", "1", "0", "1", "0", "0", "3", "1"]);
        assert_eq!(of("all"), ["3", "1", "1", "1", "0", "1", "4", "1"]);
        assert!(
            lines.contains(&"  functional x: Failed why") && lines.contains(&"  live x: NotIdle why"),
            "{text}"
        );
        assert!(text.ends_with("proven: 1 of 3 required cells (33.3 %)"), "{text}");
    }

    fn status(rows: &[Row], most_retried: Option<u64>) -> ExitCode {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        run(&Asked { rows: file.path().to_owned(), most_retried }).unwrap()
    }

    #[test]
    fn three_tests_may_fail_at_first_and_four_are_no_luck() {
        let passed_late = |n| vec![row("functional", Ended::Passed, 1); n];
        assert_eq!(status(&passed_late(3), Some(3)), ExitCode::SUCCESS);
        assert_eq!(status(&passed_late(4), Some(3)), ExitCode::from(1));
        assert_eq!(status(&passed_late(4), None), ExitCode::SUCCESS);
        assert_eq!(status(&[], None), ExitCode::from(1), "nothing was proven");
    }
}
