//! Runs work that may hang in a disposable child: a fork in a session of its own that has only a pipe in common with us. The parent
//! kills it at the deadline and waits for it only a moment: a child that is stuck in state D must not keep whyslow from ending.

use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::priority;

/// The last byte of a child that was not killed before its end. No text has this byte.
pub(crate) const DONE: u8 = 0xff;

/// The time that a killed process gets to give its memory back. On a full host it has to wait for a CPU first; 15 MiB of it were still
/// charged when whyslow itself was killed at its memory limit.
const GONE_WITHIN: Duration = Duration::from_millis(500);

/// What the child wrote until it ended or the deadline came, and whether it ended by itself.
pub struct Told {
    /// The bytes it wrote.
    pub bytes: Vec<u8>,
    /// It was done before the deadline.
    pub finished: bool,
}

/// Run `work` in a child process. Returns what it writes, at most `cap` bytes.
pub fn run(deadline: Duration, cap: usize, work: impl FnOnce(&mut dyn Write)) -> std::io::Result<Told> {
    let (from, to) = pipe()?;
    // SAFETY: the child runs only `work` and `_exit`; no lock of ours is held over the fork by another thread (that of
    // `priority` takes none), and glibc repairs its allocator in the child.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(std::io::Error::last_os_error()),
        0 => be_child(to, work),
        _ => {
            drop(to);
            let mut pipe = File::from(from);
            let mut reported = listen(&mut pipe, deadline, cap);
            // SAFETY: `pid` is our own child, not yet waited for, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            if !reported.finished {
                priority::take_back(pid);
                await_end(&pipe, GONE_WITHIN);
            }
            reported.finished = reported.finished && reported.bytes.pop_if(|last| *last == DONE).is_some();
            // SAFETY: as above.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            Ok(reported)
        }
    }
}

fn be_child(to: OwnedFd, work: impl FnOnce(&mut dyn Write)) -> ! {
    forget_all_but(&[to.into_raw_fd()]);
    priority::inherit();
    // SAFETY: the pipe is kept as the first descriptor, and has no other owner.
    let mut pipe = unsafe { File::from_raw_fd(FIRST_KEPT) };
    // A panic must not unwind into the caller's frames: they belong to the parent.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut pipe)));
    let _ = pipe.write_all(&[DONE]);
    // SAFETY: no destructor of the parent's state may run here.
    unsafe { libc::_exit(0) }
}

/// The number of the first kept descriptor; the others follow it.
const FIRST_KEPT: i32 = 3;

/// Closes all descriptors but these, which get the numbers from `FIRST_KEPT` on.
fn forget_all_but(kept: &[RawFd]) {
    // SAFETY: plain system calls on our own process; numbers of files that were open stay above those they are moved to.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let above: Vec<i32> = kept.iter().map(|fd| libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, 64)).collect();
        let mut next = FIRST_KEPT;
        for fd in above {
            libc::dup2(fd, next);
            next += 1;
        }
        libc::syscall(libc::SYS_close_range, next as u32, u32::MAX, 0u32);
        for fd in 0..3 {
            libc::close(fd);
        }
    }
    be_the_first_to_go();
}

/// If memory runs out, the kernel shall kill neither whyslow nor another process for it, but this child: a setting of this process alone.
fn be_the_first_to_go() {
    // SAFETY: a path that ends in a zero, and four bytes that are there; a descriptor of our own.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, b"1000".as_ptr().cast(), 4);
            libc::close(fd);
        }
    }
}

/// Wait until the pipe has no writer any more: a process that ends gives back its memory first, then its files (kernel/exit.c, do_exit).
fn await_end(pipe: &File, within: Duration) {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut hung_up = libc::pollfd { fd: pipe.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one pollfd, and we say so.
        let n = unsafe { libc::poll(&raw mut hung_up, 1, left.as_millis() as i32) };
        if n > 0 || left.is_zero() {
            return;
        }
    }
}

/// A child that works beside us, until it is done or we end.
pub struct Disposable {
    pid: libc::pid_t,
    /// Requests to the child. Writes do not block.
    pub to: File,
    /// Answers of the child. Reads do not block.
    pub from: File,
}

/// What the child gets from its parent.
pub struct Ends<'e> {
    /// Requests of the parent.
    pub asked: File,
    /// Answers to the parent.
    pub out: &'e mut dyn Write,
    /// The descriptors that it was given, in their order.
    pub kept: &'e [RawFd],
}

/// The child's niceness: names can wait, the tasks of the host cannot.
const NICENESS: i32 = 10;

