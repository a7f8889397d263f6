//! Maps that several objects share: the scheduler's object makes them, the others reuse them. See `shared.bpf.h`.

use std::os::fd::BorrowedFd;

/// The maps of the scheduler's object, for the others.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'fd> {
    /// Where each task's time went.
    pub slots: BorrowedFd<'fd>,
    /// The kernel lock that each task waits for.
    pub lock_waits: BorrowedFd<'fd>,
    /// Whom a trace follows.
    pub followed: BorrowedFd<'fd>,
}
