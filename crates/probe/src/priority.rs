//! On a host with forty tasks a CPU our quarter second of work would take ten: the answer is wanted while it matters.
//!
//! So we go first before the window, in which we are one of many, and again after it, until the answer has taken more than it
//! should: who is ill need not wait for us longer than that. A command that we run never inherits it.
//!
//! `run` needs it as much as an exam: with 40 busy tasks on two CPUs its command began after 27 and 41 s where only the answer
//! went first, and after 2.4 and 3.1 s since the loading does, too; the answer came 0.7 to 1.3 s after the end of the command,
//! and 5 to 19 s after it without.
//!
//! Niceness is a share *within* a group: among sessions of their own (kernel/sched/autogroup.c), or beside a cgroup with a weight, ours is
//! one of them, however nice. There a part of a CPU is reserved for each thread and child that the answer waits for (SCHED_DEADLINE): no
//! group divides it, and the kernel keeps the rest of that CPU for others, ksoftirqd among them, which a task of real-time priority would
//! not. Beside 20 busy sessions on two CPUs the window began after 5.7 s, and the answer came 1.1 to 4.7 s after it.
//!
//! Such a task goes before those of real-time priority, for a tick of the kernel at a time. Hosts that show that they have such work
//! get none of it: PREEMPT_RT, isolated CPUs, no limit on real-time tasks. Nor does who is held by a quota, which it would escape.
//!
//! No part lasts for long, whatever becomes of its thread: on 6.18 a thread that had used its part up was not given the next one. It stood
//! ready for 12 minutes on an idle host, in synchronize_rcu() below tracepoints_mutex, and all who attached to a tracepoint waited for it.
//! An ordinary thread takes parts back then.

use std::fs;
use std::mem::{MaybeUninit, size_of};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

/// Before all that are no real-time tasks.
const FIRST: libc::c_int = -20;
/// CPU time that the answer may take before others: that of a busy host takes 200 ms. The kernel ends it up to a tick
/// (10 ms) later.
const A_WHILE_US: libc::suseconds_t = 280_000;
/// CPU time of the loading with a part reserved; after it there is our niceness. It is 0.5 s on a fast machine, 1.1 s on a slow one.
const LOADING_US: libc::suseconds_t = 900_000;
/// Of each `PERIOD_NS` so much of one CPU is each one's: two fit on a CPU, of which the kernel gives away 95 %.
const RESERVED_NS: u64 = 4_500_000;
const PERIOD_NS: u64 = 10_000_000;
/// By the clock: the loading with a part takes 2 s where it gets no more than that.
const LONGEST: Duration = Duration::from_secs(2);
/// include/uapi/linux/sched.h.
const SCHED_DEADLINE: u32 = 6;

/// The thread that was raised; 0: none is.
static THREAD: AtomicI32 = AtomicI32::new(0);
static BEFORE: AtomicI32 = AtomicI32::new(0);
/// A part of a CPU is reserved for it.
static HAS_PART: AtomicBool = AtomicBool::new(false);
/// Counts the times that it was raised and lowered.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// From now on this thread goes first.
pub fn raise() {
    // SAFETY: plain numbers; refused without CAP_SYS_NICE, and then we wait like everybody.
    unsafe {
        let before = libc::getpriority(libc::PRIO_PROCESS, 0);
        let is_ordinary = libc::sched_getscheduler(0) == libc::SCHED_OTHER;
        let has_part = is_ordinary && is_crowded() && may_reserve() && limit_parts(LONGEST) && reserve();
        // While it has a part its niceness counts for nothing (kernel/sched/core.c, set_user_nice), and once that is over for all.
        let is_nice = before > FIRST && libc::setpriority(libc::PRIO_PROCESS, 0, FIRST) == 0;
        if has_part || is_nice {
            BEFORE.store(before, Ordering::Relaxed);
            THREAD.store(libc::gettid(), Ordering::Relaxed);
            HAS_PART.store(has_part, Ordering::Relaxed);
        }
        if has_part {
            on_timer(part_is_over);
            set_timer(LOADING_US);
        }
    }
}

/// A thread or process that was made by one that goes first does, too: what is reserved is not inherited, nor niceness by who has it.
pub(crate) fn inherit() {
    if is_raised() && !(HAS_PART.load(Ordering::Relaxed) && reserve()) {
        go_first();
    }
}

/// Some thread of ours goes first now.
pub(crate) fn is_raised() -> bool {
    THREAD.load(Ordering::Relaxed) != 0
}

/// ... by its niceness. The kernel shares the weight of a group out to CPUs by the load that it has on each (kernel/sched/fair.c,
/// calc_group_shares): where one thread counts for 86, the others of its session have little on other CPUs, the operator's shell among them.
pub(crate) fn is_raised_by_niceness() -> bool {
    is_raised() && !HAS_PART.load(Ordering::Relaxed)
}

