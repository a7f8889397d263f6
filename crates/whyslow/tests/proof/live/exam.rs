//! Let whyslow look, and read what it said.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::bars;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::said;

use crate::live::made::Party;
use crate::live::outcome::kept_in;

/// One finding of the document. Names are those of the JSON contract; what is absent is "" or `None`.
pub struct Finding<'document> {
    value: &'document Value,
}

/// Let it look now. `label` names the file that keeps what it said.
pub fn look(label: &str) -> Result<Look, Trouble> {
    fs::create_dir_all(kept_in())?;
    let kept = kept_in().join(format!("{label}.json"));
    // Another binary can be put to the test: an installed one, an older one.
    let whyslow = whyslow_faults::program!();
    let length = format!("{}s", bars::WINDOW_S);
    let args = ["exam", "--for", &length, "--json"];
    Look::now(&whyslow, &args, Duration::from_secs(bars::WINDOW_S), &kept)
}

/// Its findings, in its order.
pub fn findings(look: &Look) -> Vec<Finding<'_>> {
    let all = look.document["findings"].as_array();
    all.into_iter().flatten().map(|value| Finding { value }).collect()
}

/// Its causes, in its order.
pub fn causes(look: &Look) -> Vec<Finding<'_>> {
    findings(look).into_iter().filter(Finding::is_cause).collect()
}

/// The findings, one a line, and where the whole document is.
pub fn summary(look: &Look) -> String {
    let mut text = format!("whyslow said (all of it: {}):", look.kept.display());
    let all = findings(look);
    for finding in &all {
        let _ = write!(text, "\n  {finding}");
    }
    if all.is_empty() {
        text.push_str("\n  nothing");
    }
    text
}

impl Finding<'_> {
    fn text(&self, name: &str) -> &str {
        self.value[name].as_str().unwrap_or("")
    }

    /// The rule that found it.
    pub fn rule(&self) -> &str {
        self.text("rule")
    }

    /// It is a cause.
    pub fn is_cause(&self) -> bool {
        self.text("kind") == "cause"
    }

    /// Task-seconds lost.
    pub fn lost_s(&self) -> Option<f64> {
        self.value["lost_s"].as_f64()
    }

    fn who(&self, role: &str) -> (&str, &str) {
        let who = &self.value[role];
        (who["kind"].as_str().unwrap_or(""), who["id"].as_str().unwrap_or(""))
    }

    /// Its victim is the host as a whole.
    pub fn is_about_the_host(&self) -> bool {
        self.who("victim").0 == "host"
    }

    /// Its victim is this cgroup.
    pub fn is_about_group(&self, path: &str) -> bool {
        self.who("victim") == ("cgroup", path)
    }

    /// Its victim is one of these tasks.
    pub fn is_about_task_of(&self, tids: &[u32]) -> bool {
        let (kind, id) = self.who("victim");
        kind == "task" && is_one_of(tids, id)
    }

    /// Its victim or its culprit is one of these tasks.
    pub fn blames_task_of(&self, tids: &[u32]) -> bool {
        ["victim", "culprit"].iter().any(|role| {
            let (kind, id) = self.who(role);
            kind == "task" && is_one_of(tids, id)
        })
    }

    /// Its commands lift the limits of just these cgroups.
    pub fn lifts(&self, groups: &[String]) -> bool {
        said::lifts(self.value, groups)
    }

    /// It mentions a task, cgroup or resource of the scenario, in any place that a reader would take for blame.
    pub fn names(&self, party: &Party) -> bool {
        self.blames_task_of(&party.all) || party.names.iter().any(|name| self.mentions(name))
    }

    /// It mentions this text, in any place that a reader would take for blame.
    pub fn mentions(&self, text: &str) -> bool {
        ["title", "victim", "culprit", "chain"]
            .iter()
            .any(|part| self.value[*part].to_string().contains(text))
    }
}

impl std::fmt::Display for Finding<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lost = self.lost_s().map_or("?".to_owned(), |s| format!("{s:.2}"));
        let (kind, id) = self.who("victim");
        write!(f, "{} {} lost {lost} s: {kind} {id}: {}", self.text("kind"), self.rule(), self.text("title"))
    }
}

/// Ids of tasks are numbers, alone or after other words ("nginx/123").
fn is_one_of(tids: &[u32], id: &str) -> bool {
    let last = id.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    last.is_some_and(|pid: u32| tids.contains(&pid))
}

#[test]
fn findings_are_read_by_the_names_of_the_contract() {
    let value = serde_json::json!({"kind": "cause", "rule": "cpu-quota", "lost_s": 1.5,
        "victim": {"kind": "cgroup", "id": "/a/b", "name": "b"}, "culprit": null, "title": "t", "chain": []});
    let finding = Finding { value: &value };
    assert!(finding.is_cause() && finding.is_about_group("/a/b") && !finding.is_about_group("/a"));
    assert_eq!(finding.lost_s(), Some(1.5));
    assert!(finding.mentions("/a/b") && !finding.mentions("cpu-quota"));
}
