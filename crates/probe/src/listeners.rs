//! Which listening sockets dropped connections because their accept queue was full in the window, and which processes own them?
//!
//! Signal: `sk_drops` of each listening socket, before and after. The kernel counts a drop there for each SYN and
//! each third ACK that met a full accept queue (`tcp_listendrop`, v4.7, 9caad864151e: ListenDrops are counted per
//! socket); a listener whose queue is full at the end of the window counts too. `ListenOverflows` is not used: it names no port. A listener
//! that came and went within the window is not seen. Cost: two walks of all file tables, made by `bpf/connect.bpf.c`.

use std::collections::{BTreeMap, HashMap};

use whyslow_model::{Missing, table};

use crate::bpf::connect::{Connect, connect_listener, name, socket_address};

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::ListeningSockets.word();

/// A reader needs no more rows than this.
const MOST_ROWS: usize = 256;

/// Listening sockets that dropped connections since `connect` started, or whose queue is full now; the worst first.
pub fn full(connect: &Connect<'_>) -> Result<Vec<table::Listener>, Missing> {
    Ok(between(connect.listened()?, &connect.listening()?))
}

fn between(before: &[connect_listener], after: &[connect_listener]) -> Vec<table::Listener> {
    let was: HashMap<(u64, u32), u64> = before.iter().map(|l| ((l.sk, l.port), l.drops)).collect();
    // A listener that several processes share (pre-fork servers) is reported once, for its oldest process.
    let mut once: BTreeMap<u64, &connect_listener> = BTreeMap::new();
    for l in after {
        let known = once.entry(l.sk).or_insert(l);
        if l.tgid < known.tgid {
            *known = l;
        }
    }
    let mut rows: Vec<_> = once
        .into_values()
        .map(|l| row(l, was.get(&(l.sk, l.port)).copied().unwrap_or(0)))
        .filter(|l| l.overflows > 0 || l.queue > l.limit)
        .collect();
    rows.sort_by_key(|l| std::cmp::Reverse(l.overflows));
    rows.truncate(MOST_ROWS);
    rows
}

fn row(l: &connect_listener, drops_before: u64) -> table::Listener {
    table::Listener {
        netns: l.netns,
        local: socket_address(l.addr, l.port).to_string(),
        queue: l.queue,
        limit: l.limit,
        tgid: l.tgid,
        comm: name(&l.comm),
        // A 32-bit counter: one that is lower than before wrapped.
        overflows: u64::from((l.drops as u32).wrapping_sub(drops_before as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(sk: u64, tgid: u32, drops: u64, queue: u32) -> connect_listener {
        connect_listener { sk, tgid, drops, queue, limit: 8, port: 80, netns: 7, ..Default::default() }
    }

    #[test]
    fn only_listeners_that_dropped_or_are_full_are_reported() {
        let before = [listener(1, 10, 5, 0), listener(2, 10, 5, 0)];
        let after = [listener(1, 10, 5, 8), listener(2, 10, 8, 1), listener(3, 10, 0, 9)];
        let reported: Vec<_> = between(&before, &after).into_iter().map(|l| (l.overflows, l.queue)).collect();
        assert_eq!(reported, [(3, 1), (0, 9)]);
    }

    #[test]
    fn a_shared_listener_is_reported_once_as_its_oldest_process() {
        let after = [listener(1, 12, 4, 0), listener(1, 10, 4, 0), listener(1, 11, 4, 0)];
        let reported = between(&[], &after);
        assert_eq!(reported.len(), 1);
        assert_eq!(reported[0].tgid, 10);
    }

    #[test]
    fn a_counter_that_wraps_is_not_a_flood() {
        let reported = between(&[listener(1, 1, u64::from(u32::MAX), 0)], &[listener(1, 1, 1, 0)]);
        assert_eq!(reported[0].overflows, 2);
    }
}
