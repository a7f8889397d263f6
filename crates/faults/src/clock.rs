//! CLOCK_MONOTONIC in nanoseconds: victims, harness and window share this one clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sys;

/// Now, in nanoseconds of CLOCK_MONOTONIC.
#[must_use]
pub fn now() -> u64 {
    sys::monotonic_ns()
}

/// A stretch of time, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its start.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

impl Span {
    /// Its length.
    #[must_use]
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.to.saturating_sub(self.from))
    }

    /// Cut into pieces of about `each`, at least one.
    #[must_use]
    pub fn slices(self, each: Duration) -> Vec<Span> {
        let whole = self.to.saturating_sub(self.from);
        let n = (whole / (each.as_nanos() as u64).max(1)).max(1);
        (0..n)
            .map(|i| Span { from: self.from + whole * i / n, to: self.from + whole * (i + 1) / n })
            .collect()
    }

    /// The window that began at a wall-clock time (seconds since 1970), on our clock.
    #[must_use]
    pub fn at_wall(began_s: f64, length: Duration) -> Span {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let ago = Duration::from_secs_f64((wall - began_s).max(0.0));
        let from = now().saturating_sub(ago.as_nanos() as u64);
        Span { from, to: from + length.as_nanos() as u64 }
    }
}

/// Sleep for `length`. Returns the span of that sleep.
#[must_use]
pub fn span_of(length: Duration) -> Span {
    let from = now();
    std::thread::sleep(length);
    Span { from, to: now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_without_gaps() {
        let cut = Span { from: 10, to: 1010 }.slices(Duration::from_nanos(300));
        assert_eq!(cut.len(), 3);
        assert_eq!((cut[0].from, cut[2].to), (10, 1010));
        assert!(cut.windows(2).all(|two| two[0].to == two[1].from));
    }

    #[test]
    fn timed_a_wall_clock_window_lands_on_our_clock() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let span = Span::at_wall(wall - 2.0, Duration::from_secs(1));
        let ago = Duration::from_nanos(now() - span.from).as_secs_f64();
        assert!((1.9..60.0).contains(&ago), "{ago}");
        assert_eq!(span.length(), Duration::from_secs(1));
    }
}
