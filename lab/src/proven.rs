//! `lab proven`: what one run of all tests has proven, a row a suite, and whether that is enough.
//!
//! The live tests and the lab note a row a cell (`whyslow_faults::proven`); of the other tests that need root the log of the
//! harness tells. A cell that is required and was not proven counts against the run, whoever is to blame.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use whyslow_faults::proven::{Ended, Row};

use crate::Trouble;

/// What to sum up.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// The rows that the tests noted (`WHYSLOW_PROVEN`).
    rows: PathBuf,
    /// What the harness of the tests printed.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Suites that were not to be run: "lab", "root" for all live tests.
    #[arg(long, value_name = "SUITE")]
    without: Vec<String>,
}

/// Of the required cells so many must be proven: a host may be disturbed now and then, not always.
const ENOUGH_PERCENT: usize = 95;
/// Of why a cell was not proven so many characters are reported: the log may be gone when somebody asks.
const WORDS: usize = 600;
/// Suites that note their cells. Where one noted nothing, nothing was proven.
const SUITES: [&str; 4] = ["live", "lock_chains", "spin", "lab"];

/// Print the table; 1 if not enough was proven.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    let text = fs::read_to_string(&asked.rows).unwrap_or_default();
    let mut rows = Vec::new();
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).map_err(|err| {
            Trouble::new(format!("read {}", asked.rows.display()), format!("{err}: {line}"))
        })?;
        rows.push(row);
    }
    let log = asked.log.as_ref().map(|path| fs::read(path).unwrap_or_default()).unwrap_or_default();
    rows.extend(of_log(&String::from_utf8_lossy(&log), &rows));
    let is_wanted = |suite: &&str| {
        let of_root = *suite != "lab" && asked.without.iter().any(|without| without == "root");
        !of_root && !asked.without.iter().any(|without| without == suite)
    };
    let wanted: Vec<&str> = SUITES.into_iter().filter(is_wanted).collect();
    let (table, is_enough) = sum(&rows, &wanted);
    panics(&String::from_utf8_lossy(&log)).iter().for_each(|what| println!("  {what}"));
    println!("{table}");
    Ok(ExitCode::from(u8::from(!is_enough)))
}

/// Tests of other binaries than those that note their cells themselves: each is one, passed or failed, or "not run" as it says
/// itself (`--show-output` prints that of those that passed). Of a suite that is among `cells` each cell has its row already.
fn of_log(log: &str, cells: &[Row]) -> Vec<Row> {
    let by_cell: BTreeSet<&str> = cells.iter().map(|row| row.suite.as_str()).chain(SUITES).collect();
    let (mut rows, mut suite) = (Vec::new(), String::new());
    for line in log.lines() {
        if let Some(binary) = line.trim().strip_prefix("Running ").and_then(|rest| rest.split_once('(')) {
            suite = suite_of(binary.1.trim_end_matches(')'));
        }
        let is_noted = by_cell.contains(suite.as_str());
        let ended = if let Some(why) = line.strip_prefix("not run: ") {
            Some((Ended::NotRun, why))
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            let of = |word: &str| number_before(counts, word);
            let row = |ended, n| (0..n).map(move |_| (ended, ""));
            let all = row(Ended::Passed, of(" passed")).chain(row(Ended::Failed, of(" failed")));
            if !is_noted {
                rows.extend(all.map(|(ended, why)| noted(&suite, ended, why)));
            }
            None
        } else {
            None
        };
        rows.extend(ended.filter(|_| !is_noted).map(|(ended, why)| noted(&suite, ended, why)));
    }
    less_those_not_run(rows)
}

/// What each test that failed said last: where, and what it had instead.
fn panics(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let begins = |line: &str| line.starts_with("thread '") && line.contains("panicked at ");
    let at = (0..lines.len()).filter(|i| begins(lines[*i]));
    let reported = at.map(|i| {
        let said = lines[i + 1..].iter().take_while(|line| !line.is_empty() && !line.starts_with("note: "));
        let all: Vec<&str> = std::iter::once(lines[i]).chain(said.copied()).collect();
        all.join(" / ").chars().take(WORDS).collect()
    });
    reported.collect()
}

