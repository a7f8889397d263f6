//! What whyslow must report, and what it must not.

use serde::{Deserialize, Serialize};

/// One thing that whyslow must answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The fault that the answer is about, by its place in the file.
    #[serde(default)]
    pub of: usize,
    /// The section that must contain it.
    #[serde(rename = "in", default)]
    pub section: Section,
    /// It must be among the first so many items.
    #[serde(default = "first")]
    pub rank: usize,
    /// By one of these rules; an empty list means any rule.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Each must be in the item; `a|b`: one of them; `{key}`: a name that the fault reports.
    #[serde(default)]
    pub names: Vec<String>,
    /// Id of the victim; `a|b`: one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// Text in the name of the waiter at the top of its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter: Option<String>,
    /// For a chain: these hops in this order on the way down.
    #[serde(default)]
    pub order: Vec<String>,
    /// Bounds of the reported time, as multiples of the victims' clock.
    #[serde(default)]
    pub lost: Option<[f64; 2]>,
    /// For explained late answers: of all late answers, the least share that stalls of this host explain, and the least share of the rows with
    /// these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<[f64; 2]>,
    /// Its commands lift the limits of exactly those cgroups that the fault says must change.
    #[serde(default)]
    pub lifts: bool,
    /// For slow CPUs: bounds of the reported slowdown, as multiples of what a clock of the run shows.
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
    /// CPUs that the document calls slow, "CPU 3".
    Cpus,
    /// Late answers of the host that was asked, by the stalls of this host that explain them.
    Explained,
    /// Times in which the host that was asked did not answer.
    PingStalls,
    /// Ruled out.
    RuledOut,
    /// Questions that whyslow answers with "cannot tell".
    Unknown,
    /// What whyslow says that it did not see, and why.
    Missing,
    /// What `whyslow doctor` lists as lost (`look.doctor`).
    Doctor,
}

/// What whyslow must not report.
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
    /// None of these in a cause; a victim may be in a chain.
    #[serde(default)]
    pub in_causes: Vec<String>,
    /// None of these is the culprit of a stall of packets.
    #[serde(default)]
    pub culprits: Vec<String>,
    /// No cause at all, not even one that matches an answer.
    #[serde(default)]
    pub any_cause: bool,
    /// With `any_cause`: rules that cannot work in such a guest, and may say so.
    #[serde(default)]
    pub blind: Vec<String>,
    /// No CPU may be called slow unless an answer requests it.
    #[serde(default)]
    pub other_cpus: bool,
    /// For two requested faults, the smaller loss by the victims' clocks must not rank above one that is clearly larger.
    #[serde(default)]
    pub turned: bool,
    /// The guest refuses probes, and whyslow must say so: the judge does not require that all probes are attached.
    #[serde(default)]
    pub unprobed: bool,
}
