//! Command lines without secrets: a recording holds only these.
//!
//! Users send recordings away when they ask for help, and command lines can hold passwords. So a value is hidden if its name says that it
//! is a secret, and a word is hidden if it looks like one. In doubt it is hidden: a report needs only the program and its task.

#[path = "redact/line.rs"]
mod line;
#[path = "redact/logins.rs"]
mod logins;
#[path = "redact/names.rs"]
mod names;
#[path = "redact/tokens.rs"]
mod tokens;

use whyslow_model::table::BETWEEN_ARGUMENTS;

/// The text in place of a secret.
pub const HIDDEN: &str = "***";

/// An argument area as a line: words with single blanks between them, arguments with `BETWEEN_ARGUMENTS`, no other control
/// characters, no secrets.
///
/// `is_cut`: the area was longer. The last word may be only a part then, which may not look like a secret any more.
#[must_use]
pub fn command_line(area: &[u8], is_cut: bool) -> String {
    let mut arguments: Vec<String> = area.split(|byte| matches!(*byte, 0 | 0x1f)).map(printable).collect();
    if is_cut && let Some(last) = arguments.last_mut() {
        let whole = last.rfind(' ').map_or(0, |at| at + 1);
        last.truncate(whole);
        last.push_str("...");
    }
    let mut line = hide(arguments.iter().map(String::as_str));
    // In the whole line other words stand together than in single arguments, and again after some are hidden: repeat until nothing changes.
    for _ in 0..PASSES {
        let mut again = hide(std::iter::once(line.as_str()));
        if again == line {
            again = hide(line.split(BETWEEN_ARGUMENTS));
        }
        if again == line {
            break;
        }
        line = again;
    }
    line
}

/// None of a hundred thousand generated lines, of quotes and names, needed as many passes.
const PASSES: usize = 24;

fn hide<'a>(arguments: impl Iterator<Item = &'a str>) -> String {
    let mut line = line::Line::default();
    arguments.for_each(|argument| line.argument(argument));
    line.text
}

/// The bytes as printable characters.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c }).collect()
}

/// The path that a system call was told to open, without passwords in addresses.
#[must_use]
pub fn path(path: &str) -> String {
    if path.contains('@') { logins::of_path(path) } else { path.to_owned() }
}

/// The words of a process from its argument area. The environment follows the area in memory: a title that goes on there has
/// overwritten it. After a title that just fills the area the first variable follows, which is not part of the title.
#[must_use]
pub fn title(text: &[u8], area: usize, most: usize) -> Option<String> {
    let (own, over) = text.split_at(area.min(text.len()));
    let variable = over.iter().take_while(|byte| !byte.is_ascii_whitespace()).any(|byte| *byte == b'=');
    let (text, is_cut) = if variable { (own, false) } else { (text, text.len() >= most) };
    Some(command_line(text, is_cut)).filter(|line| !line.is_empty())
}

#[cfg(test)]
#[path = "redact/tests.rs"]
mod tests;
#[cfg(test)]
#[path = "redact/way_tests.rs"]
mod way_tests;
