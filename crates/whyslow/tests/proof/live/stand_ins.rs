//! Stand-ins for whyslow before the judge of each cell: who did not look passes none, who tells the truth passes all. A new
//! cell is asked of by itself: `CELLS` is the list of the tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{Sight, Verb};
use whyslow_faults::stand_in::{self, StandIn, Subject, cause};
use whyslow_faults::wrong::Sort;
use whyslow_faults::{Kind, Span, Truth, bars};

use crate::live::CELLS;
use crate::live::cell::Cell;
use crate::live::judge::judge;
use crate::live::made::{Built, Made, Mob, Party};
use crate::live::outcome::kept_in;

const INNOCENT: u32 = 99;

fn look(document: Value, status: i32) -> Look {
    let window = Span { from: 1_000_000_000, to: 4_000_000_000 };
    let asked = Some(Span { from: 500_000_000, to: 4_500_000_000 });
    let used = Some(Duration::from_millis(250));
    Look { document, window, status: Some(status), kept: PathBuf::from("x.json"), asked, used }
}

fn sight(group: &str) -> Sight {
    Sight { group: group.to_owned(), used: Duration::from_millis(1_500) }
}

fn party(at: u32, kind: Kind, cell: Cell) -> Party {
    let is_quiet = matches!(cell, Cell::Twin(_) | Cell::Control(_));
    let rate_with = if is_quiet { 100.0 } else { 50.0 - f64::from(at) * 20.0 };
    let group = format!("/fence/group{at}");
    Party {
        kind,
        truth: Truth { tasks: 4, window_s: 3.0, rate_with, rate_without: 100.0, drift: 0.0 },
        to_crowd: Some(Truth { tasks: 4, window_s: 3.0, rate_with: 50.0, rate_without: 100.0, drift: 0.0 }),
        sight: sight(&group),
        victim: vec![10 * at + 10, 10 * at + 11],
        all: vec![10 * at + 10, 10 * at + 11, 10 * at + 12],
        names: vec![format!("victim{at}"), group.clone()],
        limits: if kind == Kind::CpuQuota { vec![group.clone(), format!("{group}/in")] } else { vec![] },
        group,
        counter: (matches!(cell, Cell::Control(_))).then_some([1, 5]),
        said: kind.rule().to_owned(),
    }
}

/// A cell as it is made where nothing goes wrong.
fn sample(cell: Cell) -> Made {
    let kinds = match cell {
        Cell::Fault(kind) | Cell::Crowd(kind) | Cell::Twin(kind) | Cell::Control(kind) => vec![kind],
        Cell::Pair(a, b) => vec![a, b],
        Cell::Idle | Cell::Compile(_) => vec![],
    };
    let mob = Mob { group: "/fence/crowd".to_owned(), tids: vec![70, 71], lost_s: 90.0 };
    let built = Built { group: "/fence".to_owned(), sight: sight("/fence/cc"), files: 9 };
    Made {
        cell,
        parties: (0..).zip(kinds).map(|(at, kind)| party(at, kind, cell)).collect(),
        mob: matches!(cell, Cell::Crowd(_)).then_some(mob),
        built: matches!(cell, Cell::Compile(_)).then_some(built),
        innocents: vec![INNOCENT],
        disturbed: None,
        left_over: Some(1.0),
    }
}

/// Everybody of the host, the innocent last.
fn subjects(made: &Made) -> Vec<Subject> {
    let tids =
        made.parties.iter().flat_map(|party| &party.all).chain(made.mob.iter().flat_map(|mob| &mob.tids));
    let groups = made.parties.iter().map(|party| &party.group).chain(made.mob.iter().map(|mob| &mob.group));
    let mut all: Vec<Subject> = groups.map(|group| Subject::group(group)).collect();
    all.extend(made.built.iter().map(|built| Subject::group(&built.sight.group)));
    all.extend(tids.map(|tid| Subject::task(*tid, "who")));
    all.extend([0, 1].map(Subject::cpu));
    all.push(Subject::task(INNOCENT, "test"));
    all
}

