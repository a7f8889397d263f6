//! The work of victims and its times, by their own clock: memory shared by a victim's threads and the harness.
//!
//! Each thread has one slot: the number of pieces of work that it has done, and a list of (moment, count) at least `GRAIN` apart. Between
//! two moments the work counts as evenly spread, so a piece that takes a second counts in parts.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{self, Span};
use crate::sys;

/// Moments closer than this share one entry: 60 s of work fit in 480 KiB a thread.
const GRAIN_NS: u64 = 2_000_000;
const MOMENTS: usize = 30_000;
const CONTROL: usize = 64;
const HEAD: usize = 8;

/// Words that the harness writes and the victims read.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    /// 0: wait. Otherwise the moment at which work began.
    Go = 0,
    /// 1: end.
    Stop = 1,
    /// Raised by one: touch the whole working set once, then continue.
    Warm = 2,
    /// How long a server rests after each accept, in us; `NEVER`: it accepts no connection.
    AcceptPause = 3,
    /// How a process of the lab should behave; 0: healthy.
    Mode = 4,
}

/// A server that accepts no connection.
pub const NEVER: u64 = u64::MAX;

/// Words at the head of a thread's slot.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// Its thread id; 0 until the thread is ready.
    Tid = 0,
    /// Pieces of work done.
    Count = 1,
    /// Moments recorded.
    Moments = 2,
    /// The last `Word::Warm` that the thread obeyed.
    Warmed = 3,
    /// Pieces of work that failed (errno of the last one, in the low half).
    Failed = 4,
    /// Time of its pieces, where a paced thread measures them, in ns.
    Busy = 5,
    /// Rounds in which it has begun to wait (`crate::lock_chain`).
    Began = 6,
    /// Rounds that it has completed.
    Ended = 7,
}

/// Shared memory of one victim.
pub struct Ledger {
    fd: Option<OwnedFd>,
    at: *mut u8,
    size: usize,
    slots: usize,
}

// SAFETY: the memory is accessed only as atomics, and lives as long as the ledger.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// A new ledger with room for `slots` threads. All its pages are charged to the harness, not to the victim.
    pub fn new(slots: usize) -> io::Result<Self> {
        let size = Self::size(slots);
        let fd = sys::memory_file("whyslow-test-ledger", size as u64)?;
        let at = sys::map(Some(fd.as_raw_fd()), size)?;
        let ledger = Ledger { fd: Some(fd), at, size, slots };
        for page in (0..size / 8).step_by(512) {
            ledger.cell(page).store(0, Ordering::Relaxed);
        }
        Ok(ledger)
    }

    /// The ledger behind an inherited descriptor.
    pub fn inherited(fd: RawFd, slots: usize) -> io::Result<Self> {
        let size = Self::size(slots);
        Ok(Ledger { fd: None, at: sys::map(Some(fd), size)?, size, slots })
    }

    /// The descriptor that a victim inherits.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Number of threads that it has room for.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn size(slots: usize) -> usize {
        ((CONTROL + slots * (HEAD + 2 * MOMENTS)) * 8).next_multiple_of(4096)
    }

    fn cell(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * 8 <= self.size, "the ledger has no word {index}");
        // SAFETY: inside the mapping, aligned (mappings are page aligned), only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.at.cast::<u64>().add(index)) }
    }

    /// A word of control.
    #[must_use]
    pub fn word(&self, word: Word) -> &AtomicU64 {
        self.cell(word as usize)
    }

    /// A word of one thread's slot.
    #[must_use]
    pub fn fact(&self, slot: usize, fact: Fact) -> &AtomicU64 {
        self.cell(CONTROL + slot * (HEAD + 2 * MOMENTS) + fact as usize)
    }

    fn moment(&self, slot: usize, index: usize) -> (&AtomicU64, &AtomicU64) {
        let at = CONTROL + slot * (HEAD + 2 * MOMENTS) + HEAD + 2 * index;
        (self.cell(at), self.cell(at + 1))
    }

    fn read(&self, slot: usize, index: usize) -> (u64, f64) {
        let (at, count) = self.moment(slot, index);
        (at.load(Ordering::Acquire), count.load(Ordering::Acquire) as f64)
    }

    /// Record an event with its number. Only the owner of the slot may call this; events without room are dropped.
    pub fn note(&self, slot: usize, at: u64, what: u64) {
        let noted = self.fact(slot, Fact::Moments).load(Ordering::Relaxed) as usize;
        if noted < MOMENTS {
            let (ns, code) = self.moment(slot, noted);
            ns.store(at, Ordering::Relaxed);
            code.store(what, Ordering::Relaxed);
            self.fact(slot, Fact::Moments).store(noted as u64 + 1, Ordering::Release);
        }
    }

    /// All events that a thread recorded, in order.
    #[must_use]
    pub fn notes(&self, slot: usize) -> Vec<(u64, u64)> {
        let noted = (self.fact(slot, Fact::Moments).load(Ordering::Acquire) as usize).min(MOMENTS);
        let read = |index| {
            let (at, what) = self.moment(slot, index);
            (at.load(Ordering::Acquire), what.load(Ordering::Acquire))
        };
        (0..noted).map(read).collect()
    }

    /// Work that a thread had done at a moment, in pieces and fractions of a piece.
    #[must_use]
    pub fn done_at(&self, slot: usize, ns: u64) -> f64 {
        let known = (self.fact(slot, Fact::Moments).load(Ordering::Acquire) as usize).min(MOMENTS);
        let (mut low, mut high) = (0, known);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.read(slot, mid).0 <= ns { low = mid + 1 } else { high = mid }
        }
        if low == 0 {
            return 0.0;
        }
        let (before, done) = self.read(slot, low - 1);
        if low == known {
            return done;
        }
        let (after, then) = self.read(slot, low);
        done + (then - done) * (ns - before) as f64 / (after - before).max(1) as f64
    }

    /// Pieces per second of all threads together.
    #[must_use]
    pub fn rate(&self, span: Span) -> f64 {
        let done: f64 =
            (0..self.slots).map(|slot| self.done_at(slot, span.to) - self.done_at(slot, span.from)).sum();
        done / span.length().as_secs_f64().max(1e-9)
    }

    /// Pieces that failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        (0..self.slots).map(|slot| self.fact(slot, Fact::Failed).load(Ordering::Relaxed) >> 32).sum()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` or `inherited` with this size; no reference outlives the ledger.
        unsafe { sys::unmap(self.at, self.size) };
    }
}

