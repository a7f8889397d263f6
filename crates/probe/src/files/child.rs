//! A disposable process that reads files that might hurt or hang, and answers through a pipe.
//!
//! A read that waits for a lock of the host waits uninterruptibly: a thread in it would keep whyslow from exiting, and no
//! signal ends it. So the reader is a process of its own, in its own session, with no descriptor of ours but the pipe
//! (an inherited BPF descriptor would keep our programs attached for as long as it hangs), and the parent never waits for it
//! beyond the deadline. One per host: a stuck reader holds a socket name, and the next run of whyslow leaves the hazardous files out.
//!
//! Between fork and _exit the child allocates nothing: another thread of the parent may have held malloc's lock.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::priority;

/// The parent keeps no more than this of a child's answers.
const MOST_ANSWERED: usize = 32 << 20;

/// One answer: header, then `len` bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// The file's place in the list; or `STOPPED`, `OTHER`.
    pub index: u32,
    /// 0, or the error.
    pub errno: i32,
    /// How long reading took, without the time that the child waited for a CPU.
    pub took_ns: u64,
    /// Bytes that follow.
    pub len: u32,
    /// There was more than the cap.
    pub cut: u32,
}

// SAFETY: integers only, and no padding: 4 + 4 + 8 + 4 + 4.
unsafe impl plain::Plain for Header {}

/// The read before this answer was too slow.
pub(super) const STOPPED: u32 = u32::MAX;
/// Another child is reading, or stuck.
pub(super) const OTHER: u32 = u32::MAX - 1;

/// The results of a child.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Whole answers, in order.
    pub all: Vec<(Header, Vec<u8>)>,
    /// The deadline passed before the child was done.
    pub late: bool,
    /// The child, if it is not gone yet.
    pub stray: Option<libc::pid_t>,
}

/// The child's end of the pipe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pipe(RawFd);

impl Pipe {
    /// Writes one answer; ends the child if the parent is gone.
    pub fn answer(self, header: Header, bytes: &[u8]) {
        // SAFETY: a Header is plain bytes without padding.
        self.write(unsafe { plain::as_bytes(&header) });
        self.write(bytes);
    }

    fn write(self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // SAFETY: readable for its length.
            let sent = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            if sent > 0 {
                bytes = bytes.get(sent as usize..).unwrap_or_default();
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // SAFETY: ends this process, which is the child.
                unsafe { libc::_exit(2) }
            }
        }
    }
}

/// Runs `body` in a child until it is done or `deadline` has passed. `body` must not allocate.
pub(super) fn run(deadline: Duration, cpus: Option<&[u64]>, body: impl FnOnce(Pipe)) -> io::Result<Answers> {
    let end = Instant::now() + deadline;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and ours.
    let [from, to] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: no arguments.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child calls nothing that allocates or takes a lock of this process, and never returns.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _never = Leave; // also if `body` panics: a second copy of the program must not go on
            leave_home(parent, to.as_raw_fd(), cpus);
            body(Pipe(to.as_raw_fd()));
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
        _ => {
            drop(to);
            Ok(listen(&from, pid, end))
        }
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        // SAFETY: ends the child.
        unsafe { libc::_exit(3) }
    }
}

/// A session of its own, no descriptors but the pipe, ended when the parent ends, on CPUs that serve no NIC.
fn leave_home(parent: libc::pid_t, pipe: RawFd, cpus: Option<&[u64]>) {
    const NAME: &CStr = c"whyslow-files";
    // SAFETY: plain system calls on this process; the pointers are good for their lengths.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(4);
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        close_all_but(pipe);
        if let Some(set) = cpus {
            // Refused where a cpuset forbids these CPUs: then it runs where it is allowed to.
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(set), set.as_ptr());
        }
        priority::inherit();
    }
}

/// close_range is Linux 5.9; before, descriptors are closed one by one.
unsafe fn close_all_but(keep: RawFd) {
    // SAFETY: closing descriptors of this process, which has no other use for them.
    unsafe {
        let below = keep == 0 || libc::syscall(libc::SYS_close_range, 0, keep - 1, 0) == 0;
        let above = libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0) == 0;
        if !(below && above) {
            let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            for fd in (0..limit.rlim_cur.min(65_536) as RawFd).filter(|fd| *fd != keep) {
                libc::close(fd);
            }
        }
    }
}

