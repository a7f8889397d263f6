//! docs/truth.md: one row for each suite and kernel. A proof of one suite leaves the rows of the others unchanged.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::{fs, io};

use super::score::{Fault, Score, Standing, Tally};
use crate::Trouble;

const HEAD: &str = "\
# Right, missed, false: what whyslow said of what was made

`make proof` makes pathologies, their healthy twins and honest load on real kernels, has whyslow look, and compares what it says with the
clocks of the victims and with what was drawn; never with anything that whyslow reads. This page is written by it.

- *right*: the victim, the culprit and the rule are named, and the time is within the bar of the suite; of a twin or of honest load: no task, group or CPU is accused
- *inexact*: named, but the time, the place in the list or the fix is not right
- *missed*: what was made is not in the answer, or there is no whole answer
- *false*: a task, a group or a CPU is accused that cost nobody anything
- *cannot tell*: whyslow says that it could not look
- *broken*: the test itself broke down; in the suite `costs`: looking cost more than its bar
- *not made*: by the clocks of the test it did not come about, others used the host, or what it needs is not here: not judged

Each share has its interval of 95 % (Wilson). Counted is the first time that a cell is judged. A cell that goes wrong is made again with its own
seed: three failures of six, or a false accusation that comes again, is a defect; else it was bad luck. What went wrong stays listed until its
cell is made again. Cells are drawn: no two proofs make the same. `host` is the kernel of a machine, all others run in an emulator.

| suite | Linux | judged | right | inexact | missed | false | cannot tell | broken | not made | commit | date |
|---|---|---|---|---|---|---|---|---|---|---|---|
";
const DEFECTS: &str = "\n## Defects\n\n";
const LUCK: &str = "\n## Bad luck, and what was not settled\n\n";

/// Suite and kernel.
type Key = (String, String);

/// The page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    rows: BTreeMap<Key, String>,
    /// By suite, kernel and cell.
    defects: BTreeMap<(String, String, String), String>,
    luck: BTreeMap<(String, String, String), String>,
}

impl Page {
    /// The published page; empty, if there is none yet.
    pub fn read(path: &Path) -> Result<Self, Trouble> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Page::parse(&text)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Page::default()),
            Err(err) => Err(Trouble::new(format!("read {}", path.display()), err)),
        }
    }

    fn parse(text: &str) -> Self {
        let mut page = Page::default();
        let head = HEAD.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>();
        let mut in_luck = false;
        for line in text.lines() {
            in_luck |= line == LUCK.trim();
            if let Some(row) = line.strip_prefix("| ").filter(|_| !head.contains(&line)) {
                let mut words = row.split(" | ");
                if let (Some(suite), Some(kernel)) = (words.next(), words.next()) {
                    page.rows.insert((suite.to_owned(), kernel.to_owned()), line.to_owned());
                }
            }
            let list = if in_luck { &mut page.luck } else { &mut page.defects };
            list.extend(cell(line).map(|cell| (cell, line.to_owned())));
        }
        page
    }

    /// Adds the results of a proof: they replace the earlier results of these suites on these kernels, if something was judged. A failure
    /// stays until its cell is made again.
    #[must_use]
    pub fn with(mut self, score: &Score, commit: &str, date: &str) -> Self {
        for (key, tally) in score.tallies.iter().filter(|(_, tally)| tally.judged() > 0) {
            self.rows.insert(key.clone(), row(key, tally, commit, date));
        }
        for list in [&mut self.defects, &mut self.luck] {
            list.retain(|cell, _| !score.cells.contains(cell));
        }
        for fault in &score.faults {
            let list = if fault.standing == Standing::Defect { &mut self.defects } else { &mut self.luck };
            let (suite, kernel) = fault.of.clone();
            list.insert((suite, kernel, fault.cell.clone()), item(fault, commit));
        }
        self
    }

    /// Publish it.
    pub fn write(&self, path: &Path) -> Result<(), Trouble> {
        fs::write(path, self.to_string())
            .map_err(|err| Trouble::new(format!("write {}", path.display()), err))
    }
}

