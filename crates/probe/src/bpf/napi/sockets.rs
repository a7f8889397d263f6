//! Which sockets have full receive queues: a few walks over all sockets, folded into one row per socket.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use whyslow_model::{Missing, table};

use super::super::connect::{name, socket_address};
use super::super::{value, walk_within};
use super::skel::types::napi_socket;

/// The name of these rows in reports.
pub const WHAT: &str = whyslow_model::Probe::ReceiveQueues.word();

/// A walk of all open files may take this long; a million files take about 0.15 s.
const WALK_DEADLINE: Duration = Duration::from_millis(500);
/// Walks between the first and the last: more of them distinguish a queue that is full now from one that always is ...
const EVERY: Duration = Duration::from_millis(500);
/// ... as long as they take less than this share of the time. 0.1 % of a CPU.
const MOST_SHARE: f64 = 0.001;
/// Sockets that are followed. A socket is worth a row only if something happened to it.
const MOST: usize = 8192;
/// Fewer ticks of waiting are too short to count.
const LEAST_HELD: u32 = 1;

/// One socket, over several walks.
#[derive(Debug, Clone, Copy)]
struct Followed {
    first: napi_socket,
    last: napi_socket,
    looks: u64,
    full: u64,
    closed: u64,
    queued: u64,
    worst: u32,
}

/// All sockets with something to report.
#[derive(Debug, Default)]
pub struct Queues {
    seen: HashMap<(u64, u32, u32), Followed>,
    /// Walks at which packets of any socket were in the queue of a device, by network namespace and name.
    queued: HashMap<(u32, String), u64>,
    looks: u64,
    took: Duration,
    looked: Duration,
    /// Sockets beyond the cap.
    pub left: u64,
}

impl Queues {
    /// Read all sockets.
    pub fn look(&mut self, walk: &Link, at: Duration) -> Result<(), Missing> {
        let began = Instant::now();
        let found = read(walk)?;
        self.looks += 1;
        self.note(found);
        (self.took, self.looked) = (began.elapsed(), at);
        Ok(())
    }

    /// Read them again, if that is cheap.
    pub fn look_again(&mut self, walk: &Link, at: Duration) -> Result<(), Missing> {
        let pause = EVERY.max(self.took.div_f64(MOST_SHARE));
        if self.looks == 0 || at.saturating_sub(self.looked) < pause { Ok(()) } else { self.look(walk, at) }
    }

    fn note(&mut self, mut found: Vec<napi_socket>) {
        // A socket that several processes hold is reported as its oldest one's.
        found.sort_by_key(|s| (s.sk, s.tgid));
        found.dedup_by_key(|s| s.sk);
        let queued = found.iter().filter(|s| s.queued > 0).map(|s| (s.netns, name(&s.device)));
        for device in queued.collect::<HashSet<_>>() {
            *self.queued.entry(device).or_default() += 1;
        }
        for s in found {
            let key = (s.sk, s.local_port, s.peer_port);
            if self.seen.len() >= MOST && !self.seen.contains_key(&key) {
                self.left += 1;
                continue;
            }
            let first = self.looks <= 1;
            let known = self.seen.entry(key).or_insert_with(|| Followed {
                // A socket that was not reported at the first walk had nothing to report: it counts from zero.
                first: if first { s } else { napi_socket { drops: 0, held: 0, ..s } },
                last: s,
                looks: 0,
                full: 0,
                closed: 0,
                queued: 0,
                worst: 0,
            });
            let queue =
                if s.queued > 0 { (s.device, s.qdisc) } else { (known.last.device, known.last.qdisc) };
            known.last = napi_socket { device: queue.0, qdisc: queue.1, ..s };
            known.queued += u64::from(s.queued > 0);
            known.looks += 1;
            known.full += u64::from(is_full(&s));
            known.closed += u64::from(s.tcp != 0 && s.used > 0 && s.window == 0);
            known.worst = known.worst.max(s.used);
        }
    }

    /// One row per socket to which something happened.
    pub fn rows(&self, tick_ns: u64, window: Duration) -> Vec<table::Socket> {
        let most = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let mut rows: Vec<_> = self.seen.values().map(|s| self.row(s, tick_ns, most)).filter(tells).collect();
        rows.sort_by(|a, b| (a.tgid, &a.local, &a.peer, a.netns).cmp(&(b.tgid, &b.local, &b.peer, b.netns)));
        rows
    }

