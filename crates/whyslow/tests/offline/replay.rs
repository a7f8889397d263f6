//! Recordings of real faults, of their healthy twins and of honest loads (`tests/replay`), judged like the runs that they record: by the
//! clocks of the victims. `make capture` makes them.

mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};
use whyslow::store;
use whyslow_analyze::examine;
use whyslow_faults::expected::{Answer, Section};
use whyslow_faults::report_checks::Verb;
use whyslow_faults::stand_in::{StandIn, Subject};
use whyslow_faults::wrong::Wrong;
use whyslow_model::Recording;
use whyslow_report::json as report;

use recorded::{Recorded, Unpacked, all, folder};

/// Least number of recordings for each kernel, and of twins beside their faults.
const OF_KERNEL: [(&str, usize); 3] = [("6.1", 34), ("6.12", 41), ("host", 16)];
const TWINS: usize = 24;
/// Lists that may contain an accusation.
const LISTS: [&str; 5] = ["findings", "chains", "locks", "cpus", "wall"];
/// Least number of recordings, and largest size of all together in bytes.
const MANY: usize = 90;
const MOST_BYTES: u64 = 13 << 20;
/// The verb of `report`: whatever verb recorded, it exits as `exam` does.
const VERB: Verb = Verb::Exam;

fn judge(recorded: &Recorded, document: &Value, status: i32) -> Result<(), Wrong> {
    recorded.truth.expected.judge(document, VERB, Some(status))
}

fn causes(document: &Value) -> impl Iterator<Item = &Value> {
    document["findings"].as_array().into_iter().flatten().filter(|finding| finding["kind"] == "cause")
}

fn status(document: &Value) -> i32 {
    i32::from(causes(document).next().is_some())
}

