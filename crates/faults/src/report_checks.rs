//! What must hold of a document before a test concludes anything from it, above all from its silence: it is complete, and whyslow was able
//! to see. No I/O: takes a document and returns what is wrong with it. docs/json.md is the contract.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wrong::Wrong;

/// Rules whose findings the harness requires or forbids.
pub const RULES: [&str; 23] = [
    "blkio-throttle",
    "cache-taken",
    "cpu-pinned",
    "cpu-quota",
    "disk-latency",
    "disk-queue",
    "full-cpus",
    "full-thread",
    "held-up",
    "irqs-off",
    "wakeup-latency",
    "listen-overflow",
    "load-average",
    "lock-wait",
    "memory-limit",
    KILLS,
    "packet-stalls",
    "request-queue",
    "slow-cpu",
    "slow-receiver",
    "spin",
    "swap-in",
    "traced",
];

/// Rules that report only risks, and that a live test requires.
pub const RISKS: [&str; 5] =
    ["idle-policy", "leftover-debugging", "monitoring-agent", "pid-limit", "retransmits"];

/// A rule whose causes report no lost time: processes were killed.
pub const KILLS: &str = "oom-kill";

/// Whether a cause reports no lost time: processes were killed, or calls failed.
pub fn has_no_time(cause: &Value) -> bool {
    let failed = cause["failed_calls"].as_u64().is_some_and(|calls| calls > 0);
    cause["lost_s"].is_null() && (cause["rule"] == KILLS || failed)
}

/// The verb, as far as the exit status depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// 1 if a cause was found, otherwise 0; 2 if no task was seen, as for `Chains` and `Looked`.
    Exam,
    /// 1 if a chain was found, else 0.
    Chains,
    /// 1 if a slow CPU was found that cost a task time, otherwise 0.
    Cpu,
    /// 0 if it observed the host: `attach`, `locks`.
    Looked,
    /// 0 if the host that it asked (`net TARGET`) answered, otherwise 2.
    Asked,
    /// `run`: the exit status of the command, which is 0 in the tests.
    Run,
}

impl Verb {
    /// From the first argument.
    #[must_use]
    pub fn of(args: &[impl AsRef<str>]) -> Self {
        match args.first().map(AsRef::as_ref) {
            Some("chains") => Verb::Chains,
            Some("cpu") => Verb::Cpu,
            Some("attach" | "locks") => Verb::Looked,
            Some("net") if args.get(1).is_some_and(|arg| !arg.as_ref().starts_with('-')) => Verb::Asked,
            Some("run") => Verb::Run,
            _ => Verb::Exam,
        }
    }

    /// The exit status that belongs to this document.
    pub(crate) fn status(self, document: &Value) -> i32 {
        let found = match self {
            Verb::Exam => of_kind(document, "cause").next().is_some(),
            Verb::Cpu => of_kind(document, "cause").any(|cause| cause["rule"] == "slow-cpu"),
            Verb::Chains => document["chains"].as_array().is_some_and(|chains| !chains.is_empty()),
            Verb::Looked | Verb::Asked | Verb::Run => false,
        };
        let unseen = match self {
            Verb::Exam => document["account"]["cpu_s"].is_null(),
            Verb::Chains | Verb::Looked => document["account"]["off_cpu_s"].is_null(),
            Verb::Asked => document["pings"]["times"].is_null(),
            Verb::Cpu | Verb::Run => false,
        };
        if unseen && !found { 2 } else { i32::from(found) }
    }
}

/// Kinds of findings, in their order in the document.
const KINDS: [&str; 4] = ["cause", "risk", "busy", "cannot_tell"];
/// Reasons why something is missing.
const WHYS: [&str; 5] = ["not_recorded", "not_in_kernel", "not_allowed", "broken", "skipped"];
/// The reasons that mean a probe did not run although it should. The others: a kernel may lack something, and a part may be left out
/// because of its cost.
const BLIND: [&str; 3] = ["not_recorded", "not_allowed", "broken"];
/// Paths of files: everything else that is missing is a probe.
const FOLDERS: [&str; 4] = ["proc/", "sys/", "dev/", "{"];
/// This entry is about the cost of whyslow, not about the host; on a host so slow that its part of the window passed between two polls of its loop,
/// there are no figures.
const OF_COST: &str = "BPF programs";
/// The text of a probe whose tracepoint the kernel does not have.
const NOT_THERE: &str = "this kernel has no";
/// Every program that loads probes uses more memory than this.
const LEAST_RSS: u64 = 1 << 20;

/// Findings of one kind.
fn of_kind<'d>(document: &'d Value, kind: &'d str) -> impl Iterator<Item = &'d Value> {
    let all = document["findings"].as_array();
    all.into_iter().flatten().filter(move |finding| finding["kind"] == kind)
}

/// A list that must be present, even if it is empty.
pub fn list<'d>(value: &'d Value, name: &str) -> Result<&'d [Value], String> {
    let at = name.split('.').fold(value, |value, part| &value[part]);
    at.as_array().map(Vec::as_slice).ok_or_else(|| format!("the document has no list {name}: {at}"))
}

