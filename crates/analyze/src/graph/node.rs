//! A stretch of somebody's time, and where it went in turn: the parts of a node add up to it, or there are none.

use std::cell::RefCell;
use std::rc::Rc;

use whyslow_model::wait::{Detail, Note, Reason, WaitTarget};

use super::names::{Called, DetailId, Details, Name};
use crate::hashing::Table;

/// What sort of stretch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sort {
    /// On a CPU.
    Ran,
    /// On the CPU that somebody else wanted.
    HadCpu,
    /// Ready for a CPU.
    Ready,
    /// Its cgroup's CPU quota had run out.
    Quota,
    /// A wait; the row tells which.
    Wait,
    /// Many short waits, told by a row that stands for them.
    Short,
    /// It had not begun: who had to start it is followed.
    Unborn,
    /// Not a task's doing: a timer, a device, a grace period.
    Event,
    /// A CPU that was asked and did not come.
    WakeupLatency,
    /// They wait for each other.
    Cycle,
    /// Nobody ended the wait in the window.
    Open,
    /// Too small to be told apart.
    Other,
    /// Nobody saw what happened.
    Unexplained,
}

/// What is to be known about an edge.
pub(super) mod note {
    /// The holder is known from a lock word that readers leave behind.
    pub const STALE: u8 = 1;
    /// The lock changed hands unseen.
    pub const HAND_OFF: u8 = 2;
    /// They wait for each other.
    pub const CYCLE: u8 = 4;
    /// Nobody was woken in the window.
    pub const OPEN: u8 = 8;
    /// The lock went from hand to hand during one wait.
    pub const CONVOY: u8 = 16;
    /// A timeout or a signal ended it, not who was waited for.
    pub const TIMED: u8 = 32;

    /// As documents have them.
    pub const ALL: [(u8, super::Note); 5] = [
        (CYCLE, super::Note::Cycle),
        (OPEN, super::Note::Open),
        (STALE, super::Note::StaleOwner),
        (HAND_OFF, super::Note::HandOff),
        (CONVOY, super::Note::Convoy),
    ];
}

/// What makes two nodes alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub sort: Sort,
    /// Why it passed.
    pub reason: Reason,
    /// Whose time it is, numbers folded.
    pub who: Called,
    /// For what, or what it did.
    pub what: DetailId,
}

/// A stretch of time, with others that are alike.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub key: Key,
    /// As `key.who`; the real name if all are called so.
    pub shown: Called,
    /// The thread that has the most of it; 0: none.
    pub pid: u32,
    /// Row of the longest wait.
    pub row: Option<usize>,
    /// The function at work.
    pub function: Option<Name>,
    pub ns: u64,
    /// Waits, where counted.
    pub count: u64,
    /// The longest wait, with what of it is outside.
    pub worst: u64,
    /// Of `ns`: what no evidence explains.
    pub unsaid: u64,
    /// See [`note`].
    pub notes: u8,
    pub parts: Parts,
}

/// Parts of a node. Most nodes are leaves, and there are millions: none allocates for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts(Option<Rc<[Node]>>);

impl std::ops::Deref for Parts {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<Rc<[Node]>> for Parts {
    fn from(parts: Rc<[Node]>) -> Self {
        Parts(Some(parts).filter(|parts| !parts.is_empty()))
    }
}

impl Node {
    /// A leaf that is called `who`.
    pub fn leaf(key: Key, pid: u32, ns: u64) -> Self {
        let unsaid = if key.sort == Sort::Unexplained { ns } else { 0 };
        Node {
            key,
            shown: key.who,
            pid,
            row: None,
            function: None,
            ns,
            count: 0,
            worst: 0,
            unsaid,
            notes: 0,
            parts: Parts::default(),
        }
    }

    /// With where it went: parts that add up to it.
    pub fn of(mut self, parts: Rc<[Node]>) -> Self {
        if !parts.is_empty() {
            self.unsaid = parts.iter().map(|part| part.unsaid).sum();
            self.parts = parts.into();
        }
        self
    }

