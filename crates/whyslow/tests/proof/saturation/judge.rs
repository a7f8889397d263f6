//! Whether what was said of each cell is right. Pure: what was made and the document in, a verdict out.

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Sight, Verb};

/// A thread that got this part of a CPU was full.
pub const FULL: f64 = 0.85;
/// Emulated or shared CPUs, and births of processes, take from the time that is reported.
const ABOUT: f64 = 0.75;

/// Threads of one process.
#[derive(Debug)]
pub struct Threads {
    pub healthy: bool,
    pub pid: u32,
    pub comm: String,
    /// So many are full, beside so many that sleep.
    pub full: u64,
    pub sleepers: u64,
    /// What each got of a CPU: schedstat.
    pub shares: Vec<f64>,
    /// What others did with the host.
    pub disturbed: Option<String>,
    pub sight: Sight,
}

/// Processes that wait for their children.
#[derive(Debug)]
pub struct Waiters {
    pub healthy: bool,
    pub comm: String,
    pub many: u64,
    /// So many were in D state on average, by their own clocks.
    pub asleep: f64,
    /// Tasks that ran or were ready.
    pub others: f64,
    pub sight: Sight,
}

/// A process that stops until its child has computed.
#[derive(Debug)]
pub struct Children {
    pub comm: String,
    pub sight: Sight,
}

/// A cell that was made.
pub trait Judged: std::fmt::Debug {
    /// The rule that it is about.
    const RULE: &'static str;

    /// What its tasks used.
    fn sight(&self) -> &Sight;

    /// What must hold whoever else uses the host.
    fn on_any_host(&self, look: &Look) -> Result<(), Wrong>;

    /// Why it did not come about, by the clocks of the test.
    fn is_not_made(&self) -> Option<String>;

    /// What others did with the host: then nothing more is asked.
    fn disturbed(&self) -> Option<String> {
        None
    }

    /// The rest.
    fn as_asked(&self, look: &Look) -> Result<(), Wrong>;

    /// Judge a look at it.
    fn judge(&self, look: &Look) -> Verdict {
        let context = || {
            format!("{self:?}, told {:#?} (all of it: {})", of_rule(look, Self::RULE), look.kept.display())
        };
        let reported = self.on_any_host(look).and_then(|()| could_look(look, Self::RULE, self.sight()));
        let reported = reported.and_then(|()| match self.is_not_made().or_else(|| self.disturbed()) {
            Some(why) => Ok(Some(why)),
            None => self.as_asked(look).map(|()| None),
        });
        match reported {
            Ok(None) => Verdict::Passed,
            Ok(Some(why)) => Verdict::Again(format!("{why}: {}", context())),
            Err(wrong) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context()))),
        }
    }
}

fn could_look(look: &Look, rule: &str, sight: &Sight) -> Result<(), Wrong> {
    look.is_sound(Verb::Exam)?;
    said::could_tell(&look.document, &[rule])?;
    said::rules_out(&look.document)?;
    Ok(sight.is_in(&look.document)?)
}

fn findings(look: &Look) -> &[Value] {
    look.document["findings"].as_array().map_or(&[], Vec::as_slice)
}

fn of_rule<'l>(look: &'l Look, rule: &str) -> Vec<&'l Value> {
    findings(look).iter().filter(|finding| finding["rule"] == rule).collect()
}

impl Threads {
    fn are_full(&self) -> bool {
        self.shares.iter().all(|share| *share >= FULL)
    }

    fn is_any_full(&self) -> bool {
        self.shares.iter().any(|share| *share >= FULL)
    }

    fn reported<'l>(&self, look: &'l Look) -> Option<&'l Value> {
        let id = self.pid.to_string();
        of_rule(look, Self::RULE).into_iter().find(|finding| finding["victim"]["id"] == id.as_str())
    }
}

impl Judged for Threads {
    const RULE: &'static str = "full-thread";

    fn sight(&self) -> &Sight {
        &self.sight
    }

    /// A statement about a process of this name, before all other risks.
    fn on_any_host(&self, look: &Look) -> Result<(), Wrong> {
        let Some(finding) = self.reported(look) else { return Ok(()) };
        if finding["kind"] == "cause" {
            return Err(Wrong::accused(format!("it is accused, and no task waits for it: {finding}")));
        }
        let first = findings(look).iter().find(|finding| finding["kind"] == "risk");
        if first.is_none_or(|finding| finding["rule"] != Self::RULE) {
            return Err(Wrong::inexact(format!("not the first of the risks: {first:?}")));
        }
        if finding["victim"]["name"] != self.comm {
            return Err(Wrong::inexact(format!("it is not called {}: {finding}", self.comm)));
        }
        if self.healthy && !self.is_any_full() {
            return Err(Wrong::accused("it has time to spare, and is reported"));
        }
        Ok(())
    }

