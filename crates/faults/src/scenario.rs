//! One pathology, its healthy twin or its false-positive control, with the switch that turns the fault on and off.

use std::any::Any;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::clock::{self, Span};
use crate::truth::{change, median_rate};
use crate::{Draw, Fence, Truth, Victim, cgroup::Group, scenarios};

/// The six faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A cgroup whose CPU quota runs out.
    CpuQuota,
    /// Many busy threads on one CPU while another idles.
    CpuPinned,
    /// A cgroup that re-reads a file larger than its memory limit.
    MemoryLimit,
    /// A cgroup whose block I/O is throttled.
    BlkioThrottle,
    /// Clients of a server that does not accept fast enough.
    ListenOverflow,
    /// A cgroup that touches more memory than its limit, with swap.
    SwapIn,
}

/// The forms of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The victim loses time.
    Fault,
    /// The same load, no fault.
    Twin,
    /// The counter rises, and the victim loses nothing.
    Control,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 6] = [
        FaultKind::CpuQuota,
        FaultKind::CpuPinned,
        FaultKind::MemoryLimit,
        FaultKind::BlkioThrottle,
        FaultKind::ListenOverflow,
        FaultKind::SwapIn,
    ];

    /// The rule that should find it.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            FaultKind::CpuQuota => "cpu-quota",
            FaultKind::CpuPinned => "cpu-pinned",
            FaultKind::MemoryLimit => "memory-limit",
            FaultKind::BlkioThrottle => "blkio-throttle",
            FaultKind::ListenOverflow => "listen-overflow",
            FaultKind::SwapIn => "swap-in",
        }
    }
}

/// The surroundings of a scenario.
pub struct TestBed<'fence> {
    /// The fence around it.
    pub fence: &'fence Fence,
    /// Memory that its victims may use.
    pub memory: u64,
}

impl<'fence> TestBed<'fence> {
    /// A scenario with the whole fence for itself.
    #[must_use]
    pub fn alone(fence: &'fence Fence) -> Self {
        TestBed { fence, memory: 448 << 20 }
    }
}

/// Turns the fault on (true) or off (false).
pub type Switch = Box<dyn FnMut(&mut Victim, bool) -> io::Result<()>>;
/// Reads the counter that a naive observer would take for a loss.
pub type Counter = Box<dyn Fn(&Victim) -> io::Result<u64>>;

/// A running scenario.
pub struct Scenario {
    pub(crate) victim: Victim,
    /// Servers and similar processes. They end after the victim.
    pub(crate) others: Vec<Victim>,
    pub(crate) group: Group,
    pub(crate) kind: FaultKind,
    pub(crate) form: Form,
    pub(crate) said: String,
    pub(crate) switch: Switch,
    pub(crate) counter: Option<Counter>,
    pub(crate) without: Vec<Span>,
    /// Cgroups whose limit must change, if that is not just the victim's: the one that binds first, then the others.
    pub(crate) limits: Vec<String>,
    /// Swap and similar resources: released after the victims have ended.
    pub(crate) _belongings: Vec<Box<dyn Any>>,
}

impl Scenario {
    /// Draw a scenario, set it up, and start its victims; the fault is not yet on.
    pub fn set(testbed: &TestBed<'_>, kind: FaultKind, form: Form, draw: &mut Draw) -> io::Result<Self> {
        testbed.fence.check_time()?;
        let mut scenario = match kind {
            FaultKind::CpuQuota => scenarios::cpu_quota::set(testbed, form, draw),
            FaultKind::CpuPinned => scenarios::cpu_pinned::set(testbed, form, draw),
            FaultKind::MemoryLimit => scenarios::memory_limit::set(testbed, form, draw),
            FaultKind::BlkioThrottle => scenarios::blkio_throttle::set(testbed, form, draw),
            FaultKind::ListenOverflow => scenarios::listen_overflow::set(testbed, form, draw),
            FaultKind::SwapIn => scenarios::swap_in::set(testbed, form, draw),
        }?;
        scenario.others.iter().for_each(Victim::go);
        scenario.victim.go();
        scenario.lift()?;
        Ok(scenario)
    }

    /// Turn the fault on (a twin: the harmless setting).
    pub fn impose(&mut self) -> io::Result<()> {
        (self.switch)(&mut self.victim, true)
    }

    /// Turn the fault off, and wait until every task of the victim makes progress again.
    pub fn lift(&mut self) -> io::Result<()> {
        (self.switch)(&mut self.victim, false)?;
        self.victim.until_it_moves()
    }

    /// Let the victims work for `length` with the fault off, to measure the rate without it.
    pub fn work_without(&mut self, length: Duration) {
        self.without.push(clock::span_of(length));
    }

    /// Time that the victim lost in a window.
    #[must_use]
    pub fn truth(&self, window: Span) -> Truth {
        self.truth_of(window, &self.without)
    }

    /// The same, with spans that the caller knows to be without the fault.
    #[must_use]
    pub fn truth_of(&self, window: Span, without: &[Span]) -> Truth {
        Truth::reported_by(self.victim.ledger(), window, without)
    }

    /// By which part the rate changed by itself, by the victim's clock: between the spans without the fault, or between the halves of the
    /// window. A smaller loss cannot be measured then.
    #[must_use]
    pub fn drift(&self, window: Span) -> f64 {
        let halves = window.slices(window.length() / 2);
        let rate = |half: &Span| median_rate(self.victim.ledger(), std::slice::from_ref(half));
        self.truth(window).drift.max(change(halves.iter().map(rate)))
    }

    /// The counter that rises with the fault and with the false-positive control, where the kernel has one.
    pub fn counter(&self) -> io::Result<Option<u64>> {
        self.counter.as_ref().map(|read| read(&self.victim)).transpose()
    }

    /// Which fault.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The victim.
    #[must_use]
    pub fn victim(&self) -> &Victim {
        &self.victim
    }

    /// The victim's cgroup.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The cgroup whose limit binds: the victim's or one above it.
    #[must_use]
    pub fn binding(&self) -> &str {
        self.limits.first().map_or(self.group.path(), String::as_str)
    }

    /// Cgroups whose limit must change, where that is known.
    #[must_use]
    pub fn limits(&self) -> &[String] {
        &self.limits
    }

    /// All processes of the scenario.
    pub fn processes(&self) -> impl Iterator<Item = &Victim> {
        std::iter::once(&self.victim).chain(&self.others)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.kind.rule(), self.form, self.said)
    }
}
