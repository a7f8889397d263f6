//! The module's orders.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Count;

/// What a thread does while the time passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meanwhile {
    /// Sleeps, uninterruptibly.
    Sleep,
    /// Stays on a CPU.
    Spin,
    /// Waits for another lock, later in the order of locks, and sleeps for the time after it released that lock.
    Take(Grip),
}

/// A lock and how it is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grip {
    /// One of `MUTEXES`, `RWSEMS`, `PERCPU_RWSEMS`.
    pub lock: String,
    /// As a reader: not for a mutex.
    pub shared: bool,
}

/// The context that keeps interrupts off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interrupter {
    /// A kernel thread of this name, bound to the CPU.
    Thread(String),
    /// A kernel thread of this name, bound to the CPU, that keeps only bottom halves off.
    BottomHalves(String),
    /// A timer's interrupt.
    Timer,
}

/// What reading a proc file does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Sleeps that long.
    Sleep(Duration),
    /// Stays on a CPU in the kernel that long.
    Spin(Duration),
    /// Acquires the lock, sleeps with it that long, releases it.
    Take(Grip, Duration),
    /// Queues the work item and flushes it.
    Flush(String),
    /// Queues the work item and waits for a completion.
    Await(String),
    /// Waits in state D until the gate is opened.
    Gate,
}

/// When a slow CPU is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// While the frequency of its policy is the lowest.
    Lowest,
    /// Always.
    Always,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Interrupts (or bottom halves) are off on a CPU again and again.
    IrqsOff {
        /// The CPU; at most one such fault for each CPU.
        cpu: u32,
        /// At most 1 s.
        lasts: Duration,
        /// From start to start.
        every: Duration,
        /// The context that does it.
        by: Interrupter,
    },
    /// Waking from an idle state takes longer. One fault of the kind at a time.
    LateWake {
        /// The CPUs.
        cpus: Vec<u32>,
        /// The first state that is slow to leave.
        from: u32,
        /// At most 1 s.
        lasts: Duration,
    },
    /// A kernel thread acquires and holds a lock again and again.
    Held {
        /// The lock that it holds.
        grip: Grip,
        /// At most 10 s.
        lasts: Duration,
        /// From start to start.
        every: Duration,
        /// The thread's name.
        by: String,
        /// What it does while it holds the lock.
        meanwhile: Meanwhile,
    },
    /// A work item on the system's work queue takes that long whenever it runs.
    Work {
        /// One of `WORKS`.
        work: String,
        /// At most 10 s.
        lasts: Duration,
        /// On a CPU instead of asleep.
        spins: bool,
        /// The worker's description while it runs.
        label: String,
    },
    /// A proc file whose read does something.
    File {
        /// In the module's folder.
        name: String,
        /// What a read does.
        act: Act,
    },
    /// An emulated P-state MSR. Turned on before acpi-cpufreq is loaded, off when that is unloaded.
    PStateMsr {
        /// 5.10 asks each CPU for its frequency when /proc/cpuinfo or scaling_cur_freq is read.
        aperf: bool,
    },
    /// A share of the time is burned in a timer's interrupt. One fault of the kind at a time.
    SlowCpu {
        /// The CPUs.
        cpus: Vec<u32>,
        /// The share, 1 to 90: a loop takes 100 / (100 - percent) times as long.
        percent: u32,
        /// From start to start of a burn: the pause before it is `every * (100 - percent) / 100`.
        every: Duration,
        /// When.
        when: When,
    },
}

impl fmt::Display for Grip {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}{}", self.lock, if self.shared { ":read" } else { "" })
    }
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => to.write_str("sleep"),
            Self::Spin => to.write_str("spin"),
            Self::Take(grip) => write!(to, "take:{grip}"),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep(lasts) => write!(to, "sleep={}", lasts.as_micros()),
            Self::Spin(lasts) => write!(to, "spin={}", lasts.as_micros()),
            Self::Take(grip, lasts) => write!(to, "take={grip} for={}", lasts.as_micros()),
            Self::Flush(work) => write!(to, "flush={work}"),
            Self::Await(work) => write!(to, "await={work}"),
            Self::Gate => to.write_str("gate"),
        }
    }
}

