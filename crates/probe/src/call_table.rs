//! Makes the tables `calls` and `slow_calls` from what the probe of system calls saw.

use std::collections::{BTreeMap, HashMap};

use whyslow_model::MissingNote;
use whyslow_model::timeline::{Call, SlowCall, Stack, StateTimes};

use crate::bpf::calls::{RawCalls, Row, Single};
use crate::living::{Living, Wanted};

/// The most single calls that are reported: the slowest.
const MOST_SINGLES: usize = 10_000;

/// The tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// One row per (process, call, file).
    pub calls: Vec<Call>,
    /// Slow calls, in order of their begin.
    pub slow_calls: Vec<SlowCall>,
    /// The user stacks that `slow_calls` and `waits` point to.
    pub stacks: Vec<Stack>,
    /// Waits inside calls whose user stack is known.
    pub waits: Vec<UserWait>,
    /// Slow calls beyond the most that are reported: not in the table.
    pub untold: u64,
}

/// One call of a thread, and the user stack that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserWait {
    /// Thread.
    pub pid: u32,
    /// The call began, since the window's begin.
    pub from_ns: u64,
    /// It returned.
    pub to_ns: u64,
    /// `Stack::id`.
    pub stack: u32,
}

/// Make the tables. The ids of stacks begin at `first_stack`.
pub fn tables(
    mut seen: RawCalls,
    window_start_ns: u64,
    window_ns: u64,
    first_stack: u32,
    missing: &mut Vec<MissingNote>,
) -> Tables {
    let calls = calls(&seen.rows);
    let slow_ns = seen.slow_ns.unwrap_or(u64::MAX);
    seen.singles.retain(|one| one.ns >= slow_ns || !one.frames.is_empty());
    seen.singles.sort_by_key(|one| std::cmp::Reverse(one.ns));
    let untold = (seen.singles.len().saturating_sub(MOST_SINGLES) as u64).saturating_add(seen.untold);
    seen.singles.truncate(MOST_SINGLES);
    seen.singles.sort_by_key(|one| (one.at_ns, one.pid));
    let mut stacks = Stacks::new(first_stack, &seen.singles, missing);
    let mut tables = Tables { calls, untold, ..Tables::default() };
    for one in &seen.singles {
        let stack = stacks.of(one);
        let from_ns = one.at_ns.saturating_sub(window_start_ns);
        let to_ns =
            one.at_ns.saturating_add(one.ns).saturating_sub(window_start_ns).min(window_ns.max(from_ns));
        if one.ns >= slow_ns {
            tables.slow_calls.push(slow(one, from_ns, stack));
        }
        tables.waits.extend(stack.map(|stack| UserWait { pid: one.pid, from_ns, to_ns, stack }));
    }
    tables.stacks = stacks.rows;
    tables
}

fn slow(one: &Single, at_ns: u64, stack: Option<u32>) -> SlowCall {
    SlowCall {
        pid: one.pid,
        tgid: one.tgid,
        comm: one.comm.clone(),
        at_ns,
        ns: one.ns,
        open: one.open,
        syscall: one.nr,
        path: one.path.clone(),
        split: one.split,
        stack,
    }
}

fn calls(rows: &[Row]) -> Vec<Call> {
    let names = process_names(rows);
    let mut calls: BTreeMap<(u32, u32, Option<&str>), Call> = BTreeMap::new();
    for row in rows {
        let call = calls.entry((row.tgid, row.nr, row.path.as_deref())).or_insert_with(|| Call {
            tgid: row.tgid,
            comm: names.get(&row.tgid).copied().unwrap_or_default().to_owned(),
            syscall: row.nr,
            path: row.path.clone(),
            ..Call::default()
        });
        call.count = call.count.saturating_add(row.count);
        call.errors = call.errors.saturating_add(row.errors);
        call.total_ns = call.total_ns.saturating_add(row.total_ns);
        call.worst_ns = call.worst_ns.max(row.worst_ns);
        add(&mut call.split, &row.split);
    }
    calls.into_values().collect()
}

/// The name of each process: the last name of its first thread, or else the name of any of its threads.
fn process_names(rows: &[Row]) -> HashMap<u32, &str> {
    let mut names = HashMap::new();
    for row in rows {
        if row.pid == row.tgid {
            names.insert(row.tgid, row.comm.as_str());
        }
    }
    for row in rows {
        names.entry(row.tgid).or_insert(row.comm.as_str());
    }
    names
}

