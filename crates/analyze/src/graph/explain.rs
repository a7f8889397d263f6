//! Cascaded redistribution: what a task did in a stretch of time, and for its waits what those did whom it waited for.
//!
//! The stretch of a wait is shared out among what the one at its other end did meanwhile; its own waits in that stretch
//! are shared out in turn. Each part keeps its time to the nanosecond, so that leaves add up to the whole.

use std::rc::Rc;

use whyslow_model::timeline::{Context, Span, StateTimes, Waker};
use whyslow_model::wait::{Reason, WaitTarget};

use super::facts::{Behind, Graph, Kind, Who};
use super::layout::without_timeout;
use super::loops::Other;
use super::node::{Key, Node, Sort, merged, note};
use super::timeline::{Piece, What, mixed};
use super::walk::Walk;
use crate::wait_reasons::{Class, is_asked, round_trip, task_behind};

/// Waits below this part of the stretch they are in are leaves: a hundred of them would not change the answer.
const CUT: u64 = 10_000;
/// ... and those below this, whatever the stretch: rows are made for waits of 100 us and more.
const SMALLEST: u64 = 20_000;

/// Waits behind which there is nobody: who wakes up those that wait for a grace period is not who held it up, and who sleeps
/// for a set time is woken by a timer.
const ENDS: [Reason; 2] = [Reason::Rcu, Reason::Sleep];

/// It says by itself what was waited for.
fn is_leaf(graph: &Graph<'_>, walk: &Walk, row: usize, span: &Span, kind: Kind) -> bool {
    let at_top = walk.is_at_top();
    match kind.class {
        Class::Device | Class::Timer | Class::Limit | Class::Cpu => true,
        Class::Peer => {
            task_behind(span).is_none() && round_trip(span).is_none() && !graph.has_other_end(walk, row)
        }
        _ if ENDS.contains(&kind.reason) => true,
        Class::Idle => at_top && (is_asked(span) || (walk.served && !graph.is_answered(row))),
        Class::Lock | Class::Dependency | Class::Unknown => false,
    }
}

/// Time by state under one name.
type Sums = Vec<(Who, StateTimes)>;

