//! Short-lived processes that do little.

use std::io;

use super::Worker;
use crate::sys;

pub fn run(mut w: Worker<'_>, burst_us: u64) -> io::Result<()> {
    while w.goes_on() {
        if sys::fork()? {
            w.compute(burst_us);
            sys::leave(0);
        }
        if sys::kernel::wait_for_child() {
            w.tally.did_one();
        }
    }
    Ok(())
}
