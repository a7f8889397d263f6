//! Typed facts of one window. Every accessor is a `Result`: `?` in a rule means "cannot tell", never "fine".
//!
//! Rates are the last frame minus the first: never totals since boot. A counter that went down (counters wrap, and idle times
//! are not monotonic) counts as unchanged. A counter that only the last frame has is not known: its value may be as old as the host.

use std::rc::Rc;
use std::time::Duration;

use whyslow_model::{FileSnapshot, Missing, Probe, Recording, table};

use crate::parse::{self, Bad};

mod cgroups;
mod cpu;
mod disk;
#[cfg(test)]
pub(crate) mod fixture;
mod frequency;
mod idle;
mod index;
mod kernel;
pub(crate) mod losses;
mod memory;
mod net;

pub use cpu::CpuTime;
pub use frequency::Policy;
pub use idle::IdleState;
use index::Index;
pub use kernel::Clocksource;
use losses::ProbesRead;
pub use net::Netns;

/// The facts of a recording.
#[derive(Debug, Clone)]
pub struct Evidence<'r> {
    rec: &'r Recording,
    baseline: Option<&'r Recording>,
    index: Rc<Index<'r>>,
    asked: Rc<ProbesRead>,
}

/// Accessors of tables, with the name of the probe that fills them.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $row:ident, $probe:ident;)*) => {
        impl<'r> Evidence<'r> {$(
            $(#[$doc])*
            pub fn $name(&self) -> Result<&'r [table::$row], Missing> {
                self.asked.note(Probe::$probe);
                self.rec.tables.$name.as_deref().ok_or_else(|| self.rec.why_untold(Probe::$probe))
            }
        )*}
    };
}

tables! {
    /// All tasks of the window.
    tasks: Task, TaskList;
    /// All cgroups that had a task.
    cgroups: Cgroup, TaskList;
    /// Stacks seen on CPU.
    samples: Sample, OnCpuSamples;
    /// Stacks that waited.
    waits: Wait, OffCpuStacks;
    /// Interrupt time of each CPU.
    cpus: Cpu, InterruptTime;
    /// Memory work of tasks.
    memory: Memory, MemoryEvents;
    /// Block I/O by device, cgroup and direction.
    disk: Disk, BlockIo;
    /// What tasks did, in order.
    spans: Span, OffCpuStacks;
    /// Calls that failed for lack of something.
    failed_calls: FailedCall, FailedCalls;
    /// Processes that want wake-ups to be quick.
    latency_holders: LatencyHolder, LatencyHolders;
    /// What the receive softirq did on each CPU.
    polls: Poll, ReceivedPackets;
    /// Sockets whose packets waited for a reader.
    sockets: Socket, ReceiveQueues;
    /// Long runs of tasks on each CPU.
    runs: Run, OffCpuStacks;
    /// What each CPU delivered.
    speeds: Speed, CpuSpeed;
    /// Calls that another CPU served late.
    cross_calls: CrossCall, CrossCalls;
    /// Timers that came late.
    late_timers: LateTimer, IrqLatency;
    /// Times in which a CPU took no interrupt.
    gaps: Gap, IrqLatency;
    /// How late each CPU was, by its state.
    irq_latencies: IrqLatency, IrqLatency;
    /// Packets that waited for their CPU.
    stalls: Stall, PacketStalls;
    /// Statistics files that were read.
    stat_reads: StatRead, StatReads;
    /// Cgroups, namespaces and mounts that process trees made and removed.
    churn: Churn, Churn;
    /// Samples of tasks in D state.
    blocked: Blocked, BlockedTasks;
    /// Work items by function.
    works: Work, WorkItems;
    /// Code in which busy threads were sampled.
    spins: Spin, OnCpuSamples;
}

impl<'r> Evidence<'r> {
    /// The facts of `rec`.
    #[must_use]
    pub fn of(rec: &'r Recording) -> Self {
        Evidence { rec, baseline: None, index: Rc::default(), asked: Rc::default() }
    }

    /// Stacks show what tasks waited for. They are a file of their own, which a recording may have lost while it has the timelines.
    pub fn has_stacks(&self) -> Result<(), Missing> {
        let lost = self.rec.tables.stacks.is_none();
        if lost { Err(self.rec.why_untold(Probe::OffCpuStacks)) } else { Ok(()) }
    }

