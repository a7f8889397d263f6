//! Whether the machine itself stood still: a guest that its hypervisor holds and lets go on finds that its clocks have
//! jumped, and that all it was doing took that much longer.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(200);
/// A thread that sleeps for a tick and comes back later than this was not just late.
const LEAST: Duration = Duration::from_secs(5);

static STOOD_MS: AtomicU64 = AtomicU64::new(0);

/// How long it stood still in all, since this was asked first: call it before what may be disturbed.
#[must_use]
pub fn so_far() -> Duration {
    static OBSERVER: OnceLock<()> = OnceLock::new();
    OBSERVER.get_or_init(|| drop(std::thread::Builder::new().name("standstill".to_owned()).spawn(observe)));
    Duration::from_millis(STOOD_MS.load(Ordering::Relaxed))
}

/// The same, with what ended right now: the observer may wake up after whoever asks.
#[must_use]
pub fn by_now() -> Duration {
    std::thread::sleep(TICK * 2);
    so_far()
}

fn observe() {
    loop {
        let (began, waited) = (Instant::now(), run_delay());
        std::thread::sleep(TICK);
        let stood = stood_still(began.elapsed(), run_delay().saturating_sub(waited));
        STOOD_MS.fetch_add(stood.as_millis() as u64, Ordering::Relaxed);
    }
}

/// Of a sleep that took `slept`: a thread that was runnable for the most of it did not get a CPU, which a test may have made.
fn stood_still(slept: Duration, runnable: Duration) -> Duration {
    if slept >= LEAST && runnable * 2 < slept { slept } else { Duration::ZERO }
}

/// For how long the calling thread was runnable and did not run (Documentation/scheduler/sched-stats.rst).
fn run_delay() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_thread_and_a_starved_one_are_no_standstill() {
        let s = Duration::from_secs;
        assert_eq!(stood_still(s(1350), s(1)), s(1350));
        assert_eq!(stood_still(s(4), s(0)), Duration::ZERO);
        assert_eq!(stood_still(s(20), s(19)), Duration::ZERO);
    }

    #[test]
    fn a_machine_that_goes_on_is_not_reported_as_still() {
        let began = Instant::now();
        let before = so_far();
        let after = by_now();
        assert!(after - before <= began.elapsed());
    }
}
