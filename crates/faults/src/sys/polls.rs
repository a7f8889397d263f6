//! Polling for events and bytes, with and without waiting.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::check;

const EVENTS: usize = 16;

/// An event that can be raised and taken.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?)) }
}

/// Raise it.
pub fn raise_event(event: &OwnedFd) {
    // SAFETY: the source has eight bytes.
    unsafe { libc::write(event.as_raw_fd(), (&raw const ONE).cast(), 8) };
}

static ONE: u64 = 1;

/// Clear it, if it is raised.
pub fn take_event(event: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: room for eight bytes.
    unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// A set of descriptors to poll.
pub fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the new descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?)) }
}

/// Watch a descriptor for data; `ready` returns its `token`.
pub fn watch(epoll: &OwnedFd, fd: &impl AsRawFd, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
    // SAFETY: the event outlives the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) })
        .map(drop)
}

/// The tokens of readable descriptors. `timeout_ms`: 0 does not wait, -1 waits forever.
pub fn ready(epoll: &OwnedFd, timeout_ms: i32) -> Ready {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    // SAFETY: room for so many events.
    let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, timeout_ms) };
    Ready { events, n: usize::try_from(n).unwrap_or(0), at: 0 }
}

/// Tokens of readable descriptors.
pub struct Ready {
    events: [libc::epoll_event; EVENTS],
    n: usize,
    at: usize,
}

impl Ready {
    /// Whether no descriptor is readable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}

impl Iterator for Ready {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let event = self.events[..self.n].get(self.at)?;
        self.at += 1;
        Some(event.u64)
    }
}

/// Receive pending bytes without waiting. Returns their number; 0 also if there are none, and on an error.
pub fn receive_now(socket: &OwnedFd, into: &mut [u8]) -> usize {
    // SAFETY: room for the requested bytes.
    let n =
        unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    usize::try_from(n).unwrap_or(0)
}

/// Send these bytes; bytes that do not fit are lost.
pub fn send(socket: &OwnedFd, bytes: &[u8]) {
    // SAFETY: the bytes have the given length.
    unsafe {
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL);
    }
}

/// Wait until a descriptor is readable, at most so long; -1: forever. False: nothing arrived.
pub fn can_be_read(fd: &OwnedFd, timeout_ms: i32) -> io::Result<bool> {
    let mut look = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    check(unsafe { libc::poll(&raw mut look, 1, timeout_ms) }).map(|n| n > 0)
}

/// The same with select(), forever.
pub fn select(fd: &OwnedFd) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: the set is ours, zeroed is empty, and the descriptor is below FD_SETSIZE: few are open.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &raw mut set);
        check(libc::select(fd + 1, &raw mut set, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())).map(drop)
    }
}
