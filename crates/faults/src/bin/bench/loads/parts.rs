//! A load in parts, each with its own CPU time.
//!
//! Other work on the machine makes one part of a tenth of a second take twice as long as the next, but seldom half of the parts: the median
//! part is that of a quiet machine. The median shows the cost of a tool that costs time all along; it does not show a cost that comes now
//! and then.

use std::io;

const PARTS: u64 = 10;

/// Run `turn` so many times in this process and in `child`, which ends after it. Returns CPU seconds as if each part took as long as the
/// median part.
pub fn of(turns: u64, child: libc::pid_t, mut turn: impl FnMut(u64) -> io::Result<()>) -> io::Result<f64> {
    let a_part = turns.div_ceil(PARTS).max(1);
    let mut took = Vec::new();
    let mut before = cpu_time(child)?;
    for number in 0..turns {
        turn(number)?;
        let done = number + 1;
        if done % a_part == 0 && done < turns {
            let now = cpu_time(child)?;
            took.push((now - before) / a_part as f64);
            before = now;
        }
    }
    took.sort_by(f64::total_cmp);
    let middle = took.get(took.len() / 2).ok_or_else(|| io::Error::other("too few turns for two parts"))?;
    Ok(middle * turns as f64)
}

/// CPU time of this process and of a child that has not ended, in seconds.
fn cpu_time(child: libc::pid_t) -> io::Result<f64> {
    // include/linux/posix-timers.h: the CPU clock of another process, CPUCLOCK_SCHED.
    let of_child = (!child << 3) | 2;
    let clocks = [libc::CLOCK_PROCESS_CPUTIME_ID, of_child];
    clocks.into_iter().map(read).sum()
}

fn read(clock: libc::clockid_t) -> io::Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}
