//! Waits for children: whatever ended one (the caller's deadline, a signal of somebody, the window), it took as long as it did
//! because of what the children did meanwhile.
//!
//! A child that ends wakes its parent itself (do_notify_parent, kernel/signal.c): then it is the waker, and nothing is to be
//! found here. Of several children that a parent waits for at the same time each counts by how long it was there.

use std::rc::Rc;

use whyslow_model::timeline::{Context, Span};
use whyslow_model::wait::Reason;

use super::explain::Walk;
use super::facts::{Behind, Graph, Kind};
use super::node::{Node, merged};
use super::split::split_many;

/// wait4(pid, ...) and waitid(type, id, ...) on x86-64.
const WAIT4: u32 = 61;
const WAITID: u32 = 247;
/// include/uapi/linux/wait.h.
const P_PID: u64 = 1;
/// Of more children those that were there longest speak for the others.
const MOST: usize = 64;

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
        let waits = matches!(kind.reason, Reason::Child | Reason::Vfork);
        if !waits || self.is_ended_by_child(span) {
            return None;
        }
        match &self.waited_for(span, kind, from, to)[..] {
            [] => None,
            [one] => Some(self.follow(walk, one.pid, from, to, None)),
            several => Some(self.shared_out(walk, several, to.saturating_sub(from))),
        }
    }

    /// Any task may send a signal that ends the wait; only a child's end is what was waited for.
    fn is_ended_by_child(&self, span: &Span) -> bool {
        let Some(waker) = span.waker.as_ref().filter(|waker| waker.context == Context::Task) else {
            return false;
        };
        // Of whom nothing is known it is not known either that it is none.
        let parent = self.tasks.get(&waker.pid).map_or(span.tgid, |task| task.ppid);
        let kills = self.stacks.kernel(waker.stack).iter().any(|frame| is_kill(frame));
        parent == span.tgid || !kills
    }

    fn waited_for(&self, span: &Span, kind: Kind, from: u64, to: u64) -> Vec<Child> {
        let all = self.children.get(&span.tgid).map_or(&[][..], Vec::as_slice);
        // The argument is a number of the caller's pid namespace: it counts where it is a child's.
        let named = match span.syscall {
            Some(WAIT4) => span.args[0],
            Some(WAITID) if span.args[0] == P_PID => span.args[1],
            _ => 0,
        };
        let named = all.iter().copied().find(|pid| u64::from(*pid) == named);
        let made_here = |pid: &u32| {
            kind.reason != Reason::Vfork
                || self
                    .tasks
                    .get(pid)
                    .is_none_or(|task| matches!(task.creator, 0) || task.creator == span.pid)
        };
        let candidates = named.map_or_else(|| all.to_vec(), |one| vec![one]);
        let mut children: Vec<Child> =
            candidates.into_iter().filter(made_here).filter_map(|pid| self.there(pid, from, to)).collect();
        children.sort_by_key(|child| (std::cmp::Reverse(child.to - child.from), child.pid));
        children.truncate(MOST);
        children
    }

    /// Whether, and how long, a task was there in this stretch.
    fn there(&self, pid: u32, from: u64, to: u64) -> Option<Child> {
        let lives = self.lives(pid);
        let (from, to) = (lives.first()?.0.max(from), lives.last()?.1.min(to));
        (from < to).then_some(Child { pid, from, to })
    }

    fn shared_out(&self, walk: &mut Walk, children: &[Child], ns: u64) -> Behind {
        let weights: Vec<u64> = children.iter().map(|child| child.to - child.from).collect();
        let (mut nodes, mut notes) = (Vec::new(), 0);
        for (child, part) in children.iter().zip(split_many(ns, &weights)) {
            let (parts, is) = self.follow(walk, child.pid, child.from, child.to, None);
            notes |= is;
            nodes.extend(scaled(&parts, part));
        }
        (merged(nodes, &self.rests), notes)
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

/// kernel/signal.c: the ways of a signal that a task sends with a call of its own.
fn is_kill(frame: &str) -> bool {
    const KILLS: [&str; 4] = ["kill_pid_info", "kill_something_info", "do_send_specific", "do_tkill"];
    KILLS.iter().any(|kill| frame.starts_with(kill))
}
