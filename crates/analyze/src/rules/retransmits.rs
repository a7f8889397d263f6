//! TCP had to retransmit segments: packets are lost, or a peer does not answer.
//!
//! Signal: `RetransSegs` against `OutSegs` (net/snmp), per network namespace, without retransmitted SYNs
//! (`TCPSynRetrans`: a peer that does not accept, see `listen-overflow`).
//! Lost: not measured, because the counters do not say how long a segment was missing. A risk.

use whyslow_model::{Finding, Missing, RuledOut, Share, Subject, SubjectKind};

use super::Rule;
use crate::Evidence;
use crate::evidence::Netns;

pub const RULE: Rule = Rule {
    id: "retransmits",
    question: "Did TCP retransmit segments?",
    what: "TCP retransmits a lost segment after one round trip at best, and after 200 ms or more at worst. \
           Meanwhile the sender, and every task that waits for it, stands still.",
    how: "Segments retransmitted against all segments sent in the window, per network namespace, without SYNs. Reported from \
          10 segments and 1 % of the sent segments on. No time lost is computed.",
    limits: "Risks only: the counters name no connection and no time lost. A single lost segment of a quiet connection: not \
             reported, though it can cost 200 ms.",
    sources: "net/ipv4/tcp_output.c (__tcp_retransmit_skb), net/ipv4/proc.c; bpftune takes 1 % as lossy",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// bpftune changes the congestion control at 1 % loss: there the throughput of loss-based congestion control falls off.
const LOSSY: Share = Share::percent(1);
/// Fewer retransmits are chance: a share of so few is not a rate.
const LEAST_AGAIN: u64 = 10;
/// Fewer segments sent than this rule nothing out.
const LEAST_SENT: u64 = 100;

/// Segments retransmitted (without SYNs) and sent; `None` if this kernel lacks the counters.
fn segments(net: &Netns) -> Option<(u64, u64)> {
    let syns = net.rise("TcpExt", "TCPSynRetrans").unwrap_or(0);
    Some((net.rise("Tcp", "RetransSegs")?.saturating_sub(syns), net.rise("Tcp", "OutSegs")?))
}

fn all(ev: &Evidence<'_>) -> Result<Vec<(Netns, u64, u64)>, Missing> {
    let with = |net: Netns| segments(&net).map(|(again, sent)| (net, again, sent));
    let found: Vec<_> = ev.netns()?.into_iter().filter_map(with).collect();
    if found.is_empty() { Err(ev.why_not_in_netns("net/snmp")) } else { Ok(found) }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let lossy = |(_, again, sent): &(Netns, u64, u64)| {
        *again >= LEAST_AGAIN && Share::of(*again as f64, *sent as f64) >= LOSSY
    };
    let found = all(ev)?.into_iter().filter(lossy).map(|(net, again, sent)| {
        let share = Share::of(again as f64, sent as f64);
        Finding::risk(RULE.id, Subject::new(SubjectKind::Kernel, net.inode.clone(), namespace(&net)))
            .titled(format!("{share} of {sent} TCP segments were retransmitted ({again})"))
            .check("the connections that retransmit (retrans: in each line)", "ss -tin")
            .advice(
                "look for the hop that loses packets: errors and drops of the interfaces, a full qdisc, the path (mtr)",
            )
    });
    Ok(found.collect())
}

fn namespace(net: &Netns) -> String {
    format!("network namespace {}", net.inode)
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let all = all(ev)?;
    let again: u64 = all.iter().map(|(_, again, _)| *again).fold(0, u64::saturating_add);
    let sent: u64 = all.iter().map(|(_, _, sent)| *sent).fold(0, u64::saturating_add);
    let clean = again == 0 && sent >= LEAST_SENT;
    Ok(clean.then(|| RuledOut {
        what: "lost TCP segments".to_owned(),
        evidence: format!("none of {sent} TCP segments was retransmitted"),
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::{FileSnapshot, Kind, Recording};

    use super::*;

    /// A window in which this many segments were sent (`sent`) and retransmitted (`again`), with `syns` SYNs among the latter.
    fn window(sent: u64, again: u64, syns: u64) -> Recording {
        let snapshot = |at, file: &str, text| FileSnapshot {
            at: Duration::from_secs(at),
            name: format!("netns/5/{file}"),
            bytes: text,
        };
        let snmp = |out, re| format!("Tcp: MaxConn OutSegs RetransSegs\nTcp: -1 {out} {re}\n").into_bytes();
        let netstat = |syn| format!("TcpExt: TCPSynRetrans\nTcpExt: {syn}\n").into_bytes();
        let snapshots = vec![
            snapshot(0, "net/snmp", snmp(1_000_000, 500_000)),
            snapshot(0, "net/netstat", netstat(400)),
            snapshot(1, "net/snmp", snmp(1_000_000 + sent, 500_000 + again)),
            snapshot(1, "net/netstat", netstat(400 + syns)),
        ];
        Recording { snapshots, ..Default::default() }
    }

    #[test]
    fn fires_when_many_segments_are_sent_again() {
        let found = check(&Evidence::of(&window(1000, 50, 0))).unwrap();
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Risk, "5"));
        assert_eq!(found[0].title, "5 % of 1000 TCP segments were retransmitted (50)");
    }

    /// On a live host its own namespace is read twice, as "host" and among its namespaces, at different moments.
    #[test]
    fn the_namespace_of_the_host_is_reported_once() {
        let mut rec = window(1000, 50, 0);
        let mut own = window(1004, 50, 0).snapshots;
        for snapshot in &mut own {
            snapshot.name = snapshot.name.replace("netns/5/", "proc/");
        }
        rec.snapshots.extend(own);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!(found.iter().map(|f| f.victim.id.as_str()).collect::<Vec<_>>(), ["5"]);
    }

    #[test]
    fn is_quiet_when_only_syns_were_sent_again() {
        assert_eq!(check(&Evidence::of(&window(1000, 50, 50))), Ok(vec![]));
    }

    #[test]
    fn is_quiet_about_a_few() {
        assert_eq!(check(&Evidence::of(&window(100, 5, 0))), Ok(vec![]));
        assert_eq!(check(&Evidence::of(&window(100_000, 50, 0))), Ok(vec![]));
    }

    #[test]
    fn rules_out_loss_only_if_enough_was_sent_and_nothing_again() {
        let not = |rec: &Recording| rules_out(&Evidence::of(rec)).unwrap();
        assert_eq!(not(&window(500, 0, 3)).unwrap().evidence, "none of 500 TCP segments was retransmitted");
        assert_eq!((not(&window(50, 0, 0)), not(&window(500, 1, 0))), (None, None));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert!(check(&Evidence::of(&Recording::default())).is_err());
    }
}
