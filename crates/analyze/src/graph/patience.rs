//! Waits that look at their watch: a timed wait which its timer ended, and which began again at once for the same thing,
//! is part of a longer one; so is one that ended for nothing. Who ended that at last is who was waited for.

use std::collections::BTreeSet;

use whyslow_model::syscall::FUTEX;
use whyslow_model::timeline::{Span, Waker};

use super::facts::Graph;
use crate::hashing::Table;
use crate::wait_reasons::{
    READS, asks_each_time, comes_each_time, ended_by_timer, is_answer, is_request, is_woken_for_nothing,
    socket, task_behind,
};

/// poll, ppoll: so many descriptors.
const POLL: [u32; 2] = [7, 271];
/// select, pselect6: the highest descriptor. epoll_wait, epoll_pwait, epoll_pwait2: the set.
const BY_FIRST: [u32; 5] = [23, 270, 232, 281, 441];
/// Between two looks a thread does little: counts what is done, draws its progress.
const PAUSE: u64 = 5_000_000;
/// Looks that are gone through; a thread that looks more often than it is served waits for nobody in particular.
const LOOKS: usize = 256;

/// When each task ended waits of others, in order.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    all: Table<u32, Vec<u64>>,
    /// When each answered somebody.
    answered: Table<u32, Vec<u64>>,
    /// Whom each asked for something.
    asked: Table<u32, Vec<(u64, u32)>>,
    /// By who ended the wait, and of which process.
    of_process: Table<(u32, u32), Vec<u64>>,
    /// Waits of a thread that a process has answered.
    answers: Table<(u32, u32), Answers>,
}

/// Answers: before how many it was seen that they were asked for, at which sockets they came, and all.
#[derive(Debug, Default)]
struct Answers {
    asked: u64,
    sockets: BTreeSet<u64>,
    all: u64,
}

impl Wakes {
    pub fn of(spans: &[Span]) -> Self {
        let mut wakes = Wakes::default();
        for span in spans {
            let Some(waker) = task_behind(span) else { continue };
            wakes.all.entry(waker.pid).or_default().push(span.woken_ns);
            wakes.of_process.entry((waker.pid, span.tgid)).or_default().push(span.woken_ns);
            if is_answer(span, waker) {
                wakes.answered.entry(waker.pid).or_default().push(span.woken_ns);
                let answers = wakes.answers.entry((span.pid, waker.tgid)).or_default();
                answers.asked = answers.asked.saturating_add(span.asked.into());
                answers.sockets.extend(socket(span));
                answers.all = answers.all.saturating_add(1);
            }
            if is_request(span, waker) {
                wakes.asked.entry(waker.pid).or_default().push((span.woken_ns, span.pid));
            }
        }
        wakes.all.values_mut().for_each(|all| all.sort_unstable());
        wakes.answered.values_mut().for_each(|all| all.sort_unstable());
        wakes.asked.values_mut().for_each(|all| all.sort_unstable());
        wakes.of_process.values_mut().for_each(|all| all.sort_unstable());
        wakes
    }

    /// Whether a task did so in `from..=to`.
    fn any(&self, pid: u32, from: u64, to: u64) -> bool {
        self.all.get(&pid).is_some_and(|all| any(all, from, to))
    }

    /// Whether a thread that process `tgid` answers has asked it for that, each time.
    pub fn asks_each_time(&self, pid: u32, tgid: u32) -> bool {
        let asks = |answers: &Answers| {
            asks_each_time(answers.asked, answers.all)
                || comes_each_time(answers.sockets.len() as u64, answers.all)
        };
        self.answers.get(&(pid, tgid)).is_some_and(asks)
    }

    /// Whether it answered somebody in `from..=to`.
    pub fn has_answered(&self, pid: u32, from: u64, to: u64) -> bool {
        self.answered.get(&pid).is_some_and(|all| any(all, from, to))
    }

    /// Whether it ended a wait of a thread of process `tgid` in `from..=to`.
    pub fn any_of(&self, pid: u32, from: u64, to: u64, tgid: u32) -> bool {
        self.of_process.get(&(pid, tgid)).is_some_and(|all| any(all, from, to))
    }

    /// Whom a task asked last in `from..=to`.
    pub fn asked(&self, pid: u32, from: u64, to: u64) -> Option<u32> {
        self.asked_of(pid, from, to, |_| true).map(|(_, asked)| asked)
    }

