//! What a thread did on a CPU, as nodes. Its samples are named and put in order once: its time is told of a million stretches.

use whyslow_model::wait::Reason;

use super::facts::{Graph, Who};
use super::names::{DetailId, Details, Name, Names};
use super::node::{Families, MOST_PARTS, Node, Sort, TOGETHER, merged, rest};
use super::split::split_many;
use crate::stacks::doing::Doing;

/// A stretch below this, in ns, is one of thousands that a chain of short waits is made of ...
const SHORT: u64 = 10_000_000;
/// ... and is reported by so many of the functions that its thread was in: all thirty of each would be the most of the work.
const MOST_OF_SHORT: usize = 8;

/// What one thread did, or several.
#[derive(Debug)]
pub(super) struct Did {
    ran: Vec<Deed>,
    /// All but the first of them together, for short stretches and for long ones.
    others: [Others; 2],
    /// Spinning is waiting: it stands by itself.
    spun: Vec<Deed>,
    /// Of which the largest part is a call of this.
    function: Option<Name>,
}

/// Deeds of which each is too small to be told.
#[derive(Debug, Default)]
struct Others {
    /// After so many that are told.
    after: usize,
    /// By what they are called together, the largest first.
    families: Vec<(DetailId, u64)>,
    smaller: u64,
}

impl Others {
    fn of(ran: &[Deed], most: usize, families: &Families) -> Self {
        let after = if ran.len() > most + 1 { most } else { ran.len() };
        let mut others = Others { after, ..Others::default() };
        for deed in ran.iter().skip(after) {
            match families.of(deed.what) {
                None => others.smaller += deed.share,
                Some(family) => match others.families.iter_mut().find(|(known, _)| *known == family) {
                    Some((_, share)) => *share += deed.share,
                    None => others.families.push((family, deed.share)),
                },
            }
        }
        others.families.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
        let smaller = others.families.iter().skip(TOGETHER).map(|(_, share)| share).sum::<u64>();
        others.families.truncate(TOGETHER);
        others.smaller += smaller;
        others
    }
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
    pub fn of(did: &[(Doing, f64)], names: &Names, details: &Details, families: &Families) -> Self {
        let named = |doing: &Doing| doing.function().map(|function| names.id(function));
        let (mut ran, mut spun) = (Vec::<Deed>::new(), Vec::<Deed>::new());
        for (doing, share) in did {
            let list = if doing.is_spinning() { &mut spun } else { &mut ran };
            let (what, share) = (details.id(doing.0.clone()), (share.clamp(0.0, 1.0) * 1e6) as u64);
            if let Some(family) = doing.family() {
                families.note(what, details.id(family));
            }
            match list.iter_mut().find(|deed| deed.what == what) {
                Some(deed) => deed.share += share,
                None => list.push(Deed { what, function: named(doing), share, asks: doing.is_asking() }),
            }
        }
        for list in [&mut ran, &mut spun] {
            list.sort_by_key(|deed| std::cmp::Reverse(deed.share));
        }
        let others = [MOST_OF_SHORT, MOST_PARTS - 2 - TOGETHER].map(|most| Others::of(&ran, most, families));
        Did { ran, others, spun, function: did.first().and_then(|(doing, _)| named(doing)) }
    }

    /// The function that it was in most of the time.
    pub fn function(&self) -> Option<Name> {
        self.function
    }
}

impl Graph<'_> {
    /// Time on a CPU by what the task did there, as far as samples tell.
    pub fn ran(&self, who: Who, ns: u64) -> Vec<Node> {
        self.ran_as(who, &self.did(who.pid), ns)
    }

    /// The same, as far as these samples tell.
    pub fn ran_as(&self, who: Who, did: &Did, ns: u64) -> Vec<Node> {
        if ns == 0 {
            return Vec::new();
        }
        let ran = did.ran.iter().map(|deed| deed.share).sum();
        let weights: Vec<u64> = did.spun.iter().map(|deed| deed.share).chain([ran]).collect();
        let parts = split_many(ns, &weights);
        if parts.iter().all(|part| *part == 0) {
            return vec![self.node(Sort::Ran, Reason::Running, who, self.rests.on_cpu, ns)];
        }
        let spun = did.spun.iter().zip(&parts);
        let mut nodes: Vec<Node> =
            spun.map(|(deed, part)| self.deed(who, deed, Reason::Spinning, *part)).collect();
        nodes.extend(parts.last().filter(|ns| **ns > 0).map(|ns| self.ran_only(who, did, *ns)));
        nodes
    }

    fn ran_only(&self, who: Who, did: &Did, ns: u64) -> Node {
        let ran = &did.ran[..];
        // Of many short lives each has a sample or none: what one of them did says nothing of the others.
        if let [one] = ran
            && !self.is_brief(who.pid)
        {
            return self.deed(who, one, Reason::Running, ns);
        }
        let others = &did.others[usize::from(ns >= SHORT)];
        let told = ran.get(..others.after).unwrap_or(ran);
        let together = others.families.iter().map(|(_, share)| *share).chain([others.smaller]);
        let shares: Vec<u64> = told.iter().map(|deed| deed.share).chain(together).collect();
        let parts = split_many(ns, &shares);
        let (each, together) = parts.split_at(told.len());
        let mut nodes: Vec<Node> = Vec::with_capacity(parts.len());
        let each = told.iter().zip(each).filter(|(_, ns)| **ns > 0);
        nodes.extend(each.map(|(deed, ns)| self.deed(who, deed, Reason::Running, *ns)));
        let families = others.families.iter().zip(together).filter(|(_, ns)| **ns > 0);
        nodes.extend(families.map(|((what, _), ns)| self.node(Sort::Ran, Reason::Running, who, *what, *ns)));
        nodes.extend(together.last().into_iter().flat_map(|ns| rest(*ns, 0, &self.rests)));
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