    fn is_not_made(&self) -> Option<String> {
        match self.healthy {
            true => self.is_any_full().then(|| "a thread was full".to_owned()),
            false => (!self.are_full()).then(|| "they were not full".to_owned()),
        }
    }

    fn disturbed(&self) -> Option<String> {
        self.disturbed.clone()
    }

    fn as_asked(&self, look: &Look) -> Result<(), Wrong> {
        let all = format!("{} of its {} threads", self.full, self.full + self.sleepers);
        match self.reported(look).map(|finding| finding["title"].as_str().unwrap_or_default()) {
            None if self.healthy => Ok(()),
            Some(title) if self.healthy => Err(Wrong::accused(title)),
            None => Err("not told".into()),
            Some(title) if !title.contains(&all) => {
                Err(Wrong::inexact(format!("{all} is not what it says, {title}")))
            }
            Some(_) => Ok(()),
        }
    }
}

impl Judged for Waiters {
    const RULE: &'static str = "load-average";

    fn sight(&self) -> &Sight {
        &self.sight
    }

    fn on_any_host(&self, look: &Look) -> Result<(), Wrong> {
        let reported = of_rule(look, Self::RULE);
        if reported.iter().any(|finding| finding["kind"] == "cause") {
            return Err(Wrong::accused("a load is nobody's loss"));
        }
        match reported.iter().find(|finding| self.healthy && finding.to_string().contains(&self.comm)) {
            Some(blame) => {
                Err(Wrong::accused(format!("a sleep that is no load is reported as one: {blame}")))
            }
            None => Ok(()),
        }
    }

    fn is_not_made(&self) -> Option<String> {
        let is_too_few = !self.healthy && self.asleep < self.many as f64 * ABOUT;
        is_too_few.then(|| "too few were in D".to_owned())
    }

    fn disturbed(&self) -> Option<String> {
        let is_crowded = !self.healthy && self.others > self.asleep * ABOUT;
        is_crowded.then(|| format!("as many others wanted CPUs, {}", self.others))
    }

    /// They are reported as what they are, and about as many as there are.
    fn as_asked(&self, look: &Look) -> Result<(), Wrong> {
        if self.healthy {
            return Ok(());
        }
        let hop = of_rule(look, Self::RULE).first().map(|finding| &finding["chain"][0]);
        let Some(hop) = hop.filter(|hop| hop.is_object()) else { return Err("not told".into()) };
        let (who, lost) = (hop["who"].as_str().unwrap_or(""), hop["lost_s"].as_f64().unwrap_or(0.0));
        let tasks = lost / look.document["window_s"].as_f64().unwrap_or(1.0).max(1e-3);
        if !who.contains(&self.comm) || hop["reason"] != "vfork" {
            return Err(format!("not {} that waits for its children", self.comm).into());
        }
        let (least, most) = (self.asleep * ABOUT, self.many as f64 / ABOUT);
        if tasks < least || tasks > most {
            return Err(Wrong::inexact(format!(
                "{tasks:.1} tasks are reported, not {least:.1} to {most:.1}"
            )));
        }
        Ok(())
    }
}

impl Judged for Children {
    const RULE: &'static str = "lock-wait";

    fn sight(&self) -> &Sight {
        &self.sight
    }

    fn on_any_host(&self, look: &Look) -> Result<(), Wrong> {
        let is_ours = |value: &&Value| value.to_string().contains(&self.comm);
        match of_rule(look, Self::RULE).into_iter().find(is_ours) {
            Some(blame) => Err(Wrong::accused(format!("told as a loss, {blame}"))),
            None => Ok(()),
        }
    }

    fn is_not_made(&self) -> Option<String> {
        None
    }

    /// It could be seen: else that nobody is accused would prove nothing.
    fn as_asked(&self, look: &Look) -> Result<(), Wrong> {
        let chains = look.document["chains"].as_array().map_or(&[][..], Vec::as_slice);
        let is_its =
            |chain: &Value| chain["hops"][0]["reason"] == "vfork" && chain.to_string().contains(&self.comm);
        if chains.iter().any(is_its) { Ok(()) } else { Err("its waits are in no chain".into()) }
    }
}