/// What a whyslow says that looked: the truth of what was made.
fn truthful(made: &Made) -> Value {
    let mut document = stand_in::whole();
    let is_quiet = matches!(made.cell, Cell::Twin(_) | Cell::Control(_));
    let mut causes: Vec<Value> = made.parties.iter().filter(|_| !is_quiet).map(of_party).collect();
    causes.sort_by(|a, b| b["lost_s"].as_f64().unwrap().total_cmp(&a["lost_s"].as_f64().unwrap()));
    document["findings"] = json!(causes);
    document["ruled_out"] =
        json!([{"what": "a CPU quota", "evidence": "e"}, {"what": "an affinity mask", "evidence": "e"}]);
    let of_built = made.built.iter().map(|built| &built.sight);
    let rows = made.parties.iter().map(|party| &party.sight).chain(of_built).map(row);
    document["account"]["by_cgroup"].as_array_mut().unwrap().extend(rows);
    document
}

fn of_party(party: &Party) -> Value {
    let mut cause = cause(party.kind.rule(), &Subject::group(&party.group), party.truth.lost_s());
    let command =
        |path: &String| json!({"text": "t", "command": format!("echo -1 > /sys/fs/cgroup{path}/cpu.max")});
    cause["fixes"] = party.limits.iter().map(command).collect();
    cause
}

fn row(sight: &Sight) -> Value {
    json!({"id": sight.group, "name": "x", "tasks": 4, "cpu_s": sight.used.as_secs_f64(), "runnable_s": 0.0,
        "uninterruptible_s": 0.0})
}

fn of(document: Value) -> Look {
    let status =
        document["findings"].as_array().is_some_and(|all| all.iter().any(|one| one["kind"] == "cause"));
    look(document, i32::from(status))
}

#[test]
fn no_stand_in_passes_any_cell_and_the_truth_passes_all() {
    for cell in CELLS {
        let made = sample(*cell);
        for which in StandIn::ALL {
            let (document, status) = which.says(Verb::Exam, &subjects(&made), 6.0);
            let verdict = judge(&made, &look(document, status));
            assert!(matches!(verdict, Verdict::Wrong(_)), "{which:?} passes {cell}: {verdict:?}");
        }
        assert_eq!(judge(&made, &of(truthful(&made))), Verdict::Passed, "{cell}");
    }
}

/// Whatever else a stand-in gets right: an accuser that sees all groups, and rules out what it can.
#[test]
fn who_accuses_everybody_fails_though_it_saw_all() {
    for cell in CELLS {
        let made = sample(*cell);
        let mut document = truthful(&made);
        let lost = made.parties.first().map_or(1.0, |party| party.truth.lost_s());
        document["findings"] = StandIn::Accuser.says(Verb::Exam, &subjects(&made), lost).0["findings"].take();
        assert_eq!(judge(&made, &of(document)).sort(), Some(Sort::False), "{cell}");
    }
}

#[test]
fn who_saw_all_and_says_nothing_fails_where_something_is_wrong() {
    for cell in CELLS {
        let mut made = sample(*cell);
        let mut document = truthful(&made);
        document["findings"] = json!([]);
        let is_wrong = matches!(cell, Cell::Fault(_) | Cell::Crowd(_) | Cell::Pair(..));
        assert_eq!(judge(&made, &of(document.clone())).sort(), is_wrong.then_some(Sort::Missed), "{cell}");
        // And where nothing is, if it cannot tell, or a probe was not attached.
        let mut blind = document.clone();
        let rule = made.parties.first().map_or(Kind::SwapIn, |party| party.kind).rule();
        let victim = json!({"kind": "host", "id": "", "name": "h"});
        blind["findings"] = json!([{"kind": "cannot_tell", "rule": rule, "title": "t", "victim": victim, "chain": [],
            "check": [], "fixes": []}]);
        let sort = if is_wrong { Sort::Missed } else { Sort::CannotTell };
        assert_eq!(judge(&made, &of(blind)).sort(), Some(sort), "{cell}");
        document["missing"] = json!([{"text": "t", "why": "broken", "what": "task list", "reason": "r"}]);
        assert_eq!(judge(&made, &of(document.clone())).sort(), Some(Sort::CannotTell), "{cell}");
        // A disturbed host does not change that.
        made.disturbed = Some("others".to_owned());
        assert!(matches!(judge(&made, &of(document)), Verdict::Wrong(_)), "{cell}");
    }
}

