//! The rules: one file a rule, one line in the list.

mod blkio_throttle;
mod clocksource;
mod conntrack;
mod cpu_pinned;
mod cpu_quota;
mod dirty_throttling;
mod disk_latency;
mod file_handles;
mod full_thread;
mod idle_policy;
mod irq_imbalance;
mod irqs_off;
mod late_cpu;
mod leftover_debugging;
mod listen_overflow;
mod load_average;
mod lock_wait;
#[cfg(test)]
mod memory_fixture;
mod memory_limit;
mod monitoring_agent;
mod oom_kill;
mod pid_limit;
mod reclaim;
mod retransmits;
mod slow_cpu;
mod slow_receiver;
mod softnet_drops;
mod spin;
mod steal;
mod swap_in;
mod zombie_cgroups;

use whyslow_model::{Finding, Kind, Missing, Not, SubjectKind};

use crate::Evidence;

/// A question asked of every recording.
pub struct Rule {
    /// The file's name with dashes; named after the cause.
    pub id: &'static str,
    /// What it asks; ends in "?".
    pub question: &'static str,
    /// What the pathology is, for `explain`.
    pub what: &'static str,
    /// How it is detected, and the counterfactual behind the time lost.
    pub how: &'static str,
    /// Where it is blind or can be wrong.
    pub limits: &'static str,
    /// Kernel sources and pages it rests on.
    pub sources: &'static str,
    /// Whether it can emit a cause. Each that can has a live fault test, unless `limits` says why not.
    pub can_be_cause: bool,
    /// Found (causes, risks), quiet (empty), or cannot tell.
    pub check: fn(&Evidence<'_>) -> Result<Vec<Finding>, Missing>,
    /// What a quiet answer rules out, with the evidence: asked only if the rule found no cause.
    pub rules_out: Option<RulesOut>,
}

/// What a quiet answer rules out.
pub type RulesOut = fn(&Evidence<'_>) -> Result<Option<Not>, Missing>;

/// Every rule, sorted by id.
#[rustfmt::skip] // one line a rule
pub const ALL: &[Rule] = &[
    blkio_throttle::RULE,
    clocksource::RULE,
    conntrack::RULE,
    cpu_pinned::RULE,
    cpu_quota::RULE,
    dirty_throttling::RULE,
    disk_latency::RULE,
    file_handles::RULE,
    full_thread::RULE,
    idle_policy::RULE,
    irq_imbalance::RULE,
    irqs_off::RULE,
    late_cpu::RULE,
    leftover_debugging::RULE,
    listen_overflow::RULE,
    load_average::RULE,
    lock_wait::RULE,
    memory_limit::RULE,
    monitoring_agent::RULE,
    oom_kill::RULE,
    pid_limit::RULE,
    reclaim::RULE,
    retransmits::RULE,
    slow_cpu::RULE,
    slow_receiver::RULE,
    softnet_drops::RULE,
    spin::RULE,
    steal::RULE,
    swap_in::RULE,
    zombie_cgroups::RULE,
];

/// All answers of all rules.
pub struct Answers {
    /// Causes by time lost, then risks, then "cannot tell".
    pub findings: Vec<Finding>,
    /// What the evidence rules out.
    pub not: Vec<Not>,
}

/// Ask every rule.
#[must_use]
pub fn ask_all(ev: &Evidence<'_>) -> Answers {
    let mut answers = Answers { findings: Vec::new(), not: Vec::new() };
    for rule in ALL {
        let found = (rule.check)(ev).unwrap_or_else(|missing| vec![Finding::cannot_tell(rule.id, missing)]);
        let ruled_out = match rule.rules_out {
            Some(ask) if found.iter().all(|f| f.kind == Kind::Risk) => ask(ev).ok().flatten(),
            _ => None,
        };
        answers.not.extend(ruled_out);
        answers.findings.extend(found);
    }
    slow_receiver::fold(ev, &mut answers.findings);
    spin::fold(ev, &mut answers.findings);
    answers.findings.sort_by_key(|f| (f.kind, std::cmp::Reverse(f.lost), breadth(f)));
    answers
}

/// Of risks those about one thread or CPU come first, those about the host last: averages hide what is full.
fn breadth(finding: &Finding) -> u8 {
    match finding.victim.kind {
        _ if finding.kind != Kind::Risk => 0,
        SubjectKind::Task => 0,
        SubjectKind::Cpu => 1,
        SubjectKind::Host => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_words_and_a_unique_id() {
        for (at, rule) in ALL.iter().enumerate() {
            assert!(rule.question.ends_with('?'), "{}: the question ends in a question mark", rule.id);
            for words in [rule.what, rule.how, rule.limits, rule.sources] {
                assert!(words.len() > 20, "{}: explain has no words", rule.id);
            }
            assert!(ALL[..at].iter().all(|other| other.id != rule.id), "{} is there twice", rule.id);
        }
    }
}
