//! Which processes opened TCP connections, and whose SYN had to be retransmitted? The kernel half is `connect.bpf.c`.

mod servers;
mod waiting;

use std::collections::BTreeMap;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use self::servers::Servers;
use self::waiting::share_out;
use super::mapped_ring::MappedRing;
use super::{map_sizes, missing, types, value, walk_within};
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::{host, listeners};

skeleton!("connect");
pub use skel::types::connect_listener;
use skel::types::{connect_door, connect_key, connect_pending, connect_sums, door_key};

// SAFETY: generated from the C structs; integers and bytes only, without padding.
unsafe impl plain::Plain for connect_key {}
// SAFETY: as above.
unsafe impl plain::Plain for connect_pending {}
// SAFETY: as above.
unsafe impl plain::Plain for connect_sums {}
// SAFETY: as above.
unsafe impl plain::Plain for connect_listener {}
// SAFETY: as above.
unsafe impl plain::Plain for door_key {}
// SAFETY: as above.
unsafe impl plain::Plain for connect_door {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::TcpConnects.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: connections",
    lost: "which client waits for a connection, and which accept queue is full",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: true,
    start: |slot, _| Ok(Some(Box::new(Connect::start(slot)?))),
};

/// A walk of all file tables may take this long; a million files take about 0.15 s.
const WALK_DEADLINE: Duration = Duration::from_millis(500);

/// The running probe. Dropping it detaches it from the kernel.
pub struct Connect<'slot> {
    skel: skel::ConnectSkel<'slot>,
    walk: Link,
    since_ns: u64,
    /// Refusals count from then on.
    began_ns: u64,
    retried: Vec<connect_pending>,
    listeners: Result<Vec<connect_listener>, Missing>,
}

impl<'slot> Connect<'slot> {
    /// Load, attach, and note the sockets that are there already. The kernel's copy of the program lives in `slot`.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        let mut connect = Self::load(slot).map_err(|err| missing(WHAT, &err))?;
        connect.seed(true);
        connect.listeners = connect.listening();
        connect.seed(false);
        Ok(connect)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::ConnectSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        let mut skel = open.load()?;
        let walk = skel.progs.walk.attach()?;
        skel.links.moved = Some(skel.progs.moved.attach()?);
        skel.links.sent_again = Some(skel.progs.sent_again.attach()?);
        let listeners = Err(Missing::not_recorded(listeners::WHAT));
        Ok(Self { skel, walk, since_ns: host::monotonic_ns(), began_ns: 0, retried: Vec::new(), listeners })
    }

    fn seed(&mut self, on: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.seed = u32::from(on);
        }
    }

    /// The listening TCP sockets of all network namespaces, one row per owning process.
    pub fn listening(&self) -> Result<Vec<connect_listener>, Missing> {
        let bytes = walk_within(listeners::WHAT, &self.walk, WALK_DEADLINE)?;
        Ok(bytes.chunks_exact(size_of::<connect_listener>()).map(value).collect())
    }

    /// The sockets that were listening when the probe started.
    pub fn listened(&self) -> Result<&[connect_listener], Missing> {
        self.listeners.as_deref().map_err(Clone::clone)
    }

    /// Every client's connects since the probe started.
    pub fn rows(&mut self) -> Result<Vec<table::Connect>, Missing> {
        let now = host::monotonic_ns();
        self.drain()?;
        let mut rows = self.sums();
        let pending = self.still_pending().into_iter();
        let pending = pending.map(|p| connect_pending { end_ns: end_by(&p, now), ..p });
        let (again, first): (Vec<_>, Vec<_>) = pending.partition(|p| p.retries > 0);
        let mut retried = self.retried.clone();
        retried.extend(again);
        for p in &mut retried {
            p.start_ns = p.start_ns.max(self.since_ns);
            note_retried(&mut rows, p);
        }
        retried.extend(first.into_iter().filter(|p| waits_like_before(&rows, p)));
        share_out(&mut rows, &retried);
        if rows.values().any(|row| row.refused > 0) {
            let servers = Servers::of(self.doors(), (self.began_ns, now));
            for (key, row) in rows.iter_mut().filter(|(_, row)| row.refused > 0) {
                row.server = servers.at(key.netns, key.peer, row.own);
            }
        }
        Ok(rows.into_values().collect())
    }

    /// Take the records that the kernel half sent.
    fn drain(&mut self) -> Result<(), Missing> {
        let retried = &mut self.retried;
        MappedRing::default()
            .take_all(&self.skel.maps.retried, |bytes| retried.push(value(bytes)))
            .map_err(|err| missing(WHAT, &err))
    }

    fn sums(&self) -> BTreeMap<Key, table::Connect> {
        let map = &self.skel.maps.peers;
        let mut rows = BTreeMap::new();
        for bytes in map.keys() {
            let Ok(Some(found)) = map.lookup(&bytes, MapFlags::ANY) else {
                continue;
            };
            let key = Key::from(&value::<connect_key>(&bytes));
            let sums: connect_sums = value(&found);
            let row = table::Connect {
                count: sums.count,
                done: sums.done,
                prompt: sums.prompt,
                prompt_ns: sums.prompt_ns,
                worst_ns: sums.worst_ns,
                refused: sums.refused,
                naps: sums.naps,
                slept_ns: sums.slept_ns,
                rests: sums.rests,
                rested_ns: sums.rested_ns,
                own: sums.own != 0,
                ..key.row(&sums.comm)
            };
            rows.insert(key, row);
        }
        rows
    }

    /// Addresses where a process began or ceased to listen.
    fn doors(&self) -> Vec<(door_key, connect_door)> {
        let map = &self.skel.maps.doors;
        let found = map.keys().filter_map(|key| Some((key.clone(), map.lookup(&key, MapFlags::ANY).ok()??)));
        found.map(|(key, door)| (value(&key), value(&door))).collect()
    }

    /// Open sockets whose SYN or first data are not answered.
    fn still_pending(&self) -> Vec<connect_pending> {
        let mut all = Vec::new();
        for map in [&self.skel.maps.pending, &self.skel.maps.fresh] {
            let found = map.keys().filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten());
            all.extend(found.map(|bytes| value::<connect_pending>(&bytes)));
        }
        all
    }

    /// Ids of its programs: our own.
    pub fn programs(&self) -> Vec<u32> {
        use std::os::fd::AsFd as _;
        let progs =
            [self.skel.progs.moved.as_fd(), self.skel.progs.sent_again.as_fd(), self.skel.progs.walk.as_fd()];
        progs.into_iter().filter_map(|fd| libbpf_rs::Program::id_from_fd(fd).ok()).collect()
    }

    /// Connects for which the kernel half had no room, and events at which the kernel skipped it: a program that a softirq finds running on
    /// its CPU is not run again.
    pub fn lost(&self) -> u64 {
        let ours = self.programs();
        let progs = ProgInfoIter::default().filter(|p| ours.contains(&p.id));
        let skipped: u64 = progs.map(|p| p.recursion_misses).sum();
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost + bss.doors_lost) + skipped
    }
}

