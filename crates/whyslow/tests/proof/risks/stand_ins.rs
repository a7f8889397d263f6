//! Stand-ins for whyslow before the judge of each cell.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};

use crate::risks::judge::Made;

const GROUP: &str = "/fence/a";
/// Rule, whom it names, what it must say, CPU seconds.
const CELLS: [(&str, &str, &str, Option<f64>); 6] = [
    ("pid-limit", GROUP, "it has 90 tasks of at most 94", None),
    ("oom-kill", GROUP, "the kernel killed one of its processes", None),
    ("monitoring-agent", "agent-abcde", "agent-abcde (pid 10) spent", Some(1.0)),
    ("retransmits", "4026532201", "TCP segments were retransmitted", None),
    ("leftover-debugging", "BPF run time statistics", "somebody holds", None),
    ("idle-policy", "(10)", "whyslow-test (10) holds it at 0 us", None),
];

fn made((rule, subject, says, cpu): (&'static str, &str, &str, Option<f64>), healthy: bool) -> Made {
    let sight = Some(Sight { group: "/fence/witness".to_owned(), used: Duration::from_millis(300) });
    let says = vec![subject.to_owned(), says.to_owned()];
    Made { rule, healthy, subject: subject.to_owned(), may: &[], says, cpu, again: None, sight }
}

/// Somebody looked, and nothing is wrong.
fn quiet() -> Value {
    let mut document = stand_in::whole();
    document["account"]["by_cgroup"] = json!([{"id": "/fence/witness", "tasks": 1, "cpu_s": 0.3}]);
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    document
}

fn told((rule, subject, says, cpu): (&str, &str, &str, Option<f64>)) -> Value {
    let mut risk = cause(rule, &Subject::group(GROUP), 1.0);
    risk["kind"] = json!("risk");
    risk["title"] = json!(format!("{subject}: {says}"));
    risk["cpu_s"] = json!(cpu);
    let mut document = quiet();
    document["findings"] = json!([risk]);
    document
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    for cell in CELLS {
        let of = [Subject::task(10, cell.1), Subject::group(GROUP), Subject::group(cell.1)];
        for (healthy, truth) in [(false, told(cell)), (true, quiet())] {
            let (name, made) = (format!("{} {healthy}", cell.0), made(cell, healthy));
            Trial { cell: &name, verb: Verb::Exam, of: &of, lost_s: 1.0, truth }
                .hold(|look| made.judge(look));
        }
    }
}

#[test]
fn what_makes_a_risk_may_cost_time_but_not_more_than_there_is() {
    let oom = Made { may: &["memory-limit"], ..made(CELLS[1], false) };
    let asked = |lost_s: f64| {
        let mut document = told(CELLS[1]);
        let limit = cause("memory-limit", &Subject::group(GROUP), lost_s);
        document["findings"].as_array_mut().unwrap().insert(0, limit);
        oom.judge(&trial::look(document, Verb::Exam))
    };
    assert_eq!(asked(1.0), Verdict::Passed);
    assert!(matches!(asked(1000.0), Verdict::Wrong(_)));
}

#[test]
fn every_cell_is_tried() {
    assert_eq!(include_str!("../risks.rs").matches("    pair(\"").count(), CELLS.len());
}

#[test]
fn who_tells_another_amount_or_the_twins_risk_is_wrong() {
    let asked = |made: &Made, document: Value| made.judge(&trial::look(document, Verb::Exam));
    let agent = CELLS[2];
    let mut twice = told(agent);
    twice["findings"][0]["cpu_s"] = json!(2.0);
    assert!(matches!(asked(&made(agent, false), twice), Verdict::Wrong(_)));
    assert!(matches!(asked(&made(agent, true), told(agent)), Verdict::Wrong(_)));
    let idle = Made { cpu: Some(0.1), ..made(agent, false) };
    assert!(matches!(asked(&idle, quiet()), Verdict::Again(_)), "it was not made");
}
