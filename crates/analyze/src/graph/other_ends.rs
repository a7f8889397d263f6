//! Clients' waits that last when the window ends: nobody has ended them, so that only who has the other end of the connection can tell
//! what is waited for. Who that is is accused on a whole host only if it is sure that it was asked, and has had something else to do all the time.

use whyslow_model::timeline::{Asked, Span, State};
use whyslow_model::wait::{Detail, PeerAct};

use super::facts::{Behind, Graph, SMALL_PART};
use super::timeline::{What, mixed};
use super::walk::{DEEPEST, Walk};
use crate::hashing::Table;
use crate::wait_reasons::Class;

/// A client waits for the answer as soon as it has asked; on a busy host it may lose its CPU in between.
pub(super) const ASKED_BEFORE: u64 = 20_000_000;

/// Who is at the other end of a wait that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherEnd {
    process: u32,
    /// `None`: which of several is not known.
    thread: Option<u32>,
    /// It has something to do, or is kept from it.
    kept: bool,
    /// As of `Onward`.
    doubtful: bool,
    asked: Asked,
    /// It was asked long after the wait began: by another thread, and for the smaller part of it.
    late: bool,
    /// When it was asked, since the window began; `None`: not known.
    sent: Option<i64>,
}

impl OtherEnd {
    /// By a client that has asked; where that is not known, whose service has something else to do. To wait for news that nobody has asked for is a
    /// wait for something to do.
    fn is_awaited(&self) -> bool {
        self.has_asked() || (self.asked == Asked::Unknown && self.kept)
    }

    fn has_asked(&self) -> bool {
        self.asked >= Asked::Sent
    }
}

/// By thread.
pub(super) fn lasting(spans: &[Span]) -> Table<u32, usize> {
    // In other sleeps it waits for something of the kernel's on the way: a lock, memory.
    let is_for_it = |span: &Span| span.state == State::Sleep && span.lock.is_none();
    let all = spans.iter().enumerate();
    let rows = all.filter(|(_, span)| span.open && span.other_end.is_some() && is_for_it(span));
    rows.map(|(row, span)| (span.pid, row)).collect()
}