fn row((suite, kernel): &Key, tally: &Tally, commit: &str, date: &str) -> String {
    let mut text = format!("| {suite} | {kernel} | {} |", tally.judged());
    for part in tally.parts() {
        let _ = write!(text, " {part} |");
    }
    let _ = write!(text, " {} | {commit} | {date} |", tally.void());
    text
}

fn item(fault: &Fault, commit: &str) -> String {
    let (suite, kernel) = &fault.of;
    let unsettled = if fault.standing == Standing::Unsettled { "not settled, " } else { "" };
    format!("- {suite} {kernel} `{}` {unsettled}{commit}, {}", fault.cell, fault.text)
}

/// The cell of such a line.
fn cell(line: &str) -> Option<(String, String, String)> {
    let (suite, rest) = line.strip_prefix("- ")?.split_once(' ')?;
    let (kernel, rest) = rest.split_once(" `")?;
    let (cell, _) = rest.split_once("` ")?;
    Some((suite.to_owned(), kernel.to_owned(), cell.to_owned()))
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.rows.values().try_for_each(|row| writeln!(f, "{row}"))?;
        for (head, list) in [(DEFECTS, &self.defects), (LUCK, &self.luck)] {
            f.write_str(head)?;
            list.values().try_for_each(|line| writeln!(f, "{line}"))?;
            if list.is_empty() {
                writeln!(f, "None.")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a suite in which one cell was made, and another one was right.
    fn score(suite: &str, cell: &str, standing: Option<Standing>) -> Score {
        let of = (suite.to_owned(), "host 6.1".to_owned());
        let text = "3 of 4, seed 7: no | chain".to_owned();
        let fault = |standing| Fault { of: of.clone(), cell: cell.to_owned(), standing, text };
        let faults = standing.map(fault).into_iter().collect();
        let cells = [cell, "right"].map(|cell| (of.0.clone(), of.1.clone(), cell.to_owned())).into();
        Score { tallies: [(of, Tally::of_one())].into(), faults, cells }
    }

    #[test]
    fn new_score_replaces_its_own_rows_only() {
        let first = Page::default().with(&score("days", "a", Some(Standing::Defect)), "c1", "2026-01-01");
        assert_eq!(Page::parse(&first.to_string()), first, "{first}");
        let both = first.with(&score("spin", "b", Some(Standing::Unlucky)), "c2", "2026-01-02");
        assert_eq!(Page::parse(&both.to_string()), both, "{both}");
        let text = both.to_string();
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
        assert!(at("| days | host 6.1 |") < at("| spin | host 6.1 |"));
        assert!(at("- days host 6.1 `a` c1,") < at(LUCK.trim()));
        assert!(at("- spin host 6.1 `b` c2,") > at(LUCK.trim()) && text.contains("| c1 | 2026-01-01 |"));
        // A defect stays until its own cell is right.
        let other = both.with(&score("days", "c", None), "c3", "2026-01-03");
        assert!(
            other.to_string().contains("- days host 6.1 `a` c1,") && !other.to_string().contains("| c1 |")
        );
        let mended = other.with(&score("days", "a", None), "c4", "2026-01-04").to_string();
        assert!(!mended.contains("- days") && mended.contains("| c4 |"), "{mended}");
        assert!(mended.contains("- spin host 6.1") && mended.contains("None."), "{mended}");
    }

    #[test]
    fn where_nothing_was_judged_what_was_known_stays() {
        let first = Page::default().with(&score("days", "a", Some(Standing::Defect)), "c1", "2026-01-01");
        let (text, key) = (first.to_string(), ("days".to_owned(), "host 6.1".to_owned()));
        let void = Score { tallies: [(key, Tally::default())].into(), ..Score::default() };
        assert_eq!(first.with(&void, "c2", "2026-01-02").to_string(), text);
    }

    #[test]
    fn a_new_page_says_what_its_words_mean() {
        let text = Page::parse("").to_string();
        assert!(text.contains("*missed*") && text.ends_with("None.\n"), "{text}");
    }
}
