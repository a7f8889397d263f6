//! What was made, by the clocks of those who were in it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What one fault or load did, by the clocks of its own victims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// It came about.
    pub proof: Proof,
    /// What its victims lost in the window, task-seconds: bounds.
    pub lost_s: Option<(f64, f64)>,
    /// Names that an answer can ask for.
    pub names: BTreeMap<String, String>,
}

/// The name under which a fault tells how many times slower its CPU was, by a loop of the run's own.
pub const RATIO: &str = "ratio";
/// The key of a name that tells the cgroups whose limits must change, one after the other.
pub const LIMITS: &str = "limits";

/// That a fault came about (or a load worked), by a clock that whyslow does not see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// What was measured.
    pub what: String,
    /// While the fault was on.
    pub with: f64,
    /// While it was not.
    pub without: f64,
    /// It is one if one is larger than the other by this factor.
    pub least_ratio: f64,
    /// It is one.
    pub holds: bool,
}

impl Proof {
    /// `with` is larger than `without` by at least `least_ratio`.
    #[must_use]
    pub fn rises(what: impl Into<String>, with: f64, without: f64, least_ratio: f64) -> Self {
        let holds = with > 0.0 && with >= without * least_ratio;
        Proof { what: what.into(), with, without, least_ratio, holds }
    }

    /// `with` is smaller than `without` by at least `least_ratio`.
    #[must_use]
    pub fn falls(what: impl Into<String>, with: f64, without: f64, least_ratio: f64) -> Self {
        let holds = without > 0.0 && without >= with * least_ratio;
        Proof { what: what.into(), with, without, least_ratio, holds }
    }

    /// `with` and `without` differ by less than `ratio`: of what is healthy.
    #[must_use]
    pub fn stays(what: impl Into<String>, with: f64, without: f64, ratio: f64) -> Self {
        let holds = without > 0.0 && with * ratio >= without;
        Proof { what: what.into(), with, without, least_ratio: ratio, holds }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = if self.holds { "holds" } else { "does not hold" };
        write!(f, "{}: {:.3} with, {:.3} without: {holds}", self.what, self.with, self.without)
    }
}

/// `{key}` is replaced by the name; what is unknown stays.
#[must_use]
pub fn with_names(text: &str, names: &BTreeMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (key, name)| text.replace(&format!("{{{key}}}"), name))
}
