//! The start: loads the probes that this kernel takes, on two CPUs if there are two: libbpf searches the kernel's types for
//! each object, and the verifier walks each program.

use std::path::Path;
use std::thread;

use whyslow_model::{Missing, MissingNote};

use super::probe::{Entry, Kernel, LentMaps, LoadOrder, Probe, Slot, Start};
use super::{Probes, Slots, keep, registry};
use crate::bpf::{oncpu, pidns, programs, sched, tasks};
use crate::pid_map::{OUTSIDE, Scope};
use crate::record::{Follow, Plan};
use crate::speed::which;
use crate::{host, priority};

impl<'slot> Probes<'slot> {
    /// Load the probes that this kernel takes. Not live (a folder as host): none.
    pub fn load(slots: &'slot mut Slots, plan: &Plan, missing: &mut Vec<MissingNote>) -> Self {
        let is_thrifty = plan.budget.thrift.is_some();
        let mut probes = Probes { is_thrifty, follows: plan.follow.is_some(), ..Probes::default() };
        if plan.root != Path::new("/") {
            return probes;
        }
        probes.sampled = sampled(plan.all_cpus, missing);
        let kernel = Kernel::default();
        probes.load_on_two_cpus(slots, plan, &kernel, missing);
        if let Some(follow) = &plan.follow {
            probes.follow(follow, missing);
        }
        probes.kallsyms = kernel.into_symbols();
        probes.code = programs::code();
        probes.programs = Some(programs::Programs::before(&own_programs()));
        probes
    }

    fn load_on_two_cpus(
        &mut self,
        slots: &'slot mut Slots,
        plan: &Plan,
        kernel: &Kernel,
        missing: &mut Vec<MissingNote>,
    ) {
        let Slots { tasks, sched, pidns, entries } = slots;
        let all = registry::ALL.iter().zip(entries).enumerate();
        let wanted = all.filter(|(_, (entry, _))| self.is_wanted(entry, plan));
        let (after, beside): (Vec<_>, Vec<_>) =
            wanted.partition(|(_, (entry, _))| entry.load == LoadOrder::AfterScheduler);
        let (cpus, follow) = (self.sampled.clone(), plan.follow.as_ref());
        let watches_packets = plan.watches_packets;
        let start = |shared| Start {
            cpus: &cpus,
            follow,
            shared,
            watches_packets,
            lent: LentMaps::default(),
            kernel,
        };
        let independent = thread::scope(|scope| {
            scope.spawn(|| {
                priority::inherit();
                kernel.symbols();
            });
            let independent = scope.spawn(|| {
                priority::inherit();
                let mut missing = Vec::new();
                let tasks = keep(tasks::Tasks::start(tasks), &mut missing);
                let running = start_all(beside, start(None), &mut missing);
                (tasks, running, missing)
            });
            self.load_numbers(pidns, missing);
            self.load_scheduler(sched, kernel, follow.is_some(), missing);
            let shared = self.sched.as_ref().map(sched::Sched::shared);
            self.running = start_all(after, start(shared), missing);
            independent.join()
        });
        let (tasks, running, more) = independent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.tasks = tasks;
        self.running.extend(running);
        self.running.sort_by_key(|(at, _)| *at);
        let own = self.own_number();
        self.running.iter_mut().for_each(|(_, probe)| probe.leave_out(own));
        missing.extend(more);
    }

    fn is_wanted(&self, entry: &Entry, plan: &Plan) -> bool {
        (!entry.follows || plan.follow.is_some())
            && (!self.is_thrifty || entry.shed.is_empty())
            && (!plan.only_waits || entry.of_waits)
    }

    /// Follow the threads that live now. Called again when the window begins: files are read in between, and meanwhile some threads have
    /// ended, whose numbers may have been reused, and others were born.
    pub(super) fn follow(&mut self, follow: &Follow, missing: &mut Vec<MissingNote>) {
        let mut threads = self.known(host::threads_of(&follow.pids, &follow.pidfds), missing);
        threads.extend(members(follow, self.tasks.as_mut(), missing));
        let before = std::mem::take(&mut self.followed);
        if let Some(sched) = &mut self.sched {
            keep(sched.follow_instead(&before, &threads), missing);
        }
        self.followed = threads;
    }

