//! Forks the command, lets it wait at a gate, executes it, and reads how it ended.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::ptr::null;

use anyhow::{Context as _, Result, anyhow};

use super::{Signals, User};

/// Exit status, as in env(1) and timeout(1): whyslow itself failed.
pub const OUR_FAILURE: u8 = 125;
/// Exit status: the command was found and could not be executed.
const CANNOT_RUN: u8 = 126;
/// Exit status: there is no such command.
const NOT_FOUND: u8 = 127;

/// The step at which the child failed: the first byte that it writes to the parent.
const BECOMING: u8 = 0;
const EXECUTING: u8 = 1;

/// A command that has been forked, and waits at its gate.
pub struct Started {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    failure: OwnedFd,
    name: String,
    user: Option<String>,
}

/// How the command ended.
#[derive(Debug)]
pub enum End {
    /// The command never ran: our exit status, and the reason.
    NotRun(u8, anyhow::Error),
    /// The command ended by itself, with this status.
    Exited(i32, Used),
    /// This signal ended the command.
    Killed(i32, Used),
    /// The command had not ended.
    Running,
}

/// CPU time of the command and of the children that it waited for.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// In user space.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

/// All data that the child needs between fork and execve, allocated before the fork.
struct Prepared<'a> {
    argv: Vec<CString>,
    environment: Vec<CString>,
    user: Option<&'a User>,
    signals: &'a Signals,
}

impl Started {
    /// Forks the command, which waits until [`Started::go`]. Call this while the process has one thread.
    pub fn start(argv: &[OsString], user: Option<&User>, signals: &Signals) -> Result<Self> {
        let name = argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let cannot = || format!("cannot start {name}");
        let prepared = prepare(argv, user, signals).with_context(cannot)?;
        let (waits, gate) = pipe().with_context(cannot)?;
        let (failure, tells) = pipe().with_context(cannot)?;
        let pointers = [pointers(&prepared.argv), pointers(&prepared.environment)];
        // SAFETY: one thread; the child calls only what is async-signal-safe, and ends in execve or _exit.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).with_context(cannot),
            0 => be_the_command(&prepared, &pointers, waits.as_raw_fd(), tells.as_raw_fd(), gate.as_raw_fd()),
            pid => pid,
        };
        // SAFETY: our own child, not waited for; a fresh descriptor that no other code owns. A pidfd has CLOEXEC by itself.
        let pidfd = match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
            // SAFETY: as above.
            fd if fd >= 0 => unsafe { OwnedFd::from_raw_fd(fd as RawFd) },
            // Dropping the gate ends the child.
            _ => {
                return Err(io::Error::last_os_error())
                    .context("cannot watch a command: no pidfd; it needs Linux 5.3");
            }
        };
        let user = user.map(User::shown);
        Ok(Started { pid, pidfd, gate: Some(gate), failure, name, user })
    }

    /// The process id of the command.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// A descriptor that becomes readable when the command has ended.
    #[must_use]
    pub fn pidfd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    /// Opens the gate.
    pub fn go(&mut self) {
        if let Some(gate) = self.gate.take() {
            // SAFETY: one byte from a live buffer. If the child is gone already, `end` says why.
            unsafe { libc::write(gate.as_raw_fd(), b"!".as_ptr().cast(), 1) };
        }
    }

    /// How the command ended. `patient`: wait until it has ended; else it may still run.
    pub fn end(self, patient: bool) -> End {
        // SAFETY: plain integers, filled by the kernel.
        let (mut status, mut usage) = (0, unsafe { MaybeUninit::<libc::rusage>::zeroed().assume_init() });
        let flags = if patient { 0 } else { libc::WNOHANG };
        loop {
            // SAFETY: our own child; the out-pointers are valid.
            match unsafe { libc::wait4(self.pid, &raw mut status, flags, &raw mut usage) } {
                0 => return End::Running,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return End::NotRun(OUR_FAILURE, anyhow!("cannot read the status of {}", self.name)),
                _ => break,
            }
        }
        if let Some((at, errno)) = self.failed() {
            return self.not_run(at, errno);
        }
        let used = Used { user_ns: nanoseconds(usage.ru_utime), system_ns: nanoseconds(usage.ru_stime) };
        if libc::WIFSIGNALED(status) {
            End::Killed(libc::WTERMSIG(status), used)
        } else {
            End::Exited(libc::WEXITSTATUS(status), used)
        }
    }

    /// The step and the error that the child reported before it gave up; `None`: it executed the command.
    fn failed(&self) -> Option<(u8, i32)> {
        let mut reported = [0u8; 5];
        // SAFETY: the buffer has room. The read cannot block: execve or the child's end has closed the write end of the pipe.
        let n = unsafe { libc::read(self.failure.as_raw_fd(), reported.as_mut_ptr().cast(), reported.len()) };
        let [at, errno @ ..] = reported;
        (n == reported.len() as isize).then(|| (at, i32::from_ne_bytes(errno)))
    }

    fn not_run(&self, at: u8, errno: i32) -> End {
        let (name, why) = (&self.name, io::Error::from_raw_os_error(errno));
        if at == BECOMING {
            let user = self.user.as_deref().unwrap_or_default();
            let error = anyhow!("cannot run {name} as {user}: {why}; --as-root runs it as root");
            return End::NotRun(OUR_FAILURE, error);
        }
        if errno == libc::ENOENT {
            let way_out = match env::var_os("SUDO_UID") {
                Some(_) if !name.contains('/') => {
                    "sudo sets its own PATH: give the full path, or use `sudo env PATH=\"$PATH\" whyslow run`"
                }
                _ => "`command -v` shows the path of a command",
            };
            return End::NotRun(NOT_FOUND, anyhow!("cannot find {name}: {why}; {way_out}"));
        }
        End::NotRun(CANNOT_RUN, anyhow!("cannot run {name}: {why}; name a program that you may execute"))
    }
}

