//! CPU time, interrupts and load of the window.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Missing;

use super::Evidence;
use crate::parse::interrupts::{self, Interrupt, Interrupts};
use crate::parse::{loadavg, stat};

/// CPU time of a window by state, of one CPU or of all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's own words")]
pub struct CpuTime {
    pub user: Duration,
    pub nice: Duration,
    pub system: Duration,
    pub idle: Duration,
    pub iowait: Duration,
    pub irq: Duration,
    pub softirq: Duration,
    pub steal: Duration,
}

impl CpuTime {
    /// Ran something.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// All states.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.busy() + self.idle + self.iowait + self.steal
    }
}

impl Evidence<'_> {
    /// The host's CPU time by state, all CPUs together.
    pub fn cpu_time(&self) -> Result<CpuTime, Missing> {
        let tick = self.tick()?;
        let (first, last) = self.ends("proc/stat", stat::parse)?;
        Ok(between(&first.all, &last.all, tick))
    }

    /// CPU time by state of each CPU that was online at both ends.
    pub fn cpu_time_by_cpu(&self) -> Result<Vec<(u32, CpuTime)>, Missing> {
        let tick = self.tick()?;
        let (first, last) = self.ends("proc/stat", stat::parse)?;
        let first: BTreeMap<u32, stat::Ticks> = first.cpus.into_iter().collect();
        let both =
            last.cpus.iter().filter_map(|(cpu, end)| Some((*cpu, between(first.get(cpu)?, end, tick))));
        Ok(both.collect())
    }

    /// Time that the hypervisor took from the online CPUs.
    pub fn steal(&self) -> Result<Duration, Missing> {
        if self.file("proc/stat", stat::parse)?.all.steal.is_none() {
            return Err(Missing::NotInKernel { what: "steal time".into(), needs: "Linux 2.6.11".into() });
        }
        Ok(self.cpu_time()?.steal)
    }

    /// Tasks made and context switches.
    pub fn forks_and_switches(&self) -> Result<(u64, u64), Missing> {
        let (first, last) = self.ends("proc/stat", stat::parse)?;
        let rise = |a: Option<u64>, b: Option<u64>| b.unwrap_or(0).saturating_sub(a.unwrap_or(0));
        Ok((rise(first.forks, last.forks), rise(first.switches, last.switches)))
    }

    /// Load averages and the number of tasks at the end of the window.
    pub fn load(&self) -> Result<loadavg::Load, Missing> {
        self.file("proc/loadavg", loadavg::parse)
    }

    /// Interrupts of the window by line and CPU.
    pub fn interrupts(&self) -> Result<Interrupts, Missing> {
        self.ends("proc/interrupts", interrupts::parse).map(|(first, last)| rise(&first, last))
    }

    /// Softirqs of the window by vector and CPU: how often, not how long.
    pub fn softirqs(&self) -> Result<Interrupts, Missing> {
        self.ends("proc/softirqs", interrupts::parse).map(|(first, last)| rise(&first, last))
    }

    fn tick(&self) -> Result<Duration, Missing> {
        match self.rec.meta.clock_ticks {
            0 => Err(Missing::not_recorded("the length of a clock tick")),
            ticks => Ok(Duration::from_nanos(1_000_000_000 / ticks)),
        }
    }
}

fn between(first: &stat::Ticks, last: &stat::Ticks, tick: Duration) -> CpuTime {
    let nanos = |a: u64, b: u64| {
        Duration::from_nanos(
            b.saturating_sub(a).saturating_mul(u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX)),
        )
    };
    CpuTime {
        user: nanos(first.user, last.user),
        nice: nanos(first.nice, last.nice),
        system: nanos(first.system, last.system),
        idle: nanos(first.idle, last.idle),
        iowait: nanos(first.iowait, last.iowait),
        irq: nanos(first.irq, last.irq),
        softirq: nanos(first.softirq, last.softirq),
        steal: nanos(first.steal.unwrap_or(0), last.steal.unwrap_or(0)),
    }
}

/// What was added. A line or CPU that was not there at first counts from zero: its handler came in the window.
fn rise(first: &Interrupts, last: Interrupts) -> Interrupts {
    let before: BTreeMap<&str, &Interrupt> =
        first.lines.iter().map(|line| (line.id.as_str(), line)).collect();
    let column: Vec<Option<usize>> =
        last.cpus.iter().map(|cpu| first.cpus.iter().position(|c| c == cpu)).collect();
    let lines = last.lines.into_iter().map(|mut line| {
        let old = before.get(line.id.as_str()).map_or(&[][..], |old| &old.counts[..]);
        for (at, count) in line.counts.iter_mut().enumerate() {
            // These two are of the host, not of the CPU above them.
            let here = if matches!(line.id.as_str(), "ERR" | "MIS") {
                Some(at)
            } else {
                column.get(at).copied().flatten()
            };
            let was = here.and_then(|at| old.get(at)).copied().unwrap_or(0);
            *count = count.saturating_sub(was);
        }
        line
    });
    Interrupts { lines: lines.collect(), cpus: last.cpus }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    const FIRST: &str = "cpu  100 0 50 1000 10 1 2 5 0 0\ncpu0 100 0 50 500 10 1 2 5 0 0\ncpu1 0 0 0 500 0 0 0 0 0 0\nprocesses 10\n";
    const LAST: &str = "cpu  150 0 60 1130 8 1 4 10 0 0\ncpu0 150 0 60 530 8 1 4 10 0 0\ncpu1 0 0 0 600 0 0 0 0 0 0\nprocesses 25\n";

    #[test]
    fn times_are_of_the_window_and_never_negative() {
        let host = Fixture::second().start("proc/stat", FIRST).end("proc/stat", LAST);
        let cpu = host.ev().cpu_time().unwrap();
        assert_eq!((cpu.user, cpu.steal), (Duration::from_millis(500), Duration::from_millis(50)));
        assert_eq!(cpu.iowait, Duration::ZERO, "it went down");
        assert_eq!(host.ev().cpu_time_by_cpu().unwrap()[1].1.idle, Duration::from_secs(1));
        assert_eq!(host.ev().forks_and_switches(), Ok((15, 0)));
        assert_eq!(host.ev().steal(), Ok(Duration::from_millis(50)));
    }

    #[test]
    fn endless_counters_do_not_overflow() {
        let max = format!("cpu  {0} {0} {0} {0} {0} {0} {0} {0}\n", u64::MAX);
        let host = Fixture::second().start("proc/stat", "cpu  0 0 0 0 0 0 0 0\n").end("proc/stat", &max);
        assert!(host.ev().cpu_time().unwrap().total() > Duration::from_secs(1 << 33));
    }

    #[test]
    fn a_cpu_that_came_in_the_window_has_no_time() {
        let host = Fixture::second().start("proc/stat", "cpu  1 0 0 0 0 0 0 0\n").end("proc/stat", LAST);
        assert_eq!(host.ev().cpu_time_by_cpu(), Ok(vec![]));
    }

    #[test]
    fn interrupts_are_matched_by_name_and_cpu() {
        let first = "   CPU0 CPU1\n 36: 5 100 virtio\nERR: 1\n";
        let last = "   CPU1\n 36: 130 virtio\n 40: 7 nic\nERR: 1\n";
        let host = Fixture::second().start("proc/interrupts", first).end("proc/interrupts", last);
        let found = host.ev().interrupts().unwrap();
        let counts: Vec<_> = found.lines.iter().map(|l| (l.id.as_str(), l.counts[0])).collect();
        assert_eq!(counts, [("36", 30), ("40", 7), ("ERR", 0)]);
    }
}