#[test]
fn a_loss_that_is_not_that_of_the_victim_is_wrong() {
    for cell in CELLS.iter().filter(|cell| matches!(cell, Cell::Fault(_))) {
        let made = sample(*cell);
        let party = &made.parties[0];
        let fixes = truthful(&made)["findings"][0]["fixes"].clone();
        let said = |group: &str, rule: &str, lost: f64| {
            let mut document = truthful(&made);
            let mut cause = cause(rule, &Subject::group(group), lost);
            cause["fixes"] = fixes.clone();
            document["findings"] = json!([cause]);
            judge(&made, &of(document))
        };
        let (rule, lost) = (party.kind.rule(), party.truth.lost_s());
        assert_eq!(said(&party.group, rule, lost * 1.2), Verdict::Passed);
        for verdict in [
            said(&party.group, rule, lost * 1.3),
            said(&party.group, rule, lost * 0.7),
            said("/other", rule, lost),
            said(&party.group, "steal", lost),
        ] {
            assert!(matches!(verdict, Verdict::Wrong(_)), "{cell}: {verdict:?}");
        }
    }
}

/// Of nested limits all that must change are to be lifted, and no other.
#[test]
fn fixes_that_lift_too_few_limits_or_too_many_are_wrong() {
    let made = sample(Cell::Fault(Kind::CpuQuota));
    let fix = json!({"text": "t", "command": "echo -1 > /sys/fs/cgroup/other/cpu.max"});
    let (mut few, mut many) = (truthful(&made), truthful(&made));
    few["findings"][0]["fixes"].as_array_mut().unwrap().pop();
    many["findings"][0]["fixes"].as_array_mut().unwrap().push(fix);
    for document in [few, many] {
        assert!(matches!(judge(&made, &of(document)), Verdict::Wrong(_)));
    }
}

#[test]
fn a_cell_is_made_again_by_the_tests_own_clocks_and_never_after_an_accusation() {
    for cell in CELLS {
        let mut made = sample(*cell);
        made.disturbed = Some("others used 20 % of the CPUs".to_owned());
        let mut document = truthful(&made);
        assert!(matches!(judge(&made, &of(document.clone())), Verdict::Again(_)), "{cell}");
        document["findings"] = json!([cause("spin", &Subject::task(INNOCENT, "test"), 1.0)]);
        assert!(matches!(judge(&made, &of(document.clone())), Verdict::Wrong(_)), "{cell}");
        // But where the hypervisor is said to have taken what no counter of the guest names: that is true of some hosts at some times.
        let mut slow = cause("slow-cpu", &Subject::task(INNOCENT, "test"), 1.0);
        document["findings"] = json!([slow]);
        assert!(matches!(judge(&made, &of(document.clone())), Verdict::Wrong(_)), "{cell}");
        slow["title"] =
            json!(format!("CPU 1 is slower: 29 % of its time is {}", crate::live::judge::NOT_COUNTED));
        document["findings"] = json!([slow]);
        assert!(matches!(judge(&made, &of(document)), Verdict::Again(_)), "{cell}");
    }
    let spoil: [fn(&mut Truth); 2] =
        [|truth| truth.rate_with = 90.0, |truth| truth.drift = 2.0 * bars::DRIFT];
    for spoil in spoil {
        let mut made = sample(Cell::Fault(Kind::CpuQuota));
        spoil(&mut made.parties[0].truth);
        assert!(matches!(judge(&made, &of(truthful(&made))), Verdict::Again(_)));
    }
}

/// The tests of some cells, run to their ends with a stand-in in whyslow's place: they fail.
#[test]
fn root_a_stand_in_fails_the_tests_themselves() {
    if !whyslow_faults::host::is_root() || whyslow_faults::rounds::is_set("WHYSLOW_SOAK") {
        return;
    }
    let tests = [
        ("live::root_an_idle_host_has_no_cause", StandIn::Silent),
        ("live::root_an_idle_host_has_no_cause", StandIn::Accuser),
        ("live::root_a_cpu_quota_is_found", StandIn::Accuser),
        ("live::root_an_ample_cpu_quota_is_not_accused", StandIn::Silent),
    ];
    for (test, which) in tests {
        let script = stand_in::script(&kept_in().join("stand-ins"), which).unwrap();
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads=1"])
            .env("WHYSLOW_BIN", script)
            .env("WHYSLOW_ALL", "1")
            .env_remove("WHYSLOW_PROVEN")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            !done.status.success() && said.contains("live: FAILED: "),
            "{which:?} passes {test}:\n{said}"
        );
    }
}
