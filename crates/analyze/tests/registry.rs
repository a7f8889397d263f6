//! The lists of rules and parsers hold what lies in their folders: a file that is in no list is seen by nobody.

#![expect(clippy::disallowed_methods, reason = "the border holds for the crate: this test lists its folders")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use whyslow_analyze::{parse, rules};

/// Names of the Rust files of a folder below `src` that contain `mark`, without their ending.
fn files(folder: &str, mark: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let paths =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    #[expect(clippy::disallowed_methods, reason = "this test is about files")]
    let marked = paths.filter(|path| fs::read_to_string(path).unwrap().contains(mark));
    marked.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_rule_is_listed_and_its_id_is_the_name_of_its_file() {
    let listed: BTreeSet<String> = rules::ALL.iter().map(|rule| rule.id.replace('-', "_")).collect();
    assert_eq!(listed, files("rules", "pub const RULE: Rule"));
}

#[test]
fn every_parser_is_listed_for_the_fuzz_test_under_the_name_of_its_file() {
    let listed: BTreeSet<String> = parse::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut there = files("parse", "pub fn ");
    there.remove("fuzz");
    assert_eq!(listed, there);
}

#[test]
fn every_parser_says_what_it_does_with_a_torn_text() {
    let all: BTreeSet<String> = parse::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let silent: Vec<_> = all.difference(&files("parse", "torn")).cloned().collect();
    assert!(silent.is_empty(), "no test with a torn line in {silent:?}");
}
