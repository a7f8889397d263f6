//! Sessions in README and docs are byte for byte what the present build prints for a recording in this folder. A comment above each session
//! names the recording (`<!-- session: FILE -->`), and the lines between which it is shown.
//!
//! After a change of texts: `WHYSLOW_WRITE_SESSIONS=1 cargo test -p whyslow --test offline sessions::`, and read what it changed.

mod block;
mod neutral;
mod print;

use std::fs;
use std::path::{Path, PathBuf};

use block::{Block, Other, blocks, rewritten};
use print::{printed, root};

const WRITE: &str = "WHYSLOW_WRITE_SESSIONS";

/// Blocks that whyslow does not print, by document and first line.
const OTHERS: [(&str, &str); 5] = [
    ("ARCHITECTURE.md", "probe --snapshots, tables--> [recording]"),
    ("docs/recording.md", "┌───────────┬───────┬──────────────┐"),
    ("docs/recording.md", "comm"),
    ("lab/README.md", "lab fetch [KERNEL...]"),
    ("lab/README.md", "lab run [--scenario NAME]"),
];
/// Languages of blocks without output.
const SILENT: [&str; 3] = ["sh", "toml", "python"];

/// Every document of the repository, by its path in it.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/cases", "lab"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let texts = entries.filter(|path| path.extension().is_some_and(|end| end == "md"));
        found.extend(
            texts.map(|path| Path::new(folder).join(path.file_name().unwrap()).display().to_string()),
        );
    }
    found.sort();
    found
}

/// The blocks of a document that differ from what the build prints, with the right lines; and the number of blocks checked.
fn differences(name: &str, document: &str) -> Result<(Vec<Other>, usize), String> {
    let (mut wrong, mut looked) = (Vec::new(), 0);
    for block in blocks(document) {
        let first = block.lines.first().map_or("", String::as_str);
        let Some(source) = &block.source else {
            let is_other = OTHERS.iter().any(|(of, begins)| *of == name && first.starts_with(begins));
            if is_other || SILENT.contains(&block.language.as_str()) {
                continue;
            }
            return Err(format!("{name}, line {}: which recording is this of: {first:?}", block.at + 1));
        };
        looked += 1;
        let lines = printed(&block, source).map_err(|why| format!("{name}, line {}: {why}", block.at + 1))?;
        if lines != block.lines {
            wrong.push((block, lines));
        }
    }
    Ok((wrong, looked))
}

/// Writes the right lines to a file; returns its path, and the first line that differs.
fn kept(name: &str, block: &Block, lines: &[String]) -> String {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sessions");
    let file = place.join(format!("{}-{}.txt", name.replace('/', "-"), block.at + 1));
    fs::create_dir_all(&place).unwrap();
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let shown = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    let at = (0..).find(|at| block.lines.get(*at) != lines.get(*at)).unwrap_or(0);
    format!(
        "{name}, line {}:\n  says   {}\n  prints {}\n  all of it: {}",
        block.at + 1 + at,
        shown(&block.lines, at),
        shown(lines, at),
        file.display()
    )
}

#[test]
fn every_session_is_what_the_present_build_prints() {
    let (mut reported, mut looked) = (Vec::new(), 0);
    for name in documents() {
        let path = root().join(&name);
        let document = fs::read_to_string(&path).unwrap();
        let (wrong, sessions) = differences(&name, &document).unwrap_or_else(|why| panic!("{why}"));
        looked += sessions;
        if std::env::var_os(WRITE).is_some() && !wrong.is_empty() {
            fs::write(&path, rewritten(&document, &wrong)).unwrap();
            continue;
        }
        reported.extend(wrong.iter().map(|(block, lines)| kept(&name, block, lines)));
    }
    assert!(looked >= 5, "only {looked} sessions were found");
    let reported = reported.join("\n");
    assert!(
        reported.is_empty(),
        "{reported}\n{WRITE}=1 cargo test -p whyslow --test offline sessions:: writes what is printed"
    );
}

/// Change each word of each session, one at a time: the test must notice.
#[test]
fn a_session_with_one_other_word_is_reported() {
    let mut altered = 0;
    for name in documents() {
        let document = fs::read_to_string(root().join(&name)).unwrap();
        // Another test checks whether it is up to date.
        let (wrong, _) = differences(&name, &document).unwrap();
        let document = rewritten(&document, &wrong);
        for block in blocks(&document).iter().filter(|block| block.source.is_some()) {
            // Not the commands: another test checks which recording belongs to a command.
            let answers = (0..block.lines.len()).filter(|at| !block.lines[*at].starts_with("$ "));
            let last = answers.clone().rfind(|at| !block.lines[*at].is_empty());
            for at in answers.step_by(7).chain(last) {
                let Some(word) = block.lines[at].split_whitespace().last() else { continue };
                let mut lines = block.lines.clone();
                lines[at] = lines[at].replacen(word, "otherwise", 1);
                let other = rewritten(&document, &[(block.clone(), lines)]);
                let (wrong, _) = differences(&name, &other).unwrap();
                assert_eq!(wrong.len(), 1, "{name}: {word:?} may be \"otherwise\"");
                altered += 1;
            }
        }
    }
    assert!(altered >= 20, "only {altered} words");
}

#[test]
fn a_session_of_nobody_knows_which_recording_is_refused() {
    let text = "```\n$ sudo whyslow\nwhyslow 0.1.0 on x\n```\n";
    assert!(differences("README.md", text).is_err());
    assert!(differences("README.md", "```console\n$ ls\n```\n").is_err());
    assert_eq!(differences("README.md", "```sh\nls\n```\n").map(|(_, looked)| looked), Ok(0));
}

/// A command that does not belong to the recording.
#[test]
fn a_command_that_was_not_recorded_is_refused() {
    for (document, ours, other) in [
        ("README.md", "whyslow --for 5s", "whyslow --for 7s"),
        ("docs/run.md", "seq 1", "seq 2"),
        ("docs/cpu.md", "whyslow cpu --for", "whyslow gpu --for"),
    ] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let session =
            format!("$ sudo {}", if ours == "seq 1" { "whyslow run -- sh -c 'seq 1" } else { ours });
        assert!(text.contains(&session), "{ours}");
        assert!(differences(document, &text.replace(ours, other)).is_err(), "{other}");
    }
}
