//! CPU time, and time ready for a CPU, by the kernel's clocks.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// How long a thread has been ready for a CPU and did not run, by the kernel's account (the second number of schedstat).
pub struct ReadyClock(Option<File>);

impl ReadyClock {
    /// The clock of this thread.
    pub fn of_this_thread() -> Self {
        ReadyClock(File::open("/proc/thread-self/schedstat").ok())
    }

    /// The value now, in ns; 0 on kernels without it (no CONFIG_SCHED_INFO). Allocates no memory: the allocator may be locked.
    pub fn ns(&self) -> u64 {
        let mut text = [0; 80];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or("");
        text.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }
}

/// CPU time that this thread has used.
pub fn cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that a thread of this process has used; 0: there is no thread with that id.
pub fn cpu_ns_of(tid: u64) -> u64 {
    // The kernel's MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED).
    read((!(tid as i32) << 3) | 6)
}

/// CPU time that all threads of a process have used; 0: there is no process with that id.
pub fn cpu_ns_of_process(pid: u32) -> u64 {
    // The kernel's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    read((!(pid as i32) << 3) | 2)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is a valid place for the answer; a bad clock leaves it as it is.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}
