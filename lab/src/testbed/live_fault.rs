//! The faults of the live tests (`whyslow_faults::Scenario`): limits of cgroups, queues, swap. On emulated CPUs their clocks are less exact.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::expected::LIMITS;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::scenario::TestBed as Place;
use whyslow_faults::{Draw, FaultKind, Form, Scenario, Span, Truth, thresholds};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};
use crate::testbed::slow_disk;

/// Out of a guest of 1.5 GiB, which also runs whyslow.
const MEMORY_MIB: u64 = 384;
/// Emulated CPUs share the host's CPUs with other processes: a smaller loss may be no loss.
const NO_LOSS: f64 = 0.25;
/// The share that whyslow itself and a noisy host take from a victim, which is not caused by the fault.
const EXACT: f64 = 0.15;

/// One live fault.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The fault, by the rule that should find it: "cpu-quota".
    fault: String,
    /// "fault", "twin" or "false-positive control".
    #[serde(default)]
    form: FormSpec,
    /// Memory that its victims may use.
    #[serde(default)]
    memory_mib: Option<u64>,
    /// Its files are on a disk on which each request takes this long.
    #[serde(default)]
    disk_us: Option<u64>,
    /// Other load uses part of the CPUs: the fault costs less, and the victims' rate without it changes with that load.
    #[serde(default)]
    beside: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FormSpec {
    #[default]
    Fault,
    Twin,
    Control,
}

struct Running {
    scenario: Scenario,
    form: FormSpec,
    beside: bool,
    counted: u64,
    is_emulated: bool,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let kind = FaultKind::ALL.into_iter().find(|kind| kind.rule() == self.fault);
        let kind = kind.ok_or_else(|| format!("there is no live fault \"{}\"", self.fault))?;
        let form = match self.form {
            FormSpec::Fault => Form::Fault,
            FormSpec::Twin => Form::Twin,
            FormSpec::Control => Form::Control,
        };
        if let Some(request_us) = self.disk_us.filter(|_| testbed.is_guest()) {
            slow_disk::mount_at(testbed.fence.dir(), request_us)?;
        }
        let memory = self.memory_mib.unwrap_or(MEMORY_MIB) << 20;
        let scenario = Scenario::set(&Place { fence: &testbed.fence, memory }, kind, form, draw)?;
        let (form, beside, is_emulated) = (self.form, self.beside, testbed.is_guest());
        Ok(Box::new(Running { scenario, form, beside, counted: 0, is_emulated }))
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.scenario.impose()?;
        self.counted = self.scenario.counter()?.unwrap_or(0);
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(self.scenario.lift()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let victim = self.scenario.victim();
        let pids = victim.tids().into_iter().chain([victim.pid()]).map(|pid| format!("|{pid}"));
        // Of two equal limits the kernel charges the inner one first, and the outer one also contains a few pages of its children's own
        // structures (mm/memcontrol.c): either limit may be reached.
        let victims = match self.scenario.kind() {
            FaultKind::MemoryLimit if !self.scenario.limits().is_empty() => self.scenario.limits().join("|"),
            // The victim is the waiting client's task: its cgroup has no counter of connects.
            FaultKind::ListenOverflow => format!("{}{}", self.scenario.binding(), pids.collect::<String>()),
            _ => self.scenario.binding().to_owned(),
        };
        let known = [
            ("group", self.scenario.binding().to_owned()),
            ("victims", victims),
            ("comm", victim.comm().to_owned()),
            ("pid", victim.pid().to_string()),
        ];
        known.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
    }

    fn groups(&self) -> Vec<&Group> {
        vec![self.scenario.group()]
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let truth = self.scenario.truth_of(window, without);
        let what = format!("{}; its victims' pieces of work a second", self.scenario);
        let counted = self.scenario.counter()?.map(|counter| counter.saturating_sub(self.counted));
        let proof = match self.form {
            FormSpec::Fault => {
                let least = if self.beside { thresholds::A_FAULT_IN_CROWD } else { thresholds::A_FAULT };
                let drift = drift_of_loss(&truth);
                let what = format!("{what}; what it lost is known to {:.0} %", drift * 100.0);
                let proof = Proof::falls(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - least));
                let is_steady = self.is_emulated || self.beside || drift <= thresholds::DRIFT;
                Proof { holds: proof.holds && is_steady, ..proof }
            }
            FormSpec::Twin | FormSpec::Control => {
                let no_loss = match self.scenario.kind() {
                    _ if self.is_emulated => NO_LOSS,
                    // The speed of a disk changes with time.
                    FaultKind::BlkioThrottle => thresholds::DRIFT,
                    _ => thresholds::NO_FAULT,
                };
                let what = format!("{what}; its counter rose by {counted:?}");
                let proof = Proof::stays(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - no_loss));
                Proof { holds: proof.holds && self.is_counted(counted), ..proof }
            }
        };
        let lost = truth.lost_s();
        let exact = if self.is_emulated { EXACT } else { 0.0 };
        let slack = exact * truth.tasks as f64 * truth.window_s;
        let mut names = self.names();
        if let Some(counted) = counted {
            names.insert("counted".to_owned(), counted.to_string());
        }
        names.insert(LIMITS.to_owned(), self.scenario.limits().join(" "));
        Ok(Facts { proof, lost_s: Some(((lost - slack).max(0.0), lost + slack)), names })
    }
}

impl Running {
    /// A false-positive control holds if the same counter rises as with the fault. If the counter rises in the twin of a full queue, a
    /// client lost a second or more, with and without the fault alike.
    fn is_counted(&self, counted: Option<u64>) -> bool {
        match (self.form, self.scenario.kind()) {
            (FormSpec::Control, _) => counted != Some(0),
            (_, FaultKind::ListenOverflow) => counted.unwrap_or(0) == 0,
            _ => true,
        }
    }
}

/// By which part the loss changes if the rate without the fault is taken from another span.
fn drift_of_loss(truth: &Truth) -> f64 {
    let share = truth.share();
    truth.drift * (1.0 - share) / share.max(1e-9)
}
