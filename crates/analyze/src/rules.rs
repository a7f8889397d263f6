//! The rules: one file a rule, one line in the list.

#[cfg(test)]
mod answer_fixture;
mod blkio_throttle;
mod cache_taken;
mod clocksource;
mod conntrack;
mod cpu_pinned;
mod cpu_quota;
mod dirty_throttling;
mod disk_latency;
mod disk_queue;
mod dying_cgroups;
mod expedite;
mod extra_work;
mod failed_calls;
mod file_handles;
mod full_cpus;
mod full_listeners;
mod full_thread;
mod grace_periods;
mod held_up;
mod homes;
mod idle_policy;
mod ipc_namespaces;
mod irq_imbalance;
mod irqs_off;
mod leftover_debugging;
mod listen_overflow;
mod load_average;
mod lock_wait;
#[cfg(test)]
mod memory_fixture;
mod memory_limit;
mod monitoring_agent;
mod nagle;
mod one_end;
mod oom_kill;
mod pace;
mod packet_stalls;
mod pid_limit;
mod queues;
mod reclaim;
mod request_queue;
mod retransmits;
mod retried;
mod send_queue;
mod service_away;
mod slow_cpu;
mod slow_receiver;
mod softnet_drops;
mod spent;
mod spin;
mod steal;
mod swap_in;
mod traced;
pub(crate) mod tracked;
mod unanswered_connects;
mod vain_calls;
mod wakeup_latency;

use std::cmp::Reverse;

use whyslow_model::wait::{Detail, Reason};
use whyslow_model::{Check, Finding, Kind, Missing, RuledOut, SubjectKind};

use crate::Evidence;

