//! A byte that the thread below sends when it is done.

use std::io;
use std::os::fd::OwnedFd;

use super::{Object, Taken};
use crate::sys::kernel;

/// The two ends of the pipe or socket pair.
pub struct Relay {
    above: OwnedFd,
    below: OwnedFd,
}

impl Relay {
    pub fn pipe() -> io::Result<Self> {
        let [above, below] = kernel::pipe()?;
        Ok(Relay { above, below })
    }

    pub fn unix() -> io::Result<Self> {
        let [above, below] = kernel::socket_pair()?;
        Ok(Relay { above, below })
    }
}

impl Object for Relay {
    fn want(&self) -> io::Result<()> {
        kernel::read_byte(&self.above)
    }

    fn give(&self, _: Taken<'_>) -> io::Result<()> {
        // SAFETY: the byte lives through the call.
        unsafe { kernel::write_byte(&self.below, [0].as_ptr(), false) }
    }
}
