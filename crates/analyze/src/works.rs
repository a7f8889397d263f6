//! Work that the kernel puts off: work items by function, and the RCU grace periods that threads waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_model::timeline::{Span, State};
use whyslow_model::wait::Detail;
use whyslow_model::work::{GraceWaits, InnerWait, TimeRange, Work, WorkAccount, WorkTimes};

use crate::hashing::Table;
use crate::wait_reasons::{self, Stacks};

#[cfg(test)]
#[path = "works_tests.rs"]
mod tests;

/// Functions that are listed: a busy host runs items of a few hundred, most of them for microseconds.
const LISTED: usize = 100;

/// What workers waited for in items of one function: the costliest few are nearly all of it.
const INSIDE: usize = 8;

/// Waits of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: u64,
    worst_ns: u64,
}

impl Sum {
    fn add(&mut self, span: &Span) {
        self.count = self.count.saturating_add(1);
        self.ns = self.ns.saturating_add(span.sampled_wait_ns);
        self.worst_ns = self.worst_ns.max(span.woken_ns.saturating_sub(span.at_ns));
    }
}

/// Work items by function, the longest time in the queue and at work first.
pub(crate) fn works(recording: &Recording, stacks: &Stacks<'_>) -> Vec<WorkAccount> {
    let mut inside = inner_waits(recording, stacks);
    let rows = recording.tables.works.iter().flatten().filter(|row| row.count > 0);
    let mut accounts: Vec<WorkAccount> =
        rows.map(|row| account(row, inside.remove(row.function.as_str()).unwrap_or_default())).collect();
    let time = |account: &WorkAccount| account.queued.total.saturating_add(account.ran.total);
    accounts.sort_by(|a, b| time(b).cmp(&time(a)).then_with(|| a.function.cmp(&b.function)));
    accounts.truncate(LISTED);
    accounts
}

fn account(row: &Work, inside: BTreeMap<String, Sum>) -> WorkAccount {
    let ns = Duration::from_nanos;
    WorkAccount {
        function: row.function.clone(),
        workqueue: row.workqueue.clone(),
        count: row.count,
        open: row.open,
        queued: times(row.queued_count, (row.queued_ns, row.queued_worst_ns), &row.queued_times),
        held_back: ns(row.held_ns),
        held_back_worst: ns(row.held_worst_ns),
        ran: times(row.count, (row.ran_ns, row.ran_worst_ns), &row.ran_times),
        inside: costliest(inside),
    }
}

fn times(count: u64, (total_ns, worst_ns): (u64, u64), counts: &[u64]) -> WorkTimes {
    let ns = Duration::from_nanos;
    let range = |(at, count): (usize, &u64)| TimeRange { below: bound(at), count: *count };
    let times = counts.iter().enumerate().map(range).filter(|range| range.count > 0).collect();
    WorkTimes { count, total: ns(total_ns), worst: ns(worst_ns), times }
}

/// Of range `at`: the kernel half counts in microseconds of 1024 ns.
fn bound(at: usize) -> Duration {
    let us = u32::try_from(at).ok().and_then(|bits| 1_u64.checked_shl(bits)).unwrap_or(u64::MAX);
    Duration::from_nanos(us.saturating_mul(1024))
}

fn costliest(waits: BTreeMap<String, Sum>) -> Vec<InnerWait> {
    let mut all: Vec<InnerWait> = waits
        .into_iter()
        .map(|(what, sum)| InnerWait {
            what,
            count: sum.count,
            total: Duration::from_nanos(sum.ns),
            worst: Duration::from_nanos(sum.worst_ns),
        })
        .collect();
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.what.cmp(&b.what)));
    all.truncate(INSIDE);
    all
}

/// Those that are waits for which a stack was taken.
fn waits<'r>(spans: impl Iterator<Item = &'r Span>) -> impl Iterator<Item = &'r Span> {
    let is_wait = |span: &&Span| matches!(span.state, State::Io | State::Blocked | State::Sleep);
    spans.filter(is_wait).filter(|span| span.sampled_wait_ns > 0)
}

