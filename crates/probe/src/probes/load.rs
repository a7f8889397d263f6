//! The start: what this kernel takes is loaded, on two CPUs if there are two: libbpf searches the kernel's types for
//! each object, and the verifier walks each program.

use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use libbpf_rs::btf::Btf;
use whyslow_model::MissingNote;

use super::slots::{AloneSlots, LinkedSlots};
use super::{Probes, Slots, keep};
use crate::bpf::{
    blkio, calls, connect, ipi, irq, late, locks, memory, napi, oncpu, programs, sched, tasks, work,
};
use crate::host;
use crate::kallsyms::Kallsyms;
use crate::record::Follow;

/// What the kernel's BTF says, from one reading.
#[derive(Default)]
struct KernelTypes {
    pause_arguments: Option<usize>,
    layout: sched::Layout,
    calls: bool,
}

impl KernelTypes {
    fn read() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else { return KernelTypes::default() };
        KernelTypes {
            pause_arguments: memory::pause_arguments(&btf),
            layout: sched::Layout::of(&btf),
            calls: late::tells_calls(&btf),
        }
    }
}

impl<'slot> Probes<'slot> {
    /// Load what this kernel takes. Not live (a folder as host): nothing.
    pub fn load(
        slots: &'slot mut Slots,
        live: bool,
        follow: Option<&Follow>,
        missing: &mut Vec<MissingNote>,
    ) -> Self {
        let mut probes = Probes::none();
        if !live {
            return probes;
        }
        let cpus = host::online_cpus(Path::new("/"));
        let types = OnceLock::new();
        let (alone, linked) = slots.halves();
        thread::scope(|scope| {
            let symbols = scope.spawn(Kallsyms::read);
            let (cpus, types) = (&cpus, &types);
            let pace = if follow.is_some() { oncpu::Pace::Close } else { oncpu::Pace::Calm };
            let alone = scope.spawn(move || Alone::load(alone, cpus, pace, types));
            let types = types.get_or_init(KernelTypes::read);
            probes.kallsyms = symbols.join().unwrap_or_default();
            probes.load_linked(linked, cpus, types, follow, missing);
            match alone.join() {
                Ok(alone) => probes.take(alone, missing),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        if let (Some(sched), Some(follow)) = (&probes.sched, follow) {
            let mut threads = host::threads_of(&follow.pids);
            threads.extend(members(follow, probes.tasks.as_mut(), missing));
            keep(sched.follow(&threads), missing);
        }
        probes.code = programs::code();
        probes.programs = Some(programs::Programs::before(&own_programs()));
        probes
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
        let budget = sched::Budget::of(cpus.len(), follow.is_some());
        let layout = types.layout.or_from(&self.kallsyms);
        self.sched = keep(sched::Sched::load(slots.sched, layout, budget), missing);
        let shared = self.sched.as_ref().map(sched::Sched::shared);
        self.blkio = keep(blkio::Blkio::start(slots.blkio, &self.kallsyms, shared), missing);
        self.locks = keep(locks::Locks::start(slots.locks, shared, cpus), missing);
        self.late = keep(late::Late::start(slots.late, &self.kallsyms, types.calls), missing);
        if let Some(late) = self.late.as_ref().filter(|_| !types.calls) {
            self.ipi = keep(ipi::Ipi::start(slots.ipi, Some(late.shared())), missing);
        }
        if let Some(follow) = follow {
            let started = calls::Calls::start(slots.calls, shared, follow.slow, follow.user_stacks);
            self.calls = keep(started, missing);
        }
    }

    fn take(&mut self, alone: Alone<'slot>, missing: &mut Vec<MissingNote>) {
        self.tasks = alone.tasks;
        self.irq = alone.irq;
        self.oncpu = alone.oncpu;
        self.connect = alone.connect;
        self.memory = alone.memory;
        self.work = alone.work;
        self.napi = alone.napi;
        missing.extend(alone.missing);
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
            late: None,
            ipi: None,
            napi: None,
            programs: None,
            speeds: None,
            kallsyms: Kallsyms::default(),
            code: Vec::new(),
            start: tasks::Snapshot::default(),
        }
    }
}

/// The probes that need nothing of the others.
struct Alone<'slot> {
    tasks: Option<tasks::Tasks<'slot>>,
    irq: Option<irq::Irq<'slot>>,
    oncpu: Option<oncpu::OnCpu<'slot>>,
    connect: Option<connect::Connect<'slot>>,
    memory: Option<memory::Memory<'slot>>,
    work: Option<work::Work<'slot>>,
    napi: Option<napi::Napi<'slot>>,
    missing: Vec<MissingNote>,
}

impl<'slot> Alone<'slot> {
    fn load(
        slots: AloneSlots<'slot>,
        cpus: &[u32],
        pace: oncpu::Pace,
        types: &OnceLock<KernelTypes>,
    ) -> Self {
        let mut missing = Vec::new();
        let irq = keep(irq::Irq::start(slots.irq), &mut missing);
        let soft = irq.as_ref().map(irq::Irq::soft);
        let napi = keep(napi::Napi::start(slots.napi, soft), &mut missing);
        let oncpu = keep(oncpu::OnCpu::load(slots.oncpu, cpus, pace), &mut missing);
        let connect = keep(connect::Connect::start(slots.connect), &mut missing);
        let work = keep(work::Work::start(slots.work), &mut missing);
        let tasks = keep(tasks::Tasks::start(slots.tasks), &mut missing);
        let pauses = types.get_or_init(KernelTypes::read).pause_arguments;
        let memory = keep(memory::Memory::start(slots.memory, pauses), &mut missing);
        Alone { tasks, irq, oncpu, connect, memory, work, napi, missing }
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
