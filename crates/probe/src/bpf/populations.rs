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
    /// Of which place, by kind: a count of another place is no growth.
    places: Vec<u64>,
    gap: Duration,
    due: Duration,
}

impl Default for Populations {
    fn default() -> Self {
        let places = vec![0; ChurnKind::ALL.len()];
        Populations { seen: Vec::with_capacity(MOST), places, gap: SHORTEST, due: SHORTEST }
    }
}

impl Populations {
    /// At this time of the window: take what was found since the last time, by kind, each with its place.
    pub fn look<'f>(&mut self, at: Duration, found: impl Iterator<Item = (u64, &'f mut u64)>) {
        if at < self.due {
            return;
        }
        self.due = at.saturating_add(self.gap);
        while self.seen.len().saturating_add(ChurnKind::ALL.len()) > MOST {
            self.thin();
        }
        let mut places = std::mem::take(&mut self.places);
        for ((kind, place), (of, found)) in ChurnKind::ALL.iter().zip(&mut places).zip(found) {
            if std::mem::replace(place, of) != of {
                self.seen.retain(|seen| seen.kind != *kind);
            }
            let count = std::mem::take(found);
            if count > 0 {
                self.seen.push(Seen { kind: *kind, at, count });
            }
        }
        self.places = places;
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

    /// Add them to the table. Where two kernel halves counted the same thing, they may have done so in two places: that with more is kept.
    pub fn add_to(&self, table: &mut Vec<Population>) {
        let most = |rows: &[Population], what: &str| {
            rows.iter().filter(|row| row.what == what).map(|row| row.count).max().unwrap_or(0)
        };
        let mut own = self.rows();
        let others = table.clone();
        table.retain(|row| most(&own, &row.what) < most(&others, &row.what));
        own.retain(|row| most(table, &row.what) == 0);
        table.extend(own);
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

    /// Numbers by kind, each with its place.
    type Found = Vec<(u64, u64)>;

    fn found(kind: ChurnKind, of: u64, count: u64) -> Found {
        ChurnKind::ALL.iter().map(|one| if *one == kind { (of, count) } else { (0, 0) }).collect()
    }

    fn look(all: &mut Populations, ms: u64, numbers: &mut Found) {
        all.look(Duration::from_millis(ms), numbers.iter_mut().map(|(of, count)| (*of, count)));
    }

    #[test]
    fn counts_of_another_place_are_another_series() {
        let mut all = Populations::default();
        for (ms, of, count) in [(200, 1, 40), (400, 1, 41), (600, 2, 300), (800, 2, 299)] {
            look(&mut all, ms, &mut found(ChurnKind::CgroupMade, of, count));
        }
        let counts: Vec<u64> = all.rows().iter().map(|row| row.count).collect();
        assert_eq!(counts, [300, 299]);
    }

    #[test]
    fn of_two_halves_that_counted_one_thing_that_with_more_is_kept() {
        let [mut few, mut many] = [Populations::default(), Populations::default()];
        look(&mut few, 200, &mut found(ChurnKind::UtsNamespace, 1, 9));
        look(&mut few, 400, &mut found(ChurnKind::Mounted, 1, 5));
        look(&mut many, 200, &mut found(ChurnKind::UtsNamespace, 2, 70));
        for order in [[&few, &many], [&many, &few]] {
            let mut table = Vec::new();
            order.iter().for_each(|half| half.add_to(&mut table));
            let mut counts: Vec<u64> = table.iter().map(|row| row.count).collect();
            counts.sort_unstable();
            assert_eq!(counts, [5, 70], "{table:?}");
        }
    }

    #[test]
    fn a_look_takes_what_was_found_and_waits_for_the_next() {
        let mut all = Populations::default();
        let mut numbers = found(ChurnKind::CgroupMade, 1, 70);
        look(&mut all, 50, &mut numbers);
        assert!(all.rows().is_empty());
        look(&mut all, 150, &mut numbers);
        assert!(numbers.iter().all(|(_, number)| *number == 0));
        look(&mut all, 300, &mut numbers);
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
                all.look(at, numbers.iter_mut().map(|number| (1, number)));
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
