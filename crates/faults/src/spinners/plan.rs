//! What is drawn of a spinner.

use serde::{Deserialize, Serialize};

use super::waits::Wait;
use crate::Draw;

/// How much of its time a spinner spins, works and rests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Drawn.
    Drawn,
    /// Drawn, and it spins for most of its time: in a crowd little of it is left.
    Mostly,
    /// It does nothing but spin.
    Pure,
}

/// A spinner written by us.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// How it waits.
    pub wait: Wait,
    /// Pairs of threads.
    pub pairs: usize,
    /// The main thread is one that waits; else one that lets wait.
    pub main_waits: bool,
    /// Name of threads that wait, but for the main thread.
    pub waiter: String,
    /// Name of threads that let them wait.
    pub giver: String,
    /// CPU time of a wait.
    pub spin_us: u64,
    /// CPU time of the work after it.
    pub work_us: u64,
    /// Sleep after the work.
    pub rest_us: u64,
}

/// CPU time of a wait: shorter ones are what spinning is good for, longer ones leave few of them in a window.
const SPIN_US: [u64; 2] = [1_000, 8_000];
/// Of its CPU time, a spinner's part that it spins. Less is no fault that anybody would look for.
const SPINS: [f64; 2] = [0.5, 0.95];
const MOSTLY: f64 = 0.75;
/// Of a CPU, without others: the part that it sleeps, if it does.
const RESTS: [f64; 2] = [0.1, 0.6];

impl Plan {
    /// Draw one.
    pub fn draw(wait: Wait, shape: Shape, pairs: usize, draw: &mut Draw) -> Self {
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

    /// The thread of a slot is one that waits.
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
            let plan = Plan::draw(Wait::Yield, Shape::Drawn, 2, &mut Draw::with(seed));
            let share = plan.spin_us as f64 / (plan.spin_us + plan.work_us) as f64;
            assert!((0.49..=0.96).contains(&share), "{share}");
            assert_ne!(plan.waits(2), plan.waits(plan.partner(2)));
        }
    }
}
