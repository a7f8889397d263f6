//! How the parts of an account are laid out: all waits for one device under one line, small parts together, who rests at the end.

use std::time::Duration;

use whyslow_model::Share;
use whyslow_model::chain::Part;
use whyslow_model::wait::{Detail, Operation, Reason, WaitTarget, Who};

use super::facts::Graph;
use super::names::Called;
use super::node::{Key, Node, Sort, merged};

/// Parts below this (1 in 200, half a percent of the wall time) are reported together ...
const SMALL: u64 = 200;
/// ... unless together they were the largest row: then the largest of them have their own, as long as there are no more than a
/// reader looks through.
const MOST_ROWS: usize = 16;

/// As the document has it: names where they change.
pub(super) fn reported(graph: &Graph<'_>, nodes: &[Node], who: Called, wall: u64) -> Vec<Part> {
    let nodes = by_family(graph, by_device(graph, nodes), wall / SMALL);
    let together = |from: usize| nodes.iter().skip(from).map(|node| node.ns).sum::<u64>();
    let largest = nodes.first().map_or(0, |node| node.ns);
    let mut rows = nodes.iter().take_while(|node| node.ns >= wall / SMALL).count();
    while rows < MOST_ROWS.min(nodes.len()) && together(rows) > largest {
        rows += 1;
    }
    let rows = if rows + 1 == nodes.len() { nodes.len() } else { rows };
    let (kept, small) = nodes.split_at(rows.min(nodes.len()));
    let mut parts: Vec<Part> = kept.iter().map(|node| part(graph, node, who, wall)).collect();
    if !small.is_empty() {
        let ns = small.iter().map(|node| node.ns).sum();
        parts.push(Part {
            reason: Reason::Other,
            detail: Detail::Smaller { parts: small.len() },
            time: Duration::from_nanos(ns),
            share: Some(Share::of(ns as f64, wall as f64)),
            ..Part::default()
        });
    }
    parts.sort_by_key(|part| (is_rest(part.reason, &part.detail), part.reason == Reason::Other));
    parts
}

/// Who has nothing to do comes last, however long that was; what is too small to be told apart before that.
fn is_rest(reason: Reason, detail: &Detail) -> bool {
    reason == Reason::Handed || *detail == Detail::Target(WaitTarget::AsleepThroughout)
}

fn part(graph: &Graph<'_>, node: &Node, above: Called, wall: u64) -> Part {
    // Who had the CPU is another one, also where he is called the same.
    let is_same = (node.shown == above || node.key.who == above) && node.key.sort != Sort::HadCpu;
    Part {
        reason: node.key.reason,
        who: if is_same { Who::Nobody } else { graph.names.who(node.shown) },
        detail: Detail::clone(&graph.details.of(node.key.what)),
        time: Duration::from_nanos(node.ns),
        share: Some(Share::of(node.ns as f64, wall as f64)),
        count: Some(node.count).filter(|count| *count > 0),
        worst: Some(node.worst).filter(|worst| *worst > 0).map(Duration::from_nanos),
        parts: reported(graph, &node.parts, node.shown, wall),
    }
}

/// Waits of one task for one device under one node, where they are of several sorts.
fn by_device(graph: &Graph<'_>, nodes: &[Node]) -> Vec<Node> {
    let device = |node: &Node| {
        let waits = matches!(node.key.sort, Sort::Wait | Sort::Short);
        let detail = Some(graph.details.of(node.key.what)).filter(|_| waits);
        detail.and_then(|detail| detail.device().map(str::to_owned)).map(|device| (device, node.key.who))
    };
    let mut groups: Vec<((String, Called), Vec<Node>)> = Vec::new();
    let mut out = Vec::with_capacity(nodes.len());
    for node in nodes {
        match device(node) {
            None => out.push(node.clone()),
            Some(of) => match groups.iter_mut().find(|(known, _)| *known == of) {
                Some((_, group)) => group.push(node.clone()),
                None => groups.push((of, vec![node.clone()])),
            },
        }
    }
    // Where there is nothing else the line above has the total.
    let is_all = out.is_empty() && groups.len() == 1;
    for ((device, _), group) in groups {
        out.extend(if is_all { group } else { of_device(graph, device, group) });
    }
    out.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.key.cmp(&b.key)));
    out
}

/// Functions that are each too small to be told: those of one call of the kernel, and those of the program, under one node.
fn by_family(graph: &Graph<'_>, nodes: Vec<Node>, least: u64) -> Vec<Node> {
    let family = |node: &Node| {
        let small = node.ns < least && node.parts.is_empty();
        graph.rests.families.of_key(node.key).filter(|_| small)
    };
    let mut all: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut groups: Vec<(Key, Vec<Node>)> = Vec::new();
    for node in nodes {
        match family(&node) {
            None => all.push(node),
            Some(of) => match groups.iter_mut().find(|(known, _)| *known == of) {
                Some((_, group)) => group.push(node),
                None => groups.push((of, vec![node])),
            },
        }
    }
    if groups.is_empty() {
        return all;
    }
    for (key, mut group) in groups {
        if group.len() > 1 {
            group.iter_mut().for_each(|node| node.key = key);
        }
        all.append(&mut group);
    }
    merged(all, &graph.rests).to_vec()
}

fn of_device(graph: &Graph<'_>, device: String, group: Vec<Node>) -> Vec<Node> {
    let [first, _, ..] = &group[..] else { return group };
    let what = graph.details.id(Detail::Device { device, operation: Operation::NotKnown, about: None });
    let key = Key { sort: Sort::Wait, reason: Reason::BlockIo, what, ..first.key };
    let ns = group.iter().map(|node| node.ns).sum();
    let all = Node {
        shown: if group.iter().all(|node| node.shown == first.shown) { first.shown } else { key.who },
        count: group.iter().fold(0, |sum, node| sum.saturating_add(node.count)),
        worst: group.iter().map(|node| node.worst).max().unwrap_or(0),
        ..Node::leaf(key, first.pid, ns)
    };
    vec![all.of(merged(group, &graph.rests))]
}

/// A wait with a timeout, as the same without one is called: whether somebody looks at his watch meanwhile is all the same.
pub(super) fn without_timeout(node: Node, graph: &Graph<'_>) -> Node {
    if !node.parts.is_empty() {
        return node; // somebody else ended it at last
    }
    let untimed = match *graph.details.of(node.key.what) {
        Detail::Target(WaitTarget::EpollTimeout) => WaitTarget::EpollEvents,
        Detail::Target(WaitTarget::PollTimeout) => WaitTarget::PollEvents,
        Detail::Target(WaitTarget::FutexTimeout) => WaitTarget::FutexSignal,
        _ => return node,
    };
    let what = graph.details.id(untimed.into());
    Node { key: Key { reason: untimed.reason(), what, ..node.key }, ..node }
}
