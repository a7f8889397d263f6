//! Memory whose page faults are served by a thread of ours: a system call that touches it stops in the middle, with all
//! the kernel locks that it holds, until that thread says so.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = 4096;
const API_VERSION: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1;
// _IOWR(0xaa, nr, size): not in libc.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;

/// One page that is not there until it is given.
pub struct MissingPage {
    fd: OwnedFd,
    at: *mut u8,
}

// SAFETY: the page is only handed to system calls and read as a volatile byte; the descriptor may be used by any thread.
unsafe impl Send for MissingPage {}
// SAFETY: as above.
unsafe impl Sync for MissingPage {}

impl MissingPage {
    /// A new one, of this process alone.
    pub fn new() -> io::Result<Self> {
        // SAFETY: flags only; the new descriptor is ours alone.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
            super::check(fd as libc::c_int)?;
            OwnedFd::from_raw_fd(fd as libc::c_int)
        };
        let at = super::map(None, PAGE)?;
        super::no_huge_pages(at, PAGE);
        let page = MissingPage { fd, at };
        page.ask(UFFDIO_API, [API_VERSION, 0, 0, 0])?;
        page.ask(UFFDIO_REGISTER, [at as u64, PAGE as u64, REGISTER_MISSING, 0])?;
        Ok(page)
    }

    fn ask(&self, request: libc::c_ulong, mut words: [u64; 4]) -> io::Result<()> {
        // SAFETY: all requests of this file read and write at most these 32 bytes.
        super::check(unsafe { libc::ioctl(self.fd.as_raw_fd(), request, words.as_mut_ptr()) }).map(drop)
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Touch it: sleeps until it is given.
    pub fn touch(&self) {
        // SAFETY: mapped and readable for as long as `self` lives.
        unsafe { self.at.read_volatile() };
    }

    /// Somebody has touched it and waits.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd; returns at once.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
    }

    /// Give it, and wake who waits.
    pub fn give(&self) -> io::Result<()> {
        self.ask(UFFDIO_ZEROPAGE, [self.at as u64, PAGE as u64, 0, 0])
    }

    /// Take it away, and forget who asked for it: the next touch waits again.
    pub fn take_away(&self) {
        let mut message = [0_u8; 32];
        // SAFETY: the page belongs to `self`; a message has 32 bytes; the descriptor does not block.
        unsafe {
            libc::madvise(self.at.cast(), PAGE, libc::MADV_DONTNEED);
            while libc::read(self.fd.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) > 0 {}
        }
    }
}
