//! Waiting for processes: children, exec, signals, tracers, namespaces.

use super::table::{Row, here, row};
use super::{Class, Wait, WaitKind, futex};

/// clone's flag: the parent stops until the child execs or ends.
const CLONE_VFORK: u64 = 0x4000;

/// kernel/exit.c, kernel/fork.c, kernel/signal.c, kernel/freezer.c, kernel/pid_namespace.c, fs/exec.c, fs/coredump.c.
pub(super) const ROWS: &[Row] = &[
    row(
        &["do_wait", "__do_wait", "kernel_wait4", "kernel_waitid", "kernel_wait"],
        "child",
        "a child to end",
        Class::Needed,
    ),
    // kernel_clone: wait_for_vfork_done is inlined.
    here(&["kernel_clone", "_do_fork"], "vfork", "a child to exec or end (vfork)", Class::Needed),
    row(&["wait_for_vfork_done"], "vfork", "a child to exec or end (vfork)", Class::Needed),
    row(
        &["sigsuspend", "do_sigtimedwait", "sys_pause", "__x64_sys_pause", "__do_sys_pause"],
        "signal",
        "a signal",
        Class::Handed,
    ),
    row(
        &["ptrace_stop", "ptrace_notify", "ptrace_do_notify", "ptrace_check_attach"],
        "traced",
        "its tracer",
        Class::Needed,
    ),
    row(&["ptrace_freeze_traced", "wait_task_inactive"], "traced", "a traced task to stop", Class::Needed),
    row(
        &["do_signal_stop", "do_jobctl_trap"],
        "stopped",
        "to be continued (stopped by a signal)",
        Class::Limit,
    ),
    row(
        &["__refrigerator", "do_freezer_trap", "cgroup_enter_frozen"],
        "frozen",
        "to be thawed (freezer)",
        Class::Limit,
    ),
    row(&["zap_pid_ns_processes"], "child", "the processes of its pid namespace to end", Class::Needed),
    row(&["de_thread", "begin_new_exec"], "thread", "its other threads to end (exec)", Class::Needed),
    row(&["coredump_task_exit", "coredump_wait"], "coredump", "a core dump of its process", Class::Needed),
    row(
        &["dump_emit", "wait_for_dump_helpers", "do_coredump", "vfs_coredump"],
        "coredump",
        "a core dump to be taken",
        Class::Needed,
    ),
    row(&["pidfd_poll"], "child", "a process to end", Class::Needed),
    row(&["seccomp_do_user_notification"], "seccomp", "a supervisor's answer (seccomp)", Class::Needed),
    row(
        &["seccomp_notify_ioctl", "seccomp_notify_recv"],
        "seccomp",
        "calls to supervise (seccomp)",
        Class::Handed,
    ),
    row(&["binder_wait_for_work", "binder_thread_read"], "binder", "a binder transaction", Class::Handed),
    row(
        &["kvm_vcpu_block", "kvm_vcpu_halt", "kvm_vcpu_check_block"],
        "guest-idle",
        "work for its virtual CPU",
        Class::Handed,
    ),
];

/// Without a stack: by system call.
pub(super) fn ask_call(wait: &Wait<'_>) -> Option<WaitKind> {
    if let Some(told) = futex::ask_call(wait) {
        return Some(told);
    }
    let vfork = || WaitKind::new("vfork", "a child to exec or end (vfork)", Class::Needed);
    match wait.call? {
        58 => Some(vfork()),
        56 if wait.arg(0) & CLONE_VFORK != 0 => Some(vfork()),
        61 | 247 => Some(WaitKind::new("child", "a child to end", Class::Needed)),
        34 | 128 | 130 => Some(WaitKind::new("signal", "a signal", Class::Handed)),
        _ => None,
    }
}
