//! Stand-ins for whyslow before the judge of every scenario: one that did not observe passes no scenario, one that reports the truth passes
//! all. New scenarios are included automatically: the tests read the folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use whyslow_faults::Draw;
use whyslow_faults::expected::{Answer, DOCTOR, Facts, LIMITS, Proof, RATIO, Section, with_names};
use whyslow_faults::report_checks::{Sight, Verb};
use whyslow_faults::stand_in::{self, StandIn, Subject, cause};

use super::{Verdict, judge};
use crate::plan::RunFacts;
use crate::scenario::{Scenario, Script, Sort};

const LOST_S: (f64, f64) = (9.0, 11.0);
/// Late answers of a row.
const LATE: u64 = 100;
const SEEN: &str = "/fence/seen";

fn every(mut with: impl FnMut(&Scenario, &Script)) {
    let all = Scenario::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).unwrap();
    assert!(!all.is_empty());
    for (at, scenario) in (0..).zip(&all) {
        let (script, _) = scenario.drawn(&Draw::with(at), scenario.vcpus()).unwrap();
        with(scenario, &script);
    }
}

/// `{key}` in a text.
fn keys(text: &str) -> impl Iterator<Item = String> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned()))
}

/// A run in which everything came about: each requested name was reported.
fn ran(script: &Script, status: i32) -> RunFacts {
    let asked = script.answer.iter().flat_map(|answer| {
        answer.names.iter().chain(&answer.order).chain(&answer.victim).chain(&answer.waiter)
    });
    let never = script.never.names.iter().chain(&script.never.in_causes).chain(&script.never.culprits);
    let look = script.look.args.iter().chain([&script.look.netns, &script.look.cpu]);
    let keys: Vec<String> = asked.chain(never).chain(look).flat_map(|text| keys(text)).collect();
    let facts = |at: usize| {
        // A number may be the number of a CPU or a thread.
        let named = (0..).zip(&keys).map(|(n, key)| (key.clone(), format!("{}", 7_000 + 100 * at + n)));
        let mut names: BTreeMap<String, String> = named.collect();
        names.insert(RATIO.to_owned(), "4.0".to_owned());
        names.insert(LIMITS.to_owned(), "/fence/a /fence/a/b".to_owned());
        Facts { proof: Proof::falls("pieces", 10.0, 20.0, 1.5), lost_s: Some(LOST_S), names }
    };
    RunFacts {
        faults: (0..script.fault.len()).map(facts).collect(),
        loads: (0..script.load.len()).map(|at| facts(20 + at)).collect(),
        status: Some(status),
        window_s: 4.0,
        seen: vec![Sight { group: SEEN.to_owned(), used: Duration::from_millis(1_500) }],
        ..RunFacts::default()
    }
}

/// The first of the requested names.
fn first(name: &str, facts: &Facts) -> String {
    let name = with_names(name, &facts.names);
    name.split('|').next().unwrap_or("").to_owned()
}

fn item(answer: &Answer, facts: &Facts) -> Value {
    let names: Vec<String> = answer.names.iter().map(|name| first(name, facts)).collect();
    let order: Vec<String> =
        answer.waiter.iter().chain(&answer.order).map(|name| first(name, facts)).collect();
    let [least, most] = answer.lost.unwrap_or([1.0, 1.0]);
    let lost = (LOST_S.0 * least + LOST_S.1 * most) / 2.0;
    let rule = answer.rules.first().map_or("lock-wait", String::as_str);
    let mut item = cause(rule, &Subject::task(1, "victim"), lost);
    item["kind"] = json!(match answer.section {
        Section::Risks => "risk",
        Section::Unknown => "cannot_tell",
        _ => "cause",
    });
    item["title"] = json!(if names.is_empty() { "cannot tell".to_owned() } else { names.join(" ") });
    if let Some(victim) = &answer.victim {
        item["victim"]["id"] = json!(first(victim, facts));
    }
    (item["time_s"], item["million_s"]) = (json!(lost), json!(0.002));
    item["count"] = json!(1);
    (item["late"], item["length_s"]) = (json!(LATE), json!(lost));
    let hops: Vec<Value> = order
        .iter()
        .map(|who| json!({"reason": "lock", "who": who, "waits_for": "x", "lost_s": lost}))
        .collect();
    item["tasks"] = hops.iter().map(|hop| json!([[1, hop["who"]]])).collect();
    (item["hops"], item["chain"]) = (json!(hops), json!(hops));
    item["reasons"] = json!(names);
    let cpu = names.iter().find_map(|name| name.strip_prefix("CPU ")?.parse::<u32>().ok());
    item["cpu"] = json!(cpu);
    item["slow"] = json!(if answer.section == Section::Cpus { Some(4.0) } else { None });
    if answer.section == Section::Doctor {
        return json!(names.join(" "));
    }
    if answer.section == Section::Missing {
        (item["what"], item["text"]) = (json!("x"), json!(names.join(" ")));
        (item["why"], item["way_out"]) = (json!("not_allowed"), json!("y"));
    }
    item["name"] = json!(names.join(" "));
    if answer.lifts {
        let limits = facts.names[LIMITS].split_whitespace();
        let fix =
            |group: &str| json!({"text": "t", "command": format!("echo x > /sys/fs/cgroup{group}/io.max")});
        item["fixes"] = limits.map(fix).collect();
    }
    item["read"] = json!({"total_s": lost});
    item["write"] = json!({"total_s": 0.0});
    item
}

