//! Makes the table of packet stalls: names for addresses, times since the window began.

use std::collections::HashMap;

use whyslow_model::stall::{Stall, StallKind, StallSeen};

use crate::bpf::constants::stall_h::{SEEN, STALL_DEFERRED, STALL_IRQS_OFF, STALL_QUEUED};
use crate::bpf::stall::{RawStalls, stall, stall_seen};
use crate::bpf::text;
use crate::span_table::Window;
use crate::symbols::KernelNames;

/// Make the table, in order of time.
#[must_use]
pub fn stalls(seen: &RawStalls, window: Window, kernel: &mut KernelNames) -> Vec<Stall> {
    let mut rows: Vec<Stall> = seen.rows.iter().map(|one| row(one, &seen.stacks, window, kernel)).collect();
    rows.sort_by_key(|row| (row.at_ns, row.cpu));
    rows
}

fn row(one: &stall, stacks: &HashMap<i32, Vec<u64>>, window: Window, kernel: &mut KernelNames) -> Stall {
    let kind = match one.kind {
        STALL_IRQS_OFF => StallKind::IrqsOff,
        STALL_DEFERRED => StallKind::Deferred,
        STALL_QUEUED => StallKind::Queued,
        _ => StallKind::Poll,
    };
    let mut met = |row: &stall_seen| met(row, stacks, window, kernel);
    let mut seen: Vec<StallSeen> = in_order(one).filter(|row| row.at >= one.since).map(&mut met).collect();
    seen.push(met(&one.end));
    let kind = kind.word().to_owned();
    let (at_ns, ns, waits, worst_ns) = (window.at(one.at), one.ns, one.waits, one.worst);
    Stall { cpu: one.cpu, at_ns, ns, kind, waits, worst_ns, seen }
}

/// The kernel half fills the places one after another, and begins again.
fn in_order(one: &stall) -> impl Iterator<Item = &stall_seen> {
    let first = one.rows.saturating_sub(SEEN);
    (first..one.rows).filter_map(|at| one.seen.get((at % SEEN) as usize))
}

fn met(
    row: &stall_seen,
    stacks: &HashMap<i32, Vec<u64>>,
    window: Window,
    kernel: &mut KernelNames,
) -> StallSeen {
    StallSeen {
        at_ns: window.at(row.at),
        count: row.count,
        pid: row.pid,
        tgid: row.tgid,
        comm: text(&row.comm),
        softirq: row.softirq != 0,
        syscall: u32::try_from(row.call).ok(),
        file: file(&text(&row.folder), text(&row.file)),
        kernel: stacks.get(&row.stack).map(|stack| kernel.stack(stack)).unwrap_or_default(),
    }
}

/// The root of a file system is called "/", and the folder of a file without a name has none.
fn file(folder: &str, name: String) -> Option<String> {
    match folder {
        _ if name.is_empty() => None,
        "" | "/" => Some(name),
        _ => Some(format!("{folder}/{name}")),
    }
}
