//! What one live test makes, and which of them a run draws.

use std::fmt;

use whyslow_faults::Draw;
use whyslow_faults::lock_chain::Kind;

/// Who is asked about a chain.
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
    Chain(Verb, Kind),
    /// A lock chain under `run`, while busy processes fill the CPUs.
    Crowd(Kind),
    /// A lock chain with locks of the kernel, asked about with `locks`.
    Locks(Kind),
    /// A healthy lock chain.
    Healthy(Kind),
    /// Two lock chains.
    Two,
    /// Nothing at all.
    Idle,
    /// Compilers, so many at a time.
    Compile(usize),
}

/// Cells drawn for one run: with all that is always made about four minutes.
const RUNS: usize = 5;
const ATTACHES: usize = 3;
const CHAINS: usize = 3;
const CROWDS: usize = 2;
const LOCKS: usize = 2;
const HEALTHY: usize = 2;

impl Cell {
    /// Whether the run with this seed makes it.
    pub fn is_drawn(self, seed: u64) -> bool {
        let draw = |what: &str, n: usize, of: &[Kind], kind: Kind| {
            Draw::with(seed).branch(what).some(n, of).contains(&kind)
        };
        let all = Kind::ALL.as_slice();
        match self {
            Cell::Chain(Verb::Run, kind) => draw("run", RUNS, all, kind),
            Cell::Chain(Verb::Attach, kind) => draw("attach", ATTACHES, all, kind),
            Cell::Chain(Verb::Chains, kind) => draw("chains", CHAINS, &reported_on_a_host(), kind),
            Cell::Crowd(kind) => draw("crowd", CROWDS, all, kind),
            Cell::Locks(kind) => draw("locks", LOCKS, &with_kernel_locks(), kind),
            Cell::Healthy(kind) => draw("healthy", HEALTHY, all, kind),
            Cell::Two | Cell::Idle | Cell::Compile(_) => true,
        }
    }
}

fn reported_on_a_host() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| is_of_locks(*kind)).collect()
}

/// A chain of the whole host begins at a lock; and a thread that Go has parked for a mutex looks like one without work.
fn is_of_locks(kind: Kind) -> bool {
    use Kind::{Cgroups, Go, Peers, Pipe, Tcp, Udp, Unix};
    !matches!(kind, Go | Pipe | Unix | Tcp | Udp | Peers | Cgroups)
}

fn with_kernel_locks() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.has_kernel_lock()).collect()
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

#[test]
fn every_seed_draws_as_many_of_each_sort() {
    for seed in 0..200 {
        let count = |of: &[Kind], cell: fn(Kind) -> Cell| {
            of.iter().filter(|kind| cell(**kind).is_drawn(seed)).count()
        };
        let all = Kind::ALL.as_slice();
        assert_eq!(count(all, |kind| Cell::Chain(Verb::Run, kind)), RUNS);
        assert_eq!(count(all, |kind| Cell::Chain(Verb::Attach, kind)), ATTACHES);
        assert_eq!(count(&reported_on_a_host(), |kind| Cell::Chain(Verb::Chains, kind)), CHAINS);
        assert_eq!(count(all, Cell::Crowd), CROWDS);
        assert_eq!(count(&with_kernel_locks(), Cell::Locks), LOCKS);
        assert_eq!(count(all, Cell::Healthy), HEALTHY);
    }
}
