//! A daemon whose permission the kernel needs before a file is opened, as virus scanners use it: fanotify(7).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// Grants the permission for files of this folder. `Word::Mode` 1: after a sleep. When the daemon ends, the kernel grants it.
pub fn run<'l>(ready: impl FnOnce() -> Worker<'l>, dir: &Path, sleep_us: u64) -> io::Result<()> {
    let group = sys::fanotify(dir)?;
    let mut w = ready();
    while w.goes_on() {
        for file in sys::asked_for_leave(&group)? {
            // SAFETY: the kernel has opened it for us, and no other code knows it.
            let file = unsafe { OwnedFd::from_raw_fd(file) };
            if w.word(Word::Mode) == 1 {
                sys::sleep_us(sleep_us);
            }
            sys::give_leave(&group, file.as_raw_fd())?;
            w.did_one();
        }
    }
    Ok(())
}
