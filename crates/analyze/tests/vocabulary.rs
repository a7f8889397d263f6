//! Sentences of waits, chains and accounts are made of types, in the vocabulary (`whyslow_model::wait`) and in the
//! reports: the graph, the tables of waits and the locks hold none, and no code here or in `report` parses a sentence.
//! Rules have their own texts, and kernel locks their names (`lock_sites.rs`, `lock_names.rs`).

#![expect(clippy::disallowed_methods, reason = "the border holds for the crate: this test reads its sources")]

use std::fs;
use std::path::{Path, PathBuf};

/// Folders in which no sentence is made.
const SILENT: &[&str] =
    &["analyze/src/graph", "analyze/src/wait_reasons", "analyze/src/locks", "analyze/src/stacks/doing"];
/// Literals in these folders that are names, no sentences, each with the reason.
const NAMES: &[(&str, &str)] = &[
    ("lock_sites.rs", "the names of kernel locks"),
    ("lock_names.rs", "the names of kernel locks"),
    ("threads of {}", "the subject of an account"),
    ("-- waits for {what}", "the label of a flame graph"),
    ("a CPU that others use, too", "the name of a culprit"),
    ("not known", "the name of a culprit"),
    ("CPU quota of {}", "the name of a culprit"),
    ("a CPU quota", "the name of a culprit"),
    ("a block device", "the name of a device"),
    ("block device {dev}", "the name of a device"),
];
/// Folders in which no text is parsed or compared with a sentence.
const TYPED: &[&str] =
    &["analyze/src/graph", "analyze/src/locks", "analyze/src/stacks/doing", "report/src/text"];
/// Code that parses a text, or searches in it.
const APART: &[&str] = &[
    "strip_prefix(\"",
    "strip_suffix(\"",
    "split_once(\"",
    "rsplit_once(\"",
    "starts_with(\"",
    "ends_with(\"",
    "contains(\"",
    "rsplit_once('(')",
    "matches('(')",
    "ends_with(')')",
];

fn sources(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(folder);
    let mut all = vec![root.with_extension("rs")];
    all.retain(|path| path.is_file());
    let mut todo = vec![root];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            match entry.is_dir() {
                true if name != "tests" => todo.push(entry),
                false if name.ends_with(".rs") && !name.contains("tests") && name != "real_stacks.rs" => {
                    all.push(entry);
                }
                _ => {}
            }
        }
    }
    all
}

/// The lines of a file that are no comment, up to its tests.
fn code(path: &Path) -> Vec<String> {
    #[expect(clippy::disallowed_methods, reason = "this test is about files")]
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.contains("reason = \"");
    code.lines().filter(is_code).map(str::to_owned).collect()
}

/// Whether a literal is a sentence: at least two words in small letters, one after the other.
fn is_words(literal: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    literal.split(' ').zip(literal.split(' ').skip(1)).any(|(one, next)| is_word(one) && is_word(next))
}

fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Sentences in a file, without names.
fn sentences(path: &Path) -> Vec<String> {
    let file = path.file_name().unwrap().to_str().unwrap();
    if NAMES.iter().any(|(name, _)| *name == file) {
        return Vec::new();
    }
    let lines = code(path);
    let words = lines.iter().flat_map(|line| literals(line)).filter(|literal| is_words(literal));
    let unnamed = words.filter(|literal| NAMES.iter().all(|(name, _)| name != literal));
    unnamed.map(|literal| format!("{file}: {literal:?}")).collect()
}

#[test]
fn no_sentence_is_made_where_waits_are_types() {
    let made: Vec<String> =
        SILENT.iter().flat_map(|folder| sources(folder)).flat_map(|path| sentences(&path)).collect();
    assert!(made.is_empty(), "{made:#?}");
}

