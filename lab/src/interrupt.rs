//! SIGINT and SIGTERM: the first asks the driver to end what it started and leave, the second ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::SeqCst);
}

/// From now on a signal interrupts waiting (`child::wait`), and the waiting code cleans up.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid; the handler only stores to an atomic. No SA_RESTART: poll must return.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Was the driver asked to leave?
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
