//! An actor's own side: its orders, and its record.

use std::io;
use std::sync::atomic::Ordering;

use whyslow_faults::Ledger;
use whyslow_faults::clock;
use whyslow_faults::ledger::{Fact, Tally, Word};

use super::super::sys;
use super::{NOTES, WORK};

/// The tools of an act.
pub struct Pen {
    ledger: &'static Ledger,
    tally: Tally<'static>,
    /// How late the last tick came.
    late: u64,
}

impl Pen {
    /// For the rest of the process's life.
    pub fn of(ledger: &'static Ledger) -> Self {
        Pen { ledger, tally: Tally::begin(ledger, WORK), late: 0 }
    }

    /// The mode; 0 is healthy.
    #[must_use]
    pub fn mode(&self) -> u64 {
        self.ledger.word(Word::Mode).load(Ordering::Acquire)
    }

    /// Report that it is ready.
    pub fn ready(&self) {
        self.ledger.fact(WORK, Fact::Tid).store(sys::thread_id(), Ordering::Release);
    }

    /// One more piece of work is done.
    pub fn did_one(&mut self) {
        self.tally.did_one();
    }

    /// Record a number with its moment.
    pub fn note(&self, at: u64, what: u64) {
        self.ledger.note(NOTES, at, what);
    }

    /// Record how late this tick came, as an answer that the act waits for.
    pub fn note_lateness(&self, what: impl Fn(u64) -> u64) {
        self.note(clock::now(), what(self.late));
    }

    /// Run `piece` every `ns`; a missed tick is not made up for.
    pub fn at_each_tick(
        &mut self,
        ns: u64,
        mut piece: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let ns = ns.max(1);
        let mut due = clock::now();
        loop {
            piece(self)?;
            due = (due + ns).max(clock::now());
            sys::sleep_until(due);
            self.late = clock::now().saturating_sub(due);
        }
    }

    /// Run `piece` at each multiple of `ns` of the clock, and `phase` behind it: processes with the same interval keep their order.
    pub fn at_each_phase(
        &mut self,
        ns: u64,
        phase: u64,
        mut piece: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let ns = ns.max(1);
        loop {
            let gone = clock::now().saturating_sub(phase) / ns;
            sys::sleep_until(gone.saturating_add(1).saturating_mul(ns).saturating_add(phase));
            piece(self)?;
        }
    }
}
