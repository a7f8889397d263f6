//! What would a task have done had it not waited? The counterfactual behind every `lost_s` of a CPU cause.
//!
//! A task repeats cycles: it is ready, runs, perhaps waits for I/O, then sleeps. Without the wait one of two
//! things happens. If the sleep has a length of its own (a client's think time, the next request), the cycle gets
//! shorter and the time is gained. If the sleep ends at a set moment (a timer's deadline, requests that arrive at
//! their own pace), the sleep gets longer by as much and nothing is gained: the sleep *absorbs* the wait.
//! The cycles themselves show which of the two holds: the slope of the sleep against the time awake before it is 0 or -1.
//! The slope takes all of the time awake, not the waits alone: a wait that ends at a set moment gets shorter by as much as the
//! work before it got longer, and then the sleep until the timer has the same length each time.

use whyslow_model::table::Task;

/// Fewer cycles than this tell nothing about a slope.
const ENOUGH_CYCLES: u64 = 8;
/// A task that is awake for about as long in each cycle does not show what would happen without the waits: the time awake must vary
/// (standard deviation) by this part of a cycle's wait. Else the slope is extrapolated too far from the jitter of wake-ups.
const VARIES: f64 = 0.05;
/// ... and by this part of the time awake: clocks are not more precise than that.
const ALIKE: f64 = 0.001;
/// A slope that is above 0 by more than this and its error fits neither case: the task has cycles of more than one kind.
const NEITHER: f64 = 0.25;

/// The part of a task's waits that its sleeps absorb: best guess and bounds, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slack {
    /// At least.
    pub low: f64,
    /// Best guess.
    pub likely: f64,
    /// At most.
    pub high: f64,
}

/// A task that sleeps for less than this part of its cycle does not run by a timer: its sleeps absorb at most their own length.
const PACED: f64 = 0.1;

/// The part of `wait` (ns) that the sleeps of `task` could have absorbed at most. A sleep until a timer is short when the wait
/// before it was long: a sleep of any noticeable length may have absorbed a wait of any length.
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
pub fn absorbed(task: &Task) -> Slack {
    let waited = [task.runnable_ns, task.io_ns, task.blocked_ns].iter().map(|ns| *ns as f64).sum::<f64>();
    let most = could_absorb(task, waited);
    let unknown = Slack { low: 0.0, likely: most, high: most };
    if task.cycles < ENOUGH_CYCLES {
        return unknown;
    }
    let n = task.cycles as f64;
    let (a, r) = (task.awake as f64, task.rest as f64);
    let var_a = (task.awake_awake as f64 - a * a / n).max(0.0);
    let cov = task.awake_rest as f64 - a * r / n;
    let var_r = (task.rest_rest as f64 - r * r / n).max(0.0);
    let varies = (VARIES * waited / 1024.0).max(ALIKE * a) / n; // in the unit of the cycles
    if var_a <= 0.0 || var_a / n < varies.powi(2) {
        return unknown;
    }
    let slope = cov / var_a;
    let residual = (var_r - slope * cov).max(0.0) / (n - 2.0);
    // Student's t for 95 % with this many cycles: 2.5 at 6 degrees of freedom, 2 at many.
    let error = (2.0 + 3.0 / (n - 2.0)) * (residual / var_a).sqrt();
    if slope - error > NEITHER {
        return unknown;
    }
    let part = |slope: f64| (-slope).clamp(0.0, most);
    let (low, high) = (part(slope + error), part(slope - error));
    // An interval as wide as that decides nothing; then the best guess is the upper bound, which gives the smallest loss.
    if high - low > 0.5 {
        Slack { low, likely: high, high }
    } else {
        Slack { low, likely: part(slope), high }
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

    /// A task whose cycles run for `run(k)` us, wait `wait(k)` us and then sleep `rest(k)` us.
    fn cycles_of(
        n: u64,
        run: impl Fn(u64) -> u64,
        wait: impl Fn(u64) -> u64,
        rest: impl Fn(u64) -> u64,
    ) -> Task {
        let mut t = Task { cycles: n, ..Task::default() };
        for k in 0..n {
            let (awake, rested) = (((run(k) + wait(k)) * 1000) >> 10, (rest(k) * 1000) >> 10);
            t.awake += awake;
            t.rest += rested;
            t.awake_awake += awake * awake;
            t.awake_rest += awake * rested;
            t.rest_rest += rested * rested;
            t.exec_ns += run(k) * 1000;
            t.runnable_ns += wait(k) * 1000;
            t.sleep_ns += rest(k) * 1000;
        }
        t.lived_ns = t.runnable_ns + t.sleep_ns + t.exec_ns;
        t
    }

    /// The same with a run of one millisecond in each cycle.
    fn cycles(n: u64, wait: impl Fn(u64) -> u64, rest: impl Fn(u64) -> u64) -> Task {
        cycles_of(n, |_| 1000, wait, rest)
    }

    #[test]
    fn a_wait_until_a_set_moment_is_absorbed_by_a_timer_all_the_same() {
        // Work of 5 to 8 ms, then a wait for the quota until 100 ms after the tick, then a sleep for the rest of the 300 ms.
        let paced = cycles_of(9, |k| 5000 + 500 * (k % 7), |k| 95_000 - 500 * (k % 7), |_| 200_000);
        assert_eq!(absorbed(&paced).likely, 1.0, "{:?}", absorbed(&paced));
        // Its own timer wakes it up some 10 us later or earlier.
        let jitter =
            cycles_of(9, |k| 400 + 37 * (k % 5), |k| 107_000 - 30 * (k % 5), |k| 224_600 + 11 * (k * 7 % 4));
        assert_eq!(absorbed(&jitter).likely, 1.0, "{:?}", absorbed(&jitter));
    }

    /// Each second 8 ms of work with a quota of 5 ms in 100 ms. Its timer and the quota's are late by some 100 us, as timers
    /// of virtual machines are: the slope shows the jitter of the wake-ups, and nothing of a wait of 95 ms.
    #[test]
    fn variation_within_wakeup_jitter_tells_nothing_of_long_waits() {
        for seed in 1..=40u64 {
            let mut state = seed;
            let mut late = |mean: f64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (-(((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64).ln() * mean) as u64
            };
            let n = [29, 59][seed as usize % 2];
            let (woken, refilled): (Vec<u64>, Vec<u64>) =
                (0..=n).map(|_| (late(150.0), late([20.0, 150.0][seed as usize / 2 % 2]))).unzip();
            let awake = |k: u64| 103_000 + refilled[k as usize] - woken[k as usize].min(50_000);
            let rest = |k: u64| 1_000_000 + woken[k as usize + 1] - 103_000 - refilled[k as usize];
            let paced = cycles_of(n, |_| 8_000, |k| awake(k) - 8_000, rest);
            assert_eq!((absorbed(&paced).low, absorbed(&paced).high), (0.0, 1.0), "seed {seed}");
        }
    }

    #[test]
    fn cycles_of_two_kinds_tell_nothing() {
        let two =
            cycles(30, |k| if k % 3 == 0 { 100_000 } else { 100 }, |k| if k % 3 == 0 { 200_000 } else { 50 });
        assert_eq!((absorbed(&two).low, absorbed(&two).likely), (0.0, 1.0));
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
    fn task_that_never_sleeps_absorbs_nothing() {
        let busy = Task { runnable_ns: 900, exec_ns: 100, lived_ns: 1000, ..Task::default() };
        assert_eq!(absorbed(&busy).high, 0.0);
        assert_eq!(wanted(&busy, 0.0), 1000.0);
    }
}
