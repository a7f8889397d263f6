//! Progress of a pinger, for another thread to print: no locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets of each power of two: the middle of a bucket is at most 1.6 % from any time in it.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 5;

/// Each number of 64 bits has its bucket.
const BUCKETS: usize = (64 - PART_BITS as usize + 1) * PARTS;

/// Counts so far.
#[derive(Debug)]
pub struct Live {
    sent: AtomicU64,
    not_sent: AtomicU64,
    answered: AtomicU64,
    lost: AtomicU64,
    worst_ns: AtomicU64,
    buckets: Box<[AtomicU64]>,
}

impl Default for Live {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let buckets = std::iter::repeat_with(zero).take(BUCKETS).collect();
        Live { sent: zero(), not_sent: zero(), answered: zero(), lost: zero(), worst_ns: zero(), buckets }
    }
}

/// What [`Live`] told at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveTimes {
    /// Requests that left.
    pub sent: u64,
    /// Requests that the kernel refused to send.
    pub not_sent: u64,
    /// Requests with an answer.
    pub answered: u64,
    /// Requests older than the timeout without one.
    pub lost: u64,
    /// Half of the answers took so long at most.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// The longest.
    pub worst: Option<Duration>,
}

impl Live {
    /// The counts and times until now.
    pub fn now(&self) -> LiveTimes {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let worst = self.worst_ns.load(Relaxed);
        let share = |percent| percentile(&counts, percent).map(|ns| Duration::from_nanos(ns.min(worst)));
        LiveTimes {
            sent: self.sent.load(Relaxed),
            not_sent: self.not_sent.load(Relaxed),
            answered: self.answered.load(Relaxed),
            lost: self.lost.load(Relaxed),
            p50: share(50),
            p99: share(99),
            worst: counts.iter().any(|&count| count > 0).then(|| Duration::from_nanos(worst)),
        }
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    pub(super) fn not_sent(&self) {
        self.not_sent.fetch_add(1, Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// An answer after `ns`; `was_lost`: it counted as lost until now.
    pub(super) fn answered(&self, ns: u64, was_lost: bool) {
        self.worst_ns.fetch_max(ns, Relaxed);
        self.answered.fetch_add(1, Relaxed);
        if let Some(bucket) = self.buckets.get(bucket(ns)) {
            bucket.fetch_add(1, Relaxed);
        }
        if was_lost {
            self.lost.fetch_sub(1, Relaxed);
        }
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    shift as usize * PARTS + (ns >> shift) as usize
}

/// The middle of a bucket: the inverse of `bucket`.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket / PARTS).saturating_sub(1);
    let low = ((bucket - shift * PARTS) as u64) << shift;
    low + ((1 << shift) >> 1)
}

fn percentile(counts: &[u64], percent: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let rank = total.checked_mul(percent)?.div_ceil(100).max(1);
    let mut seen = 0;
    counts
        .iter()
        .position(|count| {
            seen += count;
            seen >= rank
        })
        .map(middle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert_eq!(Live::default().now(), LiveTimes::default());
    }

    #[test]
    fn percentiles_are_near_the_true_ones() {
        let live = Live::default();
        for ms in 1..=1000 {
            live.answered(ms * 1_000_000, false);
        }
        let now = live.now();
        let near = |is: Option<Duration>, ms: f64| (is.unwrap().as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.03;
        assert!(near(now.p50, 500.0) && near(now.p99, 990.0), "{now:?}");
        assert_eq!(now.worst, Some(Duration::from_secs(1)));
        assert_eq!(now.answered, 1000);
    }

    #[test]
    fn a_lost_request_that_is_answered_is_lost_no_longer() {
        let live = Live::default();
        live.sent();
        live.lost();
        assert_eq!((live.now().lost, live.now().answered), (1, 0));
        live.answered(7, true);
        assert_eq!((live.now().lost, live.now().answered), (0, 1));
    }

    proptest! {
        #[test]
        fn every_time_has_a_bucket_near_it(ns: u64) {
            prop_assert!(bucket(ns) < BUCKETS);
            prop_assert!(middle(bucket(ns)).abs_diff(ns) as f64 <= ns as f64 * 0.016);
        }
    }
}
