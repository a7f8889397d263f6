//! NDJSON: lines of bounded length, and a note if some lines make no sense.

use std::io::{self, BufRead};

use super::{limit, shown};

/// The lines of one member.
pub struct Lines<'r> {
    from: &'r mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
    bad: u64,
    first_bad: Option<String>,
}

impl<'r> Lines<'r> {
    /// The lines of `from`.
    pub fn of(from: &'r mut dyn BufRead) -> Self {
        Lines { from, line: Vec::new(), number: 0, bad: 0, first_bad: None }
    }

    /// The next line that is neither blank nor too long, without its newline.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            let whole = self.read_line()?;
            if self.line.is_empty() && whole.is_none() {
                return Ok(None);
            }
            self.number = self.number.saturating_add(1);
            if whole == Some(false) {
                self.is_bad(&format!("it is longer than {} bytes", limit::TEXT));
            } else if !self.line.trim_ascii().is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// Reads up to the end of a line. `None`: the member ended; `Some(false)`: the line is too long.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        let mut fits = true;
        loop {
            let some = self.from.fill_buf()?;
            if some.is_empty() {
                return Ok(if fits { None } else { Some(false) });
            }
            let before = self.line.len();
            let mut rest = some;
            // `read_until` on a slice searches a vector at a time, and cannot fail.
            let used = rest.read_until(b'\n', &mut self.line)?;
            let ended = self.line.len() > before && self.line.last() == Some(&b'\n');
            if ended {
                self.line.pop();
            }
            if !fits || self.line.len() as u64 > limit::TEXT {
                fits = false;
                self.line.clear();
            }
            self.from.consume(used);
            if ended {
                return Ok(Some(fits));
            }
        }
    }

    /// Notes that the line just read makes no sense.
    pub fn is_bad(&mut self, why: &str) {
        self.bad = self.bad.saturating_add(1);
        let number = self.number;
        self.first_bad.get_or_insert_with(|| format!("line {number}: {}", shown(why)));
    }

    /// The text of the note, if some lines make no sense.
    pub fn complaint(&self) -> Option<String> {
        let first = self.first_bad.as_ref()?;
        Some(format!("{} of {} lines make no sense; {first}", self.bad, self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_blank_lines_are_passed_over() {
        let mut text = b"one\n\n".to_vec();
        text.extend(vec![b'x'; 10 << 20]);
        text.extend(b"\ntwo");
        let mut text = io::BufReader::new(text.as_slice());
        let mut lines = Lines::of(&mut text);
        assert_eq!(lines.next().unwrap(), Some(b"one".as_slice()));
        assert_eq!(lines.next().unwrap(), Some(b"two".as_slice()));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!(
            lines.complaint().as_deref(),
            Some("1 of 4 lines make no sense; line 3: it is longer than 1048576 bytes")
        );
    }
}
