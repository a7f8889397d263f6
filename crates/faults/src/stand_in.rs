//! Stand-ins for whyslow: programs that answer without observing the host. A test that a stand-in passes proves nothing.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::report_checks::{RISKS, RULES, Verb};
use crate::{clock, sys};

/// A stand-in that answers every question the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// It prints only an empty list.
    Bare,
    /// It prints a complete document without any finding.
    Silent,
    /// It prints a complete document that says "cannot tell" everywhere.
    Blind,
    /// It prints a complete document that accuses each task, cgroup and CPU by each rule.
    Accuser,
}

/// A subject of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// "task", "cgroup", "cpu".
    pub kind: &'static str,
    /// Its id in whyslow's documents.
    pub id: String,
    /// Its name for people.
    pub name: String,
}

impl Subject {
    #[must_use]
    pub fn task(pid: u32, name: &str) -> Self {
        Subject { kind: "task", id: pid.to_string(), name: name.to_owned() }
    }

    #[must_use]
    pub fn group(path: &str) -> Self {
        Subject { kind: "cgroup", id: path.to_owned(), name: path.to_owned() }
    }

    /// A CPU.
    #[must_use]
    pub fn cpu(cpu: usize) -> Self {
        Subject { kind: "cpu", id: cpu.to_string(), name: format!("CPU {cpu}") }
    }

    fn json(&self) -> Value {
        json!({"kind": self.kind, "id": self.id, "name": self.name})
    }
}

impl StandIn {
    /// All of them.
    pub const ALL: [StandIn; 4] = [StandIn::Bare, StandIn::Silent, StandIn::Blind, StandIn::Accuser];

    fn asked(self, of: &[Subject]) -> Value {
        let mut pings = pings();
        match self {
            StandIn::Bare | StandIn::Silent => {}
            StandIn::Blind => pings["unwatched"] = json!("nothing was observed"),
            StandIn::Accuser => {
                let row = |who: &Subject| json!({"cpu": 0, "late": 100, "stalls": 1, "culprit": {"pid": 1, "who": who.name}});
                pings["late"] = json!(100);
                pings["explained"] = of.iter().map(row).collect();
            }
        }
        pings
    }

    /// Its document about a host with these subjects, and its exit status. `lost_s`: the loss that it reports for each subject.
    #[must_use]
    pub fn says(self, verb: Verb, of: &[Subject], lost_s: f64) -> (Value, i32) {
        let mut document = whole();
        if verb == Verb::Asked {
            document["pings"] = self.asked(of);
        }
        match self {
            StandIn::Bare => return (json!({"findings": []}), 0),
            StandIn::Silent => {}
            StandIn::Blind => document["findings"] = all_rules().map(blind).collect(),
            StandIn::Accuser => {
                let each = all_rules().flat_map(|rule| of.iter().map(move |who| cause(rule, who, lost_s)));
                document["findings"] = each.collect();
                document["chains"] = of.iter().map(|who| chain(who, lost_s)).collect();
                document["locks"] = json!([lock(of, lost_s)]);
                document["cpus"] = of.iter().filter(|who| who.kind == "cpu").map(cpu).collect();
                document["wall"] = json!({"wall_s": 3.0, "parts": []});
            }
        }
        let accuses = self == StandIn::Accuser && !of.is_empty();
        (document, i32::from(accuses && matches!(verb, Verb::Exam | Verb::Chains | Verb::Cpu)))
    }
}

/// Answers that came in time.
#[must_use]
pub fn pings() -> Value {
    json!({"target": "h", "sent": 4000, "answered": 4000, "lost": 0, "times": {"p50_s": 1e-5}, "late": 0,
        "stalls": [], "explained": [], "unwatched": null})
}

/// All rules that can accuse a subject.
fn all_rules() -> impl Iterator<Item = &'static str> {
    RULES.into_iter().chain(RISKS)
}

/// All fields that a document must have, without any subject.
#[must_use]
pub fn whole() -> Value {
    json!({
        "schema": 0, "whyslow": "0", "host": "h", "boot_id": null, "kernel": "6.0",
        "started_at": "2026-01-01T00:00:00.000Z", "window_s": 3.0,
        "findings": [], "ruled_out": [], "missing": [],
        "account": {"wall_s": 6.0, "cpu_s": 0.1, "off_cpu_s": 0.0, "unexplained_s": 0.0, "notes": [],
            "by_state": [{"of": "cpu", "state": "idle", "time_s": 5.9}],
            "by_cgroup": [{"id": "/", "name": "the root cgroup", "tasks": 9, "cpu_s": 0.1, "runnable_s": 0.0,
                "uninterruptible_s": 0.0}]},
        "own_cost": {"cpu_s": 0.2, "rss_bytes": 40 << 20, "bpf_s": 0.01, "lost_events": 0},
    })
}

/// A cause.
#[must_use]
pub fn cause(rule: &str, victim: &Subject, lost_s: f64) -> Value {
    json!({"kind": "cause", "rule": rule, "title": format!("lost {lost_s:.2} s"), "victim": victim.json(),
        "lost_s": lost_s, "share": 0.5, "culprit": victim.json(), "chain": [], "check": [], "fixes": [],
        "cpu_s": lost_s})
}

