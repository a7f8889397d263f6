//! Chains: for each wait that cost somebody time, the way down to who made it wait; alike ones as one.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Hop;
use whyslow_model::chain::Chain;
use whyslow_model::timeline::{Context, Span, State};
use whyslow_model::wait::{Detail, Note, Reason, TaskState, WaitTarget};

use super::culprit::{HALTED, Step};
use super::facts::Graph;
use super::names::Called;
use super::node::{Key, Node, Sort, note};
use super::resting;
use super::timeline::{Piece, What};
use super::walk::Walk;
use crate::hashing::{Set, Table};
use crate::wait_reasons::{Class, is_asked, task_behind};

/// On a whole host a chain is reported if some single wait was as long as this: below it lie the waits for locks that a healthy
/// host under load has now and then (a holder that lost its CPU for a slice or two of 3 to 4 ms); a chain of 20 ms,
/// a visible delay in an interactive task, lies above it with room for what is cut off at both ends.
pub const CHAIN_THRESHOLD: Duration = Duration::from_millis(15);
/// ... or if all of them together were this part (1 in 20) of the window: many short waits hurt as much.
const CHAIN_PART: u64 = 20;
/// Of one wait the largest way down is reported, and others that explain at least this part (1 in 4) of it.
const BESIDE: u64 = 4;
/// Ways down that are told of one wait.
const MOST_WAYS: usize = 4;
/// More chains nobody reads; what is left out is the least expensive.
const MOST_CHAINS: usize = 100;
/// Threads that are named in each hop.
const MOST_TASKS: usize = 8;
/// Pieces of timelines that chains may look at: 200,000 rows have 600,000. Where all of 100,000 tasks wait for all it is seven
/// seconds of CPU.
const FUEL: u64 = 2_000_000;

/// All chains, the most expensive first: of those who are watched, else of the whole host.
pub(super) fn chains(graph: &Graph<'_>) -> Vec<Chain> {
    let watched: Option<Set<u32>> =
        graph.rec.meta.watched.as_ref().map(|watched| watched.pids.iter().copied().collect());
    folded(graph, watched.as_ref()).into_iter().map(|(keys, fold)| fold.chain(graph, &keys)).collect()
}

/// Those of these threads.
pub(super) fn around(graph: &Graph<'_>, pids: &Set<u32>) -> Vec<Chain> {
    folded(graph, Some(pids)).into_iter().map(|(keys, fold)| fold.chain(graph, &keys)).collect()
}

/// A chain of the whole host, with the longest of the waits at its head.
pub(crate) struct HostChain<'r> {
    pub chain: Chain,
    pub head: &'r Span,
    /// What the wait at the head was for.
    pub class: Class,
    /// What the wait at the end was for; `None`: no wait, somebody ran.
    pub leaf: Option<Class>,
    /// The part of its time in which the task that ran at its end did so before it was waited for.
    pub at_work: f64,
    /// All tasks that it is the wait of, and the time of each: what a chain names are the first of them.
    pub heads: BTreeMap<u32, Duration>,
    /// The process that answered the wait at the head over a connection that it had accepted, or that owes it: an answer, or to read what cannot be sent.
    pub service: Option<u32>,
}

/// Chains of the whole host, whoever is watched.
pub(super) fn of_host<'r>(graph: &Graph<'r>) -> Vec<HostChain<'r>> {
    let reported = |(keys, fold): (Vec<Key>, Fold)| {
        let row = fold.hops.first()?.row?;
        let (class, leaf) = (graph.kind(row).class, fold.hops.last()?.row.map(|row| graph.kind(row).class));
        let heads = fold.heads.iter().map(|(pid, ns)| (*pid, Duration::from_nanos(*ns))).collect();
        let at_work = fold.at_work as f64 / fold.time.max(1) as f64;
        let chain = fold.chain(graph, &keys);
        let service = graph.service_of(row);
        Some(HostChain { chain, head: graph.spans.get(row)?, class, leaf, at_work, heads, service })
    };
    folded(graph, None).into_iter().filter_map(reported).collect()
}

