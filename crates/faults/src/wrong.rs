//! What is wrong with what was said, in the words of the published table (docs/truth.md).

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The ways to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// What was asked is not in the answer, or there is no whole answer.
    Missed,
    /// Victim and culprit are named, and the time, the place in the list or the fix is not right.
    Inexact,
    /// A task, a group or a CPU is accused that cost nobody anything.
    False,
    /// By its own word it could not look.
    CannotTell,
}

impl Sort {
    /// As the table calls it.
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

/// What a judge has against an answer.
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

    /// The same, told with more words.
    #[must_use]
    pub fn told(self, tell: impl FnOnce(String) -> String) -> Self {
        Wrong { sort: self.sort, what: tell(self.what) }
    }
}

/// An answer that is not whole is none.
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
