//! What one live test makes, and which of them a run draws.

use std::fmt;

use whyslow_faults::{Draw, Kind, bars};

/// One live test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A fault on a host that is otherwise idle.
    Fault(Kind),
    /// A fault while busy processes fill the CPUs.
    Crowd(Kind),
    /// The same load, no fault.
    Twin(Kind),
    /// The counter rises, nothing is lost.
    Control(Kind),
    /// Two faults at once.
    Pair(Kind, Kind),
    /// Nothing at all.
    Idle,
    /// Compilers, so many at a time.
    Compile(usize),
}

impl Cell {
    /// Whether the run with this seed makes it. Every fault is always made: only its variants are drawn.
    pub fn is_drawn(self, seed: u64) -> bool {
        let draw = |what: &str| Draw::with(seed).branch(what);
        match self {
            Cell::Fault(_) | Cell::Idle | Cell::Compile(_) => true,
            Cell::Crowd(kind) => draw("crowds").some(bars::DRAWN_CROWDS, &Kind::ALL).contains(&kind),
            Cell::Twin(kind) | Cell::Control(kind) => {
                draw("twins").some(bars::DRAWN_TWINS, &Kind::ALL).contains(&kind)
            }
            Cell::Pair(a, b) => draw("pairs").some(bars::DRAWN_PAIRS, &Kind::pairs()).contains(&[a, b]),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Fault(kind) => write!(f, "{}-fault", kind.rule()),
            Cell::Crowd(kind) => write!(f, "{}-crowd", kind.rule()),
            Cell::Twin(kind) => write!(f, "{}-twin", kind.rule()),
            Cell::Control(kind) => write!(f, "{}-control", kind.rule()),
            Cell::Pair(a, b) => write!(f, "{}-and-{}", a.rule(), b.rule()),
            Cell::Idle => f.write_str("idle"),
            Cell::Compile(jobs) => write!(f, "compile-j{jobs}"),
        }
    }
}

#[test]
fn every_seed_draws_three_twins_two_crowds_and_three_pairs() {
    for seed in 0..200 {
        let count = |cells: &[Cell]| cells.iter().filter(|cell| cell.is_drawn(seed)).count();
        assert_eq!(count(&Kind::ALL.map(Cell::Twin)), 3);
        assert_eq!(count(&Kind::ALL.map(Cell::Control)), 3);
        assert_eq!(count(&Kind::ALL.map(Cell::Crowd)), 2);
        let pairs: Vec<Cell> = Kind::pairs().into_iter().map(|[a, b]| Cell::Pair(a, b)).collect();
        assert_eq!(count(&pairs), 3);
    }
}
