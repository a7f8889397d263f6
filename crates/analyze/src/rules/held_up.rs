//! Tasks wait for another task that does not go on: it holds a lock and sleeps, it is stopped, it sleeps over a request.
//!
//! Signal: chains of the wait-for graph whose end is a task that does no work. Lost: the waits that the chains explain, less
//! what the waiters' other sleeps absorb. Not this rule: locks of the kernel (`lock-wait`), limits, devices, CPUs, and work
//! that was asked for.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::table::Task;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Reason, Thing};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command, seconds};

use super::Rule;
use super::homes::Homes;
use super::one_end::{Cause, Waits, lost, lost_at_disk};
use crate::Evidence;
use crate::graph::{HALTED, HostChain, UNKNOWN, is_cycle};
use crate::own_work::{OwnWork, Whose};
use crate::wait_reasons::Class;

pub const RULE: Rule = Rule {
    id: "held-up",
    question: "Do tasks wait for another task that does not go on?",
    what: "A task holds a lock of files or of programs while it sleeps, or while it works for itself; a service is stopped, frozen, \
           or sleeps over a request. Those who wait for it use no CPU and no disk, and no counter says whom they wait for.",
    how: "The wait-for graph: who has the lock by the kernel's list of file locks or the word of a futex, who is at the other end \
          of a connection on which somebody was asked, and what that one did meanwhile. Counterfactual: had it gone on at once, \
          the waiters would have, too. Time lost = the part of their waits that this chain explains, less what their other sleeps \
          absorb. Work that was asked for is spending, no loss; so are the work of one's own children and waits for something to do.",
    limits: "Whether a service that sleeps has been asked is known for sockets and pipes by what was sent, for unix sockets where \
             requests lay unread as their client went to sleep; of shared memory, and of a lone client of a unix socket whose requests \
             are read at once, nothing is known. A lock that a program makes of \
             nothing but memory is seen where its word holds the owner's id. What a lock's holder computes, and that a service sleeps, is a \
             loss of another tree of tasks (cgroup, session, process of the system) only; of a client that came to where the service \
             listens, and has not started it, nor was started by it, also in the same tree.",
    sources: "fs/locks.c (file_lock), futex(2), signal(7), kernel/cgroup/freezer.c.",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Beyond these the chains tell the rest.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.spans()?;
    ev.has_stacks()?;
    let tasks = ev.tasks()?;
    let homes = LazyCell::new(|| Homes::of(ev, tasks));
    let own = OwnWork::of(ev);
    let mut causes: Vec<(Cause, Waits)> = Vec::new();
    for reported in ev.host_chains().iter().filter(|reported| !reported.blames_for_kernel_wait()) {
        let is_own = || matches!(own.whose(reported), Whose::Own | Whose::Unclear);
        let differ = |one, other| homes.differ(one, other) || homes.is_client(reported.head, one, other);
        if !idles(reported, &differ) || is_own() {
            continue;
        }
        let heads: Vec<u32> = reported.heads.keys().copied().collect();
        let known = causes.iter().position(|(cause, _)| cause.is_same(&reported.chain));
        let at = known.unwrap_or(causes.len());
        match causes.get_mut(at) {
            Some((cause, _)) => cause.add(&reported.chain, &heads),
            None => causes.push((Cause::of(&reported.chain, &heads), Waits::new())),
        }
        for (pid, time) in &reported.heads {
            causes[at].1.entry(*pid).and_modify(|all| *all += *time).or_insert(*time);
        }
    }
    let is_beside = |cause: &Cause| causes.iter().any(|(other, _)| cause.is_beside(other));
    let told = causes.iter().filter(|(cause, _)| !is_beside(cause));
    let found = told.filter_map(|(cause, waits)| finding(ev, tasks, &homes, cause, waits));
    let unseen = unseen(ev, tasks, &own);
    let unseen = unseen.iter().filter_map(|(cause, waits)| unseen_finding(ev, &homes, cause, waits));
    Ok(found.chain(unseen).take(MOST).collect())
}

