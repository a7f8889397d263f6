//! Ctrl-C or SIGTERM ends the window early, and whyslow still reports; a second signal of either kind ends whyslow.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(signal: libc::c_int) {
    if STOP.swap(true, Ordering::Relaxed) {
        // SAFETY: both are async-signal-safe. The signal is blocked in its own handler, and kills when the handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// The window is over and the answer is complete: from here on the first signal ends whyslow, also while it blocks in a write to a
/// pipe that no process reads.
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

/// Catches SIGINT and SIGTERM: the first signal sets the returned flag, the second one kills.
pub fn catch() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is valid: default action, empty mask. The handler is async-signal-safe.
        unsafe {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            // A shell that starts whyslow in the background, and nohup, set SIGINT to be ignored: it stays ignored.
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
