//! The tail of the kernel's log from /dev/kmsg: one record a read, escaped by the kernel, never waiting for more.
//!
//! The log may be megabytes and its interesting part is the end, so only the last records are kept.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::root::{Root, status};

/// The longest record the kernel makes (CONSOLE_EXT_LOG_MAX, PRINTKRB_RECORD_MAX) fits.
const RECORD: usize = 8192;
/// Each read is a system call of about 1 us; a log of 16 MiB must not cost more than this.
const LONGEST: Duration = Duration::from_millis(40);

/// The last records, at most `cap` bytes together. `false`: older ones were left out, or newer ones for lack of time.
/// In a folder the log is a file like others: `None`.
pub(super) fn tail(root: &Root, cap: usize, into: &mut Vec<u8>) -> Option<io::Result<bool>> {
    if !root.live {
        return None;
    }
    let fd = match root.open_at(c"dev/kmsg", libc::O_NONBLOCK) {
        Ok(fd) => fd,
        Err(err) => return Some(Err(err)),
    };
    if !status(fd.as_raw_fd()).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFCHR) {
        return None;
    }
    let end = Instant::now() + LONGEST;
    let next = |record: &mut [u8]| {
        // SAFETY: writable for its length.
        let got = unsafe { libc::read(fd.as_raw_fd(), record.as_mut_ptr().cast(), record.len()) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    };
    Some(slide(next, || Instant::now() >= end, cap, into))
}

/// Reads records until there are no more, keeps the last.
fn slide(
    mut next: impl FnMut(&mut [u8]) -> io::Result<usize>,
    mut late: impl FnMut() -> bool,
    cap: usize,
    into: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut record = [0; RECORD];
    let mut kept: VecDeque<u8> = VecDeque::with_capacity(cap.min(1 << 20));
    let mut lengths = VecDeque::new();
    let mut whole = true;
    let mut read = 0_u32;
    loop {
        match next(&mut record) {
            Ok(0) => break,
            Ok(got) => {
                kept.extend(&record[..got.min(RECORD)]);
                lengths.push_back(got.min(RECORD));
            }
            // EPIPE: the record was overwritten while we came for it; the next read is at the oldest that is left.
            Err(err) if matches!(err.raw_os_error(), Some(libc::EPIPE | libc::EINTR)) => {}
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => break,
            Err(err) if lengths.is_empty() => return Err(err),
            Err(_) => break,
        }
        while kept.len() > cap {
            kept.drain(..lengths.pop_front().unwrap_or(kept.len()));
            whole = false;
        }
        read = read.wrapping_add(1);
        if read.is_multiple_of(64) && late() {
            whole = false;
            break;
        }
    }
    into.clear();
    into.extend(kept);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(records: &[Result<&str, i32>], cap: usize) -> io::Result<(String, bool)> {
        let mut records = records.iter();
        let mut text = Vec::new();
        let next = |into: &mut [u8]| match records.next() {
            Some(Ok(record)) => {
                into[..record.len()].copy_from_slice(record.as_bytes());
                Ok(record.len())
            }
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        };
        let whole = slide(next, || false, cap, &mut text)?;
        Ok((String::from_utf8(text).unwrap(), whole))
    }

    #[test]
    fn the_last_records_are_kept_whole() {
        assert_eq!(
            log(&[Ok("one\n"), Ok("two\n"), Ok("three\n")], 11).unwrap(),
            ("two\nthree\n".into(), false)
        );
        assert_eq!(log(&[Ok("one\n")], 11).unwrap(), ("one\n".into(), true));
    }

    #[test]
    fn an_overwritten_record_does_not_end_the_log() {
        assert_eq!(log(&[Ok("1\n"), Err(libc::EPIPE), Ok("2\n")], 99).unwrap().0, "1\n2\n");
    }

    #[test]
    fn an_error_at_once_is_an_error() {
        assert_eq!(log(&[Err(libc::EPERM)], 99).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn a_log_that_does_not_end_is_left() {
        let mut text = Vec::new();
        let whole = slide(
            |into| {
                into[0] = b'\n';
                Ok(1)
            },
            || true,
            10,
            &mut text,
        );
        assert!(!whole.unwrap());
        assert_eq!(text.len(), 10);
    }
}
