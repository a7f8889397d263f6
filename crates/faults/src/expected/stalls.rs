//! The stalls of packets, and the tasks that must not be their culprits. Stalls are listed that are too short for a cause.

use serde_json::{Value, json};

use super::document::{has, words_of};
use super::{Expected, Facts, with_names};

/// A culprit that must not be one.
pub fn accused(of: &Expected, document: &Value) -> Option<String> {
    let facts: Vec<&Facts> = of.faults.iter().chain(&of.loads).collect();
    let stalls = document["stalls"].as_array().into_iter().flatten();
    let blames = |stall: &Value, name: &str| {
        let culprit = &stall["culprit"];
        culprit.is_object() && has(&words_of(&json!({ "culprit": culprit })), name)
    };
    let culprits = of.never.culprits.iter();
    let names = culprits.map(|name| facts.iter().fold(name.clone(), |n, facts| with_names(&n, &facts.names)));
    let mut found = names.filter_map(|name| {
        let stall = stalls.clone().find(|stall| blames(stall, &name))?;
        Some(format!("{name} is the culprit of stalls of CPU {}: {}", stall["cpu"], stall["culprit"]))
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::expected::{Never, Proof};
    use crate::report_checks::Verb;
    use crate::stand_in;
    use crate::wrong::Sort;

    /// The verdict where "idler", pid 71, has the CPU before the culprit.
    fn judged(stalls: &Value) -> Option<Sort> {
        let names = BTreeMap::from([("pid".to_owned(), "71".to_owned())]);
        let proof = Proof::rises("x", 2.0, 1.0, 1.5);
        let culprits = vec!["idler".to_owned(), "{pid}".to_owned()];
        let expected = Expected {
            faults: vec![Facts { proof, lost_s: None, names }],
            never: Never { culprits, ..Never::default() },
            ..Expected::default()
        };
        let mut document = stand_in::whole();
        document["ruled_out"] = json!([{"what": "a CPU quota", "evidence": "e"}]);
        document["stalls"] = stalls.clone();
        expected.judge(&document, Verb::Exam, Some(0)).err().map(|wrong| wrong.sort)
    }

    fn stall(pid: u32, who: &str) -> Value {
        json!({"cpu": 71, "kind": "softirq-deferred", "count": 3, "total_s": 0.06, "worst_s": 0.02, "at_s": 0.1,
            "culprit": {"pid": pid, "who": who, "file": "net/dev_mcast", "stack": ["idler_show"]}})
    }

    #[test]
    fn an_innocent_culprit_of_a_short_stall_is_a_false_accusation() {
        assert_eq!(judged(&json!([stall(9, "agent"), stall(70, "idler")])), Some(Sort::False));
        assert_eq!(judged(&json!([stall(71, "other")])), Some(Sort::False), "by its id");
    }

    #[test]
    fn another_culprit_and_none_are_no_accusation() {
        assert_eq!(judged(&json!([stall(9, "agent")])), None, "a stack is no culprit, and a CPU no task");
        let unknown = json!({"cpu": 1, "kind": "queue", "culprit": null, "unknown": "idler"});
        assert_eq!(judged(&json!([unknown])), None);
        assert_eq!(judged(&Value::Null), None);
    }
}
