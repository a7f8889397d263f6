//! The median of ratios, its interval, and whether a bar holds.

/// Least confidence of an interval.
const CONFIDENCE: f64 = 0.95;
/// A bar is judged only with at least so many pairs.
pub const FEWEST: usize = 30;

/// The median of a sample, and an interval that covers the true median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    pub value: f64,
    /// Bounds of the 95 % interval; infinite where the sample is too small for one.
    pub low: f64,
    pub high: f64,
    /// Number of values.
    pub of: usize,
}

/// The verdict on a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is below the bar.
    Holds,
    /// The whole interval is above it.
    Fails,
    /// The bar is within the interval, or there are too few pairs.
    NotResolved,
}

impl Median {
    /// The median of at least one value. The interval lies between two order statistics, the k-th from either end: it covers the true
    /// median with the probability that n throws of a coin give at least k and at most n - k heads. It needs no assumption about the
    /// distribution; the values must be independent of each other.
    pub fn of(mut values: Vec<f64>) -> Option<Median> {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let value = (values.get(n.checked_sub(1)? / 2)? + values.get(n / 2)?) / 2.0;
        let (low, high) = match rank(n) {
            Some(k) => (*values.get(k - 1)?, *values.get(n - k)?),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        Some(Median { value, low, high, of: n })
    }

    pub fn against(&self, bar: f64) -> Verdict {
        match () {
            () if self.of < FEWEST => Verdict::NotResolved,
            () if self.high < bar => Verdict::Holds,
            () if self.low > bar => Verdict::Fails,
            () => Verdict::NotResolved,
        }
    }
}

/// The largest k for which the interval between the k-th values from either end has the required confidence.
fn rank(n: usize) -> Option<usize> {
    // P(heads <= i) for i = 0, 1, ...: the interval of rank k misses if heads < k or heads > n - k.
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let (mut below, mut best) = (0.0, None);
    for k in 1..=n / 2 {
        below += term;
        if 2.0 * below > 1.0 - CONFIDENCE {
            break;
        }
        best = Some(k);
        term *= (n - k + 1) as f64 / k as f64;
    }
    best
}

#[cfg(test)]
mod tests {
    use whyslow_faults::Draw;

    use super::*;

    fn median(values: &[f64]) -> Median {
        Median::of(values.to_vec()).unwrap()
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).value, 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).value, 2.5);
        assert_eq!(median(&[1.0]).value, 1.0);
        assert_eq!(Median::of(Vec::new()), None);
    }

    /// Ranks from printed tables of the sign test at 5 %, two-sided.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        for (n, k) in [(5, None), (6, Some(1)), (9, Some(2)), (20, Some(6)), (30, Some(10)), (100, Some(40))]
        {
            assert_eq!(rank(n), k, "{n} values");
        }
    }

    #[test]
    fn few_values_give_no_interval_and_no_verdict() {
        let few = median(&[1.0; 5]);
        assert_eq!((few.low, few.high), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(median(&[1.0; FEWEST - 1]).against(2.0), Verdict::NotResolved);
        assert_eq!(median(&[1.0; FEWEST]).against(2.0), Verdict::Holds);
    }

    #[test]
    fn a_bar_is_judged_by_the_whole_interval() {
        let values: Vec<f64> = (0..30).map(|i| 1.0 + f64::from(i) / 100.0).collect();
        let median = median(&values);
        assert_eq!((median.low, median.high), (1.09, 1.20));
        assert_eq!(median.against(1.21), Verdict::Holds);
        assert_eq!(median.against(1.20), Verdict::NotResolved);
        assert_eq!(median.against(1.15), Verdict::NotResolved);
        assert_eq!(median.against(1.09), Verdict::NotResolved);
        assert_eq!(median.against(1.08), Verdict::Fails);
    }

    /// A distribution: its name, its quantile function (a number between 0 and 1 gives a value), and its true median.
    type Quantiles = (&'static str, fn(f64) -> f64);

    /// The interval must cover the true median in 95 of 100 samples, whatever the distribution: for 4,000 samples, five standard deviations
    /// are 1.7 points. And it must not be wider than needed.
    #[test]
    fn intervals_cover_the_true_median_of_known_distributions() {
        const SAMPLES: usize = 4000;
        let known: [Quantiles; 4] = [
            ("uniform", |u| u),
            ("exponential", |u| -(1.0 - u).ln()),
            ("heavy-tailed", |u| (std::f64::consts::PI * (u - 0.5)).tan()),
            ("two humps, one long", |u| if u < 0.7 { u } else { 100.0 * u }),
        ];
        for n in [6, 9, 30, 31, 60] {
            for (name, quantile) in known {
                let mut draw = Draw::of_run(name, n as u64);
                let truth = quantile(0.5);
                let covered = (0..SAMPLES).filter(|_| {
                    let values = (0..n).map(|_| quantile(draw.real(0.0, 1.0))).collect();
                    let median = Median::of(values).unwrap();
                    median.low <= truth && truth <= median.high
                });
                let share = covered.count() as f64 / SAMPLES as f64;
                assert!(share > CONFIDENCE - 0.017, "{name}, {n} values: {share}");
                assert!(n < 30 || share < 0.99, "{name}, {n} values: wider than needed, {share}");
            }
        }
    }

    /// At most one tool in forty that costs exactly the bar may be called cheaper.
    #[test]
    fn a_tool_at_the_bar_seldom_passes() {
        const SAMPLES: usize = 4000;
        let mut draw = Draw::of_run("at the bar", 0);
        let passes = (0..SAMPLES).filter(|_| {
            let values = (0..30).map(|_| 1.10 + draw.real(-0.05, 0.05)).collect();
            Median::of(values).unwrap().against(1.10) == Verdict::Holds
        });
        let share = passes.count() as f64 / SAMPLES as f64;
        assert!(share < 0.025 + 0.013, "{share}");
    }
}
