//! What whyslow said beside what the victims' clocks say: found, missed, false, or no judgement at all.

use std::fmt;

use serde_json::Value;
use whyslow_faults::said::{self, Verb};
use whyslow_faults::story;

use crate::plan::{Facts, LIMITS, RATIO, RunFacts};
use crate::scenario::{Answer, Never, Script, Section};
use crate::testbed::with_names;

mod document;

use document::{gather, has, items, ratio_of, reported, rule_of, time_of, words_of};

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
    if let Err(what) = is_sound(script, ran, document) {
        return Verdict::Missed(what);
    }
    if let Some(what) = story::broken(document).into_iter().next() {
        return Verdict::False(what);
    }
    if let Some(what) = false_accusation(script, ran, document) {
        return Verdict::False(what);
    }
    let unanswered = script.answer.iter().find_map(|answer| {
        let facts = ran.faults.get(answer.of)?;
        is_answered(answer, facts, document).err()
    });
    match (unanswered, could_look(script, document)) {
        (Some(what), _) => Verdict::Missed(what),
        (None, Err(why)) => Verdict::Unmade(why),
        (None, Ok(())) => Verdict::Found,
    }
}

/// The document is whole, and of the time in which it was asked for.
fn is_sound(script: &Script, ran: &RunFacts, document: &Value) -> Result<(), String> {
    let verb = Verb::of(&script.look.args);
    if script.never.unprobed {
        said::is_of_the_contract(document, verb, ran.status)?;
    } else {
        said::is_whole(document, verb, ran.status)?;
    }
    said::rules_out(document)?;
    ran.unsound.clone().map_or(Ok(()), Err)
}

/// An emulated CPU may have too little time for what these need, beside honest load: CPUs are measured, and files are read that are
/// given up where that takes too long. They are asked where they are named.
const COSTLY: [&str; 2] = ["slow-cpu", "slow-receiver"];

/// Silence counts only of somebody who could look: its probes were attached, and of no rule that must not accuse here it says
/// that it cannot tell. An emulated host may be too slow for that; so it is run again, and never found.
fn could_look(script: &Script, document: &Value) -> Result<(), String> {
    let never = &script.never;
    if !never.unprobed {
        said::has_its_probes(document)?;
    }
    let can_look = |rule: &&str| !never.blind.iter().any(|blind| blind == rule);
    let of_any =
        said::RULES.into_iter().filter(|rule| never.any_cause && !never.unprobed && !COSTLY.contains(rule));
    let rules: Vec<&str> = of_any.chain(never.rules.iter().map(String::as_str)).filter(can_look).collect();
    said::could_tell(document, &rules)
}

/// The first cause that nobody asked for, and nobody allows.
fn false_accusation(script: &Script, ran: &RunFacts, document: &Value) -> Option<String> {
    let causes = items(Section::Causes, document);
    let is_covered = |cause: &Value| {
        let rule = rule_of(cause);
        script.may.iter().any(|may| may == rule)
            || script.answer.iter().any(|answer| {
                let facts = ran.faults.get(answer.of);
                answer.section == Section::Causes && facts.is_some_and(|facts| is_it(answer, facts, cause))
            })
    };
    let never = &script.never;
    let accusation = causes.iter().find(|cause| {
        let is_allowed = script.may.iter().any(|may| may == rule_of(cause));
        let is_refused = never.rules.iter().any(|rule| rule == rule_of(cause));
        (never.any_cause && !is_allowed) || is_refused || !is_covered(cause)
    });
    match accusation {
        Some(cause) => Some(reported(Section::Causes, cause) + &not_asked(script, ran, cause)),
        None => never_named(never, ran, document).or_else(|| other_cpu(script, ran, document)),
    }
}

/// What it lacks of an answer by its rule: whether it is another one, or the same in other words.
fn not_asked(script: &Script, ran: &RunFacts, cause: &Value) -> String {
    let by_rule =
        script.answer.iter().filter(|answer| answer.rules.iter().any(|rule| rule == rule_of(cause)));
    let lacks = by_rule.filter_map(|answer| {
        let facts = ran.faults.get(answer.of)?;
        let words = words_of(cause);
        let names = answer.names.iter().map(|name| with_names(name, &facts.names));
        let lacking: Vec<String> = names.filter(|name| !has(&words, name)).collect();
        Some(format!("; it lacks {lacking:?}: {}", words.join(" | ")))
    });
    lacks.collect()
}

/// A CPU that is said to be slow, and nobody asked for.
fn other_cpu(script: &Script, ran: &RunFacts, document: &Value) -> Option<String> {
    let is_asked = |cpu: &Value| {
        script
            .answer
            .iter()
            .filter(|answer| answer.section == Section::Cpus)
            .any(|answer| ran.faults.get(answer.of).is_some_and(|facts| is_it(answer, facts, cpu)))
    };
    let cpus = items(Section::Cpus, document);
    let other = cpus.into_iter().find(|cpu| script.never.other_cpus && !is_asked(cpu))?;
    Some(reported(Section::Cpus, other))
}

