//! A page of so many columns: words are wrapped, commands and paths are never broken.

use crate::Style;
use crate::safe::{columns, columns_of, plain, shortened};

/// Columns of a page, where no terminal says otherwise.
const WIDTH: usize = 80;
/// Fewer columns than these nobody reads a report in.
const NARROWEST: usize = 60;
/// Lines that are longer are hard to read.
const WIDEST: usize = 120;

/// What a line is, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Heading,
    Cause,
    Risk,
    Command,
    Faint,
}

impl Ink {
    fn code(self) -> Option<&'static str> {
        match self {
            Ink::Plain => None,
            Ink::Heading => Some("\x1b[1m"),
            Ink::Cause => Some("\x1b[1;31m"),
            Ink::Risk => Some("\x1b[33m"),
            Ink::Command => Some("\x1b[36m"),
            Ink::Faint => Some("\x1b[2m"),
        }
    }
}

/// A paragraph of 80 columns: its first line begins with `first`, the others are indented as far. `text` may hold anything.
#[must_use]
pub fn paragraph(first: &str, text: &str) -> String {
    let mut page = Page::new(&Style::default());
    page.say(first, text, Ink::Plain);
    page.finish()
}

/// Where the end of something is left out.
const CUT: &str = " ..";

/// Lines of text so far.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    colour: bool,
    width: usize,
}

impl Page {
    pub(crate) fn new(style: &Style) -> Self {
        let width = style.columns.map_or(WIDTH, |columns| usize::from(columns).clamp(NARROWEST, WIDEST));
        Page { text: String::new(), colour: style.colour, width }
    }

    /// An empty one of the same looks.
    pub(crate) fn part(&self) -> Self {
        Page { text: String::new(), ..*self }
    }

    pub(crate) fn add(&mut self, part: &Page) {
        self.text.push_str(&part.text);
    }

    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// It is one line.
    pub(crate) fn is_line(&self, hang: usize, text: &str) -> bool {
        columns(&plain(text)) + hang <= self.width
    }

    /// No word of it has to be shortened in what is left of a line.
    pub(crate) fn fits(&self, hang: usize, text: &str) -> bool {
        words(&plain(text)).iter().all(|word| columns(word) <= self.width.saturating_sub(hang))
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// One line as it is, never wrapped: `text` must be safe already.
    fn line(&mut self, text: &str, ink: Ink) {
        let text = text.trim_end();
        match ink.code() {
            Some(code) if self.colour => {
                self.text.push_str(code);
                self.text.push_str(text);
                self.text.push_str("\x1b[0m");
            }
            _ => self.text.push_str(text),
        }
        self.text.push('\n');
    }

    /// A command, on a line of its own, not broken, so that it can be copied.
    pub(crate) fn command(&mut self, indent: usize, command: &str) {
        self.line(&format!("{:indent$}$ {}", "", plain(command)), Ink::Command);
    }

    /// The same behind a label.
    pub(crate) fn labelled_command(&mut self, label: &str, command: &str) {
        self.line(&format!("{label}$ {}", plain(command)), Ink::Command);
    }

    /// A line of a table: already laid out, `text` made of safe parts.
    pub(crate) fn row(&mut self, text: &str, ink: Ink) {
        self.line(text, ink);
    }

    /// A paragraph: its first line begins with `first`, the others are indented as far.
    pub(crate) fn say(&mut self, first: &str, text: &str, ink: Ink) {
        self.flow(first, columns(first), text, ink, pieces);
    }

    /// A paragraph that keeps to the page whatever is in it: a word that does not fit loses its middle. Its other
    /// lines are indented by `hang` columns.
    pub(crate) fn tell(&mut self, first: &str, hang: usize, text: &str, ink: Ink) {
        self.flow(first, hang, text, ink, |word, room| vec![shortened(word, room)]);
    }

    /// A paragraph of at most so many lines: what is left out at its end is ".."; no word is longer than a line.
    pub(crate) fn brief(&mut self, first: &str, text: &str, most: usize, ink: Ink) {
        let mut lines = self.folded(first, columns(first), text, |word, room| vec![shortened(word, room)]);
        if lines.len() > most {
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                // A unit goes with its number.
                let is_unit = |line: &str| is_unit(line.rsplit(' ').next().unwrap_or(""));
                while columns(last) + CUT.len() > self.width && last.contains(' ') {
                    let both = if is_unit(last) { 2 } else { 1 };
                    (0..both).for_each(|_| last.truncate(last.rfind(' ').unwrap_or(0)));
                }
                let kept = last.trim_end_matches([' ', ',', ';', ':', '.']).len();
                last.truncate(kept);
                *last = shortened(last, self.width.saturating_sub(CUT.len()));
                last.push_str(CUT);
            }
        }
        lines.iter().for_each(|line| self.line(line, ink));
    }

