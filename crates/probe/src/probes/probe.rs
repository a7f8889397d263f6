//! The interface of a BPF probe: how it starts, what it does while it runs, and how it returns its results.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;
use whyslow_model::table::{Stack, Tables};
use whyslow_model::{Missing, MissingNote};

use crate::bpf::shared::Shared;
use crate::bpf::{irq_latency, memory, sched};
use crate::kallsyms::Kallsyms;
use crate::pid_map::Numbers;
use crate::record::Follow;
use crate::span_table::Window;
use crate::symbols::KernelNames;

/// A BPF probe that runs. Dropping it detaches it from the kernel. If a method fails, the probe is dropped and reported as missing.
pub trait Probe: Send {
    /// Timers may be set on these CPUs, and on no others.
    fn may_interrupt(&mut self, _cpus: &[u32]) -> Result<(), Missing> {
        Ok(())
    }

    /// Our own process, by the number that BPF reports; 0: not known. Called once, before the window begins.
    fn leave_out(&mut self, _own: u32) {}

    /// The window begins now: what was counted before does not belong to it.
    fn begin(&mut self) -> Result<(), Missing> {
        Ok(())
    }

    /// A bounded part of the work within the window, at this time of it. True: there may be more to take. Errors are not reported
    /// here: they happen at the end, too, and are reported there.
    fn poll(&mut self, _at: Duration) -> bool {
        false
    }

    /// Whether this probe's hooks run so often on a CPU now that they slow it.
    fn is_felt(&mut self) -> bool {
        false
    }

    /// Remove the hooks of softirqs: one of the probes reports that they slow a CPU. The probe that started last is called first, because it
    /// may read data that others write.
    fn let_go(&mut self) {}

    /// The window is over, and had this length. Called for all probes before any slow work.
    fn stop(&mut self, _window: Duration) -> Result<(), Missing> {
        Ok(())
    }

    /// Return the results. Hooks are detached only when the probe is dropped, because that disturbs all CPUs: after the files at the end of the
    /// window were read.
    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing>;

    /// Maps that probes which start later may fill or read.
    fn lend(&self, _lent: &mut LentMaps) {}

    /// The CPUs that have a timer.
    #[cfg(test)]
    fn interrupts(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// The memory of an object, which outlives it.
pub type Slot = MaybeUninit<OpenObject>;

/// Starts a probe; `None` where another probe does its work on this kernel.
pub type StartFn =
    for<'slot> fn(&'slot mut Slot, &Start<'_>) -> Result<Option<Box<dyn Probe + 'slot>>, Missing>;

/// When a probe is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOrder {
    /// After the scheduler's object: it uses the scheduler's maps, or balances the work of the two threads.
    AfterScheduler,
    /// In parallel with the scheduler's object, after the task list.
    BesideScheduler,
}

/// A probe that can be started.
pub struct Entry {
    /// Its capability in `whyslow doctor`.
    pub capability: &'static str,
    /// What is lost without it.
    pub lost: &'static str,
    /// When, and on which of the two threads that load objects.
    pub load: LoadOrder,
    /// It only runs where a command, process or cgroup is followed.
    pub follows: bool,
    /// Names of what is missing where CPU time is scarce and the probe is not started; empty: it always starts.
    pub shed: &'static [&'static str],
    /// Chains of waits need it.
    pub of_waits: bool,
    /// Starts it.
    pub start: StartFn,
}

/// What a probe may need to start.
pub struct Start<'a> {
    /// CPUs on which a timer may be set.
    pub cpus: &'a [u32],
    /// The followed processes.
    pub follow: Option<&'a Follow>,
    /// The scheduler's maps; none for probes that do not share them, and where it did not start.
    pub shared: Option<Shared<'a>>,
    /// Packets are what the user watches: a CPU with very many of them is watched, too.
    pub watches_packets: bool,
    /// Maps of probes that started before this one.
    pub lent: LentMaps,
    /// What the kernel reports about itself.
    pub kernel: &'a Kernel,
}

/// What several probes read from the kernel: read once, when it is first needed.
#[derive(Default)]
pub struct Kernel {
    symbols: OnceLock<Kallsyms>,
    types: OnceLock<KernelTypes>,
}

