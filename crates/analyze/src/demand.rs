//! What would a task have done had it not waited? The counterfactual behind every `lost_s` of a CPU cause.
//!
//! A task repeats cycles: it is ready, runs, perhaps waits for I/O, then sleeps. Take its wait away and one of two
//! things happens. If its sleep has a length of its own (a client's think time, the next request), the cycle gets
//! shorter and the time is gained. If its sleep ends at a set moment (a timer's deadline, requests that arrive at
//! their own pace), the sleep gets longer by as much and nothing is gained: the sleep *absorbs* the wait.
//! Which of the two it is shows in the cycles themselves: sleep against the wait before it has a slope of 0 or of -1.

use whyslow_model::table::Task;

/// Fewer cycles than this tell nothing about a slope.
const ENOUGH_CYCLES: u64 = 8;

/// The part of a task's waits that its sleeps absorb: best guess and bounds, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Absorbed {
    /// At least.
    pub low: f64,
    /// Best guess.
    pub likely: f64,
    /// At most.
    pub high: f64,
}

/// Who sleeps for less than this part of his cycle keeps no timer's pace: then his sleeps absorb what they last, at most.
const PACED: f64 = 0.1;

/// The part of `wait` (ns) that the sleeps of `task` could have absorbed at most. What is left of a timer's sleep is
/// short when the wait before it was long: a rest of any noticeable length may have absorbed a wait of any length.
#[must_use]
pub fn could_absorb(task: &Task, wait: f64) -> f64 {
    let rested = task.sleep_ns as f64;
    if wait <= 0.0 {
        0.0
    } else if rested >= PACED * (wait + rested) {
        1.0
    } else {
        (rested / wait).min(1.0)
    }
}

/// Whether a task's sleeps absorb its waits.
#[must_use]
pub fn absorbed(task: &Task) -> Absorbed {
    let waited = [task.runnable_ns, task.io_ns, task.blocked_ns].iter().map(|ns| *ns as f64).sum::<f64>();
    let most = could_absorb(task, waited);
    let unknown = Absorbed { low: 0.0, likely: most, high: most };
    if task.cycles < ENOUGH_CYCLES {
        return unknown;
    }
    let n = task.cycles as f64;
    let (w, r) = (task.wait_us as f64, task.rest_us as f64);
    let var_w = (task.wait_wait as f64 - w * w / n).max(0.0);
    let cov = task.wait_rest as f64 - w * r / n;
    let var_r = (task.rest_rest as f64 - r * r / n).max(0.0);
    if var_w <= 0.0 {
        return unknown;
    }
    let slope = cov / var_w;
    let residual = (var_r - slope * cov).max(0.0) / (n - 2.0);
    let error = 2.0 * (residual / var_w).sqrt();
    let part = |slope: f64| (-slope).clamp(0.0, most);
    let (low, high) = (part(slope + error), part(slope - error));
    // A slope that could be anything is no answer; then the guess is the one that accuses nobody.
    if high - low > 0.5 {
        Absorbed { low, likely: high, high }
    } else {
        Absorbed { low, likely: part(slope), high }
    }
}

/// The CPU time a task would use in the time it lived if it never waited for a CPU, in ns.
#[must_use]
pub fn wanted(task: &Task, absorbed: f64) -> f64 {
    let lived = task.lived_ns as f64;
    let waited = (task.runnable_ns as f64).min(lived);
    let got = task.exec_ns as f64;
    let free = (lived - waited * (1.0 - absorbed)).max(got).max(1.0);
    (got / free * lived).min(lived).max(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task whose cycles wait `wait(k)` us and then sleep `rest(k)` us.
    fn cycles(n: u64, wait: impl Fn(u64) -> u64, rest: impl Fn(u64) -> u64) -> Task {
        let mut t = Task { cycles: n, ..Task::default() };
        for k in 0..n {
            let (w, r) = (wait(k), rest(k));
            t.wait_us += w;
            t.rest_us += r;
            t.wait_wait += w * w;
            t.wait_rest += w * r;
            t.rest_rest += r * r;
        }
        t.runnable_ns = t.wait_us * 1000;
        t.sleep_ns = t.rest_us * 1000;
        t.exec_ns = n * 1_000_000;
        t.lived_ns = t.runnable_ns + t.sleep_ns + t.exec_ns;
        t
    }

    #[test]
    fn a_deadline_absorbs_the_wait() {
        let paced = cycles(30, |k| 1000 * (k % 7), |k| 20_000 - 1000 * (k % 7));
        let a = absorbed(&paced);
        assert!(a.low > 0.95 && a.likely > 0.95, "{a:?}");
        assert!((wanted(&paced, a.likely) - paced.exec_ns as f64).abs() < 0.1 * paced.exec_ns as f64);
    }

    #[test]
    fn a_sleep_of_fixed_length_absorbs_nothing() {
        let closed = cycles(30, |k| 1000 * (k % 7), |_| 20_000);
        let a = absorbed(&closed);
        assert!(a.high < 0.05, "{a:?}");
    }

    #[test]
    fn a_wait_that_never_varies_tells_nothing_and_accuses_nobody() {
        let a = absorbed(&cycles(30, |_| 5000, |_| 20_000));
        assert_eq!((a.low, a.likely, a.high), (0.0, 1.0, 1.0));
    }

    #[test]
    fn who_never_sleeps_absorbs_nothing() {
        let busy = Task { runnable_ns: 900, exec_ns: 100, lived_ns: 1000, ..Task::default() };
        assert_eq!(absorbed(&busy).high, 0.0);
        assert_eq!(wanted(&busy, 0.0), 1000.0);
    }
}
