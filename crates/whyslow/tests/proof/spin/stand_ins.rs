//! Stand-ins for whyslow before the judge of each cell: one that did not observe passes no cell, one that reports the truth passes all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::report_checks::{Sight, Verb};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::spinners::Told;
use whyslow_faults::stand_in::{self, Subject, cause};
use whyslow_faults::trial::{self, Trial};

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
        let truth = truthful(&made);
        Trial { cell: &cell, verb: Verb::Exam, of: &subjects(), lost_s: 1.2, truth }
            .hold(|look| judge(&made, look).0);
    }
}

#[test]
fn a_share_a_name_and_a_runtime_that_are_not_the_programs_are_wrong() {
    for cell in cells().filter(|cell| cell.program.spins()) {
        let made = sample(cell);
        let with = |change: &dyn Fn(&mut Value)| {
            let mut document = truthful(&made);
            change(&mut document["findings"][0]);
            matches!(judge(&made, &trial::look(document, Verb::Exam)).0, Verdict::Wrong(_))
        };
        assert!(
            with(&|said| (said["cpu_s"], said["cpu_range_s"]) = (json!(1.9), json!([1.8, 2.0]))),
            "{cell}"
        );
        assert!(with(&|said| said["culprit"]["name"] = json!("other")), "{cell}");
        assert!(with(&|said| said["title"] = json!("no thread spins")), "{cell}");
        assert!(
            with(&|said| said["title"] = json!("waiter and giver spin: OpenMP Erlang JVM Go spin lock")),
            "{cell}"
        );
    }
}