impl Probe for Connect<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.began_ns = host::monotonic_ns();
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.began = self.began_ns;
        }
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.tables.listeners = ending.keep(listeners::full(self));
        ending.tables.connects = ending.keep(self.rows());
        ending.lost(WHAT, self.lost());
        Ok(())
    }
}

/// A client task and where it connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    pid: u32,
    tgid: u32,
    netns: u32,
    peer: SocketAddr,
}

impl From<&connect_key> for Key {
    fn from(key: &connect_key) -> Self {
        Key { pid: key.pid, tgid: key.tgid, netns: key.netns, peer: socket_address(key.addr, key.port) }
    }
}

impl Key {
    fn row(&self, comm: &[std::ffi::c_char]) -> table::Connect {
        table::Connect {
            pid: self.pid,
            tgid: self.tgid,
            comm: name(comm),
            netns: self.netns,
            peer: self.peer.to_string(),
            ..Default::default()
        }
    }
}

/// An address as the kernel half writes it: IPv4 is mapped into IPv6.
pub(crate) fn socket_address(addr: [u8; 16], port: u32) -> SocketAddr {
    let v6 = Ipv6Addr::from(addr);
    let ip = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    SocketAddr::new(ip, u16::try_from(port).unwrap_or(0))
}

/// A task's name, up to its end.
pub(crate) fn name(comm: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = comm.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Until when an open socket waited. No event shows when data are answered: if they were not retransmitted for twice as long as the time
/// before, they got through the last time.
fn end_by(p: &connect_pending, now: u64) -> u64 {
    let quiet = now.saturating_sub(p.looked_ns);
    if p.unanswered != 0 && quiet > p.gap_ns.saturating_mul(2) { p.looked_ns } else { now }
}

/// Whether the task waits for a SYN that is not retransmitted yet, when its SYNs to this peer were before: the first timeout takes a
/// second, and a window may end within it.
fn waits_like_before(rows: &BTreeMap<Key, table::Connect>, p: &connect_pending) -> bool {
    let had_to_wait = |row: &table::Connect| row.retried + row.unanswered > row.abandoned;
    p.unanswered == 0 && p.how != 0 && rows.get(&Key::from(&p.key)).is_some_and(had_to_wait)
}

fn note_retried(rows: &mut BTreeMap<Key, table::Connect>, p: &connect_pending) {
    let key = Key::from(&p.key);
    let row = rows.entry(key).or_insert_with(|| key.row(&p.comm));
    let ns = p.end_ns.saturating_sub(p.start_ns);
    if p.unanswered == 0 {
        row.retried += 1;
        row.retried_ns += ns;
    } else {
        row.unanswered += 1;
        row.unanswered_ns += ns;
    }
    row.worst_ns = row.worst_ns.max(ns);
    row.abandoned += u64::from(p.how == 0);
    row.watched += u64::from(p.how == waiting::WATCHES);
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
