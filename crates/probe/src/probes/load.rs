//! The start: what this kernel takes is loaded, in the order that is quickest.

use std::path::Path;

use libbpf_rs::btf::Btf;
use whyslow_model::MissingNote;

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
        // Two long texts of the kernel are read while the first programs are loaded: the start is to be quick.
        let texts = std::thread::spawn(|| (Kallsyms::read(), KernelTypes::read()));
        let cpus = host::online_cpus(Path::new("/"));
        let pace = if follow.is_some() { oncpu::Pace::Close } else { oncpu::Pace::Calm };
        probes.tasks = keep(tasks::Tasks::start(&mut slots.tasks), missing);
        probes.irq = keep(irq::Irq::start(&mut slots.irq), missing);
        let soft = probes.irq.as_ref().map(irq::Irq::soft);
        probes.napi = keep(napi::Napi::start(&mut slots.napi, soft), missing);
        probes.oncpu = keep(oncpu::OnCpu::load(&mut slots.oncpu, &cpus, pace), missing);
        probes.connect = keep(connect::Connect::start(&mut slots.connect), missing);
        let (kallsyms, types) = texts.join().unwrap_or_default();
        probes.kallsyms = kallsyms;
        let budget = sched::Budget::of(cpus.len(), follow.is_some());
        probes.sched = keep(
            sched::Sched::load(&mut slots.sched, types.layout.or_from(&probes.kallsyms), budget),
            missing,
        );
        probes.memory = keep(memory::Memory::start(&mut slots.memory, types.pause_arguments), missing);
        let shared = probes.sched.as_ref().map(sched::Sched::shared);
        probes.blkio = keep(blkio::Blkio::start(&mut slots.blkio, &probes.kallsyms, shared), missing);
        probes.locks = keep(locks::Locks::start(&mut slots.locks, shared, &cpus), missing);
        probes.work = keep(work::Work::start(&mut slots.work), missing);
        probes.late = keep(late::Late::start(&mut slots.late, &probes.kallsyms, types.calls), missing);
        if let Some(late) = probes.late.as_ref().filter(|_| !types.calls) {
            probes.ipi = keep(ipi::Ipi::start(&mut slots.ipi, Some(late.shared())), missing);
        }
        if let Some(follow) = follow {
            let started = calls::Calls::start(&mut slots.calls, shared, follow.slow, follow.user_stacks);
            probes.calls = keep(started, missing);
        }
        if let (Some(sched), Some(follow)) = (&probes.sched, follow) {
            let mut threads = host::threads_of(&follow.pids);
            threads.extend(members(follow, probes.tasks.as_mut(), missing));
            keep(sched.follow(&threads), missing);
        }
        probes.code = programs::code();
        probes.programs = Some(programs::Programs::before(&own_programs()));
        probes
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
