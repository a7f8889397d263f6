//! What whyslow must report about a made host, and what it must not report. The truth comes from the clocks of the victims and from what
//! was drawn. The lab judges its runs by it; replay judges the recordings of such runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report_checks::{self, Sight, Verb};
use crate::wrong::Wrong;
use crate::{story, thresholds};

mod answer;
mod captured;
mod document;
mod facts;
mod pings;
mod stalls;

pub use answer::{Answer, Never, Section};
pub use captured::{Captured, Without};
pub use document::{DOCTOR, words_of};
use document::{gather, has, items, ratio_of, reported, rule_of, time_of};
pub use facts::{Facts, LIMITS, Proof, RATIO, with_names};

/// All that a judge may know besides the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The outcome of each fault.
    pub faults: Vec<Facts>,
    /// The outcome of the other load.
    #[serde(default)]
    pub loads: Vec<Facts>,
    /// CPU use of groups that the document must report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Sight>,
    /// The answers that the document must give.
    #[serde(default)]
    pub answer: Vec<Answer>,
    /// The statements that the document must not make.
    #[serde(default)]
    pub never: Never,
    /// Rules whose causes are not false accusations here, although no answer requests them.
    #[serde(default)]
    pub may: Vec<String>,
    /// For a host that other processes use, too: the judge considers only items that accuse a process of this name, or that state about it
    /// what must not be stated; `a|b`: one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

impl Expected {
    /// Judge a document and the exit status that came with it.
    pub fn judge(&self, document: &Value, verb: Verb, status: Option<i32>) -> Result<(), Wrong> {
        // A false accusation counts even if the document is incomplete.
        if let Some(what) = self.false_accusation(document) {
            return Err(Wrong::accused(what));
        }
        self.is_sound(document, verb, status)?;
        if let Some(what) = story::broken(document).into_iter().next() {
            return Err(Wrong::missed(what));
        }
        let answered = |answer: &Answer| match self.faults.get(answer.of) {
            Some(facts) => is_answered(answer, facts, document),
            None => Err(format!("there is no fault {}", answer.of).into()),
        };
        self.answer.iter().try_for_each(answered)?;
        self.larger_losses_rank_first(document).map_err(Wrong::inexact)?;
        self.could_look(document)?;
        if verb == Verb::Asked { pings::has_asked(document) } else { Ok(()) }
    }

    /// Check that the document is complete.
    fn is_sound(&self, document: &Value, verb: Verb, status: Option<i32>) -> Result<(), String> {
        if self.never.unprobed {
            report_checks::is_of_the_contract(document, verb, status)?;
        } else {
            report_checks::is_whole(document, verb, status)?;
        }
        if verb == Verb::Cpu {
            report_checks::has_measured(document)?;
        }
        report_checks::rules_out(document)
    }

    /// Silence counts only if whyslow was able to see: its probes were attached, and it does not say "cannot tell" for a rule that must not
    /// accuse here. An emulated host may be too slow for that; then the run is repeated, and never counts as found.
    fn could_look(&self, document: &Value) -> Result<(), Wrong> {
        let never = &self.never;
        if !never.unprobed {
            report_checks::has_its_probes(document)?;
        }
        self.seen.iter().try_for_each(|sight| sight.is_in(document))?;
        let can_look = |rule: &&str| !never.blind.iter().any(|blind| blind == rule);
        let of_any = report_checks::RULES
            .into_iter()
            .filter(|rule| never.any_cause && !never.unprobed && !COSTLY.contains(rule));
        let rules: Vec<&str> =
            of_any.chain(never.rules.iter().map(String::as_str)).filter(can_look).collect();
        report_checks::could_tell(document, &rules)
    }

    /// Checks the ranks where the scenario requires it.
    fn larger_losses_rank_first(&self, document: &Value) -> Result<(), String> {
        if !self.never.turned {
            return Ok(());
        }
        let causes = items(Section::Causes, document);
        let placed = |answer: &Answer| {
            let facts = self.faults.get(answer.of).filter(|_| answer.section == Section::Causes)?;
            let rank = causes.iter().position(|cause| is_it(answer, facts, cause))?;
            Some((rank, facts.lost_s?, asked(answer, facts)))
        };
        let mut placed: Vec<_> = self.answer.iter().filter_map(placed).collect();
        placed.sort_by_key(|(rank, ..)| *rank);
        for (at, (_, (low, _), below)) in placed.iter().enumerate() {
            let smaller =
                placed[..at].iter().find(|(_, (_, high), _)| *low > (1.0 + thresholds::APART) * high);
            if let Some((.., above)) = smaller {
                return Err(format!("{above} stands above {below}, a larger loss"));
            }
        }
        Ok(())
    }

