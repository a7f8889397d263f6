//! What the exit status says.

use whyslow_model::{Document, Kind};

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Looked, and found no cause; risks and "cannot tell" alone are this.
    Quiet,
    /// Found at least one cause.
    Found,
    /// Could not look, or could not do what was asked.
    CouldNotLook,
    /// What `run` passes on: the command's own status, or why there is none.
    Passed(u8),
}

impl Outcome {
    /// What a document amounts to.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        if document.findings.iter().any(|f| f.kind == Kind::Cause) { Outcome::Found } else { Outcome::Quiet }
    }

    /// The exit status.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Outcome::Quiet => 0,
            Outcome::Found => 1,
            Outcome::CouldNotLook => 2,
            Outcome::Passed(status) => status,
        }
    }
}
