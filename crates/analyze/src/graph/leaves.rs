//! What is known by sums only, and what is no task's doing: time on a CPU, short waits, interrupts.

use whyslow_model::timeline::{Context, Span, State, StateTimes};
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::facts::{Graph, LongRun, Who};
use super::names::DetailId;
use super::node::{Key, MOST_PARTS, Node, Sort, merged};
use super::short_runs::ShortRuns;
use super::split::split_many;
use super::timeline::{Line, Piece};
use crate::wait_reasons::Class;

/// More stacks that stand for short waits would not change what they are called.
const ENOUGH_STACKS: usize = 1_024;
/// ... nor would more rows, of which few stand for others.
const MOST_LOOKS: usize = 8_192;

impl Graph<'_> {
    /// The sums of a task's mixed stretches in `within`, as nodes.
    pub fn reported(
        &self,
        line: &Line,
        who: Who,
        mix: StateTimes,
        within: (u64, u64),
        nodes: &mut Vec<Node>,
    ) {
        nodes.extend(self.ran(who, mix.running_ns));
        if mix.runnable_ns > 0 {
            nodes.push(self.node(Sort::Ready, Reason::Runnable, who, self.rests.short_cpu, mix.runnable_ns));
        }
        let short = [(State::Io, mix.io_ns), (State::Blocked, mix.blocked_ns), (State::Sleep, mix.sleep_ns)];
        for (state, ns) in short.into_iter().filter(|(_, ns)| *ns > 0) {
            nodes.extend(self.short(line, who, state, ns, within));
        }
        if mix.unknown_ns > 0 {
            nodes.push(self.unexplained(who, WaitTarget::TracerMissed, mix.unknown_ns));
        }
    }

    pub fn node(&self, sort: Sort, reason: Reason, who: Who, what: DetailId, ns: u64) -> Node {
        let mut node = Node::leaf(Key { sort, reason, who: who.key, what }, who.pid, ns);
        node.shown = who.shown;
        node
    }

    /// Short waits in one state, called by the waits whose stacks stand for them. They are not followed: two tasks that
    /// hand each other a byte a million times would never end.
    fn short(&self, line: &Line, who: Who, state: State, ns: u64, within: (u64, u64)) -> Vec<Node> {
        let mut rows = Vec::new();
        for row in line.waits_around(state, within.0, within.1).take(MOST_LOOKS) {
            self.fuel.set(self.fuel.get().saturating_sub(1));
            let Some(span) = self.spans.get(row) else { continue };
            let own = span.woken_ns.saturating_sub(span.at_ns);
            // A row that stands for itself alone says nothing of others.
            rows.extend(
                Some((row, span.sampled_wait_ns.saturating_sub(own))).filter(|(_, weight)| *weight > 0),
            );
            if rows.len() >= ENOUGH_STACKS {
                break;
            }
        }
        let weights: Vec<u64> = rows.iter().map(|(_, weight)| *weight).collect();
        if weights.iter().all(|weight| *weight == 0) {
            let why = match state {
                State::Io => WaitTarget::ShortIo,
                State::Blocked => WaitTarget::ShortBlocked,
                _ => WaitTarget::ShortSleeps,
            };
            return vec![self.unexplained(who, why, ns)];
        }
        let parts = split_many(ns, &weights);
        let parts = rows.iter().zip(parts).filter(|(_, part)| *part > 0);
        let nodes = parts.map(|((row, _), part)| self.short_like(who, *row, part)).collect();
        merged(nodes, &self.rests).to_vec()
    }

    /// Short waits like the one of `row`, with the one who ends them.
    pub fn short_like(&self, who: Who, row: usize, ns: u64) -> Node {
        let kind = self.kind(row);
        let waker = self.spans.get(row).and_then(|span| span.waker.as_ref());
        let partner = waker.filter(|w| w.context == Context::Task && w.pid != 0 && w.pid != who.pid);
        let known = self.shorts.borrow().get(&row).copied();
        let what = known.unwrap_or_else(|| {
            let of = Box::new(Detail::clone(&self.details.of(kind.what)));
            let woken_by = partner.map(|waker| super::names::folded(&waker.comm));
            let what = self.details.id(Detail::Short { of, woken_by });
            self.shorts.borrow_mut().insert(row, what);
            what
        });
        let mut node = self.node(Sort::Short, kind.reason, who, what, ns);
        node.row = Some(row);
        node.unsaid = if kind.class == Class::Unknown { ns } else { 0 };
        let (from, to) = self.spans.get(row).map_or((0, 0), |span| (span.at_ns, span.woken_ns));
        match partner.filter(|waker| self.is_reported_by_sums(waker, from, to)) {
            Some(waker) => node.of(self.by_sums(waker.pid, &waker.comm, ns)),
            None => node,
        }
    }

    /// Ready for a CPU: who had it.
    pub fn ready(&self, row: usize, piece: Piece, follow: bool) -> Option<Node> {
        let span = self.spans.get(row)?;
        if !follow && self.fuel.get() > 0 {
            // Too short to ask who had it, like those that no row tells of.
            let who = self.who(row, span, None);
            let node = self.node(Sort::Ready, Reason::Runnable, who, self.rests.short_cpu, piece.ns());
            return Some(Node { row: Some(row), ..node });
        }
        let runs = if follow { self.runs(span.cpu, piece.from, piece.to) } else { None };
        Some(self.behind_runs(row, span, piece, follow.then_some(runs)))
    }

    /// The same, only where one of those who had it may have had it for as long as `run` ns without a break, or a quota for as
    /// long as `quota`. Whoever shares a CPU waits for many short runs: to look them through costs a tenth of telling of them.
    pub fn ready_behind(&self, row: usize, piece: Piece, run: u64, quota: u64) -> Option<Node> {
        let span = self.spans.get(row)?;
        let throttled = self.throttled(span, piece) >= quota;
        if !throttled && self.longest_run(span.cpu) < run {
            return None;
        }
        let runs = self.runs(span.cpu, piece.from, piece.to);
        let mut others = runs.unwrap_or_default().iter().filter(|run| run.pid != span.pid);
        let may_be = throttled || others.any(|other| other.within(piece.from, piece.to) >= run);
        may_be.then(|| self.behind_runs(row, span, piece, Some(runs)))
    }

    /// A time ready, with those who ran then. The outer `None`: nobody asks who they were.
    fn behind_runs(&self, row: usize, span: &Span, piece: Piece, runs: Option<Option<&[LongRun]>>) -> Node {
        let who = self.who(row, span, None);
        let mut node = self.node(Sort::Ready, Reason::Runnable, who, self.rests.cpu, piece.ns());
        node.count = 1;
        node.row = Some(row);
        node.worst = span.to_ns.min(self.window).saturating_sub(span.woken_ns).max(node.ns);
        match runs {
            Some(runs) => node.of(merged(self.had_cpu(row, span, piece, runs), &self.rests)),
            None => node,
        }
    }

    /// What of it was a quota's doing.
    fn throttled(&self, span: &Span, piece: Piece) -> u64 {
        let begins = span.woken_ns.clamp(span.at_ns.min(piece.from), piece.from);
        let whole = span.to_ns.saturating_sub(begins).max(piece.ns());
        let throttled =
            u128::from(span.throttled_ns.min(whole)) * u128::from(piece.ns()) / u128::from(whole.max(1));
        u64::try_from(throttled).unwrap_or(0).min(piece.ns())
    }

    fn had_cpu(&self, row: usize, span: &Span, piece: Piece, all: Option<&[LongRun]>) -> Vec<Node> {
        let throttled = self.throttled(span, piece);
        let mut nodes = Vec::new();
        if throttled > 0 {
            let what = self.details.id(WaitTarget::CpuQuota.into());
            nodes.push(self.node(Sort::Quota, Reason::Quota, self.who(row, span, None), what, throttled));
        }
        let left = piece.ns() - throttled;
        let Some(all) = all else {
            nodes.push(self.unexplained(self.no_one(), WaitTarget::NotFollowed, left));
            return nodes;
        };
        let runs: Vec<(&LongRun, u64)> = all
            .iter()
            .filter(|run| run.pid != span.pid)
            .map(|run| (run, run.within(piece.from, piece.to)))
            .collect();
        let ran: u64 = runs.iter().map(|(_, ns)| ns).sum();
        // While the quota had run out, others had the CPU, too: they are not to be blamed for that.
        let mut weights: Vec<u64> = runs.iter().map(|(_, ns)| *ns).collect();
        weights.push(left.saturating_sub(ran));
        let parts = split_many(left, &weights);
        nodes.reserve(runs.len() + 1);
        for ((run, whole), part) in runs.iter().zip(&parts) {
            nodes.push(self.had(run, *whole, *part));
        }
        let named: u64 = parts.iter().take(runs.len()).sum();
        nodes.extend(self.had_shortly(span, piece, left.saturating_sub(named)));
        nodes
    }

    /// The same of short runs: by whom the CPU was had at about that time, as far as that is known.
    fn had_shortly(&self, span: &Span, piece: Piece, ns: u64) -> Vec<Node> {
        if ns == 0 {
            return Vec::new();
        }
        let runs = || self.rec.tables.runs.as_deref().unwrap_or_default();
        let all = self.short_runs.get_or_init(|| ShortRuns::of(self.spans, runs(), self.window));
        let may_look = self.spend_looks(all.entries(span.cpu, piece.from, piece.to));
        let others = if may_look { all.had(span.cpu, piece.from, piece.to, span.pid) } else { Vec::new() };
        let others = others.get(..MOST_PARTS.min(others.len())).unwrap_or_default();
        let mut weights: Vec<u64> = others.iter().map(|(_, ns)| *ns).collect();
        weights.push(ns.saturating_sub(weights.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns))));
        let parts = split_many(ns, &weights);
        let of = |(pid, _): &(u32, u64)| self.who_is(*pid, None);
        let whos = others.iter().map(|other| (of(other), self.rests.had_cpu));
        let whos =
            whos.chain([(self.no_one(), self.rests.short_runs)]).zip(parts).filter(|(_, part)| *part > 0);
        whos.map(|((who, what), part)| self.node(Sort::HadCpu, Reason::Running, who, what, part)).collect()
    }

    fn had(&self, run: &LongRun, whole: u64, ns: u64) -> Node {
        let (who, function) = self.who_ran(run);
        let mut node = self.node(Sort::HadCpu, Reason::Running, who, self.rests.had_cpu, ns);
        node.function = function;
        (node.count, node.worst) = (1, whole);
        node
    }

    /// What an interrupt that ended a wait was about, by the functions it woke the waiter from.
    pub fn event(&self, stack: Option<u32>, ns: u64) -> Option<Node> {
        let frames = self.stacks.kernel(stack);
        let what = frames.iter().find_map(|frame| event_of(frame))?;
        let id = self.details.id(what.into());
        Some(self.node(Sort::Event, what.reason(), self.no_one(), id, ns))
    }
}

/// Kernel functions that wake somebody from an interrupt, by how their names begin.
fn event_of(frame: &str) -> Option<WaitTarget> {
    const EVENTS: [(&[&str], WaitTarget); 5] = [
        (&["hrtimer_", "process_timeout", "call_timer_fn", "it_real_fn", "alarm"], WaitTarget::ATimer),
        (&["blk_", "bio_", "end_bio", "nvme_", "virtblk_", "scsi_", "dio_bio"], WaitTarget::BlockIo),
        (&["tcp_", "udp_", "sock_", "net_rx", "napi_", "__netif", "ip_"], WaitTarget::Packet),
        (&["rcu_", "wakeme_after_rcu"], WaitTarget::GracePeriod),
        (
            &["__sysvec_call_function", "flush_smp_call", "generic_smp_call", "irq_work"],
            WaitTarget::CallOfCpu,
        ),
    ];
    let event = EVENTS.iter().find(|(begins, _)| begins.iter().any(|begin| frame.starts_with(begin)))?;
    Some(event.1)
}