/// Collects answers until the child is done or `end` has come.
fn listen(from: &OwnedFd, pid: libc::pid_t, end: Instant) -> Answers {
    let mut bytes = Vec::new();
    let mut done = false;
    while !done && bytes.len() < MOST_ANSWERED && readable_before(from, end) {
        let have = bytes.len();
        bytes.resize(have + (64 << 10), 0);
        // SAFETY: the tail of `bytes` is writable.
        let got = unsafe { libc::read(from.as_raw_fd(), bytes[have..].as_mut_ptr().cast(), 64 << 10) };
        bytes.truncate(have + usize::try_from(got).unwrap_or(0));
        done = got == 0 || (got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted);
    }
    if !done {
        // SAFETY: our child, not waited for yet, so the number is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        priority::take_back(pid);
    }
    // A child that has closed its pipe has little left to do; one that was killed dies at once, or hangs.
    let grace = if done { end.max(Instant::now() + Duration::from_millis(20)) } else { Instant::now() };
    Answers { all: split(&bytes), late: !done, stray: (!reaped_before(pid, grace)).then_some(pid) }
}

fn readable_before(fd: &OwnedFd, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis().clamp(1, 60_000) as i32) };
        if ready > 0 {
            return true;
        }
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Whether the child is gone; looks again until `end`, but never hangs in wait.
pub(super) fn reaped_before(pid: libc::pid_t, end: Instant) -> bool {
    loop {
        // SAFETY: no status wanted.
        let got = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        if got != 0 {
            return true; // gone, or another thread has waited for it
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200)); // pidfds are Linux 5.3; an exit takes less than this
    }
}

/// Whole answers; a torn last one is left out.
fn split(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(size_of::<Header>()) {
        let mut header = Header::default();
        if plain::copy_from_bytes(&mut header, head).is_err() {
            break;
        }
        let Some((body, rest)) = rest.split_at_checked(header.len as usize) else { break };
        all.push((header, body.to_vec()));
        bytes = rest;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn header(index: u32, len: usize) -> Header {
        Header { index, len: len as u32, ..Header::default() }
    }

    #[test]
    fn answers_come_through_the_pipe_and_the_child_is_gone() {
        let answers = run(LONG, None, |pipe| pipe.answer(header(7, 5), b"hello")).unwrap();
        assert_eq!(answers.all, [(header(7, 5), b"hello".to_vec())]);
        assert!(!answers.late);
        assert_eq!(answers.stray, None);
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_what_it_said_before_is_kept() {
        let answers = run(Duration::from_millis(300), None, |pipe| {
            pipe.answer(header(1, 2), b"ok");
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        })
        .unwrap();
        assert_eq!(answers.all.len(), 1);
        assert!(answers.late);
        let gone = answers.stray.is_none_or(|pid| reaped_before(pid, Instant::now() + LONG));
        assert!(gone);
    }

    #[test]
    fn the_child_has_no_descriptor_but_the_pipe_and_a_session_of_its_own() {
        let answers = run(LONG, None, |pipe| {
            let open = |fd: &i32| {
                // SAFETY: asks for flags only.
                *fd != pipe.0 && unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0
            };
            let others = (0..1024).filter(open).count() as u64;
            // SAFETY: no arguments that could be wrong.
            let leads = unsafe { libc::getsid(0) == libc::getpid() };
            pipe.answer(Header { took_ns: others, cut: u32::from(leads), ..Header::default() }, &[]);
        })
        .unwrap();
        assert_eq!((answers.all[0].0.took_ns, answers.all[0].0.cut), (0, 1));
    }

    #[test]
    fn a_panic_in_the_child_ends_the_child() {
        let answers = run(LONG, None, |_| {
            if std::hint::black_box(true) {
                // The message would allocate; unwinding alone is what the guard must stop.
                std::panic::resume_unwind(Box::new(()));
            }
        })
        .unwrap();
        assert_eq!(answers.all, []);
        assert!(!answers.late);
    }

    #[test]
    fn a_torn_answer_is_left_out() {
        let torn = header(1, 3);
        // SAFETY: plain bytes.
        let mut bytes = unsafe { plain::as_bytes(&torn) }.to_vec();
        bytes.extend(b"abc");
        let whole = bytes.len();
        bytes.extend_from_within(..whole - 1);
        assert_eq!(split(&bytes).len(), 1);
        assert_eq!(split(&[]).len(), 0);
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            split(&bytes);
        }
    }
}
