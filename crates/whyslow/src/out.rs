//! whyslow writes the answer to stdout, and everything else to stderr.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context as _, Result};
use whyslow_report::safe::plain;

/// Prints `text`. A closed pipe is no error: its reader has read enough.
pub fn say(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(err) if err.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// A remark for the user. A closed stderr is no reason to stop.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "whyslow: {}", plain(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed(ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        assert!(say(&mut Closed(ErrorKind::BrokenPipe), "x").is_ok());
        let error = say(&mut Closed(ErrorKind::StorageFull), "x").unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write to standard output: "), "{error:#}");
    }
}
