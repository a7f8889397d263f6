//! The faults of the live tests (`whyslow_faults::Scenario`): limits of cgroups, queues, swap. On emulated CPUs their clocks are less exact.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whyslow_faults::expected::LIMITS;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::scenario::TestBed as Place;
use whyslow_faults::{Draw, Form, Kind, Scenario, Span, bars};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};
use crate::testbed::slow_disk;

/// Of a whole guest of 1.5 GiB, which holds whyslow, too.
const MEMORY_MIB: u64 = 384;
/// Emulated CPUs share the host's with others: what loses less than this may have lost nothing.
const NO_LOSS: f64 = 0.25;
/// What whyslow itself and a noisy host take from a victim is not its fault's.
const EXACT: f64 = 0.15;

/// One live fault.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Which, by the rule that should find it: "cpu-quota".
    fault: String,
    /// "fault", "twin" or "false-positive control".
    #[serde(default)]
    form: FormSpec,
    /// Memory that its victims may use.
    #[serde(default)]
    memory_mib: Option<u64>,
    /// Its files are on a disk of which each request takes so long.
    #[serde(default)]
    disk_us: Option<u64>,
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
    counted: u64,
    is_emulated: bool,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.rule() == self.fault);
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
        Ok(Box::new(Running { scenario, form: self.form, counted: 0, is_emulated: testbed.is_guest() }))
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.counted = self.scenario.counter()?.unwrap_or(0);
        Ok(self.scenario.impose()?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(self.scenario.lift()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let victim = self.scenario.victim();
        let known = [
            ("group", self.scenario.binding().to_owned()),
            ("comm", victim.comm().to_owned()),
            ("pid", victim.pid().to_string()),
        ];
        known.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let truth = self.scenario.truth_of(window, without);
        let what = format!("{}; its victims' pieces of work a second", self.scenario);
        let proof = match self.form {
            FormSpec::Fault => {
                let proof =
                    Proof::falls(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - bars::A_FAULT));
                let is_steady = self.is_emulated || truth.drift <= bars::DRIFT;
                Proof { holds: proof.holds && is_steady, ..proof }
            }
            FormSpec::Twin | FormSpec::Control => {
                let no_loss = if self.is_emulated { NO_LOSS } else { bars::NO_FAULT };
                Proof::stays(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - no_loss))
            }
        };
        let lost = truth.lost_s();
        let exact = if self.is_emulated { EXACT } else { 0.0 };
        let slack = exact * truth.tasks as f64 * truth.window_s;
        let mut names = self.names();
        if let Some(counter) = self.scenario.counter()? {
            names.insert("counted".to_owned(), counter.saturating_sub(self.counted).to_string());
        }
        names.insert(LIMITS.to_owned(), self.scenario.limits().join(" "));
        Ok(Facts { proof, lost_s: Some(((lost - slack).max(0.0), lost + slack)), names })
    }
}
