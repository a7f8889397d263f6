//! Indexes of rows and files: rules read thousands of them on a host with thousands of CPUs, tasks or cgroups.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

use whyslow_model::table::{Cgroup, Sample, Task};
use whyslow_model::{FileSnapshot, Missing, Probe};

use super::Evidence;
use super::losses::Once;
use crate::broods::Broods;
use crate::cpu::full_threads::FullThreads;
use crate::cpu::loss::FairShareModel;
use crate::cpu::quota::{self, HeldBack, ThrottledTime};
use crate::cpu::spin::{self, Process};
use crate::graph::{HostChain, WaitGraph};
use crate::hashing::Table;
use crate::irq::unpreempted;
use crate::memory::loss::{self, Limited};
use crate::names::Names;
use crate::stacks::doing::OnCpu;
use crate::task_trees::TaskTrees;
use crate::wait_reasons::Stacks;

/// Each index is built when it is first needed.
#[derive(Default)]
pub(super) struct Index<'r> {
    frames: OnceCell<Table<&'r str, (&'r FileSnapshot, &'r FileSnapshot)>>,
    /// The last frame of each file, by name.
    files: OnceCell<Vec<&'r FileSnapshot>>,
    tasks: OnceCell<Table<u32, &'r Task>>,
    threads: OnceCell<Table<u32, Vec<&'r Task>>>,
    samples: OnceCell<Table<u32, Vec<&'r Sample>>>,
    cgroups: OnceCell<Table<u64, &'r Cgroup>>,
    names: OnceCell<Rc<Names<'r>>>,
    stacks: OnceCell<Rc<Stacks<'r>>>,
    on_cpu: OnceCell<Rc<OnCpu<'r>>>,
    fair_shares: Once<Result<FairShareModel<'r>, Missing>>,
    losses: Once<Result<FairShareModel<'r>, Missing>>,
    throttled_times: Once<ThrottledTime>,
    held_back: Once<Result<HeldBack<'r>, Missing>>,
    full_threads: Once<Result<FullThreads<'r>, Missing>>,
    memory_limits: Once<Result<Vec<Limited<'r>>, Missing>>,
    spinning: Once<Result<Vec<Process>, Missing>>,
    unpreempted: Once<Table<u32, u64>>,
    graph: Once<Option<WaitGraph<'r>>>,
    chains: Once<Vec<HostChain<'r>>>,
    broods: Once<Broods>,
    trees: OnceCell<Rc<TaskTrees>>,
    trees_by_name: OnceCell<Rc<TaskTrees>>,
}

impl fmt::Debug for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Index")
    }
}

impl<'r> Evidence<'r> {
    /// Task trees: all that was started as one job.
    pub(crate) fn trees(&self) -> Rc<TaskTrees> {
        self.index.trees.get_or_init(|| Rc::new(TaskTrees::of(self))).clone()
    }

    /// ... with jobs of one name as one.
    pub(crate) fn trees_by_name(&self) -> Rc<TaskTrees> {
        self.index.trees_by_name.get_or_init(|| Rc::new(TaskTrees::by_name(self))).clone()
    }

