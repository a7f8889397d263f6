//! The CPUs are full: which tasks fill them, and which tasks lose time to that.
//!
//! Signal: hardly any CPU time was left over, at most 10 %. The culprits are the task trees that had most of the CPU time: a tree
//! is a cgroup, else a session, else a process of the system and what it started. A tree fills the CPUs if it had at least a
//! quarter of the used CPU time and wanted at least a quarter of the wanted CPU time; if no tree did, a tree that had half.
//! Lost: what the tasks of each other tree would have got without the fillers, by the fair scheduler of `cpu/fair.rs`. If no
//! other tree lost noticeably, the host is busy, which is no fault. Not this rule: quotas, masks and spinning, which have
//! rules of their own.

mod niceness;
mod siblings;

use std::rc::Rc;
use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Share, Subject, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu::loss::{FairShareModel, Lift, Loss};
use crate::names;
use crate::task_trees::{TaskTree, TaskTrees};

pub const RULE: Rule = Rule {
    id: "full-cpus",
    question: "Are all CPUs full, and do other tasks lose time to the tasks that fill them?",
    what: "Tasks want more CPU time than the CPUs have. A build, a batch job or a runaway loop that runs more threads at once than \
           there are CPUs keeps them full. Other tasks then wait in the run queues, by weight and priority.",
    how: "CPU time that was left over (at most 10 %) by the counters of each CPU; CPU time and time ready of each task tree (cgroup, \
          session, or process and what it started) by the scheduler's tracepoints and the kernel's totals. Counterfactual: an ideal \
          fair scheduler without the trees that had and wanted a quarter of the CPU time (if none: the tree that had half); time lost = task time x (1 - CPU got / CPU it would have got). A cause where \
          another tree lost more than 5 % of its time and more than 1 % of the window; else the host is reported as busy.",
    limits: "Two trees that both fill the CPUs: what they take from each other is no loss, because both want more than there is. Many trees, none of them with a quarter or more: what they take from each other is no loss either. Tasks of one tree: what they take from \
             each other is no loss, with one exception: a process that works often and briefly beside two or more equal processes that \
             fill the CPUs, if one parent started all of them and neither side wakes the other. Tasks with nice 10 or more, or \
             SCHED_IDLE: they chose to wait, so they are no victims, unless tasks that did not choose so wait for them. A victim that is \
             seldom ready for a CPU: only its waits show the loss. A sched_ext scheduler: it cannot tell.",
    sources: "kernel/sched/fair.c (weights, task groups); sched(7), cgroups(7).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// With more than this part of the CPUs' time left over, the CPUs were not full.
const LEFT_OVER: f64 = 0.10;
/// A tree that had this part of the used CPU time, and wanted this part of the wanted CPU time, fills the CPUs.
const FILLS: f64 = 0.25;
/// A tree that had this part of the used CPU time fills the CPUs, too, however little it wanted beside the others.
const HAS_MOST: f64 = 0.5;
/// If many trees fill the CPUs together, this many are named.
const NAMED: usize = 3;
/// A victim lost more than this part of its own time ...
const OF_ITS_TIME: f64 = 0.05;
/// ... and of the window.
const OF_THE_WINDOW: f64 = 0.01;
/// Trees that are examined: those that waited longest for a CPU.
const MOST_TREES: usize = 64;
/// Victims that are reported.
const MOST_REPORTED: usize = 8;
/// A tree that fills the CPUs alone has this part of the used CPU time.
const ALONE: f64 = 0.75;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let fair = ev.counterfactual()?;
    let Some(full) = Full::of(ev, fair) else { return Ok(Vec::new()) };
    if full.together {
        return Ok(vec![busy(ev, &full, None)]);
    }
    let apart = full.apart(ev);
    let mut by_siblings = apart.as_ref().map(|apart| causes(ev, apart, apart.lost(ev))).unwrap_or_default();
    let lost = full.lost(ev);
    let most = lost.iter().map(|(_, loss)| share(loss)).fold(0.0, f64::max);
    // A tree that did little may lose half of its time and still lose little.
    let longest = lost.iter().map(|(_, loss)| loss.felt).max().unwrap_or_default();
    let most = match most > OF_ITS_TIME {
        true => seconds(longest),
        false => format!("{} of its time", Share::of(most, 1.0)),
    };
    by_siblings.extend(causes(ev, &full, lost));
    by_siblings.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    super::first_few(&mut by_siblings, MOST_REPORTED);
    Ok(if by_siblings.is_empty() { vec![busy(ev, &full, Some(&most))] } else { by_siblings })
}

