//! Processes that stop until their child has ended: D state without any device.

use std::io;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// `Word::Mode`: the child computes instead of sleeping.
const COMPUTES: u64 = 2;

pub fn run(mut w: Worker<'_>, child_us: u64) -> io::Result<()> {
    while w.goes_on() {
        let mode = w.word(Word::Mode);
        if mode == 0 {
            sys::sleep_us(child_us);
            continue;
        }
        // Different lengths: children that all start at one moment would wait for each other.
        let child_us = child_us / 2 + w.below(child_us);
        let began = sys::monotonic_ns();
        if sys::kernel::fork_and_stop()? {
            if mode == COMPUTES {
                while sys::monotonic_ns().saturating_sub(began) < child_us * 1000 {
                    std::hint::spin_loop();
                }
            } else {
                sys::sleep_us(child_us);
            }
            sys::leave(0);
        }
        w.tally.took(sys::monotonic_ns().saturating_sub(began));
        sys::kernel::wait_for_child();
        w.tally.did_one();
    }
    Ok(())
}
