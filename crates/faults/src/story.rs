//! What must hold in every report, whatever it is about: it never contradicts itself, and its times add up.
//!
//! Works on the JSON alone, with names that are written down here a second time: this finds a rule that does not know which edges show its
//! matter.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::report_checks;

/// Each matter that a report can rule out, and the edges of chains and parts of wall time that show it nevertheless.
const SHOWN_BY: &[(&str, &[&str])] = &[
    ("a CPU quota", &["quota", "cpu-quota"]),
    ("a limit on block I/O", &["io-throttle"]),
    ("a disk", &["block-io"]),
    ("a lock of the kernel", &["lock"]),
    ("a memory limit", &["memory-limit"]),
    ("swap", &["swap-in"]),
    ("too many dirty pages", &["dirty-throttling"]),
    ("IRQ latency", &["wakeup-latency"]),
    // Reclaim at a cgroup's limit is another matter with the same edge: the thing that is waited for differs.
    ("memory pressure on the host", &["reclaim: memory to be reclaimed"]),
];
/// Share of the window that may be shown of a ruled-out matter: the program's own bound, plus rounding.
const SHOWN: f64 = 0.0101;
/// The account lists at most this many cgroups: if it lists fewer, there were no more.
const LISTED: usize = 8;
/// The document rounds each of its seconds to a microsecond.
const ROUNDED: f64 = 2e-6;

/// Every way in which this report is inconsistent; empty if it is consistent.
#[must_use]
pub fn broken(document: &Value) -> Vec<String> {
    let mut wrong = contradicts(document);
    names(document, &mut wrong);
    wrong.extend(adds_up(document));
    wrong
}

/// Every way in which it contradicts itself: a report must not do so even with absurd numbers.
#[must_use]
pub fn contradicts(document: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    ruled_out(document, &mut wrong);
    for said in items(&document["contradictions"]) {
        wrong.push(format!("it contradicts itself: {}", said["text"].as_str().unwrap_or("?")));
    }
    overlaps(document, &mut wrong);
    wrong
}

/// Asserts that a report is consistent.
///
/// # Panics
/// If it is not.
pub fn must_hold(document: &Value) {
    let wrong = broken(document);
    assert!(wrong.is_empty(), "a report that does not hold together: {wrong:#?}");
}

/// Every way in which its times do not add up.
#[must_use]
pub fn adds_up(document: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let wall = &document["wall"];
    if let (Some(whole), true) = (number(&wall["wall_s"]), wall["parts"].is_array()) {
        parts(&wall["parts"], whole, "wall time", &mut wrong);
    }
    items(&document["findings"]).for_each(|finding| of_finding(finding, &mut wrong));
    items(&document["chains"]).for_each(|chain| of_chain(chain, &mut wrong));
    of_account(&document["account"], &mut wrong);
    lost_by_somebody(document, &mut wrong);
    wrong
}

