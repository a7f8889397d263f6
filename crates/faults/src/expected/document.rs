//! The lists of a document, and the words and numbers of their items.

use serde_json::Value;

use super::Section;

/// A field that the test bed adds to the document: the links that `whyslow doctor` lists as lost, one text each.
pub const DOCTOR: &str = "lab-doctor";

/// `a|b`: one of them. A number must match a whole word; other text may match a part of a word.
pub fn has(words: &[String], name: &str) -> bool {
    name.split('|').any(|name| {
        let is_number = name.parse::<u64>().is_ok();
        words.iter().any(|word| {
            if is_number {
                word.split(|c: char| !c.is_ascii_digit()).any(|digits| digits == name)
            } else {
                word.contains(name)
            }
        })
    })
}

pub fn items(section: Section, document: &Value) -> Vec<&Value> {
    let at = match section {
        Section::Causes | Section::Risks | Section::Unknown => &document["findings"],
        Section::Chains => &document["chains"],
        Section::Wall => &document["wall"]["parts"],
        Section::Locks => &document["locks"],
        Section::Calls => &document["calls"],
        Section::Cpus => &document["cpus"],
        Section::Explained => &document["pings"]["explained"],
        Section::PingStalls => &document["pings"]["stalls"],
        Section::RuledOut => &document["ruled_out"],
        Section::Missing => &document["missing"],
        Section::Doctor => &document[DOCTOR],
    };
    let kind = match section {
        Section::Causes => Some("cause"),
        Section::Risks => Some("risk"),
        Section::Unknown => Some("cannot_tell"),
        _ => None,
    };
    let all = at.as_array().into_iter().flatten();
    let is_reported = |item: &&Value| section != Section::Cpus || ratio_of(item).is_some();
    all.filter(|item| kind.is_none_or(|kind| item["kind"] == kind)).filter(is_reported).collect()
}

pub fn rule_of(item: &Value) -> &str {
    item["rule"].as_str().unwrap_or("")
}

/// How many times slower the document calls a CPU; `None` if it does not call it slow.
pub fn ratio_of(cpu: &Value) -> Option<f64> {
    cpu["slow"].as_f64()
}

/// Task-seconds that an item reports.
pub fn time_of(section: Section, item: &Value) -> Option<f64> {
    match section {
        Section::Causes => item["lost_s"].as_f64(),
        // Burned CPU time and waits that are load need not be a loss of any task.
        Section::Risks => ["lost_s", "cpu_s", "raw_wait_s"].iter().find_map(|name| item[*name].as_f64()),
        Section::Locks => {
            let side = |side: &str| item[side]["total_s"].as_f64().unwrap_or(0.0);
            Some(side("read") + side("write"))
        }
        Section::Chains | Section::Wall | Section::Calls | Section::Cpus => item["time_s"].as_f64(),
        Section::PingStalls => item["length_s"].as_f64(),
        Section::Explained | Section::RuledOut | Section::Unknown | Section::Missing | Section::Doctor => {
            None
        }
    }
}

/// All texts of an item that a reader would take for blame: without its checks and fixes, and the stack of a culprit.
pub fn words_of(item: &Value) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(cpu) = item["cpu"].as_u64() {
        words.push(format!("CPU {cpu}"));
    }
    match item.as_object() {
        Some(parts) => {
            let reported =
                parts.iter().filter(|(name, _)| !matches!(name.as_str(), "check" | "fixes" | "rule"));
            for (name, part) in reported {
                match part.as_object().filter(|_| name == "culprit") {
                    Some(of) => of
                        .iter()
                        .filter(|(name, _)| *name != "stack")
                        .for_each(|(_, part)| gather(part, &mut words)),
                    None => gather(part, &mut words),
                }
            }
        }
        None => gather(item, &mut words),
    }
    words
}

pub fn gather(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::String(text) => words.push(text.clone()),
        Value::Number(number) if number.is_u64() => words.push(number.to_string()),
        Value::Array(list) => list.iter().for_each(|one| gather(one, words)),
        Value::Object(map) => map.values().for_each(|one| gather(one, words)),
        _ => {}
    }
}

/// One item in one line.
pub fn reported(section: Section, item: &Value) -> String {
    let time = time_of(section, item).map_or("?".to_owned(), |s| format!("{s:.2}"));
    let text = match section {
        Section::Causes | Section::Risks | Section::Unknown => {
            format!("{}: {}", rule_of(item), item["title"].as_str().unwrap_or(""))
        }
        Section::Chains => {
            let hops = item["hops"].as_array().into_iter().flatten();
            let word = |hop: &Value, name: &str| hop[name].as_str().unwrap_or("").to_owned();
            let hops = hops.map(|hop| {
                format!("{} {} ({})", word(hop, "who"), word(hop, "reason"), word(hop, "waits_for"))
            });
            hops.collect::<Vec<_>>().join(" < ")
        }
        Section::Wall => format!("{} {} {}", item["reason"], item["who"], item["what"]),
        Section::Locks => item["name"].to_string(),
        Section::Calls => format!("{} {}", item["syscall"], item["path"]),
        Section::Cpus => format!("CPU {}, {} times slower: {}", item["cpu"], item["slow"], item["reasons"]),
        Section::Explained => format!(
            "CPU {}, {} late answers: {} {}({}) {} {}",
            item["cpu"],
            item["late"],
            item["culprit"]["who"],
            item["culprit"]["call"],
            item["culprit"]["file"],
            item["culprit"]["function"],
            item["unknown"]
        ),
        Section::PingStalls => format!("no answer from {} s on", item["at_s"]),
        Section::RuledOut => item["what"].as_str().unwrap_or("").to_owned(),
        Section::Missing => item["text"].as_str().unwrap_or("").to_owned(),
        Section::Doctor => item.as_str().unwrap_or("").to_owned(),
    };
    format!("{text} ({time} s)")
}
