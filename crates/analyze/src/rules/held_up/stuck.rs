//! Long waits in D state whose end was not seen. The finding names what the tasks waited for; a frozen file system is known by its lock.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Reason, WaitTarget};
use whyslow_model::{Culprit, Finding, SubjectKind, seconds};

use super::super::homes::Homes;
use super::super::one_end::{Cause, Waits, lost_at_disk};
use super::RULE;
use crate::Evidence;
use crate::graph::UNKNOWN;
use crate::self_inflicted::{SelfInflicted, Whose};

/// A single wait of this length in D state, for a thing without a known holder, is more than a crowd in front of a lock.
const STUCK: Duration = Duration::from_secs(1);

/// Long waits in D state whose end was not seen, by what they were for.
pub(super) fn all(ev: &Evidence<'_>, tasks: &[Task], own: &SelfInflicted<'_, '_>) -> Vec<(Cause, Waits)> {
    let users: BTreeSet<u32> = tasks.iter().filter(|task| !task.kthread).map(|task| task.pid).collect();
    let mut all: Vec<(Cause, Waits)> = Vec::new();
    for reported in ev.host_chains() {
        let chain = &reported.chain;
        // A chain with a known holder belongs to that holder. Data that a task writes out itself takes as long as its disk does.
        let [first, last] = chain.hops.as_slice() else { continue };
        let nobody = last.reason == Reason::Open || last.detail == Detail::Target(WaitTarget::HolderNotSeen);
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
        if at == all.len() {
            all.push((Cause::of(chain), Waits::new()));
        }
        all[at].0.add(chain, &pids);
        for (pid, time) in heads {
            all[at].1.entry(pid).and_modify(|sum| *sum += time).or_insert(time);
        }
    }
    all
}

/// Only freezing a file system takes this lock to write (fs/super.c, freeze_super; percpu_rw_semaphore of struct sb_writers),
/// and the process that did it may have ended since.
const FREEZING: &str = "s_writers of a file system";

pub(super) fn finding(ev: &Evidence<'_>, homes: &Homes, cause: &Cause, waits: &Waits) -> Option<Finding> {
    let victims: Vec<&Task> = waits.keys().filter_map(|pid| ev.task(*pid)).collect();
    let loss = lost_at_disk(&victims, waits);
    if !loss.is_felt(ev.window()) {
        return None;
    }
    let head = cause.chain.hops.first()?;
    let is_frozen = matches!(&head.detail, Detail::Lock { name, .. } if name == FREEZING);
    let (what, whose) = match is_frozen {
        true => (
            "a frozen file system".to_owned(),
            "the file system was frozen, and writers wait for its thaw".to_owned(),
        ),
        false => (
            head.detail.to_string(),
            "the task that holds it, or that has to end the wait, was not seen".to_owned(),
        ),
    };
    let title = format!("{} waited {} for {}: {whose}", head.who, seconds(cause.time), head.detail);
    let mut finding = Finding::cause(RULE.id, homes.payer(ev, &victims, None), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(cause.time)
        .by(Culprit::new(SubjectKind::Kernel, what.clone(), what))
        .check(
            "the tasks that wait in the kernel now, and in which function",
            "ps -eLo pid,lwp,state,wchan:40,comm | awk '$3 == \"D\"'",
        );
    finding.chain.clone_from(&cause.chain.hops);
    finding.paid_by.clone_from(&cause.victims);
    Some(
        finding.advice(match is_frozen {
            true => "thaw it (fsfreeze -u and its mount point), or end the snapshot or backup that froze it"
                .to_owned(),
            false => {
                format!("look at the kernel stack of {}: it shows what has to end its wait", head.who)
            }
        }),
    )
}
