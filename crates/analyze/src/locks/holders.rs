//! Threads that held a lock while others waited for it, and what each holder did meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_model::chain::Holder;
use whyslow_model::timeline::{Context, Hold, LockWait, Span, State};
use whyslow_model::wait::{Deed, Detail, Who};

use crate::hashing::Table;
use crate::stacks::doing::OnCpu;
use crate::wait_reasons::{self, Stacks, released_by};

/// Holders reported for one lock: those that caused the most waiting.
const HOLDERS: usize = 8;
/// Activities reported for one holder: the longest.
const DEEDS: usize = 3;

/// A stretch of time.
type Stretch = (u64, u64);

/// What is known about holders.
pub(super) struct Holders<'r> {
    stacks: &'r Stacks<'r>,
    /// By lock, in order of time.
    holds: Table<u64, Vec<&'r Hold>>,
    /// By thread, in order of time.
    rows: Table<u32, Vec<&'r Span>>,
}

/// What one holder caused.
#[derive(Default)]
struct Caused {
    ns: u64,
    while_held: Vec<Stretch>,
    comm: Option<String>,
    work: Option<String>,
    released_in: Option<String>,
}

impl<'r> Holders<'r> {
    pub fn of(recording: &'r Recording, stacks: &'r Stacks<'r>) -> Self {
        let mut holds: Table<u64, Vec<&Hold>> = Table::default();
        for hold in recording.tables.holds.iter().flatten() {
            holds.entry(hold.lock).or_default().push(hold);
        }
        holds.values_mut().for_each(|rows| rows.sort_by_key(|hold| hold.at_ns));
        let mut rows: Table<u32, Vec<&Span>> = Table::default();
        for span in recording.tables.spans.iter().flatten() {
            rows.entry(span.pid).or_default().push(span);
        }
        rows.values_mut().for_each(|rows| rows.sort_by_key(|span| span.from_ns));
        Holders { stacks, holds, rows }
    }

    /// Holders of the lock at `address` while `waits` lasted, those that caused the most waiting first.
    pub fn of_lock(&self, address: u64, waits: &[&Span], on_cpu: &OnCpu<'_>) -> Vec<Holder> {
        let mut caused: BTreeMap<u32, Caused> = BTreeMap::new();
        for span in waits {
            self.blame(address, span, &mut caused);
        }
        // Sorted before they are described: a lock has hundreds of holders, and what each did is looked up row by row.
        let mut most: Vec<(u32, Caused)> = caused.into_iter().collect();
        most.sort_by_key(|(pid, caused)| (std::cmp::Reverse(caused.ns), *pid));
        most.truncate(HOLDERS);
        most.into_iter().map(|(pid, caused)| self.reported(pid, caused, on_cpu)).collect()
    }

    /// Divides one wait among the threads that were seen to hold the lock in it.
    fn blame(&self, address: u64, span: &Span, caused: &mut BTreeMap<u32, Caused>) {
        let Some(lock) = &span.lock else { return };
        let mut seen = self.seen(address, span, lock);
        seen.retain(|(_, pid)| *pid != 0 && *pid != span.pid);
        let from = span.at_ns;
        if let Some(first) = seen.first_mut() {
            // No holder was seen before the first one: it is the best guess for that time, too.
            first.0 = from;
        }
        let ends = seen.iter().skip(1).map(|(at, _)| *at).chain([span.woken_ns]);
        for ((from, pid), to) in seen.iter().zip(ends) {
            let holder = caused.entry(*pid).or_default();
            holder.ns = holder.ns.saturating_add(to.saturating_sub(*from));
            holder.while_held.push((*from, to));
        }
        self.note_release(span, caused);
    }

