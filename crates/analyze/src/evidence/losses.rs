//! Events that the probes saw but could not record, because a table or ring was full: this affects every answer that rests on them.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;

use whyslow_model::{Missing, Probe, Recording};

use super::Evidence;

/// A loss of this part of a probe's events is ignored: no threshold of a rule is below it.
const NEGLIGIBLE: f64 = 0.01;

/// The probes whose tables a rule has read.
#[derive(Debug, Default)]
pub(super) struct ProbesRead(RefCell<BTreeSet<Probe>>);

impl ProbesRead {
    pub(super) fn note(&self, probe: Probe) {
        self.0.borrow_mut().insert(probe);
    }
}

/// A result that several rules need and that is computed once, with the probes that it rests on.
pub(super) type Once<T> = OnceCell<(T, BTreeSet<Probe>)>;

impl ProbesRead {
    /// Computes the result on first use. Each user of it, first or later, counts as a reader of the tables that it rests on.
    pub(super) fn once<'c, T>(&self, cell: &'c Once<T>, make: impl FnOnce() -> T) -> &'c T {
        let (value, rests_on) = cell.get_or_init(|| {
            let before = self.0.take();
            let value = make();
            (value, self.0.replace(before))
        });
        self.0.borrow_mut().extend(rests_on);
        value
    }
}

/// The events that a probe recorded, in the unit of its losses; `None`: these are counted differently, and any loss may matter.
fn noted(rec: &Recording, probe: Probe) -> Option<u64> {
    let tables = &rec.tables;
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
    Some(match probe {
        Probe::OnCpuSamples => sum(&mut tables.samples.iter().flatten().map(|row| row.count)),
        Probe::OffCpuStacks => sum(&mut tables.spans.iter().flatten().map(|_| 1)),
        Probe::KernelLocks => sum(&mut tables.locks.iter().flatten().map(|row| row.count)),
        Probe::BlockIo => sum(&mut tables.disk.iter().flatten().map(|row| row.requests)),
        Probe::TaskList => sum(&mut tables.tasks.iter().flatten().map(|_| 1)),
        Probe::WorkItems => sum(&mut tables.works.iter().flatten().map(|row| row.count)),
        Probe::SystemCalls => sum(&mut tables.calls.iter().flatten().map(|row| row.count)),
        // Its table has one row for each task, and loses events only when it is full: rows are the least that was seen.
        Probe::MemoryEvents => sum(&mut tables.memory.iter().flatten().map(|_| 1)),
        // Each late event is in the sums of its CPU, whether or not there was room for its row.
        Probe::IrqLatency => {
            let late = sum(&mut tables.irq_latencies.iter().flatten().map(|row| row.late));
            late.saturating_add(sum(&mut tables.gaps.iter().flatten().map(|_| 1)))
        }
        Probe::InterruptTime => {
            let lines = tables.cpus.iter().flatten().flat_map(|cpu| &cpu.hardirqs);
            sum(&mut lines.map(|(.., count)| *count))
        }
        Probe::PacketStalls => sum(&mut tables.stalls.iter().flatten().map(|_| 1)),
        Probe::StatReads => sum(&mut tables.stat_reads.iter().flatten().map(|row| row.reads)),
        Probe::BlockedTasks => sum(&mut tables.blocked.iter().flatten().map(|row| row.samples)),
        Probe::Churn => sum(&mut tables.churn.iter().flatten().map(|row| row.count)),
        Probe::TcpConnects => sum(&mut tables.connects.iter().flatten().map(|row| row.count)),
        Probe::BpfPrograms
        | Probe::Code
        | Probe::CpuSpeed
        | Probe::CrossCalls
        | Probe::FailedCalls
        | Probe::LatencyHolders
        | Probe::ListeningSockets
        | Probe::ReceiveQueues
        | Probe::ReceivedPackets => return None,
    })
}

/// The table that a loss belongs to: "code of on-CPU samples" belongs to "on-CPU samples". The probe of received packets loses
/// only sockets beyond those that it follows; the counts of softirqs have a place for each CPU, and are complete.
fn table_of(what: &str) -> &str {
    match Probe::by_name(what) {
        Some(Probe::Code) => Probe::OnCpuSamples.word(),
        Some(Probe::ReceivedPackets) => Probe::ReceiveQueues.word(),
        _ => what,
    }
}

/// Why a probe's table is incomplete; `None`: it is complete, but for a negligible part.
fn in_part(rec: &Recording, probe: &str) -> Option<Missing> {
    let of_it = rec.meta.lost_events.iter().filter(|(what, _)| table_of(what) == probe);
    let lost = of_it.map(|(_, lost)| *lost).fold(0, u64::saturating_add);
    let Some(noted) = Probe::by_name(probe).and_then(|probe| noted(rec, probe)) else {
        let reason = || format!("a table was full, and {lost} could not be noted");
        return (lost > 0).then(|| Missing::part_of(probe, reason()));
    };
    let all = noted.saturating_add(lost);
    if lost as f64 <= NEGLIGIBLE * all as f64 {
        return None;
    }
    let reason = format!("a table was full, and {lost} of {all} could not be noted");
    Some(Missing::part_of(probe, reason))
}

