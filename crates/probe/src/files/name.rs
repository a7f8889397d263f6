//! Names of snapshots: any bytes the kernel lets a cgroup or device be called, as text that may be printed.
//!
//! A control character, DEL or a byte that is not UTF-8 becomes `\ooo` (three octal digits), as in mountinfo; so does
//! the backslash itself on a live host, so that no two names become one. In a folder the backslash stays: there the names
//! were written by whyslow, and reading an unpacked recording must give the names of the recording.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;

/// The printable form of `raw`, one path component or several.
pub(super) fn printable(raw: &[u8], live: bool) -> String {
    let mut name = String::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_invisible(c) || (live && c == '\\') {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| octal(byte, &mut name));
            } else {
                name.push(c);
            }
        }
        chunk.invalid().iter().for_each(|&byte| octal(byte, &mut name));
    }
    name
}

/// Characters that steer how a line is shown: a name must not turn the text around it (U+202E) or hide in it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn octal(byte: u8, name: &mut String) {
    let _ = write!(name, "\\{byte:03o}"); // a String takes everything
}

/// The bytes that `name` was made of. Text that is no escape stays as it is.
#[must_use]
pub fn raw_name(name: &str) -> OsString {
    let bytes = name.as_bytes();
    let mut raw = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).filter(|_| byte == b'\\');
        let value =
            digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        raw.push(value.unwrap_or(byte));
        at += if value.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(raw)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_cannot_speak_to_the_terminal() {
        assert_eq!(printable(b"a\nb\x1b[2J", true), "a\\012b\\033[2J");
        assert_eq!(printable("we\u{202e}b".as_bytes(), true), "we\\342\\200\\256b");
        assert_eq!(printable("gr\u{fc}n".as_bytes(), true), "gr\u{fc}n");
        assert_eq!(printable(b"\xff", false), "\\377");
    }

    #[test]
    fn an_unpacked_recording_gives_the_names_of_the_recording() {
        let recorded = printable(b"a\nb\\c", true);
        assert_eq!(printable(recorded.as_bytes(), false), recorded);
    }

    proptest! {
        #[test]
        fn the_bytes_survive(raw in proptest::collection::vec(any::<u8>(), 0..64)) {
            let name = printable(&raw, true);
            prop_assert!(!name.chars().any(char::is_control));
            let back = raw_name(&name);
            prop_assert_eq!(back.as_bytes(), &raw[..]);
        }
    }
}
