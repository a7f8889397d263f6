//! All BPF probes of a window, together: started, polled, ended, and turned into tables.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;
use whyslow_model::table::{self, Tables};
use whyslow_model::{Missing, MissingNote};

use crate::bpf::{
    blkio, calls, connect, ipi, irq, late, latency, locks, memory, napi, oncpu, programs, sched, tasks, work,
};
use crate::files::Files;
use crate::kallsyms::Kallsyms;
use crate::record::{Follow, Plan};
use crate::span_table::{self, Window};
use crate::speed::Speeds;
use crate::symbols::KernelNames;
use crate::{call_table, host, late_table, listeners, lock_table, sample_table, task_table};

/// Where the kernel's copies of the programs live.
pub struct Slots {
    tasks: MaybeUninit<OpenObject>,
    sched: MaybeUninit<OpenObject>,
    oncpu: MaybeUninit<OpenObject>,
    irq: MaybeUninit<OpenObject>,
    blkio: MaybeUninit<OpenObject>,
    connect: MaybeUninit<OpenObject>,
    memory: MaybeUninit<OpenObject>,
    locks: MaybeUninit<OpenObject>,
    work: MaybeUninit<OpenObject>,
    calls: MaybeUninit<OpenObject>,
    late: MaybeUninit<OpenObject>,
    ipi: MaybeUninit<OpenObject>,
    napi: MaybeUninit<OpenObject>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            tasks: MaybeUninit::uninit(),
            sched: MaybeUninit::uninit(),
            oncpu: MaybeUninit::uninit(),
            irq: MaybeUninit::uninit(),
            blkio: MaybeUninit::uninit(),
            connect: MaybeUninit::uninit(),
            memory: MaybeUninit::uninit(),
            locks: MaybeUninit::uninit(),
            work: MaybeUninit::uninit(),
            calls: MaybeUninit::uninit(),
            late: MaybeUninit::uninit(),
            ipi: MaybeUninit::uninit(),
            napi: MaybeUninit::uninit(),
        }
    }
}

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

/// The probes that run. One that could not start is `None`, and noted as missing.
pub struct Probes<'slot> {
    tasks: Option<tasks::Tasks<'slot>>,
    irq: Option<irq::Irq<'slot>>,
    oncpu: Option<oncpu::OnCpu<'slot>>,
    sched: Option<sched::Sched<'slot>>,
    blkio: Option<blkio::Blkio<'slot>>,
    connect: Option<connect::Connect<'slot>>,
    memory: Option<memory::Memory<'slot>>,
    locks: Option<locks::Locks<'slot>>,
    work: Option<work::Work<'slot>>,
    calls: Option<calls::Calls<'slot>>,
    late: Option<late::Late<'slot>>,
    ipi: Option<ipi::Ipi<'slot>>,
    napi: Option<napi::Napi<'slot>>,
    programs: Option<programs::Programs>,
    speeds: Option<Speeds>,
    kallsyms: Kallsyms,
    code: Vec<Range<u64>>,
    start: tasks::Snapshot,
}

/// What the probes saw.
#[derive(Default)]
pub struct Traced {
    code: Vec<Range<u64>>,
    start: tasks::Snapshot,
    end: Option<tasks::Snapshot>,
    sched: Option<sched::Seen>,
    locks: Option<locks::Seen>,
    work: Option<work::Seen>,
    calls: Option<calls::Seen>,
    late: Option<late::Seen>,
    seen_on_cpu: Option<(oncpu::Seen, oncpu::Pace)>,
    cpus: Option<Vec<table::Cpu>>,
    disk: Option<Vec<table::Disk>>,
    memory: Option<Vec<table::Memory>>,
    connects: Option<Vec<table::Connect>>,
    listeners: Option<Vec<table::Listener>>,
    programs: Option<Vec<table::Program>>,
    latency_holders: Option<Vec<table::LatencyHolder>>,
    polls: Option<Vec<table::Poll>>,
    sockets: Option<Vec<table::Socket>>,
    speeds: Option<Vec<table::Speed>>,
    /// Run time of our BPF programs.
    pub own_bpf_ns: Option<u64>,
    /// Events seen and not noted, by probe.
    pub lost: Vec<(String, u64)>,
}

/// The part of the window in which the kernel counts the run time of BPF programs: counting costs, too.
const STATISTICS_FROM: f64 = 0.4;
const STATISTICS_TO: f64 = 0.6;
/// Longer windows have no known end: somebody waits for a command.
const OPEN_ENDED: Duration = Duration::from_secs(24 * 3600);
/// Of those, this much of seconds 0, 1, 2, 4, 8, ...: the last part stands for all.
const STATISTICS_OPEN: Duration = Duration::from_millis(200);

