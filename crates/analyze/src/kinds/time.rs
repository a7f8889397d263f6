//! Timers: a task's own sleep, and the kernel's on its behalf.

use super::table::{Row, by};
use super::{Class, Wait, WaitKind};

/// A task's own sleep. kernel/time/hrtimer.c, kernel/time/alarmtimer.c, fs/timerfd.c.
pub(super) const ROWS: &[Row] = &[
    by(
        &[
            "do_nanosleep",
            "hrtimer_nanosleep",
            "common_nsleep",
            "common_nsleep_timens",
            "alarm_timer_nsleep",
            "alarmtimer_do_nsleep",
        ],
        |_| own_sleep(),
    ),
    by(&["timerfd_read", "timerfd_read_iter"], |_| timeout("its own timer (timerfd)")),
];

/// The kernel sleeps, without waiting for anything but time. kernel/time/sleep_timeout.c.
const SLEEPS: &[&str] = &[
    "msleep",
    "msleep_interruptible",
    "fsleep",
    "usleep_range",
    "usleep_range_state",
    "schedule_timeout_uninterruptible",
    "schedule_timeout_interruptible",
    "schedule_timeout_killable",
    "schedule_timeout_idle",
];

pub(super) fn own_sleep() -> WaitKind {
    WaitKind::new("timer", "its own sleep", Class::Voluntary)
}

pub(super) fn timeout(what: &str) -> WaitKind {
    WaitKind::new("timer", what, Class::Voluntary)
}

/// Kernel code that sleeps for a fixed time while the caller waits: nobody can be followed, the function is the leaf.
pub(super) fn ask_sleep(wait: &Wait<'_>) -> Option<WaitKind> {
    SLEEPS.contains(&wait.first()?).then_some(())?;
    let function = wait.beyond(SLEEPS).unwrap_or("the kernel");
    if wait.is_kthread() && wait.span.work.is_none() && wait.frames.len() <= 4 {
        return Some(WaitKind::new("idle", format!("its next turn ({function})"), Class::Voluntary));
    }
    Some(WaitKind::new("sleep", format!("{function}, which sleeps"), Class::Needed))
}
