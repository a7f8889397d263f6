//! On a host with forty runnable tasks per CPU a quarter second of work would take ten seconds. The user needs the answer earlier.
//!
//! So whyslow raises its priority before the window, in which it is one of many, and again after it, until the answer has used more CPU
//! time than it should: a slow host must not wait for whyslow longer than that. A command that whyslow runs never inherits the priority.
//!
//! `run` needs it as much as an observation of the host: with 40 busy tasks on two CPUs its command began after 27 and 41 s while only
//! the answer had priority, and after 2.4 and 3.1 s since the loading has it, too. The answer came 0.7 to 1.3 s after the end of the
//! command, and 5 to 19 s after it without.
//!
//! Niceness is a share *within* a group: among sessions with autogroups (kernel/sched/autogroup.c), or beside a cgroup with a weight, our
//! group is one of them, whatever its niceness. There a part of a CPU is reserved for each thread and child that the answer waits for
//! (SCHED_DEADLINE). No group divides a reservation, and the kernel keeps the rest of that CPU for other tasks, ksoftirqd among them. A task
//! of real-time priority would not leave them that rest. Beside 20 busy sessions on two CPUs the window began after 5.7 s, and the answer
//! came 1.1 to 4.7 s after it.
//!
//! A task with a reservation runs before tasks of real-time priority, for a tick of the kernel at a time. Hosts that seem to have real-time
//! work get no reservation: PREEMPT_RT, isolated CPUs, no limit on real-time tasks. Nor does a whyslow under a quota, which it would escape.
//!
//! No reservation lasts for long, whatever happens to its thread: on 6.18 a thread that had used up its runtime did not get the next one. It
//! stood ready for 12 minutes on an idle host, in synchronize_rcu() below tracepoints_mutex, and every process that attached to a tracepoint
//! waited for it. So an ordinary thread takes the reservations back after a time limit.

use std::fs;
use std::mem::{MaybeUninit, size_of};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

/// The highest priority of tasks that are not real-time.
const FIRST: libc::c_int = -20;
/// CPU time that the answer may use with priority: on a busy host it takes 200 ms. The kernel ends it up to a tick
/// (10 ms) later.
const A_WHILE_US: libc::suseconds_t = 280_000;
/// CPU time of the loading with a reservation; after it the niceness remains. Loading takes 0.5 s on a fast machine, 1.1 s on a slow one.
const LOADING_US: libc::suseconds_t = 900_000;
/// So much CPU time in each `PERIOD_NS` is reserved per thread: two fit on a CPU, of which the kernel gives away 95 %.
const RESERVED_NS: u64 = 4_500_000;
const PERIOD_NS: u64 = 10_000_000;
/// Time limit by the clock: the loading takes 2 s with a reservation and no other CPU time.
const LONGEST: Duration = Duration::from_secs(2);
/// include/uapi/linux/sched.h.
const SCHED_DEADLINE: u32 = 6;

/// The thread with raised priority; 0: none.
static THREAD: AtomicI32 = AtomicI32::new(0);
static BEFORE: AtomicI32 = AtomicI32::new(0);
/// That thread has a CPU reservation.
static HAS_PART: AtomicBool = AtomicBool::new(false);
/// Counts how often the priority was raised and lowered.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Raise the priority of this thread.
pub fn raise() {
    // SAFETY: plain numbers; refused without CAP_SYS_NICE: then it waits like other tasks.
    unsafe {
        let before = libc::getpriority(libc::PRIO_PROCESS, 0);
        let is_ordinary = libc::sched_getscheduler(0) == libc::SCHED_OTHER;
        let has_part = is_ordinary && is_crowded() && may_reserve() && limit_parts(LONGEST) && reserve();
        // While the thread has a reservation its niceness has no effect (kernel/sched/core.c, set_user_nice); it takes effect when that ends.
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

/// Raise a thread or process that a raised thread made: a reservation is not inherited, nor is niceness while the parent has a reservation.
pub(crate) fn inherit() {
    if is_raised() && !(HAS_PART.load(Ordering::Relaxed) && reserve()) {
        go_first();
    }
}

/// Whether a thread of ours has raised priority now.
pub(crate) fn is_raised() -> bool {
    THREAD.load(Ordering::Relaxed) != 0
}

/// Whether it is raised by niceness alone. The kernel divides the weight of a group among CPUs by the group's load on each
/// (kernel/sched/fair.c, calc_group_shares): beside a thread that counts for 86, the other threads of its session get little on other CPUs,
/// the operator's shell among them.
pub(crate) fn is_raised_by_niceness() -> bool {
    is_raised() && !HAS_PART.load(Ordering::Relaxed)
}

/// Raise the niceness only: for a thread that moves from CPU to CPU, or lives longer than a reservation.
pub(crate) fn go_first() {
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, FIRST) };
}

/// The number of online CPUs.
fn cpus() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(usize::MAX)
}

/// More tasks are ready than there are CPUs.
fn is_crowded() -> bool {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let ready = text.split(' ').nth(3).and_then(|tasks| tasks.split('/').next()?.parse::<usize>().ok());
    ready.is_some_and(|ready| ready > cpus())
}

/// No task here seems to have real-time work, as far as that is known without asking each task, and no quota or mask limits us.
fn may_reserve() -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let is_free = available_parallelism().is_ok_and(|all| all.get() >= cpus());
    is_free
        && read("/sys/kernel/realtime") != "1"
        && !read("/proc/sys/kernel/sched_rt_runtime_us").starts_with('-')
        && read("/sys/devices/system/cpu/isolated").is_empty()
}

/// Take the reservation back from a child that was killed and is stuck, whether this thread still has its own or not.
pub(crate) fn take_back(child: libc::pid_t) {
    be_ordinary(child);
}

fn be_ordinary(thread: libc::pid_t) {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain numbers and a local struct; refused if the thread is gone.
    unsafe { libc::sched_setscheduler(thread, libc::SCHED_OTHER, &raw const ordinary) };
}

/// Refused where this thread may use fewer CPUs than its scheduler spans, or where others have reserved everything: niceness remains then.
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

/// After this time no thread of ours keeps a reservation that it has now, or gets until [`lower`].
fn limit_parts(time: Duration) -> bool {
    let round = ROUND.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let limit = move || {
        thread::sleep(time);
        if ROUND.load(Ordering::Relaxed) != round {
            return;
        }
        // This thread may be the only one that is known: there may be no open files left to list the others.
        give_back(THREAD.load(Ordering::Relaxed));
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let pids = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<libc::pid_t>().ok());
        pids.filter(|pid| has_part(*pid)).for_each(be_ordinary);
    };
    thread::Builder::new().name("whyslow".to_owned()).spawn(limit).is_ok()
}

fn has_part(thread: libc::pid_t) -> bool {
    const POLICY: libc::c_int = 0xff; // the rest are flags
    // SAFETY: takes a number; -1 if the thread is gone.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    policy >= 0 && (policy & POLICY).cast_unsigned() == SCHED_DEADLINE
}

/// Keep the raised priority for so much CPU time more.
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
        // The parent process may have blocked the signal.
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
    }
}

/// Restore the priority.
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

/// Take the reservation back from a thread of ours that lives as long as the process.
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

    /// A thread that the kernel keeps from running on.
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
