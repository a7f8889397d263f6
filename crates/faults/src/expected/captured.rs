//! `NAME.json` beside `NAME.why`: the truth about a recording, from the clocks of the victims and from what was drawn. No part of it comes
//! from whyslow.

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
    /// What whyslow must report of it, and what it must not.
    pub expected: Expected,
    /// The table of the recording that its rule needs: without it the rule says "cannot tell".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Without>,
}

/// A table that a rule needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Without {
    /// Its name in the recording: "holds".
    pub table: String,
    /// The rule.
    pub rule: String,
}

impl Captured {
    /// Words that its answers need: a recording with its names removed keeps them.
    #[must_use]
    pub fn words(&self) -> BTreeSet<String> {
        let expected = &self.expected;
        let asked = expected.answer.iter().flat_map(|answer| answer.names.iter().chain(&answer.order));
        let never = expected.never.names.iter().chain(&expected.never.in_causes);
        let facts = expected.faults.iter().chain(&expected.loads).flat_map(|facts| facts.names.values());
        let seen = expected.seen.iter().map(|sight| &sight.group);
        let texts = asked.chain(never).chain(facts).chain(seen).flat_map(|text| text.split('|'));
        let ends = |c: char| c == '/' || c.is_whitespace();
        // The whole text for paths of files, lines and words for lists, folders for cgroups.
        texts
            .flat_map(|text| [text].into_iter().chain(text.split_whitespace()).chain(text.split(ends)))
            .filter(|word| word.chars().any(char::is_alphabetic))
            .map(str::to_owned)
            .collect()
    }
}