/// What it waited for.
pub(crate) fn what(span: &Span, stacks: &Stacks<'_>) -> String {
    match wait_reasons::of(span, stacks).detail {
        Detail::GracePeriod { caller: Some(caller) } => format!("an RCU grace period for {caller}"),
        Detail::GracePeriod { caller: None } => "an RCU grace period".to_owned(),
        other => other.to_string(),
    }
}

/// By work function, then by what was waited for.
fn inner_waits<'r>(
    recording: &'r Recording,
    stacks: &Stacks<'_>,
) -> BTreeMap<&'r str, BTreeMap<String, Sum>> {
    let mut by_function: BTreeMap<&str, BTreeMap<String, Sum>> = BTreeMap::new();
    for span in waits(recording.tables.spans.iter().flatten()) {
        let Some(work) = &span.work else { continue };
        by_function.entry(work).or_default().entry(what(span, stacks)).or_default().add(span);
    }
    by_function
}

/// Functions of kernel/rcu/tree_exp.h: all CPUs are interrupted.
const EXPEDITED: [&str; 4] = [
    "synchronize_rcu_expedited",
    "synchronize_srcu_expedited",
    "exp_funnel_lock",
    "cond_synchronize_rcu_expedited",
];

/// Whether a thread with these frames waits for an expedited grace period.
pub(crate) fn is_expedited(frames: &[String]) -> bool {
    frames.iter().any(|frame| EXPEDITED.contains(&frame.as_str()))
}

/// Those of these waits that were for RCU grace periods, each with the function that needed one.
pub(crate) fn for_grace_periods<'r>(
    spans: impl Iterator<Item = &'r Span>,
    stacks: &Stacks<'_>,
) -> impl Iterator<Item = (&'r Span, Option<String>)> {
    let mut may: Table<Option<u32>, bool> = Table::default();
    waits(spans).filter_map(move |span| {
        let may_need = || wait_reasons::may_need_grace_period(stacks.kernel(span.stack));
        if !*may.entry(span.stack).or_insert_with(may_need) {
            return None;
        }
        match wait_reasons::of(span, stacks).detail {
            Detail::GracePeriod { caller } => Some((span, caller)),
            _ => None,
        }
    })
}

/// RCU grace periods that threads waited for, by the function that needed them; the longest time first.
pub(crate) fn grace_periods(recording: &Recording, stacks: &Stacks<'_>) -> Vec<GraceWaits> {
    let mut by_caller: BTreeMap<(String, bool, &str), BTreeMap<(u32, &str), Sum>> = BTreeMap::new();
    for (span, caller) in for_grace_periods(recording.tables.spans.iter().flatten(), stacks) {
        let expedited = is_expedited(stacks.kernel(span.stack));
        let key = (caller.unwrap_or_default(), expedited, span.work.as_deref().unwrap_or_default());
        by_caller.entry(key).or_default().entry((span.pid, span.comm.as_str())).or_default().add(span);
    }
    let mut all: Vec<GraceWaits> = by_caller
        .into_iter()
        .map(|((caller, expedited, work), tasks)| {
            let most = tasks.iter().max_by_key(|(_, sum)| sum.ns).map(|((_, comm), _)| (*comm).to_owned());
            let sum = |of: fn(&Sum) -> u64| tasks.values().map(of).fold(0, u64::saturating_add);
            GraceWaits {
                caller,
                expedited,
                work: work.to_owned(),
                who: most.unwrap_or_default(),
                tasks: tasks.len() as u64,
                count: sum(|one| one.count),
                total: Duration::from_nanos(sum(|one| one.ns)),
                worst: Duration::from_nanos(tasks.values().map(|one| one.worst_ns).max().unwrap_or(0)),
            }
        })
        .collect();
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.caller.cmp(&b.caller)));
    all.truncate(LISTED);
    all
}
