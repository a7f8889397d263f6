//! Names come from strangers: a process may call itself "\x1b]0;...". Nothing that moves a cursor, changes a
//! colour, breaks a line or turns the direction of writing reaches a terminal raw.
//!
//! A backslash stays as it is: unit names hold `\x2d` in earnest, and commands must stay what they are.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Whether a terminal would act on `c`, hide it, or let it move its neighbours.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, direction overrides
            | '\u{2060}'..='\u{206f}' // invisible operators, direction isolates
            | '\u{fff9}'..='\u{fffb}' // interlinear annotation
            | '\u{e0000}'..='\u{e007f}') // tags: invisible letters
}

/// `text` with each unsafe character written out: `\x1b`, `\x0a`, `\u{202e}`.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if !is_unsafe(c) => out.push(c),
            _ if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32).expect("a String takes all"),
            _ => write!(out, "\\u{{{:x}}}", c as u32).expect("a String takes all"),
        }
    }
    out
}

/// Columns that `c` takes on a terminal: East Asian letters and pictures take two, combining marks none.
#[must_use]
pub fn columns_of(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// Columns that `text` takes on a terminal.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// `text` in at most `room` columns. What is cut out is the middle: paths differ at their ends.
#[must_use]
pub fn shortened(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let (head, tail) = ends(text, room);
    format!("{head}..{tail}")
}

/// The same of words, of which none is cut, as long as whole ones are left at that end: half of a number is another number.
#[must_use]
pub fn shortened_by_words(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let (head, tail) = ends(text, room);
    let head = head.rsplit_once(' ').map_or_else(|| head.clone(), |(words, _)| format!("{words} "));
    let tail = tail.split_once(' ').map_or_else(|| tail.clone(), |(_, words)| format!(" {words}"));
    format!("{head}..{tail}")
}

/// What is left of both ends.
fn ends(text: &str, room: usize) -> (String, String) {
    let kept = room.saturating_sub(2);
    let tail_room = kept - kept / 3;
    let fits = |chars: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut used = 0;
        chars
            .take_while(|c| {
                used += columns_of(*c);
                used <= room
            })
            .collect()
    };
    let head: String = fits(&mut text.chars(), kept / 3).into_iter().collect();
    let tail: String = fits(&mut text.chars().rev(), tail_room).into_iter().rev().collect();
    (head, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_format_characters_are_escaped() {
        assert_eq!(plain("a\x1b[31mb\nc\td\x7f\u{9b}"), "a\\x1b[31mb\\x0ac\\x09d\\x7f\\x9b");
        assert_eq!(plain("exe\u{202e}gpj.\u{200b}\u{2028}"), "exe\\u{202e}gpj.\\u{200b}\\u{2028}");
    }

    #[test]
    fn honest_names_stay_as_they_are() {
        for name in ["system-serial\\x2dgetty.slice", "größe", "数据库", "a b;c'd\"e", "🦀"] {
            assert_eq!(plain(name), name);
        }
    }

    #[test]
    fn a_long_path_keeps_both_ends() {
        let short = shortened("/kubepods.slice/kubepods-burstable.slice/cri-containerd-0123456789.scope", 30);
        assert_eq!(columns(&short), 30);
        assert!(short.starts_with("/kubepods") && short.ends_with("0123456789.scope"), "{short}");
        assert!(columns(&shortened("数据库数据库数据库数据库", 9)) <= 9);
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("abcdef", 0), "..");
    }

    #[test]
    fn a_list_of_numbers_has_no_half_ones() {
        let all: Vec<String> = (0..40).map(|n| (1_234_567 + n).to_string()).collect();
        for room in 30..60 {
            let short = shortened_by_words(&all.join(", "), room);
            assert!(columns(&short) <= room, "{room}: {short}");
            let numbers = short.split([' ', ',', '.']).filter(|number| !number.is_empty());
            assert!(numbers.clone().all(|number| all.iter().any(|known| known == number)), "{room}: {short}");
        }
        assert_eq!(shortened_by_words("7, 8", 44), "7, 8");
        assert_eq!(shortened_by_words("/a/very/long/path/to/a/command", 12), "/a/..command");
        assert_eq!(shortened_by_words("make -C /a/very/long/path all", 20), "make .. all");
    }
}
