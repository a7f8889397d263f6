//! Futexes: the kernel knows only a word in memory; the expected value and the operation show what the futex stands for.

use super::table::{Row, by};
use super::{Class, Stacks, WaitContext, WaitKind, time};
use whyslow_model::syscall::{CONTENDED, FUTEX, FUTEX_TID_MASK, FUTEX_WAIT, FUTEX_WAITERS, PID_MAX_LIMIT};
use whyslow_model::timeline::Span;
use whyslow_model::wait::WaitTarget;

/// include/uapi/linux/futex.h.
const PRIVATE: u64 = 128;
const REALTIME: u64 = 256;
const WAIT: u64 = 0;
const LOCK_PI: u64 = 6;
const WAIT_BITSET: u64 = 9;
const LOCK_PI2: u64 = 13;

/// Rust std's RwLock: all reader bits set is "write-locked", the next bit is "readers wait". With "writers wait", too, it
/// would be -1; but -1 is what a parked thread of Rust std waits on, and there are far more of those.
const RUST_WRITE_LOCKED: u32 = 0x7fff_ffff;

/// kernel/futex/waitwake.c (kernel/futex.c before v5.16).
pub(super) const ROWS: &[Row] = &[by(
    &[
        "futex_do_wait",
        "futex_wait_queue",
        "futex_wait_queue_me",
        "__futex_wait",
        "futex_wait",
        "futex_wait_multiple",
        "futex_wait_requeue_pi",
        "do_futex",
    ],
    tell,
)];

/// A PI futex waits in an rtmutex of the kernel: the wait is reported as one for the futex.
pub(super) fn ask_pi(wait: &WaitContext<'_>) -> Option<WaitKind> {
    wait.passes(&["futex_lock_pi"]).then(|| WaitKind::target(WaitTarget::PiFutex, Class::Lock))
}

fn tell(wait: &WaitContext<'_>) -> WaitKind {
    if by_user_stack(wait).unwrap_or_else(|| is_lock(wait.span)) {
        return WaitKind::target(WaitTarget::UserLock, Class::Lock);
    }
    if joined_thread(wait.span, wait.stacks).is_some() {
        return WaitKind::target(WaitTarget::ThreadEnd, Class::Dependency);
    }
    // futex(word, op, value, timeout, ...)
    if wait.span.syscall == Some(FUTEX) && wait.arg(3) != 0 && wait.ended_by_timer() {
        return time::timeout(WaitTarget::FutexTimeout);
    }
    WaitKind::target(WaitTarget::FutexSignal, Class::Idle)
}

/// Parts of the names of user functions that take a lock, and that wait for a signal, where stacks were taken.
const TAKES_LOCK: &[&str] = &[
    "pthread_mutex_",
    "pthread_rwlock_",
    "lll_lock_wait",
    "lock_contended",
    "write_contended",
    "read_contended",
    "runtime.lock2",
    "RawMutex",
    "RawRwLock",
    "lock_slow",
];
const AWAITS_SIGNAL: &[&str] = &[
    "pthread_cond_",
    "Condvar",
    "condvar",
    "sem_wait",
    "thread::park",
    "Parker",
    "runtime.notesleep",
    "runtime.notetsleep",
];

/// What the caller's own functions show: true for a lock, false for a signal.
fn by_user_stack(wait: &WaitContext<'_>) -> Option<bool> {
    let said = |frame: &String, names: &[&str]| names.iter().any(|name| frame.contains(name));
    wait.stacks.user(wait.span.stack).iter().find_map(|frame| {
        let lock = said(frame, TAKES_LOCK);
        (lock || said(frame, AWAITS_SIGNAL)).then_some(lock)
    })
}

/// Operation (without flags), and whether it is a wait on memory that other processes may share.
fn operation(span: &Span) -> (u64, bool) {
    let op = span.args[1] & 0xffff_ffff;
    (op & !(PRIVATE | REALTIME), op & PRIVATE == 0)
}

fn expected(span: &Span) -> Option<u32> {
    match span.syscall? {
        FUTEX => Some(span.args[2] as u32),
        // The values may be 64 bits wide one day; today they are 32.
        FUTEX_WAIT => Some(span.args[1] as u32),
        _ => None,
    }
}

/// The word looks like that of a lock that is held.
fn is_lock(span: &Span) -> bool {
    let Some(value) = expected(span) else { return false };
    if span.syscall == Some(FUTEX) && matches!(operation(span).0, LOCK_PI | LOCK_PI2) {
        return true;
    }
    // glibc's condition variables and semaphores wait against the real-time clock, without a timeout; since 2.41 a
    // condition variable's word may be 2. Locks without a timeout never name that clock.
    let of_glibc = span.args[1] & REALTIME != 0 && span.args[3] == 0;
    // Rust std waits by bit set against the monotonic clock; its mutexes have no timeout, its condition variables do, and
    // their count may be 2.
    let of_rust = operation(span).0 == WAIT_BITSET && span.args[1] & REALTIME == 0 && span.args[3] != 0;
    let signalled = span.syscall == Some(FUTEX) && (of_glibc || of_rust);
    (value == CONTENDED && !signalled) || value == RUST_WRITE_LOCKED || owner_in(value).is_some()
}

/// The owner in the words of glibc's robust, PI and error-checking mutexes, and of musl's: waiters bit and the owner's thread id.
fn owner_in(value: u32) -> Option<u32> {
    let tid = value & FUTEX_TID_MASK;
    (value & FUTEX_WAITERS != 0 && (1..=PID_MAX_LIMIT).contains(&tid)).then_some(tid)
}

/// The thread that holds the futex, if its word has it. The id is that of the waiter's pid namespace.
#[must_use]
pub fn futex_owner(span: &Span) -> Option<u32> {
    expected(span).and_then(owner_in)
}

/// The thread that pthread_join waits for, until the kernel clears the word with the thread's id. This wait is never private,
/// because the kernel does the wake-up.
#[must_use]
pub fn joined_thread(span: &Span, stacks: &Stacks<'_>) -> Option<u32> {
    let value = expected(span)?;
    let (op, shared) = operation(span);
    let waits = span.syscall == Some(FUTEX) && matches!(op, WAIT | WAIT_BITSET);
    if !waits || !shared || value <= CONTENDED || value > PID_MAX_LIMIT {
        return None;
    }
    // In a pid namespace the thread's id is another one: only a thread that is known to belong to another process refutes it.
    let of_another = stacks.tgid(value).is_some_and(|tgid| tgid != span.tgid);
    (!of_another || !stacks.knows_tasks()).then_some(value)
}

/// Without a stack.
pub(super) fn ask_call(wait: &WaitContext<'_>) -> Option<WaitKind> {
    matches!(wait.call, Some(FUTEX | FUTEX_WAIT | 449)).then(|| tell(wait))
}
