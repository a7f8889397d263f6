//! Waits for children: whatever ended one (the caller's deadline, a signal of somebody, the window), it took as long as it did
//! because of what the children did meanwhile. Who waits for a signal that a timer sends at last waits for nobody either: its
//! time is that of its children and of its process's other threads.
//!
//! A child that ends wakes its parent itself (do_notify_parent, kernel/signal.c): then it is the waker, and nothing is to be
//! found here. Of several that were there at the same time each counts by how long it was, and those that had nothing to do
//! only where all had nothing to do.

use std::rc::Rc;

use whyslow_model::syscall::{WAIT4, WAITID};
use whyslow_model::table::Task;
use whyslow_model::timeline::{Context, Span};
use whyslow_model::wait::Reason;

use super::facts::{Behind, Graph, Kind, SMALL_PART};
use super::node::{Node, merged};
use super::split::split_many;
use super::walk::Walk;
use crate::hashing::Table;
use crate::wait_reasons::Class;

/// include/uapi/linux/wait.h.
const P_PID: u64 = 1;
/// Of more children those that were there longest speak for the others.
const MOST: usize = 64;

/// Who is below whom.
#[derive(Debug)]
pub(super) struct Kin {
    /// Processes by that of their parent.
    children: Table<u32, Vec<u32>>,
    /// Threads by their process, its first not among them.
    threads: Table<u32, Vec<u32>>,
}

impl Kin {
    pub fn of(rows: &[Task], tasks: &Table<u32, &Task>) -> Self {
        Kin {
            children: below(rows, |task| (task.pid == task.tgid).then(|| maker(tasks, task))),
            threads: below(rows, |task| (task.pid != task.tgid).then_some(task.tgid)),
        }
    }
}

/// A child, and when it was there.
struct Child {
    pid: u32,
    from: u64,
    to: u64,
}

