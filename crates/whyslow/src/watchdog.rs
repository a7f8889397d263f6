//! The watchdog: whyslow always ends. If whyslow makes no step any more, a timer's signal ends it, whatever its threads do. The
//! signal also ends whyslow after a second request to end that it has not followed in time.
//!
//! CPU time that whyslow used counts as a step, too, up to a bound that no part of its work needs: a host on which whyslow gets a
//! hundredth of a CPU is a host that it must examine.
//!
//! The signal handler allocates nothing and waits for nothing.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::launch::inherited;

/// The watchdog checks this often whether there was a step.
const TICK: libc::timeval = libc::timeval { tv_sec: 15, tv_usec: 0 };
/// After so many ticks without a step whyslow ends: at least a minute, because the first tick may come right after the step.
const PATIENCE: u32 = 5;
/// After the second request to end, whyslow has this time left for its report. docs/run.md promises two seconds.
const LAST_WORDS: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 400_000 };
const NEVER: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };

/// If whyslow used less CPU time than this since the last tick, in ns, it waits for something else than a CPU: this is a thousandth of
/// a CPU. The tick itself takes up to a millisecond, and more if its pages were evicted: a bound of one millisecond kept a stuck
/// whyslow alive for 22 minutes.
static LEAST_CPU: AtomicU64 = AtomicU64::new(15_000_000);
/// A step that has used more CPU time than this, in ns, does not end any more. The longest step is to judge a large host, which
/// takes 7 s.
static MOST_CPU: AtomicU64 = AtomicU64::new(60_000_000_000);
/// CPU time at the last step, and at the last tick.
static AT_STEP: AtomicU64 = AtomicU64::new(0);
static AT_TICK: AtomicU64 = AtomicU64::new(0);
static STILL: AtomicU32 = AtomicU32::new(0);
static STATUS: AtomicI32 = AtomicI32::new(0);
static AT_ONCE: AtomicBool = AtomicBool::new(false);
static DOING: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// The pid of the command of `whyslow run`, whose status is more important than ours; 0: none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Starts the watchdog: from now on there must be steps. `status`: the exit status if there are none.
pub fn begin(status: u8) {
    STATUS.store(status.into(), Ordering::Relaxed);
    went_on();
    listen();
    set_timer(TICK);
}

/// As [`begin`], while the command of `whyslow run` runs: if the command has ended by then, whyslow exits with its status.
pub fn begin_beside(status: u8, command: u32) {
    COMMAND.store(command.cast_signed(), Ordering::Relaxed);
    begin(status);
}

/// The command has been waited for: the kernel may give its pid to another process.
pub fn forget_command() {
    COMMAND.store(0, Ordering::Relaxed);
}

/// A new step begins; `doing` names it.
pub fn step(doing: &'static CStr) {
    DOING.store(doing.as_ptr().cast_mut(), Ordering::Relaxed);
    went_on();
}

fn went_on() {
    AT_STEP.store(whyslow_probe::process_cpu_ns(), Ordering::Relaxed);
    STILL.store(0, Ordering::Relaxed);
}

/// The answer is complete: stops the watchdog, because the reader of the answer may be slow. After a second request to end, the
/// deadline stays.
pub fn done() {
    if !AT_ONCE.load(Ordering::Relaxed) {
        set_timer(NEVER);
    }
}

/// A signal asked whyslow a second time to end. If whyslow does not end by itself, it ends with the status of this signal. May be
/// called in a handler.
pub fn soon(signal: libc::c_int) {
    STATUS.store(128 + signal, Ordering::Relaxed);
    AT_ONCE.store(true, Ordering::Relaxed);
    listen();
    set_timer(LAST_WORDS);
}

fn listen() {
    // SAFETY: an all-zero sigaction and signal set are valid. SIGALRM is unblocked, because our parent may have blocked it.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = tick as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &raw const action, null_mut());
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
    }
}

/// The interval: a process that was stopped (Ctrl-Z) and continues sees one tick, and then has its full minute.
fn set_timer(time: libc::timeval) {
    let first = callers_alarm()
        .filter(|left| !is_set(time) || (left.tv_sec, left.tv_usec) < (time.tv_sec, time.tv_usec));
    let timer = libc::itimerval { it_interval: time, it_value: first.unwrap_or(time) };
    // SAFETY: a local struct; a plain system call.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut()) };
}

fn is_set(time: libc::timeval) -> bool {
    (time.tv_sec, time.tv_usec) != (0, 0)
}

