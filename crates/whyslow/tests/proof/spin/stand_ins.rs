//! Stand-ins for whyslow before the judge of each cell: who did not look passes none, who tells the truth passes all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::Span;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::spinners::Told;
use whyslow_faults::stand_in::{self, StandIn, Subject, cause};
use whyslow_faults::wrong::Sort;

use crate::spin::PROGRAMS;
use crate::spin::cell::Cell;
use crate::spin::judge::{Made, judge};

const PID: u32 = 10;
const INNOCENT: u32 = 99;

fn cells() -> impl Iterator<Item = Cell> {
    PROGRAMS.iter().flat_map(|program| [false, true].map(|crowded| Cell { program: *program, crowded }))
}

fn sample(cell: Cell) -> Made {
    let spinner = || Told {
        spin_s: 1.2,
        most_s: 0.0,
        cpu_s: 2.0,
        spinning: vec!["waiter".to_owned()],
        others: vec!["giver".to_owned()],
    };
    Made {
        cell,
        comm: "abcdef".to_owned(),
        pid: Some(PID),
        reported: if cell.program.spins() { spinner() } else { Told::default() },
        progress: u64::from(!cell.program.spins()) * 9,
        disturbed: false,
        sight: Sight { group: "/fence/a".to_owned(), used: Duration::from_secs(2) },
        crowd: vec!["crowd".to_owned()],
        innocents: vec![INNOCENT],
        ours: BTreeMap::from([(PID, true), (70, true)]),
    }
}

fn look(document: Value) -> Look {
    let window = Span { from: 1_000_000_000, to: 4_000_000_000 };
    let asked = Some(Span { from: 500_000_000, to: 4_500_000_000 });
    let is_cause = |finding: &Value| finding["kind"] == "cause";
    let status = document["findings"].as_array().is_some_and(|all| all.iter().any(is_cause));
    let used = Some(Duration::from_millis(250));
    Look { document, window, status: Some(i32::from(status)), kept: PathBuf::from("x.json"), asked, used }
}

fn truthful(made: &Made) -> Value {
    let mut document = stand_in::whole();
    document["account"]["by_cgroup"] = json!([{"id": "/fence/a", "tasks": 2, "cpu_s": 2.0}]);
    if made.cell.program.spins() {
        let mut spins = cause("spin", &Subject::task(PID, &made.comm), 1.2);
        spins["kind"] = json!("risk");
        spins["cpu_range_s"] = json!([1.0, 1.4]);
        spins["title"] = json!(format!("waiter spins: {}", made.cell.program.runtime().join(" ")));
        document["findings"] = json!([spins]);
    }
    document
}

fn subjects() -> Vec<Subject> {
    let mut all = vec![Subject::task(PID, "abcdef"), Subject::task(70, "crowd")];
    all.extend([Subject::group("/fence/a"), Subject::cpu(0), Subject::task(INNOCENT, "test")]);
    all
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    for cell in cells() {
        let made = sample(cell);
        for which in StandIn::ALL {
            let (verdict, _) = judge(&made, &look(which.says(Verb::Exam, &subjects(), 1.2).0));
            assert!(matches!(verdict, Verdict::Wrong(_)), "{which:?} passes {cell}: {verdict:?}");
        }
        assert_eq!(judge(&made, &look(truthful(&made))).0, Verdict::Passed, "{cell}");
    }
}

/// Whatever else a stand-in gets right.
#[test]
fn who_saw_all_and_accuses_everybody_or_nobody_fails() {
    for cell in cells() {
        let made = sample(cell);
        let mut document = truthful(&made);
        document["findings"] = StandIn::Accuser.says(Verb::Exam, &subjects(), 1.2).0["findings"].take();
        assert_eq!(judge(&made, &look(document.clone())).0.sort(), Some(Sort::False), "{cell}");
        document["findings"] = StandIn::Blind.says(Verb::Exam, &[], 0.0).0["findings"].take();
        assert_eq!(judge(&made, &look(document.clone())).0.sort(), Some(Sort::CannotTell), "{cell}");
        document["findings"] = json!([]);
        let sort = cell.program.spins().then_some(Sort::Missed);
        assert_eq!(judge(&made, &look(document)).0.sort(), sort, "{cell}");
    }
}

#[test]
fn a_share_a_name_and_a_runtime_that_are_not_the_programs_are_wrong() {
    for cell in cells().filter(|cell| cell.program.spins()) {
        let made = sample(cell);
        let with = |change: &dyn Fn(&mut Value)| {
            let mut document = truthful(&made);
            change(&mut document["findings"][0]);
            matches!(judge(&made, &look(document)).0, Verdict::Wrong(_))
        };
        assert!(
            with(&|said| (said["cpu_s"], said["cpu_range_s"]) = (json!(1.9), json!([1.8, 2.0]))),
            "{cell}"
        );
        assert!(with(&|said| said["culprit"]["name"] = json!("other")), "{cell}");
        assert!(with(&|said| said["title"] = json!("nobody spins")), "{cell}");
        assert!(
            with(&|said| said["title"] = json!("waiter and giver spin: OpenMP Erlang JVM Go spin lock")),
            "{cell}"
        );
    }
}