impl Graph<'_> {
    /// What stands behind a wait for children that none of them ended. `None`: it is no such wait, or they were not seen.
    pub fn by_children(
        &self,
        walk: &mut Walk,
        span: &Span,
        kind: Kind,
        from: u64,
        to: u64,
    ) -> Option<Behind> {
        let by_alarm = || match &span.waker {
            Some(waker) => matches!(waker.context, Context::Softirq | Context::Hardirq),
            // Wake-ups are let go of where they are too many.
            None => !span.open,
        };
        let waits = match kind.reason {
            Reason::Child | Reason::Vfork => true,
            // Threads that wait for signals all day have nothing to do.
            Reason::Signal => by_alarm(),
            _ => false,
        };
        if !waits || self.is_ended_by_child(span, kind) {
            return None;
        }
        match &self.waited_for(span, kind, from, to)[..] {
            [] => None,
            [one] => Some(self.follow(walk, one.pid, from, to, None)),
            several => Some(self.shared_out(walk, several, to.saturating_sub(from))),
        }
    }

    /// Any task may send a signal that ends the wait for a child; only a child's end is what was waited for. Who waits for a
    /// signal waits for whoever sends it.
    fn is_ended_by_child(&self, span: &Span, kind: Kind) -> bool {
        let Some(waker) = span.waker.as_ref().filter(|waker| waker.context == Context::Task) else {
            return false;
        };
        let process = if waker.tgid == 0 { waker.pid } else { waker.tgid };
        let children = self.kin.children.get(&span.tgid);
        let is_child = children.is_some_and(|children| children.binary_search(&process).is_ok());
        kind.reason == Reason::Signal || is_child || !self.kills(waker)
    }

    fn waited_for(&self, span: &Span, kind: Kind, from: u64, to: u64) -> Vec<Child> {
        // The argument is a number of the caller's pid namespace: it counts where it is a child's.
        let named = match span.syscall {
            Some(WAIT4) => span.args[0],
            Some(WAITID) if span.args[0] == P_PID => span.args[1],
            _ => 0,
        };
        let threads = self.kin.threads.get(&span.tgid).filter(|_| kind.reason == Reason::Signal);
        let lists = [self.kin.children.get(&span.tgid), threads];
        let lists = || lists.into_iter().flatten();
        let named =
            u32::try_from(named).ok().filter(|pid| lists().any(|list| list.binary_search(pid).is_ok()));
        let made_here = |pid: &u32| {
            kind.reason != Reason::Vfork
                || self.tasks.get(pid).is_none_or(|task| task.creator == 0 || task.creator == span.pid)
        };
        // Each is looked at, as pieces of timelines are.
        let all = || {
            let all: Vec<u32> = lists().filter(|_| self.fuel.get() > 0).flatten().copied().collect();
            self.fuel.set(self.fuel.get().saturating_sub(all.len() as u64));
            all
        };
        let candidates = named.map_or_else(all, |one| vec![one]).into_iter().filter(|pid| *pid != span.pid);
        let mut children: Vec<Child> =
            candidates.filter(made_here).filter_map(|pid| self.there(pid, from, to)).collect();
        children.sort_by_key(|child| (std::cmp::Reverse(child.to - child.from), child.pid));
        children.truncate(MOST);
        children
    }

    /// All threads of a process that were seen.
    pub fn threads_of(&self, process: u32) -> impl Iterator<Item = u32> + '_ {
        [process].into_iter().chain(self.kin.threads.get(&process).into_iter().flatten().copied())
    }

    /// Whether, and how long, a task was there in this stretch.
    fn there(&self, pid: u32, from: u64, to: u64) -> Option<Child> {
        let (begin, end) = self.life(pid)?;
        let (from, to) = (begin.max(from), end.min(to));
        (from < to).then_some(Child { pid, from, to })
    }

    fn shared_out(&self, walk: &mut Walk, children: &[Child], ns: u64) -> Behind {
        let mut found: Vec<(u64, Behind)> = children
            .iter()
            .map(|child| (child.to - child.from, self.follow(walk, child.pid, child.from, child.to, None)))
            .collect();
        let rests = |behind: &Behind| {
            let rested: u64 = behind.0.iter().filter(|node| self.is_rest(node)).map(|node| node.ns).sum();
            let all: u64 = behind.0.iter().map(|node| node.ns).sum();
            all.saturating_sub(rested) < all / SMALL_PART
        };
        if found.iter().any(|(_, behind)| !rests(behind)) {
            found.retain(|(_, behind)| !rests(behind));
        }
        let weights: Vec<u64> = found.iter().map(|(there, _)| *there).collect();
        let (mut nodes, mut notes) = (Vec::new(), 0);
        for ((_, (parts, is)), part) in found.iter().zip(split_many(ns, &weights)) {
            notes |= is;
            nodes.extend(scaled(parts, part));
        }
        (merged(nodes, &self.rests), notes)
    }

    /// It waited for something to do, or for its own timer.
    fn is_rest(&self, node: &Node) -> bool {
        let class = node.row.map(|row| self.kind(row).class);
        node.parts.is_empty() && matches!(class, Some(Class::Idle | Class::Timer))
    }
}

/// Nodes in the same proportions that add up to `ns`.
fn scaled(nodes: &[Node], ns: u64) -> Vec<Node> {
    let weights: Vec<u64> = nodes.iter().map(|node| node.ns).collect();
    let parts = nodes.iter().zip(split_many(ns, &weights)).filter(|(_, part)| *part > 0);
    parts.map(|(node, part)| node.scaled(part)).collect()
}

impl Node {
    fn scaled(&self, ns: u64) -> Node {
        let unsaid = u128::from(self.unsaid) * u128::from(ns) / u128::from(self.ns.max(1));
        let unsaid = u64::try_from(unsaid).unwrap_or(ns).min(ns);
        let parts: Rc<[Node]> = scaled(&self.parts, ns).into();
        Node { ns, unsaid, parts: Default::default(), ..self.clone() }.of(parts)
    }
}

/// The process that made it, where that was seen: whose maker has ended is another's child since.
fn maker(tasks: &Table<u32, &Task>, task: &Task) -> u32 {
    let creator = Some(task.creator).filter(|creator| *creator != 0);
    creator.and_then(|creator| tasks.get(&creator)).map_or(task.ppid, |creator| creator.tgid)
}

/// Tasks by who stands above them, each once: a number may have been several tasks'.
fn below(tasks: &[Task], above: impl Fn(&Task) -> Option<u32>) -> Table<u32, Vec<u32>> {
    let mut below: Table<u32, Vec<u32>> = Table::default();
    for task in tasks {
        if let Some(above) = above(task).filter(|above| *above != task.pid) {
            below.entry(above).or_default().push(task.pid);
        }
    }
    for pids in below.values_mut() {
        pids.sort_unstable();
        pids.dedup();
    }
    below
}
