//! A victim's loss, by its own clock.

use std::fmt;
use std::time::Duration;

use crate::Ledger;
use crate::clock::Span;

/// The rate without the fault is the median over slices of this length, so that one hiccup of the host does not change it.
const SLICE: Duration = Duration::from_millis(200);

/// The loss of one victim over one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// Threads at work.
    pub tasks: usize,
    /// Length of the window.
    pub window_s: f64,
    /// Pieces of work a second, in the window.
    pub rate_with: f64,
    /// Pieces of work a second with the fault lifted and all else equal.
    pub rate_without: f64,
    /// By which part that rate changed by itself between the spans without the fault. A disk's rate may change (a hypervisor's budget runs
    /// out).
    pub drift: f64,
}

impl Truth {
    /// Compare a window with the spans without the fault.
    #[must_use]
    pub fn reported_by(ledger: &Ledger, window: Span, without: &[Span]) -> Self {
        Truth {
            tasks: ledger.slots(),
            window_s: window.length().as_secs_f64(),
            rate_with: ledger.rate(window),
            rate_without: median_rate(ledger, without),
            drift: change(without.iter().map(|span| median_rate(ledger, std::slice::from_ref(span)))),
        }
    }

    /// ... and count other tasks, each of which would do as much work as a thread of the victim.
    #[must_use]
    pub fn with_alike(self, tasks: usize, rate_with: f64) -> Self {
        let all = self.tasks + tasks;
        let times = all as f64 / self.tasks.max(1) as f64;
        Truth {
            tasks: all,
            rate_with: self.rate_with + rate_with,
            rate_without: self.rate_without * times,
            ..self
        }
    }

    /// 1 - work done / work without the fault; never below 0.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.rate_without > 0.0 { (1.0 - self.rate_with / self.rate_without).max(0.0) } else { 0.0 }
    }

    /// Task-seconds lost.
    #[must_use]
    pub fn lost_s(&self) -> f64 {
        self.tasks as f64 * self.window_s * self.share()
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lost {:.2} task-s ({:.0} % of {} tasks x {:.2} s; {:.1}/s with, {:.1}/s without)",
            self.lost_s(),
            self.share() * 100.0,
            self.tasks,
            self.window_s,
            self.rate_with,
            self.rate_without
        )
    }
}

/// By which part the smallest of these rates is below the largest.
#[must_use]
pub fn change(rates: impl Iterator<Item = f64>) -> f64 {
    let (least, most) =
        rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    if most > 0.0 { 1.0 - least / most } else { 0.0 }
}

/// The median of the rates of all slices.
#[must_use]
pub fn median_rate(ledger: &Ledger, spans: &[Span]) -> f64 {
    let mut rates: Vec<f64> =
        spans.iter().flat_map(|span| span.slices(SLICE)).map(|slice| ledger.rate(slice)).collect();
    rates.sort_by(f64::total_cmp);
    match rates.len() {
        0 => 0.0,
        n if n % 2 == 1 => rates[n / 2],
        n => (rates[n / 2 - 1] + rates[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_rate_is_half_the_time_of_all_tasks() {
        let truth = Truth { tasks: 16, window_s: 3.0, rate_with: 50.0, rate_without: 100.0, drift: 0.0 };
        assert_eq!(truth.lost_s(), 24.0);
    }

    #[test]
    fn alike_tasks_count_towards_the_loss() {
        let one = Truth { tasks: 1, window_s: 3.0, rate_with: 1.0, rate_without: 16.0, drift: 0.0 };
        let all = one.with_alike(7, 15.0);
        assert_eq!((all.tasks, all.rate_without, all.lost_s()), (8, 128.0, 21.0));
    }

    #[test]
    fn doing_more_than_without_is_no_loss() {
        let truth = Truth { tasks: 1, window_s: 3.0, rate_with: 110.0, rate_without: 100.0, drift: 0.0 };
        assert_eq!(truth.lost_s(), 0.0);
    }

    #[test]
    fn rates_change_by_a_part_of_the_largest() {
        assert_eq!(change([50.0, 100.0, 90.0].into_iter()), 0.5);
        assert_eq!((change([5.0].into_iter()), change(std::iter::empty())), (0.0, 0.0));
    }
}
