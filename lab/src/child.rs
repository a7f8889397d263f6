//! Child processes: no child outlives the driver, and waiting for a child ends at a limit or at a signal.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Trouble, interrupt};

/// Number of bytes of a failed program's output that an error shows.
const TAIL: usize = 4000;

/// A child that is killed and reaped when it goes out of scope.
pub struct Owned(Child);

/// How waiting for a child ended.
#[derive(Debug)]
pub enum Waited {
    /// It ended by itself.
    Ended(ExitStatus),
    /// The limit came first; the child still runs.
    TimedOut,
    /// The driver got a signal to stop; the child still runs.
    Interrupted,
}

impl Owned {
    /// Start `command`, which the kernel will kill if this thread dies.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        die_with_parent(command).spawn().map(Self)
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Wait for the end, the limit or a signal.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Waited> {
        let began = Instant::now();
        let fd = pidfd(self.0.id())?;
        loop {
            // Checked first: a terminal's signal reaches the child, too, and its exit is then no answer.
            if interrupt::asked() {
                return Ok(Waited::Interrupted);
            }
            if let Some(status) = self.0.try_wait()? {
                return Ok(Waited::Ended(status));
            }
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(Waited::TimedOut);
            }
            poll(&fd, left)?;
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel kills the child when the thread that started it dies, however it dies.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: prctl and getppid are async-signal-safe and touch no memory of ours.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before this request.
            if libc::getppid() != parent { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        })
    }
}

/// Run a program to its end or its limit. Returns how it ended, and its whole output.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<(Waited, String)> {
    // A file, not a pipe: it needs no reader while we wait.
    let mut log = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let mut child = Owned::spawn(command.process_group(0))?;
    let waited = child.wait(limit)?;
    if !matches!(waited, Waited::Ended(_)) {
        // Processes that it started would outlive it. SAFETY: the signal goes to the group of a child that is not reaped yet: no other
        // group can have its number.
        unsafe { libc::kill(-child.0.id().cast_signed(), libc::SIGKILL) };
    }
    Ok((waited, contents(&mut log)?))
}

/// Run a program to its end; returns its output, or an error with the tail of it.
pub fn output(what: &str, command: &mut Command, limit: Duration) -> Result<String, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    let trouble = |why: String| Trouble::new(what, format!("{program}{why}"));
    let (waited, said) = run(command.env("LC_ALL", "C"), limit).map_err(|err| trouble(format!(": {err}")))?;
    match waited {
        Waited::Ended(status) if status.success() => Ok(said),
        Waited::Ended(status) => Err(trouble(format!(": {status}\n{}", tail(&said, TAIL)))),
        Waited::TimedOut => {
            Err(trouble(format!(" took more than {} s\n{}", limit.as_secs(), tail(&said, TAIL))))
        }
        Waited::Interrupted => Err(Trouble::new(what, "interrupted")),
    }
}

/// The last `most` bytes of a text, from the beginning of a line or character.
pub fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from = from.saturating_add(1);
    }
    let end = text.get(from..).unwrap_or_default();
    if from == 0 { end.trim_end() } else { end.split_once('\n').map_or(end, |(_, rest)| rest).trim_end() }
}

/// CPU time of this process and of its children that were reaped.
#[must_use]
pub fn used() -> Duration {
    let of = |who| {
        // SAFETY: all zero is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: one valid pointer to write to.
        unsafe { libc::getrusage(who, &raw mut usage) };
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

fn contents(log: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    log.rewind()?;
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor it returns is ours alone.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn poll(fd: &OwnedFd, limit: Duration) -> io::Result<()> {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // A signal between the check and the poll is noticed after this time.
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).clamp(1, 1000);
    // SAFETY: one valid pollfd.
    match unsafe { libc::poll(&mut asked, 1, millis) } {
        -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
            Err(io::Error::last_os_error())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_at_the_limit_and_the_child_with_its_owner() {
        let mut child = Owned::spawn(Command::new("sleep").arg("1000")).expect("sleep starts");
        let pid = child.0.id();
        assert!(matches!(child.wait(Duration::from_millis(20)), Ok(Waited::TimedOut)));
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_failure_shows_what_the_program_said() {
        let second = Duration::from_secs(10);
        let said = output("greet", Command::new("sh").args(["-c", "echo hello"]), second);
        assert_eq!(said.as_deref(), Ok("hello\n"));
        let failed = output("greet", Command::new("sh").args(["-c", "echo no >&2; exit 3"]), second);
        assert!(failed.is_err_and(|trouble| trouble.to_string().ends_with("exit status: 3\nno")));
        let absent = output("greet", &mut Command::new("no-such-program"), second);
        assert!(absent.is_err_and(|trouble| trouble.to_string().contains("no-such-program: No such file")));
    }

    #[test]
    fn a_tail_begins_with_a_line() {
        assert_eq!(tail("one\ntwo\nthree\n", 10), "three");
        assert_eq!(tail("ää", 3), "ä");
        assert_eq!(tail("", 3), "");
    }
}
