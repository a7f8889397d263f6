//! Waiting for a lock of the kernel.

use whyslow_model::timeline::LockKind;

use super::lock_names::{Site, name};
use super::{Class, LockName, Wait, WaitKind};

/// The slow paths, by sort of lock. kernel/locking/*.c.
const MUTEX: &[&str] = &[
    "__mutex_lock",
    "__mutex_lock_common",
    "__mutex_lock_slowpath",
    "__mutex_lock_killable_slowpath",
    "__mutex_lock_interruptible_slowpath",
    "__ww_mutex_lock",
    "__ww_mutex_lock_slowpath",
    "__ww_mutex_lock_interruptible_slowpath",
    "ww_mutex_lock",
    "ww_mutex_lock_interruptible",
    "mutex_lock",
    "mutex_lock_io",
    "mutex_lock_nested",
    "mutex_lock_killable",
    "mutex_lock_interruptible",
];
const READ: &[&str] = &[
    "rwsem_down_read_slowpath",
    "__down_read",
    "__down_read_common",
    "__down_read_killable",
    "down_read",
    "down_read_nested",
    "down_read_killable",
    "down_read_interruptible",
];
const WRITE: &[&str] = &[
    "rwsem_down_write_slowpath",
    "__down_write",
    "__down_write_common",
    "__down_write_killable",
    "down_write",
    "down_write_nested",
    "down_write_killable",
    "down_write_killable_nested",
];
const RTMUTEX: &[&str] = &[
    "rt_mutex_slowlock_block",
    "__rt_mutex_slowlock",
    "rt_mutex_slowlock",
    "__rt_mutex_lock",
    "rt_mutex_lock",
    "rtlock_slowlock_locked",
    "rt_spin_lock",
    "rt_read_lock",
    "rt_write_lock",
    "rwbase_read_lock",
    "rwbase_write_lock",
    "__rwbase_read_lock",
];
const PERCPU: &[&str] = &["percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read", "percpu_down_write"];
const SEMAPHORE: &[&str] = &[
    "__down",
    "__down_common",
    "___down_common",
    "__down_killable",
    "__down_interruptible",
    "__down_timeout",
    "down",
    "down_killable",
    "down_interruptible",
    "down_timeout",
];

const SORTS: &[(LockKind, &[&str])] = &[
    (LockKind::Mutex, MUTEX),
    (LockKind::Rwsem, READ),
    (LockKind::Rwsem, WRITE),
    (LockKind::Rtmutex, RTMUTEX),
    (LockKind::PercpuRwsem, PERCPU),
    (LockKind::Semaphore, SEMAPHORE),
];

/// "mutex", "rwsem": as people and the report's documents call it.
pub(crate) fn sort(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::Rwsem => "rwsem",
        LockKind::Rtmutex => "rtmutex",
        LockKind::PercpuRwsem => "percpu rwsem",
        LockKind::Semaphore => "semaphore",
        LockKind::Unknown => "lock",
    }
}

pub(crate) fn is_slow_path(function: &str) -> bool {
    SORTS.iter().any(|(_, functions)| functions.contains(&function))
}

/// Sort of lock whose slow path is innermost, and whether it was to be written.
pub(crate) fn innermost(frames: &[&str]) -> Option<(LockKind, bool)> {
    let first = frames.first()?;
    let (kind, functions) = SORTS.iter().find(|(_, functions)| functions.contains(first))?;
    let write = match kind {
        LockKind::Rwsem => *functions == WRITE,
        LockKind::PercpuRwsem => frames.iter().any(|frame| *frame == "percpu_down_write"),
        _ => true,
    };
    Some((*kind, write))
}

/// The functions from the one that took the lock outwards.
pub(crate) fn outside<'f, 'a>(frames: &'f [&'a str]) -> &'f [&'a str] {
    let at = frames.iter().position(|frame| !is_slow_path(frame)).unwrap_or(frames.len());
    frames.get(at..).unwrap_or_default()
}

pub(super) fn ask(wait: &Wait<'_>) -> Option<WaitKind> {
    let by_stack = innermost(&wait.frames);
    let (kind, write) = match (&wait.span.lock, by_stack) {
        (Some(lock), _) if lock.address != 0 && lock.kind != LockKind::Unknown => (lock.kind, lock.write),
        (Some(lock), None) if lock.address != 0 => (lock.kind, lock.write),
        (_, Some(seen)) => seen,
        _ => return None,
    };
    let mode = match kind {
        LockKind::Rwsem | LockKind::PercpuRwsem => {
            if write {
                ", to write"
            } else {
                ", to read"
            }
        }
        _ => "",
    };
    let waits_for = format!("{} {}{mode}", sort(kind), named(wait, kind).name);
    Some(WaitKind::new("lock", waits_for, Class::Held))
}

/// The lock's name from all its waiters, else from this one.
fn named(wait: &Wait<'_>, kind: LockKind) -> LockName {
    let address = wait.span.lock.as_ref().map_or(0, |lock| lock.address);
    wait.stacks.lock(address).cloned().unwrap_or_else(|| {
        let span = wait.span;
        let process = wait.stacks.process(span.tgid).unwrap_or(&span.comm);
        let site =
            Site { kind, frames: &wait.frames, tgid: span.tgid, process, target: span.target.as_ref() };
        name(&site, address)
    })
}
