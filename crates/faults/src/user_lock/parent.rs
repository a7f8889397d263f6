//! A parent that waits for its children until its own deadline.

use std::io;

use super::{Meanwhile, Plan, act, note};
use crate::{clock, sys};

extern "C" fn nothing(_: i32) {}

/// The children keep working; the parent's alarm ends its wait, and the children end with it.
pub(super) fn live(plan: &Plan, does: Meanwhile) -> io::Result<()> {
    for name in plan.names.iter().skip(1) {
        if sys::fork()? {
            sys::die_with_parent()?;
            sys::set_name(name);
            act(does, plan.ms * 3);
            sys::leave(0);
        }
    }
    sys::set_name(&plan.names[0]);
    // SAFETY: the handler does nothing, and calls are not restarted (no SA_RESTART); waitpid may write nothing.
    let from = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let mut timer: libc::itimerval = std::mem::zeroed();
        timer.it_value =
            libc::timeval { tv_sec: (plan.ms / 1000) as i64, tv_usec: (plan.ms % 1000) as i64 * 1000 };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        let from = clock::now();
        libc::waitpid(-1, std::ptr::null_mut(), 0);
        from
    };
    note(plan, from, clock::now())
}
