//! Chains of waits that have one end: what somebody cost all who waited for him.

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
use crate::own_work::{OwnWork, Whose};

/// What is wanted goes from hand to hand, and each of those who have waited for it lets the others wait a little: beside one
/// who causes so many times as much that is no cause of its own.
const BESIDE: u32 = 10;

/// Of a task that was not seen to rest, what it slept beside its waits is short waits if it is this part of those or less: of more, rows were lost.
const UNSEEN: f64 = 0.3;

/// How long each waited.
pub(super) type Waits = BTreeMap<u32, Duration>;

/// Chains with one end.
pub(super) struct Cause {
    /// The most expensive.
    pub chain: Chain,
    pub time: Duration,
    pub victims: Vec<u32>,
    /// What the victims waited for.
    wanted: BTreeSet<Detail>,
}

impl Cause {
    /// None yet, of which this will be the most expensive.
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

    /// The same beside what the same victims waited for by another's doing, which another rule tells.
    pub fn is_beside_another(&self, ev: &Evidence<'_>, own: &OwnWork<'_, '_>) -> bool {
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

/// One task, a cgroup that holds all who waited, or the host.
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

/// A part of what they waited, for this reason, for the one at the end. That is no sleep of theirs; what else they slept may have absorbed it, unless
/// they sleep on as ever after long waits.
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
        // Its cycles take these waits for rests: without them what is known is how long it slept.
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

/// ... and of waits that are not counted among the sleeps: how those go on after them tells what they absorb.
pub(super) fn lost_at_disk(victims: &[&Task], waits: &Waits) -> spread::Loss {
    let waited = |task: &Task| waits.get(&task.pid).map_or(0.0, |time| time.as_nanos() as f64);
    let whole: f64 = victims.iter().map(|task| waited(task)).sum();
    spread::lost(victims, |task| waited(task) as u64, whole)
}
