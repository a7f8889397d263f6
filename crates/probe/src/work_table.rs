//! Makes the table of work items by function.

use std::collections::BTreeMap;

use whyslow_model::work::Work;

use crate::bpf::work::{RawWork, work_row, work_running};
use crate::bpf::{constants, text};
use crate::symbols::KernelNames;

/// The table of work items. The window began at `begin_ns` (CLOCK_MONOTONIC).
#[must_use]
pub fn works(seen: &RawWork, begin_ns: u64, window_ns: u64, kernel: &mut KernelNames) -> Vec<Work> {
    let mut works: BTreeMap<String, Work> = BTreeMap::new();
    let mut of = |address: u64, workqueue: &[_], add: &mut dyn FnMut(&mut Work)| {
        let function = kernel.stack(&[address]).into_iter().next().unwrap_or_default();
        let workqueue = text(workqueue);
        let empty = || Work { function: function.clone(), workqueue, ..Work::default() };
        add(works.entry(function.clone()).or_insert_with(empty));
    };
    for (address, row) in &seen.rows {
        of(*address, &row.workqueue, &mut |work| add_row(work, row));
    }
    let end_ns = begin_ns.saturating_add(window_ns);
    for open in &seen.open {
        let ran = end_ns.saturating_sub(open.item.since.max(begin_ns));
        let mut item = open.item;
        if item.since < begin_ns {
            item.queued_ns = NOT_SEEN;
        }
        of(item.function, &open.workqueue, &mut |work| add_open(work, &item, ran));
    }
    works.into_values().collect()
}

fn add_row(work: &mut Work, row: &work_row) {
    let us = |us: u64| us.saturating_mul(1000);
    work.count = work.count.saturating_add(row.count);
    work.queued_ns = work.queued_ns.saturating_add(row.queued_ns);
    work.queued_count = work.queued_count.saturating_add(row.queued_count);
    work.queued_worst_ns = work.queued_worst_ns.max(row.queued_worst_ns);
    work.held_ns = work.held_ns.saturating_add(us(row.held_us));
    work.held_worst_ns = work.held_worst_ns.max(us(row.held_worst_us));
    work.ran_ns = work.ran_ns.saturating_add(row.ran_ns);
    work.ran_worst_ns = work.ran_worst_ns.max(row.ran_worst_ns);
    row.queued_times
        .iter()
        .enumerate()
        .for_each(|(at, count)| count_time(&mut work.queued_times, at, *count));
    row.ran_times.iter().enumerate().for_each(|(at, count)| count_time(&mut work.ran_times, at, *count));
}

fn add_open(work: &mut Work, item: &work_running, ran: u64) {
    work.count = work.count.saturating_add(1);
    work.open = work.open.saturating_add(1);
    work.ran_ns = work.ran_ns.saturating_add(ran);
    work.ran_worst_ns = work.ran_worst_ns.max(ran);
    count_time(&mut work.ran_times, range(ran), 1);
    if item.queued_ns == NOT_SEEN {
        return;
    }
    let held = u64::from(item.held_us).saturating_mul(1000);
    work.queued_count = work.queued_count.saturating_add(1);
    work.queued_ns = work.queued_ns.saturating_add(item.queued_ns);
    work.queued_worst_ns = work.queued_worst_ns.max(item.queued_ns);
    work.held_ns = work.held_ns.saturating_add(held);
    work.held_worst_ns = work.held_worst_ns.max(held);
    count_time(&mut work.queued_times, range(item.queued_ns), 1);
}

/// In `queued_ns`: the queueing was before the window.
pub const NOT_SEEN: u64 = u64::MAX;

/// The range of a time, as the kernel half counts it.
fn range(ns: u64) -> usize {
    let bits = u64::BITS - (ns >> 10).leading_zeros();
    bits.min(constants::work_c::TIMES - 1) as usize
}

/// Ranges behind the last time have no place.
fn count_time(times: &mut Vec<u64>, at: usize, count: u32) {
    if count == 0 {
        return;
    }
    if times.len() <= at {
        times.resize(at + 1, 0);
    }
    times[at] = times[at].saturating_add(count.into());
}

#[cfg(test)]
#[path = "work_table_tests.rs"]
mod tests;
