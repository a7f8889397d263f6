//! Waits for the kernel itself: grace periods, work items, CPUs that must answer, completions.

use whyslow_model::timeline::LockKind;
use whyslow_model::wait::{Detail, Reason, WaitTarget};

use super::locks::PERCPU;
use super::table::{Row, by, by_here, row};
use super::{Class, WaitContext, WaitKind};

/// kernel/rcu, kernel/workqueue.c, kernel/stop_machine.c, kernel/kthread.c, kernel/umh.c, fs/kernfs, kernel/cgroup.
pub(super) const ROWS: &[Row] = &[
    // percpu_down_write is inlined or left by a tail call: it waits for the lock's readers.
    by_here(&["cgroup_procs_write_start", "cgroup_attach_lock"], threadgroup_rwsem),
    by(RCU, grace_period),
    row(
        &["rcu_barrier", "rcu_barrier_tasks", "srcu_barrier", "kvfree_rcu_barrier", "flush_rcu_work"],
        WaitTarget::RcuCallbacks,
        Class::Dependency,
    ),
    // The grace period's own kthread, between two checks of the CPUs.
    row(
        &[
            "rcu_gp_fqs_loop",
            "synchronize_rcu_expedited_wait",
            "rcu_gp_init",
            "rcu_gp_cleanup",
            "rcu_exp_wait_wake",
        ],
        WaitTarget::QuiescentStates,
        Class::Dependency,
    ),
    by(FLUSH, work),
    row(
        &[
            "stop_one_cpu",
            "stop_two_cpus",
            "__stop_cpus",
            "stop_cpus",
            "stop_machine_cpuslocked",
            "stop_machine",
            "affine_move_task",
            "set_cpus_allowed_ptr",
        ],
        WaitTarget::StoppedCpus,
        Class::Dependency,
    ),
    row(&["smp_call_on_cpu", "work_on_cpu_key", "work_on_cpu"], WaitTarget::CallOnCpu, Class::Dependency),
    row(
        &["cpuhp_kick_ap", "cpuhp_kick_ap_work", "__cpuhp_kick_ap", "cpuhp_bringup_ap", "takedown_cpu"],
        WaitTarget::Hotplug,
        Class::Dependency,
    ),
    row(
        &["synchronize_irq", "__synchronize_irq", "disable_irq", "free_irq"],
        WaitTarget::InterruptHandlers,
        Class::Dependency,
    ),
    row(&["kthread_stop", "kthread_park", "kthread_unpark"], WaitTarget::KthreadEnd, Class::Dependency),
    row(
        &["kthread_create_on_node", "__kthread_create_on_node", "__kthread_create_worker"],
        WaitTarget::KthreadStart,
        Class::Dependency,
    ),
    row(
        &["call_usermodehelper_exec", "call_usermodehelper", "__request_module", "call_modprobe"],
        WaitTarget::UsermodeHelper,
        Class::Dependency,
    ),
    row(
        &["request_firmware", "_request_firmware", "fw_load_sysfs_fallback"],
        WaitTarget::Firmware,
        Class::Dependency,
    ),
    row(
        &["kernfs_drain", "kernfs_drain_open_files", "__kernfs_remove"],
        WaitTarget::KernfsUsers,
        Class::Lock,
    ),
    row(&["cgroup_lock_and_drain_offline"], WaitTarget::DyingCgroups, Class::Dependency),
    row(&["vfs_d_lookup", "d_wait_lookup", "d_alloc_parallel"], WaitTarget::OthersLookup, Class::Dependency),
    row(
        &["__wait_on_freeing_inode", "find_inode", "find_inode_fast", "iget_locked"],
        WaitTarget::OthersInode,
        Class::Dependency,
    ),
    row(&["autofs_wait"], WaitTarget::AutomountDaemon, Class::Dependency),
    row(&["netdev_wait_allrefs_any", "netdev_wait_allrefs"], WaitTarget::DeviceReferences, Class::Dependency),
    row(&["usb_start_wait_urb", "usb_kill_urb"], WaitTarget::UsbDevice, Class::Device),
    row(
        &["i2c_transfer", "ata_exec_internal", "ata_exec_internal_sg", "acpi_ec_transaction"],
        WaitTarget::SomeDevice,
        Class::Device,
    ),
    row(
        &["virtnet_send_command", "virtio_gpu_queue_fenced_ctrl_buffer", "virtnet_send_command_reply"],
        WaitTarget::HypervisorDevice,
        Class::Device,
    ),
    row(
        &["dma_fence_default_wait", "dma_fence_wait_timeout", "drm_atomic_helper_wait_for_vblanks"],
        WaitTarget::Gpu,
        Class::Device,
    ),
    row(&["wait_for_random_bytes", "wait_for_device_probe"], WaitTarget::HostStart, Class::Dependency),
];

