//! Onward requests: what a process that was asked has asked of others, and has not been told when the window ends. One that waits at many
//! connections at once (a loop of events), or that has many threads, does not say which of them its answer needs; what it has sent does.

use whyslow_model::timeline::{Asked, Request, Span};
use whyslow_model::wait::{Detail, PeerAct, Reason, WaitTarget};

use super::facts::{Behind, Graph, SMALL_PART};
use super::node::{Key, Node, Sort};
use super::timeline::{Piece, What};
use super::walk::{DEEPEST, Walk};
use crate::hashing::Table;
use crate::wait_reasons::{Class, TICK, task_behind};

/// A service asks on as soon as it is asked; both times are known to a tick.
const BEFORE: i64 = 2 * TICK as i64;
/// ... and what is asked for its sake soon afterwards, where it is not known that it is kept.
const AT_ONCE: i64 = 250_000_000;
/// x86-64: poll, select, pselect6, ppoll; epoll_wait, epoll_pwait, epoll_pwait2; io_uring_enter.
const FOR_EVENTS: [u32; 8] = [7, 23, 270, 271, 232, 281, 441, 426];

/// One of them, and who is to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Onward<'r> {
    request: &'r Request,
    /// `None`: nobody on this host, or one of several.
    process: Option<u32>,
    /// `None`: which of several is not known.
    thread: Option<u32>,
    /// When it was sent, since the window began; `None`: not known.
    sent: Option<i64>,
    /// Who is to answer has something to do, or is kept from it.
    pub kept: bool,
    /// Nobody is accused of it on a whole host: that it was asked is not sure, or it sleeps of its own accord.
    pub doubtful: bool,
}

impl Onward<'_> {
    /// It was sent for the sake of who asked at this time.
    fn is_since(&self, asked: Option<i64>) -> bool {
        self.sent.zip(asked).is_none_or(|(sent, asked)| sent >= asked.saturating_sub(BEFORE))
    }

    /// ... and right then, so that nearly all of the wait is for it.
    fn is_all_of(&self, asked: Option<i64>, window: u64) -> bool {
        let since =
            |at: Option<i64>| window.saturating_sub(at.map_or(0, |at| u64::try_from(at).unwrap_or(0)));
        let (own, whole) = (since(self.sent), since(asked));
        self.is_since(asked) && own.saturating_add(whole / SMALL_PART) >= whole
    }

    fn is_sure(&self) -> bool {
        self.request.other_end.asked >= Asked::Sent
    }

    /// To whom it leads. Of several who may have that end nobody is named; the address is told.
    fn to(&self) -> (Option<u32>, Option<&str>) {
        let peer = self.request.peer.as_deref().filter(|_| self.process.is_none());
        (self.process, peer)
    }
}

impl<'r> Graph<'r> {
    /// How long before the window's end, as a time since it began.
    pub fn sent_at(&self, before: u64) -> i64 {
        let at = i128::from(self.window) - i128::from(before);
        i64::try_from(at).unwrap_or(i64::MIN)
    }

