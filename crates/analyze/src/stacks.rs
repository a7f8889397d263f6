//! Stacks and system calls: what tasks did on a CPU, in which call, and the pictures of it.

use std::borrow::Cow;

pub mod calls;
pub mod doing;
pub mod flame;
pub mod syscalls;

/// A frame of a program, as one row of what it did: its function; for Python the function without the line, for a stripped program the
/// address at which the function begins (`redis+0x1628f0 (build id 01ab, function)`), and if that is not known the file.
#[must_use]
pub fn named_or_file(frame: &str) -> Cow<'_, str> {
    if let Some((place, id)) = frame.split_once(" (build id ").filter(|(place, _)| place.contains("+0x")) {
        let is_function = id.ends_with(", function)");
        let file = || place.rsplit_once("+0x").map_or(place, |(file, _)| file);
        return if is_function { place.into() } else { file().into() };
    }
    let line = frame.strip_suffix(')').and_then(|rest| rest.rsplit_once(':'));
    match line {
        Some((named, line)) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{named})").into()
        }
        _ => frame.into(),
    }
}

/// The function of a frame: without "+0x1f/0x80", " [module]" and suffixes of compilers (".isra.0", ".constprop.0").
#[must_use]
pub fn symbol(frame: &str) -> &str {
    let end = frame.find(['+', ' ', '.', '[']).unwrap_or(frame.len());
    frame.get(..end).unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_one_row_whatever_line_or_instruction_was_met() {
        for (frame, row) in [
            ("main", "main"),
            ("gzip+0x4710 (build id 5dc767c02e18, function)", "gzip+0x4710"),
            ("gzip+0x4713 (build id 5dc767c02e18)", "gzip"),
            ("Report.sum (/srv/report.py:12)", "Report.sum (/srv/report.py)"),
            ("operator()(int)", "operator()(int)"),
            ("f (a:b)", "f (a:b)"),
            ("", ""),
        ] {
            assert_eq!(named_or_file(frame), row);
        }
    }
}
