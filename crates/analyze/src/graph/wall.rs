//! Where the wall time of a command, or of the tasks that are watched, went.

use std::rc::Rc;
use std::time::Duration;

use whyslow_model::Share;
use whyslow_model::chain::WallAccount;
use whyslow_model::timeline::{Command, Watched};
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::facts::Graph;
use super::layout::{reported, without_timeout};
use super::mismatch;
use super::names::Called;
use super::node::{Key, Node, Sort, merged};
use super::timeline::What;
use super::walk::Walk;
use crate::process_names;
use crate::wait_reasons::Class;

/// Pieces of timelines that the account may look at: 200,000 rows have 600,000, and are looked at by some who wait for them.
const FUEL: u64 = 6_000_000;

/// The account of whom the recording watches.
pub(super) fn account(graph: &Graph<'_>) -> Option<WallAccount> {
    let watched = graph.rec.meta.watched.as_ref()?;
    graph.refuel(FUEL);
    let whole = match &watched.command {
        Some(command) => of_command(graph, command),
        None => of_threads(graph, watched),
    };
    let of = match &watched.command {
        Some(command) if !command.argv.is_empty() => command.argv.join(" "),
        _ => {
            let tasks = graph.rec.tables.tasks.as_deref().unwrap_or_default();
            format!("threads of {}", process_names::subject(tasks, &watched.subject))
        }
    };
    let (wall, parts) = (whole.wall, &whole.nodes);
    let unsaid: u64 = parts.iter().map(|node| node.unsaid).sum();
    Some(WallAccount {
        of,
        is_sum: watched.command.is_none(),
        wall: Duration::from_nanos(wall),
        cpu: cpu(graph, watched),
        off_cpu: Duration::from_nanos(wall.saturating_sub(whole.ran)),
        unexplained: Duration::from_nanos(unsaid),
        said: (wall > 0).then(|| Share::of(wall.saturating_sub(unsaid) as f64, wall as f64)),
        parts: reported(graph, parts, whole.who, wall),
        mismatches: mismatch::mismatches(graph, &watched.pids),
    })
}

/// All of some wall time.
struct Whole {
    wall: u64,
    ran: u64,
    who: Called,
    nodes: Rc<[Node]>,
}

/// Of its main thread: an exec keeps the thread id; children come in by the waits for them.
fn of_command(graph: &Graph<'_>, command: &Command) -> Whole {
    let to = command.to_ns.min(graph.window);
    let from = command.from_ns.min(to);
    Whole {
        wall: to - from,
        ran: mismatch::ran(graph, command.pid, from, to),
        who: graph.who_is(command.pid, None).shown,
        nodes: graph.task_parts(&mut Walk::new(false), command.pid, from, to, None),
    }
}

/// Of all threads that are watched, together.
fn of_threads(graph: &Graph<'_>, watched: &Watched) -> Whole {
    let mut pids = watched.pids.clone();
    pids.sort_unstable();
    pids.dedup();
    let (mut nodes, mut ran, mut wall) = (Vec::new(), 0, 0);
    let mut names: Vec<Called> = Vec::new();
    for pid in pids {
        let lives = graph.lives(pid);
        let mut add = |parts: Rc<[Node]>| {
            wall += parts.iter().map(|node| node.ns).sum::<u64>();
            nodes.extend(parts.iter().cloned());
        };
        if lives.is_empty() {
            add(asleep(graph, pid));
        }
        for (from, to) in lives {
            ran += mismatch::ran(graph, pid, from, to);
            add(graph.task_parts(&mut Walk::new(true), pid, from, to, None));
        }
        names.push(graph.who_is(pid, None).key);
    }
    names.dedup();
    let who = if let [one] = names[..] { one } else { graph.rests.nobody };
    Whole { wall, ran, who, nodes: merged(by_wish(graph, nodes), &graph.rests) }
}

