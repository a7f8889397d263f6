//! What the disposable child does: read files in order, answer each, stop at the first that is too slow.
//!
//! Nothing here allocates: it runs between fork and _exit.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use super::child::{Header, OTHER, Pipe, STOPPED};
use super::root::{open_below, open_dir, read_at, regular};
use crate::host;

/// If a read takes longer than this, other processes wait as well: the child stops. By its own clock: the time in which the child was
/// ready but not running is not the file's fault.
pub(super) const TOO_SLOW: Duration = Duration::from_millis(5);
/// The child's work: read the files in order, answer each, stop at the first that is too slow.
pub(super) fn read_all(
    pipe: Pipe,
    root: &CStr,
    live: bool,
    only_one: Option<&[u8]>,
    files: &[(&CStr, usize)],
    into: &mut [u8],
) {
    // The socket is closed, and its name free, when this process is gone: also if it was killed.
    if only_one.is_some_and(|name| !claim(name)) {
        return pipe.answer(Header { index: OTHER, ..Header::default() }, &[]);
    }
    let Ok(root) = open_dir(root) else { return };
    let clock = Clock::new();
    for (index, (path, cap)) in files.iter().enumerate() {
        let before = clock.now();
        let room = into.get_mut(..cap.saturating_add(1)).map_or(0, |room| room.len());
        let got = read_one(root.as_raw_fd(), path, live, into.get_mut(..room).unwrap_or_default());
        let took_ns = clock.now().saturating_sub(before);
        let errno = got.as_ref().err().map_or(0, |err| err.raw_os_error().unwrap_or(libc::EIO));
        let len = got.unwrap_or(0);
        let kept = len.min(*cap);
        let header =
            Header { index: index as u32, errno, took_ns, len: kept as u32, cut: u32::from(len > *cap) };
        pipe.answer(header, into.get(..kept).unwrap_or_default());
        if took_ns > TOO_SLOW.as_nanos() as u64 {
            return pipe.answer(Header { index: STOPPED, took_ns, ..Header::default() }, &[]);
        }
    }
}

fn read_one(root: RawFd, path: &CStr, live: bool, into: &mut [u8]) -> io::Result<usize> {
    struct Open(RawFd);
    impl Drop for Open {
        fn drop(&mut self) {
            // SAFETY: opened by us, closed once.
            unsafe { libc::close(self.0) };
        }
    }
    if !live {
        let there = Open(open_below(root, path, live, libc::O_PATH)?);
        regular(there.0)?;
    }
    let file = Open(open_below(root, path, live, libc::O_NONBLOCK)?);
    regular(file.0)?;
    let mut have = 0;
    while let Some(room) = into.get_mut(have..).filter(|room| !room.is_empty()) {
        match read_at(file.0, room, have)? {
            0 => break,
            got => have += got,
        }
    }
    Ok(have)
}

/// Binds a name in the abstract namespace of Unix sockets: it leaves no file, and lasts as long as the process.
fn claim(name: &[u8]) -> bool {
    // SAFETY: a zeroed sockaddr_un is valid; the length given covers what was written.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let room = address.sun_path.iter_mut().skip(1);
        room.zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
        let len = size_of::<libc::sa_family_t>() + 1 + name.len().min(address.sun_path.len() - 1);
        let bound = libc::bind(fd, (&raw const address).cast(), len as libc::socklen_t);
        bound == 0 || *libc::__errno_location() != libc::EADDRINUSE
    }
}

/// Time that passed, without the time this task was ready and not running (where the kernel counts it).
struct Clock {
    schedstat: RawFd,
}

impl Clock {
    fn new() -> Clock {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends with a NUL. Without the file, all time counts.
        Clock { schedstat: unsafe { libc::open(c"/proc/self/schedstat".as_ptr(), flags) } }
    }

    fn now(&self) -> u64 {
        host::monotonic_ns().saturating_sub(self.delay().unwrap_or(0))
    }

    /// The second number of schedstat: run_delay.
    fn delay(&self) -> Option<u64> {
        let mut text = [0_u8; 96];
        let got = read_at(self.schedstat, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..got)?).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::child::run;
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn two_children_cannot_be_at_work_at_once() {
        let name = format!("whyslow-test-{}", std::process::id());
        let taken = run(LONG, None, |pipe| {
            let first = claim(name.as_bytes());
            let second = claim(name.as_bytes());
            pipe.answer(
                Header { index: u32::from(first), len: 0, cut: u32::from(second), ..Header::default() },
                &[],
            );
        })
        .unwrap();
        assert!(taken.all[0].0.cut == 0);
        let again = run(LONG, None, |pipe| {
            pipe.answer(Header { index: u32::from(claim(name.as_bytes())), ..Header::default() }, &[]);
        });
        assert_eq!(again.unwrap().all[0].0.index, 1);
    }

    #[test]
    fn files_are_read_and_errors_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "12345").unwrap();
        let root = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        let files = [(c"a", 4), (c"none", 4), (c"a", 100)];
        let mut buffer = vec![0; 101];
        let answers =
            run(LONG, None, |pipe| read_all(pipe, &root, false, None, &files, &mut buffer)).unwrap();
        let read: Vec<_> = answers.all.iter().filter(|(h, _)| h.index < OTHER).collect();
        assert_eq!((read[0].0.cut, &read[0].1[..]), (1, &b"1234"[..]));
        // A read of a temporary file is over 5 ms only on a stalled host; then the child stops, as it should.
        if let Some((header, _)) = read.get(1) {
            assert_eq!(header.errno, libc::ENOENT);
        }
    }
}