impl Graph<'_> {
    /// Whether a wait that lasts is a client's, for something that its service owes it.
    pub fn awaits_other_end(&self, row: usize) -> bool {
        self.other_end(row).is_some_and(OtherEnd::is_awaited)
    }

    /// Whether it is that of a client who has asked, and the service has something else to do: a loss on a whole host, too. A service that waits
    /// for something to tell, or sleeps and looks until it has, has been asked for news, or was told that its last ones have come.
    pub fn is_unanswered(&self, row: usize) -> bool {
        let is_owed =
            |end: &OtherEnd| end.asked == Asked::Unread || (end.asked == Asked::Sent && !end.doubtful);
        // Who reads what others make at its own pace keeps nobody; who is kept from it does.
        let is_kept = |end: &OtherEnd| {
            !self.is_to_be_taken(row) || end.thread.is_some_and(|pid| self.kept_by(pid).is_some())
        };
        self.other_end(row).is_some_and(|end| end.kept && !end.late && is_owed(end) && is_kept(end))
    }

    /// It waits until somebody takes what it sends.
    pub fn is_to_be_taken(&self, row: usize) -> bool {
        let kind = self.kind(row);
        let takes = |act: PeerAct| matches!(act, PeerAct::Take | PeerAct::TakeAtClose);
        let of_peer = matches!(*self.details.of(kind.what), Detail::Peer { act, .. } if takes(act));
        kind.class == Class::Dependency || of_peer
    }

    /// Whether a wait that lasts has something behind it. A service that waits for the next request of who waits for it has nothing to do.
    pub fn has_other_end(&self, walk: &Walk, row: usize) -> bool {
        let goes_on = |end: &OtherEnd| match end.thread.filter(|_| end.is_awaited()) {
            Some(thread) => walk.is_new(thread),
            None => end.is_awaited(),
        };
        self.other_end(row).is_some_and(goes_on)
    }

    /// Whether a wait that lasts is at a client's end of a connection: nobody gives work there, whether it has asked or not.
    pub fn is_clients_end(&self, row: usize) -> bool {
        let span = self.lasting_look(row).and_then(|row| self.spans.get(row));
        span.is_some_and(|span| span.other_end.is_some())
    }

    /// What who is there did meanwhile.
    pub fn by_other_end(&self, walk: &mut Walk, row: usize, from: u64, to: u64) -> Option<Behind> {
        let end = self.other_end(row).filter(|_| self.has_other_end(walk, row))?;
        walk.asks(end.sent);
        Some(match end.thread {
            Some(thread) => self.follow(walk, thread, from, to, None),
            None => self.by_process(walk, end.process, from, to),
        })
    }

    /// The look that lasts of a client's longer wait: what it is for is told by that, and not by the watch that it looks at.
    pub fn lasting_look_of_client(&self, row: usize) -> Option<usize> {
        let lasting = self.lasting_look(row).filter(|lasting| *lasting != row)?;
        let end = self.spans.get(lasting)?.other_end.as_deref()?;
        (end.asked != Asked::No).then_some(lasting)
    }

    /// The process that owes the other end of a socket something: an answer, or to read what cannot be sent. What a pipe joins was started as one.
    pub fn asked_at_other_end(&self, row: usize) -> Option<u32> {
        let is_pipe = self.spans.get(row)?.target.as_ref().is_some_and(|target| target.kind == "pipe");
        self.other_end(row).filter(|end| end.has_asked() && !is_pipe).map(|end| end.process)
    }

    fn other_end(&self, row: usize) -> Option<&OtherEnd> {
        let lasting = self.lasting_look(row)?;
        self.other_ends.get_or_init(|| self.all_other_ends()).get(&lasting)
    }

    /// By row; each process is looked at once.
    fn all_other_ends(&self) -> Table<usize, OtherEnd> {
        let mut known: Table<u32, Option<u32>> = Table::default();
        let mut of_row = |row: usize| {
            let span = self.spans.get(row)?;
            let end = span.other_end.as_deref()?;
            let begin = self.longer_wait(row).map_or(span.at_ns, |(begin, _)| begin);
            let process = self.service(span.tgid, &end.processes, begin, end.queued)?;
            let mut only = || *known.entry(process).or_insert_with(|| self.one_thread(process));
            let asked = self.asked_thread(span.pid, process, begin);
            let asked = asked.or_else(|| self.stuck_pool(process, begin));
            let thread = asked.or_else(&mut only);
            let is_guess = asked.is_none() && thread.is_some_and(|thread| self.is_guess(process, thread));
            let sent = end.sent_before_ns.map(|before| self.sent_at(before));
            // What it has not read yet it cannot have been told: others came before.
            let unread = end.asked == Asked::Unread && (end.queued || sent.is_some());
            let onward = self.keeps_by_asking(process, sent);
            let is_kept = thread.is_some_and(|thread| self.is_kept(thread, begin, unread));
            let kept = is_kept || onward.is_some();
            let doubtful = match onward {
                Some(onward) if !is_kept => onward.doubtful,
                _ => is_guess || thread.is_some_and(|thread| self.sleeps(thread)),
            };
            let late = sent.is_some_and(|sent| sent > begin.saturating_add(ASKED_BEFORE) as i64);
            // What lay unread at a unix socket has been read since. A service that does not look at its client has read what it asked for.
            let is_parked = || end.watched == Some(false) && self.is_parked(process);
            let has_asked = end.asked == Asked::Unknown && (span.asked || is_parked());
            let asked = if has_asked { Asked::Sent } else { end.asked };
            Some((row, OtherEnd { process, thread, kept, doubtful, asked, late, sent }))
        };
        let mut all: Table<usize, OtherEnd> = self.lasting.values().filter_map(|row| of_row(*row)).collect();
        for _ in 0..DEEPEST {
            let kept: Vec<(usize, bool)> =
                all.iter().filter_map(|(row, end)| Some((*row, self.is_kept_by_next(end, &all)?))).collect();
            if kept.is_empty() {
                break;
            }
            for (row, doubtful) in kept {
                if let Some(end) = all.get_mut(&row) {
                    (end.kept, end.doubtful) = (true, doubtful);
                }
            }
        }
        all
    }

    /// Who is there waits for another that is kept, as he does for this one; is it doubtful?
    fn is_kept_by_next(&self, end: &OtherEnd, all: &Table<usize, OtherEnd>) -> Option<bool> {
        let thread = end.thread.filter(|_| !end.kept)?;
        let Some(What::Wait(row)) = self.last_of(thread) else { return None };
        let next = all.get(&row).filter(|next| next.kept && next.is_awaited())?;
        let asked = end.sent.map_or(0, |sent| u64::try_from(sent).unwrap_or(0));
        let (begin, _) = self.longer_wait(row).or_else(|| Some((self.spans.get(row)?.at_ns, 0)))?;
        let idle = begin.saturating_sub(asked);
        (idle <= self.window.saturating_sub(asked) / SMALL_PART).then_some(next.doubtful)
    }

    /// It had something to do since then, or was kept from it, all the time, and has answered nobody: a loop that serves others now and then
    /// may be told to wait for something to tell.
    pub fn is_kept(&self, pid: u32, since: u64, unread: bool) -> bool {
        let Some(line) = self.lines.get(&pid) else { return false };
        if !unread && self.wakes.has_answered(pid, since, self.window) {
            return false;
        }
        let (mut all, mut idle) = (0_u64, 0_u64);
        for piece in line.clip(since, self.window) {
            all = all.saturating_add(piece.ns());
            idle = idle.saturating_add(match piece.what {
                What::Wait(row) if self.keeps(row) => 0,
                What::Ready(_) => 0,
                What::Mixed(row) => self.spans.get(row).map_or(piece.ns(), |span| {
                    let mix = mixed(span, piece.ns());
                    mix.sleep_ns.saturating_add(mix.unknown_ns)
                }),
                What::Wait(_) | What::Unborn | What::Gone | What::Hole => piece.ns(),
            });
        }
        all > 0 && idle <= all / SMALL_PART
    }

    /// Of its own accord, until there is something to tell. Who sleeps all the time looks at nothing.
    pub fn sleeps(&self, pid: u32) -> bool {
        let Some(What::Wait(row)) = self.last_of(pid) else { return false };
        let began = self.spans.get(row).map_or(0, |span| span.at_ns);
        self.kind(row).class == Class::Timer && began > self.window / SMALL_PART
    }

    /// Pools wait for jobs as others wait for a lock, at a word of their own: it must be known that there is a lock.
    pub fn keeps(&self, row: usize) -> bool {
        let Some(span) = self.spans.get(row) else { return false };
        let disk = matches!(span.state, State::Io | State::Blocked);
        let kind = self.kind(row);
        match kind.class {
            Class::Idle | Class::Peer => {
                // It has asked somebody itself, or nobody takes what it sends.
                let asks = span.other_end.as_deref().is_some_and(|end| end.asked >= Asked::Sent);
                let is_read = |act: &PeerAct| matches!(act, PeerAct::Send);
                asks || matches!(&*self.details.of(kind.what), Detail::Peer { act, .. } if !is_read(act))
            }
            // Who looks at a watch in a poll, or at a condition, has nothing to do.
            Class::Timer => self.is_own_sleep(row),
            Class::Lock => disk || span.lock.is_some() || span.holder != 0,
            Class::Dependency | Class::Device | Class::Limit | Class::Cpu => true,
            Class::Unknown => disk,
        }
    }
}