/// All incomplete tables.
pub(crate) fn all_in_part(rec: &Recording) -> impl Iterator<Item = Missing> {
    let probes: BTreeSet<&str> = rec.meta.lost_events.iter().map(|(what, _)| table_of(what)).collect();
    probes.into_iter().filter_map(|probe| in_part(rec, probe))
}

impl Evidence<'_> {
    /// `Err`: the table of `probe` is incomplete, and a rule that rests on it cannot say that something is absent.
    pub fn whole(&self, probe: Probe) -> Result<(), Missing> {
        in_part(self.rec, probe.word()).map_or(Ok(()), Err)
    }

    /// From here on the tables that are read are noted.
    pub(crate) fn ask_anew(&self) {
        self.asked.0.borrow_mut().clear();
    }

    /// Why one of the tables that were read is incomplete.
    pub(crate) fn asked_in_part(&self) -> Option<Missing> {
        self.asked.0.borrow().iter().find_map(|probe| self.whole(*probe).err())
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::Probe;
    use whyslow_model::table::Sample;

    use super::super::fixture::Fixture;

    #[test]
    fn a_loss_counts_from_a_hundredth_on() {
        let of = |lost: u64| {
            let samples = vec![Sample { count: 990, ..Sample::default() }];
            let mut host = Fixture::second().with(|tables| tables.samples = Some(samples));
            host.0.meta.lost_events = vec![("code of on-CPU samples".into(), lost)];
            host.ev().whole(Probe::OnCpuSamples).map_err(|why| why.to_string())
        };
        assert_eq!(of(10), Ok(()));
        let why =
            "a part of on-CPU samples was skipped: a table was full, and 110 of 1100 could not be noted";
        assert_eq!(of(110), Err(why.to_owned()));
    }

    /// For memory events the rows count, for late CPUs the late events; for a probe without such a count any loss matters.
    #[test]
    fn no_loss_is_passed_over_because_it_cannot_be_compared() {
        use whyslow_model::table::{Gap, IrqLatency, Memory};
        let of = |what: &str, lost: u64| {
            let mut host = Fixture::second().with(|tables| {
                tables.memory = Some(vec![Memory::default(); 1000]);
                tables.gaps = Some(vec![Gap::default(); 100]);
                tables.irq_latencies =
                    Some(vec![IrqLatency { late: 900, count: 90_000, ..IrqLatency::default() }]);
            });
            host.0.meta.lost_events = vec![(what.into(), lost)];
            host.ev().whole(Probe::by_name(what).unwrap()).is_ok()
        };
        for what in ["memory events", "IRQ latency"] {
            assert_eq!((of(what, 10), of(what, 40_000)), (true, false), "{what}");
        }
        assert_eq!((of("interrupt time", 0), of("interrupt time", 1)), (true, false), "nothing was noted");
        let mut newer = Fixture::second();
        newer.0.meta.lost_events = vec![("a probe of tomorrow".into(), 1)];
        assert_eq!(super::all_in_part(&newer.0).count(), 1);
    }

    /// Thousands of sockets are beyond those that are followed, on hosts that have as many: softirqs are reported all the same.
    #[test]
    fn sockets_beyond_those_that_are_followed_are_a_loss_of_theirs() {
        let mut host = Fixture::second();
        host.0.meta.lost_events = vec![("received packets".into(), 40)];
        assert_eq!(
            ["received packets", "receive queues"]
                .map(|what| host.ev().whole(Probe::by_name(what).unwrap()).is_ok()),
            [true, false]
        );
    }

    #[test]
    fn a_rule_that_rests_on_memory_events_is_reported_of_their_loss() {
        let mut host = Fixture::second().with(|tables| tables.memory = Some(Vec::new()));
        host.0.meta.lost_events = vec![("memory events".into(), 40_000)];
        let ev = host.ev();
        let _ = ev.memory();
        assert!(ev.asked_in_part().is_some());
    }

    #[test]
    fn cached_result_counts_as_a_read_of_its_tables_on_every_use() {
        let mut host = Fixture::second().with(|tables| {
            tables.tasks = Some(Vec::new());
            tables.cgroups = Some(Vec::new());
        });
        host.0.meta.lost_events = vec![("task list".into(), 40_000)];
        let ev = host.ev();
        for _ in 0..2 {
            ev.ask_anew();
            assert_eq!(ev.asked_in_part(), None);
            assert!(ev.fair_shares().is_ok());
            assert!(ev.asked_in_part().is_some());
        }
    }

    #[test]
    fn the_tables_that_were_asked_are_known() {
        let mut host = Fixture::second().with(|tables| {
            tables.samples = Some(Vec::new());
            tables.disk = Some(Vec::new());
        });
        host.0.meta.lost_events = vec![("block I/O".into(), 3)];
        let ev = host.ev();
        let _ = ev.samples();
        assert_eq!(ev.asked_in_part(), None);
        let _ = ev.disk();
        assert!(ev.asked_in_part().is_some());
        ev.ask_anew();
        assert_eq!(ev.asked_in_part(), None);
    }
}
