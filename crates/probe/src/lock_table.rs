//! Makes the tables of locks from addresses: waits by lock and call site, and the holders.

use std::collections::BTreeMap;

use whyslow_model::timeline::{Hold, HoldSeen, Lock, Stack};

use crate::bpf::locks::{self, locks_hold, locks_open};
use crate::bpf::text;
use crate::span_table::lock_kind;
use crate::symbols::KernelNames;

/// Waits of at least this length: their holders are reported.
const LONG_NS: u64 = 1_000_000;
/// The tracepoint's own frames and the locks' own code: the call site is the frame that called them. For a task that sleeps the kernel
/// leaves out such code itself.
const WAY_IN: [&str; 17] = [
    "__traceiter_",
    "__bpf_trace_",
    "trace_contention",
    "__schedule",
    "schedule",
    "rwsem_",
    "__down",
    "down",
    "___down",
    "mutex_",
    "__mutex_",
    "ww_mutex_",
    "__ww_mutex_",
    "percpu_",
    "__percpu_",
    "rt_",
    "__rt_",
];

/// The most frames of our own BPF program and its trampoline that may come before those.
const MOST_OF_OURS: usize = 4;

/// Tables of the locks probe: waits, holders, and the stacks that the waits point to, numbered from `first_stack`.
/// The window began at `begin_ns` (CLOCK_MONOTONIC).
#[must_use]
pub fn tables(
    seen: &locks::RawLocks,
    begin_ns: u64,
    window_ns: u64,
    kernel: &mut KernelNames,
    first_stack: u32,
) -> (Vec<Lock>, Vec<Hold>, Vec<Stack>) {
    let mut table = Table { stacks: BTreeMap::new(), first_stack, locks: BTreeMap::new() };
    for row in &seen.rows {
        let stack = table.stack(kernel, &row.frames, true);
        table.add((row.lock, row.kind, row.write, stack), row.count, row.total_ns, row.worst_ns);
    }
    let end_ns = begin_ns.saturating_add(window_ns);
    for open in seen.open.iter().filter(|open| open.wait.since > 0 && open.wait.since < end_ns) {
        let depth = usize::try_from(open.depth).unwrap_or(0) / 8;
        let stack = table.stack(kernel, open.frames.get(..depth).unwrap_or_default(), false);
        let ns = end_ns.saturating_sub(open.wait.since.max(begin_ns));
        table.add((open.wait.lock, open.wait.kind, open.wait.write != 0, stack), 1, ns, ns);
    }
    let mut holds: Vec<Hold> = seen.holds.iter().map(|hold| held(hold, begin_ns)).collect();
    holds.extend(seen.open.iter().flat_map(|open| held_still(open, begin_ns, end_ns)));
    holds.retain(|hold| hold.at_ns <= window_ns);
    holds.sort_by_key(|hold| (hold.at_ns, hold.lock, hold.pid));
    let (locks, stacks) = table.into_rows();
    (locks, holds, stacks)
}

/// (address, kind, write, stack).
type Key = (u64, u32, bool, Option<u32>);

struct Table {
    stacks: BTreeMap<Vec<String>, u32>,
    first_stack: u32,
    locks: BTreeMap<Key, Lock>,
}

impl Table {
    /// The number of a call site; stacks with the same names are one call site. Only a stack that was `traced` when the wait ended
    /// begins with our own program, whose address may get a wrong name from the kernel's symbols.
    fn stack(&mut self, kernel: &mut KernelNames, frames: &[u64], traced: bool) -> Option<u32> {
        if frames.is_empty() {
            return None;
        }
        let mut names = kernel.stack(frames);
        let is_own = |name: &String| WAY_IN.iter().any(|own| name.starts_with(own));
        let ours = names.iter().take(MOST_OF_OURS).position(is_own).filter(|_| traced).unwrap_or(0);
        let caller = names.iter().skip(ours).position(|name| !is_own(name)).unwrap_or(0);
        names.drain(..ours.saturating_add(caller).min(names.len()));
        let next = self.first_stack.saturating_add(u32::try_from(self.stacks.len()).unwrap_or(u32::MAX));
        Some(*self.stacks.entry(names).or_insert(next))
    }

    fn add(&mut self, key: Key, count: u64, total_ns: u64, worst_ns: u64) {
        let (address, kind, write, stack) = key;
        let empty = || Lock { address, kind: lock_kind(kind), write, stack, ..Lock::default() };
        let row = self.locks.entry(key).or_insert_with(empty);
        row.count = row.count.saturating_add(count);
        row.total_ns = row.total_ns.saturating_add(total_ns);
        row.worst_ns = row.worst_ns.max(worst_ns);
    }

    fn into_rows(self) -> (Vec<Lock>, Vec<Stack>) {
        let stack = |(kernel, id)| Stack { id, kernel, user: Vec::new() };
        let mut stacks: Vec<Stack> = self.stacks.into_iter().map(stack).collect();
        stacks.sort_by_key(|stack| stack.id);
        (self.locks.into_values().collect(), stacks)
    }
}

fn held(hold: &locks_hold, begin_ns: u64) -> Hold {
    Hold {
        lock: hold.lock,
        at_ns: hold.at.saturating_sub(begin_ns),
        pid: hold.pid,
        tgid: hold.tgid,
        comm: text(&hold.comm),
        seen: if hold.acquired != 0 { HoldSeen::Acquired } else { HoldSeen::Word },
        reader: hold.reader != 0,
    }
}

/// The holders of a wait that has not ended: the task that the lock's word named when the wait began, and when the window ended.
fn held_still(open: &locks_open, begin_ns: u64, end_ns: u64) -> Vec<Hold> {
    let wait = &open.wait;
    if wait.since == 0 || end_ns.saturating_sub(wait.since) < LONG_NS {
        return Vec::new();
    }
    let hold = |at: u64, pid| Hold {
        lock: wait.lock,
        at_ns: at.saturating_sub(begin_ns),
        pid,
        seen: HoldSeen::Word,
        reader: wait.reader_owned != 0,
        ..Hold::default()
    };
    let mut holds = Vec::new();
    if wait.owner != 0 {
        holds.push(hold(wait.since, wait.owner));
    }
    if wait.owner_again != 0 {
        let last = hold(end_ns, wait.owner_again);
        holds.push(Hold { tgid: open.owner_tgid, comm: text(&open.owner_comm), ..last });
    }
    if let [first, last] = &mut holds[..]
        && first.pid == last.pid
    {
        (first.tgid, first.comm) = (last.tgid, last.comm.clone());
    }
    holds
}

#[cfg(test)]
#[path = "lock_table_tests.rs"]
mod tests;
