//! Whether the scheduler lets a thread run that is ready to, as the harness sees it by itself.
//!
//! On Linux 6.18 all that is ready on a CPU can wait for ten seconds there, kernel threads with it: seen beside a task that
//! yields it again and again, and beside tasks that compute and never sleep.

use std::fs;
use std::time::{Duration, Instant};

use crate::bars;

/// Between two looks at a thread that is ready.
const LOOK: Duration = Duration::from_millis(10);

/// What a thread had of the CPUs so far.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// It runs, or is ready to.
    is_ready: bool,
    ran: Duration,
    /// The kernel adds a wait to it when the thread runs again (`sched_info_arrive`, kernel/sched/stats.h).
    waited: Duration,
}

impl Turn {
    /// Of one of its threads; nothing if that has ended.
    fn of(pid: u32, tid: u32) -> Option<Turn> {
        let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        let (stat, times) = (text("stat")?, text("schedstat")?);
        let mut times = times.split(' ').map_while(|ns| ns.trim().parse().map(Duration::from_nanos).ok());
        let is_ready = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'));
        Some(Turn { is_ready, ran: times.next()?, waited: times.next()? })
    }

    /// Ready, and not run since `self`.
    fn is_kept_until(self, later: Turn) -> bool {
        self.is_ready && later.is_ready && later.ran == self.ran
    }

    /// It was ready for longer than `limit`, and got next to nothing. `kept`: how long it was seen to be ready without
    /// running, until now.
    fn is_starved(self, kept: Duration, limit: Duration) -> bool {
        self.waited + kept > limit && self.ran < limit / 5
    }
}

/// Whether a thread of it was ready for longer than it had for all of its answer, and got next to nothing. Looks, for as
/// long again, at one that is ready now.
pub fn is_starved(pid: u32) -> bool {
    let limit = bars::patient(bars::ANSWER_WITHIN);
    threads(pid)
        .into_iter()
        .any(|tid| Turn::of(pid, tid).is_some_and(|first| watched(first, limit, || Turn::of(pid, tid))))
}

/// Look again until it ran, has ended, or was kept for more than the limit.
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
    fn who_is_ready_and_never_runs_is_starved_though_the_kernel_has_not_added_its_wait_yet() {
        let kept = turn(true, 5, 1);
        assert!(watched(kept, LIMIT, || Some(kept)));
    }

    #[test]
    fn who_gets_its_turn_at_last_was_starved_for_as_long_as_the_kernel_adds_then() {
        assert!(watched(turn(true, 5, 1), LIMIT, || Some(turn(true, 6, 900))));
        assert!(!watched(turn(true, 5, 1), LIMIT, || Some(turn(true, 6, 20))));
    }

    #[test]
    fn who_runs_or_sleeps_or_has_ended_is_not_starved() {
        let mut ran = 5;
        let runs = || {
            ran += 10;
            Some(turn(true, ran, 1))
        };
        assert!(!watched(turn(true, 5, 1), LIMIT, runs));
        assert!(!watched(turn(false, 5, 1), LIMIT, || panic!("a sleeper is not looked at again")));
        assert!(!watched(turn(true, 5, 1), LIMIT, || None));
        // It had its part: its own work was too long.
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
