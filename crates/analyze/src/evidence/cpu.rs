//! CPU time, interrupts and load of the window.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::{Missing, seconds};

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
    /// The CPU ran something.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// The sum of all states.
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
        let (first, last) = self.ends("proc/stat", stat::parse)?;
        match (first.all.steal, last.all.steal) {
            (Some(_), Some(_)) => Ok(self.cpu_time()?.steal),
            (_, None) => {
                Err(Missing::NotInKernel { what: "steal time".into(), needs: "Linux 2.6.11".into() })
            }
            (None, _) => Err(super::not_at_first("steal", "proc/stat")),
        }
    }

    /// Tasks created, and context switches.
    pub fn forks_and_switches(&self) -> Result<(u64, u64), Missing> {
        let (first, last) = self.ends("proc/stat", stat::parse)?;
        let rise = |name: &str, a: Option<u64>, b: Option<u64>| {
            b.zip(a).map(|(b, a)| b.saturating_sub(a)).ok_or_else(|| super::not_at_first(name, "proc/stat"))
        };
        Ok((rise("processes", first.forks, last.forks)?, rise("ctxt", first.switches, last.switches)?))
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

    /// An error if the window is shorter than this many clock ticks, in which the kernel counts `what` in `/proc/stat`.
    pub fn has_ticks(&self, least: u32, what: &str) -> Result<(), Missing> {
        let tick = self.tick()?;
        if self.window() >= tick * least {
            return Ok(());
        }
        let counted = format!(
            "it is counted in ticks of {}, and the window was {}",
            seconds(tick),
            seconds(self.window())
        );
        Err(Missing::unclear(what, counted))
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
        steal: first.steal.zip(last.steal).map_or(Duration::ZERO, |(first, last)| nanos(first, last)),
    }
}

/// What was added on the CPUs that were online at both ends: a count that another CPU made before it went offline does not belong to
/// the window. A line that was not there at first counts from zero on those CPUs: the kernel leaves out only lines without a handler
/// that have not counted yet (kernel/irq/proc.c, show_interrupts).
fn rise(first: &Interrupts, last: Interrupts) -> Interrupts {
    let before: BTreeMap<&str, &Interrupt> =
        first.lines.iter().map(|line| (line.id.as_str(), line)).collect();
    let both: Vec<(usize, usize, u32)> = last
        .cpus
        .iter()
        .enumerate()
        .filter_map(|(at, cpu)| Some((at, first.cpus.iter().position(|c| c == cpu)?, *cpu)))
        .collect();
    let lines = last.lines.into_iter().map(|line| {
        let old = before.get(line.id.as_str()).map_or(&[][..], |old| &old.counts[..]);
        let count = |(at, was): (usize, usize)| {
            Some(line.counts.get(at)?.saturating_sub(old.get(was).copied().unwrap_or(0)))
        };
        // These two lines count for the host, not for the CPU above them.
        let counts = match line.id.as_str() {
            "ERR" | "MIS" => count((0, 0)).into_iter().collect(),
            _ => both.iter().filter_map(|(at, was, _)| count((*at, *was))).collect(),
        };
        Interrupt { counts, ..line }
    });
    Interrupts { lines: lines.collect(), cpus: both.iter().map(|(_, _, cpu)| *cpu).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    const FIRST: &str = "cpu  100 0 50 1000 10 1 2 5 0 0\ncpu0 100 0 50 500 10 1 2 5 0 0\ncpu1 0 0 0 500 0 0 0 0 0 0\nctxt 7\nprocesses 10\n";
    const LAST: &str = "cpu  150 0 60 1130 8 1 4 10 0 0\ncpu0 150 0 60 530 8 1 4 10 0 0\ncpu1 0 0 0 600 0 0 0 0 0 0\nctxt 9\nprocesses 25\n";

    #[test]
    fn times_are_of_the_window_and_never_negative() {
        let host = Fixture::second().start("proc/stat", FIRST).end("proc/stat", LAST);
        let cpu = host.ev().cpu_time().unwrap();
        assert_eq!((cpu.user, cpu.steal), (Duration::from_millis(500), Duration::from_millis(50)));
        assert_eq!(cpu.iowait, Duration::ZERO, "it went down");
        assert_eq!(host.ev().cpu_time_by_cpu().unwrap()[1].1.idle, Duration::from_secs(1));
        assert_eq!(host.ev().forks_and_switches(), Ok((15, 2)));
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

    #[test]
    fn cpu_that_came_online_in_the_window_has_no_interrupt_counts() {
        let first = "   CPU0\n 36: 5 virtio\n";
        let last = "   CPU0 CPU1\n 36: 7 900000 virtio\n";
        let host = Fixture::second().start("proc/interrupts", first).end("proc/interrupts", last);
        let found = host.ev().interrupts().unwrap();
        assert_eq!((found.cpus, found.lines[0].counts.clone()), (vec![0], vec![2]));
    }

    #[test]
    fn steal_that_was_not_reported_at_first_is_not_known() {
        let host = Fixture::second().start("proc/stat", "cpu  1 0 0 5 0 0 0\n").end("proc/stat", LAST);
        assert!(host.ev().steal().is_err());
        assert_eq!(host.ev().cpu_time().unwrap().steal, Duration::ZERO);
    }
}
