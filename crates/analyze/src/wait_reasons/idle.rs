//! Kernel threads without work.

use whyslow_model::wait::WaitTarget;

use super::{Class, WaitContext, WaitKind};

/// Functions of kernel threads that wait for work. Most threads wait in their thread function, right below `kthread`, and
/// need no table. The function must be the innermost one: a worker that waits in its work item has work.
const HOME: &[&str] = &[
    "worker_thread",
    "kthread_worker_fn",
    "rescuer_thread",
    "smpboot_thread_fn",
    "io_wq_worker",
    "io_sq_thread",
    "vhost_task_fn",
    "vhost_worker",
    "kswapd_try_to_sleep",
    "khugepaged_wait_work",
    "rcu_gp_kthread",
    "rcu_boost_kthread",
    "rcu_tasks_one_gp",
    "rcu_tasks_kthread",
    "nocb_gp_wait",
    "nocb_cb_wait",
    "irq_wait_for_interrupt",
    "devtmpfs_work_loop",
    "kthreadd",
    "add_hwgenerator_randomness",
    "svc_recv",
    "svc_get_next_xprt",
    "xfsaild",
    "psi_rtpoll_worker",
    "psi_poll_worker",
];

/// A kernel thread with nothing to do.
pub(super) fn ask(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let first = wait.first()?;
    let at_home = HOME.contains(&first) || matches!(wait.frames, [_, "kthread"]);
    at_home.then(|| WaitKind::target(WaitTarget::WorkToDo, Class::Idle))
}
