//! Compares whyslow's document with the victims' clocks: found, wrong, or not judged.

use std::fmt;

use serde_json::Value;
use whyslow_faults::expected::Expected;
use whyslow_faults::report_checks::Verb;
use whyslow_faults::wrong::Wrong;

use crate::plan::RunFacts;
use crate::scenario::Script;

/// How one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All required answers were given, and there was no false accusation.
    Found,
    /// A required answer is missing, or an innocent task was accused, or whyslow was not able to observe.
    Wrong(Wrong),
    /// The guest died, or the kernel complained: the run says nothing about whyslow.
    Failed(String),
    /// By the victims' own clock the fault (or the load) did not come about, or the emulator broke the guest: nothing was proven. The run
    /// is repeated.
    Unmade(String),
    /// The run is not possible here.
    NotRun(String),
}

impl Verdict {
    /// In one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Found => "found",
            Verdict::Wrong(wrong) => wrong.sort.word(),
            Verdict::Failed(_) | Verdict::Unmade(_) => "failed",
            Verdict::NotRun(_) => "not run",
        }
    }

    /// A result beside other load proves nothing, right or wrong: time that the host takes from a guest is in no account of the guest.
    #[must_use]
    pub fn or_of_a_crowded_host(self, crowded: Option<String>) -> Verdict {
        match (self, crowded) {
            (verdict @ (Verdict::Found | Verdict::Wrong(_)), Some(crowded)) => {
                Verdict::Unmade(format!("{crowded} of the host; {verdict}"))
            }
            (verdict, _) => verdict,
        }
    }

    /// The reason, if there is one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::Found => None,
            Verdict::Wrong(wrong) => Some(&wrong.what),
            Verdict::Failed(why) | Verdict::Unmade(why) | Verdict::NotRun(why) => Some(why),
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
        return Verdict::Failed("not every fault reported its facts".into());
    }
    let document = match (document, &ran.no_answer) {
        (Some(document), None) => document,
        (_, why) => {
            let why = why.as_deref().unwrap_or("whyslow wrote no document");
            return Verdict::Wrong(Wrong::missed(why));
        }
    };
    if let Some(what) = &ran.unsound {
        return Verdict::Wrong(Wrong::missed(what));
    }
    match expected(script, ran).judge(document, Verb::of(&script.look.args), ran.status) {
        Ok(()) => Verdict::Found,
        Err(wrong) => Verdict::Wrong(wrong),
    }
}

/// What the document of a run must contain, and what it must not.
#[must_use]
pub fn expected(script: &Script, ran: &RunFacts) -> Expected {
    Expected {
        faults: ran.faults.clone(),
        loads: ran.loads.clone(),
        seen: ran.seen.clone(),
        answer: script.answer.clone(),
        never: script.never.clone(),
        may: script.may.clone(),
        about: None,
    }
}

/// The cost of whyslow: CPU seconds of whyslow and of its BPF programs, its waits for kernel locks, and its memory in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// CPU seconds of whyslow.
    pub cpu_s: f64,
    /// Run time of its BPF programs.
    pub bpf_s: f64,
    /// Time of its threads in D state, but for I/O.
    pub blocked_s: f64,
    /// Peak resident memory, MiB.
    pub rss_mib: f64,
}

impl Cost {
    /// As the document has it.
    #[must_use]
    pub fn of(document: &Value) -> Self {
        let number = |name: &str| document["own_cost"][name].as_f64().unwrap_or(0.0);
        let rss_mib = number("rss_bytes") / f64::from(1 << 20);
        Cost { cpu_s: number("cpu_s"), bpf_s: number("bpf_s"), blocked_s: number("blocked_s"), rss_mib }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

#[cfg(test)]
mod stand_ins;
