//! Signal settings that this process was started with, and that it changes before it needs to know them.
//!
//! Rust's runtime ignores SIGPIPE, and an ignored signal stays ignored over execve: `whyslow run -- yes | head -1`
//! would never end. The caller's setting can be read only before the runtime starts: in `.init_array`. SIGALRM is the signal of our
//! own watchdog.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGALRM_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGALRM_WAS_BLOCKED: AtomicBool = AtomicBool::new(false);
/// When the alarm is due that our parent has set, in ns of CLOCK_MONOTONIC; 0: no alarm.
static ALARM: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_RUNTIME: extern "C" fn() = look;

extern "C" fn look() {
    SIGPIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    SIGALRM_WAS_IGNORED.store(is_ignored(libc::SIGALRM), Ordering::Relaxed);
    // SAFETY: an all-zero signal set is valid, and is filled here; no set changes nothing.
    let blocked = unsafe {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        libc::sigismember(&raw const mask, libc::SIGALRM) == 1
    };
    SIGALRM_WAS_BLOCKED.store(blocked, Ordering::Relaxed);
    note_alarm();
}

/// Whether SIGPIPE was ignored when whyslow was started.
pub fn sigpipe_was_ignored() -> bool {
    SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

/// Whether SIGALRM was ignored when whyslow was started.
pub fn sigalrm_was_ignored() -> bool {
    SIGALRM_WAS_IGNORED.load(Ordering::Relaxed)
}

/// Whether SIGALRM was blocked when whyslow was started.
pub fn sigalrm_was_blocked() -> bool {
    SIGALRM_WAS_BLOCKED.load(Ordering::Relaxed)
}

/// Whether a signal is ignored now.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is valid, and the kernel fills it.
    unsafe {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Reads the alarm that our parent set (`alarm 30; exec whyslow`: an alarm outlives execve(2)); it ends whyslow when it is due. An
/// alarm does not count if SIGALRM was ignored or blocked.
pub fn note_alarm() {
    let mut timer = MaybeUninit::<libc::itimerval>::zeroed();
    // SAFETY: an all-zero itimerval is valid, and the kernel fills it.
    let left = unsafe {
        libc::getitimer(libc::ITIMER_REAL, timer.as_mut_ptr());
        timer.assume_init().it_value
    };
    let ns = left.tv_sec.unsigned_abs().saturating_mul(1_000_000_000);
    let ns = ns.saturating_add(left.tv_usec.unsigned_abs().saturating_mul(1_000));
    if ns > 0 && !sigalrm_was_ignored() && !sigalrm_was_blocked() {
        ALARM.store(now().saturating_add(ns), Ordering::Relaxed);
    }
}

/// When that alarm is due, on the clock of [`now`].
pub fn alarm() -> Option<u64> {
    Some(ALARM.load(Ordering::Relaxed)).filter(|due| *due > 0)
}

/// CLOCK_MONOTONIC, in ns. May be called in a handler.
pub fn now() -> u64 {
    whyslow_probe::monotonic_ns()
}
