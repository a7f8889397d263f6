//! A part of a run: a fault or a load with its victims. To add one: a module with its `Spec` and one line below.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
pub use whyslow_faults::expected::{Facts, Proof};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Span, Victim, clock};

use crate::plan::{LookSpec, Plan};

use crate::testbed::{
    TestBed, audit, cases, held_lock, irqs_off, live_fault, loads, masks, memory_high, reclaim, saturated,
    scheduler, sleeping_work, slow_cpu, slow_file, urgent, wakeup_latency,
};

/// A part in a scenario file: `kind` and the fields of the part's own `Spec`.
pub trait Setting {
    /// Start it, healthy.
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble>;

    /// The fault module must be built for the guest's kernel.
    fn needs_module(&self) -> bool {
        false
    }

    /// A program of the system that it runs, and that not every host has.
    fn needs_program(&self) -> Option<&'static str> {
        None
    }

    /// The sched_ext scheduler must be built.
    fn needs_scheduler(&self) -> bool {
        false
    }
}

/// A part that runs. It ends when it is dropped.
pub trait Part {
    /// Turn the fault on. A load has none.
    fn impose(&mut self) -> Result<(), Trouble>;

    /// Turn it off, and wait until its victims make progress again.
    fn lift(&mut self) -> Result<(), Trouble>;

    /// Names that are known from the start: `{key}` in the arguments of whyslow.
    fn names(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Cgroups of its victims: whyslow must report their CPU time.
    fn groups(&self) -> Vec<&Group> {
        Vec::new()
    }

    /// Its effect, by its victims' own clock; never from a file that whyslow reads.
    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble>;
}

/// All parts of a run.
pub struct Parts {
    /// Of `[[fault]]`.
    pub faults: Vec<Box<dyn Part>>,
    /// Of `[[load]]`.
    pub loads: Vec<Box<dyn Part>>,
}

impl Parts {
    /// Start them, healthy.
    pub fn set(plan: &Plan, testbed: &TestBed) -> Result<Self, Trouble> {
        let draw = Draw::with(plan.seed).branch(&plan.scenario);
        let mut parts = Parts { faults: Vec::new(), loads: Vec::new() };
        for (index, load) in plan.loads.iter().enumerate() {
            parts.loads.push(load.set(testbed, &mut draw.branch(&format!("load {index}")))?);
        }
        for (index, fault) in plan.faults.iter().enumerate() {
            parts.faults.push(fault.set(testbed, &mut draw.branch(&format!("fault {index}")))?);
        }
        Ok(parts)
    }

    /// Names that are known from the start.
    pub fn names(&self) -> BTreeMap<String, String> {
        // The first part that has a name gives it.
        self.all().rev().flat_map(|part| part.names()).collect()
    }

    /// Each of them.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Box<dyn Part>> {
        self.loads.iter().chain(&self.faults)
    }

    /// Turn all faults on.
    pub fn impose(&mut self) -> Result<(), Trouble> {
        self.faults.iter_mut().try_for_each(|fault| fault.impose())
    }

    /// Turn all faults off.
    pub fn lift(&mut self) -> Result<(), Trouble> {
        self.faults.iter_mut().rev().try_for_each(|fault| fault.lift())
    }

    /// Measure spans with all faults off, before and after the window; with `each`, one span for each fault, in which only that fault is
    /// off.
    pub fn without(&mut self, look: &LookSpec) -> Result<Vec<Span>, Trouble> {
        let length = Duration::from_millis(look.without_ms);
        if !look.each {
            return Ok(vec![clock::span_of(length)]);
        }
        let mut spans = Vec::new();
        for at in 0..self.faults.len() {
            self.impose()?;
            self.faults[at].lift()?;
            std::thread::sleep(Duration::from_millis(look.settle_ms));
            spans.push(clock::span_of(length));
        }
        self.lift()?;
        Ok(spans)
    }

    /// The effect of each of these parts. `without`: spans of each, or of all.
    pub fn facts(of: &[Box<dyn Part>], window: Span, without: &[Vec<Span>]) -> Result<Vec<Facts>, Trouble> {
        let one = |(at, part): (usize, &dyn Part)| {
            let spans: Vec<Span> =
                without.iter().filter_map(|spans| spans.get(at).or(spans.first())).copied().collect();
            let mut facts = part.facts(window, &spans)?;
            for (key, name) in part.names() {
                facts.names.entry(key).or_insert(name);
            }
            Ok(facts)
        };
        of.iter().map(|part| &**part).enumerate().map(one).collect()
    }
}

/// The names of a part with one victim in a group of its own.
pub fn group_and_victim(group: &Group, victim: &Victim) -> BTreeMap<String, String> {
    let known = [
        ("group", group.path().to_owned()),
        ("comm", victim.comm().to_owned()),
        ("pid", victim.pid().to_string()),
    ];
    known.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
}

macro_rules! parts {
    ($(#[$about:meta])* $name:ident { $($variant:ident($spec:ty),)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        pub enum $name {
            $(#[doc = concat!("See `", stringify!($spec), "`.")] $variant($spec),)*
        }

        impl Setting for $name {
            fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
                match self {
                    $($name::$variant(spec) => spec.set(testbed, draw),)*
                }
            }

            fn needs_module(&self) -> bool {
                match self {
                    $($name::$variant(spec) => spec.needs_module(),)*
                }
            }

            fn needs_program(&self) -> Option<&'static str> {
                match self {
                    $($name::$variant(spec) => spec.needs_program(),)*
                }
            }

            fn needs_scheduler(&self) -> bool {
                match self {
                    $($name::$variant(spec) => spec.needs_scheduler(),)*
                }
            }
        }
    };
}

parts! {
    /// The possible faults.
    FaultSpec {
        Audit(audit::Spec),
        BusyWait(cases::busy_wait::Spec),
        Churn(cases::churn::Spec),
        CpuLatency(cases::cpu_latency::Spec),
        Nodes(cases::nodes::Spec),
        LiveFault(live_fault::Spec),
        SlowServer(cases::slow_cpu::Spec),
        Stall(cases::stall::Spec),
        SlowFiles(cases::files::Spec),
        PollingThread(cases::polling::Spec),
        RuleSet(cases::rule_set::Spec),
        BottomHalves(cases::bottom_halves::Spec),
        PacketFlood(cases::burst::Spec),
        HeldLock(held_lock::Spec),
        SleepingWork(sleeping_work::Spec),
        SlowFile(slow_file::Spec),
        Reclaim(reclaim::Spec),
        MemoryHigh(memory_high::Spec),
        IrqsOff(irqs_off::Spec),
        WakeupLatency(wakeup_latency::Spec),
        SlowCpu(slow_cpu::Spec),
        FullElsewhere(masks::FullElsewhere),
        FullThreads(saturated::Threads),
        Spinners(masks::Spinners),
        Waiters(saturated::Waiters),
        Urgent(urgent::Spec),
    }
}

parts! {
    /// The possible loads.
    LoadSpec {
        LiveFault(live_fault::Spec),
        Compile(loads::compile::Spec),
        Crowd(loads::crowd::Spec),
        Disk(loads::disk::Spec),
        Network(loads::network::Spec),
        Traffic(cases::traffic::Spec),
        Idle(loads::idle::Spec),
        Forks(loads::forks::Spec),
        Scheduler(scheduler::Spec),
    }
}
