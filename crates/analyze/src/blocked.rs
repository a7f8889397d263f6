//! Tasks in D state, by samples: what they waited for, and the holders behind them down to the end.
//!
//! A holder is named where the lock itself named it in the moment of the sample, and what it did is of that moment, too.

mod flames;
mod holders;

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::blocked::{Blocked, BlockedAccount, BlockedHolder, BlockedRoot, BlockedWait};
use whyslow_model::timeline::Span;
use whyslow_model::wait::{Reason, TaskState, Who};
use whyslow_model::{Recording, Share};

pub use self::flames::blocked_picture;
use self::holders::{Chains, Rows};
use crate::wait_reasons::{self, Class, Stacks, taken_by};
use crate::works;

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;

/// Things waited for, and ends of chains, that are listed: further ones have few samples.
const LISTED: usize = 50;
/// Threads that are named of each.
const EXAMPLES: usize = 5;
/// Functions of a call site.
const FRAMES: usize = 4;

/// What samples of one kind add up to.
#[derive(Default)]
struct Sum<'r> {
    reason: Reason,
    samples: u64,
    waits: u64,
    threads: BTreeMap<(u32, &'r str), u64>,
    sites: BTreeMap<String, u64>,
    chains: Chains,
}

/// The end of a chain: what was waited for, or which task did what instead, and whether a holder on the way may be gone.
type End = (String, Who, TaskState, bool);

/// All samples of the window; `None`: none were taken.
pub(crate) fn account(recording: &Recording, stacks: &Stacks<'_>) -> Option<BlockedAccount> {
    let rows = recording.tables.blocked.as_deref()?;
    let passes = rows.iter().map(|row| row.passes).max().filter(|passes| *passes > 0)?;
    let (mut sums, mut ends) = (BTreeMap::<String, Sum<'_>>::new(), BTreeMap::<End, Ended>::new());
    let mut account = BlockedAccount { passes, ..BlockedAccount::default() };
    let known = Rows::of(rows, stacks);
    for row in rows.iter().filter(|row| row.samples > 0 && !recording.meta.is_own(row.pid, row.tgid)) {
        account.samples = account.samples.saturating_add(row.samples);
        let span = as_span(row);
        let kind = wait_reasons::of(&span, stacks);
        if kind.class == Class::Idle {
            account.idle = account.idle.saturating_add(row.samples);
            continue;
        }
        let what = works::what(&span, stacks);
        let chain = known.chain(row);
        let end = ends.entry(end_of(&what, &chain.holders)).or_default();
        end.add(chain.holders.last().map_or(0, |last| last.pid), row.samples);
        let sum = sums.entry(what).or_default();
        sum.reason = kind.reason;
        sum.add(row, stacks);
        sum.chains.add(chain, row.samples);
    }
    account.tasks = (account.samples - account.idle) as f64 / passes as f64;
    let all = (account.samples - account.idle) as f64;
    account.waits = waits(sums, all, stacks);
    account.roots = roots(ends, all);
    Some(account)
}

/// A sample as a wait that lasts, for the tables that tell waits apart.
fn as_span(row: &Blocked) -> Span {
    Span {
        pid: row.pid,
        tgid: row.tgid,
        comm: row.comm.clone(),
        state: row.state,
        stack: row.stack,
        lock: row.lock.clone(),
        work: row.work.clone(),
        open: true,
        ..Span::default()
    }
}

impl<'r> Sum<'r> {
    fn add(&mut self, row: &'r Blocked, stacks: &Stacks<'_>) {
        self.samples = self.samples.saturating_add(row.samples);
        self.waits = self.waits.saturating_add(row.waits);
        let thread = self.threads.entry((row.pid, row.comm.as_str())).or_default();
        *thread = thread.saturating_add(row.samples);
        let site = self.sites.entry(taken_by(stacks.kernel(row.stack), FRAMES)).or_default();
        *site = site.saturating_add(row.samples);
    }
}

fn waits(sums: BTreeMap<String, Sum<'_>>, all: f64, stacks: &Stacks<'_>) -> Vec<BlockedWait> {
    let wait = |(what, sum): (String, Sum<'_>)| {
        let mut threads: Vec<_> = sum.threads.iter().collect();
        threads.sort_by_key(|(thread, samples)| (std::cmp::Reverse(**samples), **thread));
        let site = sum.sites.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        BlockedWait {
            what,
            reason: sum.reason,
            samples: sum.samples,
            share: Some(Share::of(sum.samples as f64, all)),
            waits: sum.waits,
            threads: sum.threads.len() as u64,
            examples: threads
                .iter()
                .take(EXAMPLES)
                .map(|((pid, comm), _)| thread(*pid, &stacks.names().shown(*pid, comm)))
                .collect(),
            site: site.map(|(site, _)| site).unwrap_or_default(),
            chains: sum.chains.most(),
        }
    };
    let mut all: Vec<BlockedWait> = sums.into_iter().map(wait).collect();
    all.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.what.cmp(&b.what)));
    all.truncate(LISTED);
    all
}

/// "runguard (812)"; of several threads the name alone.
fn thread(pid: u32, comm: &str) -> String {
    if pid == 0 { comm.to_owned() } else { format!("{comm} ({pid})") }
}

/// Samples behind one end.
#[derive(Default)]
struct Ended {
    pids: BTreeSet<u32>,
    samples: u64,
    behind: u64,
}

impl Ended {
    fn add(&mut self, pid: u32, samples: u64) {
        self.pids.insert(pid);
        self.samples = self.samples.saturating_add(samples);
        if pid != 0 {
            self.behind = self.behind.saturating_add(samples);
        }
    }
}

/// A chain without a known holder ends with the wait itself.
fn end_of(what: &str, holders: &[BlockedHolder]) -> End {
    let uncertain = holders.iter().any(|holder| holder.reader);
    match holders.last() {
        None => (what.to_owned(), Who::Nobody, TaskState::Uninterruptible, false),
        Some(last) if !last.what.is_empty() => (last.what.clone(), Who::Nobody, last.did, uncertain),
        Some(last) => (String::new(), holders::alike(last), last.did, uncertain),
    }
}

fn roots(ends: BTreeMap<End, Ended>, all: f64) -> Vec<BlockedRoot> {
    let root = |((what, who, did, uncertain), ended): (End, Ended)| BlockedRoot {
        what,
        who,
        pid: if ended.pids.len() == 1 { ended.pids.first().copied().unwrap_or(0) } else { 0 },
        did,
        uncertain,
        samples: ended.samples,
        behind: ended.behind,
        share: Some(Share::of(ended.samples as f64, all)),
    };
    let mut all: Vec<BlockedRoot> = ends.into_iter().map(root).collect();
    all.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| (&a.what, &a.who).cmp(&(&b.what, &b.who))));
    all.truncate(LISTED);
    all
}
