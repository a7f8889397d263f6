//! Repeatable random draws: a test draws all its parameters from one seed, and always prints the seed.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

/// A stream of draws (SplitMix64: small, and every seed is a good one).
#[derive(Debug, Clone)]
pub struct Draw {
    seed: u64,
    state: u64,
}

/// The seed of this run: `WHYSLOW_SEED`, or else a seed from the clock. All threads of a process share it.
#[must_use]
pub fn run_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("WHYSLOW_SEED").ok().and_then(|text| text.trim().parse().ok());
        let seed = given.unwrap_or_else(|| mix(crate::clock::now() ^ u64::from(std::process::id())) >> 16);
        // Not eprintln!: the test harness would swallow it when the test passes.
        let _ = writeln!(std::io::stderr(), "WHYSLOW_SEED={seed}");
        seed
    })
}

impl Draw {
    /// The draws of one test of this run. They do not depend on which other tests run or in which order: the printed seed repeats them,
    /// whatever the round was.
    #[must_use]
    pub fn of_run(label: &str, round: u64) -> Self {
        Draw::with(run_seed().wrapping_add(round)).branch(label)
    }

    /// Draws from a known seed.
    #[must_use]
    pub fn with(seed: u64) -> Self {
        Draw { seed, state: seed }
    }

    /// A separate stream for `label`, from the same seed.
    #[must_use]
    pub fn branch(&self, label: &str) -> Self {
        // FNV-1a.
        let hash = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Draw { seed: self.seed, state: mix(self.state ^ hash) }
    }

    /// The seed that repeats these draws.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A whole number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "cannot draw between {low} and {high}");
        low + self.any() % (high - low).saturating_add(1).max(1)
    }

    /// A number in `low..high`.
    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (self.any() >> 11) as f64 / (1_u64 << 53) as f64 * (high - low)
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    /// One of them.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as u64 - 1) as usize].clone()
    }

    /// `n` of them, in their order.
    pub fn some<T: Clone>(&mut self, n: usize, of: &[T]) -> Vec<T> {
        let mut left: Vec<usize> = (0..of.len()).collect();
        while left.len() > n {
            let out = self.between(0, left.len() as u64 - 1) as usize;
            left.remove(out);
        }
        left.into_iter().map(|i| of[i].clone()).collect()
    }

    /// A name of lower-case letters that no other process is likely to use.
    pub fn word(&mut self, letters: usize) -> String {
        (0..letters).map(|_| char::from(b'a' + self.between(0, 25) as u8)).collect()
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WHYSLOW_SEED={}", self.seed)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut d = Draw::with(seed).branch("a");
            (d.any(), d.between(3, 9), d.word(5), d.some(2, &[1, 2, 3, 4]))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn branches_differ() {
        let root = Draw::with(1);
        assert_ne!(root.branch("a").any(), root.branch("b").any());
    }

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut d = Draw::with(3);
        for _ in 0..10_000 {
            assert!((12..=20).contains(&d.between(12, 20)));
            assert!((0.2..0.6).contains(&d.real(0.2, 0.6)));
        }
        assert_eq!(d.some(3, &[1, 2, 3, 4, 5, 6]).len(), 3);
    }
}
