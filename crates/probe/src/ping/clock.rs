//! Clocks: the kernel stamps packets with CLOCK_REALTIME, and rows count CLOCK_MONOTONIC.

/// Movement of the real clock against the monotonic one that means that someone set it. Both are slewed alike, so the difference is
/// constant otherwise; it is far below the times that are judged, and above what the bracket of a read misses.
const SET_NS: u64 = 100_000;

/// Stamps read for so long after the clock was set may have been taken before: queues are emptied many times in it.
const DISTRUST_NS: u64 = 200_000_000;

/// Bracket that needs no second try: three reads without an interrupt between them.
const TIGHT_NS: u64 = 1_000;

/// Now, by CLOCK_MONOTONIC.
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Now, by CLOCK_REALTIME.
pub fn real() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call. These two clocks exist on every kernel, so that it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanoseconds(time.tv_sec, time.tv_nsec)
}

/// A time of the kernel as one number; nonsense becomes the nearest number.
pub fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(rest).unwrap_or(0))
}

/// The real clock less the monotonic one.
#[derive(Debug, Clone, Copy)]
pub struct Offset {
    ns: i64,
    trusted: bool,
    /// When it was read, by CLOCK_MONOTONIC.
    pub at: u64,
}

impl Offset {
    /// A stamp by CLOCK_MONOTONIC; `None`: the clock was set around then.
    pub fn monotonic(self, stamp: u64) -> Option<u64> {
        self.trusted.then(|| u64::try_from(stamp.cast_signed().saturating_sub(self.ns)).ok())?
    }
}

/// The offset over time.
#[derive(Debug, Default)]
pub struct RealClock {
    last: Option<i64>,
    distrusted_until: u64,
}

impl RealClock {
    /// The offset for stamps that were taken since the last call: call it after reading them.
    pub fn offset(&mut self) -> Offset {
        let (mut ns, mut width, mut at) = bracket();
        for _ in 0..3 {
            if width <= TIGHT_NS {
                break;
            }
            let again = bracket();
            if again.1 < width {
                (ns, width, at) = again;
            }
        }
        self.note(ns, width, at)
    }

    fn note(&mut self, ns: i64, width: u64, at: u64) -> Offset {
        let moved = self.last.is_some_and(|last| last.abs_diff(ns) > SET_NS);
        // An offset of a wide bracket may be wrong by half of it, which looks like a clock that was set, and later like one set back.
        if moved || width > 2 * SET_NS {
            self.distrusted_until = at.saturating_add(DISTRUST_NS);
        }
        self.last = Some(ns);
        Offset { ns, trusted: at >= self.distrusted_until, at }
    }
}

/// Offset, time between the outer reads, time of the last one.
fn bracket() -> (i64, u64, u64) {
    let before = monotonic();
    let real = read(libc::CLOCK_REALTIME);
    let after = monotonic();
    let width = after.saturating_sub(before);
    (real.cast_signed().saturating_sub(before.saturating_add(width / 2).cast_signed()), width, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_become_monotonic_times() {
        let mut clock = RealClock::default();
        let offset = clock.note(1_000_000, 50, 10);
        assert_eq!(offset.monotonic(1_000_007), Some(7));
        assert_eq!(offset.monotonic(3), None, "before the host started");
    }

    #[test]
    fn stamps_around_a_set_clock_are_refused() {
        let mut clock = RealClock::default();
        assert!(clock.note(5_000_000, 50, 10).trusted);
        assert!(clock.note(5_050_000, 50, 20).trusted, "noise");
        assert!(!clock.note(9_000_000, 50, 30).trusted, "set");
        assert!(!clock.note(9_000_000, 50, 40).trusted, "an older stamp may still be queued");
        assert!(clock.note(9_000_000, 50, 40 + DISTRUST_NS).trusted);
    }

    #[test]
    fn a_loose_bracket_is_refused() {
        assert!(!RealClock::default().note(0, 3 * SET_NS, 10).trusted);
    }

    #[test]
    fn the_clock_of_this_host_is_trusted_and_agrees() {
        let mut clock = RealClock::default();
        let trusted = (0..100).any(|_| {
            let real = read(libc::CLOCK_REALTIME);
            let now = monotonic();
            clock.offset().monotonic(real).is_some_and(|then| then.abs_diff(now) < 1_000_000)
        });
        assert!(trusted);
    }
}
