//! Tasks that wait for a disk: directly, or for a service that waits for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::table::Task;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Reason, TaskState, Who};
use whyslow_model::{Hop, SubjectKind};

use super::super::homes::Homes;
use super::super::one_end::{Waits, lost, lost_at_disk};
use super::queue::{Asker, Queue, whole};
use crate::Evidence;
use crate::cpu::spread;
use crate::names;

/// A disk, the tree that waits, and the tree that has the requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Whose {
    pub dev: String,
    /// The tree of the tasks that lost time ...
    pub victim: usize,
    /// ... and the tree of the tasks that had requests at the disk for them.
    pub asker: usize,
}

/// Waits that end at a disk.
#[derive(Default)]
pub(super) struct Waiting {
    pub waits: Waits,
    /// ... and those that are too short for rows of their own.
    short: Waits,
    /// The tasks that had requests at the disk.
    pub askers: BTreeSet<u32>,
    /// The longest of the chains in which the victim waits for a service that waits for the disk.
    way: Option<(Duration, Vec<Hop>)>,
}

impl Waiting {
    /// The sum of all waits.
    pub fn whole(&self) -> Duration {
        self.waits.values().chain(self.short.values()).sum()
    }

    /// This part of the waits, less what the victims' sleeps absorb.
    pub fn lost(&self, ev: &Evidence<'_>, victims: &[&Task], part: f64) -> spread::Loss {
        let asked = self.way.as_ref().and_then(|(_, hops)| hops.first());
        if let Some(asked) = asked {
            return lost(ev, victims, asked.reason, &self.waits, part);
        }
        let added = |short: &Waits| -> Waits {
            let short = |pid| short.get(pid).copied().unwrap_or_default();
            self.waits.iter().map(|(pid, time)| (*pid, (*time + short(pid)).mul_f64(part))).collect()
        };
        let low = lost_at_disk(victims, &added(&Waits::new())).low;
        spread::Loss { low, ..lost_at_disk(victims, &added(&self.short)) }
    }

    /// The chain down to the disk, behind the culprit's requests.
    pub fn hops(&self, victims: u64, name: &str, device: &str, culprit: &str) -> Vec<Hop> {
        let behind = format!("{device}, behind requests of {culprit}");
        if let Some((_, way)) = &self.way {
            let mut hops = way.clone();
            hops.iter_mut()
                .skip(1)
                .next_back()
                .into_iter()
                .for_each(|last| last.detail = behind.clone().into());
            return hops;
        }
        let who = names::tasks_of(victims, name);
        vec![Hop::new(Reason::BlockIo, who, behind, TaskState::IoWait, self.whole())]
    }
}

/// The task that has requests at the disk at the end of a chain.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// The victim, itself or through a thread of the kernel.
    Itself,
    /// This task, of this tree.
    Another(u32, usize),
}

/// `None`: similar chains are merged into one, and in this one tasks of several trees have requests: for which of them each victim waits is
/// not known.
fn asks(chain: &Chain, homes: &Homes) -> Option<Asks> {
    let placed = |tasks: &Vec<(u32, Who)>| {
        tasks.iter().filter_map(|(pid, _)| Some((*pid, homes.place(*pid)?))).collect::<Vec<_>>()
    };
    // Threads of the kernel and tasks that have ended have no place: they work for the task above them in the chain.
    let below = chain.tasks.iter().skip(1).rev().map(placed).find(|tasks| !tasks.is_empty());
    let Some(tasks) = below else { return Some(Asks::Itself) };
    let (asker, tree) = *tasks.first()?;
    tasks.iter().all(|(_, other)| *other == tree).then_some(Asks::Another(asker, tree))
}

/// How long tasks waited for each disk, by tree.
pub(super) fn waiting(ev: &Evidence<'_>, tasks: &[Task], homes: &Homes) -> BTreeMap<Whose, Waiting> {
    let mut rows: BTreeMap<u32, &Task> = tasks.iter().map(|task| (task.pid, task)).collect();
    // Many tasks that came and went share one row.
    let mut many: BTreeMap<&str, Option<&Task>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.folded > 0) {
        many.entry(&task.comm).and_modify(|known| *known = None).or_insert(Some(task));
        rows.remove(&task.pid);
    }
    let mut all: BTreeMap<Whose, Waiting> = BTreeMap::new();
    for reported in ev.host_chains().iter().filter(|reported| !reported.blames_for_kernel_wait()) {
        let chain = &reported.chain;
        if chain.leaf.kind != SubjectKind::Device {
            continue;
        }
        let Some(asks) = asks(chain, homes) else { continue };
        for (pid, time) in &reported.heads {
            let one_of_many = || many.get(reported.head.comm.as_str()).copied().flatten();
            let row = rows.get(pid).copied().or_else(one_of_many).filter(|row| !row.kthread);
            let Some((row, victim)) = row.and_then(|row| Some((row, homes.place(row.pid)?))) else {
                continue;
            };
            let (asker, tree) = match asks {
                Asks::Itself => (row.pid, victim),
                Asks::Another(asker, tree) => (asker, tree),
            };
            let one = all.entry(Whose { dev: chain.leaf.id.clone(), victim, asker: tree }).or_default();
            one.askers.insert(asker);
            one.waits.entry(row.pid).and_modify(|all| *all += *time).or_insert(*time);
            if tree != victim && one.way.as_ref().is_none_or(|(longest, _)| *longest < chain.time) {
                one.way = Some((chain.time, chain.hops.clone()));
            }
        }
    }
    all
}

/// Adds the waits for I/O that are too short for rows of their own (`Span::mixed`). They count for the disks that the long waits are for, if
/// the long waits are the larger part, and as far as the tree had requests there for that long.
pub(super) fn add_short(
    ev: &Evidence<'_>,
    all: &mut BTreeMap<Whose, Waiting>,
    queues: &BTreeMap<&str, Queue<'_>>,
) {
    let mut waited: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for span in ev.spans().into_iter().flatten() {
        let (long, short) = waited.entry(span.pid).or_default();
        *short = short.saturating_add(span.mixed.io_ns);
        if span.state == State::Io {
            *long = long.saturating_add(span.woken_ns.saturating_sub(span.at_ns));
        }
    }
    for (whose, waiting) in all.iter_mut().filter(|(whose, _)| whose.victim == whose.asker) {
        let Some(queue) = queues.get(whose.dev.as_str()) else { continue };
        let part = |(pid, time): (&u32, &Duration)| {
            let (long, short) = waited.get(pid).filter(|(long, short)| short <= long && *long > 0)?;
            let there = (time.as_nanos() as f64 / *long as f64).min(1.0);
            Some((*pid, Duration::from_nanos(*short).mul_f64(there)))
        };
        let short: Waits = waiting.waits.iter().filter_map(part).collect();
        let asked = Duration::from_nanos(whole(&queue.of(&Asker::Tree(whose.asker))).ns as u64);
        let (room, sum) = (asked.saturating_sub(waiting.whole()), short.values().sum::<Duration>());
        let fits = (room.as_secs_f64() / sum.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
        waiting.short = short.into_iter().map(|(pid, time)| (pid, time.mul_f64(fits))).collect();
    }
}