fn noted(suite: &str, ended: Ended, why: &str) -> Row {
    Row { suite: suite.to_owned(), cell: suite.to_owned(), ended, redrawn: 0, why: why.to_owned() }
}

/// A test that says that it was not run has passed, too, by the harness.
fn less_those_not_run(rows: Vec<Row>) -> Vec<Row> {
    let mut not_run: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.ended == Ended::NotRun) {
        *not_run.entry(row.suite.clone()).or_default() += 1;
    }
    let mut is_left = |row: &Row| match not_run.get_mut(&row.suite) {
        Some(left) if row.ended == Ended::Passed && *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    rows.into_iter().filter(|row| is_left(row)).collect()
}

/// "target/.../deps/whyslow_probe-0123abcd": whyslow_probe.
fn suite_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned()
}

fn number_before(text: &str, word: &str) -> usize {
    let before = text.split(word).next().unwrap_or("");
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    if text.contains(word) { digits.parse().unwrap_or(0) } else { 0 }
}

/// What came of one suite.
#[derive(Debug, Default, Clone)]
struct Count {
    by: BTreeMap<Ended, usize>,
    redrawn: u64,
}

impl Count {
    fn of(&self, ended: Ended) -> usize {
        self.by.get(&ended).copied().unwrap_or(0)
    }

    /// All that this run had to prove.
    fn required(&self) -> usize {
        self.by.iter().filter(|(ended, _)| **ended != Ended::NotDrawn).map(|(_, n)| n).sum()
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<16} {:>8} {:>6} {:>6} {:>8} {:>7} {:>7} {:>9}",
            self.required(),
            self.of(Ended::Passed),
            self.of(Ended::Failed),
            self.of(Ended::NotIdle),
            self.of(Ended::NotRun),
            self.redrawn,
            self.of(Ended::NotDrawn),
        )
    }
}

/// What a kernel does not have nobody can install: such a test is listed, and not required.
fn can_be_had(row: &Row) -> bool {
    ["cannot run", "there is no", "needs root", "install"].iter().any(|words| row.why.contains(words))
        || SUITES.contains(&row.suite.as_str())
}

