//! Waiting for processes: children, exec, signals, tracers, namespaces.

use whyslow_model::syscall::{WAIT4, WAITID};
use whyslow_model::wait::WaitTarget;

use super::table::{Row, here, row};
use super::{Class, WaitContext, WaitKind, futex};

/// clone's flag: the parent stops until the child execs or ends.
const CLONE_VFORK: u64 = 0x4000;

/// kernel/exit.c, kernel/fork.c, kernel/signal.c, kernel/freezer.c, kernel/pid_namespace.c, fs/exec.c, fs/coredump.c.
pub(super) const ROWS: &[Row] = &[
    row(
        &["do_wait", "__do_wait", "kernel_wait4", "kernel_waitid", "kernel_wait"],
        WaitTarget::ChildEnd,
        Class::Dependency,
    ),
    // kernel_clone: wait_for_vfork_done is inlined.
    here(&["kernel_clone", "_do_fork"], WaitTarget::ChildExec, Class::Dependency),
    row(&["wait_for_vfork_done"], WaitTarget::ChildExec, Class::Dependency),
    row(
        &["sigsuspend", "do_sigtimedwait", "sys_pause", "__x64_sys_pause", "__do_sys_pause"],
        WaitTarget::ASignal,
        Class::Idle,
    ),
    row(
        &["ptrace_stop", "ptrace_notify", "ptrace_do_notify", "ptrace_check_attach"],
        WaitTarget::Tracer,
        Class::Dependency,
    ),
    row(&["ptrace_freeze_traced", "wait_task_inactive"], WaitTarget::TracedTask, Class::Dependency),
    row(&["do_signal_stop", "do_jobctl_trap"], WaitTarget::Continuation, Class::Limit),
    row(&["__refrigerator", "do_freezer_trap", "cgroup_enter_frozen"], WaitTarget::Thaw, Class::Limit),
    row(&["zap_pid_ns_processes"], WaitTarget::NamespaceEnd, Class::Dependency),
    row(&["de_thread", "begin_new_exec"], WaitTarget::OtherThreads, Class::Dependency),
    row(&["coredump_task_exit", "coredump_wait"], WaitTarget::OwnCoredump, Class::Dependency),
    row(
        &["dump_emit", "wait_for_dump_helpers", "do_coredump", "vfs_coredump"],
        WaitTarget::CoredumpTaken,
        Class::Dependency,
    ),
    row(&["pidfd_poll"], WaitTarget::ProcessEnd, Class::Dependency),
    row(&["seccomp_do_user_notification"], WaitTarget::SupervisorAnswer, Class::Dependency),
    row(&["seccomp_notify_ioctl", "seccomp_notify_recv"], WaitTarget::SupervisedCalls, Class::Idle),
    row(&["binder_wait_for_work", "binder_thread_read"], WaitTarget::BinderTransaction, Class::Idle),
    row(
        &["kvm_vcpu_block", "kvm_vcpu_halt", "kvm_vcpu_check_block"],
        WaitTarget::VirtualCpuWork,
        Class::Idle,
    ),
];

/// Without a stack: by system call.
pub(super) fn ask_call(wait: &WaitContext<'_>) -> Option<WaitKind> {
    if let Some(reported) = futex::ask_call(wait) {
        return Some(reported);
    }
    let vfork = || WaitKind::target(WaitTarget::ChildExec, Class::Dependency);
    match wait.call? {
        58 => Some(vfork()),
        56 if wait.arg(0) & CLONE_VFORK != 0 => Some(vfork()),
        WAIT4 | WAITID => Some(WaitKind::target(WaitTarget::ChildEnd, Class::Dependency)),
        34 | 128 | 130 => Some(WaitKind::target(WaitTarget::ASignal, Class::Idle)),
        _ => None,
    }
}
