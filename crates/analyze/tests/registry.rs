//! The lists of rules and parsers hold all files of their folders: a file that is in no list is never used.

#![expect(clippy::disallowed_methods, reason = "the border holds for the crate: this test lists its folders")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn every_rule_folds_findings_of_rules_that_are_there() {
    let ids: BTreeSet<&str> = rules::ALL.iter().map(|rule| rule.id).collect();
    for rule in rules::ALL {
        let of = rule.folds.as_ref().map_or(&[][..], |fold| fold.of);
        assert!(of.iter().all(|id| ids.contains(id) && *id != rule.id), "{} folds {of:?}", rule.id);
        assert!(rule.folds.is_none() || !of.is_empty(), "{} folds nothing", rule.id);
    }
}

/// Results that several rules need are computed once, in the modules (`Evidence`): if a rule uses another rule, or a module uses a rule, the
/// failure shows the path.
#[test]
fn no_rule_is_known_but_to_the_list() {
    let ids: Vec<String> = rules::ALL.iter().map(|rule| rule.id.replace('-', "_")).collect();
    let (mut read, mut found) = (0, Vec::new());
    for path in sources() {
        read += 1;
        let name = path.iter().map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join("/");
        let module = module_of(&path);
        let own = match &module[..] {
            [rules, rule, ..] if rules == "rules" => rule.as_str(),
            _ => "",
        };
        let foreign = |rule: &&String| rule.as_str() != own;
        for used in paths(&code(&path), &module) {
            let [rules, rule, ..] = &used[..] else { continue };
            let is_rule = rule == "*" || ids.iter().filter(foreign).any(|id| id == rule);
            if rules == "rules" && is_rule && !is_entry(&module, &used) {
                found.push(format!("{name}: {}", used.join("::")));
            }
        }
    }
    assert!(read > 150, "{read} files are not the crate");
    assert!(found.is_empty(), "{found:#?}");
}

/// `clocksource::RULE`, in the file of the list.
fn is_entry(module: &[String], used: &[String]) -> bool {
    matches!(module, [rules] if rules == "rules") && matches!(used, [_, _, last] if last == "RULE")
}

/// Files below `src`, without tests.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut todo, mut all) = (vec![root.clone()], Vec::new());
    while let Some(folder) = todo.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_test = path.file_stem().unwrap().to_str().unwrap().ends_with("tests");
            match path.is_dir() {
                _ if is_test => {}
                true => todo.push(path),
                false => all.push(path.strip_prefix(&root).unwrap().to_owned()),
            }
        }
    }
    all
}

/// `rules/spin/full.rs` is `rules::spin::full`.
fn module_of(path: &Path) -> Vec<String> {
    let module = path.with_extension("");
    let parts = module.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.filter(|part| part != "lib").collect()
}

/// The text without comments, string literals, and tests.
fn code(path: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "this test is about files")]
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split(' ')).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// All paths of a text that begin in the crate, from its root. In `rules.rs` a rule's name may begin one, too.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = Vec::new();
    for (at, _) in code.match_indices("::") {
        let begin = code[..at].rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
        if code[..begin].ends_with("::") {
            continue;
        }
        let inside = module.len();
        let (from, rest) = match &code[begin..at] {
            "crate" => (Vec::new(), at),
            "self" => (module.to_vec(), at),
            "super" => (module[..inside.saturating_sub(1)].to_vec(), at),
            "" => continue,
            // A child of this module, or something else.
            _ => (module.to_vec(), begin),
        };
        tree(&code[rest..], from, &mut all);
    }
    all
}

/// The rest of a path: "::a::b", "::{a, b::c}", "::super::d".
fn tree(text: &str, mut from: Vec<String>, all: &mut Vec<Vec<String>>) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    loop {
        at += if text[at..].starts_with("::") { 2 } else { 0 };
        if text[at..].starts_with('{') {
            at += 1;
            break;
        }
        let end = text[at..].find(|c| !is_part(c)).map_or(text.len(), |end| at + end);
        match &text[at..end] {
            "super" => drop(from.pop()),
            "" if text[at..].starts_with('*') => from.push("*".to_owned()),
            "" | "self" => {}
            part => from.push(part.to_owned()),
        }
        at = end;
        if !text[at..].starts_with("::") {
            all.push(from);
            return at;
        }
    }
    loop {
        at += text[at..].find(|c: char| !matches!(c, ',' | ' ' | '\n')).unwrap_or(text.len() - at);
        if at >= text.len() || text[at..].starts_with('}') {
            return (at + 1).min(text.len());
        }
        let read = tree(&text[at..], from.clone(), all);
        let after = text[at + read..].find([',', '}']).unwrap_or(text.len() - at - read);
        at += read + after;
    }
}

#[test]
fn the_check_knows_a_rule_by_any_path() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let read = |code: &str, at: &str| {
        paths(code, &module(at)).into_iter().map(|path| path.join("::")).collect::<Vec<_>>()
    };
    assert_eq!(read("use super::{Rule, lock_wait};", "rules::spin"), ["rules::Rule", "rules::lock_wait"]);
    assert_eq!(read("use super::super::cpu_quota;", "rules::spin::victims")[0], "rules::cpu_quota");
    let used = read("use crate::rules::{self, a::{b, c}};", "graph");
    assert_eq!(used[..3], ["rules", "rules::a::b", "rules::a::c"]);
    assert!(
        read("let x = crate::rules::cpu_quota::binding(ev);", "graph")[0].starts_with("rules::cpu_quota")
    );
    assert_eq!(read("slow_receiver::fold(ev)", "rules"), ["rules::slow_receiver::fold"]);
    assert_eq!(read("use super::*;", "rules::spin"), ["rules::*"]);
    assert_eq!(read("use crate::cpu::spin::words;", "rules::steal"), ["cpu::spin::words"]);
}

/// `Meta::is_own` decides whether a thread is whyslow's: a rule that forgets the process, or the thread, would accuse whyslow.
#[test]
fn source_files_do_not_search_own_pids_themselves() {
    let searching: Vec<PathBuf> =
        sources().into_iter().filter(|path| code(path).contains("own_pids")).collect();
    assert!(searching.is_empty(), "{searching:?}");
}
