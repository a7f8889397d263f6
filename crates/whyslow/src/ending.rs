//! It always ends: a look that makes no step any more is ended by a timer's signal, whatever our threads are at. So is one
//! that was asked twice to end and has not done so.
//!
//! CPU time that we used is a step, too, up to what no part of a look takes: a host that is so slow that we get a hundredth
//! of a CPU is the one that we were asked about.
//!
//! What runs in the signal's handler allocates nothing and waits for nobody.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::launch::inherited;

/// How often it is looked whether there was a step.
const TICK: libc::timeval = libc::timeval { tv_sec: 15, tv_usec: 0 };
/// Ticks without a step after which nobody hopes any more: a minute at least, for the first may come right after the step.
const PATIENCE: u32 = 5;
/// Who was asked twice has so long to tell what it has seen. Two seconds are promised.
const LAST_WORDS: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 400_000 };
const NEVER: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };

/// Who used less CPU time than this since the last tick, in ns, waits for something else than a CPU: it is a thousandth of
/// one. The tick itself takes up to a millisecond, and more where its pages were taken away: a bound of one kept a
/// stuck look alive for 22 minutes.
static LEAST_CPU: AtomicU64 = AtomicU64::new(15_000_000);
/// A part of a look that has used more CPU time than this, in ns, comes to no end: to judge a large host is one part, and
/// takes 7 s.
static MOST_CPU: AtomicU64 = AtomicU64::new(60_000_000_000);
/// CPU time at the last step, and at the last tick.
static AT_STEP: AtomicU64 = AtomicU64::new(0);
static AT_TICK: AtomicU64 = AtomicU64::new(0);
static STILL: AtomicU32 = AtomicU32::new(0);
static STATUS: AtomicI32 = AtomicI32::new(0);
static AT_ONCE: AtomicBool = AtomicBool::new(false);
static DOING: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// A command of ours whose status is worth more than ours; 0: none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// From now on there must be steps. `status`: with which to exit if there are none.
pub fn begin(status: u8) {
    STATUS.store(status.into(), Ordering::Relaxed);
    went_on();
    listen();
    set_timer(TICK);
}

/// The same while a command of ours runs: if it has ended by then, we exit as it did.
pub fn begin_beside(status: u8, command: u32) {
    COMMAND.store(command.cast_signed(), Ordering::Relaxed);
    begin(status);
}

/// The command has been waited for: its number is nobody's any more.
pub fn forget_command() {
    COMMAND.store(0, Ordering::Relaxed);
}

/// It goes on, with this.
pub fn step(doing: &'static CStr) {
    DOING.store(doing.as_ptr().cast_mut(), Ordering::Relaxed);
    went_on();
}

fn went_on() {
    AT_STEP.store(whyslow_probe::process_cpu_ns(), Ordering::Relaxed);
    STILL.store(0, Ordering::Relaxed);
}

/// The answer is there: whoever reads it may take his time. Who was asked twice has no more than before.
pub fn done() {
    if !AT_ONCE.load(Ordering::Relaxed) {
        set_timer(NEVER);
    }
}

/// It was asked a second time to end, by a signal: with the status of that, if it does not come to its end by itself. May be
/// called in a handler.
pub fn soon(signal: libc::c_int) {
    STATUS.store(128 + signal, Ordering::Relaxed);
    AT_ONCE.store(true, Ordering::Relaxed);
    listen();
    set_timer(LAST_WORDS);
}