/// The time until the alarm that our parent set; rounded up, because a tick before the alarm is due would wait once more.
fn callers_alarm() -> Option<libc::timeval> {
    let due = inherited::alarm()?;
    let left = due.saturating_sub(inherited::now()).max(1).div_ceil(1_000) + 1;
    Some(libc::timeval {
        tv_sec: (left / 1_000_000).cast_signed(),
        tv_usec: (left % 1_000_000).cast_signed(),
    })
}

/// Ends whyslow as the alarm would have without the watchdog: by SIGALRM, when the handler has returned.
fn end_by_callers_alarm() {
    // SAFETY: both calls are async-signal-safe.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::raise(libc::SIGALRM);
    }
}

extern "C" fn tick(_signal: libc::c_int) {
    let alarm = inherited::alarm();
    if alarm.is_some_and(|due| inherited::now() >= due) {
        return end_by_callers_alarm();
    }
    if AT_ONCE.load(Ordering::Relaxed) {
        say(c"whyslow: asked twice to end, whyslow ended without a report\n");
        end(STATUS.load(Ordering::Relaxed));
    }
    if alarm.is_some() {
        set_timer(TICK); // the parent's alarm may be due before the next tick
    }
    if is_at_work() {
        STILL.store(0, Ordering::Relaxed);
        return;
    }
    if STILL.fetch_add(1, Ordering::Relaxed).saturating_add(1) < PATIENCE {
        return;
    }
    say(c"whyslow: cannot finish: no progress for a minute while ");
    let doing = DOING.load(Ordering::Relaxed);
    // SAFETY: only pointers of static strings are stored.
    say(if doing.is_null() { c"starting" } else { unsafe { CStr::from_ptr(doing) } });
    say(c"; whyslow changed nothing on this host\n");
    end(of_command().unwrap_or_else(|| STATUS.load(Ordering::Relaxed)));
}

/// Whether whyslow used CPU time since the last tick, and the current step has not yet used more than any step needs.
fn is_at_work() -> bool {
    let now = whyslow_probe::process_cpu_ns();
    let since_tick = now.saturating_sub(AT_TICK.swap(now, Ordering::Relaxed));
    let since_step = now.saturating_sub(AT_STEP.load(Ordering::Relaxed));
    since_tick >= LEAST_CPU.load(Ordering::Relaxed) && since_step <= MOST_CPU.load(Ordering::Relaxed)
}