/// A task in one of these functions waits for a grace period. kernel/rcu/tree.c, tree_exp.h, srcutree.c, tasks.h, update.c.
const RCU: &[&str] = &[
    "synchronize_rcu",
    "synchronize_rcu_normal",
    "synchronize_rcu_expedited",
    "__wait_rcu_gp",
    "wait_rcu_gp",
    "synchronize_srcu",
    "__synchronize_srcu",
    "synchronize_srcu_expedited",
    "synchronize_rcu_tasks",
    "synchronize_rcu_tasks_generic",
    "synchronize_rcu_tasks_rude",
    "synchronize_rcu_tasks_trace",
    "synchronize_rcu_mult",
    "cond_synchronize_rcu",
    "cond_synchronize_rcu_expedited",
    "synchronize_net",
    "rcu_sync_enter",
    "rcu_sync_dtor",
    "exp_funnel_lock",
];

/// A task in one of these functions waits for work items. kernel/workqueue.c, kernel/kthread.c.
const FLUSH: &[&str] = &[
    "__flush_work",
    "flush_work",
    "flush_delayed_work",
    "__flush_workqueue",
    "flush_workqueue",
    "drain_workqueue",
    "destroy_workqueue",
    "__cancel_work_timer",
    "__cancel_work_sync",
    "cancel_work_sync",
    "cancel_delayed_work_sync",
    "work_grab_pending",
    "kthread_flush_work",
    "kthread_flush_worker",
    "__kthread_cancel_work_sync",
    "kthread_cancel_work_sync",
    "kthread_cancel_delayed_work_sync",
];

/// The inner functions of completions, and of waiting for a word. kernel/sched/completion.c, kernel/sched/swait.c.
const COMPLETION: &[&str] = &[
    "wait_for_completion",
    "wait_for_completion_timeout",
    "wait_for_completion_io",
    "wait_for_completion_io_timeout",
    "wait_for_completion_interruptible",
    "wait_for_completion_interruptible_timeout",
    "wait_for_completion_killable",
    "wait_for_completion_killable_timeout",
    "wait_for_completion_state",
    "__wait_for_common",
    "wait_for_common",
    "do_wait_for_common",
    "wait_for_common_io",
];

/// How many of the innermost functions belong to the completion itself.
pub(super) fn completion_depth(wait: &WaitContext<'_>) -> usize {
    wait.frames.iter().take_while(|frame| COMPLETION.contains(frame)).count()
}

fn threadgroup_rwsem(_: &WaitContext<'_>) -> WaitKind {
    let name = "cgroup_threadgroup_rwsem".to_owned();
    let lock = Detail::Lock { kind: LockKind::PercpuRwsem, name, write: Some(true) };
    WaitKind::new(Reason::Lock, lock, Class::Lock)
}

/// Whether a task with these frames may wait for a grace period.
pub(crate) fn may_need_grace_period(frames: &[String]) -> bool {
    frames.iter().any(|frame| RCU.contains(&frame.as_str()))
}

fn grace_period(wait: &WaitContext<'_>) -> WaitKind {
    // A writer of a percpu-rwsem waits for one before it waits for readers: its caller says what for.
    let caller = caller(wait, &[RCU, COMPLETION, PERCPU]);
    WaitKind::new(Reason::Rcu, Detail::GracePeriod { caller }, Class::Dependency)
}

fn work(wait: &WaitContext<'_>) -> WaitKind {
    let caller = caller(wait, &[FLUSH, COMPLETION]);
    WaitKind::new(Reason::Work, Detail::WorkItem { caller }, Class::Dependency)
}

/// The function that needed what was waited for.
fn caller(wait: &WaitContext<'_>, inside: &[&[&str]]) -> Option<String> {
    let caller = wait.frames.iter().find(|frame| !inside.iter().any(|functions| functions.contains(frame)));
    caller.map(|function| (*function).to_owned())
}

/// A completion: only the function that waits for it is known.
pub(super) fn ask_completion(wait: &WaitContext<'_>) -> Option<WaitKind> {
    (completion_depth(wait) > 0).then_some(())?;
    let function = wait.beyond(COMPLETION).map(str::to_owned);
    Some(WaitKind::new(Reason::Completion, Detail::Completion { function }, Class::Dependency))
}
