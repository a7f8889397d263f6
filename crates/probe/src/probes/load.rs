//! The start: what this kernel takes is loaded, on two CPUs if there are two: libbpf searches the kernel's types for
//! each object, and the verifier walks each program.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;
use whyslow_model::{Missing, MissingNote};

use super::slots::{IndependentSlots, LinkedSlots};
use super::{Probes, Slots, keep};
use crate::bpf::{
    blkio, calls, connect, ipi, irq, irq_latency, locks, memory, napi, oncpu, pidns, programs, sched, tasks,
    work,
};
use crate::host;
use crate::kallsyms::Kallsyms;
use crate::numbers::{OUTSIDE, Scope};
use crate::record::{Follow, Plan};
use crate::speed::which;

/// What the kernel's BTF says, from one reading.
#[derive(Default)]
struct KernelTypes {
    pause_arguments: Option<usize>,
    layout: sched::Layout,
    irq_latency: irq_latency::Kernel,
}

impl KernelTypes {
    fn read() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else { return KernelTypes::default() };
        KernelTypes {
            pause_arguments: memory::pause_arguments(&btf),
            layout: sched::Layout::of(&btf),
            irq_latency: irq_latency::Kernel::of(&btf),
        }
    }
}

impl<'slot> Probes<'slot> {
    /// Load what this kernel takes. Not live (a folder as host): nothing.
    pub fn load(slots: &'slot mut Slots, plan: &Plan, missing: &mut Vec<MissingNote>) -> Self {
        let mut probes = Probes { is_thrifty: plan.fit.thrift.is_some(), ..Probes::none() };
        let follow = plan.follow.as_ref();
        if plan.root != Path::new("/") {
            return probes;
        }
        let cpus = sampled(plan.all_cpus, missing);
        let types = OnceLock::new();
        let (independent, linked) = slots.halves();
        thread::scope(|scope| {
            let symbols = scope.spawn(Kallsyms::read);
            let (cpus, types) = (&cpus, &types);
            let pace = if follow.is_some() { oncpu::Pace::Close } else { oncpu::Pace::Calm };
            let is_thrifty = probes.is_thrifty;
            let independent =
                scope.spawn(move || Independent::load(independent, cpus, pace, types, is_thrifty));
            let types = types.get_or_init(KernelTypes::read);
            probes.kallsyms = symbols.join().unwrap_or_default();
            probes.load_linked(linked, cpus, types, follow, missing);
            match independent.join() {
                Ok(independent) => probes.take(independent, missing),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        if let Some(follow) = follow {
            probes.follow(follow, missing);
        }
        probes.sampled = cpus;
        probes.code = programs::code();
        probes.programs = Some(programs::Programs::before(&own_programs()));
        probes
    }

    /// Follow those who are there now. Asked again when the window begins: files are read in between, some have ended since,
    /// and their numbers may be strangers'; others were born.
    pub(super) fn follow(&mut self, follow: &Follow, missing: &mut Vec<MissingNote>) {
        let mut threads = self.known(host::threads_of(&follow.pids, &follow.pidfds), missing);
        threads.extend(members(follow, self.tasks.as_mut(), missing));
        let before = std::mem::take(&mut self.followed);
        if let Some(sched) = &self.sched {
            keep(sched.follow_instead(&before, &threads), missing);
        }
        self.followed = threads;
    }

    /// Load those that share maps, or need what others do not: the kernel's symbols.
    fn load_linked(
        &mut self,
        slots: LinkedSlots<'slot>,
        cpus: &[u32],
        types: &KernelTypes,
        follow: Option<&Follow>,
        missing: &mut Vec<MissingNote>,
    ) {
        self.load_numbers(slots.pidns, missing);
        let budget = sched::Budget::of(cpus.len(), follow.is_some());
        let layout = types.layout.or_from(&self.kallsyms);
        self.sched = keep(sched::Sched::load(slots.sched, layout, budget), missing);
        if let (Some(sched), Some(pidns)) = (&mut self.sched, &self.pidns) {
            sched.leave_out(pidns.own());
        } else if let Some(sched) = self.sched.as_mut().filter(|_| self.is_untranslated) {
            sched.leave_out(0); // our number is a stranger's there
        }
        let shared = self.sched.as_ref().map(sched::Sched::shared);
        self.blkio = keep(blkio::Blkio::start(slots.blkio, &self.kallsyms, shared), missing);
        // Its timers are set when it is known whose the CPUs are.
        self.locks = keep(locks::Locks::start(slots.locks, shared, &[]), missing);
        if !self.is_thrifty {
            self.irq_latency = keep(
                irq_latency::IrqLatency::start(slots.irq_latency, &self.kallsyms, types.irq_latency),
                missing,
            );
        }
        if let Some(irq_latency) = self.irq_latency.as_ref().filter(|_| !types.irq_latency.calls) {
            self.ipi = keep(ipi::Ipi::start(slots.ipi, Some(irq_latency.shared())), missing);
        }
        if let Some(follow) = follow {
            let started = calls::Calls::start(slots.calls, shared, follow.slow, follow.user_stacks);
            self.calls = keep(started, missing);
        }
    }

    /// In a pid namespace BPF's numbers are not ours.
    fn load_numbers(&mut self, slot: &'slot mut MaybeUninit<OpenObject>, missing: &mut Vec<MissingNote>) {
        let Scope::Own { above } = Scope::of(Path::new("/")) else { return };
        self.pidns = keep(pidns::PidNamespace::start(slot, above), missing);
        self.is_untranslated = self.pidns.is_none();
        let reason = format!(
            "they have no ids in this pid namespace, and no account of their time; who of them is met all the same is \
             told as {OUTSIDE} and its id on the host; the whole host is seen from there"
        );
        missing.push(Missing::skipped("tasks outside this pid namespace", reason).into());
    }

    /// As BPF calls these threads. Where that cannot be known nobody is followed: it would be strangers.
    fn known(&self, threads: Vec<u32>, missing: &mut Vec<MissingNote>) -> Vec<u32> {
        match &self.pidns {
            Some(pidns) => keep(pidns.numbers(), missing).unwrap_or_default().global(&threads),
            None if self.is_untranslated => Vec::new(),
            None => threads,
        }
    }

    fn take(&mut self, independent: Independent<'slot>, missing: &mut Vec<MissingNote>) {
        self.tasks = independent.tasks;
        self.irq = independent.irq;
        self.oncpu = independent.oncpu;
        self.connect = independent.connect;
        self.memory = independent.memory;
        self.work = independent.work;
        self.napi = independent.napi;
        missing.extend(independent.missing);
    }

    fn none() -> Self {
        Probes {
            tasks: None,
            irq: None,
            oncpu: None,
            sched: None,
            blkio: None,
            connect: None,
            memory: None,
            locks: None,
            work: None,
            calls: None,
            irq_latency: None,
            ipi: None,
            napi: None,
            programs: None,
            speeds: None,
            pidns: None,
            is_untranslated: false,
            is_thrifty: false,
            kallsyms: Kallsyms::default(),
            code: Vec::new(),
            sampled: Vec::new(),
            followed: Vec::new(),
            start: tasks::Snapshot::default(),
        }
    }
}

/// CPUs that may be interrupted to see what runs there.
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

/// The probes that need nothing of the others.
struct Independent<'slot> {
    tasks: Option<tasks::Tasks<'slot>>,
    irq: Option<irq::Irq<'slot>>,
    oncpu: Option<oncpu::OnCpu<'slot>>,
    connect: Option<connect::Connect<'slot>>,
    memory: Option<memory::Memory<'slot>>,
    work: Option<work::Work<'slot>>,
    napi: Option<napi::Napi<'slot>>,
    missing: Vec<MissingNote>,
}

impl<'slot> Independent<'slot> {
    fn load(
        slots: IndependentSlots<'slot>,
        cpus: &[u32],
        pace: oncpu::Pace,
        types: &OnceLock<KernelTypes>,
        is_thrifty: bool,
    ) -> Self {
        let mut missing = Vec::new();
        let irq = keep(irq::Irq::start(slots.irq), &mut missing);
        let oncpu = keep(oncpu::OnCpu::load(slots.oncpu, cpus, pace), &mut missing);
        let tasks = keep(tasks::Tasks::start(slots.tasks), &mut missing);
        let pauses = types.get_or_init(KernelTypes::read).pause_arguments;
        let memory = keep(memory::Memory::start(slots.memory, pauses), &mut missing);
        let mut independent =
            Independent { tasks, irq, oncpu, connect: None, memory, work: None, napi: None, missing };
        if !is_thrifty {
            independent.load_what_few_ask_for(slots.napi, slots.connect, slots.work);
        }
        independent
    }

    /// What is left out where CPU time is scarce.
    fn load_what_few_ask_for(
        &mut self,
        napi: &'slot mut MaybeUninit<OpenObject>,
        connect: &'slot mut MaybeUninit<OpenObject>,
        work: &'slot mut MaybeUninit<OpenObject>,
    ) {
        let soft = self.irq.as_ref().map(irq::Irq::soft);
        self.napi = keep(napi::Napi::start(napi, soft), &mut self.missing);
        self.connect = keep(connect::Connect::start(connect), &mut self.missing);
        self.work = keep(work::Work::start(work), &mut self.missing);
    }
}

/// The threads that are in the cgroup that is followed now: some may have joined it since its processes were listed.
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
fn own_programs() -> Vec<u32> {
    let Ok(open) = std::fs::read_dir("/proc/self/fdinfo") else { return Vec::new() };
    let texts = open.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| text.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}
