//! How long did each client wait, when several of its connects are under way at once? No I/O.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use whyslow_model::table;

use super::{Key, connect_pending};

/// Bit of `connect_pending::how`: a thread sleeps in connect() or poll() on the socket.
pub(super) const SLEEPS: u32 = 1;
/// ... epoll or another thread watches it.
pub(super) const WATCHES: u32 = 2;

/// A task that wakes more often than this, per second of a retried connect, does something else.
/// Event loops with a housekeeping timer wake 1 to 10 times a second.
const IDLE_WAKES_PER_SECOND: u64 = 20;

/// Whether the client did nothing but wait for this connect.
fn slept_through(p: &connect_pending) -> bool {
    let looked = Duration::from_nanos(p.looked_ns.saturating_sub(p.start_ns)).max(Duration::from_secs(1));
    let idle = u128::from(IDLE_WAKES_PER_SECOND) * looked.as_millis() / 1000;
    p.how & (SLEEPS | WATCHES) != 0 && u128::from(p.wakes) <= idle
}

/// The connects that a task has in flight to one peer.
#[derive(Default, Clone, Copy)]
struct InFlight {
    blocked: i64,
    watched: i64,
}

/// Spread each task's waiting time over its rows, each moment once.
pub(super) fn share_out(rows: &mut BTreeMap<Key, table::Connect>, retried: &[connect_pending]) {
    let mut by_task: HashMap<u32, Vec<(u64, i64, &connect_pending)>> = HashMap::new();
    for p in retried.iter().filter(|p| p.how != 0 && p.end_ns > p.start_ns) {
        let edges = by_task.entry(p.key.pid).or_default();
        edges.push((p.start_ns, 1, p));
        edges.push((p.end_ns, -1, p));
    }
    for mut edges in by_task.into_values() {
        edges.sort_by_key(|(at, _, _)| *at);
        sweep(rows, &edges);
    }
}

/// One task: `edges` are the beginnings (+1) and ends (-1) of its retried connects, in order.
fn sweep(rows: &mut BTreeMap<Key, table::Connect>, edges: &[(u64, i64, &connect_pending)]) {
    let running = edges.iter().scan(0, |n, (_, step, _)| {
        *n += step;
        Some(*n)
    });
    let most = running.max().unwrap_or(1).max(1);
    let mut flying: BTreeMap<Key, InFlight> = BTreeMap::new();
    for (i, (at, step, p)) in edges.iter().enumerate() {
        let key = Key::from(&p.key);
        let now = flying.entry(key).or_default();
        if slept_through(p) {
            now.blocked += step;
        } else {
            now.watched += step;
        }
        if now.blocked + now.watched == 0 {
            flying.remove(&key);
        }
        let until = edges.get(i + 1).map_or(*at, |next| next.0);
        note_moment(rows, &flying, until.saturating_sub(*at), most);
    }
}

/// For `ns`, the task had `flying` in flight; `most` is the most it ever had.
fn note_moment(
    rows: &mut BTreeMap<Key, table::Connect>,
    flying: &BTreeMap<Key, InFlight>,
    ns: u64,
    most: i64,
) {
    /// With more peers than this at one moment, it is not worth the time to distinguish them.
    const TOLD_APART: usize = 16;
    if ns == 0 {
        return;
    }
    let blocks = flying.values().any(|f| f.blocked > 0);
    let mut who: Vec<_> = flying.iter().filter(|(_, f)| !blocks || f.blocked > 0).collect();
    let all: i64 = flying.values().map(|f| f.blocked + f.watched).sum();
    who.truncate(TOLD_APART);
    let each = ns / u64::try_from(who.len()).unwrap_or(1).max(1);
    for (key, _) in who {
        let Some(row) = rows.get_mut(key) else { continue };
        if blocks {
            row.blocked_ns += each;
        } else {
            row.watched_ns += each;
            row.watched_share_ns += (each as f64 * all as f64 / most as f64) as u64;
        }
    }
}