    /// The first frame of a file.
    pub fn first(&self, name: &str) -> Result<&'r FileSnapshot, Missing> {
        self.frame(name).map(|(first, _)| first)
    }

    /// The last frame of a file.
    pub fn last(&self, name: &str) -> Result<&'r FileSnapshot, Missing> {
        self.frame(name).map(|(_, last)| last)
    }

    fn frame(&self, name: &str) -> Result<(&'r FileSnapshot, &'r FileSnapshot), Missing> {
        self.frames().get(name).copied().ok_or_else(|| self.rec.why_missing(name))
    }

    /// The first and the last frame of each file.
    fn frames(&self) -> &Table<&'r str, (&'r FileSnapshot, &'r FileSnapshot)> {
        self.index.frames.get_or_init(|| {
            let mut all: Table<&str, (&FileSnapshot, &FileSnapshot)> = Table::default();
            for frame in &self.rec.snapshots {
                all.entry(&frame.name).or_insert((frame, frame)).1 = frame;
            }
            all
        })
    }

    /// The last frame of each file whose name begins like that, in order of the names.
    pub(super) fn files_below(&self, begin: &str) -> impl Iterator<Item = &'r FileSnapshot> {
        let all = self.index.files.get_or_init(|| {
            let mut all: Vec<&FileSnapshot> = self.frames().values().map(|(_, last)| *last).collect();
            all.sort_unstable_by_key(|frame| &frame.name);
            all
        });
        let first = all.partition_point(|frame| *frame.name < *begin);
        let after = all.get(first..).unwrap_or_default().iter().copied();
        after.take_while(move |frame| frame.name.starts_with(begin))
    }

    /// A task by its thread id: the first one that had the id.
    #[must_use]
    pub fn task(&self, pid: u32) -> Option<&'r Task> {
        let tasks = self.rec.tables.tasks.as_deref().unwrap_or_default();
        let all = self.index.tasks.get_or_init(|| tasks.iter().rev().map(|task| (task.pid, task)).collect());
        all.get(&pid).copied()
    }

    /// The threads of a process, in the table's order.
    #[must_use]
    pub fn threads(&self, tgid: u32) -> &[&'r Task] {
        let tasks = self.rec.tables.tasks.as_deref().unwrap_or_default();
        let all = self.index.threads.get_or_init(|| by(tasks, |task| task.tgid));
        all.get(&tgid).map_or(&[], Vec::as_slice)
    }

    /// The samples of a process's threads on CPUs.
    #[must_use]
    pub fn samples_of(&self, tgid: u32) -> &[&'r Sample] {
        self.asked.note(Probe::OnCpuSamples);
        let samples = self.rec.tables.samples.as_deref().unwrap_or_default();
        let all = self.index.samples.get_or_init(|| by(samples, |sample| sample.tgid));
        all.get(&tgid).map_or(&[], Vec::as_slice)
    }

    /// A cgroup by its id.
    #[must_use]
    pub fn cgroup(&self, id: u64) -> Option<&'r Cgroup> {
        let groups = self.rec.tables.cgroups.as_deref().unwrap_or_default();
        let all =
            self.index.cgroups.get_or_init(|| groups.iter().rev().map(|group| (group.id, group)).collect());
        all.get(&id).copied()
    }

    /// The names of cgroups in this report.
    #[must_use]
    pub fn names(&self) -> &Rc<Names<'r>> {
        self.index.names.get_or_init(|| Rc::new(Names::of(self.rec)))
    }

    /// All stacks, with the names of devices, tasks and locks.
    pub(crate) fn stacks(&self) -> &Rc<Stacks<'r>> {
        self.index.stacks.get_or_init(|| Rc::new(Stacks::in_recording(self.rec)))
    }

    /// The name of a thread: the process's own name (see `process_names`), else the kernel's.
    #[must_use]
    pub fn called(&self, pid: u32, comm: &str) -> String {
        self.stacks().names().shown(pid, comm)
    }

    /// The name of a process; `comm` if the kernel's name of its first thread is not known.
    #[must_use]
    pub fn process_name(&self, tgid: u32, comm: &str) -> String {
        match self.stacks().process(tgid) {
            Some(name) => name.to_owned(),
            None => comm.to_owned(),
        }
    }

    /// What threads did on CPUs; nothing where there are no samples.
    pub(crate) fn on_cpu(&self) -> &Rc<OnCpu<'r>> {
        let samples = self.samples().unwrap_or_default();
        self.index.on_cpu.get_or_init(|| Rc::new(OnCpu::of(samples)))
    }

    /// The fair-share model: how much of the CPUs each task had and wanted.
    pub(crate) fn fair_shares(&self) -> Result<&FairShareModel<'r>, Missing> {
        self.asked.once(&self.index.fair_shares, || FairShareModel::of(self)).as_ref().map_err(Clone::clone)
    }

    /// The same for questions about losses.
    pub(crate) fn counterfactual(&self) -> Result<&FairShareModel<'r>, Missing> {
        self.asked.once(&self.index.losses, || FairShareModel::of_losses(self)).as_ref().map_err(Clone::clone)
    }

    /// How long quotas throttled threads.
    pub(crate) fn throttled_times(&self) -> &ThrottledTime {
        self.asked.once(&self.index.throttled_times, || quota::throttled_times(self))
    }

    /// Tasks that quotas held back.
    pub(crate) fn held_back_by_quotas(&self) -> Result<&HeldBack<'r>, Missing> {
        self.asked.once(&self.index.held_back, || HeldBack::of(self)).as_ref().map_err(Clone::clone)
    }

    /// Threads that have a CPU all the time, while the host looks idle.
    pub(crate) fn full_threads(&self) -> Result<&FullThreads<'r>, Missing> {
        self.asked.once(&self.index.full_threads, || FullThreads::of(self)).as_ref().map_err(Clone::clone)
    }

    /// All limits that made their cgroup's tasks reclaim.
    pub(crate) fn memory_limits(&self) -> Result<&[Limited<'r>], Missing> {
        let limits = || loss::limits(self);
        self.asked.once(&self.index.memory_limits, limits).as_deref().map_err(Clone::clone)
    }

    /// Processes that were sampled spinning.
    pub(crate) fn spinning(&self) -> Result<&[Process], Missing> {
        let spinning = || spin::spinning(self);
        self.asked.once(&self.index.spinning, spinning).as_deref().map_err(Clone::clone)
    }

    /// Time, by thread, for which it was ready behind a thread that could not be preempted.
    pub(crate) fn unpreempted(&self) -> &Table<u32, u64> {
        let waits = || unpreempted::waits(self, self.tasks().unwrap_or_default());
        self.asked.once(&self.index.unpreempted, waits)
    }

    /// Processes that start commands by the dozen.
    pub(crate) fn broods(&self) -> &Broods {
        self.asked.once(&self.index.broods, || Broods::of(self))
    }

    /// The wait-for graph; `None`: there are no timelines.
    pub(crate) fn graph(&self) -> Option<&WaitGraph<'r>> {
        self.asked.once(&self.index.graph, || WaitGraph::beside(self)).as_ref()
    }

    /// Chains of waits of the whole host, whatever the focus.
    pub(crate) fn host_chains(&self) -> &[HostChain<'r>] {
        let chains = || {
            self.asked.note(Probe::OffCpuStacks);
            self.asked.note(Probe::KernelLocks);
            self.graph().map(WaitGraph::host_chains).unwrap_or_default()
        };
        self.asked.once(&self.index.chains, chains).as_slice()
    }
}

fn by<T>(rows: &[T], key: fn(&T) -> u32) -> Table<u32, Vec<&T>> {
    let mut all: Table<u32, Vec<&T>> = Table::default();
    for row in rows {
        all.entry(key(row)).or_default().push(row);
    }
    all
}