/// Run `work` in a child process that goes on beside us.
pub fn start(kept: &[RawFd], work: impl FnOnce(Ends<'_>)) -> std::io::Result<Disposable> {
    let ((asked, to), (from, out)) = (pipe()?, pipe()?);
    for fd in [&to, &from] {
        // SAFETY: flags of a descriptor of our own.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    }
    // SAFETY: as in `run`.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            let all: Vec<RawFd> =
                [asked.into_raw_fd(), out.into_raw_fd()].into_iter().chain(kept.iter().copied()).collect();
            forget_all_but(&all);
            let numbers: Vec<RawFd> = (FIRST_KEPT..).take(all.len()).collect();
            // SAFETY: the first two are the pipes, and have no other owner.
            let (asked, mut out) =
                unsafe { (File::from_raw_fd(FIRST_KEPT), File::from_raw_fd(FIRST_KEPT + 1)) };
            // SAFETY: a setting of this process alone.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
            let kept = numbers.get(2..).unwrap_or_default();
            let ends = Ends { asked, out: &mut out, kept };
            // A panic must not unwind into the caller's frames: they belong to the parent.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(ends)));
            let _ = out.write_all(&[DONE]);
            // SAFETY: no destructor of the parent's state may run here.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(Disposable { pid, to: File::from(to), from: File::from(from) }),
    }
}

impl Disposable {
    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// End the child.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Disposable {
    fn drop(&mut self) {
        // SAFETY: `pid` is our own child, not yet waited for, so the number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        await_end(&self.from, GONE_WITHIN);
        // SAFETY: as above.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

fn listen(pipe: &mut File, deadline: Duration, cap: usize) -> Told {
    let until = Instant::now() + deadline;
    let mut reported = Told { bytes: Vec::new(), finished: false };
    let mut chunk = [0; 16384];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut ready = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and we say so.
        let n = unsafe { libc::poll(&raw mut ready, 1, left.as_millis().min(60_000) as i32) };
        if n <= 0 && Instant::now() >= until {
            return reported;
        }
        if n <= 0 {
            continue; // a signal
        }
        match pipe.read(&mut chunk) {
            Ok(0) => {
                reported.finished = true;
                return reported;
            }
            Ok(n) if reported.bytes.len() + n <= cap => reported.bytes.extend_from_slice(&chunk[..n]),
            _ => return reported,
        }
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills both descriptors, and they have no other owner.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_the_child_wrote() {
        let reported = run(Duration::from_secs(20), 1 << 20, |out| drop(out.write_all(b"seen"))).unwrap();
        assert_eq!((reported.bytes.as_slice(), reported.finished), (b"seen".as_slice(), true));
    }

    #[test]
    fn a_child_that_hangs_is_left_at_the_deadline_with_what_it_said() {
        let hang = |out: &mut dyn Write| {
            drop(out.write_all(b"first"));
            loop {
                // SAFETY: pause has no arguments.
                unsafe { libc::pause() };
            }
        };
        let reported = run(Duration::from_millis(500), 1 << 20, hang).unwrap();
        assert_eq!((reported.bytes.as_slice(), reported.finished), (b"first".as_slice(), false));
    }

    #[test]
    fn of_a_child_that_was_killed_at_the_deadline_no_memory_is_left() {
        let hoard = |out: &mut dyn Write| {
            let much = vec![1u8; 32 << 20];
            drop(out.write_all(&std::process::id().to_ne_bytes()));
            loop {
                // SAFETY: pause has no arguments.
                unsafe { libc::pause() };
                std::hint::black_box(&much);
            }
        };
        let reported = run(Duration::from_secs(10), 1 << 20, hoard).unwrap();
        let pid = u32::from_ne_bytes(reported.bytes.as_slice().try_into().unwrap());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        assert!(!reported.finished && !status.contains("VmRSS"), "{status}");
    }

    #[test]
    fn a_child_that_is_killed_has_not_finished() {
        let killed = |out: &mut dyn Write| {
            drop(out.write_all(b"first"));
            // SAFETY: a number of our own process, and a signal.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        };
        let reported = run(Duration::from_secs(20), 1 << 20, killed).unwrap();
        assert_eq!((reported.bytes.as_slice(), reported.finished), (b"first".as_slice(), false));
    }

    #[test]
    fn a_child_that_panics_or_floods_ends() {
        let reported = run(Duration::from_secs(20), 1 << 20, |_| panic!("on purpose")).unwrap();
        assert!(reported.finished && reported.bytes.is_empty());
        let flood = |out: &mut dyn Write| while out.write_all(&[7; 4096]).is_ok() {};
        let reported = run(Duration::from_secs(20), 10_000, flood).unwrap();
        assert!(!reported.finished && reported.bytes.len() <= 10_000);
    }
}
