//! Loads that a tracer slows down: system calls, context switches, births and deaths of tasks, contended locks.

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

mod jobs;
mod parts;
mod requests;
mod threads;

/// A load.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    pub words: &'static str,
    /// Size of a run of about half a second of CPU time.
    pub size: u64,
    work: Work,
}

/// The work that a load repeats, and how its CPU seconds are counted.
#[derive(Debug)]
enum Work {
    /// The whole run, by the kernel's account of the process and of its children that have ended.
    Whole(fn(u64) -> io::Result<()>),
    /// Counted by the load itself (`parts.rs`).
    Parts(fn(u64) -> io::Result<f64>),
}

pub const LOADS: [Load; 9] = [
    Load { name: "dd", words: "dd bs=1 (system calls)", size: 1_200_000, work: Work::Whole(dd) },
    Load {
        name: "pingpong",
        words: "pipe ping-pong, two processes on one CPU",
        size: 120_000,
        work: Work::Parts(pingpong),
    },
    Load {
        name: "requests",
        words: "20,000 requests a second over loopback (TCP), each end on its own CPU",
        size: 40_000,
        work: Work::Parts(requests::apart),
    },
    Load {
        name: "requests-together",
        words: "20,000 requests a second over loopback (TCP), both ends on one CPU",
        size: 40_000,
        work: Work::Parts(requests::together),
    },
    Load { name: "messages", words: "fork, messages, exit", size: 200, work: Work::Whole(messages) },
    Load {
        name: "threads",
        words: "messages between threads that live on",
        size: 20_000,
        work: Work::Whole(threads::messages),
    },
    Load {
        name: "futex",
        words: "threads on one futex mutex",
        size: 25_000,
        work: Work::Whole(threads::mutex),
    },
    Load {
        name: "mmap",
        words: "page faults against mmap and munmap, one process",
        size: 8_000,
        work: Work::Whole(threads::mappings),
    },
    Load {
        name: "jobs",
        words: "1,000 jobs a second, each with a cgroup and namespaces of its own",
        size: 500,
        work: Work::Whole(jobs::jobs),
    },
];

impl Work {
    /// CPU seconds.
    fn run(&self, times: u64) -> io::Result<f64> {
        match self {
            Work::Whole(work) => {
                work(times)?;
                Ok(cpu_of(libc::RUSAGE_SELF) + cpu_of(libc::RUSAGE_CHILDREN))
            }
            Work::Parts(work) => work(times),
        }
    }
}

/// The line in which a load reports its CPU time.
const TOLD: &str = "cpu seconds: ";

/// Be the load `name` and report its CPU time: under a tool that starts the load, only the load can tell its own time from the tool's.
pub fn be(name: &str, size: u64) -> io::Result<()> {
    let load = LOADS.iter().find(|load| load.name == name);
    let own = load.ok_or_else(|| io::Error::other(format!("there is no load {name}")))?.work.run(size)?;
    writeln!(io::stdout(), "{TOLD}{own:.6}")
}

/// The CPU time that a load reported in its output.
pub fn reported(output: &str) -> Option<f64> {
    output.lines().find_map(|line| line.strip_prefix(TOLD)?.trim().parse().ok())
}

/// User and system time, in seconds.
fn cpu_of(who: libc::c_int) -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local; if the call fails, zeroes are a valid rusage.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn dd(size: u64) -> io::Result<()> {
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={size}")]).stderr(Stdio::null());
    if dd.status()?.success() { Ok(()) } else { Err(io::Error::other("dd failed")) }
}

/// Run `work` in a child process, which ends with it.
fn fork(work: impl FnOnce() -> io::Result<()>) -> io::Result<libc::pid_t> {
    // SAFETY: the child only reads, writes and ends: it takes no lock that another thread may hold.
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

/// One byte back and forth between two processes on one CPU: each turn is two context switches.
fn pingpong(turns: u64) -> io::Result<f64> {
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
    let took = parts::of(turns, echo, |_| {
        here_out.write_all(&ball)?;
        here_in.read_exact(&mut ball)
    })?;
    reap(echo)?;
    Ok(took)
}

/// Stay on the current CPU. Where the kernel refuses that, the load is a different one, but still a load.
fn pin_here() {
    // SAFETY: sched_getcpu returns a CPU, or -1.
    pin_to(usize::try_from(unsafe { libc::sched_getcpu() }).ok());
}

fn pin_to(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    // SAFETY: an all-zero cpu_set_t is the empty set, and has room for all CPUs that one cpu_set_t can name.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// CPUs that this process may run on.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is the empty set; the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs_to_its_end() {
        for load in &LOADS {
            load.work.run(3).unwrap_or_else(|err| panic!("{}: {err}", load.name));
        }
    }

    #[test]
    fn cpu_time_of_a_load_is_found_among_other_output() {
        assert_eq!(reported("x\ncpu seconds: 1.25\n{\"schema\": 0}\n"), Some(1.25));
        assert_eq!(reported("cpu seconds: \n"), None);
        assert_eq!(reported(""), None);
    }

    #[test]
    fn time_of_ones_own_is_seen() {
        let before = cpu_of(libc::RUSAGE_SELF);
        while cpu_of(libc::RUSAGE_SELF) <= before {
            std::hint::spin_loop();
        }
    }
}
