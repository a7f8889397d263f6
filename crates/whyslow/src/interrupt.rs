//! Ctrl-C, or SIGTERM, ends the window early and the report still comes; a second one, of either sort, quits.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(signal: libc::c_int) {
    if STOP.swap(true, Ordering::Relaxed) {
        // SAFETY: both are async-signal-safe. Held back in its own handler, the signal kills when that returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// There is an answer, and nothing to end early: from here on the first one ends us, also where nobody reads what we print.
pub fn release() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is valid, and SIG_DFL is a handler.
        unsafe {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            if old.sa_sigaction == stop as extern "C" fn(libc::c_int) as libc::sighandler_t {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Catch SIGINT and SIGTERM: the first one makes this true, the second one kills.
pub fn catch() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is valid: default action, empty mask. The handler is async-signal-safe.
        unsafe {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            // A shell that starts us in the background, and nohup, have Ctrl-C ignored: so it stays.
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            new.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const new, std::ptr::null_mut());
        }
    }
    &STOP
}
