//! What whyslow said beside what the victims' clocks say: found, missed, false, or no judgement at all.

use std::fmt;

use serde_json::Value;
use whyslow_faults::expected::{Expected, Wrong};
use whyslow_faults::said::Verb;

use crate::plan::RunFacts;
use crate::scenario::Script;

/// How one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked was answered, and nobody was accused falsely.
    Found,
    /// Something that was asked was not answered.
    Missed(String),
    /// Somebody was accused who did nothing.
    False(String),
    /// The guest died, or the kernel complained: nothing can be said of whyslow.
    Failed(String),
    /// By the victims' own clock the fault (or the load) did not come about, the emulator broke the guest, or whyslow itself says
    /// that it could not look: nothing was proven. It is run again.
    Unmade(String),
    /// It could not be run here.
    NotRun(String),
}

impl Verdict {
    /// In one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Found => "found",
            Verdict::Missed(_) => "missed",
            Verdict::False(_) => "false",
            Verdict::Failed(_) | Verdict::Unmade(_) => "failed",
            Verdict::NotRun(_) => "not run",
        }
    }

    /// What was not found beside others' work proves nothing: time that the host takes from a guest is in nobody's account there.
    #[must_use]
    pub fn or_of_a_crowded_host(self, crowded: Option<String>) -> Verdict {
        match (self, crowded) {
            (Verdict::Missed(what) | Verdict::False(what), Some(crowded)) => {
                Verdict::Unmade(format!("{crowded} of the host; {what}"))
            }
            (verdict, _) => verdict,
        }
    }

    /// Why, where there is something to say.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::Found => None,
            Verdict::Missed(why)
            | Verdict::False(why)
            | Verdict::Failed(why)
            | Verdict::Unmade(why)
            | Verdict::NotRun(why) => Some(why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why() {
            Some(why) => write!(f, "{}: {why}", self.word()),
            None => f.write_str(self.word()),
        }
    }
}

/// Judge one run.
#[must_use]
pub fn judge(script: &Script, ran: &RunFacts, document: Option<&Value>) -> Verdict {
    if let Some(trouble) = &ran.trouble {
        return Verdict::Failed(trouble.clone());
    }
    if let Some(facts) = ran.faults.iter().chain(&ran.loads).find(|facts| !facts.proof.holds) {
        return Verdict::Unmade(facts.proof.to_string());
    }
    if ran.faults.len() < script.fault.len() {
        return Verdict::Failed("not every fault told its facts".into());
    }
    let document = match (document, &ran.no_answer) {
        (Some(document), None) => document,
        (_, why) => {
            return Verdict::Missed(why.clone().unwrap_or_else(|| "whyslow wrote no document".into()));
        }
    };
    if let Some(what) = &ran.unsound {
        return Verdict::Missed(what.clone());
    }
    match expected(script, ran).judge(document, Verb::of(&script.look.args), ran.status) {
        Ok(()) => Verdict::Found,
        Err(Wrong::Missed(what)) => Verdict::Missed(what),
        Err(Wrong::False(what)) => Verdict::False(what),
        Err(Wrong::Blind(why)) => Verdict::Unmade(why),
    }
}

/// What must be said of a run, and what must not.
#[must_use]
pub fn expected(script: &Script, ran: &RunFacts) -> Expected {
    Expected {
        faults: ran.faults.clone(),
        loads: ran.loads.clone(),
        answer: script.answer.clone(),
        never: script.never.clone(),
        may: script.may.clone(),
    }
}

/// What looking cost: CPU seconds of whyslow and of its BPF programs, and its memory in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// CPU seconds of whyslow.
    pub cpu_s: f64,
    /// Run time of its BPF programs.
    pub bpf_s: f64,
    /// Peak resident memory, MiB.
    pub rss_mib: f64,
}

impl Cost {
    /// As the document has it.
    #[must_use]
    pub fn of(document: &Value) -> Self {
        let number = |name: &str| document["own_cost"][name].as_f64().unwrap_or(0.0);
        let rss_mib = number("rss_bytes") / f64::from(1 << 20);
        Cost { cpu_s: number("cpu_s"), bpf_s: number("bpf_s"), rss_mib }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

#[cfg(test)]
mod stand_ins;
