//! Fork, wait at a gate, execute; and how it ended.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::ptr::null;

use anyhow::{Context as _, Result, anyhow};

use super::{Signals, User};

/// Exit status, as env(1) and timeout(1) have it: we could not do our part.
pub const OUR_FAILURE: u8 = 125;
/// The command was found and could not be executed.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// What the child was at when it failed: the first byte it tells.
const BECOMING: u8 = 0;
const EXECUTING: u8 = 1;

/// A command that has been started, and waits until it may go.
pub struct Started {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    failure: OwnedFd,
    name: String,
    user: Option<String>,
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// It never ran: our exit status and why.
    NotRun(u8, anyhow::Error),
    /// It ended by itself, with this status.
    Exited(i32, Used),
    /// A signal ended it.
    Killed(i32, Used),
    /// It had not ended.
    Running,
}

/// CPU time of it and of the children that it waited for.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// In user space.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

/// All that is needed between fork and execve, made before.
struct Prepared<'a> {
    argv: Vec<CString>,
    environment: Vec<CString>,
    user: Option<&'a User>,
    signals: &'a Signals,
}

impl Started {
    /// Fork the command. It waits until [`Started::go`]. Call it while this process has one thread.
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
        // SAFETY: our own child, not waited for; a fresh descriptor that nobody else owns. It has CLOEXEC by itself.
        let pidfd = match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
            // SAFETY: as above.
            fd if fd >= 0 => unsafe { OwnedFd::from_raw_fd(fd as RawFd) },
            // Dropping the gate ends the child.
            _ => {
                return Err(io::Error::last_os_error())
                    .context("cannot watch a command: no pidfd (Linux 5.3)");
            }
        };
        let user = user.map(User::shown);
        Ok(Started { pid, pidfd, gate: Some(gate), failure, name, user })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Readable when it has ended.
    #[must_use]
    pub fn pidfd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    /// Open the gate.
    pub fn go(&mut self) {
        if let Some(gate) = self.gate.take() {
            // SAFETY: one byte from a live buffer. If the child is gone already, `end` says why.
            unsafe { libc::write(gate.as_raw_fd(), b"!".as_ptr().cast(), 1) };
        }
    }

    /// How it ended. `patient`: wait for that; else it may be that it still runs.
    pub fn end(self, patient: bool) -> End {
        // SAFETY: plain integers, filled by the kernel.
        let (mut status, mut usage) = (0, unsafe { MaybeUninit::<libc::rusage>::zeroed().assume_init() });
        let flags = if patient { 0 } else { libc::WNOHANG };
        loop {
            // SAFETY: our own child; the out-pointers are valid.
            match unsafe { libc::wait4(self.pid, &raw mut status, flags, &raw mut usage) } {
                0 => return End::Running,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return End::NotRun(OUR_FAILURE, anyhow!("cannot learn how {} ended", self.name)),
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

    /// What the child told before it gave up; nothing if it executed the command.
    fn failed(&self) -> Option<(u8, i32)> {
        let mut reported = [0u8; 5];
        // SAFETY: the buffer has room. It cannot block: execve or the child's end has closed the other end.
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
                    "sudo has a PATH of its own: name its folder, too, or say sudo env PATH=\"$PATH\" whyslow run"
                }
                _ => "`command -v` says where commands are",
            };
            return End::NotRun(NOT_FOUND, anyhow!("cannot find {name}: {why}; {way_out}"));
        }
        End::NotRun(CANNOT_RUN, anyhow!("cannot run {name}: {why}; is it a program that you may execute?"))
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

/// Runs in the child. Allocates nothing.
fn be_the_command(
    prepared: &Prepared,
    [argv, environment]: &[Vec<*const libc::c_char>; 2],
    gate: RawFd,
    tells: RawFd,
    our_gate: RawFd,
) -> ! {
    // SAFETY: system calls on numbers and on buffers that were made before the fork; the pointer lists end in null.
    unsafe {
        // Else the gate would never be closed to us if our parent died.
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
                // Nobody will open it: who started us is gone, and its caller was told that the command did not run.
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
    // SAFETY: room for two descriptors, which are nobody else's.
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