fn blind(rule: &str) -> Value {
    json!({"kind": "cannot_tell", "rule": rule, "title": "nothing was observed", "lost_s": null, "share": null,
        "victim": {"kind": "host", "id": "", "name": "the host"}, "culprit": null, "chain": [], "check": [],
        "fixes": []})
}

fn chain(who: &Subject, time_s: f64) -> Value {
    let tid = who.id.parse::<u32>().unwrap_or(0);
    json!({"time_s": time_s, "count": 1, "worst_s": time_s, "tasks": [[[tid, who.name]]], "leaf": who.json(),
        "hops": [{"reason": "futex", "who": who.name, "waits_for": "all", "lost_s": time_s}]})
}

fn lock(of: &[Subject], time_s: f64) -> Value {
    let holders: Vec<Value> = of
        .iter()
        .filter_map(|who| {
            Some(json!({"pid": who.id.parse::<u32>().ok()?, "who": who.name, "caused_s": time_s}))
        })
        .collect();
    let side = json!({"count": 1, "total_s": time_s, "worst_s": time_s});
    json!({"name": "all", "kind": "mutex", "read": side, "write": side, "sites": [], "holders": holders})
}

fn cpu(who: &Subject) -> Value {
    json!({"cpu": who.id.parse::<u32>().unwrap_or(0), "slow": 4.0, "slow_against": "all", "reasons": ["all"]})
}

/// The environment variable that turns a program with [`may_become_victim!`](crate::may_become_victim) into a stand-in.
pub const ENV: &str = "WHYSLOW_STAND_IN";

/// A script in place of whyslow that starts this program as a stand-in.
pub fn script(dir: &Path, which: StandIn) -> io::Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(dir)?;
    let path = dir.join(format!("{which:?}").to_lowercase());
    let me = std::env::current_exe()?;
    fs::write(&path, format!("#!/bin/sh\nexec env {ENV}={which:?} '{}' \"$@\"\n", me.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Be the requested stand-in for the rest of this process's life. Without a request, return.
pub(crate) fn become_if_asked() {
    let Some(which) = std::env::var_os(ENV) else { return };
    let which = StandIn::ALL.into_iter().find(|one| which.to_str() == Some(&*format!("{one:?}")));
    let words = arguments();
    let status = match which.map(|which| which.live(&words)) {
        Some(Ok(status)) => status,
        _ => 2,
    };
    sys::leave(status);
}

/// Before `main`, not every system has the arguments where `std::env::args` reads them.
fn arguments() -> Vec<String> {
    let text = fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = text.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

impl StandIn {
    /// Sleep for the requested window without observing, and print the document. It knows the subjects of the host that /proc lists.
    fn live(self, words: &[String]) -> io::Result<i32> {
        let seconds = words
            .windows(2)
            .find(|two| two[0] == "--for")
            .and_then(|two| two[1].strip_suffix('s')?.parse().ok());
        let seconds: u64 = seconds.unwrap_or(1);
        let began = std::time::SystemTime::now();
        let until = clock::now() + seconds * 1_000_000_000;
        // Observing costs CPU time.
        while clock::now() < until - seconds * 900_000_000 {}
        sys::sleep_until(until);
        let (mut document, status) = self.says(Verb::of(words), &of_this_host(), seconds as f64);
        if self != StandIn::Bare {
            let wall = began.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            document["started_at"] = json!(rfc3339(wall.as_millis() as u64));
            document["window_s"] = json!(seconds as f64);
            document["own_cost"]["cpu_s"] = json!(sys::cpu_ns_of_process(std::process::id()) as f64 * 1e-9);
        }
        writeln!(io::stdout(), "{document}")?;
        io::stdout().flush()?;
        Ok(status)
    }
}

/// All tasks, cgroups and CPUs.
fn of_this_host() -> Vec<Subject> {
    let mut all: Vec<Subject> = crate::host::cpus().into_iter().map(Subject::cpu).collect();
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        for task in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
            let tid = task.file_name().to_string_lossy().parse().unwrap_or(pid);
            all.push(Subject::task(tid, text(&task.path().join("comm")).trim()));
        }
        let groups = text(&entry.path().join("cgroup"));
        all.extend(groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(Subject::group));
    }
    all.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
    all.dedup();
    all
}

/// UTC to the millisecond. Years are counted from March, so that a leap day comes last.
fn rfc3339(ms: u64) -> String {
    let (days, in_day) = (ms / 86_400_000, ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, more) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, ms) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", era * 400 + year + more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_checks;

    #[test]
    fn a_stand_in_keeps_to_the_contract_but_for_the_bare_one() {
        let of = [Subject::task(7, "a"), Subject::group("/b"), Subject::cpu(0)];
        for verb in [Verb::Exam, Verb::Chains, Verb::Cpu, Verb::Looked, Verb::Asked, Verb::Run] {
            for which in StandIn::ALL {
                let (document, status) = which.says(verb, &of, 1.0);
                let is_whole = report_checks::is_whole(&document, verb, Some(status));
                assert_eq!(is_whole.is_ok(), which != StandIn::Bare, "{which:?}: {is_whole:?}");
            }
        }
    }

    #[test]
    fn a_moment_is_written_as_people_write_it() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_709_200_800_250), "2024-02-29T10:00:00.250Z");
    }
}
