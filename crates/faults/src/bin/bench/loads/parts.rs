//! A load in parts, each with its own CPU time.
//!
//! What else the machine does makes a part of a tenth of a second take twice as long as the next, and seldom half of them: the middle one
//! is that of a quiet machine. A tool that is felt all the time is felt there, too; one that is felt now and then is not.

use std::io;

const PARTS: u64 = 10;

/// `turn` so many times, in this process and `child`, which ends after it: CPU seconds, if each part took as long as the middle one.
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

/// Of this process and a child of it that has not ended, in seconds.
fn cpu_time(child: libc::pid_t) -> io::Result<f64> {
    // include/linux/posix-timers.h: the clock of a process that is not one's own, CPUCLOCK_SCHED.
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
