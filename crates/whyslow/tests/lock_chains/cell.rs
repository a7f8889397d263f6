//! The scenario of one live test.

use std::fmt;

use whyslow_faults::lock_chain::LinkKind;

/// The verb of whyslow that must report a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `whyslow run -- PROGRAM`.
    Run,
    /// `whyslow attach PROGRAM`.
    Attach,
    /// `whyslow chains`.
    Chains,
}

/// One live test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A lock chain on a host that is otherwise idle.
    Chain(Verb, LinkKind),
    /// A lock chain under `run`, while busy processes fill the CPUs.
    Crowd(LinkKind),
    /// A lock chain with kernel locks, for `locks`.
    Locks(LinkKind),
    /// A healthy lock chain.
    Healthy(LinkKind),
    /// Two lock chains.
    Two,
    /// An idle host.
    Idle,
    /// Compilers, this many at a time.
    Compile(usize),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Chain(Verb::Run, kind) => write!(f, "{kind}-run"),
            Cell::Chain(Verb::Attach, kind) => write!(f, "{kind}-attach"),
            Cell::Chain(Verb::Chains, kind) => write!(f, "{kind}-chains"),
            Cell::Crowd(kind) => write!(f, "{kind}-crowd"),
            Cell::Locks(kind) => write!(f, "{kind}-locks"),
            Cell::Healthy(kind) => write!(f, "{kind}-healthy"),
            Cell::Two => f.write_str("two-lock_chains"),
            Cell::Idle => f.write_str("idle"),
            Cell::Compile(jobs) => write!(f, "compile-j{jobs}"),
        }
    }
}
