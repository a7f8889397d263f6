//! Processes that start short-lived commands by the dozen. Such a command is named after its program, which does not show what started it.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::{Share, seconds};

use crate::Evidence;
use crate::hashing::Table;
use crate::process_names;

/// A process that lived longer is no short-lived command: it is reported under its own name.
const BRIEF: u64 = 1_000_000_000;
/// This many births a second are a habit: any process starts a few now and then.
const LEAST_RATE: f64 = 5.0;
/// A process is reported if so many of its children are born a second (births alone cost the host something) ...
const MANY: f64 = 20.0;
/// ... or if the children use so much of a CPU.
const NOTICEABLE: Share = Share::percent(5);
/// How many commands, and how many trees, are named.
const NAMED: usize = 3;
/// Shells in shells: the search for the root goes no further up than this.
const MOST_STEPS: usize = 16;

/// A process whose children come and go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Brood {
    /// Its pid and start time.
    pub life: Life,
    /// Its pid; 0: the process has ended, and other processes have the same name.
    pub tgid: u32,
    /// Its name in all of the report.
    pub name: String,
    /// Its unit, container or cgroup.
    group: Option<String>,
    /// Births a second of its children and of their children.
    rate: f64,
    /// How long each lived, on average.
    each: Duration,
    /// The CPU time that the children used.
    cpu: Duration,
    /// ... in CPUs.
    cpus: f64,
    /// The most frequent names of the children.
    children: Vec<String>,
}

/// All such processes of a window.
#[derive(Debug, Default)]
pub(crate) struct Broods {
    all: Vec<Brood>,
    by_child: Table<Life, usize>,
    /// By pid alone: `None` where several processes had the pid.
    by_number: Table<u32, Option<usize>>,
}

/// A task's pid and its start time: the kernel reuses pids.
pub(crate) type Life = (u32, u64);

fn life(task: &Task) -> Life {
    (task.pid, task.begun_ns)
}

#[derive(Default)]
struct Sum<'r> {
    births: u64,
    /// Of processes, without the lives of their further threads.
    lived_ns: u64,
    exec_ns: u64,
    by_name: BTreeMap<&'r str, u64>,
    children: Vec<Life>,
    /// The process at the top, if it is still known.
    process: Option<&'r Task>,
}

/// The process at the top of a tree: the process itself, or only its name if no row describes it any more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Root<'r> {
    Process(Life),
    Called(&'r str),
}

impl Broods {
    /// Those of this window: the most expensive first.
    pub fn of(ev: &Evidence<'_>) -> Self {
        let tasks = ev.tasks().unwrap_or_default();
        let parents = Parents::of(tasks);
        let mut sums: BTreeMap<Root<'_>, Sum<'_>> = BTreeMap::new();
        for task in tasks.iter().filter(|task| is_brief(task)) {
            let Some((root, process)) = parents.root(ev, task) else { continue };
            let sum = sums.entry(root).or_default();
            sum.process = process;
            sum.exec_ns = sum.exec_ns.saturating_add(task.exec_ns);
            if task.tgid != 0 && task.pid != task.tgid {
                continue; // a thread: its process is counted
            }
            let count = task.folded.saturating_add(1);
            sum.births = sum.births.saturating_add(count);
            sum.lived_ns = sum.lived_ns.saturating_add(task.lived_ns);
            let of_name = sum.by_name.entry(&task.comm).or_default();
            *of_name = of_name.saturating_add(count);
            sum.children.push(life(task));
        }
        let mut all: Vec<(Brood, Vec<Life>)> =
            sums.into_iter().filter_map(|(root, sum)| brood(ev, &root, sum)).collect();
        all.sort_by(|(a, _), (b, _)| b.cpu.cmp(&a.cpu).then(a.life.cmp(&b.life)));
        let mut broods = Broods::default();
        for (at, (brood, children)) in all.into_iter().enumerate() {
            broods.by_child.extend(children.into_iter().map(|child| (child, at)));
            broods.all.push(brood);
        }
        let is_told = |task: &&Task| !broods.all.is_empty() && (task.tgid == 0 || task.pid == task.tgid);
        for task in tasks.iter().filter(is_told) {
            let of_task = broods.by_child.get(&life(task)).copied();
            let known = broods.by_number.entry(task.pid).or_insert(of_task);
            *known = known.filter(|at| Some(*at) == of_task);
        }
        broods
    }

    /// The parent of a process, if that parent starts commands by the dozen.
    pub fn of_task(&self, task: &Task) -> Option<&Brood> {
        self.all.get(*self.by_child.get(&life(task))?)
    }

    /// The same where only the pid is known, and one process alone had it.
    pub fn of_child(&self, tgid: u32) -> Option<&Brood> {
        self.all.get((*self.by_number.get(&tgid)?)?)
    }

    /// Notes for the head of the report.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.all.iter().take(NAMED).map(Brood::note)
    }
}