/// The document of a whyslow that observed the host: each requested answer, once.
fn truthful(script: &Script) -> (Value, i32) {
    let mut document = stand_in::whole();
    document["ruled_out"] =
        json!([{"what": "a CPU quota", "evidence": "e"}, {"what": "an affinity mask", "evidence": "e"}]);
    document["cpus"] = json!([{"cpu": 0, "million_s": 0.002}]);
    if Verb::of(&script.look.args) == Verb::Asked {
        document["pings"] = stand_in::pings();
    }
    document["account"]["cpu_s"] = json!(1.5);
    document["account"]["by_cgroup"] = json!([{"id": SEEN, "tasks": 4, "cpu_s": 1.5}]);
    let facts = ran(script, 0).faults;
    let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for answer in &script.answer {
        if let Some(at) = of_pings(answer.section) {
            let late = document["pings"]["late"].as_u64().unwrap_or(0);
            let mut row = item(answer, &facts[answer.of]);
            row["culprit"] = json!({"who": row["title"]});
            document["pings"]["late"] = json!(late + if at == "explained" { LATE } else { 0 });
            document["pings"][at].as_array_mut().unwrap().push(row);
            continue;
        }
        let list = match answer.section {
            Section::Causes | Section::Risks | Section::Unknown => "findings",
            Section::Chains => "chains",
            Section::Wall => "parts",
            Section::Locks => "locks",
            Section::Calls => "calls",
            Section::Cpus => "cpus",
            // Two matters are in the list already.
            Section::RuledOut => continue,
            Section::Missing => "missing",
            Section::Explained | Section::PingStalls => continue,
            Section::Doctor => DOCTOR,
        };
        let mut new = item(answer, &facts[answer.of]);
        if let Some(list) = (list == "findings").then_some(&mut new).and_then(Value::as_object_mut) {
            list.retain(|name, _| {
                !matches!(name.as_str(), "cpu" | "slow" | "million_s" | "reasons" | "tasks" | "hops")
            });
        }
        lists.entry(list).or_default().push(new);
    }
    let order = ["cause", "risk", "cannot_tell"];
    let place = |finding: &Value| {
        (order.iter().position(|kind| finding["kind"] == *kind), -finding["lost_s"].as_f64().unwrap_or(0.0))
    };
    lists.entry("findings").or_default().sort_by(|a, b| place(a).partial_cmp(&place(b)).unwrap());
    for (name, list) in lists {
        match name {
            "parts" => document["wall"] = json!({"wall_s": 4.0, "parts": list}),
            _ => document[name] = json!(list),
        }
    }
    let status = status(script, &document);
    (document, status)
}

/// The list of late answers with rows of this section.
fn of_pings(section: Section) -> Option<&'static str> {
    match section {
        Section::Explained => Some("explained"),
        Section::PingStalls => Some("stalls"),
        _ => None,
    }
}

fn status(script: &Script, document: &Value) -> i32 {
    let causes =
        || document["findings"].as_array().into_iter().flatten().filter(|one| one["kind"] == "cause");
    let found = match Verb::of(&script.look.args) {
        Verb::Exam => causes().next().is_some(),
        Verb::Cpu => causes().any(|cause| cause["rule"] == "slow-cpu"),
        Verb::Chains => document["chains"].as_array().is_some_and(|chains| !chains.is_empty()),
        Verb::Looked | Verb::Asked | Verb::Run => false,
    };
    i32::from(found)
}

