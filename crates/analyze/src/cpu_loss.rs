//! The time that tasks lose because a rule of the scheduler (a quota, an affinity mask) keeps CPU from them.
//!
//! `would` runs the ideal scheduler of `fair.rs` on what the tasks wanted (`demand.rs`), with the rule lifted.
//! A task's loss is its time x (1 - CPU time got / CPU time it would have got), never more than it really waited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::table::{Cgroup, Task};

use crate::Evidence;
use crate::demand::{absorbed, wanted};
use crate::fair::{Group, Want, share_out};

/// What is lifted in the counterfactual.
#[derive(Debug, Clone, Default)]
pub struct Lift {
    /// Quotas of these cgroups.
    pub quotas: BTreeSet<u64>,
    /// Affinity masks of these tasks (index into the task table).
    pub masks: BTreeSet<usize>,
    /// What these tasks want beyond so much CPU time (ns).
    pub beyond: BTreeMap<usize, f64>,
}

/// A task that lost less than this share of its time is not counted among the victims.
const NOTICEABLE: f64 = 0.01;

/// A task that lived for this share of the window met the same competitors as the window did.
const RESIDENT: f64 = 0.5;

/// Who is due less than this share of what another is due yields to him: five nice levels, or a group of a third of
/// the weight. Between tasks that are due about the same, CPU time only changes hands.
const YIELDS: f64 = 1.0 / 3.0;

/// Less of one CPU than this share of the window is what idle CPUs always have between two tasks.
pub const LEFT_OVER: f64 = 0.05;

/// CPU time that tasks could have had without taking it from their equals.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Room {
    /// Nobody used it.
    pub idle: Duration,
    /// Tasks used it that are due a fraction of what these are, while these waited for each other or for their equals.
    pub of_lesser: Duration,
    /// More of these and of their equals are bound to this mask than its CPUs can take.
    pub crowded: bool,
}

/// Time lost by a set of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    /// Best guess.
    pub likely: Duration,
    /// At least: sleeps absorb all that they could have absorbed.
    pub low: Duration,
    /// At most: sleeps absorb nothing that they need not have.
    pub high: Duration,
    /// Time the tasks were ready and not running.
    pub raw: Duration,
    /// The longest single wait.
    pub worst: Duration,
    /// Number of waits.
    pub waits: u64,
    /// Time of the window that those who lost noticeably lived.
    pub lived: Duration,
    /// Tasks that lost noticeably.
    pub tasks: u64,
}

/// The scheduler's world of one window.
pub struct World<'r> {
    tasks: &'r [Task],
    groups: BTreeMap<u64, Group>,
    capacity: f64,
    cpu: f64,
    cpus: u32,
}

impl<'r> World<'r> {
    /// From the tables of tasks and cgroups.
    pub fn of(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let tasks = ev.tasks()?;
        let cpu = ev.window().as_nanos() as f64;
        let cpus = ev.recording().meta.cpus.max(1);
        let got: f64 = tasks.iter().map(|t| t.exec_ns as f64).sum();
        let stolen = ev.steal().map_or(0.0, |d| d.as_nanos() as f64);
        let capacity = (cpu * f64::from(cpus) - stolen).max(got);
        let cgroups = ev.cgroups()?;
        let mut groups: BTreeMap<u64, Group> = cgroups.iter().filter_map(|c| group_of(c, cpu)).collect();
        let root = cgroups.iter().find(|c| c.path == "/" && groups.contains_key(&c.id)).map_or(0, |c| c.id);
        groups.extend(tasks.iter().filter_map(|task| autogroup(task, root)));
        Ok(World { tasks, groups, capacity, cpu, cpus })
    }