fn text<'d>(value: &'d Value, name: &str) -> Result<&'d str, String> {
    let text = value[name].as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("no text in {name}: {}", value[name]))
}

fn number(value: &Value, name: &str) -> Result<f64, String> {
    let at = name.split('.').fold(value, |value, part| &value[part]);
    at.as_f64().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(|| format!("no number in {name}: {at}"))
}

/// Check that this is the document of the contract, and that it shows tasks of the host.
pub fn is_whole(document: &Value, verb: Verb, status: Option<i32>) -> Result<(), String> {
    is_of_the_contract(document, verb, status)?;
    for name in ["account.by_state", "account.by_cgroup"] {
        if list(document, name)?.is_empty() {
            return Err(format!("{name} is empty: no task was seen"));
        }
    }
    Ok(())
}

/// Check that all lists are present with valid words and in order, that the cost is present, and that the exit status agrees.
pub fn is_of_the_contract(document: &Value, verb: Verb, status: Option<i32>) -> Result<(), String> {
    if document["schema"] != 0 {
        return Err(format!("it is no document of schema 0: {}", document["schema"]));
    }
    for name in ["whyslow", "host", "kernel", "started_at"] {
        text(document, name)?;
    }
    if number(document, "window_s")? <= 0.0 || number(document, "account.wall_s")? <= 0.0 {
        return Err("the window has no length".to_owned());
    }
    list(document, "findings")?.iter().try_for_each(is_finding)?;
    is_ranked(document)?;
    for row in list(document, "ruled_out")? {
        text(row, "what").and_then(|_| text(row, "evidence"))?;
    }
    list(document, "missing")?.iter().try_for_each(is_missing)?;
    list(document, "account.notes")?;
    has_its_cost(document)?;
    let right = verb.status(document);
    if status != Some(right) {
        return Err(format!("exit status {status:?}, not {right}, of {verb:?}"));
    }
    Ok(())
}

fn is_finding(finding: &Value) -> Result<(), String> {
    let kind = text(finding, "kind")?;
    if !KINDS.contains(&kind) {
        return Err(format!("a finding of no known kind: {kind}"));
    }
    text(finding, "rule").and_then(|_| text(finding, "title"))?;
    for name in ["kind", "id", "name"] {
        // The host as a whole has no id.
        finding["victim"][name].as_str().ok_or_else(|| format!("a victim without {name}: {finding}"))?;
    }
    for name in ["chain", "check", "fixes"] {
        list(finding, name)?;
    }
    if kind == "cause" && !has_no_time(finding) { number(finding, "lost_s").map(drop) } else { Ok(()) }
}

/// Causes by time lost, kills before them, then risks, then "cannot tell".
fn is_ranked(document: &Value) -> Result<(), String> {
    let place = |finding: &Value| KINDS.iter().position(|kind| finding["kind"] == *kind).unwrap_or(0);
    let lost = |finding: &Value| finding["lost_s"].as_f64().unwrap_or(f64::INFINITY);
    let wrong = |two: &&[Value]| {
        place(&two[0]) > place(&two[1])
            || (two[1]["kind"] == "cause" && two[0]["kind"] == "cause" && lost(&two[0]) < lost(&two[1]))
    };
    match list(document, "findings")?.windows(2).find(wrong) {
        None => Ok(()),
        Some(two) => Err(format!("ranked wrongly: {} above {}", two[0]["title"], two[1]["title"])),
    }
}

fn is_missing(note: &Value) -> Result<(), String> {
    text(note, "text").and_then(|_| text(note, "what"))?;
    let why = text(note, "why")?;
    let more = match why {
        "not_in_kernel" => text(note, "needs"),
        "not_allowed" => text(note, "way_out"),
        "broken" | "skipped" => text(note, "reason"),
        _ => Ok(""),
    };
    if WHYS.contains(&why) { more.map(drop) } else { Err(format!("missing for no known reason: {why}")) }
}

fn has_its_cost(document: &Value) -> Result<(), String> {
    let cost = &document["own_cost"];
    if number(cost, "cpu_s")? <= 0.0 || cost["rss_bytes"].as_u64().is_none_or(|bytes| bytes < LEAST_RSS) {
        return Err(format!("the cost of whyslow is missing: {cost}"));
    }
    number(cost, "lost_events")?;
    if cost["bpf_s"].is_null() { Ok(()) } else { number(cost, "bpf_s").map(drop) }
}

/// Check that every probe that this kernel supports was attached.
pub fn has_its_probes(document: &Value) -> Result<(), Wrong> {
    let is_probe = |note: &&Value| {
        let what = note["what"].as_str().unwrap_or("");
        let is_of_kernel = note["text"].as_str().is_some_and(|text| text.contains(NOT_THERE));
        what != OF_COST && !is_of_kernel && !FOLDERS.iter().any(|folder| what.starts_with(folder))
    };
    let is_blind = |note: &&Value| BLIND.iter().any(|why| note["why"] == *why);
    match list(document, "missing")?.iter().filter(is_blind).find(is_probe) {
        None => Ok(()),
        Some(note) => Err(Wrong::blind(format!("it could not look: {}", note["text"]))),
    }
}

