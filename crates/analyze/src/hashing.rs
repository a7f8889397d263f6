//! Tables with a look-up for each of a million rows: by numbers of tasks, rows, CPUs, and by short names.
//!
//! The standard library's SipHash takes longer than the look-up itself. Here each word is multiplied into the state and the
//! product's halves are folded (as in wyhash). A recording may come from an attacker: each process draws its own seed, so
//! that nobody can choose keys that collide.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// A table with the fast hash.
pub type Table<K, V> = HashMap<K, V, Seed>;

/// A set with the fast hash.
pub type Set<K> = HashSet<K, Seed>;

/// A table for this many rows: a table that grows moves all its rows each time.
pub fn with_room<K, V>(rows: usize) -> Table<K, V> {
    Table::with_capacity_and_hasher(rows, Seed::default())
}

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u64));

/// The start value of each hash.
#[derive(Debug, Clone, Copy)]
pub struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Seed(*SEED)
    }
}

impl BuildHasher for Seed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

#[derive(Debug)]
pub struct Folded(u64);

impl Folded {
    fn mix(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio
        let product = u128::from(self.0 ^ word) * u128::from(ODD);
        self.0 = (product as u64).wrapping_add(self.0) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.mix(word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
        let rest = words.remainder();
        self.mix(rest.iter().rev().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte)));
    }

    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.0) * 0xff51_afd7_ed55_8ccd_u128;
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table takes the lowest bits for the place and the highest seven to compare: both must differ where numbers differ.
    #[test]
    fn numbers_in_steps_are_spread() {
        for step in [1_u64, 4, 64, 4096, 1 << 32] {
            let hashes: Vec<u64> = (0..4096).map(|n| Seed::default().hash_one(n * step)).collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 4095).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(low.len() > 2300 && high.len() == 128, "{step}: {} and {}", low.len(), high.len());
        }
    }

    #[test]
    fn texts_differ_by_each_byte_and_by_length() {
        let texts = ["", "a", "b", "aa", "worker/1", "worker/2", "worker/12", "kworker/1:2", "kworker/1:3"];
        let hashes: HashSet<u64> = texts.iter().map(|text| Seed::default().hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
