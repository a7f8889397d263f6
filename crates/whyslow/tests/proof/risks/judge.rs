//! What must be said of a risk that was made, and what must not be said of its twin.

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Sight, Verb};

/// The CPU time of a risk, against what its threads counted: samples are 5 ms apart, and the way into the call and out of it is
/// theirs, too.
const CPU: std::ops::Range<f64> = 0.6..1.4;
/// Who used less of a CPU than this is no fault yet (the rule's own threshold is 5 %).
const LEAST_CPU_S: f64 = 0.3;

/// What a rule in `may` may say: of one program at a time, in a window of 3 s.
const MOST_LOST_S: f64 = 4.0;

/// What was made.
pub struct Made {
    pub rule: &'static str,
    pub healthy: bool,
    /// Whom a finding about it names.
    pub subject: String,
    /// Rules whose causes may name it, too: what makes the risk costs it time.
    pub may: &'static [&'static str],
    /// What it must say.
    pub says: Vec<String>,
    /// CPU seconds that it is about, by its own clock.
    pub cpu: Option<f64>,
    /// It did not come about, or others made it, too.
    pub again: Option<String>,
    /// Somebody else who used some CPU in its window: who did not look does not know.
    pub sight: Option<Sight>,
}

impl Made {
    pub fn judge(&self, look: &Look) -> Verdict {
        let kept = format!("(all of it: {})", look.kept.display());
        let found = look.document["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let names = |finding: &&Value| finding.to_string().contains(&self.subject);
        // What the subject lost itself, to others or to a slow CPU, is another matter.
        let accuses = |finding: &&Value| {
            let is_its_doing =
                finding["rule"] == self.rule || finding["culprit"].to_string().contains(&self.subject);
            let is_due = !self.healthy
                && finding["lost_s"].as_f64().is_some_and(|lost| lost < MOST_LOST_S)
                && self.may.iter().any(|rule| finding["rule"] == *rule);
            finding["kind"] == "cause" && is_its_doing && !is_due
        };
        if let Some(cause) = found.iter().filter(names).find(accuses) {
            return Verdict::Wrong(Wrong::accused(format!("a risk is told as a loss: {cause} {kept}")));
        }
        let sound = look.is_sound(Verb::Exam).and_then(|()| said::could_tell(&look.document, &[self.rule]));
        let seen = || self.sight.as_ref().map_or(Ok(()), |sight| sight.is_in(&look.document));
        if let Err(wrong) = sound.and_then(|()| Ok(seen()?)) {
            return Verdict::Wrong(wrong.told(|why| format!("{why} {kept}")));
        }
        let mine = found.iter().filter(names).find(|finding| finding["rule"] == self.rule);
        if let Some(again) = &self.again {
            return Verdict::Again(format!("{again} {kept}"));
        }
        match (mine, self.healthy) {
            (Some(risk), true) => {
                Verdict::Wrong(Wrong::accused(format!("the healthy twin is accused: {risk} {kept}")))
            }
            (None, true) => Verdict::Passed,
            (None, false) => self.silent(&kept),
            (Some(risk), false) => self.told(risk, &kept),
        }
    }

    fn silent(&self, kept: &str) -> Verdict {
        match self.cpu {
            Some(cpu) if cpu < LEAST_CPU_S => {
                Verdict::Again(format!("it used {cpu:.2} s of CPU only {kept}"))
            }
            _ => Verdict::Wrong(Wrong::missed(format!(
                "{} says nothing of {} {kept}",
                self.rule, self.subject
            ))),
        }
    }

    fn told(&self, risk: &Value, kept: &str) -> Verdict {
        let text = risk.to_string();
        if let Some(absent) = self.says.iter().find(|words| !text.contains(words.as_str())) {
            return Verdict::Wrong(Wrong::inexact(format!("{absent:?} is not in {text} {kept}")));
        }
        if let Some(cpu) = self.cpu.filter(|cpu| *cpu < LEAST_CPU_S) {
            return Verdict::Again(format!("it used {cpu:.2} s of CPU only: too few samples {kept}"));
        }
        let ratio = self.cpu.map(|cpu| risk["cpu_s"].as_f64().unwrap_or(0.0) / cpu.max(1e-6));
        match ratio {
            Some(ratio) if !CPU.contains(&ratio) => {
                Verdict::Wrong(Wrong::inexact(format!("told/true CPU time is {ratio:.2}: {text} {kept}")))
            }
            _ => Verdict::Passed,
        }
    }
}
