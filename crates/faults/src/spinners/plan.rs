//! The drawn parameters of a spinner.

use serde::{Deserialize, Serialize};

use super::waits::SpinWait;
use crate::Draw;

/// How much of its time a spinner spins, works and rests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Drawn.
    Drawn,
    /// Drawn, and it spins for most of its time: a crowd leaves it little CPU time.
    Mostly,
    /// It only spins.
    Pure,
}

/// A spinner of this crate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// How it waits.
    pub wait: SpinWait,
    /// Pairs of threads.
    pub pairs: usize,
    /// Whether the main thread is a waiter; otherwise it is a giver.
    pub main_waits: bool,
    /// Name of the waiters, except the main thread.
    pub waiter: String,
    /// Name of the givers.
    pub giver: String,
    /// CPU time of a wait.
    pub spin_us: u64,
    /// CPU time of the work after it.
    pub work_us: u64,
    /// Sleep after the work.
    pub rest_us: u64,
}

/// CPU time of a wait: for shorter waits spinning is right, and longer ones leave too few waits in a window.
const SPIN_US: [u64; 2] = [1_000, 8_000];
/// Bounds of the part of its CPU time that a spinner spins. Less is no fault worth finding.
const SPINS: [f64; 2] = [0.5, 0.95];
const MOSTLY: f64 = 0.75;
/// Bounds of the part of its time that it sleeps, if it sleeps and has a CPU for itself.
const RESTS: [f64; 2] = [0.1, 0.6];

impl Plan {
    /// Draw one.
    pub fn draw(wait: SpinWait, shape: Shape, pairs: usize, draw: &mut Draw) -> Self {
        let spin_us = draw.between(SPIN_US[0], SPIN_US[1]);
        let mut plan = Plan {
            wait,
            pairs,
            main_waits: draw.one_in(2),
            waiter: draw.word(9),
            giver: draw.word(11),
            spin_us,
            work_us: 0,
            rest_us: 0,
        };
        if shape == Shape::Pure {
            return plan;
        }
        let least = if shape == Shape::Mostly { MOSTLY } else { SPINS[0] };
        let (spins, rests) = (draw.real(least, SPINS[1]), draw.real(RESTS[0], RESTS[1]));
        plan.work_us = (spin_us as f64 * (1.0 - spins) / spins) as u64;
        if shape == Shape::Drawn && draw.one_in(2) {
            plan.rest_us = ((spin_us + plan.work_us) as f64 * rests / (1.0 - rests)) as u64;
        }
        plan
    }

    /// Whether the thread of a slot is a waiter.
    #[must_use]
    pub fn waits(&self, slot: usize) -> bool {
        slot.is_multiple_of(2) == self.main_waits
    }

    /// The slot of the other thread of a pair.
    #[must_use]
    pub fn partner(&self, slot: usize) -> usize {
        slot ^ 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_spinner_spins_at_least_half_of_its_cpu_time() {
        for seed in 0..500 {
            let plan = Plan::draw(SpinWait::Yield, Shape::Drawn, 2, &mut Draw::with(seed));
            let share = plan.spin_us as f64 / (plan.spin_us + plan.work_us) as f64;
            assert!((0.49..=0.96).contains(&share), "{share}");
            assert_ne!(plan.waits(2), plan.waits(plan.partner(2)));
        }
    }
}