    /// When it asked one of those of whom `is` is true, and whom, last.
    pub fn asked_of(&self, pid: u32, from: u64, to: u64, is: impl Fn(u32) -> bool) -> Option<(u64, u32)> {
        let all = self.asked.get(&pid)?;
        let before = all.get(..all.partition_point(|(at, _)| *at <= to))?;
        before.iter().rev().take_while(|(at, _)| *at >= from).find(|(_, asked)| is(*asked)).copied()
    }
}

fn any(sorted: &[u64], from: u64, to: u64) -> bool {
    sorted.get(sorted.partition_point(|at| *at < from)).is_some_and(|at| *at <= to)
}

impl Graph<'_> {
    /// The task that ended the longer wait of which this row is a part. A task that is killed in it has waited in vain, and not for its killer.
    pub fn waited_for_at_last(&self, row: usize) -> Option<&Waker> {
        let end = self.end_of_looks(row).and_then(|row| self.spans.get(row))?;
        task_behind(end).filter(|waker| !self.dies_by(end, waker))
    }

    /// From the first look for events to the end; of one that did not look again, its own time. `None`: it is no such wait.
    pub fn longer_wait(&self, row: usize) -> Option<(u64, u64)> {
        let span = self.spans.get(row).filter(|span| is_look(span) && looks_for(span).is_some())?;
        let last = self.end_of_looks(row).or_else(|| self.lasting_look(row));
        let end = last.and_then(|row| self.spans.get(row)).unwrap_or(span);
        Some((self.first_look(span), end.woken_ns))
    }

    /// When the first of the looks began of which this row is one.
    pub fn first_look(&self, span: &Span) -> u64 {
        self.looks_before(span).last().unwrap_or(span).at_ns
    }

    /// Whether something that it had sent lay unread as one of the looks began.
    pub fn had_asked(&self, span: &Span) -> bool {
        span.asked || self.looks_before(span).any(|look| look.asked)
    }

    /// The looks before this one, the last first.
    fn looks_before<'g>(&'g self, span: &'g Span) -> impl Iterator<Item = &'g Span> {
        let line = self.lines.get(&span.pid).filter(|_| looks_for(span).is_some());
        let before = line.into_iter().flat_map(|line| line.rows_before(span.at_ns)).take(LOOKS);
        let mut later = span;
        before.filter_map(|row| self.spans.get(row)).take_while(move |look| {
            let has_acted = || self.wakes.any(span.pid, look.woken_ns, later.at_ns);
            let is_one = self.has_found_nothing(look)
                && looks_for(look) == looks_for(span)
                && pause(look.to_ns, later) <= PAUSE
                && !has_acted();
            later = look;
            is_one
        })
    }

    fn has_found_nothing(&self, span: &Span) -> bool {
        ended_by_timer(span, &self.stacks) || is_woken_for_nothing(span)
    }

    /// Of looks at a lock what they are for has told it already.
    fn is_timed_out(&self, span: &Span) -> bool {
        !is_look(span) || self.has_found_nothing(span)
    }

    /// The row that ended a longer wait. A thread that has ended somebody's wait between two looks has done what it slept for.
    pub fn end_of_looks(&self, row: usize) -> Option<usize> {
        let ends = |next: &Span| task_behind(next).is_some() && !is_woken_for_nothing(next);
        self.next_look(row, ends, |_| false)
    }

    /// Its end was not seen, and it lasted as long as the look before it, which its timer ended.
    fn is_like_the_last(&self, span: &Span) -> bool {
        let before = self.lines.get(&span.pid).filter(|_| is_unseen(span));
        let row = before.and_then(|line| line.rows_before(span.at_ns).next());
        let is_it = |last: &Span| {
            looks_for(last) == looks_for(span) && self.is_timed_out(last) && is_as_long(span, last)
        };
        row.and_then(|row| self.spans.get(row)).is_some_and(is_it)
    }

    /// The row that ended a longer wait, if it is not known by whom: it was shorter than those that their timer ended.
    pub fn unseen_end_of_looks(&self, row: usize) -> Option<usize> {
        let span = self.spans.get(row).filter(|span| is_look(span))?;
        self.next_look(row, |next| is_unseen(next) && !is_as_long(next, span), |_| false)
    }

    /// The row of a longer wait that lasts when the window ends, where it is known who has the other end.
    pub fn lasting_look(&self, row: usize) -> Option<usize> {
        let lasting = self.lasting_of(row)?;
        if lasting == row { Some(row) } else { self.next_look(row, |next| next.open, is_unseen) }
    }

    fn lasting_of(&self, row: usize) -> Option<usize> {
        self.lasting.get(&self.spans.get(row)?.pid).copied()
    }

    /// The first look of the same longer wait that is one; `None`: another ended it. Some may be passed over.
    fn next_look(
        &self,
        row: usize,
        is_it: impl Fn(&Span) -> bool,
        passes: impl Fn(&Span) -> bool,
    ) -> Option<usize> {
        // A blocking read goes on only where it has found nothing.
        let passes = |span: &Span| !is_read(span) && passes(span);
        let may_end = |span: &Span| {
            self.is_timed_out(span) || passes(span) || !is_read(span) && self.is_like_the_last(span)
        };
        let can_look = |span: &&Span| looks_for(span).is_some() && may_end(span);
        let span = self.spans.get(row).filter(can_look)?;
        let (mut ended, mut ran) = (span.woken_ns, span.to_ns);
        // One that began as the window ended is no part of the timeline.
        let is_beyond = |row: &usize| self.spans.get(*row).is_some_and(|span| span.at_ns >= self.window);
        let beyond = self.lasting_of(row).filter(is_beyond);
        for row in self.lines.get(&span.pid)?.waits_after(span.woken_ns).take(LOOKS).chain(beyond) {
            let next = self.spans.get(row)?;
            let has_acted = || self.wakes.any(span.pid, ended, next.at_ns);
            if pause(ran, next) > PAUSE || has_acted() {
                return None;
            }
            if passes(next) {
                (ended, ran) = (next.woken_ns, next.to_ns);
                continue;
            }
            if looks_for(next) != looks_for(span) {
                continue;
            }
            if is_it(next) {
                return Some(row);
            }
            if !(self.is_timed_out(next) || !is_read(next) && is_unseen(next) && is_as_long(next, span)) {
                return None;
            }
            (ended, ran) = (next.woken_ns, next.to_ns);
        }
        None
    }
}