/// Whether the run time of BPF programs is to be counted now.
fn is_sampled(at: Duration, window: Duration) -> bool {
    if window < OPEN_ENDED {
        return at >= window.mul_f64(STATISTICS_FROM) && at < window.mul_f64(STATISTICS_TO);
    }
    let second = at.as_secs();
    (second == 0 || second.is_power_of_two()) && at - Duration::from_secs(second) < STATISTICS_OPEN
}

/// The value, or a note of why there is none.
fn keep<T>(result: Result<T, Missing>, missing: &mut Vec<MissingNote>) -> Option<T> {
    result.map_err(|why| missing.push(why.into())).ok()
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

    /// The kernel's symbols.
    #[must_use]
    pub fn kallsyms(&self) -> &Kallsyms {
        &self.kallsyms
    }

    /// The window begins.
    pub fn begin(&mut self, missing: &mut Vec<MissingNote>) {
        if let Some(sched) = &mut self.sched
            && keep(sched.begin(), missing).is_none()
        {
            self.sched = None;
        }
        if let Some(tasks) = &mut self.tasks {
            self.start = keep(tasks.snapshot(), missing).unwrap_or_default();
        }
    }

    /// All is read that is read before it: the window begins now. What the probes counted since they were attached is
    /// not of it: on a slow host that is seconds.
    pub fn count(&mut self, missing: &mut Vec<MissingNote>) {
        if let Some(irq) = &mut self.irq {
            keep(irq.begin(), missing);
        }
        if let Some(napi) = &mut self.napi {
            keep(napi.begin(), missing);
        }
        if let Some(blkio) = &self.blkio {
            blkio.begin();
        }
        if let Some(memory) = &self.memory {
            memory.begin();
        }
        if let Some(work) = &self.work {
            work.begin();
        }
        if let Some(oncpu) = &mut self.oncpu
            && keep(oncpu.begin(), missing).is_none()
        {
            self.oncpu = None;
        }
        if let Some(locks) = &mut self.locks {
            locks.begin();
        }
        if let Some(late) = &mut self.late {
            late.begin();
        }
    }

    /// Threads that measure the CPUs begin. Not where a command is followed: it pays for what we take.
    pub fn measure(&mut self, plan: &Plan, missing: &mut Vec<MissingNote>) {
        if plan.root == Path::new("/") && plan.follow.is_none() {
            self.speeds = keep(Speeds::begin(plan.window, &self.start.tasks, plan.all_cpus), missing);
        }
    }

    /// A beat within the window.
    pub fn poll(&mut self, at: Duration, window: Duration) {
        if let Some(programs) = &mut self.programs {
            match (is_sampled(at, window), programs.is_counting()) {
                (false, true) => programs.disable(),
                // Refused: then the rows say so at the end.
                (true, false) => drop(programs.enable()),
                _ => {}
            }
        }
        if let Some(sched) = &mut self.sched {
            // A ring buffer that cannot be read now is read at the end, which says so if it still cannot.
            let _ = sched.poll();
        }
        if let Some(locks) = &mut self.locks {
            let _ = locks.poll();
        }
        if let Some(calls) = &mut self.calls {
            let _ = calls.poll();
        }
        if let Some(napi) = &mut self.napi {
            napi.poll(at);
        }
    }

    /// The window ends: everything stops at about the same time.
    pub fn end(&mut self, window: Duration, missing: &mut Vec<MissingNote>) -> Traced {
        let (start, code) = (std::mem::take(&mut self.start), std::mem::take(&mut self.code));
        let mut traced = Traced { start, code, ..Traced::default() };
        traced.speeds = self.speeds.take().map(|speeds| speeds.end(missing));
        if let Some(locks) = &mut self.locks {
            locks.end(window);
        }
        // The kernel's totals and ours are compared: nothing is done between these two that takes time.
        if let Some(tasks) = &mut self.tasks {
            traced.end = keep(tasks.snapshot(), missing);
        }
        if let Some(sched) = self.sched.take()
            && let Some((seen, lost)) = keep(sched.finish(), missing)
        {
            if !seen.without_wakers.is_zero() {
                let ms = seen.without_wakers.as_millis();
                let reason = format!("for {ms} ms of the window a CPU had too many switches to ask at each");
                missing.push(Missing::skipped("who woke whom", reason).into());
            }
            traced.sched = Some(seen);
            traced.note_lost(sched::WHAT, lost);
        }
        self.end_waits(&mut traced, missing);
        if let Some(tasks) = &self.tasks {
            traced.note_lost(tasks::WHAT, tasks.lost());
        }
        if let Some(oncpu) = &mut self.oncpu {
            traced.seen_on_cpu = keep(oncpu.finish(), missing).map(|seen| (seen, oncpu.pace()));
            traced.note_lost(oncpu::WHAT, oncpu.lost());
        }
        if let Some(irq) = &self.irq {
            traced.cpus = keep(irq.rows(), missing);
            traced.note_lost(irq::WHAT, irq.lost());
        }
        if let Some(napi) = &mut self.napi {
            traced.polls = keep(napi.rows(), missing);
            traced.sockets = keep(napi.sockets(window), missing);
            traced.note_lost(napi::WHAT, napi.lost());
        }
        if let Some(oncpu) = &self.oncpu
            && let Some(seen) = keep(oncpu.cpus(), missing)
        {
            traced.note_gaps(&seen);
        }
        self.end_rows(&mut traced, window, missing);
        traced
    }

    fn end_waits(&mut self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        if let Some(locks) = self.locks.take()
            && let Some((seen, lost)) = keep(locks.finish(), missing)
        {
            traced.locks = Some(seen);
            traced.note_lost(locks::WHAT, lost);
        }
        if let Some(work) = self.work.take()
            && let Some((seen, lost)) = keep(work.finish(), missing)
        {
            traced.work = Some(seen);
            traced.note_lost(work::WHAT, lost);
        }
        if let Some(calls) = self.calls.take()
            && let Some((seen, lost)) = keep(calls.finish(), missing)
        {
            traced.calls = Some(seen);
            traced.note_lost(calls::WHAT, lost);
        }
        self.end_late(traced, missing);
    }

    fn end_late(&mut self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        let ipi = self.ipi.take();
        if let Some(late) = self.late.take()
            && let Some((mut seen, lost)) = keep(late.finish(), missing)
        {
            seen.calls |= ipi.is_some();
            if seen.unseen > 0 {
                let reason = format!("{} were not looked at: a CPU made too many at once", seen.unseen);
                missing.push(Missing::skipped("some cross-CPU calls", reason).into());
            }
            traced.late = Some(seen);
            traced.note_lost(late::WHAT, lost + ipi.as_ref().map_or(0, ipi::Ipi::lost));
        }
    }

    fn end_rows(&mut self, traced: &mut Traced, window: Duration, missing: &mut Vec<MissingNote>) {
        if let Some(blkio) = &self.blkio {
            traced.disk = keep(blkio.rows(), missing);
            traced.note_lost(blkio::WHAT, blkio.lost());
        }
        if let Some(memory) = &self.memory {
            traced.memory = keep(memory.rows(), missing);
            traced.note_lost(memory::WHAT, memory.lost());
        }
        if let Some(connect) = &mut self.connect {
            traced.listeners = keep(listeners::full(connect), missing);
            traced.connects = keep(connect.rows(), missing);
            traced.note_lost(connect::WHAT, connect.lost());
        }
        if self.programs.is_some() {
            traced.latency_holders = keep(latency::holders(Path::new("/")), missing);
        }
        if let Some(mut programs) = self.programs.take()
            && let Some((rows, own_ns)) = keep(programs.rows(window), missing)
        {
            traced.programs = Some(rows);
            traced.own_bpf_ns = own_ns;
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

impl Traced {
    fn note_lost(&mut self, what: &str, lost: u64) {
        if lost > 0 {
            self.lost.push((what.to_owned(), lost));
        }
    }

    fn note_gaps(&mut self, seen: &[oncpu::oncpu_cpu]) {
        let rows = self.cpus.get_or_insert_with(Vec::new);
        for (cpu, gaps) in seen.iter().enumerate().filter(|(_, cpu)| cpu.samples > 0) {
            let at = rows.iter().position(|row| row.cpu == cpu as u32).unwrap_or_else(|| {
                rows.push(table::Cpu { cpu: cpu as u32, ..table::Cpu::default() });
                rows.len() - 1
            });
            rows[at].samples = gaps.samples;
            rows[at].gaps = gaps.gaps;
            rows[at].worst_gap_ns = gaps.worst_gap_ns;
        }
    }

    /// Processes that used the most CPU in the window.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<u32> {
        let Some(end) = &self.end else { return Vec::new() };
        let before: HashMap<(u32, u64), u64> =
            self.start.tasks.iter().map(|t| ((t.pid, t.start_ns), t.exec_ns)).collect();
        let mut used: HashMap<u32, u64> = HashMap::new();
        for task in &end.tasks {
            let then = before.get(&(task.pid, task.start_ns)).copied().unwrap_or(0);
            *used.entry(task.tgid).or_default() += task.exec_ns.saturating_sub(then);
        }
        let mut busiest: Vec<_> = used.into_iter().filter(|(_, ns)| *ns > 0).collect();
        busiest.sort_by_key(|(pid, ns)| (std::cmp::Reverse(*ns), *pid));
        busiest.into_iter().take(most).map(|(pid, _)| pid).collect()
    }

    /// Names for all that was seen, as tables.
    pub fn into_tables(
        mut self,
        files: &Files,
        kallsyms: &Kallsyms,
        window: Window,
        missing: &mut Vec<MissingNote>,
    ) -> Tables {
        let mut tables = Tables::default();
        let window_ns = window.ns;
        let page_size = host::page_size();
        if let Some(end) = &self.end {
            let none = sched::Seen::default();
            let seen = self.sched.as_ref().unwrap_or(&none);
            tables.tasks = Some(task_table::tasks(&self.start, end, seen, window_ns));
            tables.cgroups = Some(task_table::cgroups(&self.start, end, files.cgroup_mounts(), page_size));
        }
        let mut kernel = KernelNames::from(kallsyms).without(std::mem::take(&mut self.code));
        if let Some(seen) = &mut self.sched {
            let timelines = span_table::timelines(seen, window, &mut kernel);
            tables.waits = Some(sample_table::waits(&timelines));
            tables.spans = Some(timelines.spans);
            tables.stacks = Some(timelines.stacks);
            tables.runs = Some(timelines.runs);
        }
        self.name_waits(&mut tables, window, &mut kernel, missing);
        if let Some(seen) = self.late.take() {
            let told = late_table::tables(&seen, window, &mut kernel);
            tables.cross_calls = seen.calls.then_some(told.calls);
            tables.late_timers = Some(told.timers);
            tables.gaps = Some(told.gaps);
            tables.latenesses = Some(told.latenesses);
        }
        (tables.samples, tables.spins) =
            sample_table::samples_of(self.seen_on_cpu, &mut kernel, missing).unzip();
        tables.cpus = self.cpus;
        tables.disk = self.disk;
        tables.memory = self.memory;
        tables.connects = self.connects;
        tables.listeners = self.listeners;
        tables.programs = self.programs;
        tables.latency_holders = self.latency_holders;
        tables.polls = self.polls;
        tables.sockets = self.sockets;
        tables.speeds = self.speeds;
        tables
    }

    /// Locks, work items and system calls; their stacks come after those of the timelines.
    fn name_waits(
        &mut self,
        tables: &mut Tables,
        window: Window,
        kernel: &mut KernelNames,
        missing: &mut Vec<MissingNote>,
    ) {
        let free = |stacks: &Option<Vec<table::Stack>>| {
            stacks.iter().flatten().map(|stack| stack.id.saturating_add(1)).max().unwrap_or(0)
        };
        if let Some(seen) = self.locks.take() {
            let first = free(&tables.stacks);
            let (locks, holds, stacks) = lock_table::tables(&seen, window.start_ns, window.ns, kernel, first);
            tables.locks = Some(locks);
            tables.holds = Some(holds);
            tables.stacks.get_or_insert_default().extend(stacks);
        }
        if let Some(seen) = self.work.take() {
            tables.works = Some(lock_table::works(&seen, window.start_ns, window.ns, kernel));
        }
        if let Some(seen) = self.calls.take() {
            let first = free(&tables.stacks);
            let told = call_table::tables(seen, window.start_ns, window.ns, first, missing);
            if told.untold > 0 {
                let reason = format!("{} more than were kept", told.untold);
                missing.push(Missing::skipped("slow system calls", reason).into());
            }
            tables.calls = Some(told.calls);
            tables.slow_calls = Some(told.slow_calls);
            tables.stacks.get_or_insert_default().extend(told.stacks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_is_counted_in_a_fifth_of_a_window_or_now_and_then_if_it_has_no_known_end() {
        let counted =
            |window, to| (0..to).filter(|ms| is_sampled(Duration::from_millis(*ms), window)).count();
        assert_eq!(counted(Duration::from_secs(10), 10_000), 2_000);
        let open = Duration::from_secs(100 * 365 * 86_400);
        assert!(is_sampled(Duration::ZERO, open), "a command may be short");
        assert_eq!(counted(open, 100_000), 200 * 8);
    }
}
