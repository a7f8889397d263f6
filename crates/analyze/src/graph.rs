//! The wait-for graph: from what every task did, and who ended its waits, to where wall time went and who is at the end of
//! the chain.
//!
//! Conservation is the law. A timeline covers its window without overlap; a stretch of it is shared out in nanoseconds that
//! add up; what no evidence explains is a part of its own, never somebody else's blame.

mod alike;
mod at_work;
mod brief;
mod chains;
mod children;
mod culprit;
mod did;
mod elsewhere;
mod ended;
mod explain;
mod facts;
mod flames;
mod growing;
mod holders;
mod in_flight;
mod ipi_waits;
mod kernel_wait;
mod layout;
mod leaves;
mod loops;
mod mismatch;
mod names;
mod node;
mod onward;
mod other_ends;
mod owners;
mod parked;
mod passed_on;
mod patience;
mod requests;
mod resting;
mod short_runs;
mod split;
#[cfg(test)]
mod tests;
mod timeline;
mod turns;
mod walk;
mod wall;
mod who_answers;

use whyslow_model::Recording;
use whyslow_model::chain::{Chain, WallAccount};

pub use chains::CHAIN_THRESHOLD;
pub(crate) use chains::{HostChain, WITHOUT_A_BREAK};
pub(crate) use culprit::HALTED;
pub use culprit::UNKNOWN;
use facts::Graph;
pub use flames::Path;
pub(crate) use kernel_wait::is_cycle;
pub(crate) use names::folded;

use crate::cpu::quota;
use crate::{Evidence, wait_reasons};

/// The wait-for graph of a recording, made once for all that is asked of it.
pub(crate) struct WaitGraph<'r>(Graph<'r>);

impl<'r> WaitGraph<'r> {
    /// `None`: there are no timelines in the recording.
    pub fn of(recording: &'r Recording) -> Option<Self> {
        Graph::of(recording, wait_reasons::of).map(Self)
    }

    /// ... with what this evidence has made already.
    pub fn beside(ev: &Evidence<'r>) -> Option<Self> {
        let graph = Graph::with(ev.recording(), wait_reasons::of, ev.stacks().clone(), ev.on_cpu().clone())?;
        graph.group_names.get_or_init(|| ev.names().clone());
        if graph.spans.iter().any(|span| span.throttled_ns > 0) {
            graph.binding.get_or_init(|| quota::binding(ev).unwrap_or_default());
        }
        Some(Self(graph))
    }

    /// Where the wall time of the watched tasks, or of a command, went. `None`: no task is watched.
    pub fn account(&self) -> Option<WallAccount> {
        wall::account(&self.0)
    }

    /// Chains, the most expensive first: of the watched tasks, else of everybody who lost time.
    pub fn chains(&self) -> Vec<Chain> {
        chains::chains(&self.0)
    }

    /// Chains of these threads, as if they were watched.
    pub fn chains_around(&self, pids: impl Iterator<Item = u32>) -> Vec<Chain> {
        chains::around(&self.0, &pids.collect())
    }

    /// Chains of the whole host, whoever is watched.
    pub fn host_chains(&self) -> Vec<HostChain<'r>> {
        chains::of_host(&self.0)
    }
}

/// Chains of waits, the most expensive first: of the watched tasks, else of everybody who lost time.
#[must_use]
pub fn chains(recording: &Recording) -> Vec<Chain> {
    WaitGraph::of(recording).map(|graph| graph.chains()).unwrap_or_default()
}

/// For a flame graph: labels from the root (a thread's name) over the waiter's frames, outermost first, and then for each
/// hop "-- waits for X" and the next task's name, to the leaf; with nanoseconds. Those of watched tasks add up to their
/// wall time; on the whole host only lost time is there.
#[must_use]
pub fn paths(recording: &Recording) -> Vec<Path> {
    Graph::of(recording, wait_reasons::of).map(|graph| flames::paths(&graph)).unwrap_or_default()
}
