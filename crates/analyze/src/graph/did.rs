//! What a thread did on a CPU, as nodes. Its samples are named and put in order once: its time is told of a million stretches.

use whyslow_model::wait::Reason;

use super::facts::{Graph, Who};
use super::names::{DetailId, Details, Name, Names};
use super::node::{MOST_PARTS, Node, Sort, merged, rest};
use super::split::split_many;
use crate::stacks::doing::Doing;

/// A stretch below this, in ns, is one of thousands that a chain of short waits is made of ...
const SHORT: u64 = 10_000_000;
/// ... and is reported by so many of the functions that its thread was in: all thirty of each would be the most of the work.
const MOST_OF_SHORT: usize = 8;

/// What one thread did.
#[derive(Debug)]
pub(super) struct Did {
    ran: Vec<Deed>,
    /// Spinning is waiting: it stands by itself.
    spun: Vec<Deed>,
    /// Of which the largest part is a call of this.
    function: Option<Name>,
}

#[derive(Debug)]
struct Deed {
    what: DetailId,
    function: Option<Name>,
    /// In parts of a million.
    share: u64,
    asks: bool,
}

impl Did {
    /// Of what samples tell, the largest first.
    pub fn of(did: &[(Doing, f64)], names: &Names, details: &Details) -> Self {
        let named = |doing: &Doing| doing.function().map(|function| names.id(function));
        let (mut ran, mut spun) = (Vec::<Deed>::new(), Vec::<Deed>::new());
        for (doing, share) in did {
            let list = if doing.is_spinning() { &mut spun } else { &mut ran };
            let (what, share) = (details.id(doing.0.clone()), (share.clamp(0.0, 1.0) * 1e6) as u64);
            match list.iter_mut().find(|deed| deed.what == what) {
                Some(deed) => deed.share += share,
                None => list.push(Deed { what, function: named(doing), share, asks: doing.is_asking() }),
            }
        }
        for list in [&mut ran, &mut spun] {
            list.sort_by_key(|deed| std::cmp::Reverse(deed.share));
        }
        Did { ran, spun, function: did.first().and_then(|(doing, _)| named(doing)) }
    }

    /// The function that it was in most of the time.
    pub fn function(&self) -> Option<Name> {
        self.function
    }
}

impl Graph<'_> {
    /// Time on a CPU by what the task did there, as far as samples tell.
    pub fn ran(&self, who: Who, ns: u64) -> Vec<Node> {
        if ns == 0 {
            return Vec::new();
        }
        let did = self.did(who.pid);
        let ran = did.ran.iter().map(|deed| deed.share).sum();
        let weights: Vec<u64> = did.spun.iter().map(|deed| deed.share).chain([ran]).collect();
        let parts = split_many(ns, &weights);
        if parts.iter().all(|part| *part == 0) {
            return vec![self.node(Sort::Ran, Reason::Running, who, self.rests.on_cpu, ns)];
        }
        let spun = did.spun.iter().zip(&parts);
        let mut nodes: Vec<Node> =
            spun.map(|(deed, part)| self.deed(who, deed, Reason::Spinning, *part)).collect();
        nodes.extend(parts.last().filter(|ns| **ns > 0).map(|ns| self.ran_only(who, &did.ran, *ns)));
        nodes
    }

    fn ran_only(&self, who: Who, ran: &[Deed], ns: u64) -> Node {
        // Of many short lives each has a sample or none: what one of them did says nothing of the others.
        if let [one] = ran
            && !self.is_brief(who.pid)
        {
            return self.deed(who, one, Reason::Running, ns);
        }
        let most = if ns < SHORT { MOST_OF_SHORT } else { MOST_PARTS - 2 };
        let reported = if ran.len() > most + 1 { most } else { ran.len() };
        let smaller = ran.iter().skip(reported).map(|deed| deed.share).sum();
        let shares: Vec<u64> = ran.iter().take(reported).map(|deed| deed.share).chain([smaller]).collect();
        let parts = split_many(ns, &shares);
        let mut nodes: Vec<Node> = Vec::with_capacity(reported + 1);
        let each = ran.iter().zip(&parts).take(reported).filter(|(_, ns)| **ns > 0);
        nodes.extend(each.map(|(deed, ns)| self.deed(who, deed, Reason::Running, *ns)));
        nodes.extend(parts.last().into_iter().flat_map(|ns| rest(*ns, 0, &self.rests)));
        let all = self.node(Sort::Ran, Reason::Running, who, self.rests.on_cpu, ns);
        Node { function: ran.first().and_then(|deed| deed.function), ..all }.of(nodes.into())
    }

    fn deed(&self, who: Who, deed: &Deed, reason: Reason, ns: u64) -> Node {
        let node = Node { function: deed.function, ..self.node(Sort::Ran, reason, who, deed.what, ns) };
        if !deed.asks {
            return node;
        }
        node.of(merged(self.ipi_waits.parts(self, who.pid, ns), &self.rests))
    }
}