    /// What is alike, as one. The parts of all are merged at once: one after the other would cost their square.
    fn sum(alike: Vec<Node>, rests: &Rests) -> Option<Node> {
        let inner = alike.iter().any(|node| !node.parts.is_empty());
        let mut parts = Vec::new();
        let mut nodes = alike.into_iter();
        let mut sum = nodes.next()?;
        if nodes.len() == 0 {
            return Some(sum);
        }
        sum.give_parts(&mut parts, inner, rests);
        let mut most = sum.ns;
        for node in nodes {
            node.give_parts(&mut parts, inner, rests);
            if node.ns > most {
                (most, sum.pid, sum.function) = (node.ns, node.pid, node.function);
            }
            if node.worst > sum.worst {
                (sum.row, sum.worst) = (node.row, node.worst);
            }
            if sum.shown != node.shown {
                sum.shown = sum.key.who;
            }
            sum.ns = sum.ns.saturating_add(node.ns);
            sum.count = sum.count.saturating_add(node.count);
            sum.unsaid = sum.unsaid.saturating_add(node.unsaid);
            sum.notes |= node.notes;
        }
        sum.parts = if parts.is_empty() { Parts::default() } else { merged(parts, rests).into() };
        Some(sum)
    }

    /// A leaf among nodes with parts becomes a part, so that parts still add up.
    fn give_parts(&self, parts: &mut Vec<Node>, inner: bool, rests: &Rests) {
        match self.parts.is_empty() {
            true if inner => parts.extend(rest(self.ns, self.unsaid, rests)),
            _ => parts.extend(self.parts.iter().cloned()),
        }
    }
}

/// So many families are told of what is too small to be told one by one.
pub(super) const TOGETHER: usize = 6;

/// What kernel functions and functions of a program are called together, by what each is.
#[derive(Debug, Default)]
pub(super) struct Families(RefCell<Table<DetailId, DetailId>>);

impl Families {
    pub fn note(&self, what: DetailId, family: DetailId) {
        let mut all = self.0.borrow_mut();
        all.insert(what, family);
        // What was summed once is summed again.
        all.insert(family, family);
    }

    pub fn of(&self, what: DetailId) -> Option<DetailId> {
        self.0.borrow().get(&what).copied()
    }

    /// Of what ran.
    pub fn of_key(&self, key: Key) -> Option<Key> {
        let ran = key.sort == Sort::Ran && key.reason == Reason::Running;
        Some(Key { what: if ran { self.of(key.what)? } else { return None }, ..key })
    }
}

/// Names that many nodes have.
#[derive(Debug)]
pub(super) struct Rests {
    pub families: Families,
    pub nobody: Called,
    pub smaller: DetailId,
    pub unseen: DetailId,
    pub on_cpu: DetailId,
    pub cpu: DetailId,
    pub short_cpu: DetailId,
    pub short_runs: DetailId,
    /// What is said of one who ran while another wanted its CPU.
    pub had_cpu: DetailId,
}

impl Rests {
    /// Once: what is looked up for each of a million nodes costs more than the node.
    pub fn of(nobody: Called, details: &Details) -> Self {
        let id = |thing: WaitTarget| details.id(thing.into());
        Rests {
            families: Families::default(),
            nobody,
            smaller: id(WaitTarget::SmallerParts),
            unseen: id(WaitTarget::NotExplained),
            on_cpu: id(WaitTarget::OnCpu),
            cpu: id(WaitTarget::Cpu),
            short_cpu: details.id(Detail::Short { of: Box::new(WaitTarget::Cpu.into()), woken_by: None }),
            short_runs: id(WaitTarget::ShortRuns),
            had_cpu: id(WaitTarget::HadCpu),
        }
    }
}

/// A node has at most so many parts: the smallest of more are one.
pub(super) const MOST_PARTS: usize = 32;

/// Nodes that are alike as one; the largest first.
pub(super) fn merged(mut nodes: Vec<Node>, rests: &Rests) -> Rc<[Node]> {
    nodes.retain(|node| node.ns > 0);
    if nodes.len() < 2 {
        return nodes.into(); // as most waits have it: one who held it all the time
    }
    nodes.sort_by_key(|node| node.key);
    let mut out: Vec<Node> = Vec::with_capacity(nodes.len().min(MOST_PARTS));
    let mut nodes = nodes.into_iter().peekable();
    while let Some(node) = nodes.next() {
        let mut alike = std::iter::from_fn(|| nodes.next_if(|next| next.key == node.key)).peekable();
        match alike.peek() {
            None => out.push(node),
            Some(_) => out.extend(Node::sum(std::iter::once(node.clone()).chain(alike).collect(), rests)),
        }
    }
    out.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.key.cmp(&b.key)));
    if out.len() > MOST_PARTS {
        let has_families = out.iter().any(|node| rests.families.of_key(node.key).is_some());
        let small = out.split_off(MOST_PARTS - 2 - if has_families { TOGETHER } else { 0 });
        out.extend(together(small, rests));
        return merged(out, rests);
    }
    out.into()
}