fn never_named(never: &Never, ran: &RunFacts, document: &Value) -> Option<String> {
    let facts: Vec<&Facts> = ran.faults.iter().chain(&ran.loads).collect();
    let is_in = |name: &String, section: Section| {
        let name = facts.iter().fold(name.clone(), |name, facts| with_names(&name, &facts.names));
        let item = items(section, document).into_iter().find(|item| has(&words_of(item), &name))?;
        Some(format!("{name} is named: {}", reported(section, item)))
    };
    let in_causes = never.in_causes.iter().chain(&never.names).find_map(|name| is_in(name, Section::Causes));
    in_causes.or_else(|| never.names.iter().find_map(|name| is_in(name, Section::Chains)))
}

/// Where it stands and what it tells are right.
fn is_answered(answer: &Answer, facts: &Facts, document: &Value) -> Result<(), String> {
    let all = items(answer.section, document);
    let Some(rank) = all.iter().position(|item| is_it(answer, facts, item)) else {
        let first: Vec<String> = all.iter().take(3).map(|item| reported(answer.section, item)).collect();
        return Err(format!("{} is in no item of {:?}: {first:?}", asked(answer, facts), answer.section));
    };
    if rank >= answer.rank {
        let above = all.first().map(|item| reported(answer.section, item)).unwrap_or_default();
        return Err(format!("{} is number {}, below {above}", asked(answer, facts), rank + 1));
    }
    right_ratio(answer, facts, document)?;
    right_limits(answer, facts, all[rank])?;
    let Some([least, most]) = answer.lost else { return Ok(()) };
    let (low, high) = facts.lost_s.ok_or("its fault tells no time")?;
    let lost = time_reported(answer, facts, document);
    if lost >= low * least && lost <= high * most {
        return Ok(());
    }
    Err(format!("{}: {lost:.2} s told, {low:.2} to {high:.2} s by its victims' clock", asked(answer, facts)))
}

/// Of nested limits all that must change are lifted, and no other.
fn right_limits(answer: &Answer, facts: &Facts, item: &Value) -> Result<(), String> {
    if !answer.lifts {
        return Ok(());
    }
    let limits = facts.names.get(LIMITS).ok_or("its fault tells no limits")?;
    let limits: Vec<String> = limits.split_whitespace().map(str::to_owned).collect();
    if said::lifts(item, &limits) {
        return Ok(());
    }
    Err(format!("its fixes do not lift just {limits:?}: {}", item["fixes"]))
}

/// The middle one, where several CPUs are slow alike.
fn right_ratio(answer: &Answer, facts: &Facts, document: &Value) -> Result<(), String> {
    let Some([least, most]) = answer.ratio else { return Ok(()) };
    let truth = facts.names.get(RATIO).and_then(|text| text.parse::<f64>().ok());
    let truth = truth.ok_or("its fault tells no ratio")?;
    let all = items(answer.section, document);
    let mut reported: Vec<f64> =
        all.into_iter().filter(|item| is_it(answer, facts, item)).filter_map(ratio_of).collect();
    reported.sort_by(f64::total_cmp);
    let reported = reported.get(reported.len() / 2).copied().unwrap_or(0.0);
    if reported >= truth * least && reported <= truth * most {
        return Ok(());
    }
    Err(format!(
        "{}: {reported:.2} times slower is reported, {truth:.2} by its own clock",
        asked(answer, facts)
    ))
}

/// One loss may be reported in parts: by victim, by the ways that a chain takes.
fn time_reported(answer: &Answer, facts: &Facts, document: &Value) -> f64 {
    let all = items(answer.section, document);
    let alike = all.into_iter().filter(|item| is_it(answer, facts, item));
    alike.filter_map(|item| time_of(answer.section, item)).fold(0.0, |sum, time| sum + time)
}

/// Of each answer that asks for a time: what was reported, by the middle of what the victims' clock says.
#[must_use]
pub fn reported_to_true(script: &Script, ran: &RunFacts, document: &Value) -> Vec<f64> {
    let one = |answer: &Answer| {
        let facts = ran.faults.get(answer.of)?;
        let (low, high) = facts.lost_s.filter(|_| answer.lost.is_some())?;
        let middle = (low + high) / 2.0;
        (middle > 0.0).then(|| time_reported(answer, facts, document) / middle)
    };
    script.answer.iter().filter_map(one).collect()
}

fn asked(answer: &Answer, facts: &Facts) -> String {
    let names: Vec<String> =
        answer.names.iter().chain(&answer.order).map(|name| with_names(name, &facts.names)).collect();
    format!("{} [{}]", answer.rules.join(" or "), names.join(", "))
}

/// It is the item that is asked for, whatever it tells of time.
fn is_it(answer: &Answer, facts: &Facts, item: &Value) -> bool {
    let by_rule = answer.rules.is_empty() || answer.rules.iter().any(|rule| rule == rule_of(item));
    let words = words_of(item);
    let named = answer.names.iter().all(|name| has(&words, &with_names(name, &facts.names)));
    by_rule && named && is_in_order(answer, facts, item)
}

fn is_in_order(answer: &Answer, facts: &Facts, item: &Value) -> bool {
    let hops = item["hops"].as_array().or_else(|| item["chain"].as_array());
    let mut hops = hops.into_iter().flatten().enumerate().map(|(at, hop)| {
        let mut words = Vec::new();
        gather(hop, &mut words);
        gather(&item["tasks"][at], &mut words);
        words
    });
    answer.order.iter().all(|name| {
        let name = with_names(name, &facts.names);
        hops.any(|words| has(&words, &name))
    })
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
