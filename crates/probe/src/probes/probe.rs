//! What a BPF probe is: how it starts, what it is told while it runs, and how it gives what it saw.

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
use crate::numbers::Numbers;
use crate::record::Follow;
use crate::span_table::Window;
use crate::symbols::KernelNames;

/// A BPF probe that runs. Dropping it detaches it from the kernel. One of which a method fails is dropped, and missing.
pub trait Probe: Send {
    /// Timers may be set on these CPUs, and on no others.
    fn may_interrupt(&mut self, _cpus: &[u32]) -> Result<(), Missing> {
        Ok(())
    }

    /// The window begins now: what was counted before is not of it.
    fn begin(&mut self) -> Result<(), Missing> {
        Ok(())
    }

    /// A beat within the window, at this time of it: so much work and no more. True: there may be more to take. What goes wrong
    /// now goes wrong at the end, too, which says so.
    fn poll(&mut self, _at: Duration) -> bool {
        false
    }

    /// A CPU does what this probe looks at so often now that its hooks slow it.
    fn is_felt(&mut self) -> bool {
        false
    }

    /// Hooks of softirqs are let go: one of the probes says that they slow a CPU. The probe that started last is told first, since it may
    /// read what others note.
    fn let_go(&mut self) {}

    /// The window is over, and was so long. Said to all before anything is done that takes time.
    fn stop(&mut self, _window: Duration) -> Result<(), Missing> {
        Ok(())
    }

    /// Give what was seen. Hooks are let go of when the probe is dropped, which disturbs all CPUs: after the files that end the window
    /// are read.
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

/// Starts a probe; nothing, where another one does its work on this kernel.
pub type StartFn =
    for<'slot> fn(&'slot mut Slot, &Start<'_>) -> Result<Option<Box<dyn Probe + 'slot>>, Missing>;

/// When a probe is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOrder {
    /// After the scheduler's object: it uses its maps, or evens out the work of the two threads.
    AfterScheduler,
    /// Beside it, after the task list.
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
    /// Only where somebody is followed.
    pub follows: bool,
    /// What is missing, by name, where CPU time is scarce and it is not started; empty: it always is.
    pub shed: &'static [&'static str],
    /// Chains of waits rest on it.
    pub of_waits: bool,
    /// Starts it.
    pub start: StartFn,
}

/// What a probe may need to start.
pub struct Start<'a> {
    /// CPUs on which a timer may be set.
    pub cpus: &'a [u32],
    /// Who is followed.
    pub follow: Option<&'a Follow>,
    /// The scheduler's maps; none for those that do not share them, and where it did not start.
    pub shared: Option<Shared<'a>>,
    /// Maps of probes that started before.
    pub lent: LentMaps,
    /// What the kernel says of itself.
    pub kernel: &'a Kernel,
}

/// What several probes ask of the kernel, read once, when it is first asked for.
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

    /// The symbols, for good.
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
    /// What is told of interrupts.
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

/// Maps by which probes work together.
#[derive(Default)]
pub struct LentMaps {
    /// When each softirq began (`soft.bpf.h`).
    pub soft: Option<OwnedFd>,
    /// What CPUs are at, who waited, and until when (`irq_latency.bpf.h`).
    pub irq_latency: Option<[OwnedFd; 4]>,
}

/// A descriptor of one's own, as long as there are any.
pub fn own(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    fd.try_clone_to_owned().ok()
}

/// Where a probe puts what it saw.
pub struct Ending<'a> {
    /// The window's length.
    pub window: Duration,
    /// For rows that need no names.
    pub tables: &'a mut Tables,
    /// Why some of it is not known.
    pub missing: &'a mut Vec<MissingNote>,
    pub(super) lost: &'a mut Vec<(String, u64)>,
    pub(super) later: &'a mut Vec<Later>,
    pub(super) own: &'a mut Vec<u32>,
}

/// What is done when names are given.
pub type Later = Box<dyn FnOnce(&mut Naming<'_>)>;

impl Ending<'_> {
    /// The value, or a note of why there is none.
    pub fn keep<T>(&mut self, result: Result<T, Missing>) -> Option<T> {
        super::keep(result, self.missing)
    }

    /// So many events were seen and could not be noted.
    pub fn lost(&mut self, what: &str, lost: u64) {
        note_lost(self.lost, what, lost);
    }

    /// This process worked for us in the window: what it did is not the host's.
    pub fn own_process(&mut self, pid: u32) {
        self.own.push(pid);
    }

    /// Names are looked up when all probes have told: for rows that need them.
    pub fn later(&mut self, name: impl FnOnce(&mut Naming<'_>) + 'static) {
        self.later.push(Box::new(name));
    }
}

/// Add to what was lost of this name.
pub(super) fn note_lost(all: &mut Vec<(String, u64)>, what: &str, lost: u64) {
    if lost == 0 {
        return;
    }
    match all.iter_mut().find(|(of, _)| of == what) {
        Some((_, sum)) => *sum = sum.saturating_add(lost),
        None => all.push((what.to_owned(), lost)),
    }
}

/// From addresses to names.
pub struct Naming<'a> {
    /// The tables, with the timelines in them.
    pub tables: &'a mut Tables,
    /// The kernel's functions.
    pub kernel: &'a mut KernelNames,
    /// When it began, and how long it was.
    pub window: Window,
    /// Why some of it is not known.
    pub missing: &'a mut Vec<MissingNote>,
    /// Ids of our pid namespace; `None`: they are the initial one's.
    pub numbers: Option<&'a Numbers>,
}

impl Naming<'_> {
    /// The first number that no stack has.
    pub fn free_stack(&self) -> u32 {
        let stacks = self.tables.stacks.iter().flatten();
        stacks.map(|stack| stack.id.saturating_add(1)).max().unwrap_or(0)
    }

    /// Stacks with numbers from `free_stack` on.
    pub fn add_stacks(&mut self, stacks: Vec<Stack>) {
        self.tables.stacks.get_or_insert_default().extend(stacks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lose_of_one_name_is_one_sum() {
        let mut lost = Vec::new();
        for (what, events) in [("a", 2), ("b", 0), ("c", 1), ("a", 3)] {
            note_lost(&mut lost, what, events);
        }
        assert_eq!(lost, [("a".to_owned(), 5), ("c".to_owned(), 1)]);
    }
}
