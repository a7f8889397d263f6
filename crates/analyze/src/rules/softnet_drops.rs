//! A CPU could not keep up with received packets.
//!
//! Signal: `/proc/net/softnet_stat`, differences over the window. `dropped`: the CPU's backlog (packets from RPS,
//! loopback, tunnels and old drivers, not the NIC's ring) was full, and the kernel dropped the packet.
//! Lost: not measured, because the receivers of the packets are not known. A risk.
//! Not this rule: packets that the NIC dropped in its own ring; softirqs that stop at a limit (`slow-receiver`).

use whyslow_model::{Finding, Missing, Subject, SubjectKind};

use super::Rule;
use crate::Evidence;
use crate::parse::softnet::Softnet;

pub const RULE: Rule = Rule {
    id: "softnet-drops",
    question: "Did a CPU drop received packets?",
    what: "Each CPU has a backlog of received packets. The kernel drops packets when it is full (TCP retransmits them later).",
    how: "Differences of softnet_stat over the window, per CPU. Reported from 10 drops on. No time lost is computed.",
    limits: "Risks only: the receivers of the packets are not known. Packets that the NIC itself dropped: not seen.",
    sources: "net/core/net-procfs.c, net/core/dev.c (enqueue_to_backlog, net_rx_action); netdata softnet.conf",
    can_be_cause: false,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Fewer drops in a window are a burst: TCP retransmits the packets, and no task notices.
const LEAST_DROPS: u32 = 10;
fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let cpus = ev.softnet()?;
    let dropped: Vec<_> = cpus.iter().filter(|c| c.dropped >= LEAST_DROPS).collect();
    let drops: u64 = dropped.iter().map(|c| u64::from(c.dropped)).sum();
    let mut found = Vec::new();
    if drops > 0 {
        let title = format!("{drops} received packets dropped: the backlog of {} was full", names(&dropped));
        found.push(risk(&dropped).titled(title).fix(
            "raise the backlog (costs kernel memory, and longer waits instead of drops; undo: the old value)",
            "sysctl net.core.netdev_max_backlog; sysctl -w net.core.netdev_max_backlog=4096",
        ));
    }
    Ok(found)
}

fn risk(cpus: &[&Softnet]) -> Finding {
    let id = cpus.first().map_or(0, |c| c.cpu).to_string();
    Finding::risk(RULE.id, Subject::new(SubjectKind::Cpu, id, names(cpus)))
        .check("column 2 (dropped), in hex, must rise", "cat /proc/net/softnet_stat")
}

fn names(cpus: &[&Softnet]) -> String {
    match cpus {
        [one] => format!("CPU {}", one.cpu),
        many => format!("{} CPUs", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

    use super::*;

    fn second(before: &str, after: &str) -> Recording {
        let name = || "netns/1/net/softnet_stat".to_owned();
        let snapshot =
            |at, text: &str| FileSnapshot { at: Duration::from_secs(at), name: name(), bytes: text.into() };
        let meta = Meta { window_ns: 1_000_000_000, ..Default::default() };
        Recording { meta, snapshots: vec![snapshot(0, before), snapshot(1, after)], ..Default::default() }
    }

    fn asked(rec: &Recording) -> Result<Vec<Finding>, Missing> {
        check(&Evidence::of(rec))
    }

    #[test]
    fn fires_when_a_backlog_overflows() {
        let found = asked(&second("10 5 0\n10 0 0\n", "90 25 0\n20 0 0\n")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Risk, "0"));
        assert_eq!(found[0].title, "32 received packets dropped: the backlog of CPU 0 was full");
    }

    #[test]
    fn is_quiet_about_limits_that_are_met_without_symptoms() {
        assert_eq!(asked(&second("10 0 0\n", "90 0 3a\n")), Ok(vec![]));
    }

    #[test]
    fn is_quiet_about_totals_since_boot() {
        assert_eq!(asked(&second("10 ffff fff\n", "90 ffff 1000\n")), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let unknown = asked(&Recording::default()).unwrap_err();
        assert_eq!(unknown.to_string(), "net/softnet_stat was not recorded");
    }
}