    /// The tasks.
    #[must_use]
    pub fn tasks(&self) -> &'r [Task] {
        self.tasks
    }

    /// Online CPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// CPU time that nobody used.
    #[must_use]
    pub fn idle(&self) -> Duration {
        let got: f64 = self.tasks.iter().map(|t| t.exec_ns as f64).sum();
        Duration::from_nanos((self.capacity - got).max(0.0) as u64)
    }

    /// What the tasks `victims` lose to what `lift` would lift.
    #[must_use]
    pub fn loss(&self, victims: &BTreeSet<usize>, lift: &Lift) -> Loss {
        let absorption: Vec<_> = self.tasks.iter().map(absorbed).collect();
        let would = |pick: fn(&crate::demand::Absorbed) -> f64| {
            let parts: Vec<f64> = absorption.iter().map(pick).collect();
            (self.would(&parts, lift), parts)
        };
        let (likely, high, low) = (would(|a| a.likely), would(|a| a.low), would(|a| a.high));
        let mut loss = Loss::default();
        for at in victims {
            let task = &self.tasks[*at];
            let by = |(would, absorbed): &(Vec<f64>, Vec<f64>)| lost_ns(task, would[*at], absorbed[*at]);
            let lost = by(&likely);
            loss.likely += lost;
            loss.low += by(&low).min(lost);
            loss.high += by(&high).max(lost);
            loss.raw += Duration::from_nanos(task.runnable_ns);
            loss.worst = loss.worst.max(Duration::from_nanos(task.runnable_worst_ns));
            loss.waits += task.runnable_count;
            if lost.as_nanos() as f64 > NOTICEABLE * task.lived_ns as f64 {
                loss.lived += Duration::from_nanos(task.lived_ns);
                loss.tasks += 1;
            }
        }
        loss
    }

    /// What there was to be had for the tasks `members`, all of one affinity mask, were it lifted.
    ///
    /// Who meets none but lesser tasks on the CPUs of its mask meets as many on the others: the scheduler spreads them, and
    /// the shares over all CPUs do not know it. So beside lesser tasks a mask costs time only where more than its CPUs
    /// can take are bound to it.
    #[must_use]
    pub fn room(&self, members: &BTreeSet<usize>, lift: &Lift) -> Room {
        let absorbed: Vec<f64> = self.tasks.iter().map(|task| absorbed(task).likely).collect();
        let would = self.would(&absorbed, lift);
        let due = members.iter().filter_map(|at| would.get(*at)).sum::<f64>() / members.len().max(1) as f64;
        let yields = |at: usize, would: f64| !members.contains(&at) && would < YIELDS * due;
        let all = || self.tasks.iter().zip(&would).enumerate();
        let mask = members.first().and_then(|at| self.tasks.get(*at));
        let bound = all().filter(|(at, (task, would))| {
            mask.is_some_and(|member| task.allowed == member.allowed) && !yields(*at, **would)
        });
        let crowded = bound.count() > mask.map_or(0, |member| member.allowed_count as usize);
        let taken = all().filter(|(at, (_, would))| crowded && yields(*at, **would));
        let lesser: f64 = taken.map(|(_, (task, would))| (task.exec_ns as f64 - would).max(0.0)).sum();
        Room { idle: self.idle(), of_lesser: Duration::from_nanos(lesser as u64), crowded }
    }

    fn would(&self, absorbed: &[f64], lift: &Lift) -> Vec<f64> {
        // CPU time was left over, and who may use any CPU could have had it: what he waited for was not that. So it is there
        // for those who are let out of their mask.
        let could_have_had = !lift.masks.is_empty() && self.idle().as_nanos() as f64 >= LEFT_OVER * self.cpu;
        let want = |(at, task): (usize, &Task)| {
            let unbound = task.allowed_count >= self.cpus || task.allowed.is_empty();
            let free = lift.masks.contains(&at) || unbound;
            let would_want = || match could_have_had && unbound {
                true => task.exec_ns as f64,
                false => wanted(task, absorbed[at]),
            };
            Want {
                group: scheduled_in(task),
                wants: lift.beyond.get(&at).copied().unwrap_or_else(would_want),
                weight: task.weight.max(1) as f64,
                mask: if free { String::new() } else { task.allowed.clone() },
                mask_cpus: if free { f64::from(self.cpus) } else { f64::from(task.allowed_count) },
            }
        };
        let wants: Vec<Want> = self.tasks.iter().enumerate().map(want).collect();
        let lifted = |(id, group): (&u64, &Group)| {
            let cap = group.cap.filter(|_| !lift.quotas.contains(id));
            (*id, Group { cap, ..*group })
        };
        let groups: BTreeMap<u64, Group> = self.groups.iter().map(lifted).collect();
        let mut would = share_out(&wants, &groups, self.capacity, self.cpu);
        self.bound_visitors(&mut would);
        would
    }

    /// A task that lived for a part of the window only met those who ran just then, of which the shares over the whole
    /// window know nothing: all that such tasks can gain for sure is CPU time that nobody used.
    fn bound_visitors(&self, would: &mut [f64]) {
        let visitors = |(_, (task, _)): &(usize, (&Task, f64))| (task.lived_ns as f64) < RESIDENT * self.cpu;
        let gain = |(task, would): (&Task, f64)| (would - task.exec_ns as f64).max(0.0);
        let pairs: Vec<(usize, (&Task, f64))> =
            self.tasks.iter().zip(would.iter().copied()).enumerate().filter(visitors).collect();
        let gains: f64 = pairs.iter().map(|(_, pair)| gain(*pair)).sum();
        let idle = self.idle().as_nanos() as f64;
        let scale = if gains > idle { idle / gains } else { 1.0 };
        for (at, (task, wanted)) in pairs {
            would[at] = task.exec_ns as f64 + scale * gain((task, wanted));
        }
    }
}

fn lost_ns(task: &Task, would: f64, absorbed: f64) -> Duration {
    let got = task.exec_ns as f64;
    let would = would.max(got);
    let share = if would > 0.0 { 1.0 - got / would } else { 0.0 };
    let most = task.runnable_ns as f64 * (1.0 - absorbed);
    Duration::from_nanos((task.lived_ns as f64 * share).min(most).max(0.0) as u64)
}

fn group_of(cgroup: &Cgroup, window_ns: f64) -> Option<(u64, Group)> {
    let cpu = cgroup.cpu.as_ref()?;
    let cap = cpu.quota_ns.map(|q| window_ns * q as f64 / cpu.period_ns.max(1) as f64);
    Some((cgroup.id, Group { parent: cgroup.parent, weight: cpu.weight.max(2) as f64, cap }))
}

/// Ids of autogroups count from 1, like those of cgroups: theirs have this bit.
const AUTOGROUP: u64 = 1 << 63;

fn scheduled_in(task: &Task) -> u64 {
    if task.autogroup == 0 { task.cpu_cgroup } else { AUTOGROUP | task.autogroup }
}

/// Beside the cgroups below the root.
fn autogroup(task: &Task, root: u64) -> Option<(u64, Group)> {
    let group = Group { parent: root, weight: task.autogroup_weight.max(2) as f64, cap: None };
    (task.autogroup != 0).then(|| (scheduled_in(task), group))
}

/// The cgroups of the subtree below `root`, itself included.
#[must_use]
pub fn subtree(cgroups: &[Cgroup], root: u64) -> BTreeSet<u64> {
    let mut inside = BTreeSet::from([root]);
    // Parents need not come before their children; depth is bounded by the kernel's nesting, 64 is beyond use.
    for _ in 0..64 {
        let before = inside.len();
        inside
            .extend(cgroups.iter().filter(|c| inside.contains(&c.parent)).map(|c| c.id).collect::<Vec<_>>());
        if inside.len() == before {
            break;
        }
    }
    inside
}