    fn row(&self, s: &Followed, tick_ns: u64, most: u64) -> table::Socket {
        // Counters of 32 bits: they wrap. For waits a wrap cannot be distinguished from another socket at the same address.
        let held = s.last.held.saturating_sub(s.first.held);
        let held = if held > LEAST_HELD { held } else { 0 };
        let address = |at, port| socket_address(at, port).to_string();
        let device = name(&s.last.device);
        table::Socket {
            netns: s.last.netns,
            tcp: s.last.tcp != 0,
            local: address(s.last.local, s.last.local_port),
            peer: address(s.last.peer, s.last.peer_port),
            tgid: s.last.tgid,
            comm: name(&s.last.comm),
            looks: self.looks,
            full: s.full,
            closed: s.closed,
            used_bytes: s.worst.into(),
            room_bytes: s.last.room.into(),
            drops: s.last.drops.wrapping_sub(s.first.drops).into(),
            held_ns: u64::from(held).saturating_mul(tick_ns).min(most),
            queued: s.queued,
            device_queued: self.queued.get(&(s.last.netns, device.clone())).copied().unwrap_or(0),
            device,
            qdisc: name(&s.last.qdisc),
        }
    }
}

fn tells(row: &table::Socket) -> bool {
    row.full > 0 || row.closed > 0 || row.drops > 0 || row.held_ns > 0 || row.queued > 0
}

/// With half its memory used a TCP socket offers no more room (tcp_adv_win_scale of 1), or is about to.
fn is_full(s: &napi_socket) -> bool {
    s.used > 0 && s.used >= s.room / 2
}

fn read(walk: &Link) -> Result<Vec<napi_socket>, Missing> {
    Ok(walk_within(WHAT, walk, WALK_DEADLINE)?.chunks_exact(size_of::<napi_socket>()).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(sk: u64, tgid: u32, used: u32, drops: u32, held: u32) -> napi_socket {
        napi_socket { sk, tgid, used, drops, held, room: 1000, tcp: 1, local_port: 80, ..Default::default() }
    }

    fn reported(looks: &[&[napi_socket]]) -> Vec<table::Socket> {
        let mut queues = Queues::default();
        for look in looks {
            queues.looks += 1;
            queues.note(look.to_vec());
        }
        queues.rows(4_000_000, Duration::from_secs(1))
    }

    #[test]
    fn socket_counts_from_before_the_window_are_not_reported() {
        assert!(reported(&[&[socket(1, 7, 0, 5, 100)], &[socket(1, 7, 0, 5, 100)]]).is_empty());
        let rows = reported(&[&[socket(1, 7, 0, 5, 100)], &[socket(1, 7, 0, 8, 130)]]);
        assert_eq!((rows[0].drops, rows[0].held_ns), (3, 120_000_000));
    }

    #[test]
    fn a_socket_that_had_nothing_to_tell_at_first_counts_from_zero() {
        let rows = reported(&[&[], &[socket(1, 7, 0, 2, 10)]]);
        assert_eq!((rows[0].drops, rows[0].held_ns, rows[0].looks), (2, 40_000_000, 2));
    }

    #[test]
    fn a_full_queue_and_a_closed_window_are_counted_by_looks() {
        let open = napi_socket { window: 500, ..socket(1, 7, 499, 0, 0) };
        let rows = reported(&[&[socket(1, 7, 700, 0, 0)], &[open], &[socket(1, 7, 500, 0, 0)]]);
        assert_eq!((rows[0].full, rows[0].closed, rows[0].looks, rows[0].used_bytes), (2, 2, 3, 700));
    }

    #[test]
    fn the_queue_of_a_device_that_holds_its_packets_is_named_by_the_last_look_that_met_it() {
        let named = |text: &str| {
            let mut name = [0; 16];
            name.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte.cast_signed());
            name
        };
        let queued =
            napi_socket { queued: 3, device: named("eth0"), qdisc: named("tbf"), ..socket(1, 7, 0, 0, 0) };
        let rows = reported(&[&[], &[queued], &[queued], &[socket(1, 7, 0, 1, 0)]]);
        let row = &rows[0];
        assert_eq!((row.queued, row.looks, row.device.as_str(), row.qdisc.as_str()), (2, 4, "eth0", "tbf"));
        // One connection per request: each socket is met once or twice, two of them at one walk.
        let other = |sk, device: &str| napi_socket { sk, device: named(device), ..queued };
        let rows = reported(&[
            &[queued],
            &[other(2, "eth0"), other(3, "eth0"), other(4, "eth1")],
            &[],
            &[other(5, "eth0")],
        ]);
        let told: Vec<(u64, u64)> = rows.iter().map(|row| (row.queued, row.device_queued)).collect();
        assert_eq!(told.iter().filter(|told| **told == (1, 3)).count(), 4, "{rows:?}");
        assert_eq!(told.iter().filter(|told| **told == (1, 1)).count(), 1, "{rows:?}");
    }

    #[test]
    fn a_shared_socket_is_reported_once_as_its_oldest_process() {
        let rows = reported(&[&[socket(1, 9, 700, 0, 0), socket(1, 7, 700, 0, 0)]]);
        assert_eq!((rows.len(), rows[0].tgid), (1, 7));
    }

    #[test]
    fn waits_never_exceed_the_window_and_garbage_does_not_panic() {
        let rows = reported(&[&[], &[socket(1, 7, u32::MAX, u32::MAX, u32::MAX)]]);
        assert_eq!(rows[0].held_ns, 1_000_000_000);
    }
}