impl Fault {
    /// The line that makes it.
    pub fn on(&self) -> String {
        match self {
            Self::IrqsOff { cpu, lasts, every, by } => {
                let by = match by {
                    Interrupter::Thread(name) => format!("form=thread by={name}"),
                    Interrupter::BottomHalves(name) => format!("form=halves by={name}"),
                    Interrupter::Timer => "form=timer".into(),
                };
                format!("irqs cpu={cpu} for={} every={} {by}", lasts.as_micros(), every.as_micros())
            }
            Self::LateWake { cpus, from, lasts } => {
                format!("idle cpus={} from={from} for={}", list(cpus), lasts.as_micros())
            }
            Self::Held { grip, lasts, every, by, meanwhile } => {
                let (lasts, every) = (lasts.as_micros(), every.as_micros());
                format!("lock {grip} for={lasts} every={every} by={by} meanwhile={meanwhile}")
            }
            Self::Work { work, lasts, spins, label } => {
                let meanwhile = if *spins { "spin" } else { "sleep" };
                format!("work {work} for={} meanwhile={meanwhile} label={label}", lasts.as_micros())
            }
            Self::File { name, act } => format!("file {name} {act}"),
            Self::PStateMsr { aperf } => if *aperf { "msr on aperf" } else { "msr on" }.into(),
            Self::SlowCpu { cpus, percent, every, when } => {
                let when = if *when == When::Lowest { "lowest" } else { "always" };
                format!("pace cpus={} share={percent} every={} when={when}", list(cpus), every.as_micros())
            }
        }
    }

    /// The line that ends it.
    pub fn off(&self) -> String {
        match self {
            Self::IrqsOff { cpu, .. } => format!("irqs cpu={cpu} off"),
            Self::LateWake { .. } => "idle off".into(),
            Self::Held { by, .. } => format!("lock off by={by}"),
            Self::Work { work, .. } => format!("work {work} off"),
            Self::File { name, .. } => format!("file {name} off"),
            Self::PStateMsr { .. } => "msr off".into(),
            Self::SlowCpu { .. } => "pace off".into(),
        }
    }

    /// The function of the module in which the time passes, as a stack names it.
    pub fn function(&self) -> &str {
        match self {
            Self::IrqsOff { by: Interrupter::Thread(_), .. } => "sort_rows",
            Self::IrqsOff { by: Interrupter::BottomHalves(_), .. } => "sort_cards",
            Self::IrqsOff { by: Interrupter::Timer, .. } => "sort_batch",
            Self::LateWake { .. } => "mark_page",
            Self::Held { .. } => "tend_shelf",
            Self::Work { work, .. } => work,
            Self::File { .. } => "page_read",
            Self::PStateMsr { .. } => "amend_read",
            Self::SlowCpu { .. } => "fold_rows",
        }
    }

    /// The module's account of it, all CPUs together.
    pub fn count(&self, counts: &[Count]) -> Count {
        let mut sum = Count { what: self.verb().into(), ..Count::default() };
        for count in counts.iter().filter(|count| self.is_in(count)) {
            sum.times = sum.times.saturating_add(count.times);
            sum.total = sum.total.saturating_add(count.total);
            sum.longest = sum.longest.max(count.longest);
            sum.inside = sum.inside.saturating_add(count.inside);
        }
        sum
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::IrqsOff { .. } => "irqs",
            Self::LateWake { .. } => "idle",
            Self::Held { .. } => "lock",
            Self::Work { .. } => "work",
            Self::File { .. } => "file",
            Self::PStateMsr { .. } => "msr",
            Self::SlowCpu { .. } => "pace",
        }
    }

    fn is_in(&self, count: &Count) -> bool {
        let named = match self {
            Self::IrqsOff { cpu, .. } => count.cpu == Some(*cpu),
            Self::Held { by, .. } => count.by.as_ref() == Some(by),
            Self::Work { work: name, .. } | Self::File { name, .. } => count.name.as_ref() == Some(name),
            Self::LateWake { .. } | Self::PStateMsr { .. } | Self::SlowCpu { .. } => true,
        };
        named && count.what == self.verb()
    }
}

/// A list of CPUs as the kernel reads it.
fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
