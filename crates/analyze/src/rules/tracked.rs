//! The table of tracked connections, by its counters.

use whyslow_model::{FileSnapshot, Finding, Missing};

use crate::Evidence;

/// Packets that each network namespace dropped since its table was full.
pub(super) fn drops(ev: &Evidence<'_>) -> Vec<(String, u64)> {
    let stats = ev.in_netns("net/stat/nf_conntrack").into_iter();
    let rise = |first, last| Some(column(last, "drop").ok()?.saturating_sub(column(first, "drop").ok()?));
    stats
        .filter_map(|(inode, first, last)| Some((inode, rise(first, last)?)))
        .filter(|(_, drops)| *drops > 0)
        .collect()
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
            "count against max, and the columns drop and insert_failed",
            "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max; cat /proc/net/stat/nf_conntrack",
        )
        .fix(
            "raise the limit (about 320 bytes an entry); undo with the old value",
            "sysctl net.netfilter.nf_conntrack_max; sysctl -w net.netfilter.nf_conntrack_max=524288",
        )
        .advice("or track less: shorter timeouts, NOTRACK for traffic that needs no state")
}