impl Graph<'_> {
    /// From when to when a thread was there; where its number was given away again: the first and the last who had it.
    pub fn life(&self, pid: u32) -> Option<(u64, u64)> {
        let (first, last) = self.lines.get(&pid)?.life()?;
        let task = self.tasks.get(&pid);
        let from = if task.is_none_or(|task| task.born) { first } else { 0 };
        let to = if task.is_none_or(|task| task.ended) { last } else { self.window };
        Some((from, to))
    }

    /// When threads of this number lived, one after the other: rows may be missing at either end.
    pub fn lives(&self, pid: u32) -> Vec<(u64, u64)> {
        let mut lives: Vec<(u64, u64)> = Vec::new();
        let Some((line, (from, to))) = self.lines.get(&pid).zip(self.life(pid)) else { return lives };
        for piece in line.clip(from, to).filter(|piece| !matches!(piece.what, What::Unborn | What::Gone)) {
            match lives.last_mut() {
                Some((_, until)) if *until == piece.from => *until = piece.to,
                _ => lives.push((piece.from, piece.to)),
            }
        }
        lives
    }
}

/// A thread that no row tells of: if the kernel saw it sleep all the time, so it did.
fn asleep(graph: &Graph<'_>, pid: u32) -> Rc<[Node]> {
    let Some(task) = graph.tasks.get(&pid) else { return Rc::new([]) };
    let ns = task.lived_ns.min(graph.window);
    let who = graph.who_is(pid, None);
    if task.exec_ns > 0 || task.traced_ns > 0 {
        return merged(vec![graph.unexplained(who, WaitTarget::NotExplained, ns)], &graph.rests);
    }
    let what = graph.details.id(WaitTarget::AsleepThroughout.into());
    merged(vec![graph.node(Sort::Wait, Reason::Sleep, who, what, ns)], &graph.rests)
}

/// Waits for events that a timeout may end as well.
const TIMED: [Reason; 3] = [Reason::Epoll, Reason::Poll, Reason::Futex];

/// At a client's end of a connection whose address can be told.
fn is_for_peer(node: &Node, graph: &Graph<'_>) -> bool {
    matches!(*graph.details.of(node.key.what), Detail::Peer { .. })
        && node.row.is_some_and(|row| graph.is_clients_end(row))
}

/// Waits to be given work, and the tasks' own sleeps, each as one part.
fn by_wish(graph: &Graph<'_>, nodes: Vec<Node>) -> Vec<Node> {
    let (mut handed, mut voluntary, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes {
        let waits = matches!(node.key.sort, Sort::Wait | Sort::Short);
        let class = node.row.filter(|_| waits).map(|row| graph.kind(row).class);
        let node = without_timeout(node, graph);
        let was_timed = class == Some(Class::Timer) && TIMED.contains(&node.key.reason);
        match class {
            // Who has asked somebody, and waits for the answer, has something to do.
            Some(Class::Idle) if node.key.sort == Sort::Wait && !node.parts.is_empty() => others.push(node),
            Some(_) if node.key.reason == Reason::Socket && !node.parts.is_empty() => others.push(node),
            Some(Class::Idle) if is_for_peer(&node, graph) => others.push(node),
            Some(Class::Idle) => handed.push(node),
            Some(Class::Timer) if was_timed => handed.push(node),
            Some(Class::Timer) => voluntary.push(node),
            _ => others.push(node),
        }
    }
    let nobody = graph.no_one();
    for (what, nodes) in [(WaitTarget::GivenWork, handed), (WaitTarget::OwnSleeps, voluntary)] {
        let ns = nodes.iter().map(|node| node.ns).sum();
        let id = graph.details.id(what.into());
        let key = Key { sort: Sort::Wait, reason: what.reason(), who: nobody.key, what: id };
        let count = nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.count));
        let worst = nodes.iter().map(|node| node.worst).max().unwrap_or(0);
        let all = Node { count, worst, ..Node::leaf(key, 0, ns) };
        others.push(all.of(merged(nodes, &graph.rests)));
    }
    others
}

/// The kernel's own count of CPU time.
fn cpu(graph: &Graph<'_>, watched: &Watched) -> Duration {
    let waited_for = watched.command.as_ref().map_or(0, |c| c.user_ns.saturating_add(c.system_ns));
    let tasks = watched.pids.iter().filter_map(|pid| graph.tasks.get(pid));
    let counted = tasks.fold(0u64, |sum, task| sum.saturating_add(task.exec_ns));
    Duration::from_nanos(if waited_for > 0 { waited_for } else { counted })
}