    /// The facts, compared with `baseline`: a window of the same host, or of one like it, in which all was well.
    #[must_use]
    pub fn beside(self, baseline: Option<&'r Recording>) -> Self {
        Evidence { baseline, ..self }
    }

    /// The facts of the baseline.
    #[must_use]
    pub fn baseline(&self) -> Option<&'r Recording> {
        self.baseline
    }

    /// The recording itself.
    #[must_use]
    pub fn recording(&self) -> &'r Recording {
        self.rec
    }

    /// Whether a thread of this process, or the process itself, is whyslow's own: it does not accuse itself.
    #[must_use]
    pub fn is_own(&self, pid: u32, tgid: u32) -> bool {
        self.rec.meta.is_own(pid, tgid)
    }

    /// Length of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.rec.window()
    }

    /// An error if the tracer of waits could not observe: how long each task waited is then not known, and not zero.
    pub fn waits_were_seen(&self) -> Result<(), Missing> {
        const SEEN_BY: &str = Probe::OffCpuStacks.word();
        let refused = self.rec.missing.iter().find(|note| note.missing.what() == SEEN_BY);
        match refused.filter(|_| self.rec.tables.spans.is_none()) {
            Some(note) => Err(note.missing.clone()),
            None => Ok(()),
        }
    }

    /// The probe that fills a table observed only for a part of the window, or not at all.
    pub fn lacks_a_part(&self, probe: Probe) -> bool {
        self.rec.missing.iter().any(|note| note.missing.what() == probe.word())
    }

    /// A file as it was at the end of the window.
    pub fn file<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, Bad>) -> Result<T, Missing> {
        parsed(self.last(name)?, parse)
    }

    /// A file as it was at both ends of the window.
    pub fn ends<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, Bad>) -> Result<(T, T), Missing> {
        let (first, last) = (self.first(name)?, self.last(name)?);
        if std::ptr::eq(first, last) {
            return Err(Missing::not_recorded(format!("a second reading of {name}")));
        }
        Ok((parsed(first, &parse)?, parsed(last, &parse)?))
    }

    /// The latest frame of every file whose name has this begin and end, by name.
    pub fn files_like(&self, begin: &str, end: &str) -> Vec<&'r FileSnapshot> {
        self.files_below(begin).filter(|frame| frame.name.ends_with(end)).collect()
    }
}

/// A counter that only the last reading has.
fn not_at_first(name: &str, file: &str) -> Missing {
    Missing::not_recorded(format!("the first reading of {name} in {file}"))
}

fn parsed<T>(frame: &FileSnapshot, parse: impl Fn(&str) -> Result<T, Bad>) -> Result<T, Missing> {
    parse(&parse::text(&frame.bytes)).map_err(|bad| Missing::broken(&frame.name, bad))
}

#[cfg(test)]
mod tests {
    use super::fixture::Fixture;
    use super::*;
    use crate::parse::single;

    #[test]
    fn a_file_read_once_has_no_rate() {
        let host = Fixture::second().end("proc/x", "1\n");
        assert_eq!(host.ev().file("proc/x", single::integer), Ok(1));
        let why = host.ev().ends("proc/x", single::integer).unwrap_err();
        assert_eq!(why.to_string(), "a second reading of proc/x was not recorded");
    }

    #[test]
    fn a_torn_file_is_named() {
        let host = Fixture::second().end("proc/x", "1x\n");
        let why = host.ev().file("proc/x", single::integer).unwrap_err();
        assert_eq!(why.to_string(), "cannot read proc/x: expected one number in line \"1x\\n\"");
    }

    #[test]
    fn the_reason_for_an_absent_table_or_file_is_reported() {
        let host = Fixture::second().missing(Missing::skipped("on-CPU samples", "too late"));
        assert_eq!(host.ev().samples().unwrap_err().to_string(), "on-CPU samples was skipped: too late");
        assert_eq!(host.ev().disk().unwrap_err().to_string(), "block I/O was not recorded");
    }

    #[test]
    fn of_one_name_the_latest_frame_is_taken() {
        let host =
            Fixture::second().start("sys/a/x", "1").end("sys/a/x", "2").end("sys/b/x", "3").end("sys/y", "4");
        let found: Vec<&[u8]> = host.ev().files_like("sys/", "/x").iter().map(|f| &f.bytes[..]).collect();
        assert_eq!(found, [b"2", b"3"]);
    }
}
