//! The time that tasks lose because a rule of the scheduler (a quota, an affinity mask) keeps CPU from them.
//!
//! `would` runs the ideal scheduler of `fair.rs` on what the tasks wanted (`demand.rs`), with the rule lifted.
//! A task's loss is its time x (1 - CPU time got / CPU time it would have got), never more than its real wait.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::table::{Cgroup, Task};

use crate::Evidence;
use crate::cpu::allowed::{Allowed, Cpus};
use crate::cpu::demand::{Slack, absorbed, wanted};
use crate::cpu::fair::{BEFORE_ALL, Change, Group, Shares, Want};
use crate::cpu::room::Times;
use crate::cpu::spin::Spun;

/// The rules that the counterfactual lifts.
#[derive(Debug, Clone, Default)]
pub struct Lift {
    /// Quotas of these cgroups.
    pub quotas: BTreeSet<u64>,
    /// Affinity masks of these tasks (index into the task table).
    pub masks: BTreeSet<usize>,
    /// What these tasks want beyond this much CPU time (ns).
    pub beyond: BTreeMap<usize, f64>,
}

/// A task that lost less than this share of its time is not counted among the victims.
const NOTICEABLE: f64 = 0.01;

/// A task that lived for this share of the window had the same competitors as the whole window.
const RESIDENT: f64 = 0.5;

/// A task that is due less than this share of what another task is due yields to it: five nice levels, or a group of a third of
/// the weight. Between tasks that are due about the same, CPU time would only move from one to the other.
const YIELDS: f64 = 1.0 / 3.0;

/// CPUs always have some idle time between two tasks: less than this share of one CPU's window.
pub const LEFT_OVER: f64 = 0.05;

/// CPU time that tasks could have had without taking it from their equals.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Room {
    /// CPU time that no task used.
    pub idle: Duration,
    /// CPU time of tasks that are due a fraction of what these are due, while these waited for each other or for their equals.
    pub of_lesser: Duration,
    /// More of these tasks and of their equals are bound to this mask than it has CPUs.
    pub crowded: bool,
}

/// Time lost by a set of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    /// Best guess.
    pub likely: Duration,
    /// Lower bound: sleeps absorb all that they could have absorbed.
    pub low: Duration,
    /// Upper bound: sleeps absorb only what they must have absorbed.
    pub high: Duration,
    /// Time the tasks were ready and not running.
    pub raw: Duration,
    /// The longest single wait.
    pub worst: Duration,
    /// Number of waits.
    pub waits: u64,
    /// The part of the window for which the tasks with a noticeable loss lived, summed up.
    pub lived: Duration,
    /// Tasks that lost noticeably.
    pub tasks: u64,
    /// The part of `likely` that these tasks lost.
    pub felt: Duration,
}

impl Loss {
    /// A part of it, 0 to 1.
    #[must_use]
    pub fn part(self, part: f64) -> Loss {
        let [likely, low, high] =
            [self.likely, self.low, self.high].map(|lost| lost.mul_f64(part.clamp(0.0, 1.0)));
        Loss { likely, low, high, ..self }
    }
}

impl Loss {
    /// The loss, limited to this much.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Loss {
        let part = |lost: Duration| if lost > most { most.as_secs_f64() / lost.as_secs_f64() } else { 1.0 };
        let high = self.high.min(most);
        let loss = self.part(part(self.likely));
        Loss { high, low: loss.low.min(high), likely: loss.likely.min(high), ..loss }
    }
}

/// One of the guesses of what sleeps absorb.
type Pick = fn(&Slack) -> f64;

/// For the likely loss, the highest (sleeps absorb least), the lowest.
const PICKS: [Pick; 3] = [|a| a.likely, |a| a.low, |a| a.high];
const LIKELY: usize = 0;