#[test]
fn no_text_is_taken_apart_where_waits_are_types() {
    let is_apart = |line: &String| APART.iter().any(|apart| line.contains(apart));
    let all = TYPED.iter().flat_map(|folder| sources(folder));
    let apart: Vec<String> = all
        .flat_map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            code(&path).into_iter().filter(is_apart).map(move |line| format!("{name}: {}", line.trim()))
        })
        .collect();
    assert!(apart.is_empty(), "{apart:#?}");
}

#[test]
fn the_check_knows_a_sentence_when_it_sees_one() {
    assert!(is_words("the lock holder was not seen") && is_words("waited for {what}, to write"));
    assert!(!is_words("mutex_lock") && !is_words("block-io") && !is_words("{comm} ({pid})"));
    assert!(SILENT.iter().chain(TYPED).all(|folder| !sources(folder).is_empty()));
}

/// Words that only whyslow used, where Linux, perf, bpftrace, systemd or Kubernetes have one: (pattern, today's word). A pattern
/// is a word or words between other characters.
const RETIRED: &[(&str, &str)] = &[
    ("zombie-cgroup", "dying cgroups"),
    ("zombie_cgroup", "dying cgroups"),
    ("late-cpu", "wake-up latency"),
    ("late_cpu", "wake-up latency"),
    ("lateness", "IRQ latency"),
    ("rung", "capability, link of a lock chain"),
    ("rungs", "capabilities, links of a lock chain"),
    ("wanted to go on and could not", "runnable or blocked, off CPU"),
    ("would come back", "reclaimable"),
    ("sent again", "retransmitted"),
    ("want of memory", "memory pressure"),
    ("run out of tasks", "PID limit"),
    ("\"not seen: {}", "Not collected:"),
    ("gap_s", "off_cpu_s"),
    ("Frame", "FileSnapshot"),
    ("stands_ns", "sampled_wait_ns"),
    ("crate::kinds", "wait reasons"),
    ("Mix", "StateTimes"),
    ("owe", "accumulate"),
    ("World", "FairShareModel, CpuSpeeds"),
    ("world", "fair shares"),
    ("Absorbed", "Slack"),
    ("Reign", "HoldInterval"),
    ("Audience", "Observer"),
    ("errand", "child protocol"),
    ("Telling", "OutputArgs"),
    ("BesideArg", "BaselineArgs"),
    ("Keeping", "SaveArgs"),
    ("Assembly", "Loader"),
    ("Ladder", "LockChain"),
    ("ladder", "lock chain"),
    ("Foot", "Leaf"),
    ("Scene", "Scenario"),
    ("decoy", "false-positive control"),
    ("wait_us", "a name that says its unit"),
];
/// Retired words that may stay, with the reason.
const DEFENDED: &[(&str, &str)] = &[("stands_ns", "read from recordings of before")];

#[test]
fn retired_words_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut todo: Vec<PathBuf> =
        ["crates", "lab", "docs", "README.md", "ARCHITECTURE.md"].map(|at| root.join(at)).into();
    let (mut read, mut found) = (0, Vec::new());
    while let Some(path) = todo.pop() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let is_text_of_ours = !matches!(name.as_str(), "host" | "captures" | "target");
            let inside = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            todo.extend(inside.filter(|_| is_text_of_ours));
            continue;
        }
        let is_ours = [".rs", ".c", ".h", ".md", ".toml", ".txt"].iter().any(|end| name.ends_with(end));
        if !is_ours || name == "vocabulary.rs" || name.contains("vmlinux") {
            continue;
        }
        read += 1;
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            let words = RETIRED.iter().filter(|(word, _)| stands_in(line, word));
            let bad = words.filter(|(word, _)| !DEFENDED.iter().any(|(defended, _)| defended == word));
            found.extend(
                bad.map(|(word, today)| format!("{}:{number}: \"{word}\" is {today}", path.display())),
            );
        }
    }
    assert!(read > 500, "{read} files are not the project");
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether `word` is in `line` as a word of its own.
fn stands_in(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !(before.is_some_and(is_part) || after.is_some_and(is_part) && word.ends_with(is_part))
    })
}