impl Kernel {
    /// Its symbols.
    pub fn symbols(&self) -> &Kallsyms {
        self.symbols.get_or_init(Kallsyms::read)
    }

    /// Facts from its BTF.
    pub fn types(&self) -> &KernelTypes {
        self.types.get_or_init(KernelTypes::read)
    }

    /// The symbols, by value.
    pub(super) fn into_symbols(self) -> Kallsyms {
        self.symbols.into_inner().unwrap_or_default()
    }
}

/// What the kernel's BTF says, from one reading.
#[derive(Default)]
pub struct KernelTypes {
    /// Arguments of the tracepoint of paused writers.
    pub pause_arguments: Option<usize>,
    /// Where the scheduler's variables are.
    pub layout: sched::Layout,
    /// What the kernel can report about interrupts.
    pub irq_latency: irq_latency::Kernel,
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

/// Maps that probes share.
#[derive(Default)]
pub struct LentMaps {
    /// When each softirq began (`soft.bpf.h`).
    pub soft: Option<OwnedFd>,
    /// What each CPU does, which thread waited for it, and until when (`irq_latency.bpf.h`).
    pub irq_latency: Option<[OwnedFd; 4]>,
}

/// A duplicate of the descriptor, if there are descriptors left.
pub fn own(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    fd.try_clone_to_owned().ok()
}

/// Where a probe puts its results.
pub struct Ending<'a> {
    /// The window's length.
    pub window: Duration,
    /// Tables for rows that need no names.
    pub tables: &'a mut Tables,
    /// Why some results are missing.
    pub missing: &'a mut Vec<MissingNote>,
    pub(super) lost: &'a mut Vec<(String, u64)>,
    pub(super) later: &'a mut Vec<Later>,
    pub(super) own: &'a mut Vec<u32>,
}

/// Work that is done when names are looked up.
pub type Later = Box<dyn FnOnce(&mut Naming<'_>)>;

impl Ending<'_> {
    /// The value, or a note of why there is none.
    pub fn keep<T>(&mut self, result: Result<T, Missing>) -> Option<T> {
        super::keep(result, self.missing)
    }

    /// So many events were seen but not stored.
    pub fn lost(&mut self, what: &str, lost: u64) {
        note_lost(self.lost, what, lost);
    }

    /// This process worked for whyslow in the window: its work is not the host's.
    pub fn own_process(&mut self, pid: u32) {
        self.own.push(pid);
    }

    /// Run this when all probes have returned their results and names are looked up: for rows that need names.
    pub fn later(&mut self, name: impl FnOnce(&mut Naming<'_>) + 'static) {
        self.later.push(Box::new(name));
    }
}

/// Add to the number of lost events of this name.
pub(super) fn note_lost(all: &mut Vec<(String, u64)>, what: &str, lost: u64) {
    if lost == 0 {
        return;
    }
    match all.iter_mut().find(|(of, _)| of == what) {
        Some((_, sum)) => *sum = sum.saturating_add(lost),
        None => all.push((what.to_owned(), lost)),
    }
}

/// What is needed to replace addresses by names.
pub struct Naming<'a> {
    /// The tables, with the timelines in them.
    pub tables: &'a mut Tables,
    /// The kernel's functions.
    pub kernel: &'a mut KernelNames,
    /// The window's begin and length.
    pub window: Window,
    /// Why some results are missing.
    pub missing: &'a mut Vec<MissingNote>,
    /// Ids of our pid namespace; `None`: they are the initial one's.
    pub numbers: Option<&'a Numbers>,
}

impl Naming<'_> {
    /// The first number that is not used by a stack.
    pub fn free_stack(&self) -> u32 {
        let stacks = self.tables.stacks.iter().flatten();
        stacks.map(|stack| stack.id.saturating_add(1)).max().unwrap_or(0)
    }

    /// Add stacks with numbers from `free_stack` on.
    pub fn add_stacks(&mut self, stacks: Vec<Stack>) {
        self.tables.stacks.get_or_insert_default().extend(stacks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_of_the_same_name_are_summed() {
        let mut lost = Vec::new();
        for (what, events) in [("a", 2), ("b", 0), ("c", 1), ("a", 3)] {
            note_lost(&mut lost, what, events);
        }
        assert_eq!(lost, [("a".to_owned(), 5), ("c".to_owned(), 1)]);
    }
}
