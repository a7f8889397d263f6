//! The scenario of one live test.

use std::fmt;

use whyslow_faults::spinners::Program;

/// One program, alone or in a crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The program.
    pub program: Program,
    /// Whether it runs beside 20 busy processes.
    pub crowded: bool,
}

impl Cell {
    /// The name of the other load.
    pub fn load(self) -> &'static str {
        if self.crowded { "20" } else { "alone" }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spin-{}-{}", self.program, self.load())
    }
}
