//! Grace periods of the kernel's RCU, measured by the harness: a process that attaches a probe may have to wait for one.
//!
//! `tracepoint_add_func` (kernel/tracepoint.c, Linux 5.14 and later) waits for the grace period that began when a probe was detached last.
//! No grace period ends while the thread that drives them is runnable and does not run.

use std::fs;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// `MEMBARRIER_CMD_GLOBAL`: returns after a grace period (kernel/sched/membarrier.c).
const GLOBAL: libc::c_long = 1;
/// The names of the RCU thread, with and without `CONFIG_PREEMPT_RCU`; it is among the first threads that a kernel creates.
const DRIVERS: [&str; 2] = ["rcu_preempt", "rcu_sched"];
const FIRST_PIDS: std::ops::Range<u32> = 2..100;

/// Where a task waits for a normal grace period (kernel/rcu/tree.c), as /proc/PID/stack has it.
const WAITS: [&str; 2] = ["synchronize_rcu+", "synchronize_rcu_normal+"];

/// How long a grace period takes that is requested now, or `limit` if it takes longer. `None` where the kernel does not tell: with one CPU,
/// or with `nohz_full`, which refuses the request.
#[must_use]
pub fn period(limit: Duration) -> Option<Duration> {
    let (ended, end) = mpsc::channel();
    let began = Instant::now();
    // A thread of its own: the call cannot be interrupted.
    std::thread::spawn(move || {
        // SAFETY: numbers only.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0 as libc::c_long) };
        let _ = ended.send((done == 0).then(|| began.elapsed()));
    });
    match end.recv_timeout(limit) {
        Ok(took) => took,
        Err(RecvTimeoutError::Timeout) => Some(limit),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// How long the RCU thread was runnable and did not run, since boot; `None` where the thread is not visible.
#[must_use]
pub fn driver_waited() -> Option<Duration> {
    static DRIVER: OnceLock<Option<u32>> = OnceLock::new();
    let drives = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        DRIVERS.contains(&comm.trim_end())
    };
    let pid = (*DRIVER.get_or_init(|| FIRST_PIDS.into_iter().find(drives)))?;
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Whether a thread of a process waits for a grace period now.
#[must_use]
pub fn is_awaited_by(pid: u32) -> bool {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waits = |task: fs::DirEntry| {
        let stack = fs::read_to_string(task.path().join("stack")).unwrap_or_default();
        stack.lines().any(|line| WAITS.iter().any(|function| line.contains(function)))
    };
    all.into_iter().any(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_has_a_length() {
        let limit = Duration::from_secs(60);
        assert!(period(limit).is_none_or(|took| took > Duration::ZERO && took <= limit));
    }

    #[test]
    fn root_rcu_thread_run_delay_is_readable_and_never_falls() {
        let before = driver_waited();
        assert!(before.is_some(), "no {DRIVERS:?} among pids {FIRST_PIDS:?}");
        let _ = period(Duration::from_secs(60));
        assert!(driver_waited() >= before);
    }
}