/// The writer of one thread's slot.
pub struct Tally<'ledger> {
    ledger: &'ledger Ledger,
    slot: usize,
    count: u64,
    noted_at: u64,
    noted: usize,
}

impl<'ledger> Tally<'ledger> {
    /// For one thread, which begins with no work done.
    #[must_use]
    pub fn begin(ledger: &'ledger Ledger, slot: usize) -> Self {
        let mut tally = Tally { ledger, slot, count: 0, noted_at: 0, noted: 0 };
        tally.note(clock::now());
        tally
    }

    /// One more piece is done.
    pub fn did_one(&mut self) {
        self.count += 1;
        self.ledger.fact(self.slot, Fact::Count).store(self.count, Ordering::Release);
        let now = clock::now();
        if now >= self.noted_at + GRAIN_NS {
            self.note(now);
        }
    }

    /// The last piece took this long.
    pub fn took(&mut self, ns: u64) {
        self.ledger.fact(self.slot, Fact::Busy).fetch_add(ns, Ordering::Relaxed);
    }

    /// A piece failed.
    pub fn failed(&mut self, err: &io::Error) {
        let errno = err.raw_os_error().unwrap_or(0) as u64;
        let fact = self.ledger.fact(self.slot, Fact::Failed);
        fact.store((((fact.load(Ordering::Relaxed) >> 32) + 1) << 32) | errno, Ordering::Relaxed);
    }

    /// Pieces done so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    fn note(&mut self, now: u64) {
        if self.noted == MOMENTS {
            return;
        }
        let (at, count) = self.ledger.moment(self.slot, self.noted);
        at.store(now, Ordering::Release);
        count.store(self.count, Ordering::Release);
        self.noted += 1;
        self.noted_at = now;
        self.ledger.fact(self.slot, Fact::Moments).store(self.noted as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(moments: &[(u64, u64)]) -> Ledger {
        let ledger = Ledger::new(1).unwrap();
        for (index, (at, count)) in moments.iter().enumerate() {
            let (a, c) = ledger.moment(0, index);
            a.store(*at, Ordering::Relaxed);
            c.store(*count, Ordering::Relaxed);
        }
        ledger.fact(0, Fact::Moments).store(moments.len() as u64, Ordering::Relaxed);
        ledger
    }

    #[test]
    fn a_long_piece_counts_in_parts() {
        let ledger = noted(&[(1_000, 0), (2_000, 1), (4_000, 2)]);
        assert_eq!(ledger.done_at(0, 500), 0.0);
        assert_eq!(ledger.done_at(0, 1_500), 0.5);
        assert_eq!(ledger.done_at(0, 3_000), 1.5);
        assert_eq!(ledger.done_at(0, 9_000), 2.0);
    }

    #[test]
    fn a_tally_is_read_as_written() {
        let ledger = Ledger::new(2).unwrap();
        let from = clock::now();
        let mut tally = Tally::begin(&ledger, 1);
        (0..10).for_each(|_| {
            sys::sleep_us(2_500);
            tally.did_one();
        });
        let span = Span { from, to: clock::now() };
        assert_eq!(ledger.fact(1, Fact::Count).load(Ordering::Relaxed), 10);
        let done = ledger.rate(span) * span.length().as_secs_f64();
        assert!((9.9..=10.0).contains(&done), "{done}");
    }

    #[test]
    #[should_panic(expected = "no word")]
    fn write_outside_the_ledger_panics() {
        let _ = Ledger::new(1).unwrap().fact(99, Fact::Count);
    }
}
