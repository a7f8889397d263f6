//! Samples that were taken out of the kernel's tables, kept small: a thread that runs through much code is reported without its rarest
//! stacks, and each thread is reported with all its samples.

use std::collections::HashMap;

use super::{Code, Hit, oncpu_key};

/// Rows that are kept, about 100 bytes each and as much for their stacks.
const MOST: usize = 65_536;
/// Blocks of code that are kept, about 300 bytes each.
const MOST_CODES: usize = 16_384;

/// Number of samples, and the state of the registers (see [`Hit`]).
#[derive(Clone, Copy, Default)]
pub struct Count {
    /// Samples.
    pub samples: u64,
    /// ... with the same registers as in the sample before.
    pub same: u64,
    /// ... after a call that returned 0.
    pub zero: u64,
    /// ... -EAGAIN.
    pub again: u64,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.same = self.same.saturating_add(other.same);
        self.zero = self.zero.saturating_add(other.zero);
        self.again = self.again.saturating_add(other.again);
    }
}

/// A thread, as the kernel half knows it, and its code.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pid: u32,
    tgid: u32,
    comm: [std::ffi::c_char; 16],
    ip: u64,
    call: i32,
    kernel_mode: u32,
    stacks: Option<(u32, u32)>,
}

impl Key {
    /// Its thread, and no more.
    fn bare(&self) -> Key {
        Key { ip: 0, call: -1, kernel_mode: 0, stacks: None, ..self.clone() }
    }

    /// ... and not even that, but the name.
    fn anybody(&self) -> Key {
        Key { pid: u32::MAX, tgid: u32::MAX, ..self.bare() }
    }
}

/// All samples so far.
pub struct Gathered {
    rows: HashMap<Key, Count>,
    stacks: Vec<Vec<u64>>,
    known: HashMap<Vec<u64>, u32>,
    codes: HashMap<(u32, u64), Code>,
    most: usize,
    /// How often room was made.
    compactions: u64,
}

impl Default for Gathered {
    fn default() -> Self {
        Gathered {
            rows: HashMap::new(),
            stacks: Vec::new(),
            known: HashMap::new(),
            codes: HashMap::new(),
            most: MOST,
            compactions: 0,
        }
    }
}

impl Gathered {
    /// Take a row. `stacks`: the kernel's and the user's; `None`: there was no room for them.
    pub fn add(&mut self, key: &oncpu_key, stacks: Option<(&[u64], &[u64])>, count: &Count) {
        let stacks = stacks.map(|(kernel, user)| (self.stack(kernel), self.stack(user)));
        let oncpu_key { pid, tgid, comm, ip, call, kernel_mode, .. } = *key;
        let key = Key { pid, tgid, comm, ip, call, kernel_mode, stacks };
        self.rows.entry(key).or_default().add(count);
        if self.rows.len() >= self.most {
            self.compact();
        }
    }

    /// Keep a block of code.
    pub fn keep(&mut self, code: Code) {
        self.codes.insert((code.tgid, code.block), code);
        if self.codes.len() >= MOST_CODES {
            let block = |at: u64| at >> super::BLOCK_BITS << super::BLOCK_BITS;
            let met: std::collections::HashSet<(u32, u64)> =
                self.rows.keys().map(|key| (key.tgid, block(key.ip))).collect();
            self.codes.retain(|place, _| met.contains(place));
            if self.codes.len() >= MOST_CODES {
                self.codes.clear(); // a block that is sampled again is kept again
            }
        }
    }

    fn stack(&mut self, frames: &[u64]) -> u32 {
        if let Some(id) = self.known.get(frames) {
            return *id;
        }
        let id = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        self.stacks.push(frames.to_vec());
        self.known.insert(frames.to_vec(), id);
        id
    }

    /// The rarest rows lose their stacks until half of the room is free; if that does not suffice, also their thread.
    fn compact(&mut self) {
        self.compactions += 1;
        let mut least = 1;
        while self.rows.len() > self.most / 2 && least < u64::MAX / 4 {
            self.fold(|key, count| (key.stacks.is_some() && count.samples <= least).then(|| key.bare()));
            if self.rows.len() > self.most / 2 {
                let is_bare = |key: &Key| key.stacks.is_none() && key.pid != u32::MAX;
                self.fold(|key, count| (is_bare(key) && count.samples <= least).then(|| key.anybody()));
            }
            least *= 2;
        }
        // As many names as rows: then not even a name is kept.
        if self.rows.len() > self.most / 2 {
            let nobody = |key: &Key| Key { comm: Default::default(), ..key.anybody() };
            self.fold(|key, _| (key.stacks.is_none() && *key != nobody(key)).then(|| nobody(key)));
        }
        let used: std::collections::HashSet<u32> =
            self.rows.keys().filter_map(|key| key.stacks).flat_map(|(kernel, user)| [kernel, user]).collect();
        let old = std::mem::take(&mut self.stacks);
        self.known.clear();
        let mut moved = HashMap::new();
        for (id, frames) in (0..).zip(old).filter(|(id, _)| used.contains(id)) {
            moved.insert(id, self.stack(&frames));
        }
        let now = |id: u32| moved.get(&id).copied().unwrap_or(u32::MAX);
        let rows = std::mem::take(&mut self.rows).into_iter();
        let renumbered =
            |key: Key| Key { stacks: key.stacks.map(|(kernel, user)| (now(kernel), now(user))), ..key };
        self.rows = rows.map(|(key, count)| (renumbered(key), count)).collect();
    }

