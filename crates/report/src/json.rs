//! The document as JSON, and lists for programs: `docs/json.md` says what each name means.

use std::fmt::Write as _;

use serde::Serialize;
use whyslow_model::Document;

use crate::safe::is_unsafe;

/// A document, or a list, as JSON text, ending with a newline.
#[must_use]
pub fn json(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document).expect("a document has string keys only");
    let mut out = escaped(&text);
    out.push('\n');
    out
}

/// The same on one line, for readers of lines: it begins with `{"schema"`.
#[must_use]
pub fn json_line(document: &Document) -> String {
    let text = serde_json::to_string(document).expect("a document has string keys only");
    let mut out = escaped(&text);
    out.push('\n');
    out
}

/// JSON escapes what is below U+0020 only. The rest of what a terminal obeys (U+009B begins a command, too) can only
/// stand inside strings, where `\u` is allowed.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c == '\n' || !is_unsafe(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}").expect("a String takes all");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_escaped_and_come_back() {
        let name = "a\u{1b}\u{9b}\u{202e}\u{e0041}\n\u{7f}b";
        let text = escaped(&serde_json::to_string(name).unwrap());
        assert!(!text.chars().any(is_unsafe), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }
}