/// A single wait of this length in D state, for what nobody was seen to have, is no crowd before a lock.
const STUCK: Duration = Duration::from_secs(1);

/// Long waits in D state whose end nobody saw, by what they were for.
fn unseen(ev: &Evidence<'_>, tasks: &[Task], own: &OwnWork<'_, '_>) -> Vec<(Cause, Waits)> {
    let users: BTreeSet<u32> = tasks.iter().filter(|task| !task.kthread).map(|task| task.pid).collect();
    let mut all: Vec<(Cause, Waits)> = Vec::new();
    for reported in ev.host_chains() {
        let chain = &reported.chain;
        // What somebody has who does this and that is his; what a task writes out itself takes as long as its disk does.
        let [first, last] = chain.hops.as_slice() else { continue };
        let nobody = last.reason == Reason::Open || last.detail == Detail::Thing(Thing::HolderNotSeen);
        let own_data = matches!(first.reason, Reason::Journal | Reason::Writeback | Reason::BlockIo);
        let heads: Waits = reported
            .heads
            .iter()
            .filter(|(pid, _)| users.contains(pid))
            .map(|(pid, time)| (*pid, *time))
            .collect();
        let is_stuck = reported.head.state == State::Blocked
            && chain.leaf.id == UNKNOWN
            && nobody
            && !own_data
            && first.reason != Reason::Runnable
            && first.worst.is_some_and(|worst| worst >= STUCK)
            && !heads.is_empty();
        if !is_stuck || !matches!(own.whose(reported), Whose::Others) {
            continue;
        }
        let pids: Vec<u32> = heads.keys().copied().collect();
        let is_same = |cause: &Cause| cause.chain.hops.first().is_some_and(|hop| hop.detail == first.detail);
        let at = all.iter().position(|(cause, _)| is_same(cause)).unwrap_or(all.len());
        match all.get_mut(at) {
            Some((cause, _)) => cause.add(chain, &pids),
            None => all.push((Cause::of(chain, &pids), Waits::new())),
        }
        for (pid, time) in heads {
            all[at].1.entry(pid).and_modify(|sum| *sum += time).or_insert(time);
        }
    }
    all
}

/// Only freezing a file system takes this lock to write (fs/super.c, freeze_super; percpu_rw_semaphore of struct sb_writers),
/// and whoever did so may have ended since.
const FREEZING: &str = "s_writers of a file system";

fn unseen_finding(ev: &Evidence<'_>, homes: &Homes, cause: &Cause, waits: &Waits) -> Option<Finding> {
    let victims: Vec<&Task> = waits.keys().filter_map(|pid| ev.task(*pid)).collect();
    let loss = lost_at_disk(&victims, waits);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let head = cause.chain.hops.first()?;
    let is_frozen = matches!(&head.detail, Detail::Lock { name, .. } if name == FREEZING);
    let (what, whose) = match is_frozen {
        true => {
            ("a frozen file system".to_owned(), "a file system that is frozen waits for its thaw".to_owned())
        }
        false => (head.detail.to_string(), "who has it, or is to end the wait, was not seen".to_owned()),
    };
    let title = format!("{} waited {} for {}: {whose}", head.who, seconds(cause.time), head.detail);
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &victims, None), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(cause.time)
        .by(Culprit::new(SubjectKind::Kernel, what.clone(), what))
        .check(
            "who waits in the kernel now, and in which function",
            "ps -eLo pid,lwp,state,wchan:40,comm | awk '$3 == \"D\"'",
        );
    finding.chain.clone_from(&cause.chain.hops);
    Some(
        finding.advice(match is_frozen {
            true => "thaw it (fsfreeze -u and its mount point), or end the snapshot or backup that froze it"
                .to_owned(),
            false => {
                format!("look at the stack of {} in the kernel: it tells what was to end its wait", head.who)
            }
        }),
    )
}

/// Whether two tasks are known to be of two trees, or a client and its service.
type Differ<'f> = &'f dyn Fn(u32, u32) -> bool;