/// How much of which CPU each task had and wanted in one window.
pub struct FairShareModel<'r> {
    tasks: &'r [Task],
    groups: BTreeMap<u64, Group>,
    capacity: f64,
    idle: f64,
    /// Tasks of whyslow itself: without it the others would have had its CPU time.
    own: BTreeSet<usize>,
    /// How long tasks of other programs were ready: by mask, then those whose mask is not known, then those that are not bound.
    ready: Vec<f64>,
    ready_anywhere: f64,
    ready_unbound: f64,
    cpu: f64,
    cpus: u32,
    allowed: Allowed,
    times: Times,
    /// Why no task here has a fair share, if so.
    unfair: Option<Missing>,
    /// What tasks spun, where that was requested.
    spun: Spun,
    slack: OnceCell<Vec<Slack>>,
    /// Shares as they are, for each guess: first with the masks as they are, then with the leftover CPU time available to tasks
    /// whose mask is lifted.
    shares: [OnceCell<AsIs>; 6],
}

/// Shares without anything lifted.
struct AsIs {
    shares: Shares,
    /// What visitors (see `bound_visitors`) would gain together, and each alone.
    gains: f64,
    gain_of: Vec<f64>,
}

impl<'r> FairShareModel<'r> {
    /// From the tables of tasks and cgroups.
    pub fn of(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let tasks = ev.tasks()?;
        let cpu = ev.window().as_nanos() as f64;
        let cpus = ev.recording().meta.cpus.max(1);
        let got: f64 = tasks.iter().map(|t| t.exec_ns as f64).sum();
        let stolen = ev.steal().map_or(0.0, |d| d.as_nanos() as f64);
        let allowed = Allowed::of(ev, tasks);
        let times = Times::of(ev, tasks, &allowed, cpu);
        // Reserved CPUs are idle on purpose: no task could have had that time. Nor could a task have had the time of interrupts.
        let kept = allowed.online().without(allowed.common());
        let to_be_had = match times.idle(allowed.common()) {
            Some(counted) => got + counted,
            None => cpu * f64::from(cpus) - stolen - times.idle_at_most(&kept, &allowed),
        };
        let capacity = to_be_had.min(cpu * f64::from(cpus) - stolen).max(got);
        let cgroups = ev.cgroups()?;
        let mut groups: BTreeMap<u64, Group> = cgroups.iter().filter_map(|c| group_of(c, cpu)).collect();
        let root = cgroups.iter().find(|c| c.path == "/" && groups.contains_key(&c.id)).map_or(0, |c| c.id);
        groups.extend(tasks.iter().filter_map(|task| autogroup(task, root)));
        let idle = (capacity - got).max(0.0);
        let (slack, shares) = (OnceCell::new(), Default::default());
        let (unfair, spun) = (unfair(ev, tasks), Spun::default());
        let own_tasks = (0..tasks.len()).filter(|at| ev.is_own(tasks[*at].pid, tasks[*at].tgid));
        let mut fair = FairShareModel {
            tasks,
            groups,
            capacity,
            idle,
            own: own_tasks.collect(),
            ready: vec![0.0; allowed.masks().len()],
            ready_anywhere: 0.0,
            ready_unbound: 0.0,
            cpu,
            cpus,
            allowed,
            times,
            unfair,
            spun,
            slack,
            shares,
        };
        fair.note_who_was_ready();
        Ok(fair)
    }

    fn note_who_was_ready(&mut self) {
        for (at, task) in self.tasks.iter().enumerate().filter(|(at, _)| !self.own.contains(at)) {
            let ns = task.runnable_ns as f64;
            match self.allowed.number(at).and_then(|mask| self.ready.get_mut(mask)) {
                Some(ready) => *ready += ns,
                None => self.ready_anywhere += ns,
            }
            if !self.allowed.is_bound(at) {
                self.ready_unbound += ns;
            }
        }
    }

    /// How long tasks were ready that may use one of these CPUs: they would have been the first to get CPU time taken there.
    fn ready_for(&self, cpus: &Cpus) -> f64 {
        let masks = self.allowed.masks().iter().zip(&self.ready).filter(|(mask, _)| mask.meet(cpus));
        self.ready_anywhere + masks.map(|(_, ns)| ns).sum::<f64>()
    }

