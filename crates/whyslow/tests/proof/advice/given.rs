//! All commands that the cases of `tests/cases` give: checks, fixes and undo commands.

use std::fs;
use std::path::Path;

use whyslow::store;
use whyslow_analyze::examine;

use crate::advice::harmless::is_command;
use crate::advice::overlay;

/// The text before the command that undoes a fix.
const UNDO: &str = "undo: ";

/// A command of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub case: String,
    pub rule: String,
    /// The text that comes with the command.
    pub text: String,
    /// The command.
    pub line: String,
}

/// The commands of all cases.
#[derive(Debug, Default)]
pub struct All {
    /// Commands that show what was found.
    pub checks: Vec<Given>,
    /// Commands that fix it.
    pub fixes: Vec<Given>,
    /// Commands that undo a fix.
    pub undos: Vec<Given>,
}

/// The commands of all cases.
pub fn all() -> All {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut found = All::default();
    for case in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let recording = store::open(&overlay::host(&case)).unwrap();
        for finding in examine(&recording).findings {
            let given = |text: &str, line: &str| Given {
                case: case.file_name().unwrap().display().to_string(),
                rule: finding.rule.clone(),
                text: text.to_owned(),
                line: line.to_owned(),
            };
            let checks =
                finding.check.iter().filter_map(|check| Some((&check.text, check.command.as_ref()?)));
            found.checks.extend(checks.map(|(text, line)| given(text, line)));
            for fix in &finding.fixes {
                found.fixes.extend(fix.command.as_ref().map(|line| given(&fix.text, line)));
                found.undos.extend(undo(&fix.text).map(|line| given(&fix.text, line)));
            }
        }
    }
    found
}

/// The undo command in a fix's text: up to the closing parenthesis, outside of quotes.
fn undo(text: &str) -> Option<&str> {
    let line = &text[text.find(UNDO)? + UNDO.len()..];
    let (mut quoted, mut escaped, mut depth) = (false, false, 0);
    let end = line.find(|c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => return true,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        false
    });
    Some(&line[..end.unwrap_or(line.len())]).filter(|line| is_command(line))
}

#[test]
fn an_undo_is_found_in_its_text() {
    assert_eq!(undo("raise it (undo: echo '1) 2' > /sys/x) or not"), Some("echo '1) 2' > /sys/x"));
    assert_eq!(undo("turn it off; undo: echo function > /sys/x"), Some("echo function > /sys/x"));
    assert_eq!(undo("raise it (undo: the old value)"), None);
    assert_eq!(undo("raise it"), None);
}