    /// (when, holder) in order of time: the lock word at the begin, holders seen since, the word read again, the waker.
    fn seen(&self, address: u64, span: &Span, lock: &LockWait) -> Vec<(u64, u32)> {
        let (from, to) = (span.at_ns, span.woken_ns);
        let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task).map(|waker| waker.pid);
        // Readers leave no trace except the name of the last one: the thread that woke the waiter was one of them for sure.
        let owner = if lock.reader_owned { waker.unwrap_or(lock.owner) } else { lock.owner };
        let mut seen = vec![(from, owner)];
        let rows = self.holds.get(&address).map_or(&[][..], Vec::as_slice);
        let begin = rows.partition_point(|hold| hold.at_ns <= from);
        let inside = rows.get(begin..).unwrap_or_default().iter().take_while(|hold| hold.at_ns < to);
        seen.extend(inside.map(|hold| (hold.at_ns, hold.pid)));
        if seen.len() == 1 && lock.owner_again != 0 && lock.owner_again != owner {
            // The lock changed hands at a time that was not observed.
            seen.push((from.saturating_add(to.saturating_sub(from) / 2), lock.owner_again));
        }
        if seen.iter().all(|(_, pid)| *pid == 0 || *pid == span.pid) {
            seen.extend(waker.map(|pid| (from, pid)));
        }
        seen
    }

    fn note_release(&self, span: &Span, caused: &mut BTreeMap<u32, Caused>) {
        let Some(waker) = span.waker.as_ref().filter(|waker| waker.context == Context::Task) else { return };
        let Some(holder) = caused.get_mut(&waker.pid) else { return };
        holder.comm.get_or_insert_with(|| waker.comm.clone());
        if holder.work.is_none() {
            holder.work.clone_from(&waker.work);
        }
        if holder.released_in.is_none() {
            holder.released_in = released_by(self.stacks.kernel(waker.stack)).map(str::to_owned);
        }
    }

    fn reported(&self, pid: u32, caused: Caused, on_cpu: &OnCpu<'_>) -> Holder {
        let rows = self.rows.get(&pid).map_or(&[][..], Vec::as_slice);
        let meanwhile = union(caused.while_held);
        let overlapping: Vec<&Span> = rows.iter().copied().filter(|row| overlaps(row, &meanwhile)).collect();
        let comm = overlapping.first().map(|row| row.comm.clone()).or(caused.comm);
        let comm = comm.or_else(|| self.stacks.comm(pid).map(str::to_owned));
        let work = caused.work.or_else(|| overlapping.iter().find_map(|row| row.work.clone()));
        let own = |comm: String| self.stacks.names().shown(pid, &comm);
        let name = comm.map_or_else(|| format!("pid {pid}"), own);
        let mut did = self.deeds(pid, &overlapping, &meanwhile, on_cpu);
        if did.is_empty() {
            did.extend(caused.released_in.map(|function| Deed::GaveBack { function }));
        }
        Holder { pid, who: Who::Task { comm: name, work }, caused: Duration::from_nanos(caused.ns), did }
    }

    /// What `pid` did in these stretches by its rows, the longest first.
    fn deeds(&self, pid: u32, rows: &[&Span], meanwhile: &[Stretch], on_cpu: &OnCpu<'_>) -> Vec<Deed> {
        let mut deeds: BTreeMap<Deed, u64> = BTreeMap::new();
        let mut add = |deed: Deed, ns: u64| {
            let sum = deeds.entry(deed).or_default();
            *sum = sum.saturating_add(ns);
        };
        let mut ran_ns = 0_u64;
        for row in rows {
            let mixed = within((row.from_ns, row.at_ns), meanwhile);
            let (all, running) = (row.mixed.total_ns(), row.mixed.running_ns);
            ran_ns = ran_ns.saturating_add(part(mixed, running, all));
            add(Deed::WaitedForCpu, within((row.woken_ns, row.to_ns), meanwhile));
            let waited = within((row.at_ns, row.woken_ns), meanwhile);
            if waited > 0 && row.state != State::None {
                add(Deed::WaitedFor(wait_reasons::of(row, self.stacks).detail), waited);
            }
        }
        let did = on_cpu.did(pid);
        if did.is_empty() {
            add(Deed::Ran(Detail::Nothing), ran_ns);
        }
        for (doing, share) in did {
            add(Deed::Ran(doing.0), (ran_ns as f64 * share) as u64);
        }
        let mut deeds: Vec<(Deed, u64)> = deeds.into_iter().filter(|(_, ns)| *ns > 0).collect();
        deeds.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        deeds.into_iter().take(DEEDS).map(|(deed, _)| deed).collect()
    }
}

fn part(of: u64, some: u64, all: u64) -> u64 {
    if all == 0 { 0 } else { (u128::from(of) * u128::from(some.min(all)) / u128::from(all)) as u64 }
}

/// Stretches that touch or overlap become one.
fn union(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut united: Vec<Stretch> = Vec::new();
    for (from, to) in stretches {
        match united.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => united.push((from, to)),
        }
    }
    united
}

/// The part of a stretch that lies within these.
fn within(stretch: Stretch, among: &[Stretch]) -> u64 {
    let begin = among.partition_point(|(_, to)| *to <= stretch.0);
    let near = among.get(begin..).unwrap_or_default().iter().take_while(|(from, _)| *from < stretch.1);
    near.map(|(from, to)| stretch.1.min(*to).saturating_sub(stretch.0.max(*from)))
        .fold(0, u64::saturating_add)
}

fn overlaps(row: &Span, among: &[Stretch]) -> bool {
    within((row.from_ns, row.to_ns), among) > 0
}
