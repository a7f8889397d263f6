//! What is wrong with an answer, in the words of the published table (docs/truth.md).

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The ways in which an answer can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// The required item is not in the answer, or the answer is incomplete.
    Missed,
    /// Victim and culprit are right, but the time, the rank or the fix is wrong.
    Inexact,
    /// The answer accuses a task, a group or a CPU that cost no task any time.
    False,
    /// The answer itself says that whyslow was unable to observe.
    CannotTell,
}

impl Sort {
    /// The name in the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Sort::Missed => "missed",
            Sort::Inexact => "inexact",
            Sort::False => "false",
            Sort::CannotTell => "cannot tell",
        }
    }
}

/// A judge's objection to an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// In one word.
    pub sort: Sort,
    /// In all words.
    pub what: String,
}

impl Wrong {
    /// [`Sort::Missed`].
    pub fn missed(what: impl Into<String>) -> Self {
        Wrong { sort: Sort::Missed, what: what.into() }
    }

    /// [`Sort::Inexact`].
    pub fn inexact(what: impl Into<String>) -> Self {
        Wrong { sort: Sort::Inexact, what: what.into() }
    }

    /// [`Sort::False`].
    pub fn accused(what: impl Into<String>) -> Self {
        Wrong { sort: Sort::False, what: what.into() }
    }

    /// [`Sort::CannotTell`].
    pub fn blind(what: impl Into<String>) -> Self {
        Wrong { sort: Sort::CannotTell, what: what.into() }
    }

    /// The same with more words.
    #[must_use]
    pub fn told(self, tell: impl FnOnce(String) -> String) -> Self {
        Wrong { sort: self.sort, what: tell(self.what) }
    }
}

/// An incomplete answer counts as missed.
impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong::missed(what)
    }
}

impl From<&str> for Wrong {
    fn from(what: &str) -> Self {
        Wrong::missed(what)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sort.word(), self.what)
    }
}

impl Error for Wrong {}
