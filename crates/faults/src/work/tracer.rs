//! A tracer like strace: its tracee stops at each system call, and continues when the tracer lets it.

use std::io;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// How soon it notices that it should begin.
const NOTICE_US: u64 = 20_000;

/// Traces from `Word::Mode` 1 on.
pub fn run(mut w: Worker<'_>, pid: u32) -> io::Result<()> {
    while w.goes_on() && w.word(Word::Mode) != 1 {
        sys::sleep_us(NOTICE_US);
    }
    sys::trace(pid as i32, || {
        w.did_one();
        w.goes_on()
    })
}
