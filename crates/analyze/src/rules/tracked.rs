//! The table of tracked connections (conntrack), by its counters.

use whyslow_model::{FileSnapshot, Finding, Missing};

use crate::Evidence;

/// The table of a network namespace that dropped packets.
pub(crate) struct Dropping {
    pub netns: String,
    pub packets: u64,
    /// "500 of 500", if the table is full, or was full a moment ago. Packets are dropped for other reasons, too.
    pub full: Option<String>,
}

/// The table counts as full with this share of its entries: some entries end while the counters are read.
const FULL: f64 = 0.95;

pub(crate) fn dropping(ev: &Evidence<'_>) -> Vec<Dropping> {
    let most =
        ev.line("proc/sys/net/netfilter/nf_conntrack_max").ok().and_then(|text| text.parse::<u64>().ok());
    let stats = ev.in_netns("net/stat/nf_conntrack").into_iter();
    let of = |(netns, first, last): (String, &FileSnapshot, &FileSnapshot)| {
        let packets = column(last, "drop").ok()?.saturating_sub(column(first, "drop").ok()?);
        let entries = first_of(last, "entries");
        let full = entries.zip(most).filter(|(entries, most)| *entries as f64 >= FULL * *most as f64);
        Some(Dropping { netns, packets, full: full.map(|(entries, most)| format!("{entries} of {most}")) })
    };
    stats.filter_map(of).filter(|one| one.packets > 0).collect()
}

/// The entries of the host's table, and the most that it may have.
pub(crate) fn usage(ev: &Evidence<'_>) -> Result<(u64, u64), Missing> {
    let read = |what: &str| {
        let name = format!("proc/sys/net/netfilter/nf_conntrack_{what}");
        ev.line(&name)?.parse::<u64>().map_err(|err| Missing::broken(name, err))
    };
    Ok((read("count")?, read("max")?))
}

/// A value of the first CPU: each line has the number of all entries.
fn first_of(snapshot: &FileSnapshot, name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(&snapshot.bytes);
    let mut lines = text.lines();
    let at = lines.next()?.split_ascii_whitespace().position(|n| n == name)?;
    u64::from_str_radix(lines.next()?.split_ascii_whitespace().nth(at)?, 16).ok()
}

/// Sum over the CPUs of one column of net/stat/nf_conntrack: a line of names, then a line of hex a CPU.
pub(super) fn column(snapshot: &FileSnapshot, name: &str) -> Result<u64, Missing> {
    let text = String::from_utf8_lossy(&snapshot.bytes);
    let mut lines = text.lines();
    let at = lines.next().unwrap_or_default().split_ascii_whitespace().position(|n| n == name);
    let value = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(at?)?, 16).ok();
    let values: Option<Vec<u64>> = lines.map(value).collect();
    let values = values.ok_or_else(|| Missing::broken(snapshot.name.clone(), format!("no column {name}")))?;
    Ok(values.into_iter().fold(0, u64::saturating_add))
}

pub(super) fn with_advice(found: Finding) -> Finding {
    found
        .check(
            "the count against the max, and the columns drop and insert_failed",
            "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max; cat /proc/net/stat/nf_conntrack",
        )
        .fix(
            "raise the limit (costs about 320 bytes of memory an entry; undo: the old value)",
            "sysctl net.netfilter.nf_conntrack_max; sysctl -w net.netfilter.nf_conntrack_max=524288",
        )
        .advice("or track fewer connections: shorter timeouts, NOTRACK for traffic that needs no state")
}
