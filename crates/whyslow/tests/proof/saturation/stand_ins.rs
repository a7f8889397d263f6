//! Stand-ins for whyslow before the judge of each cell.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};

use crate::saturation::judge::{Children, FULL, Judged, Threads, Waiters};

const PID: u32 = 10;
const COMM: &str = "few-abcde";

fn sight() -> Sight {
    Sight { group: "/fence/a".to_owned(), used: Duration::from_secs(2) }
}

fn threads(healthy: bool) -> Threads {
    let shares = vec![if healthy { 0.4 } else { 0.99 }];
    let comm = COMM.to_owned();
    Threads { healthy, pid: PID, comm, full: 1, sleepers: 9, shares, disturbed: None, sight: sight() }
}

fn waiters(healthy: bool) -> Waiters {
    let asleep = if healthy { 0.0 } else { 48.0 };
    Waiters { healthy, comm: COMM.to_owned(), many: 50, asleep, others: 3.0, sight: sight() }
}

fn children() -> Children {
    Children { comm: COMM.to_owned(), sight: sight() }
}

/// Somebody looked, and nothing is wrong.
fn quiet() -> Value {
    let mut document = stand_in::whole();
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    document["account"]["by_cgroup"] = json!([{"id": "/fence/a", "tasks": 10, "cpu_s": 2.0}]);
    let hops = json!([{"reason": "vfork", "who": COMM, "lost_s": 2.0}]);
    document["chains"] = json!([{"time_s": 2.0, "count": 9, "hops": hops}]);
    document
}

fn with_risk(rule: &str, change: impl Fn(&mut Value)) -> Value {
    let mut risk = cause(rule, &Subject::task(PID, COMM), 1.0);
    risk["kind"] = json!("risk");
    change(&mut risk);
    let mut document = quiet();
    document["findings"] = json!([risk]);
    document
}

fn full() -> Value {
    with_risk("full-thread", |risk| risk["title"] = json!("1 of its 10 threads was full"))
}

fn in_d() -> Value {
    let hop = json!({"reason": "vfork", "who": format!("{COMM} (48 tasks)"), "lost_s": 144.0});
    with_risk("load-average", |risk| risk["chain"] = json!([hop]))
}

fn tried<M: Judged>(cell: &str, made: &M, truth: Value) {
    let of = [Subject::task(PID, COMM), Subject::group("/fence/a"), Subject::cpu(0)];
    Trial { cell: &cell, verb: Verb::Exam, of: &of, lost_s: 2.0, truth }.hold(|look| made.judge(look));
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    tried("full-threads", &threads(false), full());
    tried("threads-with-time-to-spare", &threads(true), quiet());
    tried("load-of-waiters", &waiters(false), in_d());
    tried("sleepers", &waiters(true), quiet());
    tried("own-children", &children(), quiet());
}

fn asked<M: Judged>(made: &M, document: Value) -> Verdict {
    made.judge(&trial::look(document, Verb::Exam))
}

#[test]
fn a_cell_is_made_again_by_the_tests_own_clocks_and_never_after_an_accusation() {
    let disturbed = Threads { disturbed: Some("others".to_owned()), ..threads(false) };
    let accused = with_risk("full-thread", |risk| risk["kind"] = json!("cause"));
    assert!(matches!(asked(&disturbed, quiet()), Verdict::Again(_)));
    assert!(matches!(asked(&threads(false), quiet()), Verdict::Wrong(_)));
    assert!(matches!(asked(&disturbed, accused), Verdict::Wrong(_)));
    assert!(matches!(asked(&threads(true), full()), Verdict::Wrong(_)));
    let was_full = Threads { shares: vec![FULL], ..threads(true) };
    assert!(matches!(asked(&was_full, full()), Verdict::Again(_)));
    let few = Waiters { asleep: 9.0, ..waiters(false) };
    assert!(matches!(asked(&few, quiet()), Verdict::Again(_)));
    assert!(matches!(asked(&waiters(false), quiet()), Verdict::Wrong(_)));
    assert!(matches!(asked(&waiters(true), in_d()), Verdict::Wrong(_)));
}
