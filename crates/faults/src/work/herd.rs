//! Many threads that sleep, and one that works.

use std::io;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// A sleeping thread needs almost no stack.
const STACK: usize = 64 << 10;

/// `idle`: the number of sleeping threads, and how long each sleeps at a time.
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

/// `tasks` sleeping threads, and how long each sleeps at a time.
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

/// Work of a busy thread between two checks whether to stop.
const PIECE_US: u64 = 500;
/// A healthy thread rests so many times as long as it works.
const RESTS: u64 = 9;

fn with_sleepers<'l>(ready: impl FnOnce() -> Worker<'l>, tasks: u64, idle_us: u64) -> io::Result<Worker<'l>> {
    // The herd starts before the work begins, so that its births do not count. The threads end with the process.
    let began = sys::monotonic_ns();
    for task in 0..tasks {
        // Wake-ups are spread over the whole interval: a herd that wakes up at one moment is a burst.
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
