//! How much time a part of the reading may take: of our own CPU time, and by the clock.
//!
//! On a loaded host the clock runs twenty times faster than our CPU time, and a deadline by the clock alone would cut
//! off work that costs the host nothing; a limit of CPU time alone would not end a read that waits.

use std::time::{Duration, Instant};

use crate::host;

/// A limit of CPU time of this thread and of time on the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    cpu_end: Duration,
    clock_end: Instant,
}

impl Budget {
    pub fn new(cpu: Duration, clock: Duration) -> Budget {
        Budget { cpu_end: thread_cpu().saturating_add(cpu), clock_end: Instant::now() + clock }
    }

    /// The limit is used up.
    pub fn spent(&self) -> bool {
        Instant::now() >= self.clock_end || thread_cpu() >= self.cpu_end
    }

    /// An equal share of what is left, for the first of `parts`.
    pub fn share(&self, parts: usize) -> Budget {
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        let clock = self.clock_end.saturating_duration_since(Instant::now());
        Budget::new(self.cpu_end.saturating_sub(thread_cpu()) / parts, clock / parts)
    }
}

/// CPU time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    Duration::from_nanos(host::thread_cpu_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn it_is_spent_by_the_clock_or_by_cpu_time() {
        assert!(!Budget::new(LONG, LONG).spent());
        assert!(Budget::new(Duration::ZERO, LONG).spent());
        assert!(Budget::new(LONG, Duration::ZERO).spent());
        assert!(!Budget::new(LONG, LONG).share(3).spent());
        assert!(Budget::new(Duration::ZERO, LONG).share(3).spent());
    }
}