/// How long a thread that had a CPU again at `ran` was busy before it looked once more: on a full host it may have had to wait for the CPU
/// meanwhile.
fn pause(ran: u64, next: &Span) -> u64 {
    next.at_ns.saturating_sub(ran).saturating_sub(next.mixed.runnable_ns)
}

/// Its end was not seen, since some hosts hide tasks from tracing: who ended it is not known, nor sometimes its call.
fn is_unseen(span: &Span) -> bool {
    !span.open && span.waker.is_none()
}

/// It lasted for its timeout, or, where that is not recorded, as long as one that its timer ended and of which it is a repetition: so did
/// its own, most likely.
fn is_as_long(span: &Span, timed_out: &Span) -> bool {
    let lasted = |span: &Span| span.woken_ns.saturating_sub(span.at_ns);
    let about = |ns: u64| lasted(span).abs_diff(ns) <= ns / 16;
    match timeout(span) {
        Some(Some(ns)) => lasted(span) >= ns || about(ns),
        Some(None) => false,
        None => about(lasted(timed_out)),
    }
}

/// The timeout of poll and of epoll_wait, in ms; `Some(None)`: it has none. Others have a structure of it, which is not recorded.
fn timeout(span: &Span) -> Option<Option<u64>> {
    let ms = match span.syscall? {
        7 => span.args[2],
        232 | 281 => span.args[3],
        _ => return None,
    };
    Some(u64::try_from(ms as u32 as i32).ok().map(|ms| ms.saturating_mul(1_000_000)))
}

/// It looks for events, and not at a lock: it is called as what ended it at last, since it is no sleep.
pub(super) fn is_look(span: &Span) -> bool {
    span.syscall != Some(FUTEX)
}

fn is_read(span: &Span) -> bool {
    span.syscall.is_some_and(|call| READS.contains(&call))
}

/// For what, as far as arguments tell it: their timeouts may differ.
fn looks_for(span: &Span) -> Option<(u32, u64)> {
    let call = span.syscall?;
    let [first, second, ..] = span.args;
    match call {
        FUTEX => Some((call, first)).filter(|_| first != 0),
        _ if POLL.contains(&call) => Some((call, second)).filter(|_| second != 0),
        _ if BY_FIRST.contains(&call) => Some((call, first)).filter(|_| first != 0),
        _ if READS.contains(&call) => Some((call, first)),
        _ => None,
    }
}
