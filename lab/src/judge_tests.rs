use std::collections::BTreeMap;

use serde_json::json;
use whyslow_faults::expected::{Facts, Proof};
use whyslow_faults::{Draw, stand_in};

use super::*;
use crate::scenario::Scenario;

fn script(more: &str) -> Script {
    let text = format!(
        "about = \"x\"\nkernels = [\"6.1\"]\n{more}\n[[fault]]\nkind = \"live-fault\"\nfault = \"cpu-quota\"\n"
    );
    Scenario::parse("a", &text).unwrap().drawn(&Draw::with(1), 2).unwrap().0
}

fn asks(more: &str) -> Script {
    script(&format!(
        "[[answer]]\nrules = [\"cpu-quota\"]\nnames = [\"{{group}}\"]\nlost = [0.8, 1.2]\n{more}"
    ))
}

fn ran(holds: bool) -> RunFacts {
    let names = BTreeMap::from([("group".to_owned(), "/abc/def".to_owned())]);
    let (with, without) = if holds { (10.0, 20.0) } else { (20.0, 20.0) };
    let proof = Proof::falls("pieces", with, without, 1.5);
    let faults = vec![Facts { proof, lost_s: Some((9.0, 11.0)), names }];
    RunFacts { faults, status: Some(0), ..RunFacts::default() }
}

fn cause(rule: &str, group: &str, lost: f64) -> Value {
    json!({"kind": "cause", "rule": rule, "title": "t", "lost_s": lost, "check": [{"text": "/bad"}],
        "victim": {"kind": "cgroup", "id": group, "name": group}, "chain": [], "fixes": []})
}

fn said(causes: &[Value]) -> Value {
    whole(json!({"findings": causes, "chains": [{"time_s": 3.0, "tasks": [[[77, "cat"]], [[99, "bob"]]],
        "hops": [{"reason": "lock", "who": "cat", "waits_for": "atlas"}, {"reason": "timer", "who": "bob"}]}]}))
}

/// With all else that a document has.
fn whole(parts: Value) -> Value {
    let mut document = stand_in::whole();
    document["ruled_out"] =
        json!([{"what": "a CPU quota", "evidence": "e"}, {"what": "an affinity mask", "evidence": "e"}]);
    document.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    document
}

/// As `super::judge`, for a whyslow whose exit status agrees with its document.
fn judge(script: &Script, ran: &RunFacts, document: Option<&Value>) -> Verdict {
    let is_cause = |finding: &Value| finding["kind"] == "cause";
    let all = document.and_then(|document| document["findings"].as_array());
    let status = all.map(|all| i32::from(all.iter().any(is_cause)));
    super::judge(script, &RunFacts { status, ..ran.clone() }, document)
}

fn verdict(script: &Script, causes: &[Value]) -> Verdict {
    judge(script, &ran(true), Some(&said(causes)))
}

#[test]
fn expected_cause_is_found_whole_or_in_parts() {
    assert_eq!(verdict(&asks(""), &[cause("cpu-quota", "/abc/def", 10.0)]), Verdict::Found);
    // In parts.
    let parts = [cause("cpu-quota", "/abc/def", 6.0), cause("cpu-quota", "/abc/def", 4.0)];
    assert_eq!(verdict(&asks(""), &parts), Verdict::Found);
}

#[test]
fn absent_cause_is_missed_and_wrong_amount_or_rank_is_inexact() {
    let word = |causes: &[Value]| verdict(&asks("\n[never]\n"), causes).word();
    assert_eq!(word(&[]), "missed");
    assert_eq!(word(&[cause("cpu-quota", "/abc/def", 5.0)]), "inexact");
    assert_eq!(word(&[cause("cpu-quota", "/abc/def", 14.0)]), "inexact");
    let below = format!("may = [\"steal\"]\n{}", "[[answer]]\nrules = [\"cpu-quota\"]\n");
    let causes = [cause("steal", "", 20.0), cause("cpu-quota", "/abc/def", 10.0)];
    assert_eq!(verdict(&script(&below), &causes).word(), "inexact");
    assert_eq!(verdict(&script(&format!("{below}rank = 2\n")), &causes), Verdict::Found);
    let nothing = RunFacts { no_answer: Some("it hung".into()), ..ran(true) };
    assert_eq!(judge(&asks(""), &nothing, None), Verdict::Wrong(Wrong::missed("it hung")));
}

