//! Requests that were on their way while a thread of the process waited for something of its own: programs whose threads share their loops (Go,
//! pools of workers) look at the watch and wake each other until the answer comes. TCP says when what came was asked for.

use whyslow_model::timeline::Span;
use whyslow_model::wait::{Detail, PeerAct, Reason};

use super::facts::Graph;
use super::node::{Key, Node, Sort};
use super::timeline::Piece;
use super::walk::Walk;
use crate::hashing::Table;
use crate::wait_reasons::{Class, TICK, is_request, task_behind};

/// Answers that are looked at for one wait.
const LOOKS: usize = 64;
/// A thread that is woken by the one that takes the answer wakes up so much later at most.
const AFTER: u64 = 1_000_000;

/// What came to a process, and ended a wait of one of its threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    row: usize,
    came: u64,
    /// When the same connection had sent something last, since the window began.
    sent: i64,
    by: u32,
    /// Somebody asks something; it may be what was waited for, if nothing came after it.
    asks: bool,
}

/// By process, in order.
pub(super) fn answers(spans: &[Span]) -> Table<u32, Vec<Answer>> {
    let mut all: Table<u32, Vec<Answer>> = Table::default();
    for (row, span) in spans.iter().enumerate() {
        let Some(waker) = task_behind(span).filter(|waker| waker.tgid != span.tgid) else { continue };
        let Some(before) = waker.delivery.as_ref().and_then(|delivery| delivery.sent_before_ns) else {
            continue;
        };
        let sent = i128::from(span.woken_ns) - i128::from(before);
        let sent = i64::try_from(sent).unwrap_or(i64::MIN);
        let asks = is_request(span, waker);
        let answer = Answer { row, came: span.woken_ns, sent, by: waker.pid, asks };
        all.entry(span.tgid).or_default().push(answer);
    }
    all.values_mut().for_each(|all| all.sort_by_key(|answer| answer.came));
    all
}

impl Graph<'_> {
    /// A wait for nobody outside, while its process had asked somebody for the sake of the one who waits for it.
    pub fn wait_in_flight(&self, walk: &mut Walk, row: usize, piece: Piece) -> Option<Node> {
        let span = self.spans.get(row)?;
        let kind = self.kind(row);
        let is_own = task_behind(span).is_none_or(|waker| waker.tgid == span.tgid);
        let was_told = span.waker.as_ref().is_some_and(|waker| waker.delivery.is_some());
        let is_loops = match kind.class {
            Class::Idle | Class::Timer | Class::Peer => true,
            Class::Lock | Class::Dependency => kind.reason == Reason::Futex && span.holder == 0,
            _ => false,
        };
        let has_threads = || self.threads_of(span.tgid).nth(1).is_some();
        if span.open
            || !is_own
            || was_told
            || self.is_own_sleep(row)
            || !is_loops
            || walk.is_deep()
            || !has_threads()
        {
            return None;
        }
        let (from, until) =
            walk.stretch_of(|pid| self.tasks.get(&pid).is_some_and(|t| t.tgid == span.tgid))?;
        let answer = self.answer_after(walk, span, from, until)?;
        let waker = self.spans.get(answer.row).and_then(task_behind)?;
        let ready = waker.delivery.as_ref().and_then(|delivery| delivery.ready.as_ref());
        let address = ready.map(|ready| ready.peer.clone()).filter(|_| !answer.asks);
        let who = self.who(row, span, None);
        let what = self.details.id(Detail::Peer { address, act: PeerAct::Send });
        let key = Key { sort: Sort::Wait, reason: Reason::Socket, who: who.key, what };
        let node =
            Node { shown: who.shown, count: 1, row: Some(row), ..Node::leaf(key, span.pid, piece.ns()) };
        walk.asks(Some(answer.sent));
        let (parts, notes) = self.follow(walk, answer.by, piece.from, piece.to, None);
        Some(Node { notes, worst: piece.ns(), ..node }.of(parts))
    }

    fn answer_after(&self, walk: &Walk, span: &Span, from: u64, until: u64) -> Option<Answer> {
        let all = self.answers.get_or_init(|| answers(self.spans)).get(&span.tgid)?;
        let before = all.get(..all.partition_point(|answer| answer.came <= until.saturating_add(AFTER)))?;
        let ticks = |at: u64| i64::try_from(at).unwrap_or(i64::MAX).saturating_add(TICK as i64);
        let (begin, asked) = (ticks(span.at_ns), ticks(from).saturating_sub(3 * TICK as i64));
        let is_it = |(at, answer): &(usize, &Answer)| {
            let may_be = !answer.asks || (*at == 0 && answer.came <= until);
            may_be && answer.sent <= begin && answer.sent >= asked && walk.is_new(answer.by)
        };
        let later = before.iter().rev().take(LOOKS);
        let later = later.take_while(|answer| answer.came.saturating_add(AFTER) >= span.woken_ns);
        later.enumerate().find(is_it).map(|(_, answer)| *answer)
    }
}
