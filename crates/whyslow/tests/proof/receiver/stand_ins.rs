//! Stand-ins for whyslow before the judge of each cell.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};

use crate::receiver::judge::{End, LATE, Made, RULE, Reader, judge};

const CELLS: [Reader; 3] = [Reader::Prompt, Reader::Computes, Reader::Sleeps];
const READER: u32 = 10;
const SENDER: u32 = 20;

fn sample(kind: Reader) -> Made {
    let end = |pid, comm: &str| End { pid, comm: comm.to_owned() };
    Made {
        kind,
        reader: end(READER, "reads"),
        sender: end(SENDER, "sends"),
        share: if kind == Reader::Prompt { 0.02 } else { 0.8 },
        late: 0.0,
        sights: vec![Sight { group: "/fence/a".to_owned(), used: Duration::from_millis(900) }],
        said: String::new(),
    }
}

fn subjects() -> Vec<Subject> {
    vec![
        Subject::task(READER, "reads"),
        Subject::task(SENDER, "sends"),
        Subject::group("/fence/a"),
        Subject::cpu(0),
    ]
}

fn truthful(made: &Made) -> Value {
    let mut document = stand_in::whole();
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    document["account"]["by_cgroup"] = json!([{"id": "/fence/a", "tasks": 1, "cpu_s": 0.9}]);
    if made.kind != Reader::Prompt {
        let mut found = cause(RULE, &Subject::task(SENDER, "sends"), 2.4);
        found["culprit"] = json!({"kind": "task", "id": READER.to_string(), "name": "reads"});
        let state = if made.kind == Reader::Sleeps { "sleep" } else { "work" };
        found["chain"] = json!([{"reason": "socket"}, {"reason": state}]);
        document["findings"] = json!([found]);
    }
    document
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    for kind in CELLS {
        let made = sample(kind);
        let cell = format!("{kind:?}");
        let trial =
            Trial { cell: &cell, verb: Verb::Exam, of: &subjects(), lost_s: 2.4, truth: truthful(&made) };
        trial.hold(|look| judge(&made, look));
    }
}

#[test]
fn a_cell_is_made_again_if_the_ends_had_to_wait_for_cpus_and_never_after_a_wrong_name() {
    let of = |late, change: &dyn Fn(&mut Value)| {
        let made = Made { late, ..sample(Reader::Computes) };
        let mut document = truthful(&made);
        change(&mut document["findings"][0]);
        judge(&made, &trial::look(document, Verb::Exam))
    };
    let other_time = |found: &mut Value| found["lost_s"] = json!(1.2);
    let other_name = |found: &mut Value| found["culprit"]["id"] = json!("99");
    let of_cpu = |found: &mut Value| found["culprit"] = json!({"kind": "cpu", "id": "cpu0", "name": "CPU 0"});
    assert!(matches!(of(0.0, &of_cpu), Verdict::Wrong(_)));
    assert!(matches!(of(LATE, &of_cpu), Verdict::Again(_)));
    assert!(matches!(of(0.0, &other_time), Verdict::Wrong(_)));
    assert!(matches!(of(LATE, &other_time), Verdict::Again(_)));
    assert!(matches!(of(LATE, &other_name), Verdict::Wrong(_)));
    assert!(matches!(of(LATE, &|_| {}), Verdict::Again(_)), "whatever is said");
}
