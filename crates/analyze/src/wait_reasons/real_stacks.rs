//! Stacks of Linux 6.18, each made on purpose: what each one waited for is known.

use whyslow_model::timeline::State::{self, Blocked, Io, Sleep};

use super::Class::{self, Dependency, Device, Idle, Limit, Lock, Peer, Timer, Unknown};

/// The begin of each sleeper's stack, and the end of each system call's.
pub(super) const SLEEPING: &str = "__schedule schedule";
pub(super) const CALLED: &str = "do_syscall_64 entry_SYSCALL_64_after_hwframe";

/// (what, state, system call, first four arguments, stack, word, class).
type Real = (&'static str, State, Option<u32>, [u64; 4], &'static str, &'static str, Class);

const NO: [u64; 4] = [0; 4];
const FOREVER: u64 = 0xffff_ffff;
const FUTEX: &str = "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex";

#[rustfmt::skip]
pub(super) const STACKS: &[Real] = &[
    ("read an empty pipe", Sleep, Some(0), NO, "anon_pipe_read vfs_read ksys_read", "pipe", Idle),
    ("read an empty FIFO", Sleep, Some(0), NO, "anon_pipe_read fifo_pipe_read vfs_read ksys_read", "pipe", Idle),
    ("open a FIFO", Sleep, Some(257), NO, "wait_for_partner fifo_open do_dentry_open vfs_open path_openat do_filp_open do_sys_openat2 __x64_sys_openat", "pipe", Dependency),
    ("write a full pipe", Sleep, Some(1), NO, "anon_pipe_write vfs_write ksys_write", "pipe", Dependency),
    ("read a unix stream", Sleep, Some(0), NO, "schedule_timeout unix_stream_read_generic unix_stream_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read", "unix-socket", Idle),
    ("read unix datagrams", Sleep, Some(0), NO, "schedule_timeout __skb_wait_for_more_packets __unix_dgram_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read", "unix-socket", Idle),
    ("write a full unix stream", Sleep, Some(1), NO, "schedule_timeout sock_alloc_send_pskb unix_stream_sendmsg sock_write_iter vfs_write ksys_write", "unix-socket", Dependency),
    ("write a full unix datagram socket", Sleep, Some(1), NO, "schedule_timeout sock_alloc_send_pskb unix_dgram_sendmsg sock_write_iter vfs_write ksys_write", "unix-socket", Dependency),
    ("accept on a unix socket", Sleep, Some(43), NO, "schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram unix_accept do_accept __sys_accept4 __x64_sys_accept", "accept", Idle),
    ("connect to a full unix listener", Sleep, Some(42), NO, "schedule_timeout unix_wait_for_peer unix_stream_connect __sys_connect __x64_sys_connect", "unix-socket", Dependency),
    ("accept on TCP", Sleep, Some(43), NO, "schedule_timeout inet_csk_accept inet_accept do_accept __sys_accept4 __x64_sys_accept", "accept", Idle),
    ("read UDP", Sleep, Some(0), NO, "schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read", "socket", Idle),
    ("read netlink", Sleep, Some(0), NO, "schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram netlink_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read", "netlink", Idle),
    ("a record of audit", Blocked, Some(252), NO, "schedule_timeout audit_log_start audit_log_exit __audit_syscall_exit syscall_exit_work", "netlink", Dependency),
    ("send to a full netlink socket", Sleep, None, NO, "schedule_timeout netlink_attachskb netlink_unicast kauditd_send_queue kauditd_thread kthread ret_from_fork", "netlink", Dependency),
    ("epoll_wait", Sleep, Some(232), [3, 0, 1, FOREVER], "schedule_hrtimeout_range_clock do_epoll_wait __x64_sys_epoll_wait", "epoll", Idle),
    ("poll", Sleep, Some(7), [0x7f00, 1, FOREVER, 0], "schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_sys_poll __x64_sys_poll", "poll", Idle),
    ("poll without files", Sleep, Some(7), [0, 0, 600_000, 0], "schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_sys_poll __x64_sys_poll", "timer", Timer),
    ("select", Sleep, Some(270), [4, 0x7f00, 0, 0], "schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_select core_sys_select do_pselect.constprop.0 __x64_sys_pselect6", "poll", Idle),
    ("read an eventfd", Sleep, Some(0), NO, "do_wait_intr_irq eventfd_read vfs_read ksys_read", "eventfd", Idle),
    ("read a timerfd", Sleep, Some(0), NO, "do_wait_intr_irq timerfd_read_iter vfs_read ksys_read", "timer", Timer),
    ("read a signalfd", Sleep, Some(0), NO, "signalfd_read_iter vfs_read ksys_read", "signal", Idle),
    ("read inotify", Sleep, Some(0), NO, "schedule_timeout wait_woken inotify_read vfs_read ksys_read", "inotify", Idle),
    ("clock_nanosleep", Sleep, Some(230), NO, "do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep", "timer", Timer),
    ("pause", Sleep, Some(34), NO, "__do_sys_pause", "signal", Idle),
    ("sigsuspend", Sleep, Some(130), NO, "sigsuspend.isra.0 __x64_sys_rt_sigsuspend", "signal", Idle),
    ("sigtimedwait", Sleep, Some(128), NO, "schedule_hrtimeout_range_clock do_sigtimedwait.isra.0 __x64_sys_rt_sigtimedwait", "signal", Idle),
    ("wait4", Sleep, Some(61), NO, "do_wait kernel_wait4", "child", Dependency),
    ("waitid", Sleep, Some(247), NO, "do_wait kernel_waitid __do_sys_waitid", "child", Dependency),
    ("vfork", Blocked, Some(58), NO, "kernel_clone __do_sys_vfork", "vfork", Dependency),
    ("vfork, not inlined, through a completion", Blocked, Some(58), NO, "schedule_timeout __wait_for_common wait_for_completion_state kernel_clone __do_sys_vfork", "vfork", Dependency),
    ("join a thread", Sleep, Some(202), [0x7f00, 0x109, 0x17fd, 0], FUTEX, "thread", Dependency),
    ("condition variable", Sleep, Some(202), [0x7f00, 0x189, 0, 0], FUTEX, "futex", Idle),
    ("semaphore", Sleep, Some(202), [0x7f00, 0x189, 0, 0], FUTEX, "futex", Idle),
    ("glibc mutex", Sleep, Some(202), [0x7f00, 0x80, 2, 0], FUTEX, "futex", Lock),
    ("Rust mutex", Sleep, Some(202), [0x7f00, 0x89, 2, 0], FUTEX, "futex", Lock),
    ("robust mutex", Sleep, Some(202), [0x7f00, 0, 0x8000_1801, 0], FUTEX, "futex", Lock),
    ("PI mutex", Sleep, Some(202), [0x7f00, 6, 0, 0], "rt_mutex_schedule futex_lock_pi do_futex __x64_sys_futex", "futex", Lock),
    ("flock", Sleep, Some(73), NO, "locks_lock_inode_wait __do_sys_flock", "file-lock", Lock),
    ("fcntl lock", Sleep, Some(72), NO, "fcntl_setlk do_fcntl __x64_sys_fcntl", "file-lock", Lock),
    ("semop", Sleep, Some(220), NO, "__do_semtimedop do_semtimedop", "semaphore", Idle),
    ("msgrcv", Sleep, Some(70), NO, "do_msgrcv", "message-queue", Idle),
    ("mq_receive", Sleep, Some(243), NO, "schedule_hrtimeout_range_clock wq_sleep do_mq_timedreceive __x64_sys_mq_timedreceive", "message-queue", Idle),
    ("mq_send to a full queue", Sleep, Some(242), NO, "schedule_hrtimeout_range_clock wq_sleep do_mq_timedsend __x64_sys_mq_timedsend", "message-queue", Dependency),
    ("read a terminal", Sleep, Some(0), NO, "schedule_timeout wait_woken n_tty_read tty_read vfs_read ksys_read", "tty", Idle),
    ("stopped by a signal", Sleep, Some(234), NO, "do_signal_stop get_signal arch_do_signal_or_restart exit_to_user_mode_loop", "stopped", Limit),
    ("io_uring_enter", Sleep, Some(426), NO, "io_cqring_wait __do_sys_io_uring_enter", "io-uring", Idle),
    ("read /dev/kmsg", Sleep, Some(0), NO, "devkmsg_read vfs_read ksys_read", "kernel-log", Idle),
    ("flush of a disk's cache", Io, Some(74), NO, "io_schedule blk_wait_io submit_bio_wait blkdev_issue_flush ext4_sync_file do_fsync __x64_sys_fsync", "block-io", Device),
    ("fsync", Io, Some(74), NO, "io_schedule folio_wait_bit_common folio_wait_bit folio_wait_writeback __filemap_fdatawait_range file_write_and_wait_range generic_buffers_fsync_noflush ext4_fsync_nojournal.constprop.0 ext4_sync_file do_fsync", "block-io", Device),
    ("fsync of an inode", Io, Some(74), NO, "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit __sync_dirty_buffer ext4_write_inode ext4_fsync_nojournal.constprop.0 ext4_sync_file do_fsync", "block-io", Device),
    ("O_SYNC write", Io, Some(1), NO, "io_schedule folio_wait_bit_common folio_wait_bit folio_wait_writeback __filemap_fdatawait_range file_write_and_wait_range generic_buffers_fsync_noflush ext4_fsync_nojournal.constprop.0 ext4_sync_file ext4_buffered_write_iter vfs_write ksys_write", "block-io", Device),
    ("read", Io, Some(17), NO, "io_schedule folio_wait_bit_common filemap_get_pages filemap_read vfs_read __x64_sys_pread64", "block-io", Device),
    ("list a directory from disk", Io, Some(217), NO, "io_schedule bit_wait_io __wait_on_bit ext4_read_bh ext4_bread __ext4_read_dirblock htree_dirblock_to_tree ext4_htree_fill_tree ext4_readdir iterate_dir __x64_sys_getdents64", "block-io", Device),
    ("rename in a busy directory", Blocked, Some(82), NO, "schedule_preempt_disabled rwsem_down_write_slowpath down_write do_renameat2 __x64_sys_rename", "lock", Lock),
    ("write to a busy file", Blocked, Some(18), NO, "schedule_preempt_disabled rwsem_down_write_slowpath down_write ext4_buffered_write_iter vfs_write __x64_sys_pwrite64", "lock", Lock),
    ("move to a cgroup", Blocked, Some(1), NO, "schedule_preempt_disabled __mutex_lock.constprop.0 cgroup_kn_lock_live __cgroup_procs_write cgroup_procs_write kernfs_fop_write_iter vfs_write ksys_write", "lock", Lock),
    ("grace period for that", Blocked, Some(1), NO, "schedule_timeout __wait_for_common synchronize_rcu_normal rcu_sync_enter cgroup_procs_write_start __cgroup_procs_write cgroup_procs_write kernfs_fop_write_iter vfs_write ksys_write", "rcu", Dependency),
    ("expedited grace period", Blocked, Some(231), NO, "synchronize_rcu_expedited namespace_unlock free_nsproxy do_exit do_group_exit __x64_sys_exit_group x64_sys_call", "rcu", Dependency),
    ("in another's expedited grace period", Blocked, Some(231), NO, "exp_funnel_lock synchronize_rcu_expedited namespace_unlock free_nsproxy do_exit do_group_exit __x64_sys_exit_group x64_sys_call", "rcu", Dependency),
];

/// Without a system call: kernel threads and faults.
#[rustfmt::skip]
pub(super) const NO_CALL: &[(&str, State, &str, &str, Class)] = &[
    ("RCU barrier of a worker", Blocked, "schedule_timeout __wait_for_common rcu_barrier cleanup_net process_one_work worker_thread kthread ret_from_fork ret_from_fork_asm", "rcu", Dependency),
    ("grace period of a worker", Blocked, "schedule_timeout __wait_for_common synchronize_rcu_normal free_ipc process_one_work worker_thread kthread ret_from_fork ret_from_fork_asm", "rcu", Dependency),
    ("lock of a worker", Blocked, "schedule_preempt_disabled __mutex_lock.constprop.0 css_killed_work_fn process_one_work worker_thread kthread ret_from_fork ret_from_fork_asm", "lock", Lock),
    ("held back by wbt", Io, "io_schedule rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio __submit_bio submit_bio_noacct_nocheck __block_write_full_folio blkdev_writepages do_writepages __writeback_single_inode writeback_sb_inodes __writeback_inodes_wb wb_writeback wb_workfn process_one_work worker_thread kthread ret_from_fork ret_from_fork_asm", "wbt", Device),
    ("page fault on a file", Io, "io_schedule folio_wait_bit_common filemap_fault __do_fault do_fault __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault", "block-io", Device),
    ("page fault beside mmap", Blocked, "schedule_preempt_disabled rwsem_down_read_slowpath down_read_killable lock_mm_and_find_vma exc_page_fault asm_exc_page_fault", "lock", Lock),
    ("idle worker", Sleep, "worker_thread kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle kthread worker", Sleep, "kthread_worker_fn kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle rescuer", Sleep, "rescuer_thread kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle kswapd", Sleep, "kswapd kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle ksoftirqd", Sleep, "smpboot_thread_fn kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle kcompactd", Sleep, "schedule_timeout kcompactd kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle RCU tasks kthread", Sleep, "rcu_tasks_one_gp rcu_tasks_kthread kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle RCU kthread", Sleep, "rcu_gp_kthread kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("RCU kthread in a grace period", Sleep, "schedule_timeout rcu_gp_fqs_loop rcu_gp_kthread kthread ret_from_fork ret_from_fork_asm", "rcu", Dependency),
    ("idle interrupt thread", Sleep, "irq_thread kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle hardware random numbers", Sleep, "hwrng_fillfn kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("idle kdevtmpfs", Sleep, "devtmpfs_work_loop devtmpfsd kthread ret_from_fork ret_from_fork_asm", "idle", Idle),
    ("kthreadd", Sleep, "kthreadd ret_from_fork ret_from_fork_asm", "idle", Idle),
];

/// From the sources of 5.10, 6.1 and 6.12: functions with another name there, and stacks that cannot be made safely here.
#[rustfmt::skip]
pub(super) const OTHER_KERNELS: &[(State, &str, &str, Class)] = &[
        (Sleep, "pipe_read new_sync_read vfs_read ksys_read", "pipe", Idle),
        (Sleep, "pipe_write new_sync_write vfs_write", "pipe", Dependency),
        (Sleep, "schedule_hrtimeout_range ep_poll do_epoll_wait __x64_sys_epoll_wait", "epoll", Idle),
        (Sleep, "futex_wait_queue_me futex_wait do_futex __x64_sys_futex", "futex", Idle),
        (Sleep, "futex_wait_queue futex_wait do_futex __x64_sys_futex", "futex", Idle),
        (Sleep, "unix_stream_data_wait unix_stream_read_generic unix_stream_recvmsg", "unix-socket", Idle),
        (Blocked, "schedule_timeout wait_for_completion_killable wait_for_vfork_done kernel_clone", "vfork", Dependency),
        (Io, "io_schedule wait_on_page_bit_common __lock_page_killable filemap_fault __do_fault do_fault", "block-io", Device),
        (Io, "io_schedule wait_on_page_bit wait_on_page_writeback __filemap_fdatawait_range", "block-io", Device),
        (Io, "io_schedule folio_wait_bit_common __folio_lock_or_retry do_swap_page __handle_mm_fault", "swap-in", Device),
        (Io, "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit do_get_write_access jbd2_journal_get_write_access", "journal", Dependency),
        (Blocked, "jbd2_log_wait_commit ext4_sync_file do_fsync", "journal", Dependency),
        (Blocked, "wait_transaction_locked add_transaction_credits start_this_handle jbd2__journal_start", "journal", Dependency),
        (Blocked, "io_schedule_timeout balance_dirty_pages balance_dirty_pages_ratelimited_flags generic_perform_write", "dirty-throttling", Limit),
        (Blocked, "wbt_wait __rq_qos_throttle blk_mq_submit_bio", "wbt", Device),
        (Blocked, "io_schedule ioc_rqos_throttle __rq_qos_throttle blk_mq_submit_bio", "io-throttle", Limit),
        (Blocked, "schedule_timeout_killable mem_cgroup_handle_over_high exit_to_user_mode_loop", "memory-limit", Limit),
        (Blocked, "schedule_timeout reclaim_throttle shrink_node do_try_to_free_pages try_to_free_pages", "reclaim", Dependency),
        (Io, "io_schedule folio_wait_bit folio_wait_writeback shrink_folio_list shrink_node try_to_free_mem_cgroup_pages", "reclaim", Device),
        (Blocked, "schedule_timeout wait_for_completion __flush_work cancel_work_sync foo_remove", "work", Dependency),
        (Blocked, "schedule_timeout wait_for_completion __flush_workqueue foo_remove", "work", Dependency),
        (Blocked, "schedule_timeout wait_for_completion __wait_rcu_gp synchronize_rcu namespace_unlock", "rcu", Dependency),
        (Blocked, "schedule_timeout wait_for_completion stop_one_cpu sched_exec", "ipi", Dependency),
        (Blocked, "schedule_timeout __wait_for_common foo_wait_for_firmware bar_ioctl", "completion", Dependency),
        (Blocked, "schedule_timeout msleep foo_show dev_attr_show", "sleep", Dependency),
        (Blocked, "request_wait_answer __fuse_simple_request fuse_lookup_name", "fuse", Dependency),
        (Sleep, "rpc_wait_bit_killable __wait_on_bit __rpc_execute nfs4_call_sync_sequence", "nfs", Peer),
        (Blocked, "schedule_timeout p9_client_rpc p9_client_walk", "9p", Peer),
        (Sleep, "__refrigerator get_signal", "frozen", Limit),
        (Sleep, "do_freezer_trap get_signal", "frozen", Limit),
        (Sleep, "ptrace_stop ptrace_do_notify ptrace_notify syscall_trace_enter", "traced", Dependency),
        (Blocked, "kernfs_drain __kernfs_remove kernfs_remove_by_name_ns", "lock", Lock),
        (Sleep, "__lock_sock lock_sock_nested tcp_sendmsg", "lock", Lock),
        (Blocked, "rwsem_down_read_slowpath down_read do_user_addr_fault exc_page_fault", "lock", Lock),
        (Blocked, "percpu_rwsem_wait __percpu_down_read cgroup_can_fork copy_process", "lock", Lock),
        (Blocked, "percpu_down_write cgroup_procs_write_start cgroup_procs_write", "lock", Lock),
        (Blocked, "___down_common __down down console_lock", "lock", Lock),
        (Sleep, "__rt_mutex_slowlock.constprop.0 rt_mutex_slowlock i2c_adapter_lock", "lock", Lock),
        (Sleep, "zap_pid_ns_processes do_exit", "child", Dependency),
        (Blocked, "throttle_cfs_rq_work task_work_run exit_to_user_mode_loop", "cpu-quota", Limit),
        (Blocked, "frob gadget_ioctl", "unknown", Unknown),
    ];