fn listen() {
    // SAFETY: an all-zero sigaction and signal set are valid. Whoever started us may have held SIGALRM back.
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

/// The interval lets a stopped process (Ctrl-Z) that goes on see one tick, and then have its minute.
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

/// The time until the alarm of whoever started us; no less, or it would be waited for once more.
fn callers_alarm() -> Option<libc::timeval> {
    let due = inherited::alarm()?;
    let left = due.saturating_sub(inherited::now()).max(1).div_ceil(1_000) + 1;
    Some(libc::timeval {
        tv_sec: (left / 1_000_000).cast_signed(),
        tv_usec: (left % 1_000_000).cast_signed(),
    })
}

/// It ends us as it would have: by its signal, when the handler has returned.
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
        say(c"whyslow: asked twice to end, it ended without its report\n");
        end(STATUS.load(Ordering::Relaxed));
    }
    if alarm.is_some() {
        set_timer(TICK); // it may be due before the next tick
    }
    if is_at_work() {
        STILL.store(0, Ordering::Relaxed);
        return;
    }
    if STILL.fetch_add(1, Ordering::Relaxed).saturating_add(1) < PATIENCE {
        return;
    }
    say(c"whyslow: the look did not come to its end, and was ended: for a minute there was no step in ");
    let doing = DOING.load(Ordering::Relaxed);
    // SAFETY: only pointers of static strings are stored.
    say(if doing.is_null() { c"its beginning" } else { unsafe { CStr::from_ptr(doing) } });
    say(c"; it changed nothing on this host\n");
    end(of_command().unwrap_or_else(|| STATUS.load(Ordering::Relaxed)));
}

/// Whether there was work since the last tick, and not yet more of it than any part of a look is.
fn is_at_work() -> bool {
    let now = whyslow_probe::process_cpu_ns();
    let since_tick = now.saturating_sub(AT_TICK.swap(now, Ordering::Relaxed));
    let since_step = now.saturating_sub(AT_STEP.load(Ordering::Relaxed));
    since_tick >= LEAST_CPU.load(Ordering::Relaxed) && since_step <= MOST_CPU.load(Ordering::Relaxed)
}

fn say(words: &CStr) {
    let bytes = words.to_bytes();
    // SAFETY: a live buffer. A stderr that takes nothing must not keep us: it is asked first.
    unsafe {
        let mut ready = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
        if libc::poll(&raw mut ready, 1, 0) > 0 {
            libc::write(2, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

fn end(status: libc::c_int) -> ! {
    // SAFETY: ends all threads; nothing is left to be done.
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

    /// What becomes of a child that does this, and what it says.
    fn ended(work: fn()) -> (libc::c_int, String) {
        let mut ends = [0; 2];
        let mut status = 0;
        // SAFETY: between fork and the end the child makes system calls only; the descriptors are nobody else's.
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
            said.starts_with("whyslow: the look did not come to its end") && said.contains("in looking;"),
            "{said}"
        );
    }

    /// A minute at least, and the first tick may come right after a step.
    #[test]
    fn the_timer_is_set_and_its_ticks_are_a_minute() {
        assert!(TICK.tv_sec * i64::from(PATIENCE - 1) >= 60);
        // Who gets a hundredth of a CPU is at work.
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
    fn timed_who_makes_steps_or_has_its_answer_is_left_alone() {
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

    /// A minute without a step, scaled down to 400 ms: half a second of work in it is not stuck, it is slow.
    #[test]
    fn timed_who_has_work_and_gets_cpu_time_for_it_is_left_alone() {
        let (status, said) = ended(|| {
            begin(2);
            LEAST_CPU.store(1_000_000, Ordering::Relaxed);
            set_timer(libc::timeval { tv_sec: 0, tv_usec: 100_000 });
            spin(Duration::from_millis(700));
            done();
        });
        assert_eq!((status, said.as_str()), (77, ""));
    }

    /// A tick costs CPU time by itself: 0.1 to 0.6 ms on an idle host, more where its pages were taken away meanwhile.
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
    fn who_works_for_longer_than_any_step_takes_is_ended() {
        let (status, said) = ended(|| {
            begin(2);
            step(c"looking");
            MOST_CPU.store(20_000_000, Ordering::Relaxed);
            set_timer(SHORT);
            spin(Duration::from_secs(60));
        });
        assert_eq!(status, 2, "{said}");
        assert!(said.contains("in looking;"), "{said}");
    }

    #[test]
    fn who_was_asked_twice_ends_with_the_signals_status_whatever_it_is_at() {
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
            // It has ended, and nobody has asked how: not a matter of who gets a CPU first.
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
