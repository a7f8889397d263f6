//! Sums that were taken from the kernel half, to make room there.

use std::collections::HashMap;

use super::names;
use super::skel::types::call_entry;

/// Rows with a name that we keep, and as many again without one: some 500 bytes each with everything that is made of them.
const MOST: usize = 40_000;

/// Sums by process, number and file.
#[derive(Default)]
pub struct Taken {
    sums: HashMap<(u32, u32, u32), call_entry>,
    /// Entries that lost their name here.
    pub lost: u64,
}

impl Taken {
    /// All of them.
    pub fn rows(&self) -> impl Iterator<Item = &call_entry> {
        self.sums.values()
    }

    /// Add an entry. When there are too many, the file is forgotten; and the process, when there are far too many.
    pub fn add(&mut self, entry: &call_entry) {
        let key = (entry.tgid, entry.nr, entry.file);
        let (tgid, nr, file) = match self.sums.len() / MOST {
            0 => key,
            _ if self.sums.contains_key(&key) => key,
            1 => (entry.tgid, entry.nr, names::OTHER),
            _ => (0, entry.nr, names::OTHER),
        };
        self.lost += u64::from(file != entry.file);
        let head = call_entry { nr, file, pid: tgid, tgid, comm: entry.comm, ..call_entry::default() };
        let sum = self.sums.entry((tgid, nr, file)).or_insert(head);
        sum.count += entry.count;
        sum.errors += entry.errors;
        sum.total_ns = sum.total_ns.saturating_add(entry.total_ns);
        sum.worst_ns = sum.worst_ns.max(entry.worst_ns);
        for (sum, part) in sum.split.iter_mut().zip(entry.split) {
            *sum = sum.saturating_add(part);
        }
    }
}