fn folded(graph: &Graph<'_>, watched: Option<&Set<u32>>) -> Vec<(Vec<Key>, Fold)> {
    graph.refuel(FUEL);
    let mut folds: Table<Vec<Key>, Fold> = Table::default();
    let mut keys: Vec<Key> = Vec::new();
    let mut add = |way: &[Step<'_>]| {
        keys.clear();
        keys.extend(way.iter().map(|step| step.key));
        match folds.get_mut(&keys) {
            Some(fold) => fold.add(graph, way),
            None => folds.entry(keys.clone()).or_default().add(graph, way),
        }
    };
    let (mut idle, mut waited) = (Vec::new(), Table::<u32, u64>::default());
    for node in losses(graph, watched) {
        let mut ways = Vec::new();
        ways_down(graph, &node, node.ns, &mut vec![], &mut ways);
        if watched.is_some() && ways.iter().all(|way| resting::is_rest(graph, way)) {
            idle.push(node);
            continue;
        }
        // Hosts that hide tasks from tracing hide now and then why one sleeps.
        let is_known = |row| {
            graph.kind(row).class != Class::Unknown
                || graph.spans.get(row).is_none_or(|span| span.state != State::Sleep)
        };
        if node.key.sort == Sort::Wait && node.row.is_some_and(is_known) {
            let waited = waited.entry(node.pid).or_insert(0);
            *waited = waited.saturating_add(node.ns);
        }
        let tells = |way: &&Vec<Step<'_>>| {
            // Who keeps his clients waiting does so without us.
            let is_own = way.last().is_some_and(|step| graph.is_own(step.node.pid));
            let head = way.first().and_then(|step| step.node.row);
            !(graph.ends_idle(way) || is_own && head.is_some_and(|row| graph.awaits_other_end(row)))
        };
        ways.iter().filter(|way| watched.is_some() || tells(way)).for_each(|way| add(way));
    }
    let resting = watched.map(|watched| resting::resting(graph, watched, &waited)).unwrap_or_default();
    for node in idle.iter().filter(|node| !resting.contains(&node.pid)) {
        add(&[Step::of(graph, node)]);
    }
    let worth_it = |fold: &Fold| match watched {
        Some(_) => fold.time > 0,
        None => {
            u128::from(fold.worst) >= CHAIN_THRESHOLD.as_nanos()
                || fold.time.saturating_mul(CHAIN_PART) >= graph.window
        }
    };
    let mut folds: Vec<(Vec<Key>, Fold)> = folds.into_iter().filter(|(_, fold)| worth_it(fold)).collect();
    folds.sort_by(|a, b| b.1.time.cmp(&a.1.time).then_with(|| a.0.cmp(&b.0)));
    folds.truncate(MOST_CHAINS * 4);
    let within: Vec<bool> = folds.iter().map(|one| folds.iter().any(|all| is_within(one, all))).collect();
    let own = folds.into_iter().zip(within).filter(|(_, within)| !within);
    own.take(MOST_CHAINS).map(|(fold, _)| fold).collect()
}

/// The waits that cost somebody time, with what is behind them.
pub(super) fn losses<'g>(
    graph: &'g Graph<'_>,
    watched: Option<&'g Set<u32>>,
) -> impl Iterator<Item = Node> + 'g {
    let mut pids: Vec<u32> =
        graph.lines.keys().copied().filter(|pid| *pid != 0 && !graph.is_own(*pid)).collect();
    pids.retain(|pid| watched.is_none_or(|watched| watched.contains(pid)));
    pids.sort_unstable();
    let pieces = pids.into_iter().flat_map(move |pid| {
        let line = graph.lines.get(&pid);
        line.into_iter().flat_map(move |line| line.clip(0, graph.window)).map(move |piece| (pid, piece))
    });
    pieces.filter_map(move |(pid, piece)| loss(graph, pid, piece, watched.is_some()))
}

impl Graph<'_> {
    /// A thread of whyslow's.
    fn is_own(&self, pid: u32) -> bool {
        let tgid = self.tasks.get(&pid).map_or(pid, |task| task.tgid);
        self.rec.meta.is_own(pid, tgid)
    }
}

fn loss(graph: &Graph<'_>, pid: u32, piece: Piece, watched: bool) -> Option<Node> {
    match piece.what {
        What::Wait(row) if watched && !is_idle(graph, row) || !watched && is_loss(graph, row) => {
            graph.wait(&mut Walk::from(pid), row, piece, true)
        }
        What::Ready(row) if watched || may_be_kept_off(graph, row, piece) => {
            if watched {
                return graph.ready(row, piece, true);
            }
            let [run, quota] = [WITHOUT_A_BREAK, CHAIN_THRESHOLD].map(|time| time.as_nanos() as u64);
            graph.ready_behind(row, piece, run, quota).filter(was_kept_off)
        }
        _ => None,
    }
}

/// A service that had nothing to do until it was asked has lost nothing, and whoever asked it has not kept it waiting.
fn is_idle(graph: &Graph<'_>, row: usize) -> bool {
    graph.kind(row).class == Class::Idle && graph.spans.get(row).is_some_and(is_asked)
}

