//! Many threads that sleep, and one that works.

use std::io;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// A thread that sleeps needs next to no stack.
const STACK: usize = 64 << 10;

/// `idle`: how many, and how long each sleeps at a time.
pub fn run<'l>(
    ready: impl FnOnce() -> Worker<'l>,
    idle: [u64; 2],
    burst_us: u64,
    every_us: u64,
) -> io::Result<()> {
    let [tasks, idle_us] = idle;
    let mut w = with_sleepers(ready, tasks, idle_us)?;
    w.at_each_tick(every_us, |w| {
        w.compute(burst_us);
        Ok(())
    })
}

/// `tasks` that sleep, and how long each sleeps at a time.
pub fn few<'l>(ready: impl FnOnce() -> Worker<'l>, tasks: u64, idle_us: u64) -> io::Result<()> {
    let mut w = with_sleepers(ready, tasks, idle_us)?;
    while w.goes_on() {
        w.compute(PIECE_US);
        if w.word(Word::Mode) == 0 {
            sys::sleep_us(PIECE_US * RESTS);
        }
        w.tally.did_one();
    }
    Ok(())
}

/// What a busy thread does before it looks whether it is to stop.
const PIECE_US: u64 = 500;
/// A healthy one rests so many times as long as it works.
const RESTS: u64 = 9;

fn with_sleepers<'l>(ready: impl FnOnce() -> Worker<'l>, tasks: u64, idle_us: u64) -> io::Result<Worker<'l>> {
    // Born before the work begins: what is wanted is the herd, not its birth. They end with the process.
    let began = sys::monotonic_ns();
    for task in 0..tasks {
        // Spread over the whole length: a herd that wakes at one moment is a burst.
        let first = began + idle_us * 1000 * task / tasks;
        std::thread::Builder::new().stack_size(STACK).spawn(move || sleep_for_ever(first, idle_us * 1000))?;
    }
    Ok(ready())
}

fn sleep_for_ever(first: u64, each_ns: u64) {
    for nap in 0.. {
        sys::sleep_until(first + nap * each_ns);
    }
}
