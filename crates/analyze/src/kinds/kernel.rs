//! Waiting for the kernel itself: grace periods, work items, CPUs that must answer, completions.

use super::table::{Row, by, row};
use super::{Class, Wait, WaitKind};

/// kernel/rcu, kernel/workqueue.c, kernel/stop_machine.c, kernel/kthread.c, kernel/umh.c, fs/kernfs, kernel/cgroup.
pub(super) const ROWS: &[Row] = &[
    by(RCU, grace_period),
    row(
        &["rcu_barrier", "rcu_barrier_tasks", "srcu_barrier", "kvfree_rcu_barrier", "flush_rcu_work"],
        "rcu",
        "RCU callbacks to be done (reporter: cannot tell)",
        Class::Needed,
    ),
    // The grace period's own kthread, between looking at CPUs.
    row(
        &[
            "rcu_gp_fqs_loop",
            "synchronize_rcu_expedited_wait",
            "rcu_gp_init",
            "rcu_gp_cleanup",
            "rcu_exp_wait_wake",
        ],
        "rcu",
        "CPUs to pass a quiescent state (reporter: cannot tell)",
        Class::Needed,
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
        "ipi",
        "other CPUs to stop for it (stop_machine)",
        Class::Needed,
    ),
    row(
        &["smp_call_on_cpu", "work_on_cpu_key", "work_on_cpu"],
        "ipi",
        "a call on another CPU",
        Class::Needed,
    ),
    row(
        &["cpuhp_kick_ap", "cpuhp_kick_ap_work", "__cpuhp_kick_ap", "cpuhp_bringup_ap", "takedown_cpu"],
        "ipi",
        "a CPU to come or go (hotplug)",
        Class::Needed,
    ),
    row(
        &["synchronize_irq", "__synchronize_irq", "disable_irq", "free_irq"],
        "completion",
        "interrupt handlers to end",
        Class::Needed,
    ),
    row(
        &["kthread_stop", "kthread_park", "kthread_unpark"],
        "kthread",
        "a kernel thread to end",
        Class::Needed,
    ),
    row(
        &["kthread_create_on_node", "__kthread_create_on_node", "__kthread_create_worker"],
        "kthread",
        "a kernel thread to be created",
        Class::Needed,
    ),
    row(
        &["call_usermodehelper_exec", "call_usermodehelper", "__request_module", "call_modprobe"],
        "helper",
        "a program that the kernel started (usermode helper)",
        Class::Needed,
    ),
    row(
        &["request_firmware", "_request_firmware", "fw_load_sysfs_fallback"],
        "helper",
        "firmware",
        Class::Needed,
    ),
    row(
        &["kernfs_drain", "kernfs_drain_open_files", "__kernfs_remove"],
        "lock",
        "users of a kernfs file to leave",
        Class::Held,
    ),
    row(&["cgroup_lock_and_drain_offline"], "cgroup", "dying child cgroups", Class::Needed),
    row(
        &["vfs_d_lookup", "d_wait_lookup", "d_alloc_parallel"],
        "lookup",
        "another's lookup of the same name",
        Class::Needed,
    ),
    row(
        &["__wait_on_freeing_inode", "find_inode", "find_inode_fast", "iget_locked"],
        "inode",
        "an inode to be freed or read by another",
        Class::Needed,
    ),
    row(&["autofs_wait"], "automount", "the automount daemon", Class::Needed),
    row(
        &["netdev_wait_allrefs_any", "netdev_wait_allrefs"],
        "netdev",
        "references to a network device",
        Class::Needed,
    ),
    row(&["usb_start_wait_urb", "usb_kill_urb"], "device", "a USB device", Class::Device),
    row(
        &["i2c_transfer", "ata_exec_internal", "ata_exec_internal_sg", "acpi_ec_transaction"],
        "device",
        "a device",
        Class::Device,
    ),
    row(
        &["virtnet_send_command", "virtio_gpu_queue_fenced_ctrl_buffer", "virtnet_send_command_reply"],
        "device",
        "a device of the hypervisor",
        Class::Device,
    ),
    row(
        &["dma_fence_default_wait", "dma_fence_wait_timeout", "drm_atomic_helper_wait_for_vblanks"],
        "device",
        "the GPU",
        Class::Device,
    ),
    row(&["wait_for_random_bytes", "wait_for_device_probe"], "boot", "the host to come up", Class::Needed),
];

/// Whoever waits here waits for a grace period. kernel/rcu/tree.c, tree_exp.h, srcutree.c, tasks.h, update.c.
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

/// Whoever waits here waits for work items. kernel/workqueue.c, kernel/kthread.c.
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

/// The plumbing of completions, and of waiting for a word. kernel/sched/completion.c, kernel/sched/swait.c.
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

/// How many of the innermost functions are the plumbing of a completion.
pub(super) fn completion_depth(wait: &Wait<'_>) -> usize {
    wait.frames.iter().take_while(|frame| COMPLETION.contains(frame)).count()
}

fn grace_period(wait: &Wait<'_>) -> WaitKind {
    let caller = caller(wait, &[RCU, COMPLETION]);
    WaitKind::new("rcu", format!("an RCU grace period{caller} (reporter: cannot tell)"), Class::Needed)
}

fn work(wait: &Wait<'_>) -> WaitKind {
    let caller = caller(wait, &[FLUSH, COMPLETION]);
    WaitKind::new("work", format!("a work item{caller}"), Class::Needed)
}

/// " for FUNCTION": who asked for what was waited for.
fn caller(wait: &Wait<'_>, inside: &[&[&str]]) -> String {
    let caller = wait.frames.iter().find(|frame| !inside.iter().any(|functions| functions.contains(frame)));
    caller.map_or_else(String::new, |function| format!(" for {function}"))
}

/// Something to be completed: who waits for it is all that is known.
pub(super) fn ask_completion(wait: &Wait<'_>) -> Option<WaitKind> {
    (completion_depth(wait) > 0).then_some(())?;
    let function = wait.beyond(COMPLETION).unwrap_or("the kernel");
    Some(WaitKind::new("completion", format!("a completion in {function}"), Class::Needed))
}