    fn fold(&mut self, into: impl Fn(&Key, &Count) -> Option<Key>) {
        let mut folded: HashMap<Key, Count> = HashMap::new();
        self.rows.retain(|key, count| match into(key, count) {
            Some(key) => {
                folded.entry(key).or_default().add(count);
                false
            }
            None => true,
        });
        for (key, count) in folded {
            self.rows.entry(key).or_default().add(&count);
        }
    }

    /// All rows, and the code.
    pub fn into_parts(self) -> (Vec<Hit>, Vec<Code>) {
        let frames = |id: u32| self.stacks.get(id as usize).cloned().unwrap_or_default();
        let hit = |(key, count): (&Key, &Count)| {
            let (kernel, user) =
                key.stacks.map(|(kernel, user)| (frames(kernel), frames(user))).unwrap_or_default();
            Hit {
                key: oncpu_key {
                    pid: key.pid,
                    tgid: key.tgid,
                    comm: key.comm,
                    ip: key.ip,
                    call: key.call,
                    kernel_mode: key.kernel_mode,
                    ..oncpu_key::default()
                },
                count: count.samples,
                same: count.same,
                zero: count.zero,
                again: count.again,
                bare: key.stacks.is_none(),
                kernel,
                user,
            }
        };
        let hits = self.rows.iter().map(hit).collect();
        (hits, self.codes.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_stack_is_mostly_kept_and_every_sample_stays_with_its_thread() {
        let mut gathered = Gathered { most: 100, ..Gathered::default() };
        let mut draws = 0x2545_f491_4f6c_dd1d_u64;
        let mut hot = 0;
        for turn in 0..20_000_u64 {
            draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // One sample in ten is of the loop, and the others all over 10,000 places; it begins when the table has been full.
            let is_hot = turn > 1000 && turn % 10 == 0;
            let at = if is_hot { 7 } else { 1000 + (draws >> 33) % 10_000 };
            hot += u64::from(is_hot);
            let key = oncpu_key { pid: 5 + u32::from(is_hot), tgid: 5, ip: at, ..oncpu_key::default() };
            gathered.add(&key, Some((&[], &[at, 1])), &Count { samples: 1, same: 1, ..Count::default() });
            assert!(gathered.rows.len() <= 100 && gathered.stacks.len() <= 300);
        }
        let (hits, _) = gathered.into_parts();
        let of = |pid: u32| hits.iter().filter(|hit| hit.key.pid == pid).map(|hit| hit.count).sum::<u64>();
        assert_eq!((of(5), of(6)), (20_000 - hot, hot));
        let in_loop: u64 = hits.iter().filter(|hit| hit.user == [7, 1]).map(|hit| hit.count).sum();
        assert!(in_loop * 10 > hot * 9, "{in_loop} of {hot} are known to be of the loop");
        assert!(hits.iter().all(|hit| hit.bare != (hit.user.len() == 2)));
    }

    #[test]
    fn of_more_names_than_rows_the_samples_are_kept_in_little_work() {
        const NAMES: u32 = 20_000;
        let mut gathered = Gathered { most: 1_000, ..Gathered::default() };
        for turn in 0..NAMES {
            let mut key = oncpu_key { pid: 5, tgid: 5, ..oncpu_key::default() };
            for (at, byte) in turn.to_ne_bytes().iter().enumerate() {
                key.comm[at] = *byte as std::ffi::c_char;
            }
            gathered.add(&key, Some((&[], &[])), &Count { samples: 1, ..Count::default() });
            assert!(gathered.rows.len() <= 1_000);
        }
        // Half of the room is free after each time: the next is not due at the next sample.
        assert!(gathered.compactions <= 2 * u64::from(NAMES) / 1_000, "{} times", gathered.compactions);
        assert_eq!(gathered.into_parts().0.iter().map(|hit| hit.count).sum::<u64>(), u64::from(NAMES));
    }

    #[test]
    fn of_more_threads_than_rows_the_samples_are_kept() {
        let mut gathered = Gathered { most: 100, ..Gathered::default() };
        for pid in 0..5000 {
            let key = oncpu_key { pid, tgid: pid, ..oncpu_key::default() };
            gathered.add(&key, Some((&[u64::from(pid)], &[])), &Count { samples: 1, ..Count::default() });
        }
        assert!(gathered.rows.len() <= 100);
        assert_eq!(gathered.into_parts().0.iter().map(|hit| hit.count).sum::<u64>(), 5000);
    }
}
