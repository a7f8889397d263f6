//! A redacted recording gives the same causes, and contains none of the names.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use whyslow::{redact, store};
use whyslow_analyze::examine;
use whyslow_model::ping::Pinged;
use whyslow_model::{Document, Meta, Recording};

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "why")).collect();
    found.sort();
    assert!(found.len() > 2, "{found:?}");
    found
}

/// Rules and times.
fn causes(document: &Document) -> Vec<String> {
    document.findings.iter().map(|finding| format!("{} {:?}", finding.rule, finding.lost)).collect()
}

/// Hops and times of chains. Remainders of divisions depend on the order of names: a few ns move.
fn chains(document: &Document) -> Vec<(usize, u128)> {
    document.chains.iter().map(|chain| (chain.hops.len(), chain.time.as_nanos())).collect()
}

fn are_alike(one: &[(usize, u128)], other: &[(usize, u128)]) -> bool {
    let is_same = |(a, b): (&(usize, u128), &(usize, u128))| a.0 == b.0 && a.1.abs_diff(b.1) < 1_000;
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

/// Names that must be dropped, and are too long to be a part of another name.
fn names(recording: &Recording) -> BTreeSet<String> {
    let mut tables = recording.tables.clone();
    let kernels: BTreeSet<_> =
        tables.tasks.iter().flatten().filter(|t| t.kthread).map(|t| t.comm.clone()).collect();
    let mut names = BTreeSet::new();
    crate::every_name::each(&mut tables, false, &mut |name| {
        if !kernels.contains(name) && !is_kernels(name) {
            names.extend(name.split('/').map(str::to_owned));
        }
        names.insert(name.clone());
    });
    if let Some(watched) = &recording.meta.watched {
        names.extend(watched.command.iter().flat_map(|command| &command.argv).cloned());
        names.insert(watched.subject.clone());
    }
    let is_word =
        |name: &String| name.len() > 4 && name != "whyslow" && !name.contains(['"', '\\']) && name.is_ascii();
    names.retain(|name| is_word(name) && !kernels.contains(name) && !is_kernels(name));
    names
}

/// Names of the kernel and of its own files and folders (/sys/block/vda/queue) stay, and addresses that every host has.
fn is_kernels(name: &str) -> bool {
    const BEGINS: [&str; 9] =
        ["/proc", "/sys", "/dev", "kworker/", "ksoftirqd/", "migration/", "swapper/", "jbd2/", "kswapd"];
    let is_here = |at: SocketAddr| at.ip().is_loopback() || at.ip().is_unspecified();
    BEGINS.iter().any(|begin| name.starts_with(begin))
        || (name.starts_with('[') && name.ends_with(']'))
        || ["inotify", "mountinfo", "mounts", "queue"].contains(&name)
        || name.parse().is_ok_and(is_here)
}

/// All texts that a recording contains, as they are written.
fn contents(recording: &Recording) -> String {
    let mut text = serde_json::to_string(&recording.meta).unwrap();
    for file in &recording.snapshots {
        text.push_str(&format!("\n{}\n{}", file.name, String::from_utf8_lossy(&file.bytes)));
    }
    text.push_str(&serde_json::to_string(&recording.missing).unwrap());
    store::each_table(&recording.tables, &mut |_, rows| text.push_str(&rows));
    text
}

#[test]
fn a_redacted_recording_tells_the_same_causes_and_no_name() {
    for path in recordings() {
        let before = store::open(&path).unwrap();
        let mut after = before.clone();
        redact::redact(&mut after);
        assert_eq!(causes(&examine(&after)), causes(&examine(&before)), "{}", path.display());
        let (one, other) = (chains(&examine(&after)), chains(&examine(&before)));
        assert!(are_alike(&one, &other), "{}: {one:?}, {other:?}", path.display());
        let (names, text) = (names(&before), contents(&after));
        assert!(names.len() > 5, "{}: {names:?}", path.display());
        let left: Vec<_> = names.iter().filter(|name| holds(&text, name)).collect();
        assert!(left.is_empty(), "{}: {left:#?}", path.display());
        let said = whyslow_report::text(&examine(&after), &whyslow_report::Style::default());
        let said = said.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.matches("redacted: names are made up").count(), 1, "{said}");
    }
}

/// Whether it occurs as a separate word.
fn holds(text: &str, name: &str) -> bool {
    let is_part =
        |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == '.');
    text.match_indices(name).any(|(at, _)| {
        let rest = &text[at + name.len()..];
        // The names of a row's fields do not count.
        !is_part(text[..at].chars().next_back()) && !is_part(rest.chars().next()) && !rest.starts_with("\":")
    })
}

/// Rows with every possible name: each name is dropped, and equal names stay equal.
#[test]
fn no_name_of_any_table_is_left() {
    let mut count = 0;
    let mut tables = crate::every_name::a_row_of_each();
    crate::every_name::each(&mut tables, true, &mut |name| {
        count += 1;
        *name = format!("secret{count}");
    });
    // A string that was not visited belongs to the kernel, or is no name.
    let mut left = BTreeSet::new();
    store::each_table(&tables, &mut |name, rows| {
        let rows = rows.lines().map(|row| serde_json::from_str(row).unwrap());
        rows.for_each(|row| strings(&row, name, &mut left));
    });
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    assert_eq!(left, KERNELS, "a new one is a name, unless it is the kernel's");
    let spans = tables.spans.clone().unwrap();
    tables.spans = Some(spans.iter().chain(&spans).cloned().collect());
    let mut recording = Recording { tables, ..Recording::default() };
    redact::redact(&mut recording);
    let text = contents(&recording);
    assert!(!text.contains("secret"), "{text}");
    let spans = recording.tables.spans.unwrap();
    let (one, again) = spans.split_at(spans.len() / 2);
    assert_eq!(one, again, "the same file has the same word");
    let words: BTreeSet<_> = one.iter().map(|span| &span.target.as_ref().unwrap().name).collect();
    assert_eq!(words.len(), one.len(), "and others have others");
}

#[test]
fn the_host_that_was_asked_has_a_made_up_name() {
    let pinged = Pinged { target: "secret-db".into(), address: "10.0.0.7".into(), ..Pinged::default() };
    let mut rec =
        Recording { meta: Meta { pinged: Some(pinged), ..Meta::default() }, ..Recording::default() };
    redact::redact(&mut rec);
    let pinged = rec.meta.pinged.unwrap();
    assert_eq!((pinged.target.as_str(), pinged.address.as_str()), ("peer1", "198.18.0.1"));
}

/// Fields whose strings are the kernel's, numbers or code.
const KERNELS: [&str; 29] = [
    "blocked.state",
    "churn.what",
    "cross_calls.function",
    "disk.dev",
    "disk.device",
    "disk.op",
    "failed_calls.dev",
    "failed_calls.file_system",
    "io_files.dev",
    "io_files.device",
    "io_files.file_dev",
    "io_files.of",
    "io_files.op",
    "late_timers.function",
    "locks.kind",
    "pings.answer",
    "pings.error",
    "populations.what",
    "programs.kind",
    "spans.target.dev",
    "spans.target.kind",
    "spins.arch",
    "spins.code",
    "stalls.kind",
    "stat_reads.file",
    "stat_reads.fs",
    "tasks.allowed",
    "waits.state",
    "works.function",
];

/// The fields of a row whose strings were not visited.
fn strings(value: &serde_json::Value, at: &str, left: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::String(text) if !text.trim_start_matches('/').starts_with("secret") => {
            left.insert(at.to_owned());
        }
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| strings(value, &format!("{at}.{key}"), left));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| strings(value, at, left)),
        _ => {}
    }
}
