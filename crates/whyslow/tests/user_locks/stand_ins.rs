//! Stand-ins for whyslow before the judge: who says nothing, or accuses an innocent, passes no cell; who tells the truth passes all.

use std::path::PathBuf;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::user_lock::{Held, Meanwhile, Plan, Shape};
use whyslow_faults::{Draw, Span};

use crate::CELLS;
use crate::judge::{Made, judge};

const S: u64 = 1_000_000_000;

fn plans() -> Vec<Plan> {
    let shapes = CELLS.iter().flat_map(|cell| (0..20).map(|seed| cell.shape(&mut Draw::with(seed))));
    shapes.map(|shape| Plan::of(shape, PathBuf::from("/nowhere"), &mut Draw::with(7))).collect()
}

fn made(plan: Plan, document: Value) -> Made {
    Made { plan, waited: Some(Span { from: S, to: 3 * S }), document }
}

fn word(does: Meanwhile) -> &'static str {
    match does {
        Meanwhile::Sleeps => "timer",
        Meanwhile::Computes => "running",
        Meanwhile::Stopped => "stopped",
        Meanwhile::Traced => "traced",
    }
}

/// What is true, but of `who`.
fn told(plan: &Plan, who: &str) -> Value {
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
        Shape::Idle(_) => json!([{ "reason": "timer", "time_s": 2.0 }]),
    };
    let hop = |name: &str| json!({ "who": name, "reason": "futex" });
    let mut hops: Vec<Value> = plan.names.iter().map(|name| hop(name)).collect();
    hops.push(hop(if who == plan.names[1] { &plan.names[0] } else { who }));
    let chain = json!({ "hops": hops, "notes": ["deadlock"] });
    let is_cycle = matches!(plan.shape, Shape::Cycle(_));
    let accuses = matches!(plan.shape, Shape::Idle(_)) && who != plan.names[1];
    let chains = if is_cycle || accuses { json!([chain]) } else { json!([]) };
    json!({ "wall": { "wall_s": 2.5, "parts": parts }, "chains": chains })
}

#[test]
fn who_tells_the_truth_passes() {
    for plan in plans() {
        let document = told(&plan, &plan.names[1]);
        assert_eq!(judge(&made(plan, document)), Verdict::Passed);
    }
}

#[test]
fn who_accuses_an_innocent_fails() {
    for plan in plans() {
        let document = told(&plan, "innocent");
        assert!(matches!(judge(&made(plan.clone(), document)), Verdict::Wrong(_)), "{plan:?}");
    }
}

#[test]
fn who_says_nothing_fails() {
    for plan in plans() {
        let document = json!({ "wall": { "wall_s": 2.5, "parts": [] }, "chains": [] });
        assert!(matches!(judge(&made(plan.clone(), document)), Verdict::Wrong(_)), "{plan:?}");
    }
}
