//! Peers that are not on this host: how much of the wait for an answer the network took, as TCP has measured it, and how much the peer.

use whyslow_model::timeline::Span;
use whyslow_model::wait::WaitTarget;

use super::facts::{Behind, Graph};
use super::node::{Sort, merged};
use crate::wait_reasons::round_trip;

impl Graph<'_> {
    /// `None`: it was no answer of such a peer, or nobody has measured.
    pub fn by_peer_elsewhere(&self, span: &Span, ns: u64) -> Option<Behind> {
        let network = round_trip(span)?.min(ns);
        let node = |what: WaitTarget, ns| {
            let id = self.details.id(what.into());
            self.node(Sort::Event, what.reason(), self.no_one(), id, ns)
        };
        let parts = vec![node(WaitTarget::RoundTrip, network), node(WaitTarget::PeerTime, ns - network)];
        Some((merged(parts, &self.rests), 0))
    }
}