    /// The first cause that no answer requests and that is not allowed.
    fn false_accusation(&self, document: &Value) -> Option<String> {
        let causes = items(Section::Causes, document);
        let is_covered = |cause: &Value| {
            let rule = rule_of(cause);
            self.may.iter().any(|may| may == rule)
                || self.answer.iter().any(|answer| {
                    let facts = self.faults.get(answer.of);
                    answer.section == Section::Causes
                        && facts.is_some_and(|facts| is_it(answer, facts, cause))
                })
        };
        let never = &self.never;
        let accusation = causes.iter().filter(|cause| self.is_about(cause)).find(|cause| {
            let is_allowed = self.may.iter().any(|may| may == rule_of(cause));
            let is_refused = never.rules.iter().any(|rule| rule == rule_of(cause));
            (never.any_cause && !is_allowed) || is_refused || !is_covered(cause)
        });
        match accusation {
            Some(cause) => Some(reported(Section::Causes, cause) + &self.not_asked(cause)),
            None => self
                .never_named(document)
                .or_else(|| self.false_risk(document))
                .or_else(|| self.other_cpu(document))
                .or_else(|| stalls::accused(self, document))
                .or_else(|| pings::accused(self, document)),
        }
    }

    fn is_about(&self, item: &Value) -> bool {
        let is_refused = |item: &Value| {
            let never = &self.never;
            never.rules.iter().chain(&never.risks).any(|rule| rule == rule_of(item))
        };
        self.about.as_ref().is_none_or(|name| {
            has(&words_of(&item["culprit"]), name) || is_refused(item) && has(&words_of(item), name)
        })
    }

    fn false_risk(&self, document: &Value) -> Option<String> {
        let is_refused =
            |risk: &&Value| self.is_about(risk) && self.never.risks.iter().any(|rule| rule == rule_of(risk));
        let risk = items(Section::Risks, document).into_iter().find(is_refused)?;
        Some(reported(Section::Risks, risk))
    }

    /// What the cause lacks of an answer of the same rule: it may be another cause, or the same cause in other words.
    fn not_asked(&self, cause: &Value) -> String {
        let by_rule =
            self.answer.iter().filter(|answer| answer.rules.iter().any(|rule| rule == rule_of(cause)));
        let lacks = by_rule.filter_map(|answer| {
            let facts = self.faults.get(answer.of)?;
            let words = words_of(cause);
            let names = answer.names.iter().map(|name| with_names(name, &facts.names));
            let lacking: Vec<String> = names.filter(|name| !has(&words, name)).collect();
            Some(format!("; it lacks {lacking:?}: {}", words.join(" | ")))
        });
        lacks.collect()
    }

    /// A CPU that the document calls slow although no answer requests it.
    fn other_cpu(&self, document: &Value) -> Option<String> {
        let is_asked = |cpu: &Value| {
            self.answer
                .iter()
                .filter(|answer| answer.section == Section::Cpus)
                .any(|answer| self.faults.get(answer.of).is_some_and(|facts| is_it(answer, facts, cpu)))
        };
        let cpus = items(Section::Cpus, document);
        let other = cpus.into_iter().find(|cpu| self.never.other_cpus && !is_asked(cpu))?;
        Some(reported(Section::Cpus, other))
    }

    fn never_named(&self, document: &Value) -> Option<String> {
        let never = &self.never;
        let facts: Vec<&Facts> = self.faults.iter().chain(&self.loads).collect();
        let is_in = |name: &String, section: Section| {
            let name = facts.iter().fold(name.clone(), |name, facts| with_names(&name, &facts.names));
            let item = items(section, document).into_iter().find(|item| has(&words_of(item), &name))?;
            Some(format!("{name} is named: {}", reported(section, item)))
        };
        let in_causes =
            never.in_causes.iter().chain(&never.names).find_map(|name| is_in(name, Section::Causes));
        in_causes.or_else(|| never.names.iter().find_map(|name| is_in(name, Section::Chains)))
    }

    /// For each answer that requires a time: the reported time, divided by the middle of the victims' clock.
    #[must_use]
    pub fn reported_to_true(&self, document: &Value) -> Vec<f64> {
        let one = |answer: &Answer| {
            let facts = self.faults.get(answer.of)?;
            let (low, high) = facts.lost_s.filter(|_| answer.lost.is_some())?;
            let middle = (low + high) / 2.0;
            (middle > 0.0).then(|| time_reported(answer, facts, document) / middle)
        };
        self.answer.iter().filter_map(one).collect()
    }
}

