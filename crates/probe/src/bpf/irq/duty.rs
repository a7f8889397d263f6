//! When softirqs are timed: always, or in a part of the window where a CPU has very many of them.
//!
//! Two hooks a softirq are 0.1 us; a service on loopback has two softirqs a request, of 3 us. What many short ones take is known
//! as well from a sixth of them. Long ones are few, and all are timed.

use std::time::Duration;

/// Softirqs a second of one CPU from which on it rests: 0.1 % of that CPU.
const MANY: f64 = 10_000.0;
/// For so long nothing is timed; then there is a look whether it is still so.
const REST: Duration = Duration::from_millis(1_200);
/// A rate over less says little.
const LEAST: Duration = Duration::from_millis(50);

/// What to do about the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// As before.
    Stay,
    /// Who reads when softirqs began lets go first.
    Warn,
    /// No more beginnings.
    LetGo,
    /// No more ends: all that had begun are over by now.
    Close,
    /// Both again, the ends first.
    Open,
    /// Who reads when softirqs began may again.
    Welcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opened,
    Timed,
    Warned,
    Ending,
    Resting,
}

/// The hooks' state, and for how long beginnings were seen.
#[derive(Debug)]
pub struct Duty {
    state: State,
    since: Duration,
    counts: Vec<u64>,
    timed: Duration,
    from: Option<Duration>,
}

impl Default for Duty {
    fn default() -> Self {
        Duty {
            state: State::Timed,
            since: Duration::ZERO,
            counts: Vec::new(),
            timed: Duration::ZERO,
            from: Some(Duration::ZERO),
        }
    }
}

impl Duty {
    /// The window begins, with so many softirqs of each CPU.
    pub fn begin(&mut self, counts: Vec<u64>) {
        *self = Duty { counts, ..Duty::default() };
    }

    /// A beat of the window, at this time of it; `counts`: softirqs so far, by CPU.
    pub fn beat(&mut self, at: Duration, counts: Vec<u64>) -> Step {
        let elapsed = at.saturating_sub(self.since);
        let (state, step) = match self.state {
            State::Timed if elapsed >= LEAST && self.most(&counts) > MANY * elapsed.as_secs_f64() => {
                (State::Warned, Step::Warn)
            }
            State::Timed if elapsed >= LEAST => (State::Timed, Step::Stay),
            State::Warned => (State::Ending, Step::LetGo),
            State::Ending => (State::Resting, Step::Close),
            State::Resting if elapsed >= REST => (State::Opened, Step::Open),
            State::Opened => (State::Timed, Step::Welcome),
            State::Timed | State::Resting => return Step::Stay,
        };
        match step {
            Step::LetGo => self.timed = self.timed(at),
            Step::Open => self.from = Some(at),
            _ => {}
        }
        if step == Step::LetGo {
            self.from = None;
        }
        (self.state, self.since, self.counts) = (state, at, counts);
        step
    }

    /// How long beginnings were seen, until `at`.
    pub fn timed(&self, at: Duration) -> Duration {
        self.timed + self.from.map_or(Duration::ZERO, |from| at.saturating_sub(from))
    }

    fn most(&self, counts: &[u64]) -> f64 {
        let rises = counts.iter().zip(&self.counts).map(|(now, then)| now.saturating_sub(*then));
        rises.max().unwrap_or(0) as f64
    }
}

/// What was counted in `timed` of `window`, for all of it.
#[must_use]
pub fn whole(seen: u64, timed: Duration, window: Duration) -> u64 {
    if timed >= window || timed.is_zero() {
        return seen;
    }
    (seen as f64 * window.as_secs_f64() / timed.as_secs_f64()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beats of 100 ms: the steps that are taken, with the beat, and for how long it timed.
    fn steps(seconds: u64, rate: impl Fn(u64) -> u64) -> (Vec<(u64, Step)>, Duration) {
        let mut duty = Duty::default();
        duty.begin(vec![7, 100]);
        let (mut busy, mut taken, mut sees) = (100, Vec::new(), true);
        for beat in 1..=seconds * 10 {
            // What is not seen is not counted.
            busy += if sees { rate(beat) / 10 } else { 0 };
            let step = duty.beat(Duration::from_millis(beat * 100), vec![8, busy]);
            match step {
                Step::LetGo => sees = false,
                Step::Open => sees = true,
                _ => {}
            }
            if step != Step::Stay {
                taken.push((beat, step));
            }
        }
        (taken, duty.timed(Duration::from_secs(seconds)))
    }

    #[test]
    fn few_are_all_timed() {
        let (steps, timed) = steps(10, |_| 9_000);
        assert_eq!((steps, timed), (vec![], Duration::from_secs(10)));
    }

    #[test]
    fn many_are_timed_in_a_part_of_the_window_and_whoever_reads_them_lets_go_first() {
        let (steps, timed) = steps(3, |_| 40_000);
        let expected = [
            (1, Step::Warn),
            (2, Step::LetGo),
            (3, Step::Close),
            (15, Step::Open),
            (16, Step::Welcome),
            (17, Step::Warn),
            (18, Step::LetGo),
            (19, Step::Close),
        ];
        assert_eq!(steps, expected);
        assert_eq!(timed, Duration::from_millis(500));
        assert_eq!(whole(1_000, timed, Duration::from_secs(3)), 6_000);
    }

    #[test]
    fn when_they_are_few_again_all_are_timed_again() {
        let (steps, timed) = steps(5, |beat| if beat < 12 { 40_000 } else { 100 });
        assert_eq!(steps.last(), Some(&(16, Step::Welcome)));
        assert_eq!(timed, Duration::from_millis(200 + 3_500));
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(whole(5, Duration::ZERO, Duration::from_secs(3)), 5);
        assert_eq!(whole(5, Duration::from_secs(4), Duration::from_secs(3)), 5);
    }
}