#[test]
fn each_recording_tells_what_its_victims_clocks_told() {
    let wrong: Vec<String> = all()
        .iter()
        .filter_map(|one| Some(format!("{}: {:?}", one.name, judge(one, &one.document, one.status).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all().len(), wrong.join("\n"));
}

/// All subjects that a report could accuse: those of the truth, and those of the account.
fn subjects(one: &Recorded) -> Vec<Subject> {
    let expected = &one.truth.expected;
    let names = expected.faults.iter().chain(&expected.loads).flat_map(|facts| facts.names.values());
    let mut subjects: Vec<Subject> =
        names.flat_map(|name| [Subject::task(1, name), Subject::group(name)]).collect();
    let groups = one.document["account"]["by_cgroup"].as_array().into_iter().flatten();
    subjects.extend(groups.filter_map(|row| row["id"].as_str()).map(Subject::group));
    subjects.extend([Subject::cpu(0), Subject::cpu(1), Subject::task(99, "init")]);
    subjects
}

#[test]
fn no_stand_in_passes_any_recording() {
    for one in all() {
        let of = subjects(one);
        for which in StandIn::ALL {
            let (said, status) = which.says(VERB, &of, 3.0);
            assert!(judge(one, &said, status).is_err(), "{which:?} passes {}", one.name);
        }
        // These stand-ins saw the same subjects as whyslow.
        for which in [StandIn::Blind, StandIn::Accuser] {
            let mut document = one.document.clone();
            let (said, _) = which.says(VERB, &of, 3.0);
            LISTS.iter().for_each(|list| document[*list] = said[*list].clone());
            document["calls"] = json!([]);
            let verdict = judge(one, &document, status(&document));
            assert!(verdict.is_err(), "{which:?}, who saw all, passes {}", one.name);
        }
        // On a healthy host, silence is the right answer.
        let mut mute = one.document.clone();
        LISTS.iter().chain(&["calls", "missing"]).for_each(|list| mute[*list] = json!([]));
        let is_asked = !one.truth.expected.answer.is_empty();
        assert_eq!(judge(one, &mute, 0).is_err(), is_asked, "a document that says nothing of {}", one.name);
    }
}

/// For a fault the document of any other recording must fail, for a twin that of its fault: pids, names and times were drawn.
#[test]
fn document_of_another_recording_does_not_pass() {
    let mut twins = 0;
    let mut wrong = Vec::new();
    for one in all() {
        let is_its_fault = |other: &Recorded| one.truth.scenario == format!("{}-twin", other.truth.scenario);
        for other in all().iter().filter(|other| other.name != one.name) {
            let is_fault = !one.truth.expected.answer.is_empty();
            if is_fault || is_its_fault(other) {
                twins += usize::from(!is_fault);
                if judge(one, &other.document, other.status).is_ok() {
                    wrong.push(format!("{} passes with what is said of {}", one.name, other.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(twins >= TWINS, "{twins} twins beside their faults");
}

/// Without its table, a rule says "cannot tell": it neither says that all is well, nor accuses.
#[test]
fn without_the_table_that_a_rule_needs_it_cannot_tell() {
    let mut asked = BTreeSet::new();
    for one in all() {
        let Some(without) = &one.truth.without else { continue };
        let unpacked = Unpacked::of(one);
        assert!(unpacked.tables().contains(&without.table), "{}: there is no {}", one.name, without.table);
        let kinds = kinds_of(&unpacked.report_without(&without.table), &without.rule);
        assert_eq!(kinds, ["cannot_tell"], "{} without {}: {}", one.name, without.table, without.rule);
        asked.insert(without.rule.clone());
    }
    let answers = all().iter().flat_map(|one| &one.truth.expected.answer);
    let rules: BTreeSet<String> = answers.flat_map(|answer| answer.rules.iter().cloned()).collect();
    let not_asked: Vec<&String> = rules.difference(&asked).collect();
    assert!(not_asked.is_empty(), "no recording is tested without the tables of these: {not_asked:?}");
}

/// Without one table, no culprit is accused that was not accused with it, and the rule of each fault still speaks: it names the culprit,
/// does not know the cost, or says "cannot tell".
#[test]
fn no_table_is_lost_in_silence() {
    let mut wrong = Vec::new();
    for one in all() {
        let unpacked = Unpacked::of(one);
        for table in unpacked.tables() {
            let document = unpacked.report_without(&table);
            let answers = one.truth.expected.answer.iter();
            let mut asked = answers.filter(|answer| answer.section == Section::Causes);
            let says_nothing =
                |answer: &Answer| answer.rules.iter().all(|rule| kinds_of(&document, rule).is_empty());
            if let Some(answer) = asked.find(|answer| says_nothing(answer)) {
                wrong.push(format!("{} without {table}: {:?} is silent", one.name, answer.rules));
            }
            if let Some(cause) = causes(&document).find(|cause| accuses(one, cause)) {
                wrong.push(format!("{} without {table}: {}", one.name, cause["title"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a cause names a culprit that no cause of the whole recording names.
fn accuses(one: &Recorded, cause: &Value) -> bool {
    let is_same =
        |other: &Value| ["kind", "id"].iter().all(|key| other["culprit"][key] == cause["culprit"][key]);
    !cause["culprit"].is_null() && !causes(&one.document).any(is_same)
}

/// The kinds of a rule's findings.
fn kinds_of(document: &Value, rule: &str) -> Vec<String> {
    let all = document["findings"].as_array().into_iter().flatten();
    let of_rule = all.filter(|finding| finding["rule"] == *rule);
    of_rule.map(|finding| finding["kind"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The recordings of the founding case and of its twin, each with the version of the other's kernel.
#[test]
fn verdict_on_ipc_namespaces_does_not_rest_on_the_kernels_version() {
    let [bad, good] = ["case-churn-6.1", "case-churn-twin-6.12"].map(|name| {
        let one = all().iter().find(|one| one.name == name);
        store::open(&one.unwrap_or_else(|| panic!("no recording {name}")).path).unwrap()
    });
    let told = |recording: &Recording| {
        let document: Value = serde_json::from_str(&report(&examine(recording))).unwrap();
        document["findings"].clone()
    };
    let is_told =
        |findings: &Value| findings.to_string().contains("the kernel frees IPC namespaces one at a time");
    for (recording, other, fires) in [(&bad, &good, true), (&good, &bad, false)] {
        let swapped = with_version_of(recording, other);
        assert_ne!(
            (&swapped.meta.kernel, &swapped.snapshots),
            (&recording.meta.kernel, &recording.snapshots)
        );
        let (before, after) = (told(recording), told(&swapped));
        assert_eq!((is_told(&before), &before), (fires, &after));
    }
}

fn with_version_of(recording: &Recording, other: &Recording) -> Recording {
    let mut swapped = recording.clone();
    swapped.meta.kernel.clone_from(&other.meta.kernel);
    for file in &mut swapped.snapshots {
        let is_version = ["proc/version", "proc/sys/kernel/osrelease"].contains(&&*file.name);
        if let Some(theirs) = other.snapshots.iter().find(|their| is_version && their.name == file.name) {
            file.bytes.clone_from(&theirs.bytes);
        }
    }
    swapped
}

#[test]
fn recordings_are_many_small_and_of_no_host_that_can_be_named() {
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut bytes = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        bytes += path.metadata().unwrap().len();
        let end = path.extension().unwrap().to_string_lossy().into_owned();
        parts.entry(path.file_stem().unwrap().to_string_lossy().into_owned()).or_default().push(end);
    }
    parts.values_mut().for_each(|ends| ends.sort());
    assert!(parts.values().all(|ends| *ends == ["json", "why"]), "{parts:?}");
    assert!(bytes <= MOST_BYTES && parts.len() >= MANY, "{} recordings, {bytes} bytes", parts.len());
    for (kernel, least) in OF_KERNEL {
        let found = all().iter().filter(|one| one.truth.kernel == kernel).count();
        assert!(found >= least, "{found} recordings of {kernel}");
    }
    for one in all() {
        let expected = &one.truth.expected;
        assert!(expected.faults.iter().chain(&expected.loads).all(|facts| facts.proof.holds), "{}", one.name);
        assert_eq!(one.name, format!("{}-{}", one.truth.scenario, one.truth.kernel));
        let recording = store::open(&one.path).unwrap();
        let texts =
            recording.snapshots.iter().map(|file| (&*file.name, String::from_utf8_lossy(&file.bytes)));
        for (file, text) in texts {
            let tells = match file {
                "proc/version" => text.contains("gcc"),
                "proc/cmdline" => one.truth.kernel == "host" && text != "quiet\n",
                "proc/sys/kernel/osrelease" => !is_version(text.trim()),
                "proc/sys/kernel/random/boot_id" => !text.is_empty(),
                _ => false,
            };
            assert!(!tells, "{}: {file}: {text}", one.name);
        }
        let meta = recording.meta;
        assert!(meta.host.contains("redacted") && meta.boot_id.is_none(), "{}: {}", one.name, meta.host);
        assert!(is_version(&meta.kernel), "{}: {}", one.name, meta.kernel);
    }
}

/// A version without the suffix of the kernel's builder.
fn is_version(release: &str) -> bool {
    release.chars().all(|c| c == '.' || c.is_ascii_digit())
}