    fn flow(
        &mut self,
        first: &str,
        hang: usize,
        text: &str,
        ink: Ink,
        cut: impl Fn(&str, usize) -> Vec<String>,
    ) {
        let lines = self.folded(first, hang, text, cut);
        lines.iter().for_each(|line| self.line(line, ink));
    }

    fn folded(
        &self,
        first: &str,
        hang: usize,
        text: &str,
        cut: impl Fn(&str, usize) -> Vec<String>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = first.to_owned();
        let mut used = columns(first);
        let room = self.width.saturating_sub(hang.max(used));
        let mut fresh = true;
        for piece in words(&plain(text)).iter().flat_map(|word| cut(word, room)) {
            let space = usize::from(!fresh);
            if !fresh && used + space + columns(&piece) > self.width {
                lines.push(std::mem::replace(&mut line, " ".repeat(hang)));
                used = hang;
                fresh = true;
            }
            if !fresh {
                line.push(' ');
                used += 1;
            }
            line.push_str(&piece);
            used += columns(&piece);
            fresh = false;
        }
        lines.push(line);
        lines
    }
}

const UNITS: [&str; 10] = ["s", "ms", "us", "%", "B", "KiB", "MiB", "GiB", "TiB", "CPU"];

fn is_unit(word: &str) -> bool {
    UNITS.contains(&word.trim_end_matches([',', ';', '.', ':', ')']))
}

/// The words of `text`; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let is_unit = is_unit(word);
        match words.last_mut() {
            Some(number)
                if is_unit && number.len() < 20 && number.ends_with(|c: char| c.is_ascii_digit()) =>
            {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// A word that does not fit a line, in pieces that do; a path stays whole.
fn pieces(word: &str, room: usize) -> Vec<String> {
    if columns(word) <= room || word.contains('/') {
        return vec![word.to_owned()];
    }
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        if used + columns_of(c) > room {
            pieces.push(String::new());
            used = 0;
        }
        used += columns_of(c);
        if let Some(last) = pieces.last_mut() {
            last.push(c);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(first: &str, text: &str) -> String {
        let mut page = Page::new(&Style::default());
        page.say(first, text, Ink::Plain);
        page.finish()
    }

    #[test]
    fn words_wrap_under_the_first_line() {
        let text = said("  not  ", &"word ".repeat(30));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|l| columns(l) <= WIDTH));
        assert!(lines[0].starts_with("  not  word") && lines[1].starts_with("       word"), "{text}");
    }

    #[test]
    fn a_number_is_not_parted_from_its_unit() {
        for pad in 60..80 {
            let text = said("", &format!("{} 15.2 s, 40 %. end", "x".repeat(pad)));
            assert!(text.contains("15.2 s,") && text.contains("40 %."), "{text}");
        }
    }

    #[test]
    fn a_path_is_not_broken_and_a_long_name_is() {
        let path = format!("/{}", "x".repeat(100));
        assert!(said("", &format!("see {path} there")).lines().any(|l| l == path));
        assert!(said("    ", &"y".repeat(200)).lines().all(|l| columns(l) <= WIDTH));
    }

    #[test]
    fn long_words_and_wide_characters_stay_within_the_page_width() {
        let mut page = Page::new(&Style::default());
        page.tell("   held by ", 5, &format!("/{} {} end", "x".repeat(300), "数".repeat(100)), Ink::Plain);
        let text = page.finish();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|l| columns(l) <= WIDTH), "{text}");
        assert!(lines[0].starts_with("   held by /xx") && lines[1].starts_with("     数"), "{text}");
    }

    #[test]
    fn colour_ends_where_the_line_ends() {
        let mut page = Page::new(&Style { colour: true, ..Style::default() });
        page.say("", &"word ".repeat(30), Ink::Cause);
        for line in page.finish().lines() {
            assert!(line.starts_with("\x1b[1;31m") && line.ends_with("\x1b[0m"), "{line:?}");
        }
    }
}
