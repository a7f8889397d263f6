//! Command lines without secrets: what goes into a recording.
//!
//! Who asks for help sends a recording away, and command lines hold passwords. So a value goes where its name says that it is
//! one, and a word goes that looks like one. Rather one too many: a report needs the program and what it was told to run.

#[path = "redact/line.rs"]
mod line;
#[path = "redact/logins.rs"]
mod logins;
#[path = "redact/names.rs"]
mod names;
#[path = "redact/tokens.rs"]
mod tokens;

use whyslow_model::table::BETWEEN_ARGUMENTS;

/// What stands in a secret's place.
pub const HIDDEN: &str = "***";

/// An argument area as a line: words with single blanks between them, arguments with `BETWEEN_ARGUMENTS`, no other control
/// characters, no secrets.
///
/// `is_cut`: there was more of it. The last word is a part then, which no longer looks like what it is.
#[must_use]
pub fn command_line(area: &[u8], is_cut: bool) -> String {
    let mut arguments: Vec<String> = area.split(|byte| matches!(*byte, 0 | 0x1f)).map(printable).collect();
    if is_cut && let Some(last) = arguments.last_mut() {
        let whole = last.rfind(' ').map_or(0, |at| at + 1);
        last.truncate(whole);
        last.push_str("...");
    }
    let mut line = hide(arguments.iter().map(String::as_str));
    // Of one line other words stand together than of arguments, and again of what is left of it: what is hidden then, is hidden at once.
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

/// Of a hundred thousand lines that were drawn, of quotes and names, none took as many.
const PASSES: usize = 24;

fn hide<'a>(arguments: impl Iterator<Item = &'a str>) -> String {
    let mut line = line::Line::default();
    arguments.for_each(|argument| line.argument(argument));
    line.text
}

/// Characters that can be printed in a row, whatever the bytes are.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c }).collect()
}

/// What a system call was told to open, without passwords of addresses.
#[must_use]
pub fn path(path: &str) -> String {
    if path.contains('@') { logins::of_path(path) } else { path.to_owned() }
}

/// The words of a process, from what its argument area held. Behind the area lies the environment: a title that goes on there has
/// driven that out, but one that just fills the area is followed by the first variable, which is none of it.
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
