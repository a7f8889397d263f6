//! `docs/json.md` names exactly what is emitted.

mod sample;

use std::collections::BTreeSet;

use serde_json::Value;
use whyslow_model::{Contradiction, Missing};
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
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                names.insert(path.clone());
                emitted(inner, &path, names);
            }
        }
        Value::Array(all) => all.iter().for_each(|one| emitted(one, &format!("{at}[]"), names)),
        _ => {}
    }
}

fn documented() -> BTreeSet<String> {
    let rows = DOC.lines().filter_map(|l| l.strip_prefix("| `"));
    rows.filter_map(|l| l.split_once('`')).map(|(name, _)| name.to_owned()).collect()
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
    let mut names = BTreeSet::new();
    emitted(&serde_json::from_str(&json(&doc)).unwrap(), "", &mut names);
    emitted(&serde_json::from_str(&json(&sample::waits::watched())).unwrap(), "", &mut names);
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
}

#[test]
fn seconds_are_numbers_to_the_microsecond() {
    let mut doc = sample::full();
    doc.findings[0].lost = Some(std::time::Duration::from_nanos(1_234_567_899));
    let printed: Value = serde_json::from_str(&json(&doc)).unwrap();
    assert_eq!(printed["findings"][0]["lost_s"], 1.234568);
    assert_eq!(printed["findings"][0]["lost_range_s"], serde_json::json!([12.9, 14.1]));
}
