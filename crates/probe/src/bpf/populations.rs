//! How many cgroups, namespaces and mounts there were over the window, from what the kernel halves found when one was made or removed. User
//! space looks at these numbers in memory that it shares with the kernel halves: no call, and nothing that runs more often.

use std::time::Duration;

use whyslow_model::churn::{ChurnKind, Population};

/// Rows that are kept: more than ten of each thing in each third of any window, of which growth is told.
const MOST: usize = 1024;
/// The least time between two rows of one thing.
const SHORTEST: Duration = Duration::from_millis(100);

/// One number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    kind: ChurnKind,
    at: Duration,
    count: u64,
}

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Populations {
    seen: Vec<Seen>,
    gap: Duration,
    due: Duration,
}

impl Default for Populations {
    fn default() -> Self {
        Populations { seen: Vec::with_capacity(MOST), gap: SHORTEST, due: SHORTEST }
    }
}

impl Populations {
    /// At this time of the window: take what was found since the last time, by kind.
    pub fn look(&mut self, at: Duration, found: &mut [u64]) {
        if at < self.due {
            return;
        }
        self.due = at.saturating_add(self.gap);
        while self.seen.len().saturating_add(found.len()) > MOST {
            self.thin();
        }
        for (kind, found) in ChurnKind::ALL.iter().zip(found) {
            let count = std::mem::take(found);
            if count > 0 {
                self.seen.push(Seen { kind: *kind, at, count });
            }
        }
    }

    /// Of two rows of one thing that follow each other one is left; at last, one of each thing.
    fn thin(&mut self) {
        self.gap = self.gap.saturating_mul(2);
        self.seen.sort_unstable();
        let slot = |seen: &Seen| seen.at.as_nanos() / self.gap.as_nanos().max(1);
        self.seen.dedup_by(|next, before| {
            let same = next.kind == before.kind && slot(next) == slot(before);
            if same {
                before.count = before.count.max(next.count);
            }
            same
        });
    }

    /// As a table.
    pub fn rows(&self) -> Vec<Population> {
        let row = |seen: &Seen| {
            let at_ns = u64::try_from(seen.at.as_nanos()).unwrap_or(u64::MAX);
            seen.kind.thing().map(|thing| Population { what: thing.word().into(), at_ns, count: seen.count })
        };
        self.seen.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: ChurnKind, count: u64) -> Vec<u64> {
        ChurnKind::ALL.iter().map(|one| if *one == kind { count } else { 0 }).collect()
    }

    #[test]
    fn a_look_takes_what_was_found_and_waits_for_the_next() {
        let mut all = Populations::default();
        let mut numbers = found(ChurnKind::CgroupMade, 70);
        all.look(Duration::from_millis(50), &mut numbers);
        assert!(all.rows().is_empty());
        all.look(Duration::from_millis(150), &mut numbers);
        assert!(numbers.iter().all(|number| *number == 0));
        all.look(Duration::from_millis(300), &mut numbers);
        let row = Population { what: "cgroups".into(), at_ns: 150_000_000, count: 70 };
        assert_eq!(all.rows(), [row]);
    }

    #[test]
    fn rows_of_a_window_of_any_length_are_few_and_spread_over_it() {
        for seconds in [10, 600, 86_400] {
            let mut all = Populations::default();
            let rounds = 5_000_u32;
            for round in 1..=rounds {
                let at = Duration::from_secs(seconds).mul_f64(f64::from(round) / f64::from(rounds));
                let mut numbers: Vec<u64> = ChurnKind::ALL.iter().map(|_| u64::from(round)).collect();
                all.look(at, &mut numbers);
            }
            let rows = all.rows();
            assert!(rows.len() <= MOST, "{}", rows.len());
            for third in 0..3 {
                let within = |row: &&Population| {
                    row.what == "IPC namespaces" && row.at_ns * 3 / (seconds * 1_000_000_001) == third
                };
                assert!(rows.iter().filter(within).count() > 8, "{seconds} s, third {third}");
            }
            let last = rows.iter().map(|row| row.count).max();
            assert!(last >= Some(u64::from(rounds) * 9 / 10), "{last:?}");
        }
    }
}