    /// The same for questions about losses: an error if no task here has a fair share. A thread that waits for a CPU only to spin
    /// on it loses nothing.
    pub fn of_losses(ev: &Evidence<'r>) -> Result<Self, Missing> {
        let mut fair = FairShareModel::of(ev)?;
        // The kernel counts how long each task was ready, but not how its sleeps would have shrunk.
        ev.waits_were_seen()?;
        if let Some(why) = fair.unfair.take() {
            return Err(why);
        }
        fair.spun = Spun::of(ev);
        Ok(fair)
    }

    /// Which CPUs tasks may use.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// The time that tasks spun.
    #[must_use]
    pub fn spun(&self) -> &Spun {
        &self.spun
    }

    /// The time that a task was ready while others had its CPUs: an upper bound.
    #[must_use]
    pub fn behind_others(&self, at: usize) -> u64 {
        let Some(task) = self.tasks.get(at) else { return 0 };
        let Some(mask) = self.allowed.number(at) else { return task.runnable_ns };
        (self.times.behind_others(mask, task.exec_ns, &self.allowed) as u64).min(task.runnable_ns)
    }

    #[must_use]
    pub fn tasks(&self) -> &'r [Task] {
        self.tasks
    }

    /// Online CPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// CPU time that tasks left over. whyslow is not one of these tasks; tasks that were ready for its CPU time would have had that.
    fn left_over(&self) -> f64 {
        self.idle + (self.own(&Cpus::default()) - self.ready_unbound).max(0.0)
    }

    /// The task belongs to whyslow itself.
    #[must_use]
    pub fn is_own(&self, at: usize) -> bool {
        self.own.contains(&at)
    }

    /// CPU time of whyslow itself, without its tasks that are bound to `beside`.
    fn own(&self, beside: &Cpus) -> f64 {
        let bound = |at: usize| self.allowed.mask(at).is_some_and(|mask| mask.are_in(beside));
        let own = self.own.iter().filter(|at| !bound(**at)).filter_map(|at| self.tasks.get(*at));
        own.map(|task| task.exec_ns as f64).sum()
    }

    /// The time that each of `members`, all of one mask, can have waited because whyslow had their CPUs: an upper bound.
    #[must_use]
    pub fn behind_own(&self, members: &BTreeSet<usize>) -> u64 {
        let number = members.first().and_then(|at| self.allowed.number(*at));
        let Some(mask) = number.and_then(|number| self.allowed.masks().get(number)) else { return 0 };
        let common = self.allowed.common();
        let (outside, inside) = (common.without(mask), common.and(mask));
        let beside = self.times.own_at_least(&outside, &inside, self.own(&inside), &self.allowed);
        let own = (self.own(&Cpus::default()) - beside).max(0.0);
        (own / f64::from(mask.count().max(1))) as u64
    }

    /// CPU time that no task used.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle as u64)
    }

    fn slack(&self) -> &[Slack] {
        self.slack.get_or_init(|| self.tasks.iter().map(absorbed).collect())
    }

    /// What the tasks `victims` lose to the rules in `lift`.
    #[must_use]
    pub fn loss(&self, victims: &BTreeSet<usize>, lift: &Lift) -> Loss {
        self.losses(&[victims], lift).pop().unwrap_or_default()
    }

    /// What each of these sets of tasks, which have no task in common, loses to the rules in `lift`.
    #[must_use]
    pub fn losses(&self, parties: &[&BTreeSet<usize>], lift: &Lift) -> Vec<Loss> {
        let all: BTreeSet<usize> = parties.iter().flat_map(|party| party.iter().copied()).collect();
        let would = |pick: usize| {
            let would = self.would(pick, lift, all.iter().copied());
            (all.iter().copied().zip(would).collect::<BTreeMap<usize, f64>>(), PICKS[pick])
        };
        let would = [0, 1, 2].map(would);
        parties.iter().map(|party| self.loss_of(party, &would)).collect()
    }

    /// `would`: what each task would get, if sleeps absorb the likely, the least, the most.
    fn loss_of(&self, victims: &BTreeSet<usize>, would: &[(BTreeMap<usize, f64>, Pick); 3]) -> Loss {
        let (slack, [likely, high, low]) = (self.slack(), would);
        let mut loss = Loss::default();
        for at in victims {
            let Some(task) = self.tasks.get(*at) else { continue };
            let by = |(would, pick): &(BTreeMap<usize, f64>, Pick)| {
                lost_ns(task, would.get(at).copied().unwrap_or(0.0), pick(&slack[*at]))
            };
            let (least, spun, most) = self.spun.of_task(task.pid);
            let (lost, low, high) = (by(likely), by(low), by(high));
            let useful = |lost: Duration, spun: f64| lost.mul_f64(1.0 - spun.clamp(0.0, 1.0));
            let (low, high) = (useful(low.min(lost), most), useful(high.max(lost), least));
            let lost = useful(lost, spun);
            loss.likely += lost;
            loss.low += low;
            loss.high += high;
            loss.raw += Duration::from_nanos(task.runnable_ns);
            loss.worst = loss.worst.max(Duration::from_nanos(task.runnable_worst_ns));
            loss.waits = loss.waits.saturating_add(task.runnable_count);
            if lost.as_nanos() as f64 > NOTICEABLE * task.lived_ns as f64 {
                loss.lived += Duration::from_nanos(task.lived_ns);
                loss.felt += lost;
                loss.tasks += 1;
            }
        }
        loss
    }

    /// The length of the window.
    #[must_use]
    pub fn window_ns(&self) -> f64 {
        self.cpu
    }

    /// The CPU time that `tasks` would get together, if their sleeps absorb only what they must.
    #[must_use]
    pub fn would_get(&self, tasks: &BTreeSet<usize>, lift: &Lift) -> f64 {
        const ABSORB_LEAST: usize = 1;
        self.would(ABSORB_LEAST, lift, tasks.iter().copied()).iter().sum()
    }

    /// The CPU time that lifting their affinity mask would open to the tasks `members`, all of one mask.
    ///
    /// If a task competes with none but lesser tasks on the CPUs of its mask, it would compete with as many on the other CPUs: the
    /// scheduler spreads them, which the shares over all CPUs do not model. So beside lesser tasks a mask costs time only where
    /// more tasks are bound to it than it has CPUs.
    #[must_use]
    pub fn room(&self, members: &BTreeSet<usize>, lift: &Lift) -> Room {
        let number = members.first().and_then(|at| self.allowed.number(*at));
        let mask = number.and_then(|number| self.allowed.masks().get(number)).cloned().unwrap_or_default();
        let (crowded, lesser) = self.of_lesser(members, lift, number, mask.count() as usize);
        let common = self.allowed.common();
        let (outside, inside) = (common.without(&mask), common.and(&mask));
        let own = self.times.own_at_least(&outside, &inside, self.own(&inside), &self.allowed);
        let idle = self.times.idle_at_least(&outside, &inside, self.idle, &self.allowed)
            + (own - self.ready_for(&outside)).max(0.0);
        let [idle, of_lesser] = [idle, lesser].map(|ns| Duration::from_nanos(ns as u64));
        Room { idle, of_lesser, crowded }
    }

    /// Whether `members` and their equals with the mask `number` are more than its CPUs, and the CPU time that lesser tasks
    /// would give them then.
    fn of_lesser(
        &self,
        members: &BTreeSet<usize>,
        lift: &Lift,
        number: Option<usize>,
        cpus: usize,
    ) -> (bool, f64) {
        let bound: BTreeSet<usize> = match number {
            Some(_) => {
                let all = (0..self.tasks.len()).filter(|at| self.allowed.number(*at) == number);
                all.filter(|at| !self.own.contains(at)).collect()
            }
            None => BTreeSet::new(),
        };
        if bound.len() <= cpus {
            return (false, 0.0); // whatever the tasks are due: most often this avoids the search of the whole table
        }
        // First the tasks that are bound there alone: the others are needed only if these are too many.
        let whom: BTreeSet<usize> = bound.union(members).copied().collect();
        let would: BTreeMap<usize, f64> =
            whom.iter().copied().zip(self.would(LIKELY, lift, whom.iter().copied())).collect();
        let due = members.iter().filter_map(|at| would.get(at)).sum::<f64>() / members.len().max(1) as f64;
        let yields =
            |at: usize, would: f64| would < YIELDS * due && !members.contains(&at) && !self.own.contains(&at);
        let equals = bound.iter().filter(|at| !yields(**at, would.get(at).copied().unwrap_or(0.0)));
        if equals.count() <= cpus {
            return (false, 0.0);
        }
        let would = self.would(LIKELY, lift, 0..self.tasks.len());
        let taken = self.tasks.iter().zip(&would).enumerate().filter(|(at, (_, would))| yields(*at, **would));
        (true, taken.map(|(_, (task, would))| (task.exec_ns as f64 - would).max(0.0)).sum())
    }

    /// Shares as they are. `let_out`: a task's mask is lifted.
    fn as_is(&self, pick: usize, let_out: bool) -> &AsIs {
        // If CPU time was left over, a task that may use any CPU could have had it, so that is not what it waited for. The leftover
        // time is there for tasks whose mask is lifted.
        let could_have_had = let_out && self.left_over() >= LEFT_OVER * self.cpu;
        self.shares[pick + if could_have_had { 3 } else { 0 }].get_or_init(|| {
            let texts: Vec<String> =
                self.allowed.masks().iter().map(crate::cpu::allowed::Cpus::list).collect();
            let want = |(at, (task, absorbed)): (usize, (&'r Task, &Slack))| {
                let number = self.allowed.number(at).filter(|_| self.allowed.is_bound(at));
                let unbound = number.is_none();
                let mask = number.and_then(|number| self.allowed.masks().get(number));
                let urgent = task.is_real_time();
                Want {
                    group: if urgent { 0 } else { scheduled_in(task) },
                    wants: match could_have_had && unbound {
                        true if self.own.contains(&at) => 0.0,
                        true => task.exec_ns as f64,
                        false => wanted(task, PICKS[pick](absorbed)),
                    },
                    weight: if urgent { BEFORE_ALL } else { task.weight.max(1) as f64 },
                    mask: number.and_then(|number| texts.get(number)).map_or("", String::as_str),
                    mask_cpus: f64::from(mask.map_or(self.cpus, crate::cpu::allowed::Cpus::count)),
                }
            };
            let wants: Vec<Want<'_>> = self.tasks.iter().zip(self.slack()).enumerate().map(want).collect();
            let shares = Shares::of(&wants, &self.groups, self.capacity, self.cpu);
            let all = shares.all().into_iter().enumerate();
            let gain_of: Vec<f64> =
                all.map(|(at, would)| self.visitors_gain(at, would).unwrap_or(0.0)).collect();
            AsIs { shares, gains: gain_of.iter().sum(), gain_of }
        })
    }

    /// CPU time of the tasks `whom` (in order, each once).
    fn would(&self, pick: usize, lift: &Lift, whom: impl Iterator<Item = usize>) -> Vec<f64> {
        let as_is = self.as_is(pick, !lift.masks.is_empty());
        // A task whose mask is lifted wants as much as it wanted inside the mask.
        let change = Change {
            uncapped: lift.quotas.clone(),
            unmasked: lift.masks.clone(),
            wants: lift.beyond.clone(),
        };
        let whom: Vec<usize> = whom.collect();
        // The same holds for tasks with a changed want: what they gain is taken from no other task.
        let changed: BTreeSet<usize> = lift.masks.iter().chain(lift.beyond.keys()).copied().collect();
        let others = changed.into_iter().filter(|at| whom.binary_search(at).is_err());
        let all: Vec<usize> = whom.iter().copied().chain(others).collect();
        let mut would = as_is.shares.with(&change, all);
        let had = |at: usize| self.tasks.get(at).map_or(0.0, |task| task.exec_ns as f64);
        let freed: f64 = lift.beyond.iter().map(|(at, wants)| (had(*at) - wants).max(0.0)).sum();
        self.bound_visitors(as_is, self.idle + freed, &mut would);
        would.into_iter().take(whom.len()).map(|(_, would)| would).collect()
    }

    /// A task that lived for a part of the window only (a visitor) competed with the tasks that ran just then, which the shares over the
    /// whole window do not show. All that visitors can gain for sure is `to_be_had`: CPU time that no task used, or that tasks would
    /// not have used that are to want less. A visitor outside `would` gains as much as with nothing lifted.
    fn bound_visitors(&self, as_is: &AsIs, to_be_had: f64, would: &mut [(usize, f64)]) {
        let gains: Vec<(usize, usize, f64)> = would
            .iter()
            .enumerate()
            .filter_map(|(place, (at, would))| Some((place, *at, self.visitors_gain(*at, *would)?)))
            .collect();
        let before: f64 = gains.iter().filter_map(|(_, at, _)| as_is.gain_of.get(*at)).sum();
        let all = (as_is.gains - before).max(0.0) + gains.iter().map(|(.., gain)| gain).sum::<f64>();
        let scale = if all > to_be_had { to_be_had / all } else { 1.0 };
        for (place, at, gain) in gains {
            let got = self.tasks.get(at).map_or(0.0, |task| task.exec_ns as f64);
            if let Some((_, would)) = would.get_mut(place) {
                *would = got + scale * gain;
            }
        }
    }

    /// If the task is a visitor: what it gains.
    fn visitors_gain(&self, at: usize, would: f64) -> Option<f64> {
        let task = self.tasks.get(at).filter(|task| (task.lived_ns as f64) < RESIDENT * self.cpu)?;
        Some((would - task.exec_ns as f64).max(0.0))
    }
}

