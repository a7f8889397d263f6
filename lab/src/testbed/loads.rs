//! Honest loads: they fill a host, and nothing is wrong with it. Each reports its rate by its own clock, in the window and outside: this
//! proves that it was a load, and that nothing delayed it.

pub mod compile;
pub mod crowd;
pub mod disk;
pub mod forks;
pub mod idle;
pub mod network;

use std::collections::BTreeMap;

use whyslow_faults::cgroup::Group;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Span, Victim, truth};

use crate::testbed::part::{Facts, Part, Proof};

/// A load that uses all CPU time it can get slows down while whyslow, the guest and the emulator use the same CPUs: it must still make
/// progress.
const GREEDY: f64 = 6.0;
/// Work at each tick of a clock is done in time, except for the ticks that an emulated CPU misses.
const PACED: f64 = 2.0;

/// Victims with constant work.
struct Steady {
    victim: Victim,
    group: Group,
    /// The unit of the count.
    what: String,
    /// Rates that differ by less count as equal.
    ratio: f64,
}

impl Steady {
    fn start(victim: Victim, group: Group, what: String, ratio: f64) -> Self {
        victim.go();
        Steady { victim, group, what, ratio }
    }

    fn rates(&self, window: Span, without: &[Span]) -> [f64; 2] {
        let ledger = self.victim.ledger();
        [ledger.rate(window), truth::median_rate(ledger, without)]
    }
}

impl Part for Steady {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        names(&self.group, self.victim.comm(), self.victim.pid())
    }

    fn groups(&self) -> Vec<&Group> {
        vec![&self.group]
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let [with, outside] = self.rates(window, without);
        Ok(Facts {
            proof: Proof::stays(&*self.what, with, outside, self.ratio),
            lost_s: None,
            names: self.names(),
        })
    }
}

pub(super) fn names(group: &Group, comm: &str, pid: u32) -> BTreeMap<String, String> {
    let known = [("group", group.path().to_owned()), ("comm", comm.to_owned()), ("pid", pid.to_string())];
    known.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
}
