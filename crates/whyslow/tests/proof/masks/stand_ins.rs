//! Stand-ins for whyslow before the judge of the quiet cells.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};

use crate::masks::judge::{Quiet, RULE};

fn made(is_not_made: Option<&str>) -> Quiet {
    let sights = vec![Sight { group: "/fence/a".to_owned(), used: Duration::from_secs(2) }];
    let is_not_made = is_not_made.map(str::to_owned);
    Quiet { names: vec!["bound".to_owned()], sights, is_not_made, said: String::new() }
}

fn truth() -> Value {
    let mut document = stand_in::whole();
    document["ruled_out"] = json!([{"what": "an affinity mask", "evidence": "e"}]);
    document["account"]["by_cgroup"] = json!([{"id": "/fence/a", "tasks": 2, "cpu_s": 2.0}]);
    document
}

#[test]
fn no_stand_in_passes_a_quiet_cell_and_the_truth_does() {
    let of = [Subject::task(10, "bound"), Subject::group("/fence/a"), Subject::cpu(0)];
    for cell in ["full-elsewhere", "full-without-masks", "spinners-alone"] {
        let trial = Trial { cell: &cell, verb: Verb::Exam, of: &of, lost_s: 1.0, truth: truth() };
        trial.hold(|look| made(None).judge(look));
    }
}

#[test]
fn a_cell_is_made_again_only_if_it_did_not_come_about_by_the_tests_own_clocks() {
    let mut accuses = truth();
    accuses["findings"] = json!([cause(RULE, &Subject::task(10, "bound"), 1.0)]);
    let asked = |made: Quiet| made.judge(&trial::look(accuses.clone(), Verb::Exam));
    assert!(matches!(asked(made(None)), Verdict::Wrong(_)));
    assert!(matches!(asked(made(Some("the others were not full"))), Verdict::Again(_)));
}

#[test]
fn masks_that_are_neither_reported_nor_ruled_out_were_not_looked_at() {
    let asked = |document: Value| made(None).judge(&trial::look(document, Verb::Exam));
    let mut document = truth();
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    assert!(matches!(asked(document.clone()), Verdict::Wrong(_)));
    document["findings"] = json!([cause(RULE, &Subject::task(99, "other"), 1.0)]);
    assert_eq!(asked(document), Verdict::Passed);
}
