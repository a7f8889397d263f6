//! Ctrl-C ends the window early and the report still comes; a second Ctrl-C quits.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Catch the first SIGINT and the first SIGTERM; true from then on. `SA_RESETHAND`: the second one kills.
pub fn catch() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is valid: default action, empty mask. The handler only stores to an atomic.
        unsafe {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            // A shell that starts us in the background, and nohup, have Ctrl-C ignored: so it stays.
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            new.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
            new.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const new, std::ptr::null_mut());
        }
    }
    &STOP
}
