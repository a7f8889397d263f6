//! Stand-ins for whyslow before the judge of both cells.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, Subject};
use whyslow_faults::trial::{self, Trial};

use crate::cpu::judge::{Made, STOLEN};

fn made() -> Made {
    let sight = Sight { group: "/fence/load".to_owned(), used: Duration::from_secs(5) };
    Made { before: vec![0.001, 0.00101], after: vec![0.00102, 0.001], steal: 0.0, sight }
}

fn truth() -> Value {
    let mut document = stand_in::whole();
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    document["account"]["by_cgroup"] = json!([{"id": "/fence/load", "tasks": 20, "cpu_s": 5.0}]);
    document["cpus"] =
        json!([{"cpu": 0, "slow": null, "million_s": 0.25}, {"cpu": 1, "slow": null, "million_s": 0.26}]);
    document
}

#[test]
fn no_stand_in_passes_and_the_truth_does() {
    let of = [Subject::cpu(0), Subject::cpu(1), Subject::group("/fence/load")];
    for cell in ["calm", "load"] {
        let trial = Trial { cell: &cell, verb: Verb::Cpu, of: &of, lost_s: 1.0, truth: truth() };
        trial.hold(|look| made().judge(look));
    }
}

#[test]
fn cpus_are_measured_again_only_if_they_changed_by_the_tests_own_clocks() {
    let mut document = truth();
    document["cpus"][1]["million_s"] = json!(0.4);
    let asked = |made: Made| made.judge(&trial::look(document.clone(), Verb::Cpu));
    assert!(matches!(asked(made()), Verdict::Wrong(_)));
    assert!(matches!(asked(Made { steal: 2.0 * STOLEN, ..made() }), Verdict::Again(_)));
    assert!(matches!(asked(Made { before: vec![0.001, 0.0016], ..made() }), Verdict::Again(_)));
}
