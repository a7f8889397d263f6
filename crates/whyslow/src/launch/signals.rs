//! Signals while a command runs.
//!
//! The terminal sends Ctrl-C and Ctrl-\ to the whole foreground process group: the command has received them, and whyslow does not
//! pass them on. A signal from a process (kill, timeout, a service manager) is meant for the command: whyslow passes it on. A
//! second Ctrl-C, SIGINT or SIGTERM is for whyslow: it ends, with a report if there is time for one, and the command goes on.
//! While the command waits for its window to begin, each of these signals ends whyslow, and the command is not started.
//! SIGTSTP and SIGCONT have their usual effect: a shell stops and continues a job as a whole. Signals that were ignored when
//! whyslow was started (nohup, a shell's background job) stay ignored.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use super::inherited;
use crate::watchdog;

static STOP: AtomicBool = AtomicBool::new(false);
static ENDINGS: AtomicU32 = AtomicU32::new(0);
/// The signal that ended the window, or that came before the window began; 0: no signal.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// The pidfd of the command: unlike a pid, it cannot become another process's while it is open. -1: the command has not begun, or the
/// window is over.
static COMMAND: AtomicI32 = AtomicI32::new(-1);

/// The signals that are caught while the command runs.
const CAUGHT: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// The signal settings that the command starts with, and those that whyslow had before.
pub struct Signals {
    mask: libc::sigset_t,
    sigchld_was_ignored: bool,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Signals {
    /// Blocks signals until the command is started and [`Signals::catch`] is called.
    #[must_use]
    pub fn hold() -> Self {
        let sigchld_was_ignored = inherited::is_ignored(libc::SIGCHLD);
        // SAFETY: all-zero signal sets are valid and are filled here; SIG_DFL is a valid action. With an ignored SIGCHLD
        // the kernel would drop the exit status of the command.
        unsafe {
            let mut held = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            let mut mask = held;
            libc::sigemptyset(&raw mut held);
            for signal in CAUGHT {
                libc::sigaddset(&raw mut held, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, &raw mut mask);
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            // The watchdog has unblocked SIGALRM: the command gets it blocked again.
            if inherited::sigalrm_was_blocked() {
                libc::sigaddset(&raw mut mask, libc::SIGALRM);
            }
            Signals { mask, sigchld_was_ignored, before: Vec::new() }
        }
    }

    /// Called in the child before execve: restores all settings to those that whyslow was started with. Async-signal-safe.
    pub fn as_they_were(&self) {
        let action = |ignored| if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: plain system calls on this process. Handlers are not set before the fork, and execve drops them.
        unsafe {
            libc::signal(libc::SIGPIPE, action(inherited::sigpipe_was_ignored()));
            libc::signal(libc::SIGCHLD, action(self.sigchld_was_ignored));
            libc::signal(libc::SIGALRM, action(inherited::sigalrm_was_ignored()));
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut());
        }
    }

    /// From now on a signal ends the window before it begins, by the returned flag.
    pub fn catch(&mut self) -> &'static AtomicBool {
        for signal in CAUGHT {
            if inherited::is_ignored(signal) {
                continue;
            }
            // SAFETY: all-zero sigactions are valid: empty mask. The handler uses atomics and one system call.
            unsafe {
                let mut old = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                let mut new = old;
                new.sa_sigaction =
                    on_signal as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
                // Without SA_RESTART: a signal must end the poll(2) in which the window waits.
                new.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(signal, &raw const new, &raw mut old);
                self.before.push((signal, old));
            }
        }
        self.let_in();
        &STOP
    }

    /// From now on signals go to the command of this pidfd, and the second SIGINT or SIGTERM sets the flag. False: a signal has already
    /// ended the window, and the command must not begin.
    pub fn begin(command: RawFd) -> bool {
        // In this order: a signal that arrives between the two lines reaches the command while it waits at its gate.
        COMMAND.store(command, Ordering::SeqCst);
        Signals::ended_by().is_none()
    }

    /// The window is over: signals go to whyslow again, so that one signal ends a report that takes too long.
    pub fn release(&mut self) {
        for (signal, old) in self.before.drain(..) {
            // SAFETY: `old` is the action that the kernel returned before.
            unsafe { libc::sigaction(signal, &raw const old, null_mut()) };
        }
        COMMAND.store(-1, Ordering::Relaxed);
    }

    /// The signal that ended the window while the command went on, or before it began.
    #[must_use]
    pub fn ended_by() -> Option<libc::c_int> {
        Some(ENDED_BY.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// Unblocks the signals.
    pub fn let_in(&self) {
        // SAFETY: a mask that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut()) };
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    let asks = matches!(signal, libc::SIGINT | libc::SIGTERM);
    let again = asks && ENDINGS.fetch_add(1, Ordering::Relaxed) >= 1;
    let command = COMMAND.load(Ordering::SeqCst);
    if again || command < 0 {
        end_window(signal);
    } else if is_the_commands(signal, code) {
        pass_on(command, signal);
    }
    if again {
        watchdog::soon(signal);
    }
}

/// Whether whyslow must pass the signal on, because the command has not received it itself. A positive code is the kernel's own: what
/// the terminal sends (Ctrl-C, or a hangup) goes to the whole process group.
fn is_the_commands(signal: libc::c_int, code: libc::c_int) -> bool {
    signal == libc::SIGTERM || code <= 0
}

/// The first signal ends the window; later signals change nothing.
fn end_window(signal: libc::c_int) {
    if !STOP.swap(true, Ordering::Relaxed) {
        ENDED_BY.store(signal, Ordering::SeqCst);
    }
}

fn pass_on(command: RawFd, signal: libc::c_int) {
    // SAFETY: numbers and a null siginfo; the kernel checks the descriptor.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_pidfd_send_signal, command, signal, 0usize, 0u32);
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_signals_are_passed_on_and_terminal_signals_are_not() {
        for signal in CAUGHT {
            assert!(is_the_commands(signal, libc::SI_USER) && is_the_commands(signal, libc::SI_QUEUE));
            assert_eq!(is_the_commands(signal, libc::SI_KERNEL), signal == libc::SIGTERM);
        }
    }
}