impl Graph<'_> {
    /// Where the time of thread `pid` went in `from..to`: nodes that add up to it, the largest first.
    pub fn task_parts(
        &self,
        walk: &mut Walk,
        pid: u32,
        from: u64,
        to: u64,
        work: Option<&str>,
    ) -> Rc<[Node]> {
        let Some(line) = self.lines.get(&pid) else {
            let who = self.who_is(pid, work);
            return Rc::new([self.unexplained(who, WaitTarget::NotSeenToRun, to.saturating_sub(from))]);
        };
        walk.enter(pid, (from, to));
        // The root's own waits are all followed: a thousand of a millisecond each are its second.
        let cut = if walk.is_at_top() { SMALLEST } else { (to.saturating_sub(from) / CUT).max(SMALLEST) };
        let (mut nodes, mut sums) = (Vec::new(), Sums::new());
        for piece in line.clip(from, to) {
            let left = self.fuel.get();
            self.fuel.set(left.saturating_sub(1));
            let follow = piece.ns() >= cut && left > 0;
            walk.here_only |= left == 0;
            match piece.what {
                What::Mixed(row) => self.add_mixed(&mut sums, row, piece, work),
                What::Wait(row) => {
                    let follow = follow || (left > 0 && piece.ns() >= SMALLEST && self.is_for_little(row));
                    nodes.extend(self.wait(walk, row, piece, follow));
                }
                What::Ready(row) => nodes.extend(self.ready(row, piece, follow)),
                What::Unborn => nodes.push(self.unborn(walk, pid, piece)),
                What::Gone => {
                    nodes.push(self.unexplained(self.who_is(pid, work), WaitTarget::HadEnded, piece.ns()))
                }
                What::Hole => match self.hole_by_sums(line, pid, piece.ns()) {
                    Some(parts) => nodes.extend(parts.iter().cloned()),
                    None => {
                        nodes.push(self.unexplained(
                            self.who_is(pid, work),
                            WaitTarget::NotExplained,
                            piece.ns(),
                        ));
                    }
                },
            }
        }
        walk.leave();
        for (who, mix) in &sums {
            self.reported(line, *who, *mix, (from, to), &mut nodes);
        }
        merged(nodes, &self.rests)
    }

    /// Ended by somebody who has done little: a parent of thousands of short children says for which of them it waited.
    fn is_for_little(&self, row: usize) -> bool {
        let Some(span) = self.spans.get(row) else { return false };
        let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task);
        waker.is_some_and(|waker| {
            self.lines.get(&waker.pid).is_some_and(super::timeline::Line::is_little)
                || self.is_reported_by_sums(waker, span.at_ns, span.woken_ns)
        })
    }

    fn add_mixed(&self, sums: &mut Sums, row: usize, piece: Piece, work: Option<&str>) {
        let Some(span) = self.spans.get(row) else { return };
        let who = self.who(row, span, work);
        let mix = mixed(span, piece.ns());
        let at = sums.iter().position(|(known, _)| *known == who).unwrap_or_else(|| {
            sums.push((who, StateTimes::default()));
            sums.len() - 1
        });
        if let Some((_, sum)) = sums.get_mut(at) {
            sum.running_ns += mix.running_ns;
            sum.runnable_ns += mix.runnable_ns;
            sum.io_ns += mix.io_ns;
            sum.blocked_ns += mix.blocked_ns;
            sum.sleep_ns += mix.sleep_ns;
            sum.unknown_ns += mix.unknown_ns;
        }
    }

    /// One wait, with what is behind it.
    pub fn wait(&self, walk: &mut Walk, row: usize, piece: Piece, follow: bool) -> Option<Node> {
        if follow {
            let asked = self.onward_wait(walk, row, piece).or_else(|| self.wait_in_flight(walk, row, piece));
            if asked.is_some() {
                walk.here_only = true;
                return asked;
            }
        }
        let span = self.spans.get(row)?;
        let kind = self.kind(row);
        let who = self.who(row, span, None);
        let key = Key { sort: Sort::Wait, reason: kind.reason, who: who.key, what: kind.what };
        let mut node = Node::leaf(key, span.pid, piece.ns());
        let by_others = matches!(kind.class, Class::Unknown | Class::Lock | Class::Dependency);
        node.unsaid = if by_others && !ENDS.contains(&kind.reason) { node.ns } else { 0 };
        node.shown = who.shown;
        node.count = 1;
        node.row = Some(row);
        node.worst = span.woken_ns.min(self.window).saturating_sub(span.at_ns).max(node.ns);
        // A look at the watch is a part of a longer wait: nobody ended it.
        let lasts =
            || span.other_end.is_none() && self.lasting_look(row).is_some_and(|lasting| lasting != row);
        node.notes = if span.open || lasts() { note::OPEN } else { 0 };
        if walk.lasts(self.window) && !span.open {
            node = without_timeout(node, self);
        }
        if !follow {
            // Too short to be followed one by one, and known by what they are for, like those that no row tells of.
            let is_many = self.fuel.get() > 0 && !is_leaf(self, walk, row, span, kind);
            return Some(if is_many {
                Node { count: 1, worst: node.worst, ..self.short_like(who, row, node.ns) }
            } else {
                node
            });
        }
        let (parts, notes) = self.behind(walk, row, piece.from, piece.to);
        node.notes |= notes;
        Some(node.of(parts))
    }

    /// Who or what stands behind a stretch of a wait. Nothing: the wait itself is the leaf.
    fn behind(&self, walk: &mut Walk, row: usize, from: u64, to: u64) -> Behind {
        let Some(span) = self.spans.get(row) else { return (Rc::new([]), 0) };
        let kind = self.kind(row);
        let is_leaf = is_leaf(self, walk, row, span, kind);
        let other = self.behind_other(walk, row, span, kind.class);
        let (is_own, is_its) = (matches!(other, Other::Own), !matches!(other, Other::Later(_)));
        if is_leaf && (is_own || kind.class == Class::Idle) {
            return (Rc::new([]), 0);
        }
        if walk.is_deep() || matches!(other, Other::Nobody) {
            walk.here_only = true;
            let who = self.no_one();
            return (Rc::new([self.unexplained(who, WaitTarget::NotFollowed, to - from)]), 0);
        }
        // A part of a wait is looked at for one stretch of one who waits; a whole one for all of them, and by each question.
        let is_whole = is_its && from <= span.at_ns && to >= span.woken_ns.min(self.window);
        if let Some(known) = self.known.borrow().get(&row).filter(|_| is_whole) {
            return known.clone();
        }
        let before = std::mem::take(&mut walk.here_only);
        walk.whole = self.longer_wait(row);
        let found = match &span.lock {
            Some(lock) if kind.class == Class::Lock => self.by_holders(walk, row, span, lock, from, to),
            _ => match other {
                Other::AtLast(pid) | Other::Later(pid) => self.follow(walk, pid, from, to, None),
                Other::Unseen => {
                    let who = self.no_one();
                    (Rc::from([self.unexplained(who, WaitTarget::WakerNotSeen, to - from)]), 0)
                }
                Other::Own | Other::Nobody => self
                    .by_children(walk, span, kind, from, to)
                    .or_else(|| self.by_hands(walk, span, from, to).filter(|_| kind.class == Class::Lock))
                    .or_else(|| self.by_owner(walk, span, kind, from, to))
                    .or_else(|| self.by_other_end(walk, row, from, to))
                    .unwrap_or_else(|| self.by_waker(walk, span, kind, from, to)),
            },
        };
        walk.whole = None;
        if is_whole && !walk.here_only {
            self.known.borrow_mut().insert(row, found.clone());
        }
        walk.here_only |= before;
        found
    }

    /// Whether somebody else is to be followed than who ended this wait.
    fn behind_other(&self, walk: &Walk, row: usize, span: &Span, class: Class) -> Other {
        match class {
            Class::Idle if task_behind(span).is_some() => self.behind_loop(walk, row),
            Class::Timer | Class::Idle => match self.waited_for_at_last(row) {
                Some(waker) => Other::AtLast(waker.pid),
                None if class == Class::Idle && self.unseen_end_of_looks(row).is_some() => Other::Unseen,
                None if walk.is_at_top() => Other::Own,
                None => {
                    let usual = self.usual_waker(row).map(|waker| waker.pid);
                    usual.or_else(|| self.in_vain_for(row)).map_or(Other::Own, Other::AtLast)
                }
            },
            _ => Other::Own,
        }
    }

    fn by_waker(&self, walk: &mut Walk, span: &Span, kind: Kind, from: u64, to: u64) -> Behind {
        let class = kind.class;
        // A thread that waits for signals is told by its own process to go on.
        let goes_on = |task: &Waker| kind.reason == Reason::Signal && task.tgid == span.tgid;
        let by_sums = span.waker.as_ref().filter(|waker| self.is_reported_by_sums(waker, from, to));
        match (by_sums, task_behind(span)) {
            (Some(waker), _) => (self.by_sums(waker.pid, &waker.comm, to.saturating_sub(from)), 0),
            // A task that is killed in its wait has waited in vain, and not for its killer; so has one that waits for work, and is told to
            // stop.
            (None, Some(task)) if self.dies_by(span, task) => (Rc::new([]), 0),
            (None, Some(task)) if class == Class::Idle && !goes_on(task) && self.kills(task) => {
                (Rc::new([]), 0)
            }
            (None, Some(task)) if kind.reason == Reason::Child => {
                self.follow(walk, self.who_ended(task.pid, to), from, to, task.work.as_deref())
            }
            (None, Some(task)) => self.follow(walk, task.pid, from, to, task.work.as_deref()),
            (None, None) => {
                let ns = to.saturating_sub(from);
                let elsewhere = Some(span).filter(|_| matches!(class, Class::Idle | Class::Peer));
                elsewhere
                    .and_then(|span| self.by_peer_elsewhere(span, ns))
                    .unwrap_or_else(|| self.by_event(span, class, ns))
            }
        }
    }

    /// Ended by no task that is known.
    fn by_event(&self, span: &Span, class: Class, ns: u64) -> Behind {
        let nobody = self.no_one();
        let leaf = |node: Node, notes| (Rc::from([node]), notes);
        match &span.waker {
            // A wait that has a name needs no better one.
            Some(Waker { context: Context::Softirq | Context::Hardirq | Context::Nmi, stack, .. }) => {
                match (self.event(*stack, ns), class) {
                    // An alarm of its own: what it waited for in vain says more.
                    (Some(event), Class::Idle) if event.key.reason == Reason::Timer => (Rc::new([]), 0),
                    (Some(event), _) => leaf(event, 0),
                    (None, Class::Idle) => (Rc::new([]), 0),
                    (None, _) => leaf(self.unexplained(nobody, WaitTarget::AnInterrupt, ns), 0),
                }
            }
            None if span.open && class == Class::Idle => (Rc::new([]), 0),
            None if span.open => {
                let what = self.details.id(WaitTarget::NobodyWoke.into());
                let key = Key { sort: Sort::Open, reason: Reason::Open, who: nobody.key, what };
                let mut node = Node::leaf(key, 0, ns);
                node.unsaid = if class == Class::Unknown { ns } else { 0 };
                leaf(node, note::OPEN)
            }
            _ => leaf(self.unexplained(nobody, WaitTarget::WakerNotSeen, ns), 0),
        }
    }

    /// What somebody did meanwhile, unless he waits for one of those who wait for him.
    pub fn follow(&self, walk: &mut Walk, pid: u32, from: u64, to: u64, work: Option<&str>) -> Behind {
        if walk.is_new(pid) {
            return (self.task_parts(walk, pid, from, to, work), 0);
        }
        walk.here_only = true;
        let who = self.who_is(pid, work);
        let what = self.details.id(WaitTarget::InTurn.into());
        let key = Key { sort: Sort::Cycle, reason: Reason::Cycle, who: who.key, what };
        let mut node = Node::leaf(key, pid, to.saturating_sub(from));
        node.shown = who.shown;
        (Rc::new([node]), note::CYCLE)
    }

    /// Before it began, it is its maker who had to start it. The parent of a thread is that of its process, which need not
    /// know of it.
    fn unborn(&self, walk: &mut Walk, pid: u32, piece: Piece) -> Node {
        let who = self.who_is(pid, None);
        let maker = self.tasks.get(&pid).map(|task| match task.creator {
            0 if task.pid == task.tgid => task.ppid,
            creator => creator,
        });
        let followed = maker.filter(|p| *p != 0 && walk.is_new(*p) && self.lines.contains_key(p));
        let what = self.details.id(WaitTarget::NotBegun.into());
        let key = Key { sort: Sort::Unborn, reason: Reason::NotBegun, who: who.key, what };
        let mut node = Node::leaf(key, pid, piece.ns());
        node.shown = who.shown;
        match followed.filter(|_| !walk.is_deep() && self.fuel.get() > 0) {
            Some(maker) => node.of(self.task_parts(walk, maker, piece.from, piece.to, None)),
            None => {
                walk.here_only = true;
                Node { unsaid: node.ns, ..node }
            }
        }
    }

    /// Time of `who` that nobody saw.
    pub fn unexplained(&self, who: Who, why: WaitTarget, ns: u64) -> Node {
        let what = self.details.id(why.into());
        let key = Key { sort: Sort::Unexplained, reason: Reason::Unexplained, who: who.key, what };
        let mut node = Node::leaf(key, who.pid, ns);
        node.shown = who.shown;
        node
    }
}
