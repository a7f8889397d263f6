//! CPU time that threads spent spinning and working, by their own clocks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::clock::{self, Span};
use crate::ledger::{Fact, Ledger};
use crate::sys;

/// Rows closer than this share one entry.
const GRAIN_NS: u64 = 4_000_000;

/// One thread.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Its thread id; 0: unknown.
    pub tid: u32,
    /// Its name; empty: the name of the process.
    pub name: String,
    /// Moments, with the CPU time spent spinning and working until then, in ns. In order of time.
    pub rows: Vec<[u64; 3]>,
}

/// CPU time of a process in a window.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// CPU time spent spinning.
    pub spin_s: f64,
    /// Upper bound of `spin_s`, where a twin that does not spin gives the measure; else 0, and without effect.
    pub most_s: f64,
    /// All of its CPU time.
    pub cpu_s: f64,
    /// Names of threads that spent a good part of their CPU time spinning.
    pub spinning: Vec<String>,
    /// Names of threads that did not spin.
    pub others: Vec<String>,
}

/// A thread counts as spinning if it spends more than this part of its CPU time spinning.
const SPINS: f64 = 0.2;

impl Told {
    /// Sum of its threads.
    #[must_use]
    pub fn of(accounts: &[Account], window: Span) -> Self {
        let mut reported = Told::default();
        for account in accounts {
            let [spin, work] = account.within(window);
            reported.spin_s += spin;
            reported.cpu_s += spin + work;
            if spin > SPINS * (spin + work).max(1e-9) {
                reported.spinning.push(account.name.clone());
            } else {
                reported.others.push(account.name.clone());
            }
        }
        for names in [&mut reported.spinning, &mut reported.others] {
            names.sort();
            names.dedup();
        }
        reported
    }

    /// Scale to the kernel's clock, which knows better how much CPU time the process and its recording threads used: on a full host a
    /// thread seldom gets to write its record.
    pub fn scale_to(&mut self, [of_all, of_them]: [f64; 2]) {
        let of = if of_them > 0.0 { of_them.min(of_all) } else { of_all } / self.cpu_s.max(1e-9);
        (self.spin_s, self.most_s) = (self.spin_s * of, self.most_s * of);
        self.cpu_s = of_all;
    }

    /// The largest part of its CPU time that it may have spun.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.share().max(self.most_s / self.cpu_s.max(1e-9))
    }

    /// The part of its CPU time that it spun.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.spin_s / self.cpu_s.max(1e-9)
    }
}

impl Account {
    fn at(&self, ns: u64) -> [f64; 2] {
        let next = self.rows.partition_point(|row| row[0] <= ns);
        let known = |index: usize| self.rows.get(index).map(|[at, a, b]| (*at, [*a as f64, *b as f64]));
        match (next.checked_sub(1).and_then(known), known(next)) {
            (Some((_, last)), None) => last,
            (None, Some((_, first))) => first,
            (Some((before, low)), Some((after, high))) => {
                let part = ns.saturating_sub(before) as f64 / after.saturating_sub(before).max(1) as f64;
                [low[0] + (high[0] - low[0]) * part, low[1] + (high[1] - low[1]) * part]
            }
            (None, None) => [0.0; 2],
        }
    }

    /// Seconds of CPU spent spinning and working.
    #[must_use]
    pub fn within(&self, window: Span) -> [f64; 2] {
        let (from, to) = (self.at(window.from), self.at(window.to));
        [(to[0] - from[0]) * 1e-9, (to[1] - from[1]) * 1e-9]
    }

    /// The last recorded moment.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.rows.last().map_or(0, |row| row[0])
    }

    /// From the two slots of a pair's ledger.
    #[must_use]
    pub fn of_pair(ledger: &Ledger, waiter: usize, name: &str) -> Self {
        let (spun, worked) = (ledger.notes(waiter), ledger.notes(waiter ^ 1));
        let rows = spun.iter().zip(&worked).map(|((at, spin), (_, work))| [*at, *spin, *work]);
        Account {
            tid: ledger.fact(waiter, Fact::Tid).load(Ordering::Acquire) as u32,
            name: name.to_owned(),
            rows: rows.collect(),
        }
    }

    /// Parse the lines of a program: `thread SLOT TID NAME` and `MOMENT SLOT SPUN WORKED`.
    #[must_use]
    pub fn of_lines(text: &str) -> Vec<Self> {
        let mut all: BTreeMap<u64, Account> = BTreeMap::new();
        // The last line may be incomplete: the program is still writing it.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["thread", slot, tid, name] => {
                    let account = all.entry(slot.parse().unwrap_or(u64::MAX)).or_default();
                    (account.tid, account.name) = (tid.parse().unwrap_or(0), name.to_owned());
                }
                [at, slot, spun, worked] => {
                    let [Ok(at), Ok(slot), Ok(spun), Ok(worked)] = [at, slot, spun, worked].map(str::parse)
                    else {
                        continue;
                    };
                    all.entry(slot).or_default().rows.push([at, spun, worked]);
                }
                _ => {}
            }
        }
        all.into_values().collect()
    }
}

/// A thread's writer: it records spinning in its own slot and work in its partner's.
pub struct Pen<'ledger> {
    ledger: &'ledger Ledger,
    slot: usize,
    spun: u64,
    worked: u64,
    noted_at: u64,
}

impl<'ledger> Pen<'ledger> {
    /// For one thread, which begins at zero.
    pub fn begin(ledger: &'ledger Ledger, slot: usize) -> Self {
        let mut pen = Pen { ledger, slot, spun: 0, worked: 0, noted_at: 0 };
        pen.note(clock::now());
        pen
    }

    /// Add so many ns of CPU.
    pub fn add(&mut self, spun: u64, worked: u64) {
        self.spun += spun;
        self.worked += worked;
        let now = sys::monotonic_ns();
        if now >= self.noted_at + GRAIN_NS {
            self.note(now);
        }
    }

    fn note(&mut self, now: u64) {
        self.ledger.note(self.slot ^ 1, now, self.worked);
        self.ledger.note(self.slot, now, self.spun);
        self.noted_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_its_part_of_each_row() {
        let text = "thread 0 7 abc\n1000 0 0 0\n2000 0 600 200\nnoise\n3000 0 800 1000\n4000 0 9";
        let accounts = Account::of_lines(text);
        assert_eq!((accounts[0].tid, accounts[0].name.as_str(), accounts[0].until()), (7, "abc", 3000));
        let reported = Told::of(&accounts, Span { from: 1500, to: 3000 });
        assert!(
            (reported.spin_s - 500e-9).abs() < 1e-12 && (reported.cpu_s - 1400e-9).abs() < 1e-12,
            "{reported:?}"
        );
        assert_eq!(reported.spinning, ["abc"]);
        assert!(Account::default().within(Span { from: 0, to: 9 }) == [0.0; 2]);
    }

    #[test]
    fn a_pair_is_read_as_written() {
        let ledger = Ledger::new(4).unwrap();
        let mut pen = Pen::begin(&ledger, 3);
        let from = clock::now();
        for _ in 0..10 {
            sys::sleep_us(5_000);
            pen.add(3_000, 1_000);
        }
        let reported = Told::of(&[Account::of_pair(&ledger, 3, "x")], Span { from, to: clock::now() });
        assert!((reported.share() - 0.75).abs() < 1e-6, "{reported:?}");
    }
}