/// Check that the table of resources names the resource of each cause, with its victim.
pub fn has_its_resources(document: &Value) -> Result<(), Wrong> {
    let rows = document["resources"].as_array().map_or(&[][..], Vec::as_slice);
    let is_paid = |name: &Value| rows.iter().any(|row| row["name"] == *name && row["paid_by"].is_string());
    let about = of_kind(document, "cause").map(|cause| &cause["resource"]);
    match about.into_iter().find(|name| name.is_string() && !is_paid(name)) {
        None => Ok(()),
        Some(name) => {
            Err(Wrong::inexact(format!("the row of {name} in the table of resources names no victim")))
        }
    }
}

/// Check that none of these rules says "cannot tell".
pub fn could_tell(document: &Value, rules: &[impl AsRef<str>]) -> Result<(), Wrong> {
    list(document, "findings")?;
    let of_them = |finding: &&Value| rules.iter().any(|rule| finding["rule"] == rule.as_ref());
    match of_kind(document, "cannot_tell").find(of_them) {
        None => Ok(()),
        Some(finding) => {
            Err(Wrong::blind(format!("{} could not look: {}", finding["rule"], finding["title"])))
        }
    }
}

/// Matters that a rule rules out with evidence when it found nothing. Each of these rules always does so, unless the report shows the
/// matter elsewhere; no report shows all of them.
const RULED_OUT: [&str; 3] = ["a CPU quota", "an affinity mask", "the hypervisor"];

/// Check that the report rules out at least one of these matters.
pub fn rules_out(document: &Value) -> Result<(), String> {
    let not = list(document, "ruled_out")?;
    if RULED_OUT.iter().any(|what| not.iter().any(|row| row["what"] == *what)) {
        return Ok(());
    }
    Err(format!("nothing is ruled out, not one of {RULED_OUT:?}"))
}

/// Whether the commands of a finding lift the limits of exactly these cgroups.
#[must_use]
pub fn lifts(finding: &Value, groups: &[String]) -> bool {
    /// Prefixes of the files with limits.
    const FILES: [&str; 4] = ["cpu.", "memory.", "blkio.", "io."];
    let fixes = finding["fixes"].as_array();
    let commands: Vec<&str> = fixes.into_iter().flatten().filter_map(|fix| fix["command"].as_str()).collect();
    let lifts =
        |command: &str, group: &String| FILES.iter().any(|file| command.contains(&format!("{group}/{file}")));
    commands.len() == groups.len()
        && groups.iter().all(|group| commands.iter().any(|command| lifts(command, group)))
}

/// Check that each reported CPU was measured, and that there is at least one.
pub fn has_measured(document: &Value) -> Result<(), String> {
    let cpus = list(document, "cpus")?;
    match cpus.iter().all(|cpu| cpu["million_s"].as_f64().is_some_and(|took| took > 0.0)) && !cpus.is_empty()
    {
        true => Ok(()),
        false => Err(format!("not every CPU was measured: {cpus:?}")),
    }
}

/// Reported CPU time of a group, as a share of its counter, at least and at most: a group does not use the same CPU time in each second,
/// and the counter is read before and after the run, not at the window's edges.
const SEEN: [f64; 2] = [0.4, 2.5];
/// Tolerance for the edges of a window.
const EDGE: Duration = Duration::from_millis(100);

/// A cgroup, and the CPU time of its tasks in the window by its own counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Its path.
    pub group: String,
    /// CPU time.
    pub used: Duration,
}

impl Sight {
    /// Check that its row of the account reports the CPU time of its tasks.
    pub fn is_in(&self, document: &Value) -> Result<(), String> {
        let rows = list(document, "account.by_cgroup")?;
        let (used, edge) = (self.used.as_secs_f64(), EDGE.as_secs_f64());
        let all = |row: &Value| {
            ["cpu_s", "runnable_s", "uninterruptible_s"].iter().filter_map(|name| row[*name].as_f64()).sum()
        };
        let Some(row) = rows.iter().find(|row| row["id"] == *self.group) else {
            // The document reports only the largest groups: a group that used less than each of a long list is not in it.
            let least = rows.iter().map(all).fold(f64::INFINITY, f64::min);
            let is_small = used <= edge || (rows.len() >= LONG && used <= least);
            return if is_small {
                Ok(())
            } else {
                Err(format!("{} used {used:.3} s and was not seen", self.group))
            };
        };
        if row["tasks"].as_u64().is_none_or(|tasks| tasks == 0) {
            return Err(format!("no task of {} was seen: {row}", self.group));
        }
        let reported = number(row, "cpu_s")?;
        if reported + edge < used * SEEN[0] || reported - edge > used * SEEN[1] {
            return Err(format!(
                "{} used {used:.3} s by its own counter, {reported:.3} s is reported",
                self.group
            ));
        }
        Ok(())
    }
}

/// A list of cgroups with so many rows may have been cut.
const LONG: usize = 8;

#[cfg(test)]
#[path = "report_checks_tests.rs"]
mod tests;
