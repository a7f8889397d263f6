//! Whether the scheduler runs a thread that is ready for a CPU, as the harness itself observes.
//!
//! On Linux 6.18 every task that is ready on a CPU can wait there for ten seconds, kernel threads included: observed beside a task that
//! yields that CPU again and again, and beside tasks that compute and never sleep.

use std::fs;
use std::time::{Duration, Instant};

use crate::thresholds;

/// Interval between two checks of a thread that is ready.
const LOOK: Duration = Duration::from_millis(10);

/// CPU time and waiting time of a thread so far.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// It runs, or is ready for a CPU.
    is_ready: bool,
    ran: Duration,
    /// The kernel adds a wait to this when the thread runs again (`sched_info_arrive`, kernel/sched/stats.h).
    waited: Duration,
}

impl Turn {
    /// For one thread of a process; `None` if the thread has ended.
    fn of(pid: u32, tid: u32) -> Option<Turn> {
        let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        let (stat, times) = (text("stat")?, text("schedstat")?);
        let mut times = times.split(' ').map_while(|ns| ns.trim().parse().map(Duration::from_nanos).ok());
        let is_ready = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'));
        Some(Turn { is_ready, ran: times.next()?, waited: times.next()? })
    }

    /// Whether it was ready and has not run since `self`.
    fn is_kept_until(self, later: Turn) -> bool {
        self.is_ready && later.is_ready && later.ran == self.ran
    }

    /// Whether it was ready for longer than `limit`, and got almost no CPU time. `kept`: how long it was observed to be ready without
    /// running, until now.
    fn is_starved(self, kept: Duration, limit: Duration) -> bool {
        self.waited + kept > limit && self.ran < limit / 5
    }
}

/// Whether a thread of the process was ready for longer than whyslow had for its whole answer, and got almost no CPU time. Checks a thread
/// that is ready now for as long again.
pub fn is_starved(pid: u32) -> bool {
    let limit = thresholds::patient(thresholds::ANSWER_WITHIN);
    threads(pid)
        .into_iter()
        .any(|tid| Turn::of(pid, tid).is_some_and(|first| watched(first, limit, || Turn::of(pid, tid))))
}

/// Check again until the thread ran, has ended, or was kept waiting for more than the limit.
fn watched(first: Turn, limit: Duration, mut again: impl FnMut() -> Option<Turn>) -> bool {
    let (began, mut last) = (Instant::now(), first);
    while first.is_kept_until(last) && !last.is_starved(began.elapsed(), limit) {
        if last.ran >= limit / 5 {
            return false;
        }
        std::thread::sleep(LOOK);
        match again() {
            Some(turn) => last = turn,
            None => return false,
        }
    }
    let kept = if first.is_kept_until(last) { began.elapsed() } else { Duration::ZERO };
    last.is_starved(kept, limit)
}

fn threads(pid: u32) -> Vec<u32> {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    all.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    fn turn(is_ready: bool, ran: u64, waited: u64) -> Turn {
        Turn { is_ready, ran: Duration::from_millis(ran), waited: Duration::from_millis(waited) }
    }

    #[test]
    fn ready_thread_that_never_runs_is_starved_before_its_wait_is_counted() {
        let kept = turn(true, 5, 1);
        assert!(watched(kept, LIMIT, || Some(kept)));
    }

    #[test]
    fn thread_that_runs_at_last_is_judged_by_the_wait_the_kernel_added() {
        assert!(watched(turn(true, 5, 1), LIMIT, || Some(turn(true, 6, 900))));
        assert!(!watched(turn(true, 5, 1), LIMIT, || Some(turn(true, 6, 20))));
    }

    #[test]
    fn thread_that_runs_sleeps_or_has_ended_is_not_starved() {
        let mut ran = 5;
        let runs = || {
            ran += 10;
            Some(turn(true, ran, 1))
        };
        assert!(!watched(turn(true, 5, 1), LIMIT, runs));
        assert!(!watched(turn(false, 5, 1), LIMIT, || panic!("a sleeper is not looked at again")));
        assert!(!watched(turn(true, 5, 1), LIMIT, || None));
        // It had its share of the CPU: its own work took too long.
        assert!(!watched(turn(true, 50, 900), LIMIT, || panic!("it had its part")));
    }

    #[test]
    fn timed_a_thread_that_computes_is_not_starved() {
        let done = std::sync::atomic::AtomicBool::new(false);
        let (pid, limit) = (std::process::id(), Duration::from_secs(60));
        std::thread::scope(|scope| {
            let (tell, tid) = std::sync::mpsc::channel();
            let done = &done;
            scope.spawn(move || {
                // SAFETY: no argument, and it cannot fail.
                let _ = tell.send(unsafe { libc::gettid() }.unsigned_abs());
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let tid = tid.recv().expect("a thread id");
            let first = Turn::of(pid, tid).expect("a thread that is there");
            let starved = watched(first, limit, || Turn::of(pid, tid));
            let is_listed = threads(pid).contains(&tid);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(!starved && is_listed);
        });
    }
}
