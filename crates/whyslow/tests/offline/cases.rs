//! Every folder in `tests/cases` is a recorded host (`host`, or `host.why` where its rows are many megabytes) and the expected report
//! (`expect.json`), written by hand before the answer was seen. Files that many hosts share are in `tests/bases`; a case names its base in
//! its file `base`. To add a case, add a folder. No test here accepts output.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use whyslow::store;
use whyslow_analyze::{examine, rules};
use whyslow_faults::{report_checks, story};
use whyslow_model::{Document, Finding, Kind};

use crate::overlay::host;

#[path = "story/drawn.rs"]
mod drawn;
#[path = "story/drawn_short.rs"]
mod drawn_short;
#[path = "../hosts/scheduler.rs"]
mod scheduler;
#[path = "../hosts/shapes.rs"]
mod shapes;
#[path = "../hosts/write.rs"]
mod write;

/// What must be reported for a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// What happens on that host.
    story: String,
    /// All causes, in order.
    causes: Vec<Cause>,
    /// The rules of all risks, sorted, each once.
    risks: Vec<String>,
    /// Rules that say "cannot tell", possibly among others; or "all".
    #[serde(default)]
    cannot_tell: Option<Rules>,
    /// Rules that were able to look, possibly among others: where no cause is expected, this gives the silence its worth.
    #[serde(default)]
    could_tell: Vec<String>,
    /// Words that must occur in findings, or in the list of what is missing.
    #[serde(default)]
    says: Vec<String>,
    /// Words that must not occur in causes and risks.
    #[serde(default)]
    never_says: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cause {
    rule: String,
    /// The victim's id.
    victim: String,
    #[serde(default)]
    victim_name: Option<String>,
    /// A part of the culprit's id.
    culprit: String,
    /// Bounds of the time lost; kills have no lost time.
    lost_s: Option<(f64, f64)>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Rules {
    All(String),
    These(Vec<String>),
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn expect(case: &Path) -> Expect {
    let path = case.join("expect.json");
    let text = fs::read_to_string(&path).unwrap();
    let expect: Expect =
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let named = expect.causes.iter().map(|cause| &cause.rule).chain(&expect.risks).chain(&expect.could_tell);
    for rule in named {
        assert!(rules::ALL.iter().any(|r| r.id == rule), "{}: there is no rule {rule}", path.display());
    }
    let is_blind = matches!(expect.cannot_tell, Some(Rules::All(_)));
    let says = !expect.causes.is_empty() || !expect.could_tell.is_empty() || is_blind;
    assert!(says, "{}: which rules could look?", path.display());
    expect
}

/// A title follows the name of the victim, and need not repeat it.
fn said_twice(finding: &Finding) -> Option<String> {
    let name = finding.victim.name.as_str();
    let names_it = finding.kind != Kind::CannotTell && !name.is_empty() && finding.title.starts_with(name);
    names_it.then(|| format!("{name}: {}", finding.title))
}

/// All words of findings and of the list of what is missing, as a reader may see them.
fn words(document: &Document) -> String {
    serde_json::to_string(&(&document.findings, &document.missing)).unwrap()
}

/// The words of those findings that accuse.
fn accusations(document: &Document) -> String {
    let accuse = document.findings.iter().filter(|f| f.kind != Kind::CannotTell);
    serde_json::to_string(&accuse.collect::<Vec<_>>()).unwrap()
}

fn rules_of(document: &Document, kind: Kind) -> Vec<&str> {
    let mut rules: Vec<&str> =
        document.findings.iter().filter(|f| f.kind == kind).map(|f| f.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Differences from the expected report.
fn differences(expect: &Expect, document: &Document) -> Vec<String> {
    let mut wrong = Vec::new();
    let causes: Vec<&Finding> = document.findings.iter().filter(|f| f.kind == Kind::Cause).collect();
    if causes.len() != expect.causes.len() {
        let reported: Vec<_> = causes.iter().map(|f| format!("{}: {}", f.rule, f.title)).collect();
        wrong.push(format!("expected {} causes, told {reported:?}", expect.causes.len()));
    }
    for (want, reported) in expect.causes.iter().zip(&causes) {
        wrong.extend(cause_differences(want, reported));
    }
    let risks = rules_of(document, Kind::Risk);
    if risks != expect.risks {
        wrong.push(format!("expected risks {:?}, told {risks:?}", expect.risks));
    }
    let unknown = rules_of(document, Kind::CannotTell);
    let must: Vec<&str> = match &expect.cannot_tell {
        Some(Rules::All(all)) if all == "all" => rules::ALL.iter().map(|rule| rule.id).collect(),
        Some(Rules::All(other)) => vec![other],
        Some(Rules::These(these)) => these.iter().map(String::as_str).collect(),
        None => Vec::new(),
    };
    wrong.extend(must.iter().filter(|rule| !unknown.contains(rule)).map(|rule| format!("{rule} could tell")));
    wrong.extend(document.findings.iter().filter_map(said_twice));
    let value = serde_json::to_value(document).unwrap();
    wrong.extend(report_checks::could_tell(&value, &expect.could_tell).err().map(|blind| blind.what));
    // A rule that finds nothing says what it rules out.
    if expect.could_tell.iter().any(|rule| rule == "steal") {
        wrong.extend(report_checks::rules_out(&value).err());
    }
    wrong.extend(story::broken(&value));
    let (words, accusations) = (words(document), accusations(document));
    wrong.extend(expect.says.iter().filter(|w| !words.contains(*w)).map(|w| format!("does not say {w:?}")));
    wrong
        .extend(expect.never_says.iter().filter(|w| accusations.contains(*w)).map(|w| format!("says {w:?}")));
    wrong
}

fn cause_differences(want: &Cause, reported: &Finding) -> Vec<String> {
    let lost = reported.lost.map(|lost| lost.as_secs_f64());
    let is_within = |(low, high): (f64, f64)| lost.is_some_and(|lost| (low..=high).contains(&lost));
    let culprit = reported.culprit.as_ref().map_or("", |culprit| culprit.id.as_str());
    let checks = [
        (reported.rule == want.rule, format!("expected {}, told {}", want.rule, reported.rule)),
        (reported.victim.id == want.victim, format!("victim {:?}", reported.victim.id)),
        (
            want.victim_name.as_ref().is_none_or(|name| *name == reported.victim.name),
            format!("name {:?}", reported.victim.name),
        ),
        (culprit.contains(&want.culprit), format!("culprit {culprit:?}")),
        (want.lost_s.map_or(lost.is_none(), is_within), format!("lost {lost:?} s, not {:?}", want.lost_s)),
        (
            !reported.check.is_empty() && !reported.fixes.is_empty(),
            "no way to check it, or no fix".to_owned(),
        ),
    ];
    checks
        .into_iter()
        .filter(|(is_right, _)| !is_right)
        .map(|(_, wrong)| format!("{}: {wrong}", reported.rule))
        .collect()
}

#[test]
fn every_case_is_reported_as_its_author_expected() {
    let mut wrong = String::new();
    for case in cases() {
        let expect = expect(&case);
        assert!(expect.story.len() > 40, "{}: what happens there?", case.display());
        let recording = store::open(&host(&case)).unwrap();
        let differences = differences(&expect, &examine(&recording));
        if !differences.is_empty() {
            wrong +=
                &format!("\n{}:\n    {}", case.file_name().unwrap().display(), differences.join("\n    "));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A report of a look without findings and a report of no look have the same causes, and differ in the rest.
#[test]
fn a_report_that_says_nothing_passes_no_case() {
    for case in cases() {
        let (expect, mut document) = (expect(&case), examine(&store::open(&host(&case)).unwrap()));
        (document.findings, document.ruled_out) = (vec![], vec![]);
        assert!(!differences(&expect, &document).is_empty(), "{}", case.display());
    }
}

#[test]
fn every_rule_has_a_case_in_which_it_speaks() {
    let spoken: Vec<String> = cases()
        .iter()
        .map(|case| expect(case))
        .flat_map(|e| e.causes.into_iter().map(|c| c.rule).chain(e.risks))
        .collect();
    let silent: Vec<&str> =
        rules::ALL.iter().map(|rule| rule.id).filter(|id| !spoken.iter().any(|rule| rule == id)).collect();
    assert!(silent.is_empty(), "no case for {silent:?}");
}

#[test]
fn there_are_more_than_ten_cases_and_a_host_with_nothing_readable() {
    assert!(cases().len() > 10);
    assert!(cases().iter().any(|case| matches!(expect(case).cannot_tell, Some(Rules::All(_)))));
}

/// A case copies no file of its base, and each base is used.
#[test]
fn a_case_holds_no_file_that_its_base_has() {
    let mut used = std::collections::BTreeSet::new();
    for case in cases() {
        let Some(base) = crate::overlay::base(&case) else { continue };
        for file in files_below(&base) {
            let same = fs::read(base.join(&file)).ok() == fs::read(case.join("host").join(&file)).ok();
            assert!(!same, "{}: its base has {}", case.display(), file.display());
        }
        used.insert(base);
    }
    let bases = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bases")).unwrap();
    let there: std::collections::BTreeSet<PathBuf> =
        bases.map(|entry| entry.unwrap().path().join("host")).collect();
    assert_eq!(used, there);
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut todo, mut all) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = todo.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => todo.push(path),
                false => all.push(path.strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    all
}

#[test]
fn the_answer_to_a_recording_is_always_the_same() {
    for case in cases() {
        let recording = store::open(&host(&case)).unwrap();
        assert_eq!(examine(&recording), examine(&recording), "{}", case.display());
    }
}

fn unpack(file: &Path, folder: &Path) {
    let unzstd = zstd::Decoder::new(fs::File::open(file).unwrap()).unwrap();
    tar::Archive::new(unzstd).unpack(folder).unwrap();
}

/// Copies a host, every file changed by `change`.
fn copied(from: &Path, to: &Path, change: &dyn Fn(&Path, &str) -> String) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copied(&path, &target, change);
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            fs::write(target, change(&path, &text)).unwrap();
        }
    }
}

/// Every number becomes the largest; of tables, times and counts (pids and the like have fewer bits).
fn as_large_as_possible(path: &Path, text: &str) -> String {
    const MAX: &str = "18446744073709551615";
    const COUNTS: [&str; 12] = [
        "_ns",
        "folded",
        "held",
        "count",
        "pages_refaulted",
        "pages_added",
        "swapped_in",
        "requests",
        "runs",
        "overflows",
        "oom_kills",
        "retried",
    ];
    let is_table = path.extension().is_some_and(|end| end == "ndjson");
    let is_meta = path.ends_with("whyslow.json");
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        let is_time = COUNTS.iter().any(|name| before.ends_with(&format!("{name}\": ")));
        out += before;
        out += if (is_table && !is_time) || is_meta { digits } else { MAX };
        rest = after;
    }
    out + rest
}

#[test]
fn no_number_however_large_makes_a_rule_panic() {
    for case in cases() {
        let folder = tempfile::tempdir().unwrap();
        let (from, large) = (folder.path().join("host"), folder.path().join("large"));
        let host = host(&case);
        match host.is_file() {
            true => unpack(&host, &from),
            false => copied(&host, &from, &|_, text| text.to_owned()),
        }
        copied(&from, &large, &as_large_as_possible);
        let recording = store::open(&large).unwrap();
        let fed = std::panic::catch_unwind(|| examine(&recording));
        assert!(fed.is_ok(), "{}: see the panic above", case.display());
    }
}

#[test]
fn no_torn_file_makes_a_rule_panic() {
    for case in cases() {
        let mut recording = store::open(&host(&case)).unwrap();
        for at in 0..recording.snapshots.len() {
            let whole = recording.snapshots[at].bytes.clone();
            for part in [0, 1, 2] {
                recording.snapshots[at].bytes = whole[..whole.len() * part / 3].to_vec();
                let fed = std::panic::catch_unwind(|| examine(&recording));
                assert!(fed.is_ok(), "{}: {}", case.display(), recording.snapshots[at].name);
            }
            recording.snapshots[at].bytes = whole;
        }
    }
}

/// The folders of simulated hosts are the simulator's output (`examples/hosts.rs`), and the expected reports are its truth.
#[test]
fn simulated_hosts_are_as_the_simulator_makes_them() {
    let folder =
        |shape: &shapes::Shape| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(shape.name);
    for shape in shapes::all() {
        let case = folder(&shape);
        let kept = store::open(&host(&case)).unwrap();
        let made = write::recording(&shape);
        assert!(
            kept.tables.tasks == made.tables.tasks && kept.tables.cgroups == made.tables.cgroups,
            "{}",
            shape.name
        );
        let bounds: Vec<(f64, f64)> = expect(&case).causes.iter().filter_map(|cause| cause.lost_s).collect();
        match (&shape.without, &bounds[..]) {
            (None, []) => {}
            (Some((without, whom)), [(low, high)]) => {
                let lost = shape.host.lost(without, whom);
                assert!((low..=high).contains(&&lost), "{}: {lost} s, not {low} to {high}", shape.name);
            }
            _ => panic!("{}: as many causes as faults", shape.name),
        }
    }
}

/// The report would say that tasks are bound to the shared CPUs, and that isolated CPUs were left idle.
#[test]
fn of_isolated_cpus_a_cause_would_be_reported_if_nobody_knew_that_they_are() {
    let made = shapes::all().into_iter().find(|shape| shape.name == "isolated-cpus-that-poll").unwrap();
    let mut recording = write::recording(&made);
    recording.snapshots.retain(|frame| !frame.name.starts_with("sys/devices/system/cpu/"));
    let document = examine(&recording);
    assert_eq!(rules_of(&document, Kind::Cause), ["cpu-pinned"]);
}

/// A shape with a hundred thousand sleeping threads beside its tasks.
fn with_a_hundred_thousand_threads(name: &str) -> (shapes::Shape, whyslow_model::Recording) {
    let made = shapes::all().into_iter().find(|shape| shape.name == name).unwrap();
    let mut recording = write::recording(&made);
    let cpus = made.host.cpus;
    let asleep = |n: u32| whyslow_model::table::Task {
        pid: 10_000 + n,
        tgid: 10_000,
        ppid: 1,
        comm: "session".to_owned(),
        cpu_cgroup: 2,
        lived_ns: recording.meta.window_ns,
        sleep_ns: recording.meta.window_ns,
        allowed: format!("0-{}", cpus - 1),
        allowed_count: cpus,
        weight: 1024,
        ..whyslow_model::table::Task::default()
    };
    let more: Vec<_> = (0..100_000).map(asleep).collect();
    recording.tables.tasks.as_mut().unwrap().extend(more);
    (made, recording)
}

#[test]
fn of_a_hundred_thousand_threads_those_are_named_that_lose() {
    let (made, recording) = with_a_hundred_thousand_threads("four-nodes-one-full");
    let document = examine(&recording);
    let reported: Vec<_> = document.findings.iter().filter(|f| f.kind == Kind::Cause).collect();
    let [cause] = &reported[..] else {
        panic!("{:?}", reported.iter().map(|f| &f.title).collect::<Vec<_>>())
    };
    assert_eq!(
        (cause.rule.as_str(), cause.victim.id.as_str()),
        ("cpu-pinned", "/system.slice/solver.service")
    );
    let (without, whom) = made.without.as_ref().unwrap();
    let (lost, truth) = (cause.lost.unwrap().as_secs_f64(), made.host.lost(without, whom));
    assert!((lost - truth).abs() < 0.1 * truth, "{lost} of {truth} s");
}

#[test]
fn of_a_hundred_thousand_threads_that_sleep_nobody_is_accused() {
    let (_, recording) = with_a_hundred_thousand_threads("fast-and-slow-cores");
    let document = examine(&recording);
    let reported: Vec<_> = document
        .findings
        .iter()
        .filter(|f| f.kind != Kind::CannotTell)
        .map(|f| (&f.rule, &f.title))
        .collect();
    assert!(reported.is_empty(), "{reported:?}");
    let unknown = rules_of(&document, Kind::CannotTell);
    let could_look = ["cpu-quota", "cpu-pinned", "full-thread", "steal"];
    assert!(could_look.iter().all(|rule| !unknown.contains(rule)), "{unknown:?}");
}
