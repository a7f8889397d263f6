//! /proc/kallsyms, read once per run: printing it costs the kernel 40 ms of CPU, and three parts of whyslow need it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::path::PathBuf;

/// Distributions with many modules have 20 MB of symbols.
const MOST: u64 = 64 << 20;

/// The kernel's symbols, as the kernel printed them.
#[derive(Default)]
pub struct Kallsyms {
    text: Vec<u8>,
    copy: Option<File>,
}

#[cfg(test)]
impl From<&[u8]> for Kallsyms {
    fn from(text: &[u8]) -> Self {
        Kallsyms { text: text.to_vec(), copy: None }
    }
}

impl Kallsyms {
    /// Read them. A file that is empty, or has only zeros for addresses (not root), gives no symbols.
    #[must_use]
    pub fn read() -> Self {
        let mut text = Vec::new();
        // What could be read before an error is kept: names are a convenience.
        let _ = File::open("/proc/kallsyms").map(|file| file.take(MOST).read_to_end(&mut text));
        let copy = in_memory(c"kallsyms", &text).ok();
        Kallsyms { text, copy }
    }

    /// The address of a kernel function or, where the kernel lists data, a variable.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<u64> {
        address_in(&self.text, name)
    }

    /// A path to the same text, for callers that need a file.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.copy.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}

fn address_in(text: &[u8], name: &str) -> Option<u64> {
    let line = text
        .split(|b| *b == b'\n')
        .find(|line| line.strip_suffix(name.as_bytes()).is_some_and(|rest| rest.last() == Some(&b' ')))?;
    let hex = std::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
    u64::from_str_radix(hex, 16).ok().filter(|address| *address != 0)
}

/// A file with these bytes that exists only in memory.
pub(crate) fn in_memory(name: &std::ffi::CStr, text: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is a C string; the descriptor is new and has no other owner.
    let mut file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.write_all(text)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"ffffffff81000000 T _text\nffffffff81001000 t do_one\nffffffffc0001000 t do_one_more\t[mod]\n\
                          0000000000000000 T hidden\n";

    #[test]
    fn finds_whole_names_only() {
        assert_eq!(address_in(TEXT, "do_one"), Some(0xffff_ffff_8100_1000));
        assert_eq!(address_in(TEXT, "one"), None);
        assert_eq!(address_in(TEXT, "hidden"), None);
        assert_eq!(address_in(b"garbage\n\xff\xfe x", "x"), None);
    }

    #[test]
    fn root_this_kernel_can_schedule() {
        let symbols = Kallsyms::read();
        assert!(symbols.address("schedule").is_some());
        assert_eq!(std::fs::read(symbols.path().unwrap()).unwrap(), symbols.text);
    }
}