/// The trees that lost noticeably, the largest loss first.
fn causes(ev: &Evidence<'_>, full: &Full<'_>, mut lost: Vec<(&TaskTree, Loss)>) -> Vec<Finding> {
    lost.retain(|(_, loss)| is_victim(ev, loss));
    lost.sort_by_key(|(_, loss)| std::cmp::Reverse(loss.likely));
    lost.truncate(MOST_REPORTED);
    lost.into_iter().map(|(tree, loss)| cause(ev, full, tree, &loss)).collect()
}

/// CPUs without time to spare.
struct Full<'t> {
    fair: &'t FairShareModel<'t>,
    trees: Rc<TaskTrees>,
    /// The trees that fill the CPUs: places in `trees`, the one with most CPU time first.
    fillers: Vec<usize>,
    /// The fillers are only the first of many trees that fill the CPUs together.
    together: bool,
    /// Trees before this place are no victims here.
    from: usize,
    /// CPU time that was used by anything.
    used: f64,
}

impl<'t> Full<'t> {
    /// `None`: the CPUs were not full.
    fn of(ev: &Evidence<'_>, fair: &'t FairShareModel<'t>) -> Option<Self> {
        let (tasks, cpus) = left_over(ev, fair);
        let left = tasks.max(cpus.unwrap_or(tasks));
        if left > LEFT_OVER {
            return None;
        }
        let by_trees = |trees| Self::by(fair, trees, left);
        let of = by_trees(ev.trees_by_name());
        match of {
            Some(full) if !full.together => Some(full),
            // Of many jobs of one runner or terminal no job has much CPU time, but all of them together do.
            of => {
                let whole = by_trees(Rc::new(TaskTrees::by_group(ev)));
                whole.filter(|full| !full.together).or(of)
            }
        }
    }

    fn by(fair: &'t FairShareModel<'t>, trees: Rc<TaskTrees>, left: f64) -> Option<Self> {
        let all = |of: fn(&TaskTree) -> u64| trees.all.iter().map(of).fold(0, u64::saturating_add) as f64;
        let (by_trees, wanted) = (all(|tree| tree.used_ns), all(TaskTree::wanted_ns));
        // Interrupts, kernel threads and the hypervisor used CPU time, too.
        let used = by_trees.max((1.0 - left) * fair.window_ns() * f64::from(fair.cpus()));
        let mut order: Vec<usize> = (0..trees.all.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(trees.all[*at].used_ns));
        let fills = |at: &usize| {
            let tree = &trees.all[*at];
            let has = tree.used_ns as f64;
            has >= FILLS * used && tree.wanted_ns() as f64 >= FILLS * wanted
        };
        let has_most = |at: &usize| trees.all[*at].used_ns as f64 >= HAS_MOST * used;
        let mut fillers: Vec<usize> = order.iter().copied().filter(fills).collect();
        if fillers.is_empty() {
            fillers.extend(order.first().copied().filter(has_most));
        }
        // Many trees that want a little each: no tree is more to blame than the others.
        let together = fillers.is_empty();
        if together && by_trees >= HAS_MOST * used {
            fillers.extend(order.iter().copied().take(NAMED));
        }
        (!fillers.is_empty() && used > 0.0).then_some(Full { fair, trees, fillers, together, from: 0, used })
    }

    fn fillers(&self) -> impl Iterator<Item = &TaskTree> {
        self.fillers.iter().filter_map(|at| self.trees.all.get(*at))
    }

    /// The same, with fillers split into a crowd and the processes that the crowd's parents also started. `None`: a filler is one program,
    /// or no filler has such processes beside its crowd.
    fn apart(&self, ev: &Evidence<'_>) -> Option<Self> {
        // Without timelines it is not known which task wakes which.
        let spans = ev.spans().ok()?;
        let mut trees = TaskTrees { all: self.trees.all.clone() };
        let from = trees.all.len();
        for at in &self.fillers {
            let tree = self.trees.all.get(*at).filter(|tree| !tree.is_one_program())?;
            if let Some(siblings) = siblings::of(self.fair.tasks(), spans, tree, self.fair.window_ns()) {
                trees.all[*at] = siblings.crowd;
                trees.all.extend(siblings.others);
            }
        }
        let is_apart = trees.all.len() > from;
        is_apart.then(|| Full { trees: Rc::new(trees), fillers: self.fillers.clone(), from, ..*self })
    }