fn prepare<'a>(argv: &[OsString], user: Option<&'a User>, signals: &'a Signals) -> Result<Prepared<'a>> {
    let argv = argv.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let changed = user.map(User::environment).unwrap_or_default();
    let kept =
        env::vars_os().filter(|(name, _)| !changed.iter().any(|(other, _)| *other == name.as_os_str()));
    let all = kept.chain(changed.iter().map(|(name, value)| (OsString::from(name), value.clone())));
    let environment = all.map(|(name, value)| assignment(&name, &value)).collect::<Result<_>>()?;
    Ok(Prepared { argv, environment, user, signals })
}

fn assignment(name: &OsStr, value: &OsStr) -> Result<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    Ok(CString::new(text.into_vec())?)
}

fn pointers(words: &[CString]) -> Vec<*const libc::c_char> {
    words.iter().map(|word| word.as_ptr()).chain([null()]).collect()
}

/// Runs in the child, and allocates nothing.
fn be_the_command(
    prepared: &Prepared,
    [argv, environment]: &[Vec<*const libc::c_char>; 2],
    gate: RawFd,
    tells: RawFd,
    our_gate: RawFd,
) -> ! {
    // SAFETY: system calls on numbers and on buffers that were made before the fork; the pointer lists end in null.
    unsafe {
        // If the child kept this end open, it would not notice that its parent died: the read below would never end.
        libc::close(our_gate);
        if let Some(user) = prepared.user
            && let Err(errno) = user.become_it()
        {
            give_up(tells, BECOMING, errno, OUR_FAILURE);
        }
        prepared.signals.as_they_were();
        let mut word = 0u8;
        loop {
            match libc::read(gate, (&raw mut word).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                // The gate stays closed: our parent has ended, and has reported to its caller that the command did not run.
                _ => libc::_exit(OUR_FAILURE.into()),
            }
        }
        libc::execvpe(*argv.as_ptr(), argv.as_ptr(), environment.as_ptr());
        let errno = *libc::__errno_location();
        give_up(tells, EXECUTING, errno, if errno == libc::ENOENT { NOT_FOUND } else { CANNOT_RUN });
    }
}

fn give_up(tells: RawFd, at: u8, errno: i32, status: u8) -> ! {
    let [a, b, c, d] = errno.to_ne_bytes();
    let reported = [at, a, b, c, d];
    // SAFETY: a live buffer; no destructor of the parent's state may run here.
    unsafe {
        libc::write(tells, reported.as_ptr().cast(), reported.len());
        libc::_exit(status.into())
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which no other code owns.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let micros =
        time.tv_sec.unsigned_abs().saturating_mul(1_000_000).saturating_add(time.tv_usec.unsigned_abs());
    micros.saturating_mul(1000)
}
