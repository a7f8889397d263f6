//! How often something happens on the busiest CPU: a hook that costs too much there is detached.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};

use super::value;

/// From a map with one count for each CPU.
pub(super) fn counts(map: &impl MapCore) -> Option<Vec<u64>> {
    let counts = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(counts.iter().map(|bytes| value(bytes)).collect())
}

/// What to do about it now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    TooMany,
    FewAgain,
}

/// A rate over less time says little: the start of one program takes hundreds of system calls in a few milliseconds. A beat of a window (50 ms)
/// is longer.
const SHORTEST: Duration = Duration::from_millis(40);

/// Rate per second on one CPU, from which on they are too many, and below which they are few again.
#[derive(Debug)]
pub(super) struct Crowd {
    too_many: f64,
    few_again: f64,
    counts: Vec<u64>,
    counted: Option<Instant>,
    since: Option<Instant>,
    sum: Duration,
}

impl Crowd {
    pub fn new(too_many: f64, few_again: f64) -> Self {
        Crowd { too_many, few_again, counts: Vec::new(), counted: None, since: None, sum: Duration::ZERO }
    }

    /// From each CPU's count so far: the change now.
    pub fn judge(&mut self, counts: Vec<u64>, now: Instant) -> Option<Verdict> {
        let elapsed = self.counted.map(|then| now.saturating_duration_since(then));
        if elapsed.is_some_and(|elapsed| elapsed < SHORTEST) {
            return None;
        }
        let before = std::mem::replace(&mut self.counts, counts);
        self.counted = Some(now);
        let seconds = elapsed?.as_secs_f64();
        let most = self.counts.iter().zip(&before).map(|(now, then)| now.saturating_sub(*then)).max()?;
        let rate = most as f64 / seconds;
        if rate > self.too_many && self.since.is_none() {
            self.since = Some(now);
            return Some(Verdict::TooMany);
        }
        if rate < self.few_again && self.since.is_some() {
            self.sum = self.time(now);
            self.since = None;
            return Some(Verdict::FewAgain);
        }
        None
    }

    /// How long there were too many, so far.
    pub fn time(&self, now: Instant) -> Duration {
        self.sum + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Hooks that leave when there are too many, and look in again after `AWAY`: a beat later it shows whether there still are.
#[derive(Debug)]
pub(super) struct Visits {
    too_many: f64,
    crowd: Crowd,
    left: Option<Instant>,
    /// How long the hooks were detached before they last came back.
    away: Duration,
}

/// What to do with the hooks now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Leave,
    /// Then the caller says whether they are `back`.
    LookIn,
}

impl Visits {
    pub const AWAY: Duration = Duration::from_secs(2);

    /// Rate per second on one CPU, from which on they are too many.
    pub fn new(too_many: f64) -> Self {
        Visits { too_many, crowd: Crowd::new(too_many, 0.0), left: None, away: Duration::ZERO }
    }

    /// From each CPU's count so far, which is asked for only while the hooks are attached.
    pub fn judge(&mut self, counts: impl FnOnce() -> Option<Vec<u64>>, now: Instant) -> Option<Step> {
        if let Some(left) = self.left {
            return (now.saturating_duration_since(left) >= Self::AWAY).then_some(Step::LookIn);
        }
        let verdict = counts().and_then(|counts| self.crowd.judge(counts, now));
        (verdict == Some(Verdict::TooMany)).then(|| {
            self.left = Some(now);
            Step::Leave
        })
    }

    /// They count from these on; without counts the kernel refused them, and the next attempt is `AWAY` later.
    pub fn back(&mut self, counts: Option<Vec<u64>>, now: Instant) {
        self.away = self.away(now);
        self.left = None;
        self.crowd = Crowd::new(self.too_many, 0.0);
        match counts {
            Some(counts) => _ = self.crowd.judge(counts, now),
            None => self.left = Some(now),
        }
    }

    /// How long the hooks were detached, so far.
    pub fn away(&self, now: Instant) -> Duration {
        self.away + self.left.map_or(Duration::ZERO, |left| now.saturating_duration_since(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_leave_a_crowd_and_look_in_again() {
        let mut visits = Visits::new(1_000.0);
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(visits.judge(|| Some(vec![0, 7]), at(0)), None);
        assert_eq!(visits.judge(|| Some(vec![50, 50]), at(100)), None, "500 a second");
        assert_eq!(visits.judge(|| Some(vec![50, 200]), at(200)), Some(Step::Leave));
        assert_eq!(visits.judge(|| unreachable!("detached"), at(2_199)), None);
        assert_eq!(visits.judge(|| unreachable!("detached"), at(2_200)), Some(Step::LookIn));
        visits.back(None, at(2_200));
        assert_eq!(visits.judge(|| unreachable!("refused"), at(4_199)), None);
        assert_eq!(visits.judge(|| unreachable!("refused"), at(4_300)), Some(Step::LookIn));
        visits.back(Some(vec![50, 200]), at(4_300));
        assert_eq!(visits.away(at(9_000)), Duration::from_millis(4_100));
        assert_eq!(visits.judge(|| Some(vec![50, 900]), at(4_400)), Some(Step::Leave), "still too many");
        assert_eq!(visits.away(at(4_900)), Duration::from_millis(4_600));
    }

    #[test]
    fn a_hook_goes_where_a_cpu_is_crowded_and_comes_back() {
        let mut crowd = Crowd::new(300_000.0, 150_000.0);
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(crowd.judge(vec![0, 0], at(0)), None);
        assert_eq!(crowd.judge(vec![1_000, 50_000], at(200)), None, "250,000 a second");
        assert_eq!(crowd.judge(vec![1_000, 120_000], at(400)), Some(Verdict::TooMany));
        assert_eq!(crowd.judge(vec![1_000, 160_000], at(600)), None, "between the bounds nothing changes");
        assert_eq!(crowd.judge(vec![2_000, 161_000], at(800)), Some(Verdict::FewAgain));
        assert_eq!(crowd.time(at(5_000)), Duration::from_millis(400));
        assert_eq!(crowd.judge(vec![2_000], at(1_000)), None, "fewer CPUs than before");
        assert_eq!(crowd.judge(vec![9_000], at(1_012)), None, "a burst");
        assert_eq!(
            crowd.judge(vec![22_000], at(1_050)),
            Some(Verdict::TooMany),
            "since the last that was long enough"
        );
    }
}
