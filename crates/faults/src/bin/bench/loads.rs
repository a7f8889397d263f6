//! Loads that feel a tracer: system calls, context switches, births and deaths.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A load.
pub struct Load {
    pub name: &'static str,
    pub words: &'static str,
    /// What makes about a second of CPU time.
    pub size: u64,
    /// Another program, or this one under its name.
    pub program: Option<fn(u64) -> Command>,
}

pub const LOADS: [Load; 3] = [
    Load { name: "dd", words: "dd bs=1 (system calls)", size: 2_500_000, program: Some(dd) },
    Load { name: "pingpong", words: "pipe ping-pong on one CPU", size: 250_000, program: None },
    Load { name: "messages", words: "fork, messages, exit", size: 400, program: None },
];

fn dd(size: u64) -> Command {
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={size}")]).stderr(Stdio::null());
    dd
}

/// Be the load `name`.
pub fn be(name: &str, size: u64) -> io::Result<()> {
    match name {
        "pingpong" => pingpong(size),
        "messages" => messages(size),
        _ => Err(io::Error::other(format!("there is no load {name}"))),
    }
}

/// Run `work` in a child process, which ends with it.
fn fork(work: impl FnOnce() -> io::Result<()>) -> io::Result<libc::pid_t> {
    // SAFETY: the child only reads, writes and ends: it takes no lock that another thread could hold.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = i32::from(work().is_err());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(pid),
    }
}

fn reap(pid: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: the child is ours; status outlives the call.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if got == pid && status == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("a child ended with {status}")))
    }
}

/// One byte to and fro between two processes on one CPU: each turn is two switches.
fn pingpong(turns: u64) -> io::Result<()> {
    pin_here();
    let (mut here_in, mut there_out) = io::pipe()?;
    let (mut there_in, mut here_out) = io::pipe()?;
    let echo = fork(move || {
        let mut ball = [0];
        for _ in 0..turns {
            there_in.read_exact(&mut ball)?;
            there_out.write_all(&ball)?;
        }
        Ok(())
    })?;
    let mut ball = [0];
    for _ in 0..turns {
        here_out.write_all(&ball)?;
        here_in.read_exact(&mut ball)?;
    }
    reap(echo)
}

/// Stay on the CPU we are on. Where that is refused, the load is another one, but still a load.
fn pin_here() {
    // SAFETY: an all-zero cpu_set_t is the empty set; sched_getcpu returns a CPU the set has room for, or -1.
    unsafe {
        let cpu = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if let Ok(cpu) = usize::try_from(cpu) {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}

/// Rounds of four senders and four receivers that are born, pass 100 messages each, and end.
fn messages(rounds: u64) -> io::Result<()> {
    const PAIRS: usize = 4;
    const MESSAGES: usize = 100;
    for _ in 0..rounds {
        let mut children = Vec::with_capacity(2 * PAIRS);
        for _ in 0..PAIRS {
            let (mut from, mut to) = UnixStream::pair()?;
            children.push(fork(|| (0..MESSAGES).try_for_each(|_| from.write_all(&[0; 100])))?);
            children.push(fork(|| (0..MESSAGES).try_for_each(|_| to.read_exact(&mut [0; 100])))?);
        }
        children.into_iter().try_for_each(reap)?;
    }
    Ok(())
}
