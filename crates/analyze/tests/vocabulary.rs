//! Sentences of waits, chains and accounts are made of types, where the vocabulary is (`whyslow_model::wait`) and where reports
//! are: the graph, the tables of waits and the locks hold none, and nothing here or in `report` takes a sentence apart.
//! Rules have their own words, and kernel locks their names (`lock_sites.rs`, `lock_names.rs`).

#![expect(clippy::disallowed_methods, reason = "the border holds for the crate: this test reads its sources")]

use std::fs;
use std::path::{Path, PathBuf};

/// Where no sentence is made.
const SILENT: &[&str] =
    &["analyze/src/graph", "analyze/src/wait_reasons", "analyze/src/locks", "analyze/src/stacks/doing"];
/// Names there that are no sentences, each with why it may stand there.
const NAMES: &[(&str, &str)] = &[
    ("lock_sites.rs", "the names of kernel locks"),
    ("lock_names.rs", "the names of kernel locks"),
    ("threads of {}", "whose account it is"),
    ("-- waits for {what}", "the label of a flame graph"),
    ("a CPU that others use, too", "the name of a culprit"),
    ("not known", "the name of a culprit"),
    ("CPU quota of {}", "the name of a culprit"),
    ("a CPU quota", "the name of a culprit"),
    ("a block device", "the name of a device"),
    ("block device {dev}", "the name of a device"),
];
/// Where no text is taken apart or compared with a sentence.
const TYPED: &[&str] =
    &["analyze/src/graph", "analyze/src/locks", "analyze/src/stacks/doing", "report/src/text"];
/// What takes a text apart, or asks for a part of it.
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

/// Whether a literal reads like words: at least two, in small letters, one after the other.
fn is_words(literal: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    literal.split(' ').zip(literal.split(' ').skip(1)).any(|(one, next)| is_word(one) && is_word(next))
}

fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Sentences in a file, but for names.
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
    assert!(is_words("who held it was not seen") && is_words("waited for {what}, to write"));
    assert!(!is_words("mutex_lock") && !is_words("block-io") && !is_words("{comm} ({pid})"));
    assert!(SILENT.iter().chain(TYPED).all(|folder| !sources(folder).is_empty()));
}
