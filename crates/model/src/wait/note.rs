//! What is to be known of a chain.

use std::fmt;

use serde::Serialize;

/// What is to be known of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Note {
    /// They wait for each other, and none was woken.
    Deadlock,
    /// They wait for each other.
    Cycle,
    /// Nobody was woken in the window.
    Open,
    /// The holder is known from a lock word that readers leave behind.
    StaleOwner,
    /// The lock changed hands unseen.
    HandOff,
    /// The lock went from hand to hand during one wait.
    Convoy,
}

impl Note {
    /// The word of the JSON document.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Note::Deadlock => "deadlock",
            Note::Cycle => "cycle",
            Note::Open => "open",
            Note::StaleOwner => "stale-owner",
            Note::HandOff => "hand-off",
            Note::Convoy => "convoy",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