/// The table, and whether enough was proven.
fn sum(rows: &[Row], wanted: &[&str]) -> (String, bool) {
    let mut suites: BTreeMap<&str, Count> = wanted.iter().map(|suite| (*suite, Count::default())).collect();
    let mut all = Count::default();
    let mut unproven = Vec::new();
    for row in rows {
        let ended = if row.ended == Ended::NotRun && !can_be_had(row) { Ended::NotDrawn } else { row.ended };
        for count in [suites.entry(&row.suite).or_default(), &mut all] {
            *count.by.entry(ended).or_default() += 1;
            count.redrawn += row.redrawn;
        }
        if !matches!(ended, Ended::Passed | Ended::NotDrawn) {
            unproven.push(format!(
                "  {} {}: {:?} {}",
                row.suite,
                row.cell,
                ended,
                row.why.chars().take(WORDS).collect::<String>()
            ));
        }
    }
    let mut text = format!(
        "{:<16} {:>8} {:>6} {:>6} {:>8} {:>7} {:>7} {:>9}\n",
        "suite", "required", "passed", "failed", "not idle", "not run", "redrawn", "not drawn"
    );
    for (name, count) in &suites {
        let _ = writeln!(text, "{}", count.line(name));
    }
    let _ = writeln!(text, "{}", all.line("all"));
    unproven.iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    let empty: Vec<&str> = wanted.iter().copied().filter(|suite| suites[suite].required() == 0).collect();
    let (required, passed) = (all.required(), all.of(Ended::Passed));
    let mut wrong = Vec::new();
    if passed * 100 < required * ENOUGH_PERCENT || required == 0 {
        wrong.push(format!("fewer than {ENOUGH_PERCENT} %"));
    }
    if !empty.is_empty() {
        wrong.push(format!("nothing of {}", empty.join(", ")));
    }
    if all.of(Ended::NotRun) > 0 {
        wrong.push(format!("{} not run that could be", all.of(Ended::NotRun)));
    }
    if all.of(Ended::Failed) > 0 {
        wrong.push(format!("{} failed", all.of(Ended::Failed)));
    }
    let verdict =
        if wrong.is_empty() { "enough".to_owned() } else { format!("NOT ENOUGH: {}", wrong.join(", ")) };
    let percent = passed as f64 * 100.0 / required.max(1) as f64;
    let _ = write!(text, "proven: {passed} of {required} required cells ({percent:.1} %): {verdict}");
    (text, wrong.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(suite: &str, ended: Ended, n: usize) -> Vec<Row> {
        (0..n).map(|_| noted(suite, ended, "")).collect()
    }

    fn of(parts: &[(&str, Ended, usize)]) -> Vec<Row> {
        parts.iter().flat_map(|(suite, ended, n)| rows(suite, *ended, *n)).collect()
    }

    #[test]
    fn nineteen_of_twenty_are_enough_and_fewer_are_not() {
        let wanted = ["live"];
        let mut all =
            of(&[("live", Ended::Passed, 19), ("live", Ended::NotIdle, 1), ("live", Ended::NotDrawn, 40)]);
        let (text, is_enough) = sum(&all, &wanted);
        assert!(is_enough && text.ends_with("proven: 19 of 20 required cells (95.0 %): enough"), "{text}");
        all.extend(rows("live", Ended::NotIdle, 1));
        assert!(!sum(&all, &wanted).1);
    }

    #[test]
    fn what_failed_was_not_run_or_noted_nothing_is_never_enough() {
        let good = of(&[("live", Ended::Passed, 99)]);
        let with = |ended| [good.clone(), rows("live", ended, 1)].concat();
        assert!(sum(&good, &["live"]).1);
        assert!(!sum(&with(Ended::Failed), &["live"]).1 && !sum(&with(Ended::NotRun), &["live"]).1);
        assert!(!sum(&good, &["live", "lab"]).1 && !sum(&[], &[]).1);
    }

    const LOG: &str = "     Running unittests src/lib.rs (target/x/release/deps/whyslow_probe-0123abcd)
running 3 tests
test a::root_b ... ok
---- a::root_b stdout ----
not run: one CPU
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.0s
     Running tests/live/main.rs (target/x/release/deps/live-0123abcd)
test result: FAILED. 7 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.0s
     Running tests/spinners.rs (target/x/release/deps/spinners-0123abcd)
not run: there is no java here
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.0s
";

    #[test]
    fn a_panic_is_reported_with_its_place_and_words() {
        let log = "---- a::root_b stdout ----\n\nthread 'a::root_b' (7) panicked at crates/x.rs:46:5:\nassertion `left == right` failed: \
                   looked\n  left: Some(2)\n right: Some(0)\nnote: run with `RUST_BACKTRACE=1`\n\nfailures:\n";
        let reported = panics(log);
        assert_eq!(reported.len(), 1);
        assert!(
            reported[0].contains("crates/x.rs:46:5") && reported[0].ends_with("right: Some(0)"),
            "{reported:?}"
        );
        assert!(panics(LOG).is_empty());
    }

    #[test]
    fn a_log_counts_what_notes_nothing_itself() {
        let rows = of_log(LOG, &[]);
        let count =
            |suite: &str, ended| rows.iter().filter(|row| row.suite == suite && row.ended == ended).count();
        assert_eq!((count("whyslow_probe", Ended::Passed), count("whyslow_probe", Ended::NotRun)), (2, 1));
        assert_eq!((count("spinners", Ended::Failed), count("spinners", Ended::NotRun)), (1, 1));
        assert_eq!(count("live", Ended::Passed) + count("live", Ended::Failed), 0);
        let (text, is_enough) = sum(&rows, &[]);
        assert!(!is_enough && text.contains("1 not run that could be"), "{text}");
    }

    #[test]
    fn a_cell_that_noted_its_row_is_not_counted_from_the_log_again() {
        let log = "     Running tests/masks.rs (target/x/release/deps/masks-0123abcd)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.0s
";
        let mut all = rows("masks", Ended::NotIdle, 1);
        all.extend(of_log(log, &all));
        let (text, is_enough) = sum(&all, &[]);
        assert!(!is_enough && text.contains("proven: 0 of 1 required cells"), "{text}");
    }
}
