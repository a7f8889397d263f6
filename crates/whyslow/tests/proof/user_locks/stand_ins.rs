//! Stand-ins for whyslow before the judge: one that says nothing, or accuses an innocent task, passes no cell; one that reports the truth
//! passes all.

use std::path::PathBuf;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::user_lock::{Held, Meanwhile, Plan, Shape};
use whyslow_faults::{Draw, Span};

use crate::user_locks::CELLS;
use crate::user_locks::judge::{Made, judge};

const S: u64 = 1_000_000_000;

fn plans() -> Vec<Plan> {
    let plan =
        |cell: &crate::user_locks::Cell, seed| cell.plan(PathBuf::from("/nowhere"), &mut Draw::with(seed));
    CELLS.iter().flat_map(|cell| (0..20).map(move |seed| plan(cell, seed))).collect()
}

/// The waiting program beside the others.
fn beside() -> Plan {
    let cell = crate::user_locks::Cell::HeldOnHost(Held::FlockRetried);
    cell.plan(PathBuf::from("/nowhere/beside"), &mut Draw::with(99))
}

fn made(plan: Plan, document: Value) -> Made {
    let beside = (plan.lasts && matches!(plan.shape, Shape::Free(..))).then(beside);
    Made { plan, beside, waited: Some(Span { from: S, to: 3 * S }), document }
}

fn word(does: Meanwhile) -> &'static str {
    match does {
        Meanwhile::Sleeps => "timer",
        Meanwhile::Computes => "running",
        Meanwhile::Stopped => "stopped",
        Meanwhile::Traced => "traced",
    }
}

/// The truth about a whole host, except for `who`.
fn told_of_host(plan: &Plan, who: &str) -> Value {
    let waits = |plan: &Plan, who: &str| {
        let Shape::Hold(_, does) = plan.shape else { return Vec::new() };
        let hops = json!([{ "who": plan.names[0] }, { "who": who, "reason": word(does) }]);
        vec![json!({ "hops": hops, "time_s": 1.9 })]
    };
    let cause = |plan: &Plan, who: &str| {
        let Shape::Hold(..) = plan.shape else { return Vec::new() };
        let hops = json!([{ "who": plan.names[0] }, { "who": who }]);
        vec![json!({ "kind": "cause", "rule": "held-up", "lost_s": 1.9, "chain": hops })]
    };
    let mut chains = waits(plan, who);
    let mut findings = cause(plan, who);
    if matches!(plan.shape, Shape::Free(..)) {
        chains = waits(&beside(), &beside().names[1]);
        findings = cause(&beside(), &beside().names[1]);
        if who != plan.names[1] {
            let hops = json!([{ "who": plan.names[0] }, { "who": plan.names[1], "reason": "runnable" }]);
            chains.push(json!({ "hops": hops, "time_s": 1.0 }));
        }
    }
    json!({ "window_s": 2.0, "chains": chains, "findings": findings })
}

/// The truth, except for `who`.
fn told(plan: &Plan, who: &str) -> Value {
    if plan.lasts {
        return told_of_host(plan, who);
    }
    let wait = |reason: &str, does: Meanwhile| {
        let part = json!({ "reason": word(does), "who": who, "time_s": 2.0 });
        json!([{ "reason": reason, "time_s": 2.0, "parts": [part] }])
    };
    let parts = match plan.shape {
        Shape::Hold(Held::Mutex, does) => wait("futex", does),
        Shape::Hold(Held::Join, does) => wait("thread", does),
        Shape::Hold(_, does) => wait("file-lock", does),
        Shape::Parent(_, does) => wait("child", does),
        Shape::Cycle(_) => json!([]),
        Shape::Idle(_) | Shape::Free(..) => json!([{ "reason": "timer", "time_s": 2.0 }]),
    };
    let hop = |name: &str| json!({ "who": name, "reason": "futex" });
    let mut hops: Vec<Value> = plan.names.iter().map(|name| hop(name)).collect();
    hops.push(hop(if who == plan.names[1] { &plan.names[0] } else { who }));
    let chain = json!({ "hops": hops, "notes": ["deadlock"] });
    let is_cycle = matches!(plan.shape, Shape::Cycle(_));
    let accuses = matches!(plan.shape, Shape::Idle(_) | Shape::Free(..)) && who != plan.names[1];
    let chains = if is_cycle || accuses { json!([chain]) } else { json!([]) };
    json!({ "wall": { "wall_s": 2.5, "parts": parts }, "chains": chains })
}

#[test]
fn truthful_document_passes() {
    for plan in plans() {
        let document = told(&plan, &plan.names[1]);
        assert_eq!(judge(&made(plan, document)), Verdict::Passed);
    }
}

#[test]
fn document_that_accuses_an_innocent_task_fails() {
    for plan in plans() {
        let document = told(&plan, "innocent");
        assert!(matches!(judge(&made(plan.clone(), document)), Verdict::Wrong(_)), "{plan:?}");
    }
}

/// A third of the wait is reported: an answer that says that its end was not visible is repeated, and has not passed; an answer that just
/// reports less is wrong.
#[test]
fn answer_that_admits_an_unseen_waker_is_asked_again() {
    for plan in plans().into_iter().filter(|plan| matches!(plan.shape, Shape::Hold(..)) && !plan.lasts) {
        let mut less = told(&plan, &plan.names[1]);
        less["wall"]["parts"][0]["parts"][0]["time_s"] = json!(1.3);
        let mut says_so = less.clone();
        let unseen = json!({ "detail": { "thing": "waker-not-seen" }, "time_s": 0.7 });
        let parts = says_so["wall"]["parts"].as_array_mut().unwrap();
        parts.push(json!({ "reason": "unknown", "time_s": 0.7, "parts": [unseen] }));
        assert!(matches!(judge(&made(plan.clone(), less)), Verdict::Wrong(_)), "{plan:?}");
        assert!(matches!(judge(&made(plan.clone(), says_so)), Verdict::Again(_)), "{plan:?}");
    }
}

#[test]
fn document_that_reports_nothing_fails() {
    for plan in plans() {
        let document = json!({ "window_s": 2.0, "wall": { "wall_s": 2.5, "parts": [] }, "chains": [] });
        assert!(matches!(judge(&made(plan.clone(), document)), Verdict::Wrong(_)), "{plan:?}");
    }
}

#[test]
fn missing_short_or_misattributed_cause_fails() {
    let is_held = |plan: &Plan| matches!(plan.shape, Shape::Hold(_, does) if does != Meanwhile::Computes);
    for plan in plans().into_iter().filter(|plan| plan.lasts && is_held(plan)) {
        let wrong = |change: fn(&mut Value)| {
            let mut document = told(&plan, &plan.names[1]);
            change(&mut document["findings"]);
            assert!(matches!(judge(&made(plan.clone(), document)), Verdict::Wrong(_)), "{plan:?}");
        };
        wrong(|findings| *findings = json!([]));
        wrong(|findings| findings[0]["lost_s"] = json!(0.3));
        wrong(|findings| findings[0]["chain"][1]["who"] = json!("innocent"));
    }
}
