//! Contention by lock: which threads waited where, which threads held it, and what the holders did meanwhile.
//!
//! Only a lock that a thread waited for is seen: the kernel has no event for a lock that is acquired at once.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_model::chain::{LockAccount, LockSite, LockWaits};
use whyslow_model::timeline::{Lock, LockKind, Span, State};
use whyslow_model::wait::{Detail, NamedBy};

use crate::hashing::{Set, Table};
use crate::stacks::doing::OnCpu;
use crate::wait_reasons::{self, LockName, Stacks, lock_name, taken_by};

mod holders;

/// Call sites reported for one lock: the costliest.
const SITES: usize = 8;
/// Functions reported for a call site.
const FRAMES: usize = 4;

/// All locks that were waited for, the costliest first.
#[must_use]
pub fn locks(recording: &Recording) -> Vec<LockAccount> {
    let samples = recording.tables.samples.as_deref().unwrap_or_default();
    with(recording, &Stacks::in_recording(recording), &OnCpu::of(samples))
}

/// The same, with the recording's stacks and samples.
pub(crate) fn with(recording: &Recording, stacks: &Stacks<'_>, on_cpu: &OnCpu<'_>) -> Vec<LockAccount> {
    let mut by_address: BTreeMap<u64, Vec<&Lock>> = BTreeMap::new();
    for row in recording.tables.locks.iter().flatten() {
        by_address.entry(row.address).or_default().push(row);
    }
    let waits = waits_of(recording);
    let held = holders::Holders::of(recording, stacks);
    let addresses: Set<u64> = by_address.keys().chain(waits.keys()).copied().collect();
    let mut accounts: Vec<LockAccount> = addresses
        .into_iter()
        .map(|address| {
            let rows = by_address.get(&address).map_or(&[][..], Vec::as_slice);
            let spans = waits.get(&address).map_or(&[][..], Vec::as_slice);
            let mut account = account(address, rows, spans, stacks);
            account.holders = held.of_lock(address, spans, on_cpu);
            account
        })
        .collect();
    accounts.extend(begun_before(recording, stacks));
    let total = |account: &LockAccount| account.read.total.saturating_add(account.write.total);
    accounts.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| a.address.cmp(&b.address)));
    accounts
}

/// Waits that had begun before the window, where tracepoints report the other waits: the event that names the lock came before
/// the window. These waits have no lock address, only the name from their stacks.
fn begun_before(recording: &Recording, stacks: &Stacks<'_>) -> Vec<LockAccount> {
    let lasted = |span: &&Span| span.lock.is_none() && span.state == State::Blocked && span.at_ns == 0;
    let spans = recording.tables.spans.iter().flatten().filter(|_| recording.tables.locks.is_some());
    let mut known: BTreeMap<(LockKind, String), (LockAccount, BTreeMap<String, (u64, u64)>)> =
        BTreeMap::new();
    for span in spans.filter(lasted) {
        let Detail::Lock { kind, name, write } = wait_reasons::of(span, stacks).detail else { continue };
        let (account, sites) = known.entry((kind, name)).or_default();
        let ns = span.woken_ns.min(recording.meta.window_ns);
        add(if write == Some(false) { &mut account.read } else { &mut account.write }, 1, ns, ns);
        add_site(sites, stacks, span.stack, (1, ns));
    }
    let told = |((kind, name), (account, sites))| {
        let (named_by, address) = (NamedBy::CallSites, "0".to_owned());
        LockAccount { name, named_by, address, kind, sites: costliest(sites), ..account }
    };
    known.into_iter().map(told).collect()
}

fn add_site(
    sites: &mut BTreeMap<String, (u64, u64)>,
    stacks: &Stacks<'_>,
    stack: Option<u32>,
    (count, ns): (u64, u64),
) {
    let site = taken_by(stacks.kernel(stack), FRAMES);
    let sum = sites.entry(if site.is_empty() { "unknown".to_owned() } else { site }).or_default();
    *sum = (sum.0.saturating_add(count), sum.1.saturating_add(ns));
}

fn costliest(sites: BTreeMap<String, (u64, u64)>) -> Vec<LockSite> {
    let told = |(site, (count, ns))| LockSite { site, count, total: Duration::from_nanos(ns) };
    let mut all: Vec<LockSite> = sites.into_iter().map(told).collect();
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.site.cmp(&b.site)));
    all.truncate(SITES);
    all
}

/// The reported waits by lock.
fn waits_of(recording: &Recording) -> Table<u64, Vec<&Span>> {
    let mut waits: Table<u64, Vec<&Span>> = Table::default();
    for span in recording.tables.spans.iter().flatten() {
        if let Some(lock) = span.lock.as_ref().filter(|lock| lock.address != 0) {
            waits.entry(lock.address).or_default().push(span);
        }
    }
    waits
}

fn account(address: u64, rows: &[&Lock], spans: &[&Span], stacks: &Stacks<'_>) -> LockAccount {
    let kind = kind_of(rows, spans);
    let LockName { name, by, .. } = lock_name(stacks, address, kind);
    let mut account =
        LockAccount { name, named_by: by, address: address.to_string(), kind, ..LockAccount::default() };
    let mut sites: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in rows {
        add(
            if row.write { &mut account.write } else { &mut account.read },
            row.count,
            row.total_ns,
            row.worst_ns,
        );
        add_site(&mut sites, stacks, row.stack, (row.count, row.total_ns));
    }
    if rows.is_empty() {
        from_timelines(&mut account, spans, stacks, &mut sites);
    }
    account.sites = costliest(sites);
    account
}

/// Without the table of locks: the long waits that the timelines show.
fn from_timelines(
    account: &mut LockAccount,
    spans: &[&Span],
    stacks: &Stacks<'_>,
    sites: &mut BTreeMap<String, (u64, u64)>,
) {
    for span in spans {
        let Some(lock) = &span.lock else { continue };
        let ns = span.woken_ns.saturating_sub(span.at_ns.min(lock.since_ns.max(span.from_ns)));
        add(if lock.write { &mut account.write } else { &mut account.read }, 1, ns, ns);
        add_site(sites, stacks, span.stack, (1, ns));
    }
}

fn kind_of(rows: &[&Lock], spans: &[&Span]) -> LockKind {
    let reported =
        rows.iter().map(|row| row.kind).chain(spans.iter().filter_map(|s| s.lock.as_ref()).map(|l| l.kind));
    reported.filter(|kind| *kind != LockKind::Unknown).max().unwrap_or_default()
}

fn add(waits: &mut LockWaits, count: u64, total_ns: u64, worst_ns: u64) {
    waits.count = waits.count.saturating_add(count);
    waits.total = waits.total.saturating_add(Duration::from_nanos(total_ns));
    waits.worst = waits.worst.max(Duration::from_nanos(worst_ns));
}

#[cfg(test)]
mod tests;