fn subjects(script: &Script) -> Vec<Subject> {
    let ran = ran(script, 0);
    let names = ran.faults.iter().chain(&ran.loads).flat_map(|facts| facts.names.values());
    let mut all: Vec<Subject> =
        names.flat_map(|name| [Subject::task(1, name), Subject::group(name)]).collect();
    all.extend([Subject::cpu(0), Subject::cpu(1), Subject::group("/"), Subject::task(99, "init")]);
    all
}

#[test]
fn no_stand_in_is_found_right_in_any_scenario_and_the_truth_is_in_all() {
    every(|scenario, script| {
        for which in StandIn::ALL {
            let (document, status) = which.says(Verb::of(&script.look.args), &subjects(script), 10.0);
            let verdict = judge(script, &ran(script, status), Some(&document));
            let is_wrong = matches!(verdict, Verdict::Wrong(_));
            // A stand-in that says that it was not able to observe is run again, and fails the next time, too.
            assert!(is_wrong, "{which:?} passes {}: {verdict:?}", scenario.name);
        }
        let (document, status) = truthful(script);
        let verdict = judge(script, &ran(script, status), Some(&document));
        assert_eq!(verdict, Verdict::Found, "{}: {document}", scenario.name);
    });
}

/// No stand-in passes, whatever else it gets right.
#[test]
fn accuser_is_wrong_and_silence_is_found_in_controls_only() {
    every(|scenario, script| {
        let (honest, _) = truthful(script);
        let verb = Verb::of(&script.look.args);
        let mut accuser = honest.clone();
        let (said, _) = StandIn::Accuser.says(verb, &subjects(script), 10.0);
        for name in ["findings", "chains", "locks", "cpus", "wall", "pings"] {
            accuser[name] = said[name].clone();
        }
        let verdict = judge(script, &ran(script, status(script, &accuser)), Some(&accuser));
        assert!(matches!(verdict, Verdict::Wrong(_)), "{}: {verdict:?}", scenario.name);
        if verb == Verb::Asked {
            let document = Value::Object(
                [honest.clone(), json!({"pings": said["pings"]})]
                    .iter()
                    .flat_map(|part| part.as_object().unwrap().clone())
                    .collect(),
            );
            let verdict = judge(script, &ran(script, status(script, &document)), Some(&document));
            assert_eq!(verdict.word(), "false", "{}: {verdict:?}", scenario.name);
        }
        let mut silent = honest;
        for name in ["findings", "chains", "locks", "wall", "calls", "missing", DOCTOR] {
            silent[name] = json!([]);
        }
        if verb == Verb::Asked {
            silent["pings"] = stand_in::pings();
        }
        silent["cpus"] = json!([{"cpu": 0, "million_s": 0.002}]);
        let verdict = judge(script, &ran(script, 0), Some(&silent));
        let is_control = scenario.sort() == Sort::Control;
        assert_eq!(verdict == Verdict::Found, is_control, "{}: {verdict:?}", scenario.name);
        // A program that did not see the working tasks of the run.
        let mut unseeing = silent.clone();
        unseeing["account"]["by_cgroup"] = json!([{"id": "/", "tasks": 9, "cpu_s": 1.5}]);
        let verdict = judge(script, &ran(script, 0), Some(&unseeing));
        assert!(matches!(verdict, Verdict::Wrong(_)), "{}: {verdict:?}", scenario.name);
        // A program that cannot observe the matter of a control.
        let (blind, _) = StandIn::Blind.says(verb, &[], 0.0);
        silent["findings"] = blind["findings"].clone();
        let verdict = judge(script, &ran(script, 0), Some(&silent));
        let is_missed = verdict.word() == "missed" && !is_control;
        assert!(is_missed || verdict.word() == "cannot tell", "{}: {verdict:?}", scenario.name);
    });
}

/// Stalls are listed beside the findings: right causes do not excuse an innocent culprit there.
#[test]
fn stall_that_blames_an_innocent_task_is_false() {
    let mut count = 0;
    every(|scenario, script| {
        let run = ran(script, 0);
        for name in &script.never.culprits {
            let facts = run.faults.iter().chain(&run.loads);
            let name = facts.fold(name.clone(), |name, facts| with_names(&name, &facts.names));
            let (mut document, status) = truthful(script);
            document["stalls"] = json!([{"cpu": 0, "culprit": {"pid": 1, "who": name, "stack": []}}]);
            let verdict = judge(script, &ran(script, status), Some(&document));
            assert_eq!(verdict.word(), "false", "{}: {verdict:?}", scenario.name);
            count += 1;
        }
    });
    assert!(count > 0);
}