/// On an emulated CPU beside honest load, these rules may not have enough time: one measures CPUs, another reads files and gives up after
/// a limit, the third removes its hooks where a CPU has very many softirqs. The judge asks for them only where an answer names them.
const COSTLY: [&str; 3] = ["slow-cpu", "slow-receiver", "packet-stalls"];

/// Checks the rank and the content of the answer.
fn is_answered(answer: &Answer, facts: &Facts, document: &Value) -> Result<(), Wrong> {
    let all = items(answer.section, document);
    let Some(rank) = all.iter().position(|item| is_it(answer, facts, item)) else {
        report_checks::could_tell(document, &answer.rules)?;
        let first: Vec<String> = all.iter().take(3).map(|item| reported(answer.section, item)).collect();
        let what = format!("{} is in no item of {:?}: {first:?}", asked(answer, facts), answer.section);
        return Err(Wrong::missed(what));
    };
    if rank >= answer.rank {
        let above = all.first().map(|item| reported(answer.section, item)).unwrap_or_default();
        let what = format!("{} is number {}, below {above}", asked(answer, facts), rank + 1);
        return Err(Wrong::inexact(what));
    }
    is_exact(answer, facts, document, all[rank]).map_err(Wrong::inexact)
}

/// Checks ratio, limits and time.
fn is_exact(answer: &Answer, facts: &Facts, document: &Value, item: &Value) -> Result<(), String> {
    right_ratio(answer, facts, document)?;
    pings::right_shares(answer, facts, document)?;
    right_limits(answer, facts, item)?;
    let Some([least, most]) = answer.lost else { return Ok(()) };
    let (low, high) = facts.lost_s.ok_or("its fault reports no time")?;
    let lost = time_reported(answer, facts, document);
    if lost >= low * least && lost <= high * most {
        return Ok(());
    }
    Err(format!(
        "{}: {lost:.2} s reported, {low:.2} to {high:.2} s by its victims' clock",
        asked(answer, facts)
    ))
}

/// For nested limits: the fixes lift all limits that must change, and no others.
fn right_limits(answer: &Answer, facts: &Facts, item: &Value) -> Result<(), String> {
    if !answer.lifts {
        return Ok(());
    }
    let limits = facts.names.get(LIMITS).ok_or("its fault reports no limits")?;
    let limits: Vec<String> = limits.split_whitespace().map(str::to_owned).collect();
    // Not every fault knows which limits must change.
    if limits.is_empty() || report_checks::lifts(item, &limits) {
        return Ok(());
    }
    Err(format!("its fixes do not lift just {limits:?}: {}", item["fixes"]))
}

/// Where several CPUs are equally slow, compares the median.
fn right_ratio(answer: &Answer, facts: &Facts, document: &Value) -> Result<(), String> {
    let Some([least, most]) = answer.ratio else { return Ok(()) };
    let truth = facts.names.get(RATIO).and_then(|text| text.parse::<f64>().ok());
    let truth = truth.ok_or("its fault reports no ratio")?;
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

/// whyslow may report one loss in parts: by victim, or by the paths of a chain.
fn time_reported(answer: &Answer, facts: &Facts, document: &Value) -> f64 {
    let all = items(answer.section, document);
    let alike = all.into_iter().filter(|item| is_it(answer, facts, item));
    alike.filter_map(|item| time_of(answer.section, item)).fold(0.0, |sum, time| sum + time)
}

fn asked(answer: &Answer, facts: &Facts) -> String {
    let parties = answer.victim.iter().chain(&answer.waiter);
    let names: Vec<String> = answer
        .names
        .iter()
        .chain(&answer.order)
        .chain(parties)
        .map(|name| with_names(name, &facts.names))
        .collect();
    format!("{} [{}]", answer.rules.join(" or "), names.join(", "))
}

/// Whether this is the requested item, whatever time it reports.
fn is_it(answer: &Answer, facts: &Facts, item: &Value) -> bool {
    let by_rule = answer.rules.is_empty() || answer.rules.iter().any(|rule| rule == rule_of(item));
    let words = words_of(item);
    let named = answer.names.iter().all(|name| has(&words, &with_names(name, &facts.names)));
    let is_victim = |ids: &String| {
        let id = item["victim"]["id"].as_str();
        with_names(ids, &facts.names).split('|').any(|one| id == Some(one))
    };
    let waits = |who: &String| {
        let top = item["chain"][0]["who"].as_str().unwrap_or_default();
        top.contains(&with_names(who, &facts.names))
    };
    let parties = answer.victim.as_ref().is_none_or(is_victim) && answer.waiter.as_ref().is_none_or(waits);
    by_rule && named && parties && is_in_order(answer, facts, item)
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