/// A loss that a cause overlaps with must be in the same report.
fn overlaps(document: &Value, wrong: &mut Vec<String>) {
    let causes = || items(&document["findings"]).filter(|finding| finding["kind"] == "cause");
    for (cause, other) in
        causes().flat_map(|cause| items(&cause["overlaps"]).map(move |other| (cause, other)))
    {
        if !causes().any(|reported| reported["rule"] == *other) {
            wrong.push(format!(
                "a loss by {} overlaps with one by {other}, which is not reported",
                cause["rule"]
            ));
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

/// A task that findings name as victim or culprit has one name. The tasks of a chain have the names that they had while they waited: a
/// program that executes another program has two names there.
fn names(document: &Value, wrong: &mut Vec<String>) {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let subjects = items(&document["findings"]).flat_map(|finding| [&finding["victim"], &finding["culprit"]]);
    for subject in subjects.filter(|subject| subject["kind"] == "task") {
        let (Some(id), Some(name)) = (subject["id"].as_str(), subject["name"].as_str()) else { continue };
        let name = bare(name);
        let first = *known.entry(id).or_insert(name);
        let is_fold = numberless(first) == name || numberless(name) == first;
        if first != name && !is_fold {
            wrong.push(format!("task {id} is {first} and {name}"));
        }
    }
}

/// Similar workers of a pool share a name, with the pid of one: "worker-*".
fn numberless(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().map(|c| if c.is_ascii_digit() { '*' } else { c }) {
        if c != '*' || !out.ends_with('*') {
            out.push(c);
        }
    }
    out
}

/// A name without its annotation: "sh (60 %) and cat (40 %)" is about sh, "kworker/0:1 (writeback)" about the worker.
fn bare(name: &str) -> &str {
    let end = [" (", ", ", " and "].iter().filter_map(|mark| name.find(mark)).min().unwrap_or(name.len());
    let name = name.get(..end).unwrap_or(name);
    // While a worker works for a queue, its name contains the queue.
    let queue = name.starts_with("kworker/").then(|| name.find(['+', '-'])).flatten();
    name.get(..queue.unwrap_or(name.len())).unwrap_or(name)
}

/// No task loses more than its lifetime: all tasks together lose at most the window times their number.
fn lost_by_somebody(document: &Value, wrong: &mut Vec<String>) {
    let rows = document["account"]["by_cgroup"].as_array().map_or(0, Vec::len);
    let tasks: f64 = items(&document["account"]["by_cgroup"]).filter_map(|row| number(&row["tasks"])).sum();
    let Some(window) = number(&document["window_s"]) else { return };
    if !(1..LISTED).contains(&rows) {
        return;
    }
    for finding in items(&document["findings"]) {
        let lost = number(&finding["lost_s"]).unwrap_or(0.0);
        if lost > window * tasks * (1.0 + 1e-6) + ROUNDED {
            let title = finding["title"].as_str().unwrap_or("?");
            wrong.push(format!("{tasks} tasks lost {lost} s in {window} s: {title}"));
        }
    }
}

fn ruled_out(document: &Value, wrong: &mut Vec<String>) {
    let Some(window) = number(&document["window_s"]) else { return };
    for not in items(&document["ruled_out"]) {
        let what = not["what"].as_str().unwrap_or_default();
        let Some((_, edges)) = SHOWN_BY.iter().find(|(known, _)| *known == what) else { continue };
        let is_one = |edge: &Value, what: &Value| {
            let (edge, what) = (edge.as_str().unwrap_or_default(), what.as_str().unwrap_or_default());
            edges
                .iter()
                .any(|known| known.split_once(": ").map_or(edge == *known, |known| known == (edge, what)))
        };
        let has_one = |hops: &Value| items(hops).any(|hop| is_one(&hop["reason"], &hop["waits_for"]));
        let of_chain = |chain: &Value| has_one(&chain["hops"]).then(|| number(&chain["time_s"]));
        let chains: f64 = items(&document["chains"]).filter_map(of_chain).flatten().sum();
        let causes = items(&document["findings"]).filter(|finding| finding["kind"] == "cause");
        let of_hop = |hop: &Value| is_one(&hop["reason"], &hop["waits_for"]).then(|| number(&hop["lost_s"]));
        let hops: f64 = causes.flat_map(|cause| items(&cause["chain"])).filter_map(of_hop).flatten().sum();
        let wall = of_parts(&document["wall"]["parts"], &|part| is_one(&part["reason"], &part["what"]));
        let shown = chains.max(wall).max(hops);
        if shown > SHOWN * window {
            wrong.push(format!("\"not {what}\", and {shown:.3} s of waits for just that in {window:.3} s"));
        }
    }
}

/// Time of parts of this kind; a part contains the parts below it.
fn of_parts(list: &Value, is_one: &dyn Fn(&Value) -> bool) -> f64 {
    let time = |part: &Value| match is_one(part) {
        true => number(&part["time_s"]).unwrap_or(0.0),
        false => of_parts(&part["parts"], is_one),
    };
    items(list).map(time).sum()
}

fn parts(list: &Value, whole: f64, of: &str, wrong: &mut Vec<String>) {
    let Some(all) = list.as_array().filter(|all| !all.is_empty()) else { return };
    let sum: f64 = all.iter().filter_map(|part| number(&part["time_s"])).sum();
    if (sum - whole).abs() > ROUNDED * (all.len() + 1) as f64 {
        wrong.push(format!("the parts of {of} are {sum:.6} s, it is {whole:.6} s"));
    }
    for part in all {
        let what = part["what"].as_str().unwrap_or("a part");
        parts(&part["parts"], number(&part["time_s"]).unwrap_or(0.0), what, wrong);
    }
}

fn of_finding(finding: &Value, wrong: &mut Vec<String>) {
    let named = || {
        format!("{}: {}", finding["rule"].as_str().unwrap_or("?"), finding["title"].as_str().unwrap_or("?"))
    };
    for (time, range) in [("lost_s", "lost_range_s"), ("cpu_s", "cpu_range_s")] {
        let (Some(likely), Some(range)) = (number(&finding[time]), finding[range].as_array()) else {
            continue;
        };
        let (low, high) = (range.first().and_then(number), range.last().and_then(number));
        if low.is_none_or(|low| low > likely + ROUNDED) || high.is_none_or(|high| high + ROUNDED < likely) {
            wrong.push(format!("{time} {likely} is not in {range:?}: {}", named()));
        }
    }
    if finding["kind"] != "cause" {
        return;
    }
    if !report_checks::has_no_time(finding) && number(&finding["lost_s"]).is_none_or(|lost| lost <= 0.0) {
        wrong.push(format!("a cause of no loss: {}", named()));
    }
    if number(&finding["share"]).is_some_and(|share| !(0.0..=1.0 + 1e-6).contains(&share)) {
        wrong.push(format!("more was lost than the victims lived: {}", named()));
    }
}

fn of_chain(chain: &Value, wrong: &mut Vec<String>) {
    let head = chain["hops"][0]["lost_s"].as_f64();
    let (time, worst) = (number(&chain["time_s"]), number(&chain["worst_s"]));
    let who = || chain["hops"][0]["who"].as_str().unwrap_or("?").to_owned();
    if let (Some(time), Some(worst)) = (time, worst)
        && worst > time + ROUNDED
    {
        wrong.push(format!("{}: one wait of {worst} s in a chain of {time} s", who()));
    }
    if let (Some(time), Some(head)) = (time, head)
        && time > head + ROUNDED
    {
        wrong.push(format!("{}: a chain explains {time} s of a wait of {head} s", who()));
    }
}

fn of_account(account: &Value, wrong: &mut Vec<String>) {
    let sum = |of: &str, list: &str, key: &str| -> f64 {
        let of = |row: &&Value| of.is_empty() || row["of"] == of;
        items(&account[list]).filter(of).filter_map(|row| number(&row[key])).sum()
    };
    let rows = account["by_state"].as_array().map_or(0, Vec::len) as f64 + 8.0;
    if let Some(cpu) = number(&account["cpu_s"])
        && sum("", "by_cgroup", "cpu_s") > cpu + ROUNDED * rows
    {
        wrong.push(format!("cgroups used more than all tasks, {cpu} s"));
    }
    if let Some(gap) = number(&account["off_cpu_s"])
        && (sum("wait", "by_state", "time_s") - gap).abs() > ROUNDED * rows
    {
        wrong.push(format!("the waits by kind are not the whole, {gap} s"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_that_rules_out_what_it_shows_is_broken() {
        let report = |edge: &str, time: f64| {
            json!({"window_s": 10.0, "ruled_out": [{"what": "a CPU quota", "evidence": "none lost time to it"}],
                "chains": [{"time_s": time, "worst_s": 0.1, "hops": [{"reason": edge, "lost_s": time, "who": "x"}]}]})
        };
        assert_eq!(broken(&report("quota", 3.2)).len(), 1, "{:?}", broken(&report("quota", 3.2)));
        assert!(broken(&report("quota", 0.1)).iter().all(|wrong| !wrong.contains("not a CPU quota")));
        assert_eq!(broken(&report("lock", 3.2)), Vec::<String>::new());
        let part = json!({"reason": "quota", "time_s": 1.0});
        let wall = json!({"window_s": 10.0, "ruled_out": [{"what": "a CPU quota"}], "wall": {"wall_s": 1.0, "parts": [part]}});
        assert_eq!(broken(&wall).len(), 1);
        assert_eq!(broken(&json!({"contradictions": [{"text": "both"}]})).len(), 1);
        let reclaim = |what: &str| {
            let hop = json!({"reason": "reclaim", "waits_for": what, "lost_s": 3.2});
            json!({"window_s": 10.0, "ruled_out": [{"what": "memory pressure on the host", "evidence": "none"}],
                "findings": [{"kind": "cause", "rule": "x", "lost_s": 3.2, "chain": [hop]}]})
        };
        assert_eq!(broken(&reclaim("memory to be reclaimed")).len(), 1);
        assert_eq!(broken(&reclaim("memory to be reclaimed at its cgroup's limit")), Vec::<String>::new());
    }

    #[test]
    fn a_loss_overlaps_only_with_what_is_reported() {
        let cause = |rule: &str, overlaps: &[&str]| json!({"kind": "cause", "rule": rule, "lost_s": 1.0, "overlaps": overlaps});
        let report = |findings: &[Value]| json!({"findings": findings});
        assert_eq!(broken(&report(&[cause("x", &["y"])])).len(), 1);
        assert_eq!(
            broken(&report(&[cause("x", &["y"]), json!({"kind": "cannot-tell", "rule": "y"})])).len(),
            1
        );
        assert_eq!(broken(&report(&[cause("x", &["y"]), cause("y", &[])])), Vec::<String>::new());
    }

    #[test]
    fn times_that_do_not_add_up_are_broken() {
        let wall = |inner: f64| json!({"wall": {"wall_s": 2.0, "parts": [{"time_s": 0.5}, {"time_s": 1.5, "parts": [{"time_s": inner}]}]}});
        assert_eq!(broken(&wall(1.5)), Vec::<String>::new());
        assert_eq!(broken(&wall(1.4)).len(), 1);
        let cause = |lost: f64, share: f64| json!({"findings": [{"kind": "cause", "rule": "x", "lost_s": lost, "lost_range_s": [1.0, 2.0], "share": share}]});
        assert_eq!(broken(&cause(1.5, 0.3)), Vec::<String>::new());
        assert_eq!((broken(&cause(2.5, 0.3)).len(), broken(&cause(1.5, 1.3)).len()), (1, 1));
        let chain = json!({"chains": [{"time_s": 1.0, "worst_s": 2.0, "hops": [{"lost_s": 0.5}]}]});
        assert_eq!(broken(&chain).len(), 2);
        let account = json!({"account": {"cpu_s": 1.0, "off_cpu_s": 1.0, "by_cgroup": [{"cpu_s": 2.0}],
            "by_state": [{"of": "wait", "state": "io-wait", "time_s": 0.5}, {"of": "cpu", "state": "user", "time_s": 9.0}]}});
        assert_eq!(broken(&account).len(), 2);
    }

    #[test]
    fn a_task_of_two_names_is_broken() {
        let findings = |victim: &str, culprit: &str| {
            let task = |name: &str| json!({"kind": "task", "id": "7", "name": name});
            json!({"findings": [{"victim": task(victim)}, {"victim": {"kind": "host", "id": "7"}, "culprit": task(culprit)}]})
        };
        assert_eq!(broken(&findings("sh (60 %) and cat (40 %)", "sh")), Vec::<String>::new());
        assert_eq!(
            broken(&findings("kworker/0:1+events", "kworker/0:1-flush (writeback)")),
            Vec::<String>::new()
        );
        assert_eq!(broken(&findings("w12", "w*")), Vec::<String>::new());
        assert_eq!(broken(&findings("sh", "cat")), ["task 7 is sh and cat"]);
        assert_eq!(broken(&findings("w2", "w3")).len() + broken(&findings("w2", "v*")).len(), 2);
    }

    #[test]
    fn more_than_all_tasks_lived_is_broken() {
        let report = |lost: f64, rows: usize| {
            json!({"window_s": 2.0, "account": {"by_cgroup": vec![json!({"tasks": 3}); rows]},
                "findings": [{"kind": "cause", "title": "x", "lost_s": lost}]})
        };
        assert_eq!(broken(&report(11.9, 2)), Vec::<String>::new());
        assert_eq!(broken(&report(12.1, 2)).len(), 1);
        assert_eq!(broken(&report(99.0, LISTED)), Vec::<String>::new(), "there may be more cgroups");
    }

    #[test]
    fn document_that_is_no_report_is_not_called_broken() {
        for value in [json!(null), json!([]), json!({"wall": 3, "chains": {}, "findings": [7]})] {
            assert_eq!(broken(&value), Vec::<String>::new());
        }
    }
}
