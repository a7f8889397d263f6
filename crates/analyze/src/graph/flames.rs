//! Paths for a flame graph: the waiter's stack, and on top of it the chain.

use super::chains;
use super::facts::Graph;
use super::names::Called;
use super::node::{Node, Sort, merged};
use super::walk::Walk;
use crate::hashing::{Set, Table};

/// A frame narrower than this part (1 in 5,000) of the whole is not drawn by its own.
const NARROWEST: u64 = 5000;
/// Pieces of timelines that paths may look at.
const FUEL: u64 = 6_000_000;

/// A way from the root to a leaf.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// A thread's name, its frames, and what is on top of them.
    pub labels: Vec<String>,
    /// It leads by way of a wait.
    pub waits: bool,
    pub ns: u64,
}

/// Ways from the root to a leaf, by their labels, in order; and whether they lead by way of a wait.
type Paths = Table<(Vec<String>, bool), u64>;

/// All of them, sorted.
pub(super) fn paths(graph: &Graph<'_>) -> Vec<Path> {
    graph.refuel(FUEL);
    // One root a thread's name, and below it one a stack.
    let mut roots: Table<(Called, Option<u32>), Vec<Node>> = Table::default();
    for node in nodes(graph) {
        let stack = node.row.filter(|_| node.key.sort == Sort::Wait);
        let stack = stack.and_then(|row| graph.spans.get(row)).and_then(|span| span.stack);
        roots.entry((node.key.who, stack)).or_default().push(node);
    }
    let whole: u64 = roots.values().flatten().map(|node| node.ns).sum();
    let mut out = Paths::default();
    for ((who, stack), nodes) in roots {
        let mut labels = vec![graph.names.who(who).to_string()];
        labels.extend(graph.stacks.kernel(stack).iter().rev().cloned());
        for node in merged(nodes, &graph.rests).iter() {
            let mut at = labels.clone();
            grow(graph, node, (who, false), whole / NARROWEST, &mut at, &mut out);
        }
    }
    let path = |((labels, waits), ns)| Path { labels, waits, ns };
    let mut out: Vec<Path> = out.into_iter().map(path).collect();
    out.sort_by(|a, b| (&a.labels, a.ns).cmp(&(&b.labels, b.ns)));
    out
}

/// Whose time is drawn: a command's, that of all watched threads, or what anybody lost.
fn nodes(graph: &Graph<'_>) -> Vec<Node> {
    let Some(watched) = &graph.rec.meta.watched else {
        return chains::losses(graph, None).collect();
    };
    let spans: Vec<(u32, u64, u64)> = match &watched.command {
        Some(c) => vec![(c.pid, c.from_ns.min(graph.window), c.to_ns.min(graph.window))],
        None => {
            let pids: Set<u32> = watched.pids.iter().copied().collect();
            let mut lives: Vec<_> = pids
                .into_iter()
                .flat_map(|pid| graph.lives(pid).into_iter().map(move |(from, to)| (pid, from, to)))
                .collect();
            lives.sort_unstable();
            lives
        }
    };
    let served = watched.command.is_none();
    // Piece by piece, so that each wait keeps its own stack.
    let pieces = spans.into_iter().flat_map(|(pid, from, to)| match graph.lines.get(&pid) {
        Some(line) => line.clip(from, to).map(|piece| (pid, piece.from, piece.to)).collect(),
        None => vec![(pid, from, to)],
    });
    let each = pieces.map(|(pid, from, to)| graph.task_parts(&mut Walk::new(served), pid, from, to, None));
    each.flat_map(|parts| parts.to_vec()).collect()
}

/// Add a node and what it went to above `labels`. `above`: whose node is below it, and whether that or one further down is a wait.
fn grow(
    graph: &Graph<'_>,
    node: &Node,
    above: (Called, bool),
    narrow: u64,
    labels: &mut Vec<String>,
    out: &mut Paths,
) {
    let depth = labels.len();
    if node.key.who != above.0 && node.key.who != graph.rests.nobody {
        labels.push(graph.names.who(node.shown).to_string());
    }
    let what = graph.details.of(node.key.what);
    let is_wait = matches!(node.key.sort, Sort::Wait | Sort::Short | Sort::Ready);
    labels.push(if is_wait { format!("-- waits for {what}") } else { what.to_string() });
    let waits = above.1 || is_wait;
    let mut left = node.ns;
    for part in node.parts.iter().filter(|part| part.ns > narrow) {
        left = left.saturating_sub(part.ns);
        grow(graph, part, (node.key.who, waits), narrow, labels, out);
    }
    if left > 0 {
        let sum = out.entry((labels.clone(), waits)).or_default();
        *sum = sum.saturating_add(left);
    }
    labels.truncate(depth);
}
