//! The answers of a host that whyslow asked, and the stalls of this host that made them late.

use serde_json::Value;

use super::document::{items, reported};
use super::{Answer, Expected, Facts, Section, is_it};
use crate::wrong::Wrong;

/// With fewer answers, whyslow itself says that it cannot tell stalls (docs/net.md).
const LEAST_ANSWERS: u64 = 50;

/// Check that the host answered, and that late answers were compared with the stalls of this host.
pub fn has_asked(document: &Value) -> Result<(), Wrong> {
    let pings = &document["pings"];
    if !pings.is_object() {
        return Err(Wrong::missed("it asked no host"));
    }
    if let Some(why) = pings["unwatched"].as_str() {
        return Err(Wrong::blind(format!("it could not look: {why}")));
    }
    match pings["answered"].as_u64() {
        Some(answered) if answered >= LEAST_ANSWERS => Ok(()),
        answered => Err(Wrong::blind(format!("it could not look: {answered:?} answers came"))),
    }
}

/// A culprit of late answers that no answer requests, or more late answers of culprits than there are: each waited for one stall.
pub fn accused(of: &Expected, document: &Value) -> Option<String> {
    let rows = items(Section::Explained, document);
    let (late, explained) = (late(&document["pings"]), sum(rows.iter().copied()));
    if explained > late {
        return Some(format!("{explained} late answers are explained, {late} were late"));
    }
    let is_asked = |row: &Value| {
        let mut answers = of.answer.iter().filter(|answer| answer.section == Section::Explained);
        answers.any(|answer| of.faults.get(answer.of).is_some_and(|facts| is_it(answer, facts, row)))
    };
    let other = rows.into_iter().find(|row| !row["culprit"].is_null() && !is_asked(row))?;
    Some(reported(Section::Explained, other))
}

/// Checks how many of the late answers are explained, and by the requested culprit.
pub fn right_shares(answer: &Answer, facts: &Facts, document: &Value) -> Result<(), String> {
    let Some([all, named]) = answer.late else { return Ok(()) };
    let late = late(&document["pings"]);
    let rows = items(Section::Explained, document);
    let by_it = rows.iter().copied().filter(|row| is_it(answer, facts, row));
    let (explained, by_it) = (sum(rows.iter().copied()), sum(by_it));
    let is_enough = |part: u64, share: f64| part > 0 && part as f64 >= share * late as f64;
    if is_enough(explained, all) && is_enough(by_it, named) {
        return Ok(());
    }
    Err(format!("of {late} late answers {explained} are explained, {by_it} of them as they should be"))
}

fn late(pings: &Value) -> u64 {
    pings["late"].as_u64().unwrap_or(0)
}

fn sum<'d>(rows: impl IntoIterator<Item = &'d Value>) -> u64 {
    rows.into_iter().map(late).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::expected::Proof;
    use crate::report_checks::Verb;
    use crate::stand_in;
    use crate::wrong::Sort;

    fn row(cpu: u32, late: u64, who: &str, function: &str) -> Value {
        json!({"cpu": cpu, "late": late, "stalls": 1, "culprit": {"pid": 9, "who": who, "call": "read",
            "file": "memory.stat", "function": function, "stack": ["css_rstat_flush"]}})
    }

    /// The verdict on this account of 100 late answers, where `agent` reads a file on CPU 1, and the kernel's own worker does so, too.
    fn judged(explained: &[Value], more: Value) -> Option<Sort> {
        let answer = |late, names: &[&str]| Answer {
            section: Section::Explained,
            rank: 2,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            late: Some(late),
            ..Answer::default()
        };
        let answers = [
            answer([0.9, 0.5], &["agent", "memory.stat", "rstat_flush", "CPU 1"]),
            answer([0.9, 0.9], &["rstat_flush"]),
        ];
        let proof = Proof::rises("x", 2.0, 1.0, 1.5);
        let expected = Expected {
            faults: vec![Facts { proof, lost_s: None, names: BTreeMap::new() }],
            answer: answers.to_vec(),
            ..Expected::default()
        };
        let mut document = stand_in::whole();
        document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
        document["pings"] = stand_in::pings();
        (document["pings"]["late"], document["pings"]["explained"]) = (json!(100), json!(explained));
        document["pings"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        expected.judge(&document, Verb::Asked, Some(0)).err().map(|wrong| wrong.sort)
    }

    #[test]
    fn most_late_answers_are_explained_by_the_right_culprit() {
        let (flush, none) = ("css_rstat_flush", json!({}));
        let agent = |late| row(1, late, "agent", flush);
        assert_eq!(judged(&[agent(95)], none.clone()), None);
        assert_eq!(judged(&[agent(60), row(0, 35, "kworker/0:1", flush)], none.clone()), None);
        let inexact = Some(Sort::Inexact);
        assert_eq!(judged(&[agent(80)], none.clone()), inexact, "too few are explained");
        assert_eq!(judged(&[row(1, 60, "kworker/0:1", flush), agent(35)], none.clone()), inexact);
        let unknown = json!({"cpu": 1, "late": 45, "stalls": 1, "culprit": null, "unknown": "steal"});
        assert_eq!(judged(&[agent(55), unknown], none), inexact, "for many there is no culprit");
    }

    #[test]
    fn silence_and_blame_for_everything_are_wrong() {
        let (flush, none) = ("css_rstat_flush", json!({}));
        let agent = |late| row(1, late, "agent", flush);
        assert_eq!(judged(&[], none.clone()), Some(Sort::Missed));
        let all: Vec<Value> = (0..9).map(|at| row(at % 2, 100, "agent", flush)).collect();
        assert_eq!(judged(&all, none.clone()), Some(Sort::False), "more are explained than were late");
        assert_eq!(judged(&[agent(95), row(1, 5, "other", "spin")], none.clone()), Some(Sort::False));
        assert_eq!(judged(&[row(0, 95, "agent", flush)], none.clone()), Some(Sort::Missed), "the other CPU");
        assert_eq!(judged(&[row(1, 95, "agent", "")], none), Some(Sort::False), "a stack is no function");
        assert_eq!(judged(&[agent(95)], json!({"unwatched": "no probe"})), Some(Sort::CannotTell));
        assert_eq!(judged(&[agent(95)], json!({"answered": 7})), Some(Sort::CannotTell));
    }
}
