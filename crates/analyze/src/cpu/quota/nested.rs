//! Which of nested quotas must change? A pod and its container often have the same quota: then lifting either alone gains
//! nothing, and it is an accident which of the two counters of throttled periods rises.
//!
//! Tasks below the same quotas are asked together, so that each loss is reported once. First all quotas above them are lifted; then
//! each quota is put back whose return costs no gain. The quotas that are still lifted must change. Of these, the one whose
//! lifting alone gains most binds first.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::table::Cgroup;

use super::{NOTICEABLE, ThrottledTime, is_throttled, throttled_ratio};
use crate::MAX_DEPTH;
use crate::cpu::loss::{FairShareModel, Lift};
use crate::hashing::Table;

/// A quota whose lifting adds less than this part of the CPU time need not change: the guess is not more precise than that.
const ADDS: f64 = 0.05;
/// Two quotas are alike if the gains of lifting them differ by less than this.
const ALIKE: f64 = 0.05;

/// Tasks that a quota held back.
pub(crate) struct Held<'r> {
    /// The group whose quota binds first.
    pub group: &'r Cgroup,
    /// Groups whose quotas must change with it, the tightest first.
    pub with: Vec<&'r Cgroup>,
    /// The tasks (index into the task table).
    pub tasks: BTreeSet<usize>,
}

impl Held<'_> {
    /// The change that lifts all of the quotas.
    pub fn lift(&self) -> Lift {
        let quotas = std::iter::once(self.group).chain(self.with.iter().copied()).map(|group| group.id);
        Lift { quotas: quotas.collect(), ..Lift::default() }
    }
}

/// Whether one of these quotas, or nested ones together, ran out so often that tasks noticed it. If several are used up at the same
/// time, the kernel counts the one that it finds first (kernel/sched/fair.c, throttle_cfs_rq), and while a group is throttled no group
/// below it can use up its own quota. Where counters have no value at the begin of the window, the waits of the tasks are used.
fn are_noticed(fair: &FairShareModel<'_>, times: &ThrottledTime, (path, tasks): &Class<'_>) -> bool {
    let noticed = NOTICEABLE.ratio();
    if path.iter().map(|group| throttled_ratio(group).ratio()).sum::<f64>() >= noticed {
        return true;
    }
    let tasks = || tasks.iter().filter_map(|at| fair.tasks().get(*at));
    let lived: f64 = tasks().map(|task| task.lived_ns as f64).sum();
    let throttled: f64 = tasks().filter_map(|task| times.get(&task.pid)).map(|ns| *ns as f64).sum();
    path.iter().any(|group| group.uncounted) && throttled > 0.0 && throttled >= noticed * lived
}

/// Sets of nested quotas that are examined: those with the longest waits. Each one asks what all tasks beside it would get, and more
/// findings than that are not read.
pub(crate) const MOST_CLASSES: usize = 512;

/// Tasks that quotas held back for more than `least_ns`, by the quota that binds first; and whether all sets of quotas were
/// examined.
pub(super) fn held<'r>(
    fair: &FairShareModel<'_>,
    times: &ThrottledTime,
    cgroups: &'r [Cgroup],
    least_ns: f64,
) -> (Vec<Held<'r>>, bool) {
    let mut classes = classes(fair, cgroups);
    let below = below(&classes);
    let waited = |tasks: &BTreeSet<usize>| -> f64 {
        tasks.iter().filter_map(|at| fair.tasks().get(*at)).map(|task| task.runnable_ns as f64).sum()
    };
    classes.retain(|class| are_noticed(fair, times, class) && waited(&class.1) > least_ns);
    classes.sort_by(|a, b| waited(&b.1).total_cmp(&waited(&a.1)));
    let all = classes.len() <= MOST_CLASSES;
    classes.truncate(MOST_CLASSES);
    let alone: Vec<_> =
        classes.iter().map(|class| must_change(fair, class, &BTreeSet::new(), &below)).collect();
    let mut found: BTreeMap<u64, Held<'r>> = BTreeMap::new();
    for (at, class) in classes.iter().enumerate() {
        let tasks = &class.1;
        let beside = beside(at, &classes, &alone);
        let needed =
            if beside.is_empty() { alone[at].clone() } else { must_change(fair, class, &beside, &below) };
        let Some((group, with)) = needed else { continue };
        let held =
            found.entry(group.id).or_insert_with(|| Held { group, with: Vec::new(), tasks: BTreeSet::new() });
        held.tasks.extend(tasks);
        for group in with {
            if held.with.iter().all(|known| known.id != group.id) {
                held.with.push(group);
            }
        }
        held.with.sort_by(|a, b| tightness(a).total_cmp(&tightness(b)));
    }
    (found.into_values().collect(), all)
}

