//! Stand-ins for whyslow before the judge of each cell.

use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::report_checks::{Sight, Verb};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};
use whyslow_faults::{Form, Truth};

use crate::days::DAYS;
use crate::days::day::{Cell, Day};
use crate::days::honest::{self, Worked};
use crate::days::judge::{Made, judge};

const GROUP: &str = "/fence/web";
const MOB: &str = "/fence/mob";
const RULES: &[&str] = &["full-cpus", "disk-queue"];

fn made(cell: Cell, busy: bool) -> Made {
    let rate_with = if cell.form == Form::Fault { 40.0 } else { 99.0 };
    Made {
        cell,
        truth: Truth { tasks: 1, window_s: 3.0, rate_with, rate_without: 100.0, drift: 0.0 },
        whose: vec![GROUP.to_owned()],
        blame: vec![MOB.to_owned()],
        rules: RULES,
        says: "lost 1.",
        busy: busy.then(|| MOB.to_owned()),
        aside: vec!["/fence/aside".to_owned()],
        top: "/fence".to_owned(),
        said: String::new(),
        sight: Sight { group: GROUP.to_owned(), used: Duration::from_secs(1) },
    }
}

fn with(findings: &Value) -> Value {
    let mut document = stand_in::whole();
    document["findings"] = findings.clone();
    document["account"]["by_cgroup"] = json!([{"id": GROUP, "tasks": 1, "cpu_s": 1.0}]);
    document
}

fn truth(form: Form) -> Value {
    let mut finding = cause("full-cpus", &Subject::group(GROUP), 1.8);
    finding["culprit"] = json!({"kind": "cgroup", "id": MOB, "name": MOB});
    if form != Form::Fault {
        finding["kind"] = json!("busy");
        finding["victim"] = finding["culprit"].take();
    }
    with(&json!([finding]))
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    let of = [Subject::group(GROUP), Subject::group(MOB)];
    for (day, form) in DAYS.iter().flat_map(|day| [(*day, Form::Fault), (*day, Form::Twin)]) {
        let cell = Cell { day, form };
        let made = made(cell, form == Form::Twin);
        Trial { cell: &cell, verb: Verb::Exam, of: &of, lost_s: 1.8, truth: truth(form) }
            .hold(|look| judge(&made, look));
    }
}

fn verdict(form: Form, change: impl FnOnce(&mut Value)) -> Verdict {
    let mut document = truth(form);
    change(&mut document);
    judge(&made(Cell { day: Day::Reads, form }, form == Form::Twin), &trial::look(document, Verb::Exam))
}

#[test]
fn another_victim_culprit_rule_word_or_loss_is_wrong() {
    let changes: [fn(&mut Value); 5] = [
        |cause| cause["victim"] = json!({"kind": "cgroup", "id": "/else", "name": "/else"}),
        |cause| cause["culprit"] = json!({"kind": "cgroup", "id": "/else", "name": "/else"}),
        |cause| cause["rule"] = json!("cpu-quota"),
        |cause| cause["title"] = json!("it had to wait"),
        |cause| cause["lost_s"] = json!(1.2),
    ];
    for change in changes {
        let verdict = verdict(Form::Fault, |document| change(&mut document["findings"][0]));
        assert!(matches!(verdict, Verdict::Wrong(_)), "{verdict:?}");
    }
}

/// A process that only makes the host busy may have a larger loss; for any other process such a report is wrong.
#[test]
fn only_who_stands_aside_may_have_lost_more() {
    let more = |group: &'static str| {
        move |document: &mut Value| {
            let mut other = document["findings"][0].clone();
            other["victim"] = json!({"kind": "cgroup", "id": group, "name": group});
            other["lost_s"] = json!(5.0);
            let findings = document["findings"].as_array_mut().unwrap();
            findings.insert(0, other);
        }
    };
    assert_eq!(verdict(Form::Fault, more("/fence/aside")), Verdict::Passed);
    assert_eq!(verdict(Form::Fault, more("/else")), Verdict::Passed, "a stranger's loss is another matter");
    assert!(matches!(verdict(Form::Fault, more("/fence/mob")), Verdict::Wrong(_)));
}

/// A third party may lose CPU time to a crowd that makes the host busy; the day's victim may not.
#[test]
fn a_crowd_that_stands_aside_may_cost_bystanders_alone() {
    let lost = |victim: &'static str, title: &'static str| {
        move |document: &mut Value| {
            let mut other = cause("full-cpus", &Subject::group(victim), 0.2);
            (other["culprit"], other["title"]) =
                (json!({"kind": "cgroup", "id": GROUP, "name": GROUP}), json!(title));
            document["findings"].as_array_mut().unwrap().insert(0, other);
        }
    };
    let with_it = "/fence/web and /fence/aside keep both CPUs full";
    assert_eq!(verdict(Form::Twin, lost("/fence/script", with_it)), Verdict::Passed);
    for wrong in [lost(GROUP, with_it), lost("/fence/script", "/fence/web keeps both CPUs full")] {
        assert!(matches!(verdict(Form::Twin, wrong), Verdict::Wrong(_)));
    }
}

#[test]
fn of_a_twin_the_wrong_one_may_not_be_busy() {
    let group = json!({"kind": "cgroup", "id": GROUP, "name": GROUP});
    let other = |document: &mut Value| document["findings"][0]["victim"] = group;
    assert!(matches!(verdict(Form::Twin, other), Verdict::Wrong(_)));
    assert_eq!(verdict(Form::Twin, |_| ()), Verdict::Passed);
}

/// A host that a load kept this full, and the process that is called busy.
fn honest(left: f64, findings: Value) -> Verdict {
    let sight = Sight { group: GROUP.to_owned(), used: Duration::from_secs(1) };
    let worked = Worked { names: vec![GROUP.to_owned()], sight, left, said: String::new() };
    honest::judge(&worked, &trial::look(with(&findings), Verb::Exam))
}

fn busy(group: &str) -> Value {
    let mut finding = cause("full-cpus", &Subject::group(group), 0.0);
    finding["kind"] = json!("busy");
    json!([finding])
}

#[test]
fn of_an_honest_load_who_is_busy_must_be_right() {
    assert_eq!(honest(0.0, busy(GROUP)), Verdict::Passed);
    assert_eq!(honest(0.5, json!([])), Verdict::Passed);
    let wrong = [(0.0, json!([])), (0.5, busy(GROUP)), (0.0, busy(MOB))];
    for (left, findings) in
        wrong.into_iter().chain([(0.5, json!([cause("held-up", &Subject::group(GROUP), 1.0)]))])
    {
        let verdict = honest(left, findings);
        assert!(matches!(verdict, Verdict::Wrong(_)), "{left}: {verdict:?}");
    }
}
