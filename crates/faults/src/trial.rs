//! Stand-ins before the judge of a cell: a program that did not observe the host must not pass, one that reports the truth must pass. For
//! tests whose conclusions are functions without I/O.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Span;
use crate::look::Look;
use crate::report_checks::Verb;
use crate::rounds::Verdict;
use crate::stand_in::{StandIn, Subject};
use crate::wrong::Sort;

/// A cell as it is when nothing goes wrong, without its judge.
pub struct Trial<'t> {
    /// The cell.
    pub cell: &'t dyn Display,
    /// The verb of whyslow.
    pub verb: Verb,
    /// All subjects of the host that a report could accuse.
    pub of: &'t [Subject],
    /// The victim's loss.
    pub lost_s: f64,
    /// The document of a whyslow that observed the host.
    pub truth: Value,
}

/// A run with this document and its exit status.
#[must_use]
pub fn look(document: Value, verb: Verb) -> Look {
    let window = Span { from: 1_000_000_000, to: 4_000_000_000 };
    let asked = Some(Span { from: 500_000_000, to: 4_500_000_000 });
    let (status, used) = (Some(verb.status(&document)), Some(Duration::from_millis(250)));
    Look { document, window, status, kept: PathBuf::from("x.json"), asked, used }
}

impl Trial<'_> {
    /// Asserts that no stand-in passes, whatever else it gets right, and that the truth passes. A stand-in that saw everything is wrong in
    /// its own way.
    ///
    /// # Panics
    /// If that does not hold.
    pub fn hold(&self, judge: impl Fn(&Look) -> Verdict) {
        let asked = |document: Value| judge(&look(document, self.verb));
        assert_eq!(asked(self.truth.clone()), Verdict::Passed, "{}", self.cell);
        for (who, sort, document) in self.liars() {
            let verdict = asked(document);
            let is_right = verdict.sort().is_some_and(|own| sort.is_none_or(|sort| own == sort));
            assert!(is_right, "{who} of {}, {sort:?}: {verdict:?}", self.cell);
        }
    }

    fn liars(&self) -> Vec<(String, Option<Sort>, Value)> {
        let says = |which: StandIn| which.says(self.verb, self.of, self.lost_s).0;
        let mut all: Vec<(String, Option<Sort>, Value)> =
            StandIn::ALL.iter().map(|which| (format!("{which:?}"), None, says(*which))).collect();
        // These saw every subject: their conclusions are wrong.
        for (which, sort) in [(StandIn::Blind, Sort::CannotTell), (StandIn::Accuser, Sort::False)] {
            let mut document = self.truth.clone();
            document["findings"] = says(which)["findings"].take();
            all.push((format!("{which:?}, who saw all,"), Some(sort), document));
        }
        if self.truth["findings"].as_array().is_some_and(|all| !all.is_empty()) {
            let mut document = self.truth.clone();
            document["findings"] = json!([]);
            all.push(("a mute that saw all".to_owned(), Some(Sort::Missed), document));
        }
        let mut deaf = self.truth.clone();
        deaf["missing"] = json!([{"text": "t", "why": "broken", "what": "task list", "reason": "r"}]);
        all.push(("a stand-in without probes".to_owned(), Some(Sort::CannotTell), deaf));
        all
    }
}
