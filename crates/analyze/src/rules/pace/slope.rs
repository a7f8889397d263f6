//! How much less a task sleeps after a longer wait: the slope of a line through all pairs of a wait and the sleep after it.

/// With fewer pairs a line means nothing.
const ENOUGH: f64 = 5.0;
/// Waits that differ by less than this part of their mean do not show how the sleeps depend on them.
const VARIED: f64 = 0.3;

/// Sums over pairs, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pairs {
    count: f64,
    waits: f64,
    sleeps: f64,
    waits_squared: f64,
    sleeps_squared: f64,
    products: f64,
}

impl Pairs {
    pub fn note(&mut self, wait: f64, sleep: f64) {
        self.count += 1.0;
        self.waits += wait;
        self.sleeps += sleep;
        self.waits_squared += wait * wait;
        self.sleeps_squared += sleep * sleep;
        self.products += wait * sleep;
    }

    /// Whether the task sleeps, and a wait shortens the sleep after it by less than this part of the wait. Two standard errors, from the scatter of
    /// the pairs about their line, are allowed for.
    pub fn is_flat(&self, part: f64) -> bool {
        if self.count < ENOUGH || self.sleeps <= 0.0 {
            return false;
        }
        let mean = self.waits / self.count;
        let about_mean = |squared: f64, sum: f64| (squared - sum * sum / self.count).max(0.0);
        let (of_waits, of_sleeps) =
            (about_mean(self.waits_squared, self.waits), about_mean(self.sleeps_squared, self.sleeps));
        if of_waits < self.count * (VARIED * mean) * (VARIED * mean) {
            return false;
        }
        let slope = (self.products - self.waits * self.sleeps / self.count) / of_waits;
        let scatter = (of_sleeps - slope * slope * of_waits).max(0.0) / (self.count - 2.0);
        slope - 2.0 * (scatter / of_waits).sqrt() > -part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_flat(pairs: &[(f64, f64)]) -> bool {
        let mut all = Pairs::default();
        pairs.iter().for_each(|(wait, sleep)| all.note(*wait, *sleep));
        all.is_flat(0.2)
    }

    #[test]
    fn a_client_that_rests_as_long_after_each_wait_keeps_no_pace() {
        assert!(is_flat(&[(40.0, 20.0), (300.0, 21.0), (110.0, 20.0), (220.0, 20.0), (70.0, 22.0)]));
    }

    #[test]
    fn a_client_that_keeps_a_pace_sleeps_less_after_a_long_wait() {
        let period = 320.0;
        let paced: Vec<(f64, f64)> =
            [40.0, 300.0, 110.0, 220.0, 70.0].iter().map(|wait| (*wait, period - wait)).collect();
        assert!(!is_flat(&paced));
        assert!(!is_flat(
            &[(40.0, 10.0), (300.0, 0.0), (45.0, 5.0), (42.0, 8.0), (55.0, 0.0), (38.0, 12.0)]
                .map(|(wait, sleep): (f64, f64)| (wait, sleep * 8.0))
        ));
    }

    #[test]
    fn few_pairs_waits_that_are_alike_and_sleeps_that_scatter_tell_nothing() {
        assert!(!is_flat(&[(40.0, 20.0), (300.0, 20.0), (110.0, 20.0), (220.0, 20.0)]));
        assert!(!is_flat(&[(100.0, 20.0); 20]));
        assert!(!is_flat(&[(40.0, 400.0), (300.0, 0.0), (110.0, 900.0), (220.0, 10.0), (70.0, 5.0)]));
        assert!(!is_flat(&[(40.0, 0.0), (300.0, 0.0), (110.0, 0.0), (220.0, 0.0), (70.0, 0.0)]));
        assert!(!is_flat(&[]));
    }
}
