//! The kernel function at work: the innermost frame often works for a caller further out.

/// Generic functions, which explain nothing to a user: locking, copying, clearing, allocating, entering and leaving.
const GENERIC: &[&str] = &[
    "memcpy",
    "memset",
    "memcmp",
    "memmove",
    "strlen",
    "strcmp",
    "strncmp",
    "copy_page",
    "clear_page_erms",
    "clear_page_rep",
    "clear_user",
    "copy_user_generic_string",
    "copy_user_enhanced_fast_string",
    "copy_user_generic_unrolled",
    "_copy_to_iter",
    "_copy_from_iter",
    "_copy_to_user",
    "_copy_from_user",
    "rep_movs_alternative",
    "rep_stos_alternative",
    "preempt_count_add",
    "preempt_count_sub",
    "rcu_read_unlock",
    "__rcu_read_unlock",
    "__rcu_read_lock",
    "srso_return_thunk",
    "srso_safe_ret",
    "retbleed_return_thunk",
    "__x86_return_thunk",
    "entry_ibpb",
    "finish_task_switch",
    "__cond_resched",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_thunk",
    "__local_bh_enable_ip",
    "__fget_light",
    "fput",
    "__pv_queued_spin_unlock",
    "delay_tsc",
];

/// Prefixes of names of the same kind.
const GENERIC_PREFIXES: &[&str] = &[
    "_raw_",
    "__raw_",
    "asm_",
    "sysvec_",
    "irqentry_",
    "exit_to_user",
    "syscall_exit",
    "__irq_",
    "irq_exit",
];

/// Entry code, outside the function that a stack is for.
const ENTRY: &[&str] = &[
    "do_syscall_64",
    "x64_sys_call",
    "entry_SYSCALL_64",
    "entry_SYSCALL_64_after_hwframe",
    "entry_SYSCALL_64_safe_stack",
    "ret_from_fork",
    "ret_from_fork_asm",
    "kthread",
    "worker_thread",
    "process_one_work",
    "process_scheduled_works",
    "smpboot_thread_fn",
    "exc_page_fault",
    "do_user_addr_fault",
];

/// (the function at work, the function for which it works: a system call, work function or thread).
pub(super) fn at_work<'a>(frames: &[&'a str]) -> Option<(&'a str, Option<&'a str>)> {
    let works = |frame: &&&'a str| !is_generic(frame) && !ENTRY.contains(frame);
    // If all frames are generic, the innermost one is the work.
    let deepest = frames.iter().find(works).or_else(|| frames.first()).copied()?;
    let purpose = frames.iter().rfind(works).copied().map(plain);
    Some((deepest, purpose.filter(|purpose| *purpose != plain(deepest))))
}

/// Whether the function is generic: it does not show what is at work.
pub(super) fn is_anybodys(function: &str) -> bool {
    is_generic(function) || ENTRY.contains(&function)
}

fn is_generic(function: &str) -> bool {
    GENERIC.contains(&function) || GENERIC_PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// Code between a program and its system call (arch/x86/entry, kernel/entry/common.c).
pub(super) fn is_entry_of_calls(function: &str) -> bool {
    ["do_syscall_64", "x64_sys_call", "syscall_", "entry_SYSCALL_64", "__audit_syscall_", "exit_to_user_mode"]
        .iter()
        .any(|begin| function.starts_with(begin))
}

/// Functions with which the kernel enters a system call: read(2) goes on in `ksys_read`, and returns from there.
const ENTRIES: [&str; 5] = ["__x64_sys_", "__se_sys_", "__do_sys_", "__ia32_sys_", "ksys_"];

/// `__x64_sys_mkdir` is `mkdir`.
pub(super) fn plain(function: &str) -> &str {
    call(function).unwrap_or(function)
}

/// The system call of a function.
pub(super) fn call(function: &str) -> Option<&str> {
    ENTRIES.iter().find_map(|prefix| function.strip_prefix(prefix))
}
