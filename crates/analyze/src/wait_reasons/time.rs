//! Timers: a task's own sleep, and the kernel's on its behalf.

use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::table::{Row, by};
use super::{Class, WaitContext, WaitKind};

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
    by(&["timerfd_read", "timerfd_read_iter"], |_| timeout(WaitTarget::TimerfdTimer)),
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
    WaitKind::target(WaitTarget::OwnSleep, Class::Timer)
}

pub(super) fn timeout(timer: WaitTarget) -> WaitKind {
    WaitKind::target(timer, Class::Timer)
}

/// Kernel code that sleeps for a fixed time while the caller waits: there is no task to follow, so the function is the leaf.
pub(super) fn ask_sleep(wait: &WaitContext<'_>) -> Option<WaitKind> {
    SLEEPS.contains(&wait.first()?).then_some(())?;
    let function = wait.beyond(SLEEPS).map(str::to_owned);
    if is_between_turns(wait) {
        return Some(WaitKind::new(Reason::Idle, Detail::NextTurn { function }, Class::Timer));
    }
    Some(sleeps(function, Class::Dependency))
}

/// The same, recognized by its end. `usleep_range_state` and `schedule_timeout*` are code of the scheduler (`__sched`), which the
/// kernel leaves out of the stack of a task that sleeps (stack_trace_consume_entry_nosched, get_wchan): only the caller is
/// seen. If the sleep was uninterruptible, for nothing that is known, and ended by a timer, it was such a sleep.
pub(super) fn ask_end(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let slept = wait.span.state == State::Blocked && wait.woken_by_timer();
    let function = wait.first().filter(|_| slept)?;
    let function = Some(function.to_owned());
    Some(sleeps(function, if is_between_turns(wait) { Class::Timer } else { Class::Dependency }))
}

fn sleeps(function: Option<String>, class: Class) -> WaitKind {
    WaitKind::new(Reason::Sleep, Detail::Sleeps { function }, class)
}

/// A kernel thread of its own, not far from its outermost function: it works for no other task.
fn is_between_turns(wait: &WaitContext<'_>) -> bool {
    wait.is_kthread() && wait.span.work.is_none() && wait.frames.len() <= 4
}
