//! Processes whose receive queues are full, and senders that wait for room in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::{Socket, Wait};

use crate::Evidence;
use crate::stacks::symbol;

/// Fewer drops at one socket are chance.
const LEAST_DROPS: u64 = 5;

/// A process whose receive queues are full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reader<'r> {
    pub tgid: u32,
    pub comm: String,
    pub sockets: Vec<&'r Socket>,
    /// Processes on this host that send to it, the one that waited longest first.
    pub senders: Vec<Sender>,
}

/// A process that had data for a reader whose window had no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sender {
    pub tgid: u32,
    pub comm: String,
    /// Namespaces of its sockets.
    pub netns: BTreeSet<u32>,
    /// The wait of its connection that waited longest: this much is certain.
    pub held: Duration,
    /// The waits of all its connections added up: they may have waited at the same time.
    pub sum: Duration,
}

impl Reader<'_> {
    /// The address at which it reads: "10.0.0.2:80", "10.0.0.2:80 and 3 others".
    pub fn place(&self) -> String {
        let places: BTreeSet<&str> = self.sockets.iter().map(|socket| socket.local.as_str()).collect();
        let first = places.first().copied().unwrap_or("its sockets").to_owned();
        if places.len() > 1 { format!("{first} and {} others", places.len() - 1) } else { first }
    }

    /// Checks at which its queues were full, and all checks.
    pub fn full(&self) -> (u64, u64) {
        let sum = |of: fn(&Socket) -> u64| self.sockets.iter().map(|s| of(s)).fold(0, u64::saturating_add);
        (sum(|s| s.full.max(s.closed)), sum(|s| s.looks))
    }

    /// The sum of its senders' waits.
    pub fn held(&self) -> Duration {
        self.senders.iter().map(|sender| sender.held).fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl Sender {
    /// The time for which its threads slept in the call, for room in a socket: a sender that does not block loses nothing by
    /// a closed window.
    pub fn slept(&self, waits: &[Wait]) -> Duration {
        const FOR_ROOM: &str = "sk_stream_wait_memory";
        let for_room = |wait: &&Wait| {
            wait.tgid == self.tgid && wait.kernel.iter().any(|frame| symbol(frame) == FOR_ROOM)
        };
        let ns = waits.iter().filter(for_room).map(|wait| wait.ns).fold(0, u64::saturating_add);
        Duration::from_nanos(ns).min(self.sum)
    }
}

/// The queue was full at half of the checks, or it dropped packets, or a sender waited and the queue was full at one check.
fn is_late(socket: &Socket, is_waited_for: bool) -> bool {
    let full = socket.full.max(socket.closed);
    socket.drops >= LEAST_DROPS || (full > 0 && (is_waited_for || full.saturating_mul(2) >= socket.looks))
}

fn are_ends(reader: &Socket, sender: &Socket) -> bool {
    reader.tcp && sender.tcp && reader.local == sender.peer && reader.peer == sender.local
}

impl Reader<'_> {
    /// It and its senders, with the names of the report.
    pub fn named(mut self, ev: &Evidence<'_>) -> Self {
        self.comm = ev.process_name(self.tgid, &self.comm);
        for sender in &mut self.senders {
            sender.comm = ev.process_name(sender.tgid, &sender.comm);
        }
        self
    }
}

/// Processes of the namespace `netns` (an inode as text, or "host": any) that read late.
pub(crate) fn readers<'r>(sockets: &'r [Socket], netns: &str) -> Vec<Reader<'r>> {
    let mut by_process: BTreeMap<u32, Reader<'r>> = BTreeMap::new();
    for socket in sockets.iter().filter(|s| netns == "host" || s.netns.to_string() == netns) {
        let peers: Vec<&Socket> = sockets.iter().filter(|s| s.held_ns > 0 && are_ends(socket, s)).collect();
        if !is_late(socket, !peers.is_empty()) {
            continue;
        }
        let reader = by_process.entry(socket.tgid).or_insert_with(|| Reader {
            tgid: socket.tgid,
            comm: socket.comm.clone(),
            sockets: Vec::new(),
            senders: Vec::new(),
        });
        reader.sockets.push(socket);
        peers.into_iter().for_each(|peer| note(&mut reader.senders, peer));
    }
    let mut all: Vec<_> = by_process.into_values().collect();
    for reader in &mut all {
        reader.senders.sort_by_key(|sender| (std::cmp::Reverse(sender.held), sender.tgid));
    }
    all.sort_by_key(|reader| (std::cmp::Reverse((reader.held(), reader.full().0)), reader.tgid));
    all
}

fn note(senders: &mut Vec<Sender>, socket: &Socket) {
    let held = Duration::from_nanos(socket.held_ns);
    if let Some(known) = senders.iter_mut().find(|sender| sender.tgid == socket.tgid) {
        known.held = known.held.max(held);
        known.sum = known.sum.saturating_add(held);
        known.netns.insert(socket.netns);
        return;
    }
    senders.push(Sender {
        tgid: socket.tgid,
        comm: socket.comm.clone(),
        netns: BTreeSet::from([socket.netns]),
        held,
        sum: held,
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A socket of process `tgid` in namespace 7.
    pub(crate) fn socket(tgid: u32, local: &str, peer: &str) -> Socket {
        let (local, peer) = (local.to_owned(), peer.to_owned());
        Socket {
            netns: 7,
            tcp: true,
            tgid,
            comm: format!("p{tgid}"),
            local,
            peer,
            looks: 4,
            ..Socket::default()
        }
    }

    #[test]
    fn a_full_queue_finds_its_reader_and_the_sender_at_its_other_end() {
        let full = Socket { full: 4, ..socket(1, "a:80", "b:999") };
        let sender = |port: &str, ms: u64| Socket {
            netns: 8,
            held_ns: ms * 1_000_000,
            ..socket(2, &format!("b:{port}"), "a:80")
        };
        let other = Socket { full: 3, ..socket(1, "a:80", "b:998") };
        let rows = [full, sender("999", 700), other, sender("998", 400), sender("997", 900)];
        let found = readers(&rows, "7");
        assert_eq!((found.len(), found[0].tgid, found[0].full()), (1, 1, (7, 8)));
        let sender = &found[0].senders[0];
        assert_eq!((sender.held.as_millis(), sender.sum.as_millis()), (700, 1100), "the third is not its");
        assert!(readers(&rows, "9").is_empty());
    }

    #[test]
    fn a_queue_that_is_full_now_and_then_is_nobodys_fault_unless_somebody_waits() {
        let once = Socket { full: 1, ..socket(1, "a:80", "b:999") };
        assert!(readers(std::slice::from_ref(&once), "7").is_empty());
        let waits = Socket { held_ns: 1, ..socket(2, "b:999", "a:80") };
        assert_eq!(readers(&[once, waits], "7").len(), 1);
        let drops = Socket { tcp: false, drops: 5, ..socket(1, "a:53", "*:0") };
        assert_eq!(readers(&[drops], "host").len(), 1);
    }
}
