//! Whether what was said of healthy CPUs is right. Pure: what was measured and the document in, a verdict out.

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Sight, Verb};

const RULE: &str = "slow-cpu";
/// What whyslow measures may differ by this from what the test does.
const EXACT: f64 = 0.10;
/// A CPU that the hypervisor gave to others for this part of the time was another's: what is measured on it is chance.
pub const STOLEN: f64 = 0.02;

/// What was measured by the test's own loop and by the kernel.
#[derive(Debug)]
pub struct Made {
    /// The fastest loop of each CPU, before the look and after it.
    pub before: Vec<f64>,
    pub after: Vec<f64>,
    /// Of all CPU time meanwhile.
    pub steal: f64,
    /// What the test's load used.
    pub sight: Sight,
}

fn numbers(document: &Value, name: &str) -> Vec<f64> {
    document["cpus"].as_array().into_iter().flatten().filter_map(|cpu| cpu[name].as_f64()).collect()
}

/// The first CPU whose speed against that of CPU 0 is not the same by both.
fn differs(ours: &[f64], truth: &[f64]) -> Option<String> {
    let (Some(first), Some(first_true)) = (ours.first(), truth.first()) else {
        return Some("nothing was measured".to_owned());
    };
    let is_far = |(our, truth): &(&f64, &f64)| ((*our / first) / (*truth / first_true) - 1.0).abs() > EXACT;
    let far = ours.iter().zip(truth).find(is_far);
    far.map(|(our, truth)| format!("{our} of {first}, and {truth} of {first_true}"))
}

impl Made {
    /// In one line.
    pub fn reported(&self, look: &Look) -> String {
        let speeds = numbers(&look.document, "million_s");
        format!("{speeds:?}, {self:?} (all of it: {})", look.kept.display())
    }

    /// Why CPUs were not alike by the clocks of the test.
    fn disturbed(&self) -> Option<String> {
        if self.steal > STOLEN {
            return Some(format!("{:.1} % of the CPUs were stolen", 100.0 * self.steal));
        }
        if let Some(what) = differs(&self.before, &self.after) {
            return Some(format!("CPUs changed: {what}"));
        }
        // CPU after CPU was measured: of a host that is faster at one time than at another they tell the times, not the CPUs.
        let all = || self.before.iter().chain(&self.after).copied();
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        (most > (1.0 + EXACT) * least).then(|| format!("the test's own loop took {least} to {most} s"))
    }

    /// Judge what `whyslow cpu` said of them.
    pub fn judge(&self, look: &Look) -> Verdict {
        let wrong =
            |wrong: Wrong| Verdict::Wrong(wrong.told(|what| format!("{what}: {}", self.reported(look))));
        if let Err(what) = self.could_look(look) {
            return wrong(what);
        }
        match (self.disturbed(), self.is_true(look)) {
            (Some(why), _) => Verdict::Again(format!("{why}: {}", self.reported(look))),
            (None, Ok(())) => Verdict::Passed,
            (None, Err(what)) => wrong(what),
        }
    }

    fn could_look(&self, look: &Look) -> Result<(), Wrong> {
        look.is_sound(Verb::Cpu)?;
        said::could_tell(&look.document, &[RULE])?;
        said::rules_out(&look.document)?;
        Ok(self.sight.is_in(&look.document)?)
    }

    /// No CPU is slow, each was measured, and they differ as they do by the other loop.
    fn is_true(&self, look: &Look) -> Result<(), Wrong> {
        let ours = numbers(&look.document, "million_s");
        let mut findings = look.document["findings"].as_array().into_iter().flatten();
        let is_accused = findings.any(|found| found["rule"] == RULE);
        if is_accused || !numbers(&look.document, "slow").is_empty() {
            return Err(Wrong::accused(format!("{:#}", look.document["cpus"])));
        }
        if ours.len() != self.after.len() {
            return Err(Wrong::missed(format!("{:#}", look.document["cpus"])));
        }
        differs(&ours, &self.after).map_or(Ok(()), |what| Err(Wrong::inexact(what)))
    }
}
