//! The table of tracked connections is full, or nearly full.
//!
//! Signal: `nf_conntrack_count` against `nf_conntrack_max`; `drop` and `insert_failed` of `net/stat/nf_conntrack`
//! (per CPU, hex), differences over the window. A full table drops the first packet of each new connection.
//! Lost: not measured, because the counters do not tell the sender of a dropped packet; so this rule makes risks. Connects whose packets
//! were dropped: `unanswered-connects`.

use whyslow_model::{FileSnapshot, Finding, Missing, Share, Subject, SubjectKind, counted};

use super::Rule;
use super::tracked::{column, usage, with_advice};
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "conntrack",
    question: "Is the table of tracked connections full, or does it drop packets?",
    what: "The packet filter tracks each connection. When its table is full, packets of new connections are \
           dropped, and their senders wait a second or more before they send again.",
    how: "nf_conntrack_count is compared with nf_conntrack_max at the end of the window; drop and insert_failed of \
          net/stat/nf_conntrack are counted over the window. Reported from 85 % of the limit on, if packets were dropped, or if more \
          than one entry per second could not be inserted. There is no time lost and no counterfactual.",
    limits: "Entries and limit: read in the host's own network namespace. The sender of a dropped packet: not known, because the \
             counters name no connection, so the rule makes risks only.",
    sources: "net/netfilter/nf_conntrack_core.c, nf_conntrack_standalone.c (ct_cpu_seq_show); netdata netfilter.conf",
    can_be_cause: false,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// netdata warns at 85 %: above it, one burst fills the table.
const NEARLY_FULL: Share = Share::percent(85);
/// Two packets of one connection that race to insert it (DNS over UDP) fail now and then; a rate is a fault.
const FAILURES_PER_SECOND: f64 = 1.0;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let usage = usage(ev);
    let stats = ev.in_netns("net/stat/nf_conntrack");
    let mut found = Vec::new();
    for (inode, first, last) in &stats {
        found.extend(dropping(ev, inode, first, last)?);
    }
    match usage {
        Ok((count, max)) if Share::of(count as f64, max as f64) >= NEARLY_FULL => {
            found.push(risk("host").titled(format!("the conntrack table holds {count} of {max} entries")));
        }
        // If no connection is tracked, no table is full. Some namespaces hide the limits, but not their statistics.
        Err(Missing::NotInKernel { .. }) if stats.is_empty() && !ev.in_netns("net/netstat").is_empty() => {}
        Err(missing) if stats.is_empty() => return Err(missing),
        _ => {}
    }
    Ok(found)
}

fn dropping(
    ev: &Evidence<'_>,
    inode: &str,
    first: &FileSnapshot,
    last: &FileSnapshot,
) -> Result<Option<Finding>, Missing> {
    let rise = |name| Ok(column(last, name)?.saturating_sub(column(first, name)?));
    let (drops, failures) = (rise("drop")?, rise("insert_failed")?);
    let many = failures as f64 > FAILURES_PER_SECOND * ev.window().as_secs_f64();
    if drops == 0 && !many {
        return Ok(None);
    }
    let title = format!(
        "conntrack dropped {}; {} could not be inserted",
        counted(drops, "packet"),
        if failures == 1 { "1 entry".to_owned() } else { format!("{failures} entries") }
    );
    Ok(Some(risk(inode).titled(title)))
}

fn risk(netns: &str) -> Finding {
    with_advice(Finding::risk(RULE.id, Subject::new(SubjectKind::Limit, netns, "conntrack table")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::{Kind, Meta, Recording};

    use super::*;

    fn snapshot(at: u64, name: &str, text: String) -> FileSnapshot {
        FileSnapshot { at: Duration::from_secs(at), name: name.into(), bytes: text.into_bytes() }
    }

    fn table(count: u64, max: u64) -> Vec<FileSnapshot> {
        let name = |what| format!("proc/sys/net/netfilter/nf_conntrack_{what}");
        vec![snapshot(1, &name("count"), format!("{count}\n")), snapshot(1, &name("max"), format!("{max}\n"))]
    }

    fn stat(at: u64, failed: u64, drop: u64) -> FileSnapshot {
        let row = format!("0000002a  00000000 {failed:08x} {drop:08x}\n");
        snapshot(
            at,
            "netns/1/net/stat/nf_conntrack",
            format!("entries  found insert_failed drop\n{row}{row}"),
        )
    }

    #[test]
    fn is_quiet_where_nothing_is_tracked() {
        let absent = |name: &str| Missing::NotInKernel { what: name.into(), needs: "nf_conntrack".into() };
        let asked = |snapshots| {
            let missing = vec![absent("proc/sys/net/netfilter/nf_conntrack_{count,max,buckets}").into()];
            check(&Evidence::of(&Recording { missing, snapshots, ..Default::default() }))
        };
        let netstat = |at| snapshot(at, "netns/1/net/netstat", "TcpExt: A\nTcpExt: 0\n".into());
        assert_eq!(asked(vec![netstat(0), netstat(10)]), Ok(vec![]));
        assert!(asked(vec![]).is_err(), "no namespace was read");
    }

    fn asked(snapshots: Vec<FileSnapshot>) -> Result<Vec<Finding>, Missing> {
        let meta = Meta { window_ns: 10_000_000_000, ..Default::default() };
        check(&Evidence::of(&Recording { meta, snapshots, ..Default::default() }))
    }

    #[test]
    fn fires_when_the_table_is_nearly_full() {
        let found = asked(table(900, 1000)).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
        assert_eq!(found[0].title, "the conntrack table holds 900 of 1000 entries");
    }

    #[test]
    fn fires_when_packets_were_dropped_in_the_window() {
        let found = asked(vec![stat(0, 5, 100), stat(10, 5, 103)]).unwrap();
        assert_eq!(found[0].title, "conntrack dropped 6 packets; 0 entries could not be inserted");
    }

    #[test]
    fn is_quiet_about_room_and_old_drops() {
        let mut snapshots = table(100, 1000);
        snapshots.extend([stat(0, 5, 100), stat(10, 6, 100)]);
        assert_eq!(asked(snapshots), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert!(asked(vec![]).unwrap_err().to_string().contains("nf_conntrack_count was not recorded"));
        let torn = snapshot(10, "netns/1/net/stat/nf_conntrack", "entries dr".into());
        assert!(asked(vec![stat(0, 0, 0), torn]).is_ok(), "no line of a CPU: nothing to add up");
    }
}
