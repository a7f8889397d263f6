//! What is asked of whyslow, and what is forbidden.

use serde::{Deserialize, Serialize};

/// One thing that whyslow must answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The fault that it is about, by its place in the file.
    #[serde(default)]
    pub of: usize,
    /// Where it must stand.
    #[serde(rename = "in", default)]
    pub section: Section,
    /// Among the first so many.
    #[serde(default = "first")]
    pub rank: usize,
    /// By one of these rules; none: any.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Each must be in the item; `a|b`: one of them; `{key}`: a name that the fault has told.
    #[serde(default)]
    pub names: Vec<String>,
    /// The id of whoever lost; `a|b`: one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// In the name of whoever waits at the top of its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter: Option<String>,
    /// Of a chain: one after the other on the way down.
    #[serde(default)]
    pub order: Vec<String>,
    /// Bounds of the time it tells, times what the victims' clock says.
    #[serde(default)]
    pub lost: Option<[f64; 2]>,
    /// Its commands lift the limits of just those cgroups that the fault says must change.
    #[serde(default)]
    pub lifts: bool,
    /// Of slow CPUs: bounds of how many times slower they are said to be, times what a clock of the run says.
    #[serde(default)]
    pub ratio: Option<[f64; 2]>,
}

fn first() -> usize {
    1
}

/// A list of the document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Findings that are causes.
    #[default]
    Causes,
    /// Findings that are risks.
    Risks,
    /// Chains of waits.
    Chains,
    /// Parts of the wall time.
    Wall,
    /// Locks of the kernel.
    Locks,
    /// System calls.
    Calls,
    /// CPUs that are said to be slow, "CPU 3".
    Cpus,
    /// What it is not.
    RuledOut,
    /// Questions of which it says that it cannot tell.
    Unknown,
    /// What it says that it did not see, and why.
    Missing,
    /// What `whyslow doctor` calls lost (`look.doctor`).
    Doctor,
}

/// What whyslow must not say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Never {
    /// No cause by one of these rules.
    #[serde(default)]
    pub rules: Vec<String>,
    /// No risk by one of these rules.
    #[serde(default)]
    pub risks: Vec<String>,
    /// None of these in a cause or a chain.
    #[serde(default)]
    pub names: Vec<String>,
    /// None of these in a cause; who loses may be in a chain.
    #[serde(default)]
    pub in_causes: Vec<String>,
    /// No cause at all, not even one that an answer would cover.
    #[serde(default)]
    pub any_cause: bool,
    /// With `any_cause`: rules that cannot look in such a guest, and may say so.
    #[serde(default)]
    pub blind: Vec<String>,
    /// No CPU is said to be slow that no answer asks for.
    #[serde(default)]
    pub other_cpus: bool,
    /// Of two faults that are asked for, the smaller loss by their victims' clocks never stands above one that is clearly larger.
    #[serde(default)]
    pub turned: bool,
    /// Its probes are refused here, and it must say so: that it has them all is not asked.
    #[serde(default)]
    pub unprobed: bool,
}
