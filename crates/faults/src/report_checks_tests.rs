use serde_json::json;

use super::*;
use crate::stand_in::{Subject, cause, whole};

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut document = whole();
    change(&mut document);
    document
}

fn is_exam(document: &Value, status: i32) -> Result<(), String> {
    is_whole(document, Verb::Exam, Some(status))
}

#[test]
fn an_absent_list_is_an_error_and_an_empty_one_is_not() {
    assert_eq!(is_exam(&whole(), 0), Ok(()));
    for name in ["findings", "ruled_out", "missing", "account", "own_cost", "started_at"] {
        let without = with(|document| drop(document.as_object_mut().unwrap().remove(name)));
        assert!(is_exam(&without, 0).is_err(), "{name}");
    }
    assert!(has_its_probes(&json!({})).is_err() && could_tell(&json!({}), &["spin"]).is_err());
    let nobody = with(|document| document["account"]["by_cgroup"] = json!([]));
    assert!(is_exam(&nobody, 0).unwrap_err().contains("no task was seen"));
}

#[test]
fn the_exit_status_says_what_the_document_says() {
    let found = with(|document| document["findings"] = json!([cause("spin", &Subject::task(1, "a"), 1.0)]));
    assert!(is_exam(&found, 1).is_ok() && is_exam(&found, 0).is_err() && is_exam(&whole(), 1).is_err());
    assert!(is_whole(&whole(), Verb::Exam, None).is_err());
    let chains = with(|document| document["chains"] = json!([{}]));
    assert!(
        is_whole(&chains, Verb::Chains, Some(1)).is_ok() && is_whole(&chains, Verb::Looked, Some(0)).is_ok()
    );
}

#[test]
fn causes_stand_first_and_the_largest_above() {
    let of = |lost: f64| cause("spin", &Subject::task(1, "a"), lost);
    let two = |a: Value, b: Value| with(|document| document["findings"] = json!([a, b]));
    assert!(is_exam(&two(of(2.0), of(1.0)), 1).is_ok() && is_exam(&two(of(1.0), of(2.0)), 1).is_err());
    let mut risk = of(1.0);
    risk["kind"] = json!("risk");
    assert!(is_exam(&two(of(1.0), risk.clone()), 1).is_ok() && is_exam(&two(risk, of(1.0)), 1).is_err());
    let other = with(|document| document["findings"] = json!([{"kind": "cannot-tell"}]));
    assert!(is_exam(&other, 0).unwrap_err().contains("no known kind"));
}

#[test]
fn a_probe_that_did_not_run_is_no_silence() {
    let missing = |why: &str, what: &str| {
        with(|document| {
            document["missing"] =
                json!([{"text": "t", "why": why, "what": what, "needs": "n", "way_out": "w", "reason": "r"}]);
        })
    };
    for why in ["not_recorded", "not_allowed", "broken"] {
        assert!(has_its_probes(&missing(why, "task list")).is_err());
        assert!(has_its_probes(&missing(why, "proc/zoneinfo")).is_ok());
    }
    assert!(has_its_probes(&missing("not_in_kernel", "busy frequency")).is_ok());
    assert!(is_exam(&missing("unknown", "task list"), 0).is_err());
}

#[test]
fn finding_that_cannot_tell_fails_the_check_of_its_rule_only() {
    let blind = with(|document| {
        document["findings"] = json!([{"kind": "cannot_tell", "rule": "spin", "title": "t"}])
    });
    assert!(could_tell(&blind, &["spin"]).is_err() && could_tell(&blind, &["swap-in"]).is_ok());
    assert!(rules_out(&whole()).is_err());
}

#[test]
fn a_group_that_worked_was_seen_at_work() {
    let used = |ms: u64| Sight { group: "/a".to_owned(), used: Duration::from_millis(ms) };
    let reported = |cpu_s: f64| {
        with(|document| {
            document["account"]["by_cgroup"] = json!([{"id": "/a", "tasks": 2, "cpu_s": cpu_s}]);
        })
    };
    assert!(used(1_000).is_in(&reported(0.9)).is_ok() && used(1_000).is_in(&whole()).is_err());
    assert!(used(1_000).is_in(&reported(0.1)).is_err() && used(1_000).is_in(&reported(9.0)).is_err());
    assert!(used(50).is_in(&whole()).is_ok());
}

#[test]
fn a_resource_that_a_cause_is_about_has_a_row_and_somebody_who_pays() {
    let document = |rows: Value| {
        with(|document| {
            let mut found = cause("full-cpus", &Subject::task(1, "a"), 1.0);
            found["resource"] = json!("CPUs");
            document["findings"] = json!([found]);
            document["resources"] = rows;
        })
    };
    let row =
        |paid_by: Value| json!([{"name": "memory", "paid_by": "b"}, {"name": "CPUs", "paid_by": paid_by}]);
    assert!(has_its_resources(&document(row(json!("a")))).is_ok());
    assert!(has_its_resources(&document(row(json!(null)))).is_err());
    assert!(has_its_resources(&document(json!(null))).is_err());
    assert!(has_its_resources(&whole()).is_ok());
}
