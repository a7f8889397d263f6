//! Locks of files, taken again and again.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use super::Worker;
use crate::spec::FileLock;
use crate::sys;

/// Sleeps between two tries, as in programs that avoid blocking.
const SLEEPS_US: [u64; 6] = [1_000, 2_000, 5_000, 10_000, 25_000, 50_000];

fn try_again(file: &std::fs::File) -> io::Result<()> {
    let longest = SLEEPS_US.last().copied();
    for sleep in SLEEPS_US.into_iter().chain(std::iter::from_fn(|| longest)) {
        if sys::try_lock(file)? {
            break;
        }
        sys::sleep_us(sleep);
    }
    Ok(())
}

/// Take the lock, hold it, release it, rest; the piece counts when the lock is taken. Each thread opens the file itself: the locks of one
/// open file are one lock.
pub fn run(
    mut w: Worker<'_>,
    (path, how): (&Path, FileLock),
    [hold_us, rest_us]: [u64; 2],
    asleep: bool,
) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let lock = |taken| match how {
        FileLock::Flock if taken => sys::lock(&file),
        FileLock::Flock => sys::unlock(&file),
        FileLock::Record => sys::lock_range(&file, taken),
        FileLock::Retried if taken => try_again(&file),
        FileLock::Retried => sys::unlock(&file),
    };
    while w.goes_on() {
        lock(true)?;
        w.did_one();
        if asleep {
            sys::sleep_us(hold_us)
        } else {
            w.compute(hold_us)
        }
        lock(false)?;
        sys::sleep_us(rest_us);
    }
    Ok(())
}
