//! CPU time for receiving packets on each CPU, and which limit stopped its softirq.

use std::time::Duration;

use whyslow_model::{Missing, Share, table};

use crate::Evidence;
use crate::parse::softnet::Softnet;

/// The receive softirq of one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Receiving {
    pub cpu: u32,
    /// Packets.
    pub packets: u64,
    /// Time in the softirq.
    pub took: Duration,
    /// Runs that stopped at the budget of packets.
    pub by_budget: u64,
    /// Runs that stopped at the limit of time.
    pub by_time: u64,
    /// Runs that only the kernel counted: softirqs that were not traced, because the host hides what they interrupted.
    pub unseen: u64,
    /// Packets of a run that stopped at the limit of time, on average.
    pub at_limit: u64,
    /// Packets that a run may take.
    pub budget: u64,
    /// Time that a run may take.
    pub limit: Duration,
}

impl Receiving {
    /// Runs that stopped with packets left, as the kernel counts them.
    pub fn stops(&self) -> u64 {
        [self.by_budget, self.by_time, self.unseen].into_iter().fold(0, u64::saturating_add)
    }

    /// Time of one packet.
    pub fn per_packet(&self) -> Option<Duration> {
        let ns = u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX).checked_div(self.packets)?;
        Some(Duration::from_nanos(ns)).filter(|each| !each.is_zero())
    }

    /// "5 stops a second, 4 of 5 at the time limit (8 ms, after 200 of 300 packets)".
    pub fn stops_words(&self, window: Duration) -> String {
        let rate = self.stops() as f64 / window.as_secs_f64().max(1e-3);
        let mut words = format!("{rate:.0} stops a second");
        if self.by_time >= self.by_budget && self.by_time > 0 {
            let limit = self.limit.as_millis();
            let (done, budget) = (self.at_limit, self.budget);
            words += &format!(
                ", {} of {} at the time limit ({limit} ms, after {done} of {budget} packets)",
                self.by_time,
                self.stops()
            );
        } else if self.by_budget > 0 {
            words +=
                &format!(", {} of {} at the budget of {} packets", self.by_budget, self.stops(), self.budget);
        }
        if self.unseen > 0 {
            words += &format!(", {} at a limit that was not seen", self.unseen);
        }
        words
    }

    /// Share of the window in the softirq.
    pub fn share(&self, window: Duration) -> Share {
        Share::of(self.took.as_secs_f64(), window.as_secs_f64())
    }
}

/// For every CPU that polled; where polls were not traced, the kernel's counts.
pub(crate) fn receiving(ev: &Evidence<'_>) -> Result<Vec<Receiving>, Missing> {
    let softnet = ev.softnet();
    let polls = match (ev.polls(), &softnet) {
        (Ok(rows), _) => rows.to_vec(),
        (Err(_), Ok(cpus)) => cpus.iter().filter(|cpu| cpu.processed > 0).map(counted).collect(),
        (Err(missing), Err(_)) => return Err(missing),
    };
    let (softnet, cpus) = (softnet.unwrap_or_default(), ev.cpus().unwrap_or_default());
    let one = |row: &table::Poll| {
        let cpu = cpus.iter().find(|cpu| cpu.cpu == row.cpu);
        let took = cpu.and_then(|cpu| cpu.softirqs.iter().find(|(name, _, _)| name == "NET_RX"));
        let kernel = softnet.iter().find(|cpu| cpu.cpu == row.cpu).map_or(0, |cpu| u64::from(cpu.squeezed));
        Receiving {
            cpu: row.cpu,
            packets: row.packets,
            took: Duration::from_nanos(took.map_or(0, |(_, ns, _)| *ns)),
            by_budget: row.budget_stops,
            by_time: row.time_stops,
            unseen: kernel.saturating_sub(row.budget_stops.saturating_add(row.time_stops)),
            at_limit: row.time_packets.checked_div(row.time_stops).unwrap_or(0),
            budget: row.budget,
            limit: Duration::from_nanos(row.limit_ns),
        }
    };
    Ok(polls.iter().map(one).collect())
}

fn counted(cpu: &Softnet) -> table::Poll {
    table::Poll { cpu: cpu.cpu, packets: cpu.processed.into(), ..table::Poll::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn host(kernel: &str) -> Fixture {
        let poll = table::Poll {
            packets: 1000,
            budget_stops: 1,
            time_stops: 4,
            time_packets: 800,
            budget: 300,
            limit_ns: 8_000_000,
            ..table::Poll::default()
        };
        let cpu = table::Cpu { softirqs: vec![("NET_RX".into(), 41_000_000, 9)], ..table::Cpu::default() };
        Fixture::second()
            .start("proc/net/softnet_stat", "0 0 0\n")
            .end("proc/net/softnet_stat", kernel)
            .with(|t| (t.polls, t.cpus) = (Some(vec![poll]), Some(vec![cpu])))
    }

    #[test]
    fn a_packets_time_and_the_split_are_reported() {
        let all = receiving(&host("3e8 0 5\n").ev()).unwrap();
        assert_eq!((all[0].per_packet(), all[0].unseen), (Some(Duration::from_micros(41)), 0));
        let words = all[0].stops_words(Duration::from_secs(1));
        assert_eq!(words, "5 stops a second, 4 of 5 at the time limit (8 ms, after 200 of 300 packets)");
    }

    #[test]
    fn stops_that_only_the_kernel_counted_are_reported() {
        let all = receiving(&host("3e8 0 8\n").ev()).unwrap();
        assert_eq!((all[0].stops(), all[0].unseen), (8, 3));
        assert!(all[0].stops_words(Duration::from_secs(1)).ends_with(", 3 at a limit that was not seen"));
        assert_eq!(Receiving::default().per_packet(), None);
        assert!(receiving(&Fixture::second().ev()).is_err());
    }
}
