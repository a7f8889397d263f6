//! What one live test makes, and which of them a run draws.

use std::fmt;

use whyslow_faults::Draw;
use whyslow_faults::spinners::Program;

/// One program, alone or in a crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Which one.
    pub program: Program,
    /// Beside 20 busy processes.
    pub crowded: bool,
}

/// Which set a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// That on which detectors may be tuned.
    Seen,
    /// That on which nobody has tuned anything.
    Unseen,
    /// Both.
    All,
}

/// Cells drawn for one run, of spinners and of honest programs each: less than a minute in all.
const ALONE: usize = 2;
const CROWDED: usize = 1;

impl Set {
    /// What `WHYSLOW_ZOO` asks for.
    pub fn asked() -> Self {
        match std::env::var("WHYSLOW_ZOO").as_deref() {
            Ok("unseen") => Set::Unseen,
            Ok("all") => Set::All,
            _ => Set::Seen,
        }
    }

    fn programs(self) -> Vec<Program> {
        match self {
            Set::Seen => Program::seen(),
            Set::Unseen => Program::unseen(),
            Set::All => Program::seen().into_iter().chain(Program::unseen()).collect(),
        }
    }
}

impl Cell {
    /// Whether the run with this seed makes it.
    pub fn is_drawn(self, set: Set, seed: u64) -> bool {
        let alike: Vec<Program> =
            set.programs().into_iter().filter(|other| other.spins() == self.program.spins()).collect();
        let (n, load) = if self.crowded { (CROWDED, "crowded") } else { (ALONE, "alone") };
        let label = format!("{load}-{}", self.program.spins());
        Draw::with(seed).branch(&label).some(n, &alike).contains(&self.program)
    }

    /// What is beside it.
    pub fn load(self) -> &'static str {
        if self.crowded { "20" } else { "alone" }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spin-{}-{}", self.program, self.load())
    }
}

#[test]
fn every_seed_draws_two_spinners_and_two_honest_programs() {
    for (seed, set) in (0..200).flat_map(|seed| [Set::Seen, Set::Unseen, Set::All].map(|set| (seed, set))) {
        let count = |spins: bool, crowded: bool| {
            let cells = set.programs().into_iter().map(|program| Cell { program, crowded });
            cells.filter(|cell| cell.program.spins() == spins && cell.is_drawn(set, seed)).count()
        };
        assert_eq!((count(true, false), count(false, false)), (ALONE, ALONE));
        assert_eq!((count(true, true), count(false, true)), (CROWDED, CROWDED));
    }
}