/// Nodes that are too small to be told: what ran by family, as far as there are few, and the rest.
fn together(small: Vec<Node>, rests: &Rests) -> Vec<Node> {
    let mut families: Vec<Node> = Vec::new();
    let (mut ns, mut unsaid) = (0u64, 0u64);
    for node in small {
        let key = rests.families.of_key(node.key);
        match key.map(|key| (key, families.iter_mut().find(|known| known.key == key))) {
            None => (ns, unsaid) = (ns.saturating_add(node.ns), unsaid.saturating_add(node.unsaid)),
            Some((_, Some(known))) => known.ns = known.ns.saturating_add(node.ns),
            Some((key, None)) => families.push(Node::leaf(key, node.pid, node.ns)),
        }
    }
    families.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.key.cmp(&b.key)));
    let smaller = families.iter().skip(TOGETHER).map(|node| node.ns).sum::<u64>();
    families.truncate(TOGETHER);
    families.extend(rest(ns.saturating_add(smaller), unsaid, rests));
    families
}

/// What is left, of which `unsaid` is not explained.
pub(super) fn rest(ns: u64, unsaid: u64, rests: &Rests) -> impl Iterator<Item = Node> {
    let key = |sort, reason, what| Key { sort, reason, who: rests.nobody, what };
    let said = Node::leaf(key(Sort::Other, Reason::Other, rests.smaller), 0, ns.saturating_sub(unsaid));
    let unsaid = Node::leaf(key(Sort::Unexplained, Reason::Unexplained, rests.unseen), 0, unsaid.min(ns));
    [said, unsaid].into_iter().filter(|node| node.ns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rests() -> Rests {
        Rests::of(Called::default(), &Details::default())
    }

    fn node(what: u32, ns: u64) -> Node {
        let key = Key {
            sort: Sort::Wait,
            reason: Reason::Lock,
            who: Called { comm: Name::of(7), work: None },
            what: DetailId::of(what),
        };
        Node { worst: ns, count: 1, ..Node::leaf(key, what, ns) }
    }

    fn sum(parts: &[Node]) -> u64 {
        parts.iter().map(|n| n.ns).sum()
    }

    #[test]
    fn alike_are_one_and_parts_still_add_up() {
        let deep = node(5, 10).of(merged(vec![node(6, 4), node(7, 6)], &rests()));
        let all = merged(vec![deep.clone(), node(5, 3), node(8, 1), node(8, 0), deep], &rests());
        assert_eq!(all.iter().map(|n| (n.ns, n.count)).collect::<Vec<_>>(), [(23, 3), (1, 1)]);
        assert_eq!(all[0].parts.iter().map(|n| n.ns).collect::<Vec<_>>(), [12, 8, 3]);
        assert_eq!(all[0].parts[2].key.reason, Reason::Other);
    }

    #[test]
    fn the_smallest_of_very_many_are_one() {
        let all = merged((10..200).map(|n| node(n, u64::from(n))).collect(), &rests());
        assert_eq!(all.len(), MOST_PARTS - 1);
        assert_eq!(sum(&all), (10..200).sum::<u64>());
    }

    #[test]
    fn what_is_not_explained_stays_so() {
        let unseen = Key {
            sort: Sort::Unexplained,
            reason: Reason::Unexplained,
            who: rests().nobody,
            what: rests().unseen,
        };
        let wait = node(5, 10).of(merged(vec![Node::leaf(unseen, 0, 4), node(6, 6)], &rests()));
        assert_eq!(wait.unsaid, 4);
        let both = merged(vec![wait, node(5, 5)], &rests());
        assert_eq!((both[0].unsaid, sum(&both[0].parts)), (4, 15));
    }
}
