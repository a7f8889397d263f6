//! Whether the end of a chain may be blamed: the one function that decides it.
//!
//! A task at the end is to blame if it is certain that other tasks waited for it, and it did not do what they waited for: it is stopped, it
//! sleeps, it works for itself while it holds a lock, or it does other work first. A task that works on a request of the waiters is busy. A
//! task that has nothing to do is no end of a chain (`graph/requests.rs`).

use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::wait::{Detail, Reason, WaitTarget, Who};
use whyslow_model::{Culprit, Hop, SubjectKind};

use super::super::homes::Homes;
use crate::Evidence;
use crate::graph::{CHAIN_THRESHOLD, HALTED, HostChain, UNKNOWN, is_cycle};
use crate::wait_reasons::Class;

/// The task or thing that is to blame.
pub(super) struct Blamed<'c> {
    pub why: Blame,
    pub culprit: Culprit,
    /// What it did.
    pub did: &'c Hop,
    /// Threads of its name that did the same.
    pub tasks: &'c [(u32, Who)],
}

/// The reason for the blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The task is stopped, frozen or traced.
    Halted,
    /// The task sleeps while it holds a lock, or while a request waits.
    Sleeps,
    /// The task works for itself while it holds a lock.
    Holds,
    /// The task had other work to do when the request came.
    Works,
    /// The task waits for an answer of another host.
    Asks,
    /// The task has a request, and waits for an event that no task was seen to bring about.
    Stuck,
    /// The task works on a request of the waiters: no fault.
    Serves,
}

/// An answer of another host that takes this long counts as missing.
const OWED: Duration = Duration::from_secs(1);
/// More than this part of what the task did must be other work than the request.
const MOST: f64 = 0.5;

pub(super) fn of<'c>(ev: &Evidence<'_>, reported: &'c HostChain<'_>, homes: &Homes) -> Option<Blamed<'c>> {
    let chain = &reported.chain;
    let (did, above) = end(chain)?;
    let is_for_cpu = above.first().is_none_or(|first| first.reason == Reason::Runnable);
    if is_for_cpu || is_cycle(chain) {
        return None;
    }
    let tasks = chain.tasks.get(above.len())?;
    let task = tasks.first();
    let culprit = match task {
        Some((pid, name)) if chain.leaf.id == UNKNOWN => {
            Culprit::new(SubjectKind::Task, pid.to_string(), name.to_string())
        }
        _ => chain.leaf.clone(),
    };
    let why = why(ev, reported, homes, (did, above, task.map_or(0, |(pid, _)| *pid)))?;
    Some(Blamed { why, culprit, did, tasks })
}

/// `did`: what thread `pid` did at the end of the chain; `above`: the waits above that.
fn why(
    ev: &Evidence<'_>,
    reported: &HostChain<'_>,
    homes: &Homes,
    (did, above, pid): (&Hop, &[Hop], u32),
) -> Option<Blame> {
    let chain = &reported.chain;
    let are =
        |is: &dyn Fn(u32) -> bool| !reported.heads.is_empty() && reported.heads.keys().all(|head| is(*head));
    let is_anothers = || are(&|head| homes.differ(head, pid) || homes.is_client(reported.service, head, pid));
    let is_task = chain.leaf.kind == SubjectKind::Task && chain.leaf.id != UNKNOWN;
    let is_stuck = chain.hops.last().is_some_and(|last| last.reason == Reason::Open && last.who.is_nobody());
    match reported.leaf {
        Some(Class::Peer) => {
            let is_owed = chain.worst >= OWED && is_elsewhere(did) && is_anothers();
            return is_owed.then_some(Blame::Asks);
        }
        _ if is_task => {}
        _ => return (is_stuck && is_anothers()).then_some(Blame::Stuck),
    }
    let is_locked = above.iter().any(is_lock);
    let is_for_answer = || above.first().is_some_and(|first| first.reason != Reason::Pipe) && is_anothers();
    match reported.leaf {
        _ if HALTED.contains(&did.reason) => Some(Blame::Halted),
        _ if is_copy(ev, chain) => None,
        // A thread that only wakes up by timeout does not sleep with the lock: another thread may hold the lock by then.
        Some(Class::Timer) => {
            let sleeps = is_locked && did.detail == Detail::Target(WaitTarget::OwnSleep);
            (sleeps || is_anothers()).then_some(Blame::Sleeps)
        }
        None if did.reason != Reason::Running => None,
        None if is_locked && are(&|head| homes.differ(head, pid) || homes.are_strangers(head, pid)) => {
            Some(Blame::Holds)
        }
        None if !is_for_answer() => None,
        None if reported.at_work > MOST && mean_is_felt(chain) => Some(Blame::Works),
        None => Some(Blame::Serves),
        Some(_) => None,
    }
}

/// Whether it waits for another host. Data that its own client holds back (Nagle's algorithm) comes from a loopback address.
fn is_elsewhere(did: &Hop) -> bool {
    match &did.detail {
        Detail::Peer { address, .. } => {
            address.as_deref().is_some_and(|peer| !peer.starts_with("127.") && !peer.starts_with("[::1]"))
        }
        _ => true,
    }
}

/// The last hop that belongs to a task, and the hops above it. For a task that is stopped, or that is stuck while others wait for it, the chain
/// may have one more hop: no task was seen to end its wait.
fn end(chain: &Chain) -> Option<(&Hop, &[Hop])> {
    match chain.hops.as_slice() {
        [above @ .., last, nobody]
            if nobody.who.is_nobody() && (HALTED.contains(&last.reason) || !above.is_empty()) =>
        {
            Some((last, above))
        }
        hops => hops.split_last(),
    }
}

/// Whether the hop is a wait for a lock that stays with its holder whatever the holder does. Kernel locks have a rule of their own.
fn is_lock(hop: &Hop) -> bool {
    let of_program = matches!(hop.detail, Detail::Target(WaitTarget::UserLock | WaitTarget::PiFutex));
    hop.reason == Reason::FileLock || hop.reason == Reason::Futex && of_program
}

/// Whether copies of one program, each a process of its own, take turns by a lock on a file: for example a script that must run once at a time.
/// If another task waits for the waiting copy, that task is the head of the chain.
fn is_copy(ev: &Evidence<'_>, chain: &Chain) -> bool {
    let [first, holder] = [0, 1].map(|hop| {
        let (pid, _) = chain.tasks.get(hop)?.first()?;
        ev.task(*pid)
    });
    // A copy waits once, until the other copy has ended. Processes of a service wait for each other again and again.
    let is_by_file =
        chain.hops.first().is_some_and(|hop| hop.reason == Reason::FileLock && hop.count.unwrap_or(1) <= 1);
    let alike = first.zip(holder).is_some_and(|(one, other)| {
        one.tgid != other.tgid
            && one.comm == other.comm
            && one.cmdline.is_some()
            && one.cmdline == other.cmdline
    });
    is_by_file && alike
}

/// Below this mean wait hardly any client waited behind the work of another client.
fn mean_is_felt(chain: &Chain) -> bool {
    let count = chain.hops.first().and_then(|hop| hop.count).unwrap_or(chain.count).max(1);
    chain.time.as_secs_f64() / count as f64 >= CHAIN_THRESHOLD.as_secs_f64()
}

#[cfg(test)]
#[path = "blame_tests.rs"]
mod tests;