/// For who goes from CPU to CPU, or outlasts it.
pub(crate) fn go_first() {
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, FIRST) };
}

/// CPUs that are online.
fn cpus() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(usize::MAX)
}

/// More are ready than there are CPUs.
fn is_crowded() -> bool {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let ready = text.split(' ').nth(3).and_then(|tasks| tasks.split('/').next()?.parse::<usize>().ok());
    ready.is_some_and(|ready| ready > cpus())
}

/// Nobody here has work of real-time priority, for all that is known without asking each task, and no quota or mask holds us.
fn may_reserve() -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let is_free = available_parallelism().is_ok_and(|all| all.get() >= cpus());
    is_free
        && read("/sys/kernel/realtime") != "1"
        && !read("/proc/sys/kernel/sched_rt_runtime_us").starts_with('-')
        && read("/sys/devices/system/cpu/isolated").is_empty()
}

/// A child of ours that was killed and is stuck keeps its part no longer, whether this thread has one still or not.
pub(crate) fn take_back(child: libc::pid_t) {
    be_ordinary(child);
}

fn be_ordinary(thread: libc::pid_t) {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain numbers and a local struct; of who is gone it is refused.
    unsafe { libc::sched_setscheduler(thread, libc::SCHED_OTHER, &raw const ordinary) };
}

/// Refused where the mask of this thread is smaller than what its scheduler spans, or others have reserved it all: then niceness is all.
fn reserve() -> bool {
    // SAFETY: all-zero is valid.
    let mut attr = unsafe { MaybeUninit::<libc::sched_attr>::zeroed().assume_init() };
    attr.size = size_of::<libc::sched_attr>() as u32;
    attr.sched_policy = SCHED_DEADLINE;
    attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    (attr.sched_runtime, attr.sched_deadline, attr.sched_period) = (RESERVED_NS, PERIOD_NS, PERIOD_NS);
    // SAFETY: a local struct of the size that it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
}

/// After that time no thread of ours has a part that it has now, or gets until [`lower`].
fn limit_parts(time: Duration) -> bool {
    let round = ROUND.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let limit = move || {
        thread::sleep(time);
        if ROUND.load(Ordering::Relaxed) != round {
            return;
        }
        // It may be all that can be known: of open files there may be none left.
        give_back(THREAD.load(Ordering::Relaxed));
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let pids = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<libc::pid_t>().ok());
        pids.filter(|pid| has_part(*pid)).for_each(be_ordinary);
    };
    thread::Builder::new().name("whyslow".to_owned()).spawn(limit).is_ok()
}

fn has_part(thread: libc::pid_t) -> bool {
    const POLICY: libc::c_int = 0xff; // the rest are flags
    // SAFETY: takes a number; of who is gone it is -1.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    policy >= 0 && (policy & POLICY).cast_unsigned() == SCHED_DEADLINE
}

/// ... for so much CPU time more.
pub fn for_a_while() {
    if !is_raised() {
        return;
    }
    on_timer(over);
    set_timer(A_WHILE_US);
}

fn on_timer(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: an all-zero sigaction is valid: empty mask. The handlers use atomics and three system calls.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, null_mut());
        // Whoever started us may have held it back.
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
    }
}

/// Back to what it was.
pub fn as_it_was() {
    if is_raised() {
        set_timer(0);
        lower();
    }
}

extern "C" fn over(_signal: libc::c_int) {
    lower();
}

extern "C" fn part_is_over(_signal: libc::c_int) {
    give_back(THREAD.load(Ordering::Relaxed));
}

/// One thread of ours, which lives as long as the process.
fn give_back(thread: libc::pid_t) {
    if thread != 0 && HAS_PART.swap(false, Ordering::Relaxed) {
        be_ordinary(thread);
    }
}

fn lower() {
    ROUND.fetch_add(1, Ordering::Relaxed);
    let thread = THREAD.swap(0, Ordering::Relaxed);
    if thread != 0 {
        give_back(thread);
        // SAFETY: plain numbers.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, thread.unsigned_abs(), BEFORE.load(Ordering::Relaxed))
        };
    }
}

fn set_timer(us: libc::suseconds_t) {
    let once = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: 0, tv_usec: us },
    };
    // SAFETY: a local struct. The timer counts CPU time of all our threads.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const once, null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// As of a thread that the kernel does not let go on.
    #[test]
    fn root_a_part_that_lasts_too_long_is_taken_back() {
        let kept = thread::spawn(|| {
            // SAFETY: takes nothing, cannot fail.
            let own = unsafe { libc::gettid() };
            if !reserve() {
                println!("not run: no part may be reserved here: {}", std::io::Error::last_os_error());
                return true;
            }
            assert!(has_part(own));
            assert!(limit_parts(Duration::from_millis(100)));
            let began = Instant::now();
            while has_part(own) && began.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(1));
            }
            !has_part(own)
        });
        assert!(kept.join().unwrap());
    }
}