/// All tasks below each quota.
fn below(classes: &[Class<'_>]) -> BTreeMap<u64, BTreeSet<usize>> {
    let mut below: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for (path, tasks) in classes {
        path.iter().for_each(|group| below.entry(group.id).or_default().extend(tasks));
    }
    below
}

/// The quota that binds first, and those that must change with it.
type Needed<'r> = (&'r Cgroup, Vec<&'r Cgroup>);

/// Quotas that must change for other tasks below the same ones: once they are lifted, those tasks want more of what is shared.
fn beside(at: usize, classes: &[Class<'_>], alone: &[Option<Needed<'_>>]) -> BTreeSet<u64> {
    let own: BTreeSet<u64> = classes[at].0.iter().map(|group| group.id).collect();
    let shares = |class: &Class<'_>| class.0.iter().any(|group| own.contains(&group.id));
    let others = classes
        .iter()
        .zip(alone)
        .filter(|(class, _)| shares(class))
        .filter_map(|(_, needed)| needed.as_ref());
    let theirs = others.flat_map(|(first, with)| std::iter::once(first).chain(with)).map(|group| group.id);
    theirs.filter(|id| !own.contains(id)).collect()
}

/// Quotas above a task, from its own group up, and the tasks below just these.
type Class<'r> = (Vec<&'r Cgroup>, BTreeSet<usize>);

fn classes<'r>(fair: &FairShareModel<'_>, cgroups: &'r [Cgroup]) -> Vec<Class<'r>> {
    let by_id: Table<u64, &Cgroup> = cgroups.iter().map(|group| (group.id, group)).collect();
    let mut paths: Table<u64, Vec<&Cgroup>> = Table::default();
    let mut classes: BTreeMap<Vec<u64>, Class<'r>> = BTreeMap::new();
    for (at, task) in fair.tasks().iter().enumerate().filter(|(_, task)| !task.is_real_time()) {
        let path = paths.entry(task.cpu_cgroup).or_insert_with(|| {
            let mut path = Vec::new();
            let mut id = task.cpu_cgroup;
            for _ in 0..MAX_DEPTH {
                let Some(group) = by_id.get(&id) else { break };
                if group.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some()) {
                    path.push(*group);
                }
                id = group.parent;
            }
            path
        });
        if !path.is_empty() {
            let ids = path.iter().map(|group| group.id).collect();
            classes.entry(ids).or_insert_with(|| (path.clone(), BTreeSet::new())).1.insert(at);
        }
    }
    classes.into_values().collect()
}

/// CPUs that a quota allows.
fn tightness(group: &Cgroup) -> f64 {
    let allowed =
        |cpu: &whyslow_model::table::CgroupCpu| Some(cpu.quota_ns? as f64 / cpu.period_ns.max(1) as f64);
    group.cpu.as_ref().and_then(allowed).unwrap_or(f64::INFINITY)
}

/// Which quota of `path` binds first once those `beside` them are lifted, and which must change with it; `None`: nothing is
/// gained.
fn must_change<'r>(
    fair: &FairShareModel<'_>,
    (path, tasks): &Class<'r>,
    beside: &BTreeSet<u64>,
    below: &BTreeMap<u64, BTreeSet<usize>>,
) -> Option<Needed<'r>> {
    let would = |tasks: &BTreeSet<usize>, quotas: &[&Cgroup]| {
        let quotas = quotas.iter().map(|group| group.id).chain(beside.iter().copied());
        let lift = Lift { quotas: quotas.collect(), ..Lift::default() };
        fair.would_get(tasks, &lift)
    };
    let would_get = |quotas: &[&Cgroup]| would(tasks, quotas);
    // The kernel gives a quota to the task that runs first until the quota is used up, whatever the weights: once the quota is too
    // small for all tasks below it, it holds back even tasks whose share by weight it would leave alone.
    let is_enough = |group: &Cgroup| {
        let quota = tightness(group) * fair.window_ns();
        below.get(&group.id).is_none_or(|all| would(all, path) <= (1.0 + ADDS) * quota)
    };
    let mut needed = path.to_vec();
    needed.sort_by(|a, b| is_throttled(a).cmp(&is_throttled(b)).then(tightness(b).total_cmp(&tightness(a))));
    // Below one quota the ideal scheduler shares by weight, but the kernel gives to the task that runs first until the quota is used up:
    // a task that had less than its share by weight was held back all the same.
    let got: f64 = tasks.iter().filter_map(|at| fair.tasks().get(*at)).map(|task| task.exec_ns as f64).sum();
    let (none, all) = (would_get(&[]).min(got), would_get(&needed));
    if all <= none {
        return None;
    }
    for group in needed.clone() {
        let without: Vec<&Cgroup> = needed.iter().copied().filter(|other| other.id != group.id).collect();
        if !without.is_empty() && would_get(&without) >= (1.0 - ADDS) * all && is_enough(group) {
            needed = without;
        }
    }
    let alone = |group: &&Cgroup| ((would_get(&[*group]) - none) / (all - none) / ALIKE) as u64;
    let depth =
        |group: &&Cgroup| path.len() - path.iter().position(|other| other.id == group.id).unwrap_or(0);
    let first = needed.iter().copied().max_by(|a, b| {
        let by_gain = alone(a).cmp(&alone(b)).then(tightness(b).total_cmp(&tightness(a)));
        by_gain.then(depth(a).cmp(&depth(b)))
    })?;
    let with: Vec<&Cgroup> = needed.into_iter().filter(|other| other.id != first.id).collect();
    Some((first, with))
}
