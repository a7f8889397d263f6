//! Victims that read a file of the fault module again and again, and the cost of the reads by their own clock.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Ledger, Span, Victim};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Proof};

/// A read takes at least so many times as long while the fault is on.
const LEAST: f64 = 3.0;
/// Delay that an emulated CPU adds to a wait: the waker and the waiter start late.
const EXACT: f64 = 0.1;

/// The readers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readers {
    /// How many threads.
    #[serde(default = "two")]
    threads: u64,
    /// Rest of each between two reads.
    #[serde(default = "rest")]
    rest_us: u64,
    comm: String,
}

fn two() -> u64 {
    2
}

fn rest() -> u64 {
    4_000
}

impl Readers {
    /// Start them on a file.
    pub fn start(&self, testbed: &TestBed, file: PathBuf, draw: &mut Draw) -> Result<Victim, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let work = Work::Read { file, rest_us: self.rest_us };
        let victim = Victim::spawn(testbed.fence.spec(&group, &self.comm, self.threads, work))?;
        victim.go();
        Ok(victim)
    }
}

/// Mean of a read that ended in one of the spans, in seconds.
fn mean_s(ledger: &Ledger, spans: &[Span]) -> f64 {
    let is_in = |at: u64| spans.iter().any(|span| at >= span.from && at < span.to);
    let took: Vec<u64> = (0..ledger.slots())
        .flat_map(|slot| ledger.notes(slot))
        .filter(|(at, took)| *took > 0 && is_in(*at))
        .map(|(_, took)| took)
        .collect();
    took.iter().map(|ns| *ns as f64 / 1e9).sum::<f64>() / took.len().max(1) as f64
}

/// Time of all reads inside the window, in seconds, and their number.
fn inside_s(ledger: &Ledger, window: Span) -> (f64, f64) {
    let parts: Vec<f64> = (0..ledger.slots())
        .flat_map(|slot| ledger.notes(slot))
        .map(|(at, took)| {
            let from = at.saturating_sub(took).max(window.from);
            at.min(window.to).saturating_sub(from) as f64 / 1e9
        })
        .filter(|s| *s > 0.0)
        .collect();
    (parts.iter().sum(), parts.len() as f64)
}

/// The cost of reading.
#[must_use]
pub fn facts(victim: &Victim, window: Span, without: &[Span], names: BTreeMap<String, String>) -> Facts {
    let ledger = victim.ledger();
    let (with, free) = (mean_s(ledger, &[window]), mean_s(ledger, without));
    let (spent, reads) = inside_s(ledger, window);
    let lost = (spent - reads * free).max(0.0);
    let proof = Proof::rises("seconds a read of its victims", with, free, LEAST);
    Facts { proof, lost_s: Some((lost * (1.0 - EXACT), lost * (1.0 + EXACT))), names }
}

/// Names that every part reports of a victim.
#[must_use]
pub fn names(victim: &Victim) -> BTreeMap<String, String> {
    let tids: Vec<String> = victim.tids().iter().map(u32::to_string).collect();
    let known =
        [("comm", victim.comm().to_owned()), ("pid", victim.pid().to_string()), ("tids", tids.join("|"))];
    known.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(reads: &[(u64, u64)]) -> Ledger {
        let ledger = Ledger::new(1).unwrap();
        reads.iter().for_each(|(at, took)| ledger.note(0, *at, *took));
        ledger
    }

    #[test]
    fn reads_are_cut_to_the_window() {
        let ledger = noted(&[(0, 0), (2_000, 500), (5_000, 2_500), (9_000, 3_500)]);
        let window = Span { from: 3_000, to: 8_000 };
        let (spent, reads) = inside_s(&ledger, window);
        assert!((spent - (2_000.0 + 2_500.0) / 1e9).abs() < 1e-12);
        assert_eq!(reads, 2.0);
        assert!((mean_s(&ledger, &[window]) - 2.5e-6).abs() < 1e-12);
    }

    #[test]
    fn the_first_note_is_no_read() {
        assert_eq!(mean_s(&noted(&[(10, 0)]), &[Span { from: 0, to: 100 }]), 0.0);
    }
}