fn add(sum: &mut StateTimes, part: &StateTimes) {
    sum.running_ns = sum.running_ns.saturating_add(part.running_ns);
    sum.runnable_ns = sum.runnable_ns.saturating_add(part.runnable_ns);
    sum.io_ns = sum.io_ns.saturating_add(part.io_ns);
    sum.blocked_ns = sum.blocked_ns.saturating_add(part.blocked_ns);
    sum.sleep_ns = sum.sleep_ns.saturating_add(part.sleep_ns);
    sum.unknown_ns = sum.unknown_ns.saturating_add(part.unknown_ns);
}

/// User stacks with names; equal ones are one row.
struct Stacks {
    next: u32,
    names: Living,
    known: HashMap<Vec<String>, u32>,
    rows: Vec<Stack>,
}

impl Stacks {
    fn new(next: u32, singles: &[Single], missing: &mut Vec<MissingNote>) -> Self {
        let mut wanted = Wanted::new();
        for one in singles.iter().filter(|one| !one.frames.is_empty()) {
            let (weight, addresses) = wanted.entry(one.tgid).or_default();
            *weight = weight.saturating_add(one.ns);
            addresses.extend(&one.frames);
        }
        let names = if wanted.is_empty() { Living::default() } else { Living::named(wanted, missing) };
        Stacks { next, names, known: HashMap::new(), rows: Vec::new() }
    }

    fn of(&mut self, one: &Single) -> Option<u32> {
        if one.frames.is_empty() {
            return None;
        }
        let user: Vec<String> = one.frames.iter().flat_map(|at| self.names.of(one.tgid, *at)).collect();
        if let Some(id) = self.known.get(&user) {
            return Some(*id);
        }
        let id = self.next;
        self.next = self.next.saturating_add(1);
        self.known.insert(user.clone(), id);
        self.rows.push(Stack { id, user, ..Stack::default() });
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, nr: u32, path: &str, count: u64, ns: u64) -> Row {
        let split = StateTimes { running_ns: ns / 2, sleep_ns: ns - ns / 2, ..StateTimes::default() };
        let path = Some(path.to_owned()).filter(|path| !path.is_empty());
        Row {
            pid,
            tgid: 7,
            comm: format!("t{pid}"),
            nr,
            path,
            count,
            total_ns: ns,
            worst_ns: ns,
            split,
            ..Row::default()
        }
    }

    #[test]
    fn threads_of_a_process_share_a_row_and_nothing_is_lost() {
        let rows = [
            row(8, 0, "/a", 2, 10),
            row(7, 0, "/a", 3, 31),
            row(8, 0, "/b", 1, 5),
            row(8, 202, "", 1, u64::MAX),
        ];
        let calls = calls(&rows);
        let reported: Vec<_> =
            calls.iter().map(|c| (c.syscall, c.path.as_deref(), c.count, c.total_ns, c.worst_ns)).collect();
        let futex = (202, None, 1, u64::MAX, u64::MAX);
        assert_eq!(reported, [(0, Some("/a"), 5, 41, 31), (0, Some("/b"), 1, 5, 5), futex]);
        assert!(calls.iter().all(|call| call.comm == "t7" && call.split.total_ns() == call.total_ns));
    }

    #[test]
    fn slow_calls_are_in_order_and_relative_to_the_window() {
        let single = |at_ns, ns, frames: &[u64]| Single {
            pid: 1,
            tgid: u32::MAX,
            at_ns,
            ns,
            frames: frames.into(),
            ..Single::default()
        };
        let singles =
            vec![single(150, 40, &[]), single(90, 60, &[]), single(200, 1, &[]), single(300, 2, &[1, 2])];
        let seen = RawCalls { rows: Vec::new(), singles, slow_ns: Some(30), untold: 0 };
        let tables = tables(seen, 100, 1000, 5, &mut Vec::new());
        let reported: Vec<_> =
            tables.slow_calls.iter().map(|slow| (slow.at_ns, slow.ns, slow.stack)).collect();
        assert_eq!(reported, [(0, 60, None), (50, 40, None)]);
        assert_eq!(tables.waits, [UserWait { pid: 1, from_ns: 200, to_ns: 202, stack: 5 }]);
        assert_eq!(tables.stacks[0].user, ["[unknown]", "[unknown]"]);
    }
}