/// Whether a wait on a whole host cost its task time. To wait to be given work, for one's own timer, or in one's own
/// order (a shell for its command) is how programs are built. To wait for an answer is another matter.
fn is_loss(graph: &Graph<'_>, row: usize) -> bool {
    let Some(span) = graph.spans.get(row) else { return false };
    let disk = matches!(span.state, State::Io | State::Blocked);
    // Kernel threads wait in D state for work, too: one in a function that is not known has lost nothing that is known.
    let is_kernels = || graph.tasks.get(&span.pid).is_some_and(|task| task.kthread);
    // A timed wait for a lock of a program that a timer ended: nobody let anything go; only the
    // lock itself may say who held it.
    let let_go = || span.waker.as_ref().is_some_and(|waker| waker.context == Context::Task);
    match graph.kind(row).class {
        Class::Lock => span.lock.is_some() || span.holder != 0 || disk || let_go(),
        Class::Limit => true,
        Class::Dependency => {
            disk || graph.is_unanswered(row) || is_of_fuse(graph, row) || is_taken(graph, row)
        }
        Class::Device => disk,
        Class::Unknown => disk && !is_kernels(),
        Class::Idle | Class::Peer => graph.is_for_answer(row),
        Class::Cpu | Class::Timer => false,
    }
}

/// It waited for another process to take what it had sent through a unix socket: that one had something to do. What fills a pipe is the work of a
/// stage before.
fn is_taken(graph: &Graph<'_>, row: usize) -> bool {
    let taker = graph.spans.get(row).and_then(|span| Some((span.tgid, task_behind(span)?.tgid)));
    graph.kind(row).reason == Reason::UnixSocket && taker.is_some_and(|(own, other)| own != other)
}

/// A call to a file system that a daemon serves: the first part of the wait for its answer is interruptible (fs/fuse/dev.c,
/// request_wait_answer).
fn is_of_fuse(graph: &Graph<'_>, row: usize) -> bool {
    *graph.details.of(graph.kind(row).what) == Detail::Target(WaitTarget::FuseAnswer)
}

/// On a CPU that tasks share each waits for the others, and slices of 32 ms were seen at load 18 on two CPUs; one that had
/// it without a break for several of those is another matter.
pub(crate) const WITHOUT_A_BREAK: Duration = Duration::from_millis(100);

/// Of most waits for a CPU it is known without asking who had it: they are shorter than that.
fn may_be_kept_off(graph: &Graph<'_>, row: usize, piece: Piece) -> bool {
    let throttled = graph.spans.get(row).map_or(0, |span| span.throttled_ns).min(piece.ns());
    u128::from(piece.ns()) >= WITHOUT_A_BREAK.as_nanos()
        || u128::from(throttled) >= CHAIN_THRESHOLD.as_nanos()
}

/// Whether a wait for a CPU was more than that.
fn was_kept_off(node: &Node) -> bool {
    node.parts.iter().any(|part| match part.key.sort {
        Sort::HadCpu => u128::from(part.worst) >= WITHOUT_A_BREAK.as_nanos(),
        Sort::Quota => u128::from(part.ns) >= CHAIN_THRESHOLD.as_nanos(),
        _ => false,
    })
}

/// The ways down from a node that are worth telling: always the largest.
fn ways_down<'n>(
    graph: &Graph<'_>,
    node: &'n Node,
    whole: u64,
    way: &mut Vec<Step<'n>>,
    ways: &mut Vec<Vec<Step<'n>>>,
) {
    way.push(Step::of(graph, node));
    // What somebody did on a CPU is its leaf; who spins waits for what it spins for.
    let is_leaf = node.key.sort == Sort::Ran && node.key.reason != Reason::Spinning;
    let parts = if is_leaf { &[] } else { &*node.parts };
    let worth_it =
        |ns: u64| ns.saturating_mul(BESIDE) >= whole || u128::from(ns) >= CHAIN_THRESHOLD.as_nanos();
    let followed = parts.iter().enumerate().filter(|(at, part)| *at == 0 || worth_it(part.ns));
    for (_, part) in followed {
        if ways.len() < MOST_WAYS {
            ways_down(graph, part, whole, way, ways);
        }
    }
    if parts.is_empty() {
        ways.push(way.clone());
    }
    way.pop();
}

/// Chains that are alike.
#[derive(Default)]
struct Fold {
    time: u64,
    worst: u64,
    count: u64,
    notes: u8,
    /// Of `time`: of ways whose holder is known from what readers leave in a lock's word alone.
    stale: u64,
    /// ... and of ways whose end was at work before.
    at_work: u64,
    /// Of `time`, whose it is.
    heads: BTreeMap<u32, u64>,
    hops: Vec<HopFold>,
    /// The longest of them decides who is its end.
    leaf: Option<whyslow_model::Culprit>,
}

