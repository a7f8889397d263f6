//! Packets that wait behind other packets: what the softirq did meanwhile, and on which CPUs such waits are not seen.
//!
//! The kernel half watches the queue of each CPU itself (backlog: RPS, loopback, veth). Where packets wait in the ring of a device, nothing tells
//! for how long.

use whyslow_model::stall::{StallCulprit, StallSeen};
use whyslow_model::table::Cpu;
use whyslow_model::{Missing, Probe, Share};

use super::{MOST_TICKS, is_in_softirq, of_softirq_rows};
use crate::Evidence;

/// Queues grow where the softirq rests for less than a fifth of the time: four packets before each, if they come by chance.
const QUEUES: f64 = 0.8;
/// Packets that did not come through the queue of the CPU came through a ring: a CPU with more of them than a tenth has a second queue.
const NEARLY_ALL: f64 = 0.9;
/// What the probe does not see on a CPU with very many softirqs, or where the CPU's preempt count is not known.
const LONG_POLLS: &str = "long polls of packets";

/// A queue grows because the softirq is busy, or because threads take the CPU in turn with it.
pub(super) fn culprit(ticks: &[StallSeen]) -> Result<StallCulprit, String> {
    let count = |row: &StallSeen| u64::from(row.count);
    let all: u64 = ticks.iter().map(count).sum();
    let rows: Vec<&StallSeen> = ticks.iter().filter(|row| is_in_softirq(row)).collect();
    let own: u64 = rows.iter().map(|row| count(row)).sum();
    match all {
        0 => Err("no tick of this CPU came meanwhile".to_owned()),
        _ if own as f64 > MOST_TICKS * all as f64 => of_softirq_rows(&rows),
        _ => Err("softirqs and threads ran there in turn: this CPU is full".to_owned()),
    }
}

/// A receive softirq that hardly rests leaves packets behind others, and how long they wait there was not seen.
pub(crate) fn unseen(ev: &Evidence<'_>) -> Option<Missing> {
    let took = |row: &Cpu| {
        let vectors = row.softirqs.iter().filter(|(name, _, _)| name == "NET_RX");
        vectors.fold(0u64, |sum, (_, ns, _)| sum.saturating_add(*ns))
    };
    let share = |row: &Cpu| Share::of(took(row) as f64, ev.window().as_nanos() as f64);
    let busy = ev.cpus().ok()?.iter().filter(|row| share(row).ratio() >= QUEUES && !is_seen(ev, row.cpu));
    let most = busy.max_by_key(|row| took(row))?;
    let what = format!("how long packets waited in the queues of CPU {}", most.cpu);
    Some(Missing::unclear(what, format!("its receive softirq ran for {} of the time", share(most))))
}

/// Polls were hooked all the time, and nearly all packets of this CPU came through its own queue.
fn is_seen(ev: &Evidence<'_>, cpu: u32) -> bool {
    let polled = ev.polls().ok().and_then(|rows| rows.iter().find(|row| row.cpu == cpu));
    let comes_by_queue = |row: &whyslow_model::table::Poll| {
        row.packets > 0 && row.backlog_packets as f64 >= NEARLY_ALL * row.packets as f64
    };
    ev.stalls().is_ok() && !lacks_polls(ev) && polled.is_some_and(comes_by_queue)
}

/// Polls were not hooked, or not all the time.
pub(crate) fn lacks_polls(ev: &Evidence<'_>) -> bool {
    ev.lacks_a_part(Probe::PacketStalls)
        || ev.recording().missing.iter().any(|note| note.missing.what() == LONG_POLLS)
}
