//! whyslow's findings about spinning.

use serde_json::Value;

/// The spelling in docs/json.md.
const CANNOT_TELL: &str = "cannot_tell";

/// One finding that accuses a process of spinning. Names are those of the JSON contract; an absent field is "" or `None`.
pub struct Accusation<'document> {
    value: &'document Value,
}

/// The accusations in a document.
pub fn accusations(document: &Value) -> Vec<Accusation<'_>> {
    let all = document["findings"].as_array().into_iter().flatten();
    all.filter(|value| value["rule"] == "spin" && value["kind"] != CANNOT_TELL)
        .map(|value| Accusation { value })
        .collect()
}

/// Why the question was not answered, if the document says so.
pub fn why_not(document: &Value) -> Option<&str> {
    let mut all = document["findings"].as_array()?.iter();
    all.find(|value| value["rule"] == "spin" && value["kind"] == CANNOT_TELL)?["title"].as_str()
}

impl Accusation<'_> {
    fn text(&self, name: &str) -> &str {
        self.value["culprit"][name].as_str().unwrap_or("")
    }

    /// The process, if the subject is one.
    pub fn pid(&self) -> Option<u32> {
        (self.text("kind") == "task").then(|| self.text("id").parse().ok()).flatten()
    }

    /// Name of the process.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// The function in which it spins.
    pub fn function(&self) -> &str {
        self.text("function")
    }

    /// Reclaimable CPU seconds, and their bounds.
    pub fn cpu_s(&self) -> Option<[f64; 3]> {
        let cpu = self.value["cpu_s"].as_f64()?;
        let bound = |at: usize| self.value["cpu_range_s"][at].as_f64().unwrap_or(cpu);
        Some([cpu, bound(0), bound(1)])
    }

    /// Whether it contains this word, anywhere but in the names of the process.
    pub fn says(&self, word: &str) -> bool {
        let mut value = self.value.clone();
        for names in ["culprit", "victim"] {
            for name in ["id", "name"] {
                value[names][name] = Value::Null;
            }
        }
        value.to_string().contains(word)
    }
}

#[test]
fn an_accusation_is_read_by_the_names_of_the_contract() {
    let document = serde_json::json!({"findings": [
        {"kind": "cannot_tell", "rule": "spin", "title": "no stacks"},
        {"kind": "risk", "rule": "spin", "title": "threads abc", "victim": {"name": "p"}, "cpu_s": 1.5,
            "cpu_range_s": [1.0, 2.0],
            "culprit": {"kind": "task", "id": "12", "name": "xyz", "function": "do_spin"}}]});
    let all = accusations(&document);
    assert_eq!((all.len(), why_not(&document)), (1, Some("no stacks")));
    assert_eq!((all[0].pid(), all[0].name(), all[0].function()), (Some(12), "xyz", "do_spin"));
    assert_eq!(all[0].cpu_s(), Some([1.5, 1.0, 2.0]));
    assert!(all[0].says("abc") && !all[0].says("xyz"));
}

#[test]
fn spelling_of_cannot_tell_matches_the_model() {
    let spelt = serde_json::to_value(whyslow_model::Kind::CannotTell).unwrap();
    assert_eq!(spelt, CANNOT_TELL);
}
