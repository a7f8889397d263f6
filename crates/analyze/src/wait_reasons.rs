//! The reason of a wait, from its state, system call, stack, lock and waker.
//!
//! Tables of kernel functions decide, one file for each area: the innermost function that is in a table shows what a stack
//! waits for. Names are those of Linux 5.10 to 6.18; a renamed function has both names in the table.

mod cpu;
mod files;
mod files_table;
pub use files_table::FILE_LOCKS;
mod futex;
mod held_back;
mod idle;
mod io_files;
mod kernel;
mod lock_names;
mod lock_sites;
mod locks;
mod process;
mod senders;
mod stacks;
mod storage;
mod storage_table;
mod table;
mod time;
mod wait;

#[cfg(test)]
mod real_stacks;
#[cfg(test)]
mod tests;

pub(crate) use files::retried;
pub use futex::{futex_owner, joined_thread};
pub(crate) use held_back::held_back;
pub(crate) use kernel::may_need_grace_period;
pub(crate) use lock_names::{LockName, lock_name};
pub(crate) use locks::{released_by, taken_by};
pub(crate) use senders::{
    READS, TICK, asks_each_time, comes_each_time, is_answer, is_asked, is_request, is_until_answer,
    is_woken_for_nothing, round_trip, socket, task_behind,
};
pub use stacks::Stacks;
pub(crate) use wait::WaitContext;
use whyslow_model::timeline::Span;
use whyslow_model::wait::{Detail, Reason, WaitTarget};

/// The kind of thing that a wait waits for: this decides how the wait is followed, and whether it is a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Another task held something: follow the holder.
    Lock,
    /// Another task had to do something first (a child to end, a worker, a grace period): follow the waker. A loss.
    Dependency,
    /// The task waited for new work (epoll, accept, an idle pool's futex): follow the waker, but on a whole host
    /// it is not a loss.
    Idle,
    /// A device: a leaf.
    Device,
    /// The task's own choice (nanosleep, a poll that timed out): a leaf, not a loss on a whole host.
    Timer,
    /// Another host, or a task that cannot be seen: a leaf.
    Peer,
    /// A CPU: follow the task that had it.
    Cpu,
    /// A limit that was set (quota, throttle): a leaf.
    Limit,
    /// Not known: follow the waker if it was a task.
    Unknown,
}

/// What a wait was for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WaitKind {
    /// Why.
    pub reason: Reason,
    /// What it waited for, without the task at the other side.
    pub detail: Detail,
    /// How to follow it.
    pub class: Class,
}

impl WaitKind {
    fn new(reason: Reason, detail: Detail, class: Class) -> Self {
        WaitKind { reason, detail, class }
    }

    fn target(target: WaitTarget, class: Class) -> Self {
        WaitKind::new(target.reason(), target.into(), class)
    }
}

/// What `span` waited for.
#[must_use]
pub fn of(span: &Span, stacks: &Stacks<'_>) -> WaitKind {
    let wait = WaitContext::of(span, stacks);
    let kind = ASKED.iter().find_map(|ask| ask(&wait)).unwrap_or_else(|| unknown(&wait));
    held_back::ask(span, retried(span, kind))
}

/// A timer ended this wait.
pub(crate) fn ended_by_timer(span: &Span, stacks: &Stacks<'_>) -> bool {
    WaitContext::of(span, stacks).ended_by_timer()
}

/// The order matters: a lock inside reclaim is a lock, a page that reclaim waits for is reclaim. So each check comes before the
/// checks for what may contain it.
const ASKED: &[fn(&WaitContext<'_>) -> Option<WaitKind>] = &[
    cpu::ask,
    futex::ask_pi,
    locks::ask,
    storage::ask_reclaim,
    idle::ask,
    table::ask,
    storage::ask_io,
    kernel::ask_completion,
    time::ask_sleep,
    files::ask_call,
    process::ask_call,
    time::ask_end,
];

/// The innermost function is all that is known.
fn unknown(wait: &WaitContext<'_>) -> WaitKind {
    let call =
        || wait.call_name().map_or_else(|| WaitTarget::Something.into(), |call| Detail::InCall { call });
    let detail =
        wait.first().map_or_else(call, |function| Detail::InFunction { function: function.to_owned() });
    WaitKind::new(Reason::Unknown, detail, Class::Unknown)
}
