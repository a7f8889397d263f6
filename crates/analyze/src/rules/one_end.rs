//! Chains of waits that have the same end: what this end cost all tasks that waited for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::table::Task;
use whyslow_model::wait::{Detail, Reason};
use whyslow_model::{Subject, SubjectKind};

use super::pace::{Short, paces};
use crate::Evidence;
use crate::cpu::spread;
use crate::graph::HostChain;
use crate::self_inflicted::{SelfInflicted, Whose};

/// A lock goes from waiter to waiter, and each of them makes the others wait a little. Beside a culprit that causes this many times as
/// much, such a wait is no cause of its own.
const BESIDE: u32 = 10;

/// A task that was not seen to rest may have slept beside its waits. That sleep was short waits, if it is this part of the waits or less.
/// If it is more, rows were lost.
const UNSEEN: f64 = 0.3;

/// How long each task waited, by pid.
pub(super) type Waits = BTreeMap<u32, Duration>;

/// Chains with the same end.
pub(super) struct Cause {
    /// The most expensive chain.
    pub chain: Chain,
    pub time: Duration,
    pub victims: Vec<u32>,
    /// What the victims waited for.
    wanted: BTreeSet<Detail>,
}

impl Cause {
    /// An empty cause, whose most expensive chain will be this one.
    pub fn of(chain: &Chain) -> Self {
        Cause { time: Duration::ZERO, victims: Vec::new(), wanted: BTreeSet::new(), chain: chain.clone() }
    }

    pub fn is_same(&self, chain: &Chain) -> bool {
        let (one, other) = (&self.chain.leaf, &chain.leaf);
        (one.kind, &one.id, &one.function) == (other.kind, &other.id, &other.function)
    }

    pub fn is_beside(&self, other: &Cause) -> bool {
        self.time * BESIDE < other.time && self.wanted.is_subset(&other.wanted)
    }

    /// Like [`Cause::is_beside`], for a culprit that another rule reports: the same victims waited for the same thing.
    pub fn is_beside_another(&self, ev: &Evidence<'_>, own: &SelfInflicted<'_, '_>) -> bool {
        let is_it = |reported: &HostChain<'_>| {
            let chain = &reported.chain;
            let wants = chain.hops.first().is_some_and(|head| self.wanted.contains(&head.detail));
            let is_theirs = self.victims.iter().all(|pid| reported.heads.contains_key(pid));
            wants && is_theirs && !self.is_same(chain) && self.time * BESIDE < chain.time
        };
        let mut all = ev.host_chains().iter().filter(|reported| is_it(reported));
        self.wanted.len() == 1 && all.any(|reported| matches!(own.whose(reported), Whose::Others))
    }

    pub fn add(&mut self, chain: &Chain, heads: &[u32]) {
        self.time += chain.time;
        self.wanted.extend(chain.hops.iter().take(1).map(|hop| hop.detail.clone()));
        self.victims.extend(heads);
        self.victims.sort_unstable();
        self.victims.dedup();
    }
}

/// One task, a cgroup that contains all waiters, or the host.
pub(super) fn victim(ev: &Evidence<'_>, victims: &[&Task]) -> Subject {
    let one =
        |task: &Task| Subject::new(SubjectKind::Task, task.pid.to_string(), ev.called(task.pid, &task.comm));
    match victims {
        [task] => one(task),
        [first, ..] if victims.iter().all(|task| task.unified_cgroup == first.unified_cgroup) => {
            let group = ev.cgroup(first.unified_cgroup);
            group.map_or_else(Subject::host, |group| ev.names().cgroup(group))
        }
        _ => Subject::host(),
    }
}

/// The end of a title.
pub(super) fn circle(chain: &Chain) -> &'static str {
    if chain.hops.iter().any(|hop| hop.circle) { "; a vicious circle" } else { "" }
}

/// The time that the victims lost: this part of their waits for the end of the chain. These waits are not sleeps that absorb. The other sleeps may
/// have absorbed the loss, unless the victims sleep as long as ever after long waits.
pub(super) fn lost(
    ev: &Evidence<'_>,
    victims: &[&Task],
    reason: Reason,
    waits: &Waits,
    part: f64,
) -> spread::Loss {
    let paces = paces(ev, &victims.iter().map(|task| task.pid).collect(), reason);
    let waiting = |task: &&Task| {
        let waited =
            waits.get(&task.pid).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let pace = paces.get(&task.pid).copied().unwrap_or_default();
        let rested = task.sleep_ns.saturating_sub(waited.max(pace.answered_ns)).saturating_sub(pace.cut_ns);
        let is_little = |ns: u64| ns as f64 <= UNSEEN * waited as f64;
        let are_answers = |short: Short| {
            is_little(rested.saturating_sub(short.ns))
                && is_little(task.sleep_ns.saturating_sub(short.alike_ns))
        };
        let is_all_waits = pace.has_no_rest && (is_little(rested) || pace.short.is_some_and(are_answers));
        // The task's cycles count these waits as rests. Without the cycles only the time that it slept is known.
        Task {
            sleep_ns: if pace.is_none || is_all_waits { 0 } else { rested },
            blocked_ns: (waited.min(task.lived_ns) as f64 * part) as u64,
            io_ns: 0,
            cycles: 0,
            awake: 0,
            rest: 0,
            awake_awake: 0,
            awake_rest: 0,
            rest_rest: 0,
            ..(**task).clone()
        }
    };
    let all: Vec<Task> = victims.iter().map(waiting).collect();
    let whole: f64 = all.iter().map(|task| task.blocked_ns as f64).sum();
    spread::lost(&all.iter().collect::<Vec<_>>(), |task| task.blocked_ns, whole)
}

/// Like [`lost`], for waits that are not counted among the sleeps. How the sleeps go on after these waits shows what they absorb.
pub(super) fn lost_at_disk(victims: &[&Task], waits: &Waits) -> spread::Loss {
    let waited = |task: &Task| waits.get(&task.pid).map_or(0.0, |time| time.as_nanos() as f64);
    let whole: f64 = victims.iter().map(|task| waited(task)).sum();
    spread::lost(victims, |task| waited(task) as u64, whole)
}
