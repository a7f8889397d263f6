//! A cost that was measured for several tasks together, less what their sleeps absorb (see `demand.rs`).

use std::time::Duration;

use whyslow_model::table::Task;

use crate::cpu::demand::{absorbed, could_absorb};

/// A task that lost less than this share of its time is not counted among the victims.
const NOTICEABLE: f64 = 0.01;

/// Time lost by tasks together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    /// Best guess.
    pub likely: Duration,
    /// Lower bound: sleeps absorb all that they could have absorbed.
    pub low: Duration,
    /// Upper bound: sleeps absorb only what they must have absorbed.
    pub high: Duration,
    /// The part of the window for which the tasks with a noticeable loss lived, summed up.
    pub lived: Duration,
    /// Tasks that lost noticeably.
    pub tasks: u64,
}

/// A task that has lost more than this part of its own time ...
const OF_ITS_TIME: f64 = 0.05;
/// ... and more than this part of the window has a noticeable loss.
const OF_THE_WINDOW: f64 = 0.01;

impl Loss {
    /// Of these tasks and others.
    #[must_use]
    pub fn and(self, other: Loss) -> Loss {
        Loss {
            likely: self.likely.saturating_add(other.likely),
            low: self.low.saturating_add(other.low),
            high: self.high.saturating_add(other.high),
            lived: self.lived.saturating_add(other.lived),
            tasks: self.tasks.saturating_add(other.tasks),
        }
    }

    /// Whether the loss is worth a finding: any host that does some work loses less than that.
    #[must_use]
    pub fn is_felt(&self, window: Duration) -> bool {
        let likely = self.likely.as_secs_f64();
        likely > OF_ITS_TIME * self.lived.as_secs_f64() && likely > OF_THE_WINDOW * window.as_secs_f64()
    }
}

/// What `tasks` lose of `cost_ns`, which is divided among them in proportion to `weight`.
#[must_use]
pub fn lost(tasks: &[&Task], weight: impl Fn(&Task) -> u64, cost_ns: f64) -> Loss {
    let whole: f64 = tasks.iter().map(|t| weight(t) as f64).sum();
    let mut loss = Loss::default();
    if whole <= 0.0 || cost_ns <= 0.0 {
        return loss;
    }
    for task in tasks {
        let cost = (cost_ns * weight(task) as f64 / whole).min(task.lived_ns as f64);
        let (low, likely, high) = after_sleeps(task, cost);
        loss.low += Duration::from_nanos(low as u64);
        loss.likely += Duration::from_nanos(likely as u64);
        loss.high += Duration::from_nanos(high as u64);
        if likely > NOTICEABLE * task.lived_ns as f64 {
            loss.lived += Duration::from_nanos(task.lived_ns);
            loss.tasks = loss.tasks.saturating_add(1).saturating_add(task.folded);
        }
    }
    loss
}

/// What one task lost of its cost: at least, likely, at most.
fn after_sleeps(task: &Task, cost: f64) -> (f64, f64, f64) {
    if cost <= 0.0 {
        return (0.0, 0.0, 0.0);
    }
    let most = could_absorb(task, cost);
    // For the waits the cycles show what sleeps absorb. For the rest, CPU time, they do not: sleeps may have absorbed all of it.
    let covered = (waited(task) / cost).min(1.0);
    let a = absorbed(task);
    let part = |known: f64, unknown: f64| (covered * known + (1.0 - covered) * unknown).min(most);
    (cost * (1.0 - part(a.high, most)), cost * (1.0 - part(a.likely, most)), cost * (1.0 - part(a.low, 0.0)))
}

fn waited(task: &Task) -> f64 {
    task.runnable_ns.saturating_add(task.io_ns).saturating_add(task.blocked_ns) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(io_ms: u64, sleep_ms: u64) -> Task {
        Task {
            lived_ns: 1_000_000_000,
            io_ns: io_ms * 1_000_000,
            sleep_ns: sleep_ms * 1_000_000,
            ..Task::default()
        }
    }

    #[test]
    fn task_that_never_sleeps_loses_the_whole_cost() {
        let t = task(800, 0);
        let loss = lost(&[&t, &t], |t| t.io_ns, 1.5e9);
        assert_eq!(
            (loss.likely, loss.low, loss.tasks),
            (Duration::from_millis(1500), Duration::from_millis(1500), 2)
        );
    }

    #[test]
    fn sleeps_long_enough_may_have_absorbed_it_all() {
        let loss = lost(&[&task(200, 700)], |t| t.io_ns, 0.2e9);
        assert_eq!(
            (loss.likely, loss.low, loss.high),
            (Duration::ZERO, Duration::ZERO, Duration::from_millis(200))
        );
    }

    #[test]
    fn a_short_rest_of_a_timers_sleep_may_have_absorbed_it_all() {
        let loss = lost(&[&task(600, 300)], |t| t.io_ns, 0.6e9);
        assert_eq!((loss.likely, loss.low), (Duration::ZERO, Duration::ZERO));
        let hardly = lost(&[&task(900, 50)], |t| t.io_ns, 0.9e9);
        assert_eq!((hardly.low, hardly.high), (Duration::from_millis(850), Duration::from_millis(900)));
    }

    #[test]
    fn a_sleep_of_fixed_length_absorbs_nothing() {
        let mut t = task(0, 300);
        for k in 0..30u64 {
            let (wait, rest) = (5000 + 3000 * (k % 7), 10_000);
            t.cycles += 1;
            t.awake += wait;
            t.rest += rest;
            t.awake_awake += wait * wait;
            t.awake_rest += wait * rest;
            t.rest_rest += rest * rest;
        }
        t.io_ns = t.awake * 1000;
        let loss = lost(&[&t], |t| t.io_ns, t.io_ns as f64);
        assert!(loss.low.as_nanos() as f64 > 0.95 * t.io_ns as f64, "{loss:?}");
    }

    #[test]
    fn loss_never_exceeds_the_lifetime_of_the_tasks() {
        let loss = lost(&[&task(800, 0)], |t| t.io_ns, 9e9);
        assert_eq!(loss.likely, Duration::from_secs(1));
        assert_eq!(lost(&[], |t| t.io_ns, 9e9), Loss::default());
    }
}
