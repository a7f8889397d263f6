//! Stand-ins for whyslow against the expectations of each cell.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::report_checks::{KILLS, Sight, Verb};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};
use whyslow_faults::wrong::Sort;

use super::Made;

const GROUP: &str = "/fence/a";
/// Rule, subject of the risk, words that the report must contain, CPU seconds.
const CELLS: [(&str, &str, &str, Option<f64>); 6] = [
    ("pid-limit", GROUP, "it has 90 tasks of at most 94", None),
    ("oom-kill", GROUP, "the kernel killed one of its processes", None),
    ("monitoring-agent", "agent-abcde", "(pid 10) spent", Some(1.0)),
    ("retransmits", "4026532201", "TCP segments were retransmitted", None),
    ("leftover-debugging", "BPF run time statistics", "are on", None),
    ("idle-policy", "(10)", "whyslow-test (10) holds it at 0 us", None),
];

fn sight() -> Sight {
    Sight { group: "/fence/witness".to_owned(), used: Duration::from_millis(200) }
}

fn report(findings: Value) -> Value {
    let mut document = stand_in::whole();
    document["account"]["by_cgroup"] = json!([{"id": "/fence/witness", "tasks": 1, "cpu_s": 0.1}]);
    document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
    document["findings"] = findings;
    document
}

fn risk((rule, subject, says, _): (&str, &str, &str, Option<f64>), cpu: Option<f64>) -> Value {
    let mut risk = cause(rule, &Subject::group(GROUP), 1.0);
    risk["kind"] = json!(if rule == KILLS { "cause" } else { "risk" });
    risk["title"] = json!(format!("{subject}: {says}"));
    risk["cpu_s"] = json!(cpu);
    risk["lost_s"] = Value::Null;
    report(json!([risk]))
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    assert_eq!(include_str!("../risks.rs").matches("    pair(\"").count(), CELLS.len(), "each is tried");
    for cell in CELLS {
        let (rule, subject, cpu) = (cell.0, cell.1, cell.3);
        let says = [subject.to_owned(), cell.2.to_owned()];
        let of = [Subject::task(10, subject), Subject::group(subject)];
        for (healthy, truth) in [(false, risk(cell, cpu)), (true, report(json!([])))] {
            let made = Made { rule, healthy, cpu, ..Made::default() };
            let expected = made.expected(&says, sight());
            Trial { cell: &format!("{rule} {healthy}"), verb: Verb::Exam, of: &of, lost_s: 1.0, truth }
                .hold(|look| look.judged(&expected, Verb::Exam, None));
            let twice = trial::look(risk(cell, cpu.map(|cpu| 2.0 * cpu)), Verb::Exam);
            let sort = twice.judged(&expected, Verb::Exam, None).sort();
            assert_eq!(sort, if healthy { Some(Sort::False) } else { cpu.map(|_| Sort::Inexact) }, "{rule}");
        }
    }
}

/// A risk that other processes cause on this host, or that did not come about, does not make a truthful answer wrong.
#[test]
fn another_subject_is_another_matter_and_what_was_not_made_is_made_again() {
    let subject = ["/fence/b".to_owned()];
    let twin = Made { rule: "pid-limit", healthy: true, ..Made::default() };
    let told = trial::look(risk(CELLS[0], None), Verb::Exam);
    assert_eq!(told.judged(&twin.expected(&subject, sight()), Verb::Exam, None), Verdict::Passed);
    let fault = Made { healthy: false, ..twin };
    let again = || Some("it was not made".to_owned());
    assert!(matches!(
        told.judged(&fault.expected(&subject, sight()), Verb::Exam, again()),
        Verdict::Again(_)
    ));
    let own = twin.expected(&[GROUP.to_owned()], sight());
    assert_eq!(
        told.judged(&own, Verb::Exam, again()).sort(),
        Some(Sort::False),
        "an accusation counts all the same"
    );
    let idle = Made { rule: "monitoring-agent", cpu: Some(0.1), ..Made::default() };
    assert!(idle.is_idle().is_some() && Made { healthy: true, ..idle }.is_idle().is_none());
}
