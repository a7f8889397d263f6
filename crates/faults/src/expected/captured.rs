//! `NAME.json` beside `NAME.why`: what was made when the recording was, by the clocks of those who were in it and by what was drawn;
//! nothing of it is from whyslow.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Expected;

/// The truth about one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// The scenario that was drawn.
    pub scenario: String,
    /// "6.1", "6.12", "host".
    pub kernel: String,
    /// What must be said of it, and what must not.
    pub expected: Expected,
    /// The table of the recording without which its rule cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Without>,
}

/// A table without which a rule cannot tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Without {
    /// Its name in the recording: "holds".
    pub table: String,
    /// The rule.
    pub rule: String,
}

impl Captured {
    /// Words that its answers need: a recording that is stripped of names keeps them.
    #[must_use]
    pub fn words(&self) -> BTreeSet<String> {
        let expected = &self.expected;
        let asked = expected.answer.iter().flat_map(|answer| answer.names.iter().chain(&answer.order));
        let never = expected.never.names.iter().chain(&expected.never.in_causes);
        let facts = expected.faults.iter().chain(&expected.loads).flat_map(|facts| facts.names.values());
        let seen = expected.seen.iter().map(|sight| &sight.group);
        let texts = asked.chain(never).chain(facts).chain(seen).flat_map(|text| text.split('|'));
        let ends = |c: char| c == '/' || c.is_whitespace();
        // Whole, for paths of files; in lines and words, where it lists some; in folders, for cgroups.
        texts
            .flat_map(|text| [text].into_iter().chain(text.split_whitespace()).chain(text.split(ends)))
            .filter(|word| word.chars().any(char::is_alphabetic))
            .map(str::to_owned)
            .collect()
    }
}