/// With a sched_ext scheduler a BPF program decides which task runs (since Linux 6.12). If it schedules all tasks, their policies do not
/// show it: where the kernel was not asked whether there is one, that is not known.
fn unfair(ev: &Evidence<'_>, tasks: &[Task]) -> Option<Missing> {
    const EXT: u32 = 7; // include/uapi/linux/sched.h: SCHED_EXT
    const FOLDER: &str = "sys/kernel/sched_ext/";
    let read = |file: &str| ev.file(&format!("{FOLDER}{file}"), |text| Ok(text.trim().to_owned()));
    let some_are = || tasks.iter().any(|task| task.policy == EXT);
    let decides = match read("state").as_deref() {
        Ok("disabled") => false, // then SCHED_EXT is treated as SCHED_OTHER
        // Without switch_all only the tasks that chose SCHED_EXT are its own.
        Ok(_) => some_are() || read("switch_all").as_deref() != Ok("0"),
        Err(_) if some_are() => true,
        Err(_) => {
            let notes = ev.recording().missing.iter().map(|note| &note.missing);
            let mut unread = notes.filter(|why| why.what().starts_with(FOLDER));
            return unread.find(|why| !matches!(why, Missing::NotInKernel { .. })).cloned();
        }
    };
    let named = read("root/ops").map_or_else(|_| String::new(), |name| format!(" ({name})"));
    decides.then(|| Missing::NotInKernel {
        what: "fair share of CPU for each task".into(),
        needs: format!("the kernel's own scheduler: here a sched_ext program{named} decides which task runs"),
    })
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

/// Ids of autogroups count from 1, like ids of cgroups: ids of autogroups have this bit.
const AUTOGROUP: u64 = 1 << 63;

fn scheduled_in(task: &Task) -> u64 {
    if task.autogroup == 0 { task.cpu_cgroup } else { AUTOGROUP | task.autogroup }
}

/// An autogroup is a sibling of the cgroups below the root.
fn autogroup(task: &Task, root: u64) -> Option<(u64, Group)> {
    let group = Group { parent: root, weight: task.autogroup_weight.max(2) as f64, cap: None };
    (task.autogroup != 0).then(|| (scheduled_in(task), group))
}
