//! What each CPU delivered to loops of known length.

use serde::{Deserialize, Serialize};

/// A CPU, and the loops it ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speed {
    pub cpu: u32,
    /// Why it was not measured; `None`: it was.
    pub skipped: Option<String>,
    /// The loops, in order of time.
    pub loops: Vec<Loop>,
    /// An addition that waits for the one before takes one cycle: true of hardware, not of an emulator.
    pub cycle_exact: bool,
    /// Cycles while it was not idle, between its first and its last loop; 0: not counted.
    pub busy_cycles: u64,
    /// Cycles at the reference frequency in that time.
    pub reference_cycles: u64,
    /// Its energy performance preference ("balance_performance"), where its driver has one.
    pub preference: Option<String>,
    /// Its energy performance bias (0 to 15), where it has one.
    pub bias: Option<String>,
}

/// One loop: additions, each waiting for the one before, in pieces of equal length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loop {
    /// When it began, since the window did.
    pub at_ns: u64,
    /// Wall time.
    pub wall_ns: u64,
    /// CPU time of its thread.
    pub cpu_ns: u64,
    /// Of the wall time, ready and not running; `None`: this kernel does not tell.
    pub wait_ns: Option<u64>,
    /// Additions done.
    pub work: u64,
    /// Pieces done.
    pub pieces: u64,
    /// Wall time of the fastest piece.
    pub best_ns: u64,
    /// Ticks of the time stamp counter in the wall time; 0: there is none.
    pub ticks: u64,
}
