//! Memory whose page faults a thread of ours serves: a system call that touches it stops in the middle, with all kernel locks that it
//! holds, until that thread provides the page.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = 4096;
const API_VERSION: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1;
// _IOWR(0xaa, nr, size): not in libc.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;

/// One page that is missing until it is provided.
pub struct MissingPage {
    fd: OwnedFd,
    at: *mut u8,
}

// SAFETY: the page is only passed to system calls and read as a volatile byte; the descriptor may be used by any thread.
unsafe impl Send for MissingPage {}
// SAFETY: as above.
unsafe impl Sync for MissingPage {}

impl MissingPage {
    /// A new missing page, private to this process.
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

    /// Its address.
    #[must_use]
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Touch it: sleeps until the page is provided.
    pub fn touch(&self) {
        // SAFETY: mapped and readable for as long as `self` lives.
        unsafe { self.at.read_volatile() };
    }

    /// Whether a thread has touched it and waits.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd; returns at once.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
    }

    /// Provide the page, and wake up its waiter.
    pub fn give(&self) -> io::Result<()> {
        self.ask(UFFDIO_ZEROPAGE, [self.at as u64, PAGE as u64, 0, 0])
    }

    /// Remove the page, and forget its waiters: the next touch waits again.
    pub fn take_away(&self) {
        let mut message = [0_u8; 32];
        // SAFETY: the page belongs to `self`; a message has 32 bytes; the descriptor does not block.
        unsafe {
            libc::madvise(self.at.cast(), PAGE, libc::MADV_DONTNEED);
            while libc::read(self.fd.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) > 0 {}
        }
    }
}
