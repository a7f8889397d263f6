//! A flood of datagrams that its receiver can handle, in a network namespace of their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::{Network, Work};
use whyslow_faults::{Draw, Span, Victim};

use super::{PACED, Steady};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// Datagrams that are not counted at the edges of a window are not lost.
const ALL: f64 = 0.97;

/// A flood.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Datagrams at each tick ...
    count: u64,
    /// ... of so many bytes ...
    bytes: u64,
    /// ... at this interval.
    every_us: u64,
    /// CPU time of the receiver for each.
    #[serde(default)]
    burst_us: u64,
}

struct Flood {
    // Ended first: its datagrams to a port without a receiver are refused.
    sender: Steady,
    receiver: Steady,
    count: u64,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let group = testbed.fence.group(&draw.word(6))?;
        let port = draw.between(20_000, 40_000) as u16;
        let work = Work::Drain { port, burst_us: self.burst_us };
        let mut spec = testbed.fence.spec(&group, &draw.word(7), 1, work);
        spec.network = Network::Own;
        let receiver = Victim::spawn(spec)?;
        let work = Work::Flood { port, bytes: self.bytes, count: self.count, every_us: self.every_us };
        let mut spec = testbed.fence.spec(&group, &draw.word(7), 1, work);
        spec.network = Network::Of(receiver.pid());
        let sender = Victim::spawn(spec)?;
        let of = format!("{} datagrams of {} bytes every {} us", self.count, self.bytes, self.every_us);
        let what = format!("{of}; received a second");
        let receiver = Steady::start(receiver, group.clone(), what, PACED);
        Ok(Box::new(Flood { sender: Steady::start(sender, group, of, PACED), receiver, count: self.count }))
    }
}

impl Part for Flood {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.receiver.names()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let mut facts = self.receiver.facts(window, without)?;
        let sent = self.sender.rates(window, without)[0] * self.count as f64;
        let all_came = facts.proof.with >= ALL * sent;
        let Proof { what, holds, .. } = &mut facts.proof;
        *what = format!("{what} ({sent:.0} sent, {} refused)", self.sender.victim.ledger().failures());
        *holds &= all_came;
        Ok(facts)
    }
}