/// A question that is asked of every recording.
pub struct Rule {
    /// The file's name with dashes: the name of the cause.
    pub id: &'static str,
    /// The question; it ends in "?".
    pub question: &'static str,
    /// What the pathology is, for `explain`.
    pub what: &'static str,
    /// How the pathology is detected, and the counterfactual behind the time lost.
    pub how: &'static str,
    /// Where the rule is blind or can be wrong.
    pub limits: &'static str,
    /// Kernel sources and manual pages that the rule relies on.
    pub sources: &'static str,
    /// Whether the rule can report a cause. Each rule that can has a live fault test, unless `limits` says why not.
    pub can_be_cause: bool,
    /// Found (causes, risks), quiet (empty), or cannot tell.
    pub check: fn(&Evidence<'_>) -> Result<Vec<Finding>, Missing>,
    /// What a quiet answer rules out, with the evidence. This is asked only if the rule found neither a cause nor a risk.
    pub rules_out: Option<RulesOut>,
    /// Findings of other rules that this rule's findings include already.
    pub folds: Option<Fold>,
    /// Which waits of a report are waits for what this rule looks for. Where a report has such a wait, the rule rules nothing
    /// out. [`NOTHING`] where no wait, account or chain can show it.
    pub shows: Shows,
}

/// Whether an edge of a chain, or a part of an account, is a wait for what a rule looks for: by its reason and its detail.
pub type Shows = fn(Reason, &Detail) -> bool;

/// No wait can show it.
const NOTHING: Shows = |_, _| false;

/// Findings of other rules that a rule's own findings include already: one chain is one finding.
pub struct Fold {
    /// The ids of those rules.
    pub of: &'static [&'static str],
    /// Removes such findings, and adds what they say to the rule's own findings. This is called only where both exist.
    pub fold: fn(&Evidence<'_>, &mut Vec<Finding>),
}

/// What a rule rules out.
pub struct RuledOutBy {
    pub rule: &'static Rule,
    pub ruled_out: RuledOut,
}

/// What a quiet answer rules out.
pub type RulesOut = fn(&Evidence<'_>) -> Result<Option<RuledOut>, Missing>;

/// Every rule, in the order in which they are asked.
#[rustfmt::skip] // one line a rule
pub const ALL: &[Rule] = &[
    blkio_throttle::RULE,
    cache_taken::RULE,
    clocksource::RULE,
    conntrack::RULE,
    cpu_pinned::RULE,
    cpu_quota::RULE,
    dirty_throttling::RULE,
    disk_latency::RULE,
    disk_queue::RULE,
    extra_work::RULE,
    failed_calls::RULE,
    vain_calls::RULE,
    file_handles::RULE,
    full_cpus::RULE,
    full_thread::RULE,
    grace_periods::RULE,
    held_up::RULE,
    idle_policy::RULE,
    ipc_namespaces::RULE,
    irq_imbalance::RULE,
    irqs_off::RULE,
    wakeup_latency::RULE,
    leftover_debugging::RULE,
    listen_overflow::RULE,
    unanswered_connects::RULE,
    load_average::RULE,
    lock_wait::RULE,
    memory_limit::RULE,
    monitoring_agent::RULE,
    nagle::RULE,
    oom_kill::RULE,
    packet_stalls::RULE,
    pid_limit::RULE,
    reclaim::RULE,
    request_queue::RULE,
    retransmits::RULE,
    send_queue::RULE,
    service_away::RULE,
    slow_cpu::RULE,
    slow_receiver::RULE,
    softnet_drops::RULE,
    spin::RULE,
    steal::RULE,
    swap_in::RULE,
    traced::RULE,
    dying_cgroups::RULE,
];

/// All answers of all rules.
pub struct Answers {
    /// Causes by time lost, then risks, then "cannot tell".
    pub findings: Vec<Finding>,
    /// What the evidence rules out.
    pub ruled_out: Vec<RuledOutBy>,
}

/// Ask every rule.
#[must_use]
pub fn ask_all(ev: &Evidence<'_>) -> Answers {
    let mut answers = Answers { findings: Vec::new(), ruled_out: Vec::new() };
    for rule in ALL {
        ev.ask_anew();
        let found = (rule.check)(ev).unwrap_or_else(|missing| vec![Finding::cannot_tell(rule.id, missing)]);
        let in_part = ev.asked_in_part();
        let ruled_out = match rule.rules_out {
            Some(ask) if found.is_empty() => ask(ev).ok().flatten(),
            _ => None,
        };
        // Evidence from a table that was full rules nothing out.
        let ruled_out = ruled_out.filter(|_| ev.asked_in_part().is_none());
        answers.ruled_out.extend(ruled_out.map(|ruled_out| RuledOutBy { rule, ruled_out }));
        answers.findings.extend(touched(rule, found, in_part));
    }
    for rule in ALL {
        fold(ev, rule, &mut answers.findings);
    }
    only_with_reported(&mut answers.findings);
    // Kills come first, then failed calls: neither has a time lost.
    answers.findings.sort_by_key(|f| {
        let rank = (f.kind == Kind::Cause).then_some((f.lost.is_some(), f.failed_calls > 0));
        (f.kind, rank, Reverse(f.lost), Reverse(f.failed_calls), breadth(f))
    });
    answers
}

/// Removes findings that another rule's findings include already.
fn fold(ev: &Evidence<'_>, rule: &Rule, findings: &mut Vec<Finding>) {
    let Some(Fold { of, fold }) = &rule.folds else { return };
    let is_there = |id: &str| findings.iter().any(|found| found.rule == id);
    if is_there(rule.id) && of.iter().any(|id| is_there(id)) {
        fold(ev, findings);
    }
}

/// A rule knows the rules that its loss may overlap with. It does not know whether these found a cause.
fn only_with_reported(findings: &mut [Finding]) {
    let reported: Vec<String> =
        findings.iter().filter(|found| found.kind == Kind::Cause).map(|found| found.rule.clone()).collect();
    for found in findings {
        found.overlaps.retain(|rule| reported.contains(rule));
    }
}

/// Events that were lost can change an answer, so the answer says it: a finding may be larger, and "nothing found" may be wrong.
fn touched(rule: &Rule, mut found: Vec<Finding>, in_part: Option<Missing>) -> Vec<Finding> {
    let Some(missing) = in_part else { return found };
    if found.is_empty() {
        return vec![Finding::cannot_tell(rule.id, missing)];
    }
    for finding in found.iter_mut().filter(|finding| finding.kind != Kind::CannotTell) {
        finding
            .check
            .push(Check { text: format!("it may be more than is reported: {missing}"), command: None });
    }
    found
}

/// Keeps the first `most` of a rule's findings. The last of them says how many more there are.
fn first_few(found: &mut Vec<Finding>, most: usize) {
    let more = found.len().saturating_sub(most);
    found.truncate(most);
    if let Some(last) = found.last_mut().filter(|_| more > 0) {
        last.check
            .push(Check { text: format!("{more} more findings of this rule are not listed"), command: None });
    }
}

/// Sorts risks: those of one thread or CPU come first, those of the host last. Averages hide one full CPU.
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
    fn findings_beyond_the_limit_are_counted_on_the_last_one() {
        let found = |n: usize| {
            vec![Finding::risk("spin", whyslow_model::Subject::new(SubjectKind::Host, "host", "host")); n]
        };
        let (mut few, mut many) = (found(4), found(7));
        first_few(&mut few, 4);
        first_few(&mut many, 4);
        assert_eq!((few.len(), few[3].check.len(), many.len()), (4, 0, 4));
        assert_eq!(many[3].check[0].text, "3 more findings of this rule are not listed");
        assert_eq!(many[2].check.len(), 0);
    }

    #[test]
    fn kills_stand_above_losses_of_time() {
        use crate::evidence::fixture::Fixture;

        let stat = |stolen: u64| format!("cpu  0 0 0 0 0 0 0 {stolen}\ncpu0 0 0 0 0 0 0 0 {stolen}\n");
        let host = Fixture::window(std::time::Duration::from_secs(10))
            .start("proc/vmstat", "oom_kill 3\n")
            .end("proc/vmstat", "oom_kill 4\n")
            .start("proc/stat", &stat(0))
            .end("proc/stat", &stat(900));
        let told = ask_all(&host.ev()).findings;
        let causes = told.iter().filter(|found| found.kind == Kind::Cause);
        assert_eq!(causes.map(|found| &*found.rule).collect::<Vec<_>>(), ["oom-kill", "steal"]);
    }

    #[test]
    fn a_full_table_touches_the_answers_that_rest_on_it() {
        use crate::evidence::fixture::Fixture;
        use whyslow_model::table::{Disk, Task};

        let answers = |io_ns, lost| {
            let disk = Disk {
                device: "vda".into(),
                op: "read".into(),
                requests: 100,
                device_ns: 100 * 50_000_000,
                ..Disk::default()
            };
            let mut host = Fixture::window(std::time::Duration::from_secs(10)).with(|tables| {
                tables.disk = Some(vec![disk]);
                tables.tasks = Some(vec![Task { io_ns, ..Task::default() }]);
            });
            host.0.meta.lost_events = vec![("block I/O".into(), lost)];
            let answers = ask_all(&host.ev());
            let of: Vec<Finding> =
                answers.findings.into_iter().filter(|f| f.rule == "disk-latency").collect();
            (of, answers.ruled_out.iter().any(|not| not.ruled_out.what == "a disk"))
        };
        let (quiet, ruled_out) = answers(0, 0);
        assert!(quiet.is_empty() && ruled_out);
        let (unsure, ruled_out) = answers(0, 400);
        assert!(unsure.iter().all(|f| f.kind == Kind::CannotTell) && unsure.len() == 1 && !ruled_out);
        let (found, _) = answers(5_000_000_000, 400);
        let said = found[0].check.last().map(|check| check.text.as_str());
        assert_eq!(found[0].kind, Kind::Risk);
        assert!(
            said.is_some_and(|said| said.starts_with("it may be more") && said.contains("400 of 500")),
            "{said:?}"
        );
    }

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
