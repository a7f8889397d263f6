//! Why a thing is not known. Unknown is an answer with a reason, never a zero.

use serde::{Deserialize, Serialize};

/// What [`Missing::cut_short`] begins with: it stands in recordings.
const SOME_BELOW: &str = "some cgroups below ";
/// What [`Missing::part_of`] begins with.
const PART_OF: &str = "a part of ";

/// Why a thing is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Missing {
    /// The recording does not hold it.
    #[error("{what} was not recorded")]
    NotRecorded {
        /// What is missing.
        what: String,
    },
    /// This kernel does not offer it.
    #[error("this kernel has no {what}; it needs {needs}")]
    NotInKernel {
        /// What is missing.
        what: String,
        /// Which kernel or option offers it.
        needs: String,
    },
    /// We may not look.
    #[error("may not read {what}; {way_out}")]
    NotAllowed {
        /// What is missing.
        what: String,
        /// How to be allowed.
        way_out: String,
    },
    /// Reading it failed, or its content makes no sense.
    #[error("cannot read {what}: {reason}")]
    Broken {
        /// What is missing.
        what: String,
        /// What went wrong.
        reason: String,
    },
    /// It was seen, and has two explanations.
    #[error("cannot tell {what}: {reason}")]
    Unclear {
        /// What is missing.
        what: String,
        /// Why it cannot be known.
        reason: String,
    },
    /// We chose not to look: too slow, too dangerous, too many.
    #[error("{what} was skipped: {reason}")]
    Skipped {
        /// What is missing.
        what: String,
        /// Why we did not look.
        reason: String,
    },
}

impl Missing {
    /// The recording does not hold it.
    pub fn not_recorded(what: impl Into<String>) -> Self {
        Missing::NotRecorded { what: what.into() }
    }

    /// Reading it failed, or its content makes no sense.
    pub fn broken(what: impl Into<String>, reason: impl ToString) -> Self {
        Missing::Broken { what: what.into(), reason: reason.to_string() }
    }

    /// It was seen, and has two explanations.
    pub fn unclear(what: impl Into<String>, reason: impl ToString) -> Self {
        Missing::Unclear { what: what.into(), reason: reason.to_string() }
    }

    /// We chose not to look.
    pub fn skipped(what: impl Into<String>, reason: impl ToString) -> Self {
        Missing::Skipped { what: what.into(), reason: reason.to_string() }
    }

    /// Of many cgroups, some below this folder were not looked at.
    pub fn cut_short(below: &str, reason: impl ToString) -> Self {
        Missing::skipped(format!("{SOME_BELOW}{below}"), reason)
    }

    /// A probe's table is not whole.
    pub fn part_of(probe: &str, reason: impl ToString) -> Self {
        Missing::skipped(format!("{PART_OF}{probe}"), reason)
    }

    /// The probe whose table is not whole, and why, if it says that.
    #[must_use]
    pub fn probe_in_part(&self) -> Option<(&str, &str)> {
        match self {
            Missing::Skipped { what, reason } => Some((what.strip_prefix(PART_OF)?, reason)),
            _ => None,
        }
    }

    /// The folder, if it says that some cgroups below one were not looked at.
    #[must_use]
    pub fn below(&self) -> Option<&str> {
        match self {
            Missing::Skipped { what, .. } => what.strip_prefix(SOME_BELOW),
            _ => None,
        }
    }

    /// The same of something that is called otherwise today.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        match &mut self {
            Missing::NotRecorded { what }
            | Missing::NotInKernel { what, .. }
            | Missing::NotAllowed { what, .. }
            | Missing::Broken { what, .. }
            | Missing::Unclear { what, .. }
            | Missing::Skipped { what, .. } => name.clone_into(what),
        }
        self
    }

    /// What is missing.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Missing::NotRecorded { what }
            | Missing::NotInKernel { what, .. }
            | Missing::NotAllowed { what, .. }
            | Missing::Broken { what, .. }
            | Missing::Unclear { what, .. }
            | Missing::Skipped { what, .. } => what,
        }
    }
}

/// A `Missing` as the JSON document and the recording carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingNote {
    /// The whole sentence.
    pub text: String,
    /// What and why, as data.
    #[serde(flatten)]
    pub missing: Missing,
}

impl From<Missing> for MissingNote {
    fn from(missing: Missing) -> Self {
        MissingNote { text: missing.to_string(), missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_and_why() {
        let absent = Missing::NotInKernel { what: "irq pressure".into(), needs: "Linux 6.1".into() };
        assert_eq!(absent.to_string(), "this kernel has no irq pressure; it needs Linux 6.1");
        assert_eq!(absent.what(), "irq pressure");
    }
}
