//! Who is to answer, of those who have the other end of a connection: which process, and which of its threads.

use std::rc::Rc;

use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::culprit::HALTED;
use super::facts::{Graph, Kind, SMALL_PART};
use super::other_ends::ASKED_BEFORE;
use super::timeline::{What, mixed};
use crate::wait_reasons::Class;

/// Of a process with more threads it is not known which one is to answer.
const MOST_THREADS: usize = 4096;
/// Waits of a thread that are looked at for one for events.
const LOOKED_AT: usize = 256;

/// A thread that waits as the window ends, for something that it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stuck {
    pid: u32,
    /// Since when.
    at: u64,
    /// On what, and which of those.
    on: (Kind, Option<(Class, u64)>),
}

impl Graph<'_> {
    /// Which of several processes: a parent has what it made open, too, and what was made may have inherited what it does not use. Who waits may
    /// be one of them. `since`: when that wait began; `is_queued`: its connection is in the queue of a listening socket.
    pub fn service(&self, own: u32, processes: &[u32], since: u64, is_queued: bool) -> Option<u32> {
        let is_seen = |process: &u32| self.threads_of(*process).any(|pid| self.lines.contains_key(&pid));
        let all: Vec<u32> =
            processes.iter().copied().filter(|process| *process != own && is_seen(process)).collect();
        let parent = |process: u32| self.tasks.get(&process).map(|task| task.ppid);
        let is_parent = |process: u32| all.iter().any(|other| parent(*other) == Some(process));
        let is_child = |process: u32| parent(process).is_some_and(|parent| all.contains(&parent));
        let is_at_work = |process: u32| {
            let Some(last) = self.one_thread(process).and_then(|thread| self.last_of(thread)) else {
                return true;
            };
            let What::Wait(row) = last else { return true };
            let kind = self.kind(row);
            let for_child = kind.reason == Reason::Child && is_parent(process);
            let sleeps = kind.class == Class::Timer && is_child(process);
            self.keeps(row) && !for_child && !sleeps
        };
        let only = |mut of: Vec<u32>| if of.len() == 1 { of.pop() } else { None };
        match all.len() {
            0 | 1 => only(all),
            _ => {
                let working: Vec<u32> = all.iter().copied().filter(|process| is_at_work(*process)).collect();
                let made: Vec<u32> = all.iter().copied().filter(|process| !is_parent(*process)).collect();
                let made_at_work = || made.iter().copied().find(|process| working.contains(process));
                match working[..] {
                    [] => only(made),
                    [one] => Some(one),
                    _ => made_at_work().filter(|_| self.are_stuck_alike(&working, since, is_queued)),
                }
            }
        }
    }

    /// Each has waited since before that, for a thing that is the same for all: any of them stands for the others. In the queue of a socket that they
    /// share, what sort of thing it is says enough.
    fn are_stuck_alike(&self, processes: &[u32], since: u64, is_queued: bool) -> bool {
        let mut on = processes.iter().map(|process| {
            let thread = self.one_thread(*process)?;
            let Some(What::Wait(row)) = self.last_of(thread) else { return None };
            let span = self.spans.get(row).filter(|span| span.open && span.at_ns <= since)?;
            let (kind, by) = (self.kind(row), self.kept_by(thread));
            let is_one = by.is_some() || HALTED.contains(&kind.reason) || is_queued;
            let is_usual = span.state == State::Io || kind.class == Class::Device;
            (is_one && !is_usual).then_some((kind, by))
        });
        on.next().flatten().is_some_and(|first| on.all(|other| other == Some(first)))
    }

    /// The only thread, or one of those that are kept by one lock, or stopped, or the only one that is not in a pool that rests: of others nobody
    /// says which one serves that connection.
    pub fn one_thread(&self, process: u32) -> Option<u32> {
        let is_there = |pid: &u32| self.life(*pid).is_some_and(|(_, to)| to >= self.window);
        let all: Vec<u32> = self.threads_of(process).filter(is_there).take(MOST_THREADS + 1).collect();
        match all[..] {
            [one] => Some(one),
            _ if all.len() > MOST_THREADS => None,
            _ => {
                let mut kept = all.iter().filter_map(|pid| Some((*pid, self.kept_by(*pid)?)));
                let Some((first, by)) = kept.next() else {
                    let mut awake = all.iter().copied().filter(|pid| !self.is_in_pool(*pid));
                    return awake.next().filter(|_| awake.next().is_none());
                };
                kept.all(|(_, other)| other == by).then_some(first)
            }
        }
    }

    /// One of a pool that is full: several threads have waited for one thing since before that, which is nothing to do.
    pub fn stuck_pool(&self, process: u32, since: u64) -> Option<u32> {
        self.stuck(process, since).filter(|(_, are_many)| *are_many).map(|(thread, _)| thread)
    }

    /// A thread that ran into its timeout at a word of its process waited in vain for what another one was to do: for one that has been stuck since
    /// before, where there is no other.
    pub fn in_vain_for(&self, row: usize) -> Option<u32> {
        let span = self.spans.get(row)?;
        let is_timed = *self.details.of(self.kind(row).what) == Detail::Target(WaitTarget::FutexTimeout);
        let (stuck, _) = self.stuck(span.tgid, span.at_ns).filter(|_| is_timed)?;
        (stuck != span.pid).then_some(stuck)
    }

    /// Threads of a process that have waited for one thing since then, which is nothing to do, if all that are stuck wait for that: the first, and
    /// whether there are more.
    fn stuck(&self, process: u32, since: u64) -> Option<(u32, bool)> {
        let all = self.stuck.borrow().get(&process).cloned();
        let all = all.unwrap_or_else(|| {
            let all: Rc<[Stuck]> = self.all_stuck(process).into();
            self.stuck.borrow_mut().insert(process, all.clone());
            all
        });
        let mut all = all.iter().filter(|stuck| stuck.at <= since);
        let first = all.next()?;
        let (mut are_many, mut are_alike) = (false, true);
        for other in all {
            are_many = true;
            are_alike &= other.on == first.on;
        }
        are_alike.then_some((first.pid, are_many))
    }

    /// Those that wait so as the window ends; each process is looked at once.
    fn all_stuck(&self, process: u32) -> Vec<Stuck> {
        let stuck = |pid: u32| {
            let Some(What::Wait(row)) = self.last_of(pid) else { return None };
            let (span, kind) = (self.spans.get(row).filter(|span| span.open)?, self.kind(row));
            // A thread that waits for others of its program, or for its children, keeps house.
            let keeps_house = matches!(kind.reason, Reason::Child | Reason::Vfork | Reason::Thread);
            let is_stuck = kind.class != Class::Timer && !keeps_house && self.keeps(row);
            is_stuck.then(|| Stuck { pid, at: span.at_ns, on: (kind, self.kept_by(pid)) })
        };
        self.threads_of(process).take(MOST_THREADS).filter_map(stuck).collect()
    }

    /// It was chosen because the others rest, and may have other work than to serve: it is not seen to wait for events, nor the process's first
    /// thread.
    pub fn is_guess(&self, process: u32, pid: u32) -> bool {
        process != pid
            && self.threads_of(process).nth(1).is_some()
            && self.kept_by(pid).is_none()
            && !self.serves(pid)
    }

    fn serves(&self, pid: u32) -> bool {
        let line = self.lines.get(&pid);
        let mut rows = line.into_iter().flat_map(|line| line.rows_before(self.window)).take(LOOKED_AT);
        // A client waits so for its own service.
        let is_served = |row: usize| {
            let polled = self.spans.get(row).and_then(|span| span.polled.as_ref());
            polled.is_none_or(|polled| polled.serves)
        };
        let is_loop =
            |row: usize| matches!(self.kind(row).reason, Reason::Epoll | Reason::Poll) && is_served(row);
        rows.any(is_loop)
    }

    pub fn is_own_sleep(&self, row: usize) -> bool {
        *self.details.of(self.kind(row).what) == Detail::Target(WaitTarget::OwnSleep)
    }

    /// It waits at a word of its own program, that nobody is known to have, or sleeps, nearly all the time; or for events, and the process has had
    /// another thread before it.
    fn is_in_pool(&self, pid: u32) -> bool {
        let is_first = self.tasks.get(&pid).is_some_and(|task| task.tgid == pid);
        let rests = |row: usize| {
            let span = self.spans.get(row).filter(|span| span.holder == 0 && span.lock.is_none());
            span.is_some_and(|span| match self.kind(row).reason {
                Reason::Futex => true,
                Reason::Epoll | Reason::Poll => !is_first && span.other_end.is_none(),
                _ => !is_first && self.is_own_sleep(row),
            })
        };
        let (mut all, mut awake) = (0_u64, 0_u64);
        for piece in self.lines.get(&pid).into_iter().flat_map(|line| line.clip(0, self.window)) {
            all = all.saturating_add(piece.ns());
            awake = awake.saturating_add(match piece.what {
                What::Wait(row) if rests(row) => 0,
                What::Mixed(row) => self.spans.get(row).map_or(0, |span| {
                    let mix = mixed(span, piece.ns());
                    mix.total_ns().saturating_sub(mix.sleep_ns)
                }),
                _ => piece.ns(),
            });
        }
        awake <= all / SMALL_PART
    }

    /// Of several threads: the one that waited at this connection, and no other, until the client's request woke it. Of a loop (epoll) nobody
    /// says to whom it hands what comes.
    pub fn asked_thread(&self, client: u32, process: u32, begin: u64) -> Option<u32> {
        let is_its = |pid: u32| self.tasks.get(&pid).is_some_and(|task| task.tgid == process);
        let from = begin.saturating_sub(ASKED_BEFORE);
        let (at, thread) = self.wakes.asked_of(client, from, self.window, is_its)?;
        let What::Wait(row) = self.lines.get(&thread)?.clip(at.saturating_sub(1), at).last()?.what else {
            return None;
        };
        let waited_here = self.kind(row).reason != Reason::Epoll;
        Some(thread).filter(|thread| waited_here && !self.is_at_rest(*thread))
    }

    /// It waits for the next request, or for nobody. A condition that it waits for is of that which it was asked for.
    fn is_at_rest(&self, pid: u32) -> bool {
        let Some(What::Wait(row)) = self.last_of(pid) else { return false };
        let kind = self.kind(row);
        kind.reason != Reason::Futex && matches!(kind.class, Class::Idle | Class::Peer | Class::Timer)
    }

    /// The lock or limit that keeps a thread as the window ends.
    pub fn kept_by(&self, pid: u32) -> Option<(Class, u64)> {
        let Some(What::Wait(row)) = self.last_of(pid) else { return None };
        let span = self.spans.get(row)?;
        let lock = span.lock.as_ref().map(|lock| lock.address);
        match self.kind(row).class {
            Class::Lock => {
                let by = lock.or_else(|| Some(u64::from(span.holder)).filter(|holder| *holder != 0))?;
                Some((Class::Lock, by))
            }
            Class::Limit => Some((Class::Limit, 0)),
            _ => None,
        }
    }

    /// What a thread does as the window ends.
    pub fn last_of(&self, pid: u32) -> Option<What> {
        let line = self.lines.get(&pid)?;
        line.clip(self.window.saturating_sub(1), self.window).last().map(|piece| piece.what)
    }
}