    fn load_scheduler(
        &mut self,
        slot: &'slot mut Slot,
        kernel: &Kernel,
        follows: bool,
        missing: &mut Vec<MissingNote>,
    ) {
        let budget = sched::Budget::of(self.sampled.len(), follows);
        let layout = kernel.types().layout.or_from(kernel.symbols());
        let own = self.own_number();
        self.sched = keep(sched::Sched::load(slot, layout, budget), missing);
        let Some(sched) = &mut self.sched else { return };
        sched.leave_out(own);
    }

    /// Our own process, by the number that BPF reports. 0: our number may be another process's there.
    fn own_number(&self) -> u32 {
        match &self.pidns {
            Some(pidns) => pidns.own(),
            None if self.is_untranslated => 0,
            None => std::process::id(),
        }
    }

    /// In a pid namespace BPF reports other numbers than ours.
    fn load_numbers(&mut self, slot: &'slot mut Slot, missing: &mut Vec<MissingNote>) {
        let Scope::Own { above } = Scope::of(Path::new("/")) else { return };
        self.pidns = keep(pidns::PidNamespace::start(slot, above), missing);
        self.is_untranslated = self.pidns.is_none();
        let reason = format!(
            "they have no ids in this pid namespace, and no account of their time; one that appears in a row has the id {OUTSIDE} \
             plus its id on the host; run whyslow on the host to observe all of them"
        );
        missing.push(Missing::skipped("tasks outside this pid namespace", reason).into());
    }

    /// The ids that BPF uses for these threads. Where they cannot be known no thread is followed: it would be another process's.
    fn known(&self, threads: Vec<u32>, missing: &mut Vec<MissingNote>) -> Vec<u32> {
        match &self.pidns {
            Some(pidns) => keep(pidns.numbers(), missing).unwrap_or_default().global(&threads),
            None if self.is_untranslated => Vec::new(),
            None => threads,
        }
    }
}

/// A running probe and its place in the registry.
pub(super) type Running<'slot> = (usize, Box<dyn Probe + 'slot>);

/// Start these probes, one after the other.
fn start_all<'slot>(
    entries: Vec<(usize, (&Entry, &'slot mut Slot))>,
    mut start: Start<'_>,
    missing: &mut Vec<MissingNote>,
) -> Vec<Running<'slot>> {
    let mut running = Vec::new();
    for (at, (entry, slot)) in entries {
        if let Some(probe) = keep((entry.start)(slot, &start), missing).flatten() {
            probe.lend(&mut start.lent);
            running.push((at, probe));
        }
    }
    running
}

/// CPUs that a timer may interrupt to sample what runs there.
fn sampled(all: bool, missing: &mut Vec<MissingNote>) -> Vec<u32> {
    let root = Path::new("/");
    let online = host::online_cpus(root);
    let open = if all { online.clone() } else { which::unisolated(root) };
    let kept: Vec<u32> = online.into_iter().filter(|cpu| !open.contains(cpu)).collect();
    if let Some(note) = oncpu::spared(&kept, "isolated, or without a tick (nohz_full)") {
        missing.push(note);
    }
    open
}

/// The threads that are in the followed cgroup now: some may have joined it since its processes were listed.
fn members(
    follow: &Follow,
    tasks: Option<&mut tasks::Tasks<'_>>,
    missing: &mut Vec<MissingNote>,
) -> Vec<u32> {
    let (Some(id), Some(tasks)) = (follow.cgroup, tasks) else { return Vec::new() };
    let seen = keep(tasks.snapshot(), missing).unwrap_or_default();
    let inside =
        |t: &&tasks::tasks_one| [t.cpu_cgroup, t.memory_cgroup, t.io_cgroup, t.unified_cgroup].contains(&id);
    seen.tasks.iter().filter(inside).map(|task| task.pid).collect()
}

/// Ids of the BPF programs that this process holds open.
pub(super) fn own_programs() -> Vec<u32> {
    let Ok(open) = std::fs::read_dir("/proc/self/fdinfo") else { return Vec::new() };
    let texts = open.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| text.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}
