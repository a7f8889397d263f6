//! `docs/json.md` names exactly what is emitted.

mod sample;

use std::collections::BTreeSet;

use serde_json::Value;
use whyslow_model::{About, Contradiction, Missing};
use whyslow_report::json;

const DOC: &str = include_str!("../../../docs/json.md");

fn emitted(value: &Value, at: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                // Parts have parts alike.
                if name == "parts" && at.ends_with(".parts[]") {
                    names.insert(format!("{at}.parts"));
                    continue;
                }
                // A vocabulary of its own.
                if name == "detail" {
                    names.insert(format!("{at}.detail"));
                    continue;
                }
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                names.insert(path.clone());
                emitted(inner, &path, names);
            }
        }
        Value::Array(all) => all.iter().for_each(|one| emitted(one, &format!("{at}[]"), names)),
        _ => {}
    }
}

/// The names of the table below a line that begins so, up to the next heading or table.
fn rows_below(line: &str) -> BTreeSet<String> {
    let below = DOC.lines().skip_while(|l| !l.starts_with(line)).skip(1).take_while(|l| l.starts_with('|'));
    let rows = below.filter_map(|l| l.strip_prefix("| `"));
    rows.filter_map(|l| l.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

fn documented() -> BTreeSet<String> {
    rows_below("| name | type |")
}

fn words(all: impl Iterator<Item = serde_json::Result<Value>>) -> BTreeSet<String> {
    let word = |value: serde_json::Result<Value>| match value.unwrap() {
        Value::String(word) => word,
        Value::Object(fields) => fields.keys().next().unwrap().clone(),
        other => panic!("{other} is no word"),
    };
    all.map(word).collect()
}

#[test]
fn the_vocabulary_of_waits_is_documented_and_no_other() {
    use whyslow_model::timeline::LockKind;
    use whyslow_model::wait::{Detail, Operation, PeerAct, Reason, Spin, TaskState, WaitTarget};
    assert_eq!(words(Reason::ALL.iter().map(serde_json::to_value)), rows_below("| reason |"));
    assert_eq!(words(WaitTarget::ALL.iter().map(serde_json::to_value)), rows_below("| thing |"));
    assert_eq!(words(TaskState::ALL.iter().map(serde_json::to_value)), rows_below("| state |"));
    let (none, name) = (None::<String>, String::new);
    let details = [
        Detail::Target(WaitTarget::Cpu),
        Detail::Lock { kind: LockKind::Mutex, name: name(), write: None },
        Detail::FileLock { file: none.clone(), retried: false },
        Detail::Device { device: name(), operation: Operation::Read, about: None },
        Detail::IoLimit { device: name() },
        Detail::Peer { address: none.clone(), act: PeerAct::Send },
        Detail::Synced { call: name() },
        Detail::GracePeriod { caller: none.clone() },
        Detail::WorkItem { caller: none.clone() },
        Detail::Completion { function: none.clone() },
        Detail::Sleeps { function: none.clone() },
        Detail::NextTurn { function: none.clone() },
        Detail::InFunction { function: name() },
        Detail::InCall { call: name() },
        Detail::KernelCode { function: name(), inside: none.clone() },
        Detail::KernelCodeIn { inside: name() },
        Detail::Spinning { whom: Spin::Cpus, function: name() },
        Detail::UserCode { function: none },
        Detail::WakeupLatency { why: name(), function: name() },
        Detail::Short { of: Box::default(), woken_by: None },
        Detail::Smaller { parts: 2 },
        Detail::NotTraced { why: name() },
    ];
    assert_eq!(words(details.iter().map(serde_json::to_value)), rows_below("| detail |"));
}

#[test]
fn every_emitted_name_is_documented_and_no_other() {
    let mut doc = sample::full();
    doc.missing.push(Missing::NotAllowed { what: "kallsyms".into(), way_out: "run as root".into() }.into());
    doc.contradictions = vec![Contradiction {
        rule: "swap-in".into(),
        what: "swap".into(),
        shown: std::time::Duration::from_secs(3),
        text: "both are said".into(),
    }];
    doc.about = Some(About { name: "web.service".into(), idle: false });
    doc.findings.iter_mut().flat_map(|finding| &mut finding.chain).for_each(|hop| hop.circle = true);
    let mut names = BTreeSet::new();
    emitted(&serde_json::from_str(&json(&doc)).unwrap(), "", &mut names);
    let mut watched = sample::waits::watched();
    if let Some(wall) = &mut watched.wall {
        wall.parts[0].who = sample::waits::called("kworker/1:2 (css_free_rwork_fn)");
    }
    emitted(&serde_json::from_str(&json(&watched)).unwrap(), "", &mut names);
    assert_eq!(names, documented());
}

#[test]
fn unknown_is_null_or_absent_and_never_zero() {
    let doc: Value = serde_json::from_str(&json(&sample::full())).unwrap();
    let risk = doc["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "risk").unwrap();
    assert_eq!(risk["lost_s"], Value::Null);
    assert_eq!(risk["share"], Value::Null);
    assert!(risk.get("raw_wait_s").is_none() && risk.get("cpu_s").is_none());
    let nothing: Value = serde_json::from_str(&json(&sample::empty())).unwrap();
    assert_eq!(nothing["own_cost"]["bpf_s"], Value::Null);
    assert_eq!(nothing["boot_id"], Value::Null);
    let unseen: Value = serde_json::from_str(&json(&sample::unseen())).unwrap();
    for name in ["cpu_s", "off_cpu_s", "unexplained_s"] {
        assert_eq!(unseen["account"][name], Value::Null, "{name}");
    }
}

#[test]
fn seconds_are_numbers_to_the_microsecond() {
    let mut doc = sample::full();
    doc.findings[0].lost = Some(std::time::Duration::from_nanos(1_234_567_899));
    let printed: Value = serde_json::from_str(&json(&doc)).unwrap();
    assert_eq!(printed["findings"][0]["lost_s"], 1.234568);
    assert_eq!(printed["findings"][0]["lost_range_s"], serde_json::json!([12.9, 14.1]));
}