    /// What a process asked of others for the sake of who asked it at this time; it keeps them waiting.
    pub fn keeps_by_asking(&self, process: u32, asked: Option<i64>) -> Option<&Onward<'r>> {
        self.onward_of(process).iter().find(|onward| onward.kept && onward.is_all_of(asked, self.window))
    }

    fn onward_of(&self, process: u32) -> &[Onward<'r>] {
        self.onward.get_or_init(|| self.all_onward()).get(&process).map_or(&[], Vec::as_slice)
    }

    /// By who asked. Who is kept by what he has asked for keeps those who have asked him.
    fn all_onward(&self) -> Table<u32, Vec<Onward<'r>>> {
        let mut all: Table<u32, Vec<Onward<'r>>> = Table::default();
        let mut threads: Table<u32, Option<u32>> = Table::default();
        for request in self.rec.tables.requests.as_deref().unwrap_or_default() {
            all.entry(request.tgid).or_default().push(self.onward_by(request, &mut threads));
        }
        let asks: Vec<u32> = all.keys().copied().collect();
        for _ in 0..DEEPEST {
            let mut kept = Vec::new();
            for process in &asks {
                for (at, onward) in all.get(process).into_iter().flatten().enumerate() {
                    let of_next = onward.process.and_then(|next| all.get(&next)).into_iter().flatten();
                    let mut next =
                        of_next.filter(|next| next.kept && next.is_all_of(onward.sent, self.window));
                    let next = if onward.kept { None } else { next.next() };
                    kept.extend(next.map(|next| (*process, at, next.doubtful || !onward.is_sure())));
                }
            }
            let changed = !kept.is_empty();
            for (process, at, doubtful) in kept {
                if let Some(onward) = all.get_mut(&process).and_then(|all| all.get_mut(at)) {
                    (onward.kept, onward.doubtful) = (true, doubtful);
                }
            }
            if !changed {
                break;
            }
        }
        all
    }

    /// `threads`: by process, as far as they were asked for.
    fn onward_by(&self, request: &'r Request, threads: &mut Table<u32, Option<u32>>) -> Onward<'r> {
        let end = &request.other_end;
        let sent = end.sent_before_ns.map(|before| self.sent_at(before));
        let begin = sent.map_or(0, |sent| u64::try_from(sent).unwrap_or(0));
        let process = self.service(request.tgid, &end.processes, begin, end.queued);
        let asked = |process| {
            let mut clients = self.threads_of(request.tgid);
            clients.find_map(|client| self.asked_thread(client, process, begin))
        };
        let mut only = |process| *threads.entry(process).or_insert_with(|| self.one_thread(process));
        let seen = process.and_then(asked);
        let thread = seen.or_else(|| process.and_then(&mut only));
        let pair = process.zip(thread).filter(|_| seen.is_none());
        let is_guess = pair.is_some_and(|(process, thread)| self.is_guess(process, thread));
        let unread = end.asked == Asked::Unread && (end.queued || sent.is_some());
        let kept = thread.is_some_and(|thread| self.is_kept(thread, begin, unread));
        let asleep = thread.is_some_and(|thread| self.sleeps(thread));
        Onward {
            request,
            process,
            thread,
            sent,
            kept,
            doubtful: asleep || is_guess || end.asked < Asked::Sent,
        }
    }

    /// What a process is told of next, of what it has asked; all that may be it lead to one. Of those who are not known to be kept it is one that was
    /// asked at once: some send news without end (a log), or say that the last have come. At the top nobody is known to wait: only who is kept
    /// keeps it.
    fn onward(&self, walk: &Walk, process: u32) -> Option<Onward<'r>> {
        let at_top = walk.stretch().is_none();
        let asked = walk.asked_at();
        let may_be = |onward: &&Onward<'r>| {
            let is_at_once = || {
                let both = onward.sent.zip(asked).filter(|_| !at_top && onward.is_sure());
                let is_soon = both.is_some_and(|(sent, asked)| sent <= asked.saturating_add(AT_ONCE));
                is_soon || (!at_top && onward.request.connecting)
            };
            let has_name = onward.process.is_some() || onward.request.peer.is_some();
            has_name && onward.is_since(asked) && (onward.kept || is_at_once())
        };
        let all = self.onward_of(process);
        let left = self.fuel.get();
        self.fuel.set(left.saturating_sub(all.len() as u64));
        let all: Vec<&Onward<'r>> = all.iter().filter(|_| left > 0).filter(may_be).collect();
        let of = |is: fn(&Onward<'r>) -> bool| all.iter().copied().filter(|onward| is(onward)).collect();
        let [sure, kept]: [Vec<_>; 2] = [of(Onward::is_sure), of(|onward| onward.kept && onward.is_sure())];
        [all.clone(), sure, kept].iter().find_map(|some| one_way(some))
    }

    /// The wait of a loop that has asked for an answer; `None`: it is one like any other.
    pub fn onward_wait(&self, walk: &mut Walk, row: usize, piece: Piece) -> Option<Node> {
        let span = self.spans.get(row).filter(|_| self.rec.tables.requests.is_some())?;
        let waits = match self.kind(row).class {
            Class::Idle | Class::Timer | Class::Peer => is_for_events(span),
            // Some hosts hide tasks from tracing: a loop's wait of which nothing is known is most likely one like the others.
            Class::Unknown => span.syscall.is_none() && task_behind(span).is_none() && span.lock.is_none(),
            _ => false,
        };
        // Its threads are looked at for that: only where it matters.
        if !waits || walk.is_deep() || self.loop_of(span.tgid) != Some(span.pid) {
            return None;
        }
        if self.has_other_end(walk, row) || !self.is_to_the_end(walk, span) {
            return None;
        }
        let onward = self.onward(walk, span.tgid)?;
        let began = onward.sent.map_or(0, |sent| sent.saturating_sub(BEFORE));
        if i64::try_from(span.woken_ns).is_ok_and(|woken| woken < began) {
            return None;
        }
        let node = self.asks(span.pid, &onward, piece.ns());
        let node = Node { row: Some(row), count: 1, worst: node.ns, ..node };
        Some(self.with_answer(walk, node, &onward, piece))
    }

    /// Of a process of which nobody knows which thread was asked.
    pub fn by_onward(&self, walk: &mut Walk, process: u32, from: u64, to: u64) -> Option<Behind> {
        if !walk.is_new(process) || walk.is_deep() {
            return None;
        }
        walk.here_only = true;
        walk.enter(process, (from, to));
        let node = self.onward(walk, process).map(|onward| {
            // What it did before is not known.
            let sent = onward.sent.map_or(0, |sent| u64::try_from(sent).unwrap_or(0)).clamp(from, to);
            let from_then = if sent.saturating_sub(from) < BEFORE as u64 { from } else { sent };
            let node = self.asks(process, &onward, to.saturating_sub(from_then));
            let node = self.with_answer(walk, node, &onward, Piece { from: from_then, to, what: What::Hole });
            let before =
                self.unexplained(self.who_is(process, None), WaitTarget::ThreadNotKnown, from_then - from);
            if before.ns == 0 { [node].into() } else { [node, before].into() }
        });
        walk.leave();
        Some((node?, 0))
    }

    fn asks(&self, pid: u32, onward: &Onward<'r>, ns: u64) -> Node {
        let act = if onward.request.connecting { PeerAct::Accept } else { PeerAct::Send };
        let what = Detail::Peer { address: onward.request.peer.clone(), act };
        let who = self.who_is(pid, None);
        let key = Key { sort: Sort::Wait, reason: Reason::Socket, who: who.key, what: self.details.id(what) };
        Node { shown: who.shown, ..Node::leaf(key, pid, ns) }
    }

    fn with_answer(&self, walk: &mut Walk, node: Node, onward: &Onward<'r>, piece: Piece) -> Node {
        let Some(process) = onward.process else { return node };
        let (from, to) = (piece.from, piece.to);
        walk.asks(onward.sent);
        walk.whole = Some((from, self.window));
        let (parts, notes) = match onward.thread {
            Some(thread) => self.follow(walk, thread, from, to, None),
            None => self.by_process(walk, process, from, to),
        };
        let notes = node.notes | notes;
        Node { notes, ..node }.of(parts)
    }

    /// Which of its threads is to answer is not known.
    pub fn by_process(&self, walk: &mut Walk, process: u32, from: u64, to: u64) -> Behind {
        self.by_onward(walk, process, from, to).unwrap_or_else(|| {
            walk.asks(None);
            let who = self.who_is(process, None);
            ([self.unexplained(who, WaitTarget::ThreadNotKnown, to.saturating_sub(from))].into(), 0)
        })
    }

    /// Whether nothing has answered whoever waits for this one: he still waits when the window ends. At the top a loop that somebody has
    /// given something to do was not waiting for its own answer alone.
    fn is_to_the_end(&self, walk: &Walk, span: &Span) -> bool {
        match walk.stretch() {
            Some((_, to)) => to >= self.window,
            None => task_behind(span).is_none(),
        }
    }

    /// The thread of a process that waits for events, if it is one; of several the first that it had.
    fn loop_of(&self, process: u32) -> Option<u32> {
        let looks = |pid: &u32| match self.last_of(*pid) {
            Some(What::Wait(row)) => self.spans.get(row).is_some_and(is_for_events),
            _ => false,
        };
        let all: Vec<u32> = self.threads_of(process).filter(looks).take(DEEPEST).collect();
        match all[..] {
            [one] => Some(one),
            _ => all.into_iter().find(|pid| *pid == process),
        }
    }
}

fn is_for_events(span: &Span) -> bool {
    span.syscall.is_some_and(|call| FOR_EVENTS.contains(&call))
}

/// The one to which all lead, or that was asked clearly before the next.
fn one_way<'r>(all: &[&Onward<'r>]) -> Option<Onward<'r>> {
    let first = *all.iter().min_by_key(|onward| onward.sent)?;
    let mut others = all.iter().filter(|other| other.to() != first.to());
    let is_before = |other: &&&Onward<'r>| {
        let later = first.sent.zip(other.sent);
        later.is_some_and(|(first, other)| first.saturating_add(BEFORE) < other)
    };
    others.all(|other| is_before(&other)).then_some(*first)
}
