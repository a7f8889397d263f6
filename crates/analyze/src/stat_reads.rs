//! Statistics files that processes read, and how long single reads take.

use whyslow_model::table::StatRead;
use whyslow_model::{Missing, Recording};

use crate::irq::latency::Stolen;

/// Files of these file systems that hold no statistics: memory of a process, of the kernel, its log.
const NO_STATISTICS: &[&str] = &["/proc/PID/mem", "/proc/kcore", "/proc/vmcore", "/proc/kmsg"];
/// The part of long reads in which a timer was late that may be the hypervisor's: with half or more the one is as likely as the other.
const COMPARABLE: u64 = 2;

/// In functions of these names the kernel folds statistics of cgroups: cgroup_rstat_flush_locked, css_rstat_flush (since 6.16),
/// mem_cgroup_css_rstat_flush.
const FLUSH: &str = "rstat_flush";
/// Fewer dying cgroups do not make a read or a flush slow: to fold one takes 2 us for each CPU on which it changed (25,000 took 50 ms, Linux
/// 6.18), so on a few CPUs fewer do not fill 10 ms.
pub(crate) const MANY_DYING: u64 = 2000;

/// Whether the kernel folds statistics there.
pub(crate) fn is_flush(function: &str) -> bool {
    function.contains(FLUSH)
}

/// What other processes than whyslow read.
pub(crate) struct StatReads<'r> {
    rows: &'r [StatRead],
    rec: &'r Recording,
    stolen: Stolen,
}

impl<'r> StatReads<'r> {
    /// In this recording; nothing where reads were not recorded.
    pub fn of(rec: &'r Recording) -> Self {
        StatReads { rows: rec.tables.stat_reads.as_deref().unwrap_or_default(), rec, stolen: Stolen::of(rec) }
    }

    /// Of these, whether the time is the reader's.
    pub fn rows(&self) -> impl Iterator<Item = (&'r StatRead, bool)> {
        let is_others = |row: &&StatRead| row.tgid != 0 && !self.rec.meta.is_own(row.pid, row.tgid);
        let is_statistics = |row: &&StatRead| !NO_STATISTICS.contains(&row.file.as_str());
        self.rows.iter().filter(is_others).filter(is_statistics).map(|row| (row, self.is_its_own(row)))
    }

    /// A late timer shows that interrupts were off, or that a hypervisor did not run the CPU.
    fn is_its_own(&self, row: &StatRead) -> bool {
        let is_by_late_timers = row.late_ns.saturating_mul(COMPARABLE) >= row.long_ns.max(1);
        !(is_by_late_timers && self.stolen.took_somewhere(row.late_ns))
    }
}

/// Why the length of reads is not known.
pub(crate) fn stolen(file: &str, who: &str) -> Missing {
    Missing::unclear(
        format!("whether reads of {file} by {who} take long"),
        "a hypervisor took CPUs in the window, and when is not known",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    const MS: u64 = 1_000_000;

    fn host(late_ms: u64, stolen_ticks: u64) -> Fixture {
        let row = StatRead {
            tgid: 9,
            pid: 9,
            file: "memory.stat".into(),
            reads: 4,
            ns: 200 * MS,
            long_reads: 4,
            long_ns: 200 * MS,
            late_ns: late_ms * MS,
            ..StatRead::default()
        };
        let memory = StatRead { file: "/proc/PID/mem".into(), ..row.clone() };
        let own = StatRead { tgid: 5, pid: 5, ..row.clone() };
        let before = "cpu 0 0 0 0 0 0 0 10\ncpu1 0 0 0 0 0 0 0 10\n";
        let after = format!("cpu 0 0 0 50 0 0 0 {0}\ncpu1 0 0 0 50 0 0 0 {0}\n", 10 + stolen_ticks);
        let mut host = Fixture::second().start("proc/stat", before).end("proc/stat", &after);
        host.0.meta.own_pids = vec![5];
        host.with(|tables| tables.stat_reads = Some(vec![row, memory, own]))
    }

    fn told(host: &Fixture) -> Vec<(u32, bool)> {
        StatReads::of(&host.0).rows().map(|(row, is_its_own)| (row.tgid, is_its_own)).collect()
    }

    #[test]
    fn own_reads_and_memory_are_no_statistics_of_others() {
        assert_eq!(told(&host(0, 0)), [(9, true)]);
        assert_eq!(told(&Fixture::second()), []);
    }

    #[test]
    fn late_timers_are_the_readers_unless_a_hypervisor_took_as_much() {
        assert_eq!(told(&host(190, 0)), [(9, true)], "interrupts were off");
        assert_eq!(told(&host(190, 10)), [(9, false)], "100 ms of a CPU were stolen");
        assert_eq!(told(&host(190, 9)), [(9, true)], "90 ms: less than half");
        assert_eq!(told(&host(90, 60)), [(9, true)], "most of it was seen by timers that came in time");
    }
}
