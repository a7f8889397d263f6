//! CPU time of a process and of some of its threads, sampled from the kernel's clock during the whole test: afterwards it is known for any
//! window in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::account::Account;
use crate::clock::Span;
use crate::sys;

const EACH: Duration = Duration::from_millis(10);

/// Samples the CPU time until the test asks for the result.
pub struct Meter {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Account>>,
}

impl Meter {
    /// Begin to sample a process and some of its threads.
    #[must_use]
    pub fn of(pid: u32, threads: Vec<u32>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let reader = std::thread::spawn(move || {
            // On a full host the samples would be late, and the result less exact.
            let _ = sys::be_prompt();
            let mut account = Account::default();
            while !until.load(Ordering::Relaxed) {
                let of_threads = threads.iter().map(|tid| of_thread(pid, *tid)).sum();
                account.rows.push([sys::monotonic_ns(), sys::cpu_ns_of_process(pid), of_threads]);
                std::thread::sleep(EACH);
            }
            account
        });
        Meter { stop, reader: Some(reader) }
    }

    /// Seconds of CPU in a past window: of the process, of the threads.
    #[must_use]
    pub fn within(mut self, window: Span) -> [f64; 2] {
        self.end().map_or([0.0; 2], |account| account.within(window))
    }

    fn end(&mut self) -> Option<Account> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.take()?.join().ok()
    }
}

/// Only its own process can read a thread's CPU clock; every process can read the scheduler's account of it. 0: the kernel keeps no
/// account.
fn of_thread(pid: u32, tid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn timed_a_busy_process_is_seen_to_be_busy() {
        let meter = Meter::of(std::process::id(), vec![std::process::id()]);
        let (from, before) = (clock::now(), sys::cpu_ns());
        while sys::cpu_ns() < before + 60_000_000 {}
        let window = Span { from, to: clock::now() };
        std::thread::sleep(EACH * 3);
        let [cpu_s, _] = meter.within(window);
        assert!(cpu_s > 0.04, "{cpu_s}");
    }
}