impl Brood {
    /// "sh /usr/local/bin/agent (pid 7, agent.service): 140 children a second (ls, ps), 8 ms each, 0.7 CPU."
    fn note(&self) -> String {
        let pid = Some(self.tgid).filter(|tgid| *tgid != 0).map(|tgid| format!("pid {tgid}"));
        let place: Vec<String> = pid.into_iter().chain(self.group.clone()).collect();
        let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
        let commands = self.commands();
        let (name, each) = (&self.name, seconds(self.each));
        format!(
            "{name}{place}: {:.0} children a second{commands}, {each} each, {:.2} CPU.",
            self.rate, self.cpus
        )
    }

    /// " (ls, ps)"
    fn commands(&self) -> String {
        if self.children.is_empty() { String::new() } else { format!(" ({})", self.children.join(", ")) }
    }

    /// All children of this process, as one subject.
    pub fn together(&self) -> String {
        format!("children of {}{}", self.name, self.commands())
    }
}

/// The process was born, did something and ended.
fn is_brief(task: &Task) -> bool {
    let count = task.folded.saturating_add(1);
    task.born && task.ended && !task.kthread && task.lived_ns / count < BRIEF
}

/// Tasks by pid and start time: several tasks may have had one pid.
struct Parents<'r>(Vec<&'r Task>);

impl<'r> Parents<'r> {
    fn of(tasks: &'r [Task]) -> Self {
        let mut all: Vec<&Task> = tasks.iter().filter(|task| task.folded == 0).collect();
        all.sort_by_key(|task| life(task));
        Parents(all)
    }

    /// The task that had this pid when `child` began. For tasks that are reported together the start time is not known.
    fn task(&self, pid: u32, child: &Task) -> Option<&'r Task> {
        let begun = if child.begun_ns == 0 { u64::MAX } else { child.begun_ns };
        let after = self.0.partition_point(|task| life(task) <= (pid, begun));
        self.0.get(after.checked_sub(1)?).copied().filter(|task| task.pid == pid)
    }

    /// The first process above `task` that is no short-lived command. The process that created it counts, not its parent now: the
    /// kernel gives orphans another parent.
    fn root(&self, ev: &Evidence<'r>, task: &'r Task) -> Option<(Root<'r>, Option<&'r Task>)> {
        let mut at = task;
        for _ in 0..MOST_STEPS {
            let is_thread = at.tgid != 0 && at.pid != at.tgid;
            let above = if is_thread { at.tgid } else { self.parent(at) };
            let Some(process) = self.task(above, at).filter(|process| process.pid == process.tgid) else {
                let name = Some(at.parent.as_str()).filter(|name| !name.is_empty() && above != 1)?;
                return Some((Root::Called(name), None));
            };
            if !is_brief(process) {
                let is_ours = process.kthread || ev.is_own(process.pid, process.tgid);
                return (!is_ours).then_some((Root::Process(life(process)), Some(process)));
            }
            at = process;
        }
        None
    }

    fn parent(&self, task: &Task) -> u32 {
        let creator = self.task(task.creator, task).filter(|creator| task.creator != 0 && creator.tgid != 0);
        creator.map_or(task.ppid, |creator| creator.tgid)
    }
}

fn brood(ev: &Evidence<'_>, root: &Root<'_>, sum: Sum<'_>) -> Option<(Brood, Vec<Life>)> {
    let window = ev.window().as_secs_f64();
    let rate = if window > 0.0 { sum.births as f64 / window } else { 0.0 };
    let cpu = Duration::from_nanos(sum.exec_ns);
    let is_costly = Share::of(cpu.as_secs_f64(), window) >= NOTICEABLE;
    if rate < LEAST_RATE || !(rate >= MANY || is_costly) {
        return None;
    }
    let (life, comm) = match root {
        Root::Process(life) => (*life, sum.process.map_or("", |task| task.comm.as_str())),
        Root::Called(name) => ((0, 0), *name),
    };
    let name = sum.process.map_or_else(|| comm.to_owned(), process_names::of_row);
    // Children that had not called execve yet have the parent's name.
    let mut by_name: Vec<(&str, u64)> = sum.by_name.into_iter().filter(|(name, _)| *name != comm).collect();
    by_name.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let children = by_name.into_iter().take(NAMED).map(|(name, _)| name.to_owned()).collect();
    let group = sum.process.and_then(|task| {
        let homes = [task.unified_cgroup, task.cpu_cgroup];
        let group = homes.iter().filter_map(|id| ev.cgroup(*id)).find(|group| group.path != "/")?;
        Some(ev.names().cgroup(group).name)
    });
    let cpus = cpu.as_secs_f64() / window;
    let each = Duration::from_nanos(sum.lived_ns / sum.births.max(1));
    Some((Brood { life, tgid: life.0, name, group, rate, each, cpu, cpus, children }, sum.children))
}

#[cfg(test)]
mod tests;
