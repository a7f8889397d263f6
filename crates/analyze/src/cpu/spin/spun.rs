//! The part of each thread's CPU time that it spent spinning: a thread that is kept from spinning loses nothing.

use super::processes;
use crate::Evidence;
use crate::hashing::Table;

/// With fewer samples in loops that wait a thread may be there by chance.
const ENOUGH: u64 = 12;

/// By thread: the share that was spun, at least, likely, at most.
#[derive(Debug, Default)]
pub struct Spun(Table<u32, (f64, f64, f64)>);

impl Spun {
    /// Of a recording. Where code was not examined no thread is known to spin.
    #[must_use]
    pub fn of(ev: &Evidence<'_>) -> Self {
        let all = processes(ev).unwrap_or_default();
        let threads = all.iter().flat_map(|process| &process.threads);
        Spun(threads.filter(|t| t.sum.spun >= ENOUGH).map(|t| (t.pid, t.sum.share())).collect())
    }

    /// Of one thread.
    #[must_use]
    pub fn of_task(&self, pid: u32) -> (f64, f64, f64) {
        self.0.get(&pid).copied().unwrap_or((0.0, 0.0, 0.0))
    }
}