    /// The loss of each other tree.
    fn lost(&self, ev: &Evidence<'_>) -> Vec<(&TaskTree, Loss)> {
        let others = self.others();
        let parties: Vec<_> = others.iter().map(|tree| &tree.tasks).collect();
        let mut lost: Vec<_> = others.iter().copied().zip(self.fair.losses(&parties, &self.lift())).collect();
        lost.retain(|(tree, _)| !niceness::yields(ev, self.fair.tasks(), tree));
        lost
    }

    /// The counterfactual: without the trees that fill the CPUs.
    fn lift(&self) -> Lift {
        let gone = self.fillers().flat_map(|tree| tree.tasks.iter().map(|at| (*at, 0.0))).collect();
        Lift { beyond: gone, ..Lift::default() }
    }

    /// The other trees that waited longest for a CPU.
    fn others(&self) -> Vec<&TaskTree> {
        let all = self.trees.all.iter().enumerate().skip(self.from);
        let all = all.filter(|(at, _)| !self.fillers.contains(at));
        let is_other =
            |tree: &&TaskTree| tree.ready_ns > 0 && !self.fillers().any(|filler| filler.is_kin(tree));
        let mut others: Vec<&TaskTree> = all.map(|(_, tree)| tree).filter(is_other).collect();
        others.sort_by_key(|tree| std::cmp::Reverse(tree.ready_ns));
        others.truncate(MOST_TREES);
        others
    }

    /// Whether a tree that is kin of a filler waited for a CPU.
    fn kin_waited(&self) -> bool {
        let all = self.trees.all.iter().enumerate().filter(|(at, _)| !self.fillers.contains(at));
        let is_kin = |tree: &TaskTree| self.fillers().any(|filler| filler.is_kin(tree));
        all.map(|(_, tree)| tree).any(|tree| tree.ready_ns > 0 && is_kin(tree))
    }

    fn names(&self, ev: &Evidence<'_>) -> Vec<String> {
        let mut names: Vec<String> = self.fillers().map(|tree| tree.called(ev)).collect();
        let all = self.trees.all.iter().filter(|tree| tree.used_ns > 0).count();
        let others = all.saturating_sub(names.len());
        names.extend((self.together && others > 0).then(|| format!("{others} others")));
        names
    }

    /// "both CPUs".
    fn all_cpus(&self) -> String {
        match self.fair.cpus() {
            1 => "the CPU".to_owned(),
            2 => "both CPUs".to_owned(),
            n => format!("all {n} CPUs"),
        }
    }

    /// The part of the CPU time that the fillers have, where other trees have more than a little, too.
    fn has(&self) -> Option<Share> {
        let has: f64 = self.fillers().map(|tree| tree.used_ns as f64).sum();
        (!self.together && has < ALONE * self.used).then(|| Share::of(has, self.used))
    }

    /// ", 4 threads for each".
    fn each(&self) -> String {
        let window = self.fair.window_ns();
        let wanted: f64 = match self.together {
            true => self.trees.all.iter().map(|tree| tree.wanted(window)).sum(),
            false => self.fillers().map(|tree| tree.wanted(window)).sum(),
        };
        let each = wanted / f64::from(self.fair.cpus().max(1));
        if each >= 1.5 { format!(", {each:.0} threads for each") } else { String::new() }
    }

    /// "make and cargo keep both CPUs full, 4 threads for each".
    fn words(&self, ev: &Evidence<'_>) -> String {
        let names = self.names(ev);
        let is_one = names.len() == 1 && self.fillers().all(|tree| tree.alike == 0);
        let [keep, have] = if is_one { ["keeps", "has"] } else { ["keep", "have"] };
        let (who, cpus) = (names::listed(&names), self.all_cpus());
        match self.has() {
            None => format!("{who} {keep} {cpus} full{}", self.each()),
            Some(part) => format!("{who} {have} {part} of the time of {cpus}, which are full"),
        }
    }
}

