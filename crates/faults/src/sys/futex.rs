//! The futex system call, for locks of our own.

use std::io;
use std::sync::atomic::AtomicU32;

/// Adds whether the word is private to this process or shared with all processes that map it.
fn operation(operation: i32, shared: bool) -> i32 {
    if shared { operation } else { operation | libc::FUTEX_PRIVATE_FLAG }
}

fn call(word: &AtomicU32, operation: i32, value: u32) -> io::Result<()> {
    // SAFETY: the word lives through the call; no timeout, no second word.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            0,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sleep if the word still has this value, until another thread wakes us up. May end early.
pub fn wait(word: &AtomicU32, value: u32, shared: bool) {
    // EAGAIN and EINTR: read the word again, as after any other return.
    let _ = call(word, operation(libc::FUTEX_WAIT, shared), value);
}

/// Wake up one thread that sleeps on the word.
pub fn wake_one(word: &AtomicU32, shared: bool) {
    let _ = call(word, operation(libc::FUTEX_WAKE, shared), 1);
}

/// Acquire a lock whose word the kernel maintains (priority inheritance): it contains the owner's thread id.
pub fn lock_pi(word: &AtomicU32, shared: bool) -> io::Result<()> {
    call(word, operation(libc::FUTEX_LOCK_PI, shared), 0)
}

/// Release it to the waiter.
pub fn unlock_pi(word: &AtomicU32, shared: bool) -> io::Result<()> {
    call(word, operation(libc::FUTEX_UNLOCK_PI, shared), 0)
}
