//! The holders behind a sample: the task that the lock named, what that one waited for in the same moment, and so on.

use std::collections::BTreeMap;

use whyslow_model::blocked::{Blocked, BlockedChain, BlockedHolder};
use whyslow_model::wait::{Reason, TaskState, Who};

use super::as_span;
use crate::graph::folded;
use crate::hashing::Table;
use crate::wait_reasons::{self, Stacks};
use crate::works;

/// Holders that are told of a chain.
const MOST_HOLDERS: usize = 8;
/// Chains that are told of one thing waited for.
const MOST_CHAINS: usize = 8;

/// Rows by their numbers.
pub(super) struct Rows<'r> {
    by_id: Table<u32, &'r Blocked>,
    stacks: &'r Stacks<'r>,
}

impl<'r> Rows<'r> {
    pub fn of(rows: &'r [Blocked], stacks: &'r Stacks<'r>) -> Self {
        Rows { by_id: rows.iter().filter(|row| row.id != 0).map(|row| (row.id, row)).collect(), stacks }
    }

    /// The holders behind a wait for a lock; none for other waits, and where the lock names none.
    pub fn chain(&self, row: &Blocked) -> BlockedChain {
        let mut chain = BlockedChain::default();
        let mut met = vec![row.pid];
        let mut at = row;
        while chain.holders.len() < MOST_HOLDERS {
            let span = as_span(at);
            let is_lock = wait_reasons::of(&span, self.stacks).reason == Reason::Lock;
            let Some(lock) = at.lock.as_ref().filter(|lock| is_lock && lock.owner != 0) else { break };
            if lock.owner == at.pid {
                break; // torn, or a lock that its last reader wants again
            }
            let next = at.behind.and_then(|id| self.by_id.get(&id).copied());
            let next = next.filter(|next| next.pid == lock.owner || next.pid == 0);
            chain.holders.push(self.holder(at, lock.owner, lock.reader_owned, next));
            if met.contains(&lock.owner) {
                chain.cycle = true;
                break;
            }
            met.push(lock.owner);
            let Some(next) = next else { break };
            at = next;
        }
        chain
    }

    fn holder(&self, row: &Blocked, pid: u32, reader: bool, waits: Option<&Blocked>) -> BlockedHolder {
        let comm = waits.map_or(&row.owner_comm, |waits| &waits.comm);
        let name = if comm.is_empty() { format!("pid {pid}") } else { self.stacks.names().shown(pid, comm) };
        let work = waits.and_then(|waits| waits.work.clone());
        BlockedHolder {
            who: Who::Task { comm: name, work },
            pid,
            reader,
            did: TaskState::from(row.owner_state),
            what: waits.map(|waits| works::what(&as_span(waits), self.stacks)).unwrap_or_default(),
        }
    }
}

/// A holder's name without the numbers in it: the workers of a pool are alike.
pub(super) fn alike(holder: &BlockedHolder) -> Who {
    let work = holder.who.work().map(str::to_owned);
    Who::Task { comm: folded(holder.who.comm()), work }
}

/// Chains of one thing waited for: alike ones are one.
#[derive(Debug, Default)]
pub(super) struct Chains(BTreeMap<Vec<(Who, bool, TaskState, String)>, BlockedChain>);

impl Chains {
    pub fn add(&mut self, chain: BlockedChain, samples: u64) {
        let key = |holder: &BlockedHolder| (alike(holder), holder.reader, holder.did, holder.what.clone());
        let known = self.0.entry(chain.holders.iter().map(key).collect()).or_insert_with(|| chain.clone());
        known.samples = known.samples.saturating_add(samples);
        known.cycle |= chain.cycle;
        for (known, new) in known.holders.iter_mut().zip(&chain.holders) {
            if known.pid != new.pid {
                (known.who, known.pid) = (alike(new), 0);
            }
        }
    }

    /// Those with the most samples.
    pub fn most(self) -> Vec<BlockedChain> {
        let mut all: Vec<BlockedChain> = self.0.into_values().collect();
        all.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.holders.cmp(&b.holders)));
        all.truncate(MOST_CHAINS);
        all
    }
}
