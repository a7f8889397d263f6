//! What a network namespace's counters show of queues that overflowed in the window.

use whyslow_model::{Missing, times};

use crate::Evidence;
use crate::evidence::Netns;
use crate::parse::{single, sockstat};

/// Counters of one namespace. net/ipv4/tcp_input.c (tcp_prune_queue, tcp_collapse), tcp_output.c (tcp_select_window), udp.c.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Symptoms {
    /// The namespace's inode, as text.
    pub netns: String,
    /// A receive queue was over its memory limit: it was pruned, and out-of-order packets were dropped.
    pub pruned: u64,
    /// Packets in queues that were copied together to save memory.
    pub collapsed: u64,
    /// TCP packets dropped at a full receive queue, backlog or closed window.
    pub dropped: u64,
    /// Datagrams dropped at a full receive queue.
    pub datagrams: u64,
    /// Windows that were closed for lack of room.
    pub closed: u64,
    /// Windows that would have been closed if more room had not been advertised before: there is no room, either.
    pub to_close: u64,
    /// Retransmission timeouts of senders here.
    pub timeouts: u64,
    /// Times that TCP as a whole met its memory limit.
    pub pressure: u64,
}

impl Symptoms {
    fn of(net: &Netns) -> Self {
        let tcp = |names: &[&str]| {
            let rises = names.iter().map(|name| net.rise("TcpExt", name).unwrap_or(0));
            rises.fold(0, u64::saturating_add)
        };
        Symptoms {
            netns: net.inode.clone(),
            pruned: tcp(&["PruneCalled", "RcvPruned", "OfoPruned"]),
            collapsed: tcp(&["TCPRcvCollapsed"]),
            dropped: tcp(&["TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop"]),
            datagrams: net.rise("Udp", "RcvbufErrors").unwrap_or(0),
            closed: tcp(&["TCPToZeroWindowAdv"]),
            to_close: tcp(&["TCPWantZeroWindowAdv"]),
            timeouts: tcp(&["TCPTimeouts"]),
            pressure: tcp(&["TCPMemoryPressures"]),
        }
    }

    /// Packets and queues that overflowed. A closed window does not count: TCP slows down a sender this way if it is faster than its reader.
    pub fn spilled(&self) -> u64 {
        [self.pruned, self.collapsed, self.dropped, self.datagrams].into_iter().fold(0, u64::saturating_add)
    }

    /// "TCP queues were pruned 27 times, windows were closed 58 times".
    pub fn words(&self) -> String {
        let often = |n: u64, what: &str| format!("{what} {}", times(n));
        let things = |n: u64, what: &str, how: &str| match n {
            1 => format!("1 {what} was {how}"),
            n => format!("{n} {what}s were {how}"),
        };
        let parts = [
            (self.pruned, often(self.pruned, "TCP queues were pruned")),
            (self.collapsed, things(self.collapsed, "packet", "collapsed")),
            (self.dropped, things(self.dropped, "TCP packet", "dropped")),
            (self.datagrams, things(self.datagrams, "datagram", "dropped")),
            (self.closed, often(self.closed, "windows were closed")),
            (self.to_close, often(self.to_close, "windows had no room beyond what was advertised")),
            (self.timeouts, often(self.timeouts, "senders timed out")),
            (self.pressure, often(self.pressure, "TCP met its memory limit")),
        ];
        let reported = parts.into_iter().filter(|(count, _)| *count > 0);
        reported.map(|(_, words)| words).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn symptoms(ev: &Evidence<'_>) -> Result<Vec<Symptoms>, Missing> {
    let nets = ev.netns()?;
    Ok(nets.iter().map(Symptoms::of).collect())
}

impl Evidence<'_> {
    /// Pages that all TCP buffers hold, if that is above the limit at which TCP begins to save memory: (pages, limit).
    pub(crate) fn tcp_memory_short(&self) -> Option<(u64, u64)> {
        let held = self.file("proc/net/sockstat", sockstat::parse).ok()?.tcp_pages;
        let limits = self.file("proc/sys/net/ipv4/tcp_mem", single::integers).ok()?;
        limits.get(1).copied().filter(|limit| held >= *limit).map(|limit| (held, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    #[test]
    fn rises_are_reported_by_namespace_and_totals_are_not() {
        let text =
            |prune, closed| format!("TcpExt: PruneCalled TCPToZeroWindowAdv\nTcpExt: {prune} {closed}\n");
        let host = Fixture::second()
            .start("netns/7/net/netstat", &text(1000, 5))
            .end("netns/7/net/netstat", &text(1027, 63))
            .start("proc/net/netstat", &text(9, 9))
            .end("proc/net/netstat", &text(9, 9));
        let found = symptoms(&host.ev()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].netns.as_str(), found[0].pruned, found[0].spilled()), ("7", 27, 27));
        assert_eq!(found[0].words(), "TCP queues were pruned 27 times, windows were closed 58 times");
        let few = Symptoms { datagrams: 1, collapsed: 2, timeouts: 1, ..Symptoms::default() };
        assert_eq!(few.words(), "2 packets were collapsed, 1 datagram was dropped, senders timed out once");
        assert!(symptoms(&Fixture::second().ev()).is_err());
    }

    #[test]
    fn memory_is_short_from_the_second_limit_on() {
        let host = |mem: u64| {
            let sockets = format!("TCP: inuse 5 orphan 0 tw 2 alloc 9 mem {mem}\n");
            Fixture::second()
                .end("proc/net/sockstat", &sockets)
                .end("proc/sys/net/ipv4/tcp_mem", "10 20 30\n")
        };
        assert_eq!(host(19).ev().tcp_memory_short(), None);
        assert_eq!(host(25).ev().tcp_memory_short(), Some((25, 20)));
    }
}
