//! What the test bed is given: all that a run needs, and nothing of what whyslow must answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whyslow_faults::expected::Facts;
use whyslow_faults::said::Sight;

use crate::testbed::part::{FaultSpec, LoadSpec};

/// The file in the share that tells the test bed what to run.
pub const PLAN: &str = "plan.json";
/// The file in the share that tells what came of it.
pub const RUN_FACTS: &str = "facts.json";
/// The recording of a boot before this one, if there was one.
pub const BASELINE: &str = "baseline.why";
/// What whyslow recorded while it looked, where that is kept.
pub const RECORDING: &str = "look.why";
/// What whyslow said.
pub const DOCUMENT: &str = "document.json";

/// How whyslow looks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LookSpec {
    /// Its arguments; `--json` is put behind them unless it is among them. `{key}`: a name that a fault has told; one of many
    /// lines is as many arguments.
    pub args: Vec<String>,
    /// Length of its window, in seconds, for the one who waits for it.
    pub window_s: u64,
    /// Work without the fault, before and after.
    pub without_ms: u64,
    /// From putting the fault on until it has its effect in full.
    pub settle_ms: u64,
    /// `whyslow doctor` is asked, too, once it has looked.
    pub doctor: bool,
    /// On the host: the part of the CPUs that others may use meanwhile, and the kernel for whom no cgroup pays.
    pub others: f64,
    /// What a fault's victims do without it is measured with all other faults on.
    pub each: bool,
    /// Capabilities of root that whyslow has ("CAP_BPF"); none are named: all.
    pub capabilities: Vec<String>,
}

impl Default for LookSpec {
    fn default() -> Self {
        let args = ["--for", "4s"].map(str::to_owned).to_vec();
        LookSpec {
            args,
            window_s: 4,
            without_ms: 2_000,
            settle_ms: 1_000,
            doctor: false,
            others: 0.1,
            each: false,
            capabilities: Vec::new(),
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario's name.
    pub scenario: String,
    /// Gives the same draws again.
    pub seed: u64,
    /// "6.1", "6.12", "host".
    pub kernel: String,
    /// What is wrong.
    pub faults: Vec<FaultSpec>,
    /// What else goes on.
    pub loads: Vec<LoadSpec>,
    /// How whyslow looks.
    pub look: LookSpec,
    /// What whyslow sees is kept.
    pub captures: bool,
    /// Nothing is imposed, and whyslow only makes a recording of so many seconds.
    pub records_s: Option<u64>,
    /// The program under test, as the test bed sees it.
    pub whyslow: PathBuf,
    /// The fault module for this kernel, where one is needed.
    pub module: Option<PathBuf>,
    /// The sched_ext scheduler, where one is needed.
    pub scheduler: Option<PathBuf>,
    /// The project's sources.
    pub project: PathBuf,
}

/// What came of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunFacts {
    /// Why it broke down; whatever else is here does not count then.
    pub trouble: Option<String>,
    /// Why whyslow gave no document.
    pub no_answer: Option<String>,
    /// Whyslow's exit status.
    pub status: Option<i32>,
    /// Why what it said cannot be of the time in which it was asked, or not by a program that used what it did.
    pub unsound: Option<String>,
    /// That others used the host, where that is too much to conclude anything.
    #[serde(default)]
    pub disturbed: Option<String>,
    /// Length of its window by its own account.
    pub window_s: f64,
    /// From asking whyslow until it had ended.
    pub answered_s: f64,
    /// What groups of the run used, of which whyslow must tell.
    #[serde(default)]
    pub seen: Vec<Sight>,
    /// Of each fault.
    pub faults: Vec<Facts>,
    /// Of each load.
    pub loads: Vec<Facts>,
}
