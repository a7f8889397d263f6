//! Whatever names a recording contains, no name stands unquoted in a printed command: users paste these commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use whyslow::store;
use whyslow_analyze::examine;
use whyslow_model::Document;

/// A word that a shell would run.
const MARK: &str = "PWN";
/// A name that ends every sort of quotes.
const NAME: &str = "x/y'; PWN $(PWN) `PWN`\"PWN\nPWN #";

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // A hundred thousand rows would be read once for each key; they have the same keys as other cases.
    cases.retain(|case| case.join("host").is_dir());
    cases.sort();
    cases
}

/// The parts of a line outside of quotes that keep everything; `"` protects neither `$` nor a backtick.
fn bare(line: &str) -> String {
    let (mut out, mut in_double) = (String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => in_double = !in_double,
            '\'' if !in_double => while chars.next().is_some_and(|c| c != '\'') {},
            '$' if !in_double && chars.peek() == Some(&'\'') => {
                chars.next();
                while let Some(c) = chars.next().filter(|c| *c != '\'') {
                    if c == '\\' {
                        chars.next();
                    }
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// Commands of a document in which the mark would run; undo commands stand in the text of a fix.
fn run(document: &Document) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for finding in &document.findings {
        let checks = finding.check.iter().map(|check| (&check.text, &check.command));
        for (text, command) in checks.chain(finding.fixes.iter().map(|fix| (&fix.text, &fix.command))) {
            lines.extend(command.iter().map(|line| line.to_string()));
            let undo = text.find("undo: echo ").and_then(|at| text.get(at..)).map(str::to_owned);
            lines.extend(undo);
        }
    }
    lines.retain(|line| bare(line).contains(MARK));
    lines
}

/// A copy of a recorded host.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copied(&path, &target) } else { assert!(fs::copy(path, target).is_ok()) }
    }
}

/// The files of its tables.
fn tables(host: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(host).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(tables(&entry));
        } else if entry.extension().is_some_and(|end| end == "ndjson") {
            found.push(entry);
        }
    }
    found
}

/// The effect of a hostile name in the string at one key of every row of a table, key by key.
fn each_key_poisoned(table: &Path, mut look: impl FnMut(&str)) {
    let was = fs::read_to_string(table).unwrap();
    let rows: Vec<Value> = was.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let objects = rows.iter().filter_map(Value::as_object);
    let strings =
        objects.flat_map(|row| row.iter().filter(|(_, v)| v.is_string()).map(|(key, _)| key.clone()));
    for key in strings.collect::<BTreeSet<String>>() {
        let mut rows = rows.clone();
        for text in rows.iter_mut().filter_map(|row| row.get_mut(&key)) {
            if let Value::String(text) = text {
                text.push_str(NAME);
            }
        }
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        fs::write(table, lines.join("\n") + "\n").unwrap();
        look(&key);
    }
    fs::write(table, was).unwrap();
}

#[test]
fn quotes_are_read_as_a_shell_does() {
    for kept in ["'PWN'", r"$'a\'PWN\x0a'", r"\PWN'PWN'".trim_start_matches(r"\PWN")] {
        assert!(!bare(kept).contains(MARK), "{kept}");
    }
    for ran in ["PWN", "\"PWN\"", "''PWN", r"'\'PWN'", "\"'PWN'\""] {
        assert!(bare(ran).contains(MARK), "{ran}");
    }
}

#[test]
fn no_name_of_a_table_runs_in_a_command() {
    let (mut ran, mut looked) = (Vec::new(), 0);
    for case in cases() {
        let copy = tempfile::tempdir().unwrap();
        copied(&crate::overlay::host(&case), copy.path());
        for table in tables(copy.path()) {
            each_key_poisoned(&table, |key| {
                // A field with few known values cannot be read then: no answer, and no command.
                let Ok(recording) = store::open(copy.path()) else { return };
                looked += 1;
                let lines = run(&examine(&recording));
                ran.extend(lines.into_iter().map(|line| format!("{} {key}: {line}", table.display())));
            });
        }
    }
    assert!(looked > 100 && ran.is_empty(), "{looked} looked at, {ran:#?}");
}

#[test]
fn no_name_of_a_file_and_no_word_in_one_runs_in_a_command() {
    let mut ran = Vec::new();
    for case in cases() {
        let recording = store::open(&crate::overlay::host(&case)).unwrap();
        let mut parts: Vec<String> =
            recording.snapshots.iter().flat_map(|frame| frame.name.split('/').map(str::to_owned)).collect();
        parts.sort();
        parts.dedup();
        for part in parts {
            let mut poisoned = recording.clone();
            for frame in &mut poisoned.snapshots {
                let named =
                    frame.name.split('/').map(|p| if p == part { format!("{p}{NAME}") } else { p.into() });
                frame.name = named.collect::<Vec<String>>().join("/");
            }
            ran.extend(run(&examine(&poisoned)).into_iter().map(|line| format!("{part}: {line}")));
        }
        for at in 0..recording.snapshots.len() {
            let mut poisoned = recording.clone();
            let frame = &mut poisoned.snapshots[at];
            let Ok(text) = String::from_utf8(frame.bytes.clone()) else { continue };
            if text.split_whitespace().count() == 1 {
                frame.bytes = format!("{}{}", text.trim(), NAME.replace('\n', " ")).into_bytes();
                ran.extend(run(&examine(&poisoned)).into_iter().map(|line| format!("{at}: {line}")));
            }
        }
    }
    assert!(ran.is_empty(), "{ran:#?}");
}