/// A match anywhere in the text is not enough: a part of a path is another cgroup, and a culprit is not a victim.
#[test]
fn victim_matches_by_its_whole_id() {
    let asks = script("[[answer]]\nrules = [\"cpu-quota\"]\nvictim = \"/x|{group}\"\n");
    let waits = script("[[answer]]\nrules = [\"cpu-quota\"]\nwaiter = \"cat\"\n");
    let right = cause("cpu-quota", "/abc/def", 10.0);
    let (mut turned, mut chain) = (cause("cpu-quota", "/other", 10.0), right.clone());
    turned["culprit"] = right["victim"].clone();
    chain["chain"] = json!([{"reason": "quota", "who": "cat (7)", "waits_for": "bob"}]);
    assert_eq!(verdict(&asks, &[right]), Verdict::Found);
    assert_eq!(verdict(&asks, &[turned]).word(), "false");
    assert_eq!(verdict(&asks, &[cause("cpu-quota", "/abc/def/in", 10.0)]).word(), "false");
    assert_eq!(verdict(&waits, std::slice::from_ref(&chain)), Verdict::Found);
    (chain["chain"][0]["who"], chain["chain"][0]["waits_for"]) = (json!("bob"), json!("cat"));
    assert_eq!(verdict(&waits, &[chain]).word(), "false");
}

#[test]
fn of_two_faults_the_larger_loss_stands_first() {
    let two = "[never]\nturned = true\n[[answer]]\nrank = 2\nrules = [\"cpu-quota\"]\n[[answer]]\nof = 1\nrank = 2\nrules = [\"swap-in\"]\n";
    let second = "[[fault]]\nkind = \"live-fault\"\nfault = \"swap-in\"\n";
    let both = script(&format!("{two}{second}"));
    let word = |lost_s: (f64, f64)| {
        let mut run = ran(true);
        run.faults.push(Facts { lost_s: Some(lost_s), ..run.faults[0].clone() });
        let causes = [cause("cpu-quota", "/abc/def", 10.0), cause("swap-in", "/abc/def", 10.0)];
        judge(&both, &run, Some(&said(&causes))).word()
    };
    assert_eq!((word((12.0, 14.0)), word((14.0, 15.0)), word((2.0, 3.0))), ("found", "inexact", "found"));
}

#[test]
fn a_cause_that_nobody_asked_for_is_false() {
    let good = cause("cpu-quota", "/abc/def", 10.0);
    let alone = std::slice::from_ref(&good);
    assert_eq!(verdict(&asks(""), &[good.clone(), cause("steal", "", 1.0)]).word(), "false");
    assert_eq!(verdict(&asks(""), &[good.clone(), cause("cpu-quota", "/other", 1.0)]).word(), "false");
    assert_eq!(verdict(&asks("[never]\nrules = [\"cpu-quota\"]\n"), alone).word(), "false");
    assert_eq!(verdict(&asks("[never]\nany_cause = true\n"), alone).word(), "false");
    assert_eq!(verdict(&asks("[never]\nnames = [\"bob\"]\n"), alone).word(), "false");
    assert_eq!(verdict(&asks("[never]\nnames = [\"99\"]\n"), alone).word(), "false");
    // Part of a number is another number; a check command is no blame.
    assert_eq!(verdict(&asks("[never]\nnames = [\"9\", \"/bad\"]\n"), alone), Verdict::Found);
}

#[test]
fn a_fault_without_proof_is_failed_whatever_was_said() {
    let document = said(&[cause("steal", "", 1.0)]);
    assert_eq!(judge(&asks(""), &ran(false), Some(&document)).word(), "failed");
    let broke = RunFacts { trouble: Some("no module".into()), ..ran(true) };
    assert_eq!(judge(&asks(""), &broke, Some(&document)), Verdict::Failed("no module".into()));
    assert_eq!(judge(&asks(""), &RunFacts::default(), Some(&document)).word(), "failed");
}

#[test]
fn verdict_spoilt_by_a_crowded_host_counts_as_unmade() {
    let crowded = || Some("others used 16 %".to_owned());
    for wrong in [Verdict::Found, Verdict::Wrong(Wrong::accused("CPU 1 is slow"))] {
        assert_eq!(wrong.clone().or_of_a_crowded_host(None), wrong);
        let spoilt = wrong.clone().or_of_a_crowded_host(crowded());
        assert!(
            matches!(&spoilt, Verdict::Unmade(why) if why.contains("16 %") && why.contains(wrong.word())),
            "{spoilt}"
        );
    }
    for other in [Verdict::Failed("the guest died".into()), Verdict::NotRun("no root".into())] {
        assert_eq!(other.clone().or_of_a_crowded_host(crowded()), other);
    }
}

