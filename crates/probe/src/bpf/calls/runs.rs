//! Entries that no task has had: CPUs take them in runs, so that no two CPUs give out the same entry.
//!
//! An entry that one CPU has taken, no other gives out: runs are short where there are many CPUs.

use std::ops::Range;

use libbpf_rs::{MapCore, MapFlags};

/// At most so many entries are in a run: then filling takes a thousand calls.
const LONGEST: u32 = 64;
/// ... and a CPU holds at most two runs, each at most one of so many parts of its share of all entries: at worst an eighth of all lies
/// idle.
const PARTS: u32 = 16;

/// Where the runs lie.
pub struct Runs {
    named: Range<u32>,
    /// For calls with only their number noted: the last quarter.
    last: Range<u32>,
    each: u32,
}

impl Runs {
    /// Runs of these entries, for so many CPUs.
    pub fn of(entries: Range<u32>, cpus: u32) -> Self {
        let all = entries.end.saturating_sub(entries.start);
        let middle = entries.end.saturating_sub(all / 4);
        let each = (all / cpus.saturating_mul(PARTS).max(1)).clamp(1, LONGEST);
        Runs { named: entries.start..middle, last: middle..entries.end, each }
    }

    /// Push the runs onto their stacks, the first on top.
    pub fn fill(&self, named: &impl MapCore, last: &impl MapCore) -> libbpf_rs::Result<()> {
        self.push(&self.named, named)?;
        self.push(&self.last, last)
    }

    fn push(&self, entries: &Range<u32>, stack: &impl MapCore) -> libbpf_rs::Result<()> {
        let starts: Vec<u32> = entries.clone().step_by(self.each as usize).collect();
        starts.into_iter().rev().try_for_each(|from| {
            let run = self.run(from, entries);
            let bytes = [run.start.to_ne_bytes(), run.end.to_ne_bytes()].concat();
            stack.update(&[], &bytes, MapFlags::ANY)
        })
    }

    fn run(&self, from: u32, entries: &Range<u32>) -> Range<u32> {
        from..from.saturating_add(self.each).min(entries.end)
    }

    /// All entries of the runs that CPUs took: so many of the named, so many of the last.
    pub fn taken(&self, named: u32, last: u32) -> [Range<u32>; 2] {
        let first = |entries: &Range<u32>, runs: u32| {
            let end = entries.start.saturating_add(runs.saturating_mul(self.each));
            entries.start..end.min(entries.end)
        };
        [first(&self.named, named), first(&self.last, last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All runs, as they lie on the stacks.
    fn runs(of: &Runs) -> Vec<Range<u32>> {
        let part = |entries: &Range<u32>| {
            entries.clone().step_by(of.each as usize).map(|at| of.run(at, entries)).collect::<Vec<_>>()
        };
        [part(&of.named), part(&of.last)].concat()
    }

    #[test]
    fn every_entry_is_in_one_run_and_the_last_quarter_is_apart() {
        for (entries, cpus) in
            [(513..65536, 2), (513..65536, 512), (513..65536, 8192), (513..593, 2), (5..6, 1)]
        {
            let of = Runs::of(entries.clone(), cpus);
            let all: Vec<u32> = runs(&of).into_iter().flatten().collect();
            assert_eq!(all, entries.clone().collect::<Vec<_>>(), "{cpus} CPUs");
            assert_eq!(of.last.len(), entries.len() / 4);
            assert!(of.each >= 1 && of.each <= LONGEST);
        }
    }

    #[test]
    fn runs_held_by_all_cpus_are_at_most_an_eighth_of_the_entries() {
        for cpus in [1, 2, 64, 512, 2048] {
            let of = Runs::of(513..65536, cpus);
            assert!(of.each * cpus * 2 <= 65023 / 8, "{} by {cpus}", of.each);
        }
    }

    #[test]
    fn those_taken_are_the_first_of_each_part() {
        let of = Runs::of(513..593, 2); // runs of 2
        assert_eq!(of.taken(0, 0), [513..513, 573..573]);
        assert_eq!(of.taken(3, 1), [513..519, 573..575]);
        assert_eq!(of.taken(1000, 1000), [513..573, 573..593]);
        assert_eq!(Runs::of(64..64, 0).taken(u32::MAX, 1), [64..64, 64..64]);
    }
}