fn say(words: &CStr) {
    let bytes = words.to_bytes();
    // SAFETY: a live buffer. A write to a full pipe would block: poll(2) first.
    unsafe {
        let mut ready = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        if libc::poll(&raw mut ready, 1, 0) > 0 {
            libc::write(2, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

fn end(status: libc::c_int) -> ! {
    // SAFETY: ends all threads; no work is left.
    unsafe { libc::_exit(status) }
}

/// The status of our command, as a shell has it, if it has ended.
fn of_command() -> Option<libc::c_int> {
    let command = COMMAND.load(Ordering::Relaxed);
    let mut status = 0;
    // SAFETY: waitpid is async-signal-safe; the pointer is to a local.
    let ended = command > 0 && unsafe { libc::waitpid(command, &raw mut status, libc::WNOHANG) } == command;
    ended.then(|| {
        if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::FromRawFd as _;
    use std::time::Duration;

    use super::*;

    /// The exit status of a child that runs `work`, and what it writes to stderr.
    fn ended(work: fn()) -> (libc::c_int, String) {
        let mut ends = [0; 2];
        let mut status = 0;
        // SAFETY: between fork and the end the child makes system calls only; no other code has the descriptors.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                libc::dup2(ends[1], 2);
                work();
                libc::_exit(77);
            }
            libc::close(ends[1]);
            let mut said = String::new();
            File::from_raw_fd(ends[0]).read_to_string(&mut said).unwrap();
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            (libc::WEXITSTATUS(status), said)
        }
    }

    const SHORT: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 20_000 };

    fn hang() -> ! {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }

    fn spin(time: Duration) {
        let until = whyslow_probe::process_cpu_ns() + time.as_nanos() as u64;
        while whyslow_probe::process_cpu_ns() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_look_without_a_step_is_ended_and_says_at_what_it_was() {
        let (status, said) = ended(|| {
            begin(2);
            step(c"looking");
            set_timer(SHORT);
            hang();
        });
        assert_eq!(status, 2, "{said}");
        assert!(
            said.starts_with("whyslow: cannot finish: no progress ") && said.contains("while looking;"),
            "{said}"
        );
    }

    /// The ticks last at least a minute; the first tick may come right after a step.
    #[test]
    fn the_timer_is_set_and_its_ticks_are_a_minute() {
        assert!(TICK.tv_sec * i64::from(PATIENCE - 1) >= 60);
        // A process that gets a hundredth of a CPU is at work.
        assert!(LEAST_CPU.load(Ordering::Relaxed) <= TICK.tv_sec.unsigned_abs() * 1_000_000_000 / 100);
        let (status, _) = ended(|| {
            begin(2);
            // SAFETY: an all-zero itimerval is valid; the pointer is to a local.
            let set = unsafe {
                let mut timer = MaybeUninit::<libc::itimerval>::zeroed().assume_init();
                libc::getitimer(libc::ITIMER_REAL, &raw mut timer);
                timer
            };
            let due = set.it_value.tv_sec;
            let right = set.it_interval.tv_sec == TICK.tv_sec && (1..=TICK.tv_sec).contains(&due);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if right { 78 } else { 1 }) };
        });
        assert_eq!(status, 78);
    }

    #[test]
    fn timed_whyslow_that_makes_steps_or_is_done_is_left_alone() {
        let (status, said) = ended(|| {
            begin(2);
            set_timer(SHORT);
            for _ in 0..20 {
                // SAFETY: sleeps; a tick ends it early.
                unsafe { libc::usleep(10_000) };
                step(c"looking");
            }
            done();
            // SAFETY: as above.
            unsafe { libc::usleep(200_000) };
        });
        assert_eq!((status, said.as_str()), (77, ""));
    }

    /// As `alarm 1; exec whyslow` leaves it: an alarm outlives execve(2).
    #[test]
    fn an_alarm_of_who_started_us_ends_us_as_it_would_have() {
        for work in [
            || {
                begin(2);
                hang()
            },
            || {
                begin(2);
                done();
                hang()
            },
        ] {
            // SAFETY: between fork and the end the child makes system calls only.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::signal(libc::SIGALRM, libc::SIG_DFL);
                    set_timer(SHORT);
                    inherited::note_alarm();
                    work();
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM, "{status:#x}");
        }
    }

    /// A minute without a step, scaled down to 400 ms: a whyslow that works for half a second meanwhile is slow, not stuck.
    #[test]
    fn timed_whyslow_that_uses_cpu_time_without_steps_is_left_alone() {
        let (status, said) = ended(|| {
            begin(2);
            LEAST_CPU.store(1_000_000, Ordering::Relaxed);
            set_timer(libc::timeval { tv_sec: 0, tv_usec: 100_000 });
            spin(Duration::from_millis(700));
            done();
        });
        assert_eq!((status, said.as_str()), (77, ""));
    }

    /// A tick itself costs CPU time: 0.1 to 0.6 ms on an idle host, more if its pages were evicted meanwhile.
    #[test]
    fn timed_the_cost_of_the_ticks_is_no_work() {
        let (status, said) = ended(|| {
            begin(2);
            step(c"looking");
            set_timer(SHORT);
            for _ in 0..200 {
                // SAFETY: waits for a tick.
                unsafe { libc::pause() };
                spin(Duration::from_millis(2));
            }
            done();
        });
        assert_eq!(status, 2, "{said}");
    }

    #[test]
    fn step_that_exceeds_its_cpu_time_bound_ends_whyslow() {
        let (status, said) = ended(|| {
            begin(2);
            step(c"looking");
            MOST_CPU.store(20_000_000, Ordering::Relaxed);
            set_timer(SHORT);
            spin(Duration::from_secs(60));
        });
        assert_eq!(status, 2, "{said}");
        assert!(said.contains("while looking;"), "{said}");
    }

    #[test]
    fn second_stop_request_ends_whyslow_with_the_signals_status() {
        let (status, said) = ended(|| {
            begin(125);
            soon(libc::SIGTERM);
            done();
            set_timer(SHORT);
            hang();
        });
        assert_eq!(status, 143, "{said}");
        assert!(said.contains("asked twice"), "{said}");
    }

    #[test]
    fn a_command_that_ended_gives_its_status() {
        let (status, _) = ended(|| {
            // SAFETY: a child that ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends this process.
                unsafe { libc::_exit(9) };
            }
            // Wait until the child has ended, and leave its status to be read: the test must not depend on the scheduler.
            // SAFETY: all-zero is a valid siginfo, to be filled.
            unsafe {
                let mut info = std::mem::zeroed::<libc::siginfo_t>();
                let how = libc::WEXITED | libc::WNOWAIT;
                libc::waitid(libc::P_PID, child.unsigned_abs(), &raw mut info, how);
            }
            begin_beside(125, child.unsigned_abs());
            set_timer(SHORT);
            hang();
        });
        assert_eq!(status, 9);
    }
}
