//! Waits for a lock of user space, or for a thread's end, that nobody's letting go ended: a timeout, a signal, the window.
//!
//! Who lets a lock go wakes the next in its queue, and is the waker. Else only the lock itself tells who has it: glibc's mutexes
//! by a word beside their own, locks on files by the kernel's list (`Span::holder`); a joined thread by its number.

use whyslow_model::timeline::{Context, Span, Waker};
use whyslow_model::wait::{Detail, Thing};

use super::explain::Walk;
use super::facts::{Behind, Graph, Kind};
use super::node::note;
use crate::wait_reasons::{Class, joined_thread};

impl Graph<'_> {
    /// What the owner did meanwhile. `None`: who ended the wait is who was waited for, or the owner is not known.
    pub fn by_owner(&self, walk: &mut Walk, span: &Span, kind: Kind, from: u64, to: u64) -> Option<Behind> {
        if self.was_let_go(span) {
            return None;
        }
        let owner = self.owner(span, kind)?;
        let (parts, notes) = self.follow(walk, owner, from, to, None);
        Some((parts, notes | if span.open { 0 } else { note::TIMED }))
    }

    fn owner(&self, span: &Span, kind: Kind) -> Option<u32> {
        let owner = match kind.class {
            Class::Held => Some(span.holder),
            Class::Needed if *self.details.of(kind.what) == Detail::Thing(Thing::ThreadEnd) => {
                joined_thread(span, &self.stacks)
            }
            _ => None,
        };
        owner.filter(|pid| *pid != 0 && *pid != span.pid && self.lines.contains_key(pid))
    }

    /// Ended by a task that did not send a signal.
    fn was_let_go(&self, span: &Span) -> bool {
        let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task && waker.pid != 0);
        waker.is_some_and(|waker| !self.kills(waker))
    }

    /// It ended the wait by a signal: with a call of its own (kernel/signal.c), or since its process ends (kernel/exit.c).
    pub fn kills(&self, waker: &Waker) -> bool {
        const KILLS: [&str; 5] =
            ["kill_pid_info", "kill_something_info", "do_send_specific", "do_tkill", "zap_other_threads"];
        let stack = self.stacks.kernel(waker.stack);
        let has = |name: &str| stack.iter().any(|frame| frame.starts_with(name));
        // do_group_exit() kills the other threads before it ends itself; what do_exit() wakes is woken by an end.
        KILLS.iter().any(|kill| has(kill)) || has("do_group_exit") && !has("do_exit")
    }
}