#[test]
fn chains_are_read_from_the_waiter_down() {
    let order =
        |order: &str| verdict(&script(&format!("[[answer]]\nin = \"chains\"\norder = {order}\n")), &[]);
    assert_eq!(order("[\"77\", \"bob\"]"), Verdict::Found);
    assert_eq!(order("[\"atlas\", \"dog|99\"]"), Verdict::Found);
    assert_eq!(order("[\"bob\", \"77\"]").word(), "missed");
    assert_eq!(order("[\"cat\", \"atlas\"]").word(), "missed");
}

#[test]
fn slow_cpus_are_rows_of_their_own() {
    let cpu =
        |cpu: u32, slow: Option<f64>| json!({"cpu": cpu, "node": 3, "slow": slow, "reasons": ["powersave"]});
    let verdict = |more: &str, cpus: &[Value]| {
        let mut ran = ran(true);
        for (key, name) in [("cpu", "1"), ("ratio", "4.0")] {
            ran.faults[0].names.insert(key.to_owned(), name.to_owned());
        }
        let script = script(&format!("[[answer]]\nin = \"cpus\"\n{more}"));
        judge(&script, &ran, Some(&whole(json!({"cpus": cpus})))).word()
    };
    let one = "names = [\"CPU {cpu}\", \"powersave\"]\n";
    let rows = [cpu(0, None), cpu(1, Some(3.8)), cpu(2, None)];
    assert_eq!(verdict(one, &rows), "found");
    // The node of a CPU is not its number, and a CPU that is not called slow does not count.
    assert_eq!(verdict(one, &[cpu(1, None), cpu(3, Some(4.0))]), "missed");
    let exact = format!("{one}ratio = [0.9, 1.1]\n");
    assert_eq!(verdict(&exact, &rows), "found");
    assert_eq!(verdict(&exact, &[cpu(1, Some(3.5))]), "inexact");
    let alone = format!("{one}[never]\nother_cpus = true\n");
    assert_eq!(verdict(&alone, &rows), "found");
    assert_eq!(verdict(&alone, &[cpu(1, Some(4.0)), cpu(2, Some(1.3))]), "false");
    // All are alike: the median counts.
    let all = "names = [\"powersave\"]\nratio = [0.9, 1.1]\n[never]\nother_cpus = true\n";
    assert_eq!(verdict(all, &[cpu(0, Some(9.0)), cpu(1, Some(4.1)), cpu(2, Some(3.9))]), "found");
}

#[test]
fn a_risk_that_must_not_be_told_is_false() {
    let risk = json!({"kind": "risk", "rule": "spin", "title": "t", "victim": {"kind": "host", "id": "", "name": "h"},
        "chain": [], "check": [], "fixes": []});
    let verdict = |rules: &str| {
        verdict(&script(&format!("[never]\nrisks = {rules}\n")), std::slice::from_ref(&risk)).word()
    };
    assert_eq!(verdict("[\"spin\"]"), "false");
    assert_eq!(verdict("[\"idle-policy\"]"), "found");
}

#[test]
fn where_no_cause_is_asked_for_what_a_scenario_allows_is_none_of_whyslows() {
    let control = |head: &str| script(&format!("{head}[never]\nany_cause = true\n"));
    let verdict = |head: &str| verdict(&control(head), &[cause("steal", "host", 1.0)]).word();
    assert_eq!(verdict(""), "false");
    assert_ne!(verdict("may = [\"steal\"]\n"), "false");
}

#[test]
fn a_time_that_is_asked_of_a_fault_that_tells_none_proves_nothing() {
    let mut run = ran(true);
    run.faults[0].lost_s = None;
    let said = said(&[cause("cpu-quota", "/abc/def", 20.0)]);
    assert_eq!(
        judge(&asks(""), &run, Some(&said)),
        Verdict::Wrong(Wrong::inexact("its fault reports no time"))
    );
}

#[test]
fn a_ratio_is_not_asked_of_a_fault_that_tells_none() {
    let script = script("[[answer]]\nin = \"cpus\"\nratio = [0.9, 1.1]\n");
    let document = whole(json!({"cpus": [{"cpu": 0, "slow": 4.0}]}));
    assert_eq!(judge(&script, &ran(true), Some(&document)).word(), "inexact");
}

proptest::proptest! {
    #[test]
    fn no_document_makes_the_judge_panic(text in "\\PC{0,60}", number in -1e300..1e300_f64) {
        let value = json!({"findings": [{"kind": "cause", "rule": text, "lost_s": number}, text, [number]],
            "chains": {"hops": text}, "cpus": [{"slow": number}, text], "own_cost": number});
        let _ = judge(&asks(""), &ran(true), Some(&value));
        let _ = judge(&asks(""), &ran(true), Some(&whole(value.clone())));
        let _ = Cost::of(&value);
    }
}