#[derive(Default)]
pub(super) struct HopFold {
    shown: Option<Called>,
    lost: u64,
    worst: u64,
    count: u64,
    state: TaskState,
    /// The longest wait.
    pub row: Option<usize>,
    pub tasks: Vec<(u32, Called)>,
}

impl Fold {
    fn add(&mut self, graph: &Graph<'_>, way: &[Step<'_>]) {
        let Some(last) = way.last() else { return };
        self.hops.resize_with(way.len(), HopFold::default);
        for (hop, step) in self.hops.iter_mut().zip(way) {
            let node = step.node;
            hop.shown =
                Some(hop.shown.map_or(node.shown, |s| if s == node.shown { s } else { step.key.who }));
            hop.lost = hop.lost.saturating_add(node.ns);
            if node.worst >= hop.worst {
                (hop.worst, hop.row) = (node.worst, node.row);
            }
            hop.count = hop.count.saturating_add(node.count);
            hop.state = graph.state(node);
            let task = (node.pid, node.shown);
            if node.pid != 0 && hop.tasks.len() < MOST_TASKS && !hop.tasks.contains(&task) {
                hop.tasks.push(task);
            }
            self.notes |= node.notes & !note::STALE;
        }
        let ns = last.node.ns;
        if way.iter().any(|step| step.node.notes & note::STALE != 0) {
            self.stale = self.stale.saturating_add(ns);
        }
        if graph.was_at_work(way) {
            self.at_work = self.at_work.saturating_add(ns);
        }
        if let Some(head) = way.first().filter(|head| head.node.pid != 0) {
            let of_head = self.heads.entry(head.node.pid).or_default();
            *of_head = of_head.saturating_add(ns);
        }
        if ns >= self.worst {
            self.worst = ns;
            // Who is stopped is its end, whoever may let it go on.
            let end = match way {
                [.., halted, nobody] if HALTED.contains(&halted.key.reason) && nobody.node.pid == 0 => halted,
                _ => last,
            };
            self.leaf = Some(graph.culprit(*end));
        }
        self.time = self.time.saturating_add(ns);
        self.count = self.count.saturating_add(1);
    }

    fn chain(self, graph: &Graph<'_>, keys: &[Key]) -> Chain {
        let hops = self.hops.iter().zip(keys).map(|(hop, key)| Hop {
            reason: key.reason,
            who: graph.names.who(hop.shown.unwrap_or(key.who)),
            detail: Detail::clone(&graph.details.of(key.what)),
            state: hop.state,
            lost: Duration::from_nanos(hop.lost),
            worst: Some(hop.worst).filter(|worst| *worst > 0).map(Duration::from_nanos),
            count: Some(hop.count).filter(|count| *count > 0),
            ..Hop::default()
        });
        let mut hops: Vec<Hop> = hops.collect();
        if let Some(last) = hops.last_mut() {
            graph.calls_of(last);
        }
        graph.note_growth(&mut hops, &self.hops, keys);
        let named = |(pid, called): &(u32, Called)| (*pid, graph.names.who(*called));
        Chain {
            time: Duration::from_nanos(self.time),
            count: self.count,
            worst: Duration::from_nanos(self.worst),
            tasks: self.hops.iter().map(|hop| hop.tasks.iter().map(named).collect()).collect(),
            hops,
            leaf: self.leaf.unwrap_or_else(|| graph.nobody()),
            // A few waits that began with an old word do not make the others doubtful.
            notes: reported(
                self.notes | if self.stale.saturating_mul(2) > self.time { note::STALE } else { 0 },
            ),
        }
    }
}

fn reported(notes: u8) -> Vec<Note> {
    let mut all: Vec<Note> =
        note::ALL.iter().filter(|(bit, _)| notes & bit != 0).map(|(_, note)| *note).collect();
    if notes & note::CYCLE != 0 && notes & (note::OPEN | note::TIMED) != 0 {
        all.insert(0, Note::Deadlock);
    }
    all
}

/// Whether a chain is the lower end of another one: the same waits of the same tasks, told there already.
fn is_within((keys, one): &(Vec<Key>, Fold), (longer, all): &(Vec<Key>, Fold)) -> bool {
    let Some(above) = longer.len().checked_sub(keys.len()).filter(|above| *above > 0) else { return false };
    if !longer.ends_with(keys) || one.count > all.count {
        return false;
    }
    let (Some(first), Some(there)) = (one.hops.first(), all.hops.get(above)) else { return false };
    first.tasks.iter().all(|task| there.tasks.contains(task)) && first.worst <= there.worst
}
