//! The printed table: one line for each run, then the totals.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use whyslow_faults::proven::{self, Ended};
use whyslow_faults::wrong::{Sort, Wrong};

use crate::judge::{Cost, Verdict};
use crate::kernels::is_optional;

/// The result of one run.
#[derive(Debug, Clone)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// "6.1", "6.12", "host".
    pub kernel: String,
    /// Otherwise a miss does not fail the run.
    pub promised: bool,
    /// How it ended.
    pub verdict: Verdict,
    /// Seconds on the host's clock, the boot included.
    pub seconds: f64,
    /// The cost of whyslow.
    pub cost: Option<Cost>,
    /// How often it was run again because the fault did not come about.
    pub redrawn: u64,
    /// Reported time divided by the time of the victims' clock; one for each answer that requires a time.
    pub reported_to_true: Vec<f64>,
}

/// The head of the table.
#[must_use]
pub fn head() -> String {
    format!(
        "{:<26} {:<7} {:<9} {:>6}  {:>6} {:>6} {:>6} {:>5}  {}",
        "scenario", "kernel", "verdict", "s", "cpu s", "bpf s", "D s", "MiB", "reported/true"
    )
}

/// One line, and below it the reason, if there is one.
#[must_use]
pub fn line(row: &Row) -> String {
    let cost = row.cost.map_or(String::new(), |cost| {
        format!("{:>6.2} {:>6.2} {:>6.3} {:>5.0}", cost.cpu_s, cost.bpf_s, cost.blocked_s, cost.rss_mib)
    });
    let shares: Vec<String> = row.reported_to_true.iter().map(|share| format!("{share:.2}")).collect();
    let verdict = match (&row.verdict, row.promised) {
        (verdict, false) if is_a_miss(verdict) => "(missed)",
        (verdict, _) => verdict.word(),
    };
    let mut text =
        format!("{:<26} {:<7} {verdict:<9} {:>6.1}  {cost:<26}", row.scenario, row.kernel, row.seconds);
    let _ = write!(text, "  {}", shares.join(" "));
    text.truncate(text.trim_end().len());
    if let Some(why) = row.verdict.why() {
        let _ = write!(text, "\n    {}", why.trim_end().replace('\n', "\n    "));
    }
    text
}

/// How often each scenario was found, if it was run more than once; and the number of each result.
#[must_use]
pub fn sum(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut often: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for row in rows {
        let (found, all) = often.entry((&row.scenario, &row.kernel)).or_default();
        *found += usize::from(row.verdict == Verdict::Found);
        *all += 1;
    }
    for ((scenario, kernel), (found, all)) in often.iter().filter(|(_, (_, all))| *all > 1) {
        let _ = writeln!(text, "{scenario:<26} {kernel:<7} found {found} of {all}");
    }
    let mut by_word: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *by_word.entry(row.verdict.word()).or_default() += 1;
    }
    let words: Vec<String> = by_word.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let _ = write!(text, "{} ran: {}", rows.len(), words.join(", "));
    text
}

fn is_a_miss(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wrong(wrong) if wrong.sort != Sort::False)
}

/// Whether the run needs attention.
#[must_use]
pub fn is_bad(row: &Row) -> bool {
    match &row.verdict {
        Verdict::Found | Verdict::NotRun(_) => false,
        Verdict::Wrong(Wrong { sort, .. }) => row.promised || *sort == Sort::False,
        Verdict::Failed(_) | Verdict::Unmade(_) => true,
    }
}

/// Its row in the table of all suites.
#[must_use]
pub fn proven(row: &Row, suite: &str) -> proven::Row {
    let (ended, wrong) = match &row.verdict {
        Verdict::Found => (Ended::Passed, None),
        Verdict::Wrong(wrong) => (Ended::Failed, Some(wrong.sort)),
        Verdict::Failed(_) => (Ended::Failed, None),
        Verdict::Unmade(_) => (Ended::NotIdle, None),
        Verdict::NotRun(_) if is_optional(&row.kernel) => (Ended::NotDrawn, None),
        Verdict::NotRun(_) => (Ended::NotRun, None),
    };
    let noted = proven::Row::of(suite, &row.scenario, ended).because(row.verdict.why().unwrap_or_default());
    proven::Row { wrong, redrawn: row.redrawn, ..noted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, promised: bool) -> Row {
        let cost = Some(Cost { cpu_s: 4.25, bpf_s: 0.5, blocked_s: 0.012, rss_mib: 31.0 });
        Row {
            scenario: "held-mutex".into(),
            kernel: "6.12".into(),
            promised,
            verdict,
            seconds: 31.25,
            cost,
            redrawn: 0,
            reported_to_true: vec![0.954],
        }
    }

    #[test]
    fn a_line_tells_all_and_why() {
        assert_eq!(
            line(&row(Verdict::Found, true)),
            "held-mutex                 6.12    found       31.2    4.25   0.50  0.012    31  0.95"
        );
        let missed = line(&row(Verdict::Wrong(Wrong::missed("a\nb")), false));
        assert!(missed.contains("(missed)") && missed.ends_with("\n    a\n    b"), "{missed}");
    }

    #[test]
    fn only_a_promise_can_be_broken() {
        let came_to = |verdict: &Verdict, promised| {
            let row = row(verdict.clone(), promised);
            (is_bad(&row), proven(&row, "lab").ended)
        };
        for wrong in [Wrong::missed(""), Wrong::inexact(""), Wrong::blind("")].map(Verdict::Wrong) {
            assert_eq!(came_to(&wrong, true), (true, Ended::Failed));
            assert_eq!(came_to(&wrong, false), (false, Ended::Failed));
        }
        let failed = Verdict::Failed(String::new());
        for (verdict, ended) in [
            (Verdict::Wrong(Wrong::accused("")), (true, Ended::Failed)),
            (failed, (true, Ended::Failed)),
            (Verdict::Unmade(String::new()), (true, Ended::NotIdle)),
            (Verdict::Found, (false, Ended::Passed)),
            (Verdict::NotRun(String::new()), (false, Ended::NotRun)),
        ] {
            assert_eq!((came_to(&verdict, true), came_to(&verdict, false)), (ended, ended), "{verdict}");
        }
        let absent = Row { kernel: "5.10".to_owned(), ..row(Verdict::NotRun(String::new()), true) };
        assert_eq!(proven(&absent, "lab").ended, Ended::NotDrawn);
    }

    #[test]
    fn rounds_are_summed() {
        let rows = [row(Verdict::Found, true), row(Verdict::Wrong(Wrong::missed("")), true)];
        let text = sum(&rows);
        assert!(text.contains("found 1 of 2") && text.ends_with("2 ran: 1 found, 1 missed"), "{text}");
    }
}
