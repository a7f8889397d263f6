//! Waits for a lock of user space, or for a thread's end, that nobody's letting go ended: a timeout, a signal, the window.
//!
//! Who lets a lock go wakes the next in its queue, and is the waker. Else only the lock itself tells who has it: glibc's mutexes
//! by a word beside their own, locks on files by the kernel's list (`Span::holder`); a joined thread by its number.

use whyslow_model::syscall::FUTEX;
use whyslow_model::timeline::{Context, Span, Waker};
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::facts::{Behind, Graph, Kind};
use super::node::note;
use super::walk::Walk;
use crate::hashing::Table;
use crate::wait_reasons::{Class, joined_thread};

/// Threads of a process that are asked who killed them.
const MOST_THREADS: usize = 256;

impl Graph<'_> {
    /// What the owner did meanwhile. `None`: who ended the wait is who was waited for, or the owner is not known.
    pub fn by_owner(&self, walk: &mut Walk, span: &Span, kind: Kind, from: u64, to: u64) -> Option<Behind> {
        if self.was_let_go(span) {
            return None;
        }
        let owner = self.owner(span, kind).filter(|_| !self.changed_hands(span))?;
        let timed = if span.open { 0 } else { note::TIMED };
        if kind.reason == Reason::FileLock && !self.is_one_thread(owner) {
            let who = self.who_is(owner, None);
            let ns = to.saturating_sub(from);
            return Some(([self.unexplained(who, WaitTarget::ThreadNotKnown, ns)].into(), timed));
        }
        let (parts, notes) = self.follow(walk, owner, from, to, None);
        Some((parts, notes | timed))
    }

    /// A process has a lock on a file: of several threads nobody says which one took it, unless all are kept alike.
    fn is_one_thread(&self, process: u32) -> bool {
        self.threads_of(process).filter(|pid| self.lines.contains_key(pid)).nth(1).is_none()
            || self.one_thread(process) == Some(process)
    }

    fn owner(&self, span: &Span, kind: Kind) -> Option<u32> {
        let owner = match kind.class {
            Class::Lock => Some(span.holder),
            Class::Dependency if *self.details.of(kind.what) == Detail::Target(WaitTarget::ThreadEnd) => {
                joined_thread(span, &self.stacks)
            }
            _ => None,
        };
        // A number that was given away again since is another one's.
        let was_there = |pid: &u32| self.life(*pid).is_some_and(|(born, _)| born <= span.at_ns);
        // A server in the kernel (nfsd, lockd) has it for a client elsewhere.
        let is_kernels = |pid: &u32| self.tasks.get(pid).is_some_and(|task| task.kthread);
        let is_another = |pid: &u32| *pid != 0 && *pid != span.pid && self.lines.contains_key(pid);
        owner.filter(|pid| is_another(pid) && was_there(pid) && !is_kernels(pid))
    }

    /// Another waiter for the same word was woken meanwhile: who had the lock when this wait began has let it go.
    fn changed_hands(&self, span: &Span) -> bool {
        let Some(key) = word(span) else { return false };
        let woken = self.let_go.get_or_init(|| self.words_let_go());
        let during = |all: &Vec<u64>| {
            all.get(all.partition_point(|at| *at <= span.at_ns)).is_some_and(|at| *at < span.woken_ns)
        };
        woken.get(&key).is_some_and(during)
    }

    /// When waiters for a word of user space were woken by who let it go, in order.
    fn words_let_go(&self) -> Table<(u32, u64), Vec<u64>> {
        let mut all: Table<(u32, u64), Vec<u64>> = Table::default();
        for span in self.spans.iter().filter(|span| self.was_let_go(span)) {
            if let Some(key) = word(span) {
                all.entry(key).or_default().push(span.woken_ns);
            }
        }
        all.values_mut().for_each(|all| all.sort_unstable());
        all
    }

    /// Ended by a task that did not send a signal.
    pub fn was_let_go(&self, span: &Span) -> bool {
        let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task && waker.pid != 0);
        waker.is_some_and(|waker| !self.kills(waker))
    }

    /// It ended the wait by a signal (kernel/signal.c): with a call of its own, or since its process ends. A parent that is told of its
    /// child's end has waited for that.
    pub fn kills(&self, waker: &Waker) -> bool {
        const KILLS: [&str; 6] = [
            "kill_pid_info",
            "kill_something_info",
            "do_send_specific",
            "do_tkill",
            "zap_other_threads",
            "signal_wake_up_state",
        ];
        let stack = self.stacks.kernel(waker.stack);
        let has = |name: &str| stack.iter().any(|frame| frame.starts_with(name));
        // One that is read from a descriptor (signalfd) wakes who polls that, as any event does.
        let is_event = has("do_notify_parent") || has("__wake_up");
        // do_group_exit() kills the other threads before it ends itself; what do_exit() wakes is woken by an end.
        KILLS.iter().any(|kill| has(kill)) && !is_event || has("do_group_exit") && !has("do_exit")
    }

    /// A signal of `waker` ended this wait, and then the task itself: within the time that a handler or a core dump takes.
    pub fn dies_by(&self, span: &Span, waker: &Waker) -> bool {
        const LAST_WORDS: u64 = 1_000_000_000;
        let has_ended = self.tasks.get(&span.pid).is_some_and(|task| task.ended);
        let ends_at = || self.life(span.pid).map_or(u64::MAX, |(_, to)| to);
        has_ended && ends_at().saturating_sub(span.woken_ns) <= LAST_WORDS && self.kills(waker)
    }

    /// Of a process that ended at `to`, the last thread of which was `pid`: the thread that ended it. The others are killed by it, and
    /// any of them may be the last.
    pub fn who_ended(&self, pid: u32, to: u64) -> u32 {
        let Some(process) = self.tasks.get(&pid).map(|task| task.tgid) else { return pid };
        if self.threads_of(process).nth(1).is_none() {
            return pid;
        }
        let killer_of = |thread: u32| {
            let row = self.lines.get(&thread)?.rows_before(to).next()?;
            let waker = self.spans.get(row)?.waker.as_ref()?;
            (waker.tgid == process && waker.pid != thread && self.kills(waker)).then_some(waker.pid)
        };
        let killer =
            killer_of(pid).or_else(|| self.threads_of(process).take(MOST_THREADS).find_map(killer_of));
        killer.unwrap_or(pid)
    }
}

/// The futex that is waited for, by process.
pub(super) fn word(span: &Span) -> Option<(u32, u64)> {
    (span.syscall == Some(FUTEX)).then_some((span.tgid, span.args[0]))
}
