//! Waits for a lock of the kernel.

use whyslow_model::timeline::LockKind;
use whyslow_model::wait::{Detail, Reason};

use super::lock_names::{Site, name};
use super::wait::meaningful;
use super::{Class, LockName, WaitContext, WaitKind};

/// The slow paths, by kind of lock. kernel/locking/*.c.
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
pub(super) const PERCPU: &[&str] =
    &["percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read", "percpu_down_write"];
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

pub(crate) fn is_slow_path(function: &str) -> bool {
    SORTS.iter().any(|(_, functions)| functions.contains(&function))
}

/// The kind of lock whose slow path is innermost, and whether the lock was to be taken for writing.
pub(crate) fn innermost(frames: &[&str]) -> Option<(LockKind, bool)> {
    let first = frames.first()?;
    let (kind, functions) = SORTS.iter().find(|(_, functions)| functions.contains(first))?;
    let write = match kind {
        LockKind::Rwsem => *functions == WRITE,
        LockKind::PercpuRwsem => frames.contains(&"percpu_down_write"),
        _ => true,
    };
    Some((*kind, write))
}

/// The functions from the one that took the lock outwards.
pub(crate) fn outside<'f, 'a>(frames: &'f [&'a str]) -> &'f [&'a str] {
    let at = frames.iter().position(|frame| !is_slow_path(frame)).unwrap_or(frames.len());
    frames.get(at..).unwrap_or_default()
}

/// Functions that release a lock: a waker that held it runs them. kernel/locking/*.c, kernel/sched/core.c.
const RELEASE: &[&str] = &[
    "try_to_wake_up",
    "wake_up_process",
    "wake_up_q",
    "wake_q_add",
    "mutex_unlock",
    "__mutex_unlock_slowpath",
    "ww_mutex_unlock",
    "up_read",
    "up_write",
    "__up_read",
    "__up_write",
    "downgrade_write",
    "rwsem_wake",
    "rwsem_mark_wake",
    "rwsem_downgrade_wake",
    "rt_mutex_unlock",
    "rt_mutex_slowunlock",
    "mark_wakeup_next_waiter",
    "rt_mutex_postunlock",
    "percpu_up_read",
    "percpu_up_write",
    "__percpu_up_read",
    "__wake_up",
    "__wake_up_common",
    "percpu_rwsem_wake_function",
    "rcuwait_wake_up",
    "up",
    "__up",
];

/// "cgroup_kn_lock_live < cgroup_mkdir < ...": the function that took a lock, and its callers.
pub(crate) fn taken_by(stack: &[String], frames: usize) -> String {
    let frames_of = meaningful(stack);
    let taken = outside(&frames_of);
    let entry = |f: &&str| {
        ["do_syscall_64", "x64_sys_call"].contains(f) || f.starts_with("entry_") || f.starts_with("asm_")
    };
    taken.iter().copied().take_while(|f| !entry(f)).take(frames).collect::<Vec<_>>().join(" < ")
}

/// The function that released a lock, from the stack of the releasing task: only if the stack shows just that.
pub(crate) fn released_by(stack: &[String]) -> Option<&str> {
    let frames = meaningful(stack);
    let at = frames.iter().position(|frame| !RELEASE.contains(frame))?;
    let unlocks = frames.iter().take(at).any(|frame| !frame.contains("wake"));
    unlocks.then(|| frames.get(at).copied()).flatten()
}

pub(super) fn ask(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let by_stack = innermost(wait.frames);
    let (kind, write) = match (&wait.span.lock, by_stack) {
        (Some(lock), _) if lock.address != 0 && lock.kind != LockKind::Unknown => (lock.kind, lock.write),
        (Some(lock), None) if lock.address != 0 => (lock.kind, lock.write),
        (_, Some(seen)) => seen,
        _ => return None,
    };
    // percpu_down_write() reports contention before it waits for a grace period, seen on 6.1 (percpu-rwsem.c,
    // rcu_sync_enter): until that is over no holder delays it.
    if kind == LockKind::PercpuRwsem && write && wait.passes(&["rcu_sync_enter"]) {
        return None;
    }
    let write = matches!(kind, LockKind::Rwsem | LockKind::PercpuRwsem).then_some(write);
    let lock = Detail::Lock { kind, name: named(wait, kind).name, write };
    Some(WaitKind::new(Reason::Lock, lock, Class::Lock))
}

/// The lock's name from all its waiters, else from this one.
fn named(wait: &WaitContext<'_>, kind: LockKind) -> LockName {
    let address = wait.span.lock.as_ref().map_or(0, |lock| lock.address);
    wait.stacks.lock(address).cloned().unwrap_or_else(|| {
        let span = wait.span;
        let process = wait.stacks.process(span.tgid).unwrap_or(&span.comm);
        let site = Site {
            kind,
            frames: wait.frames,
            process: Some((process, span.tgid)),
            target: span.target.as_ref(),
        };
        name(&site, address)
    })
}