/// The unused part of the CPUs' time: by the CPU time of tasks, and by the counters of each CPU, where they were read.
fn left_over(ev: &Evidence<'_>, fair: &FairShareModel<'_>) -> (f64, Option<f64>) {
    let part = |idle: Duration, all: f64| if all > 0.0 { idle.as_nanos() as f64 / all } else { 0.0 };
    let by_tasks = part(fair.idle(), fair.window_ns() * f64::from(fair.cpus()));
    let by_cpus = ev.cpu_time().ok().map(|cpu| part(cpu.idle + cpu.iowait, cpu.total().as_nanos() as f64));
    (by_tasks, by_cpus)
}

/// The part of their time that the tasks with a noticeable loss lost: many small losses do not add up to a large one.
fn share(loss: &Loss) -> f64 {
    if loss.lived.is_zero() { 0.0 } else { loss.felt.as_secs_f64() / loss.lived.as_secs_f64() }
}

fn is_victim(ev: &Evidence<'_>, loss: &Loss) -> bool {
    share(loss) > OF_ITS_TIME && loss.low.as_secs_f64() > OF_THE_WINDOW * ev.window().as_secs_f64()
}

/// `most`: the largest loss of another tree; `None`: it was not computed.
fn busy(ev: &Evidence<'_>, full: &Full<'_>, most: Option<&str>) -> Finding {
    let names = full.names(ev);
    let who = full.fillers().next().map_or_else(Subject::host, |tree| tree.subject(ev));
    let more = full.fillers().next().map_or(0, |tree| tree.alike);
    let more = (more > 0).then(|| format!("{more} more of its name"));
    let beside: Vec<String> = more.into_iter().chain(names.iter().skip(1).cloned()).collect();
    let beside = match beside.is_empty() {
        true => String::new(),
        false => format!(" together with {}", names::listed(&beside)),
    };
    let keeps = match full.has() {
        None => format!("keeps {} full{beside}{}", full.all_cpus(), full.each()),
        Some(part) => format!("has {part} of the time of {}{beside}, which are full", full.all_cpus()),
    };
    let others = if full.kin_waited() { "no group of tasks but its own" } else { "no other group of tasks" };
    let title = match most {
        None => keeps,
        Some(_) if full.others().is_empty() => format!("{keeps}; {others} waited for one"),
        Some(most) => format!("{keeps}; {others} lost more than {most}"),
    };
    Finding::busy(RULE.id, who).titled(title)
}

fn cause(ev: &Evidence<'_>, full: &Full<'_>, tree: &TaskTree, loss: &Loss) -> Finding {
    let Some(filler) = full.fillers().next() else { return Finding::busy(RULE.id, Subject::host()) };
    let (victim, by) = (tree.subject(ev), filler.subject(ev));
    let why = niceness::why(full.fair.tasks(), (tree, &victim.name), (filler, &by.name));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let who = names::tasks_of(loss.tasks, &victim.name);
    let behind = format!("a CPU, which {} had", by.name);
    let culprit = Culprit::new(by.kind, by.id, by.name);
    let finding = Finding::cause(RULE.id, victim, loss.likely)
        .titled(format!("{}{why}", full.words(ev)))
        .on(resource::CPUS)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(loss.raw)
        .by(culprit)
        .hop(
            Hop::new(Reason::Runnable, who, behind, TaskState::Runnable, loss.likely)
                .times(loss.waits, loss.worst),
        )
        .check("the processes that have the CPUs, the busiest first", command!("top -b -n 1 -w 120"));
    let overlaps = ["cpu-pinned", "spin", "steal"].map(str::to_owned).to_vec();
    // Which weight counts depends on the level where the two cgroups separate, and the niceness within one session may mean nothing to
    // another session: so there is no command to paste.
    Finding { overlaps, ..finding }.advice(format!(
        "let {} run fewer tasks at once, or give it less weight at the level where its cgroup and the victim's separate (cpu.weight, \
         cpu.shares, nice within one group; costs: its work takes longer; undo: the value as it was)",
        filler.subject(ev).name
    ))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let fair = ev.counterfactual()?;
    // If the two differ, some CPUs are not available to all tasks: it is not known whether the other CPUs were full.
    let (tasks, cpus) = left_over(ev, fair);
    let left = tasks.min(cpus.unwrap_or(tasks));
    if left <= LEFT_OVER {
        return Ok(None);
    }
    let left = Share::of(left, 1.0);
    Ok(Some(RuledOut {
        what: "full CPUs".into(),
        evidence: format!("{left} of the CPUs' time was left over"),
    }))
}

#[cfg(test)]
mod tests;
