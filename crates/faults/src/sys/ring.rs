//! Waiting in an io_uring.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

/// A ring of its own. It belongs to the thread that made it.
pub struct Ring {
    ring: IoUring,
    /// The kernel writes here while a read is pending.
    word: Box<u64>,
}

impl Ring {
    pub fn new() -> io::Result<Self> {
        Ok(Ring { ring: IoUring::new(2)?, word: Box::new(0) })
    }

    /// Read a word through it; less is an error.
    pub fn read_word(&mut self, fd: &impl AsRawFd) -> io::Result<()> {
        const WORD: u32 = 8;
        let into: *mut u64 = &raw mut *self.word;
        let read = opcode::Read::new(types::Fd(fd.as_raw_fd()), into.cast(), WORD).build();
        // SAFETY: the word lives as long as the ring, and this function waits for the end of the read.
        unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(err) if err.kind() != io::ErrorKind::Interrupted => return Err(err),
                _ => {}
            }
            if let Some(done) = self.ring.completion().next() {
                return match u32::try_from(done.result()) {
                    Ok(WORD) => Ok(()),
                    Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(_) => Err(io::Error::from_raw_os_error(-done.result())),
                };
            }
        }
    }
}
