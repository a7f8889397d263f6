//! The input of the test bed: all that a run needs, and nothing of what whyslow must answer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whyslow_faults::expected::Facts;
use whyslow_faults::report_checks::Sight;

use crate::testbed::part::{FaultSpec, LoadSpec};

/// The file in the share with the plan of the test bed.
pub const PLAN: &str = "plan.json";
/// The file in the share with its results.
pub const RUN_FACTS: &str = "facts.json";
/// The recording of an earlier boot, if there was one.
pub const BASELINE: &str = "baseline.why";
/// The recording of whyslow's run, where it is kept.
pub const RECORDING: &str = "look.why";
/// whyslow's document.
pub const DOCUMENT: &str = "document.json";

/// How whyslow is run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LookSpec {
    /// Its arguments; `--json` is appended if it is missing. `{key}`: a name that a fault reports; a name of several lines becomes several
    /// arguments.
    pub args: Vec<String>,
    /// Length of its window in seconds, for the test bed's own timeout.
    pub window_s: u64,
    /// Work without the fault, before and after.
    pub without_ms: u64,
    /// Time from the start of the fault until it has its full effect.
    pub settle_ms: u64,
    /// Run `whyslow doctor`, too, after the run.
    pub doctor: bool,
    /// On the host: the share of the CPUs that other processes may use meanwhile, including kernel work that is charged to no cgroup.
    pub others: f64,
    /// Measure the rate of a fault's victims without it while all other faults are on.
    pub each: bool,
    /// whyslow runs in this network namespace: a file as /proc/PID/ns/net, `{key}`: as a fault reports it. An empty text: in that of the lab.
    pub netns: String,
    /// whyslow may use only this CPU; `{key}`: as a fault reports it. An empty text: all.
    pub cpu: String,
    /// Capabilities that whyslow keeps ("CAP_BPF"); an empty list: all of root's.
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
            netns: String::new(),
            cpu: String::new(),
            capabilities: Vec::new(),
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario's name.
    pub scenario: String,
    /// The seed of its draws.
    pub seed: u64,
    /// "6.1", "6.12", "host".
    pub kernel: String,
    /// The faults.
    pub faults: Vec<FaultSpec>,
    /// The other load.
    pub loads: Vec<LoadSpec>,
    /// How whyslow looks.
    pub look: LookSpec,
    /// Keep whyslow's recording.
    pub captures: bool,
    /// Turn no fault on: whyslow only makes a recording of so many seconds.
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

/// The results of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunFacts {
    /// Why it broke down; then nothing else here counts.
    pub trouble: Option<String>,
    /// Why whyslow gave no document.
    pub no_answer: Option<String>,
    /// whyslow's exit status.
    pub status: Option<i32>,
    /// Why the document cannot belong to the time of the run, or states a wrong CPU time.
    pub unsound: Option<String>,
    /// Other processes used too much of the host for a conclusion.
    #[serde(default)]
    pub disturbed: Option<String>,
    /// Length of its window by its own account.
    pub window_s: f64,
    /// Time from the start of whyslow to its end.
    pub answered_s: f64,
    /// CPU time of groups of the run that whyslow must report.
    #[serde(default)]
    pub seen: Vec<Sight>,
    /// Of each fault.
    pub faults: Vec<Facts>,
    /// Of each load.
    pub loads: Vec<Facts>,
}