/// Whether the task at the end does nothing of what others need: somebody has stopped it; it has a lock and sleeps, or works for
/// itself; it sleeps over what it was asked for.
fn idles(reported: &HostChain<'_>, differ: Differ<'_>) -> bool {
    let chain = &reported.chain;
    let Some((leaf, above)) = end(chain) else { return false };
    let is_for_cpu = above.first().is_none_or(|first| first.reason == Reason::Runnable);
    if is_for_cpu || chain.leaf.kind != SubjectKind::Task || chain.leaf.id == UNKNOWN || is_cycle(chain) {
        return false;
    }
    let locked = above.iter().any(is_lock);
    match reported.leaf {
        _ if HALTED.contains(&leaf.reason) => true,
        Some(Class::Voluntary) => locked || is_anothers(reported, differ),
        None => locked && leaf.reason == Reason::Running && is_anothers(reported, differ),
        Some(_) => false,
    }
}

/// The last of its hops that is somebody's, and those above it: of who is stopped it may be told that nobody let it go on.
fn end(chain: &Chain) -> Option<(&Hop, &[Hop])> {
    match chain.hops.as_slice() {
        [above @ .., halted, nobody] if HALTED.contains(&halted.reason) && nobody.who.is_nobody() => {
            Some((halted, above))
        }
        hops => hops.split_last(),
    }
}

/// A lock that stays with its holder whatever it does. Those of the kernel have a rule of their own.
fn is_lock(hop: &Hop) -> bool {
    let of_program = matches!(hop.detail, Detail::Thing(Thing::UserLock | Thing::PiFutex));
    hop.reason == Reason::FileLock || hop.reason == Reason::Futex && of_program
}

/// The end is of another tree of tasks than each that waits.
fn is_anothers(reported: &HostChain<'_>, differ: Differ<'_>) -> bool {
    let Ok(leaf) = reported.chain.leaf.id.parse::<u32>() else { return false };
    !reported.heads.is_empty() && reported.heads.keys().all(|pid| differ(*pid, leaf))
}

fn finding(
    ev: &Evidence<'_>,
    tasks: &[Task],
    homes: &Homes,
    cause: &Cause,
    waits: &Waits,
) -> Option<Finding> {
    let victims: Vec<&Task> =
        tasks.iter().filter(|task| cause.victims.binary_search(&task.pid).is_ok()).collect();
    let loss = lost(ev, &victims, cause.chain.hops.first()?.reason, waits, 1.0);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let chain = &cause.chain;
    let (head, (leaf, _)) = (chain.hops.first()?, end(chain)?);
    let did = match leaf.reason {
        Reason::Running => format!("{} ({})", leaf.who, leaf.detail),
        _ => format!("{}, which waits for {}", leaf.who, leaf.detail),
    };
    let title = format!("{} waited {} for {}; at the end: {did}", head.who, seconds(cause.time), head.detail);
    let pid = chain.leaf.id.parse::<u32>().ok()?;
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &victims, Some(pid)), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(cause.time)
        .by(chain.leaf.clone())
        .check("what it does now", command!("grep -E '^(Name|State):' /proc/{}/status", pid))
        .check("whom each waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain.clone_from(&chain.hops);
    Some(advised(finding, leaf, pid))
}

fn advised(finding: Finding, leaf: &Hop, pid: u32) -> Finding {
    match leaf.reason {
        Reason::Stopped => finding.fix(
            format!("let {} go on (undo: {})", leaf.who, &*command!("kill -STOP {}", pid)),
            command!("kill -CONT {}", pid),
        ),
        Reason::Frozen => finding.advice(format!("thaw the cgroup of {}", leaf.who)),
        Reason::Traced => finding.advice(format!("let the tracer of {} go on, or detach it", leaf.who)),
        Reason::Running => {
            finding.advice(format!("keep {} from its work while it has what others need", leaf.who))
        }
        _ => finding.advice(format!("keep {} from sleeping while others wait for it", leaf.who)),
    }
}

#[cfg(test)]
#[path = "held_up_tests.rs"]
mod tests;
