//! A running exam, and what a process took.

use std::io::{self, BufRead as _, BufReader};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What a process and those it waited for took.
pub struct End {
    /// User and system time, in seconds.
    pub cpu: f64,
    /// Wall time since it was started, in seconds; 0 for a load.
    pub wall: f64,
    /// Peak resident memory of the largest process.
    pub rss_mib: f64,
    /// It ended by itself, without an error.
    pub well: bool,
}

/// The child dies with us.
pub fn tied(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is async-signal-safe and takes numbers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

/// Wait for `child`.
pub fn finish(child: Child) -> io::Result<End> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: the child is ours and has not been waited for; both pointers are to locals that outlive the call.
    while unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr()) } < 0 {
        let err = io::Error::last_os_error();
        if err.kind() != io::ErrorKind::Interrupted {
            return Err(err);
        }
    }
    // SAFETY: plain numbers: the zeroes it began with are valid, too.
    let usage = unsafe { usage.assume_init() };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(End {
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        wall: 0.0,
        rss_mib: usage.ru_maxrss as f64 / 1024.0,
        well: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
    })
}

/// A running exam.
pub struct Exam {
    child: Child,
    began: Instant,
    /// From its start until it looked, in seconds.
    pub until_looking: f64,
    // Closed, its progress would be an error.
    _progress: BufReader<std::process::ChildStderr>,
}

impl Exam {
    /// Start one and wait until it looks.
    pub fn start(whyslow: &PathBuf, window: &str) -> io::Result<Exam> {
        let began = Instant::now();
        let mut command = Command::new(whyslow);
        command.args(["exam", "--json", "--for", window]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = tied(&mut command).spawn()?;
        let mut progress = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let mut line = String::new();
        while !line.contains("looking, ") {
            line.clear();
            if progress.read_line(&mut line)? == 0 {
                finish(child)?;
                return Err(io::Error::other(format!("{} ended before it looked", whyslow.display())));
            }
        }
        let until_looking = began.elapsed().as_secs_f64();
        Ok(Exam { child, began, until_looking, _progress: progress })
    }

    /// End the window now.
    pub fn stop(self) -> io::Result<End> {
        // Not SIGINT: that is ignored, and stays so, in what a shell starts in the background.
        // SAFETY: a signal to a child that has not been waited for: the pid is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        self.wait()
    }

    /// Wait for its answer.
    pub fn wait(self) -> io::Result<End> {
        let end = finish(self.child)?;
        Ok(End { wall: self.began.elapsed().as_secs_f64(), ..end })
    }
}
