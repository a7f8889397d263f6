//! What a wait is for, told from its state, system call, stack, lock and waker.

use std::collections::HashMap;

use whyslow_model::timeline::{Span, Stack, State};

/// The stacks of a recording, by id.
#[derive(Debug, Default)]
pub struct Stacks<'r>(HashMap<u32, &'r Stack>);

impl<'r> Stacks<'r> {
    /// Of these rows.
    #[must_use]
    pub fn of(rows: &'r [Stack]) -> Self {
        Stacks(rows.iter().map(|row| (row.id, row)).collect())
    }

    /// Kernel frames of a stack, innermost first; none if there is no such stack.
    #[must_use]
    pub fn kernel(&self, id: Option<u32>) -> &'r [String] {
        id.and_then(|id| self.0.get(&id)).map_or(&[], |stack| &stack.kernel)
    }
}

/// What can stand at the other end of a wait: decides how it is followed, and whether it is a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody held something: follow the holder.
    Held,
    /// Somebody had to do something first (a child to end, a worker, a grace period): follow the waker. A loss.
    Needed,
    /// Waiting to be given something to do (epoll, accept, an idle pool's futex): follow the waker, but on a whole host
    /// it is not a loss.
    Handed,
    /// A device: a leaf.
    Device,
    /// The task's own wish (nanosleep, a poll that timed out): a leaf, not a loss on a whole host.
    Voluntary,
    /// Another host, or a task that is not seen: a leaf.
    Peer,
    /// A CPU: follow who had it.
    Cpu,
    /// A limit that somebody set (quota, throttle): a leaf.
    Limit,
    /// Not known: follow the waker if it was a task.
    Unknown,
}

/// What a wait was for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WaitKind {
    /// A stable word: "lock", "futex", "pipe", "block-io", "timer", "child", "rcu", "work", ...
    pub word: &'static str,
    /// In words, without who: "mutex cgroup_mutex", "a child to end", "vda", "its own sleep".
    pub waits_for: String,
    /// How to go on.
    pub class: Class,
}

/// What `span` waited for.
#[must_use]
pub fn of(span: &Span, _stacks: &Stacks) -> WaitKind {
    let word = if span.state == State::Runnable { "runnable" } else { "unknown" };
    WaitKind { word, waits_for: "something".to_owned(), class: Class::Unknown }
}
