//! The made faults, by the clocks of their victims.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Effect of one fault or load, by the clocks of its own victims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Proof that it took effect.
    pub proof: Proof,
    /// Time that its victims lost in the window, task-seconds: bounds.
    pub lost_s: Option<(f64, f64)>,
    /// Names that an answer can refer to.
    pub names: BTreeMap<String, String>,
}

/// The name under which a fault reports how many times slower its CPU was, measured by a loop of the run.
pub const RATIO: &str = "ratio";
/// The name under which a fault lists the cgroups whose limits must change.
pub const LIMITS: &str = "limits";

/// Proof that a fault took effect (or a load worked), by a clock that whyslow does not see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// What was measured.
    pub what: String,
    /// While the fault was on.
    pub with: f64,
    /// While it was not.
    pub without: f64,
    /// The proof holds if one is larger than the other by this factor.
    pub least_ratio: f64,
    /// Whether the proof holds.
    pub holds: bool,
}

impl Proof {
    /// A proof that `with` is larger than `without` by at least `least_ratio`.
    #[must_use]
    pub fn rises(what: impl Into<String>, with: f64, without: f64, least_ratio: f64) -> Self {
        let holds = with > 0.0 && with >= without * least_ratio;
        Proof { what: what.into(), with, without, least_ratio, holds }
    }

    /// A proof that `with` is smaller than `without` by at least `least_ratio`.
    #[must_use]
    pub fn falls(what: impl Into<String>, with: f64, without: f64, least_ratio: f64) -> Self {
        let holds = without > 0.0 && without >= with * least_ratio;
        Proof { what: what.into(), with, without, least_ratio, holds }
    }

    /// A proof that `with` and `without` differ by less than `ratio`: for healthy work.
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

/// Replace `{key}` by its name; an unknown key stays.
#[must_use]
pub fn with_names(text: &str, names: &BTreeMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (key, name)| text.replace(&format!("{{{key}}}"), name))
}
