//! Functions that take each lock: a lock without a symbol is named by the functions that wait for it.

use std::sync::LazyLock;

use crate::hashing::Table;
use whyslow_model::timeline::LockKind;

/// Rows by function.
pub(super) static BY_FUNCTION: LazyLock<Table<&'static str, Vec<&'static Taken>>> = LazyLock::new(|| {
    let mut rows: Table<&'static str, Vec<&'static Taken>> = Table::default();
    for row in SITES {
        row.at.iter().for_each(|function| rows.entry(function).or_default().push(row));
    }
    rows
});

/// A lock and the functions that take it.
pub(super) struct Taken {
    /// The name in the kernel's source.
    pub name: &'static str,
    pub of: Of,
    /// The same function may take locks of several kinds.
    pub kinds: &'static [LockKind],
    pub at: &'static [&'static str],
}

/// The owner of such a lock.
pub(super) enum Of {
    /// There is one for the host.
    Host,
    /// Each process: the waiter's own.
    Process,
    /// ... that of a process that the waiter reads about.
    OtherProcess,
    Directory,
    File,
    /// The file that is read decides which lock it is.
    SequenceFile,
    /// A lock only if the file that is read belongs to cpufreq.
    CpufreqFile,
}

const M: &[LockKind] = &[LockKind::Mutex, LockKind::Rtmutex];
const R: &[LockKind] = &[LockKind::Rwsem];
const P: &[LockKind] = &[LockKind::PercpuRwsem];
/// A mutex on some kernels, an rwsem or percpu rwsem on others.
const ANY: &[LockKind] =
    &[LockKind::Mutex, LockKind::Rtmutex, LockKind::Rwsem, LockKind::PercpuRwsem, LockKind::Semaphore];

const fn host(name: &'static str, kinds: &'static [LockKind], at: &'static [&'static str]) -> Taken {
    Taken { name, of: Of::Host, kinds, at }
}

const fn each(name: &'static str, of: Of, kinds: &'static [LockKind], at: &'static [&'static str]) -> Taken {
    Taken { name, of, kinds, at }
}

#[rustfmt::skip] // a table: one lock, then its functions
pub(super) const SITES: &[Taken] = &[
    // kernel/cgroup/*.c
    host("cgroup_mutex", M, &["cgroup_kn_lock_live", "cgroup_lock", "cgroup_lock_and_drain_offline", "css_killed_work_fn",
        "css_release_work_fn", "css_free_rwork_fn", "cgroup_apply_control", "cgroup_procs_write", "__cgroup_procs_write",
        "cgroup_mkdir", "cgroup_rmdir", "cgroup_subtree_control_write", "proc_cgroup_show", "proc_cgroupstats_show",
        "cgroup_attach_task_all", "cgroup_transfer_tasks", "cgroup_do_get_tree", "cgroup_get_from_path", "cgroup_show_path",
        "cgroup_path_ns", "cgroup_iter_seq_start", "cgroup_release_agent_set", "cgroup1_release_agent", "cgroup_setup_root",
        "cgroup_bpf_attach", "cgroup_bpf_detach", "cgroup1_procs_write", "__cgroup1_procs_write", "cgroup_fork", "css_create",
        "online_css", "cgroup_bpf_release", "cgroup_destroy_root", "cgroupstats_build", "current_cgns_cgroup_from_root"]),
    host("cgroup_threadgroup_rwsem", P, &["cgroup_procs_write_start", "cgroup_attach_lock", "cgroup_can_fork",
        "cgroup_threadgroup_change_begin", "copy_process", "cgroup_css_set_fork", "exit_signals", "cgroup_update_dfl_csses",
        "de_thread", "begin_new_exec", "cgroup_favor_dynmods", "cgroup_apply_control_enable"]),
    host("cpuset_mutex", ANY, &["cpuset_write_resmask", "cpuset_can_attach", "cpuset_attach", "cpuset_css_online",
        "cpuset_css_offline", "cpuset_hotplug_workfn", "cpuset_lock", "cpuset_fork", "cpuset_handle_hotplug", "cpuset_can_fork",
        "cpuset_full_lock", "cpuset_common_seq_show", "cpuset_partition_write"]),
    host("freezer_mutex", M, &["freezer_write", "freezer_fork", "freezer_css_online", "freezer_attach"]),
    // Network. net/core/*.c
    host("rtnl_mutex", M, &["rtnl_lock", "rtnl_lock_killable", "rtnl_net_lock", "rtnetlink_rcv_msg", "rtnl_dumpit", "dev_ioctl",
        "linkwatch_event", "register_nexthop_notifier", "unregister_nexthop_notifier", "rtnl_newlink", "rtnl_setlink", "rtnl_dellink", "rtnl_getlink",
        "inet_rtm_newaddr", "inet6_rtm_newaddr", "fib_net_exit_batch", "ops_exit_list", "nl80211_pre_doit", "genl_rcv_msg", "tc_ctl_tfilter", "ipv6_sock_mc_join", "addrconf_dad_work", "addrconf_verify_work", "netdev_run_todo", "default_device_exit_batch",
        "devinet_ioctl", "register_netdev", "unregister_netdev", "ops_exit_rtnl_list", "inetdev_init_net", "netlink_dump"]),
    host("pernet_ops_rwsem", R, &["copy_net_ns", "cleanup_net", "net_drop_ns", "setup_net", "register_pernet_subsys", "register_pernet_device",
        "register_netdevice_notifier", "unregister_netdevice_notifier", "unregister_pernet_subsys", "rtnl_link_unregister"]),
    // Mounts, superblocks. fs/namespace.c, fs/super.c
    host("namespace_sem", R, &["namespace_lock", "lock_mount", "do_lock_mount", "copy_mnt_ns", "path_umount", "do_umount", "put_mnt_ns",
        "drop_collected_mounts", "attach_recursive_mnt", "do_move_mount", "path_mount", "mnt_ns_loop", "umount_tree",
        "open_detached_copy", "statmount_path", "__do_sys_listmount", "__do_sys_statmount", "mounts_open_common", "class_namespace_excl_constructor"]),
    host("s_umount of a file system", R, &["grab_super", "super_lock", "__super_lock", "super_lock_excl", "alloc_super", "deactivate_super",
        "iterate_supers", "user_get_super", "trylock_super", "reconfigure_super", "do_remount", "sync_filesystem", "get_super",
        "cleanup_mnt", "sget_fc", "writeback_inodes_sb", "try_to_writeback_inodes_sb", "freeze_super", "thaw_super", "super_wake"]),
    host("s_writers of a file system", P, &["sb_start_write", "__sb_start_write", "mnt_want_write", "mnt_want_write_file", "file_start_write",
        "freeze_super", "sb_wait_write", "sb_start_pagefault", "sb_start_intwrite", "vfs_write", "do_writepages", "filename_create", "ext4_page_mkwrite"]),
    // Memory. mm/*.c, arch/x86/mm/fault.c; another's: fs/proc/base.c, fs/proc/task_mmu.c, mm/memory.c
    each("mmap_lock", Of::OtherProcess, R, &["access_remote_vm", "__access_remote_vm", "get_mm_cmdline", "proc_pid_cmdline_read", "environ_read",
        "mem_rw", "show_smaps_rollup", "show_smap", "pagemap_read", "clear_refs_write", "proc_pid_statm", "process_madvise",
        "khugepaged_scan_mm_slot", "collapse_huge_page", "ksm_do_scan", "scan_get_next_rmap_item", "register_for_each_vma",
        "process_vm_rw_core", "process_vm_rw", "__oom_reap_task_mm", "oom_reap_task_mm", "oom_reap_task", "damon_va_apply_scheme", "unuse_mm",
        "uprobe_register", "stack_map_get_build_id_offset", "proc_map_files_lookup", "map_files_d_revalidate"]),
    each("mmap_lock", Of::SequenceFile, R, &["m_start", "m_next"]),
    each("mmap_lock", Of::Process, R, &["do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault", "lock_mm_and_find_vma", "get_mmap_lock_carefully",
        "upgrade_mmap_lock_carefully", "mmap_read_lock", "mmap_read_lock_killable", "mmap_write_lock", "mmap_write_lock_killable", "vm_mmap_pgoff",
        "__vm_munmap", "vm_munmap", "__x64_sys_munmap", "do_madvise", "madvise_lock", "do_mprotect_pkey", "__x64_sys_mprotect", "__x64_sys_brk",
        "__do_sys_brk", "vm_brk_flags", "__do_sys_mremap", "__x64_sys_mremap", "do_mlock", "__mm_populate", "mm_populate", "do_mincore",
        "__do_sys_mincore", "__x64_sys_mincore", "exit_mmap", "exit_mm", "dup_mmap", "dup_mm", "get_user_pages_unlocked", "__gup_longterm_locked",
        "gup_fast_fallback", "internal_get_user_pages_fast", "__get_user_pages_locked", "fixup_user_fault", "acct_collect", "task_numa_work",
        "userfaultfd_register", "userfaultfd_unregister", "mfill_atomic", "setup_arg_pages", "__bprm_mm_init", "bprm_mm_init", "do_shmat", "do_mbind", "kernel_mbind", "do_set_mempolicy", "ksys_shmdt", "apply_mlockall_flags", "__do_sys_mlockall", "do_mseal",
        "vma_start_write", "__vma_start_write", "uprobe_handle_trampoline", "find_active_uprobe_rcu", "uprobe_clear_state", "ldt_setup", "aio_setup_ring", "prctl_set_mm",
        "faultin_page", "do_exit_mm"]),
    each("i_mmap_rwsem", Of::File, R, &["unmap_mapping_range", "unmap_mapping_pages", "unmap_mapping_folio", "vma_link_file", "__vma_link_file",
        "vma_link", "unlink_file_vma", "unlink_file_vma_batch_process", "vma_prepare", "__vma_adjust", "rmap_walk_file", "__rmap_walk_file", "mmap_region",
        "__mmap_region", "vma_complete", "free_pgtables", "truncate_pagecache"]),
    host("anon_vma of a page", R, &["anon_vma_clone", "anon_vma_fork", "unlink_anon_vmas", "folio_lock_anon_vma_read", "page_lock_anon_vma_read",
        "rmap_walk_anon", "__anon_vma_prepare", "folio_referenced", "page_referenced"]),
    host("shrinker_rwsem", ANY, &["shrink_slab", "shrink_slab_memcg", "prealloc_shrinker", "__prealloc_shrinker", "register_shrinker",
        "register_shrinker_prepared", "unregister_shrinker", "free_prealloced_shrinker", "shrinker_register", "shrinker_free", "shrinker_alloc",
        "alloc_shrinker_info", "reparent_shrinker_deferred", "expand_shrinker_info", "shrinker_memcg_alloc", "free_shrinker_info"]),
    host("slab_mutex", M, &["kmem_cache_create", "kmem_cache_create_usercopy", "__kmem_cache_create_args", "kmem_cache_destroy", "slab_start",
        "kmem_cache_shrink_all", "memcg_create_kmem_cache", "slab_mem_going_online_callback", "memcg_deactivate_kmem_caches"]),
    host("oom_lock", M, &["mem_cgroup_out_of_memory", "__alloc_pages_may_oom", "pagefault_out_of_memory", "mem_cgroup_oom"]),
    host("pcpu_alloc_mutex", M, &["pcpu_alloc", "pcpu_alloc_noprof", "pcpu_balance_workfn", "__alloc_percpu"]),
    host("vmap_purge_lock", M, &["__purge_vmap_area_lazy", "purge_vmap_area_lazy", "_vm_unmap_aliases", "drain_vmap_area_work", "reclaim_and_purge_vmap_areas"]),
    host("pcpu_drain_mutex", M, &["__drain_all_pages", "drain_all_pages"]),
    host("the mutex of lru_add_drain_all", M, &["__lru_add_drain_all", "lru_add_drain_all"]),
    // Directories. fs/namei.c, fs/readdir.c; kernfs has its own below.
    host("kernfs_rwsem", ANY, &["kernfs_dop_revalidate", "kernfs_iop_lookup", "kernfs_iop_permission", "kernfs_iop_getattr", "kernfs_iop_setattr",
        "kernfs_fop_readdir", "kernfs_add_one", "kernfs_remove", "kernfs_remove_by_name_ns", "kernfs_find_and_get_ns", "kernfs_notify_workfn",
        "kernfs_walk_and_get_ns", "kernfs_activate", "kernfs_rename_ns", "kernfs_setattr", "kernfs_remove_self", "kernfs_dir_pos", "kernfs_show",
        "kernfs_get_tree", "kernfs_kill_sb"]),
    host("kernfs_open_file_mutex", M, &["kernfs_fop_open", "kernfs_get_open_node", "kernfs_fop_release", "kernfs_unlink_open_file", "kernfs_drain_open_files"]),
    each("lock of an open kernfs file (of->mutex)", Of::Host, M, &["kernfs_fop_read_iter", "kernfs_fop_write_iter", "kernfs_file_read_iter", "kernfs_seq_start"]),
    each("i_rwsem", Of::Directory, R, &["iterate_dir", "lookup_slow", "__lookup_slow", "lookup_one_unlocked", "lookup_one_len_unlocked", "walk_component",
        "open_last_lookups", "path_openat", "filename_create", "do_unlinkat", "do_rmdir", "lock_rename", "lock_rename_child", "lock_two_directories",
        "do_renameat2", "vfs_rename", "vfs_rmdir", "vfs_unlink", "vfs_link", "do_mkdirat", "do_mknodat", "do_symlinkat", "do_linkat", "kern_path_create", "kern_path_locked",
        "__kern_path_locked", "start_dirop", "__start_dirop", "start_removing", "start_creating", "start_renaming", "__start_renaming", "simple_recursive_removal", "ovl_iterate",
        "dcache_dir_lseek", "ext4_dir_llseek"]),
    // Files. fs/*.c
    each("i_rwsem", Of::File, R, &["ext4_buffered_write_iter", "ext4_file_write_iter", "ext4_dio_write_iter", "ext4_file_read_iter", "ext4_dio_read_iter",
        "ext4_fallocate", "ext4_punch_hole", "ext4_llseek", "generic_file_write_iter", "xfs_ilock", "xfs_ilock_iocb", "xfs_file_buffered_write", "btrfs_inode_lock",
        "btrfs_buffered_write", "btrfs_direct_write", "do_truncate", "chmod_common", "chown_common", "vfs_utimes", "vfs_fallocate", "vfs_setxattr", "vfs_removexattr",
        "lock_two_nondirectories", "shmem_fallocate", "shmem_file_llseek", "shmem_file_write_iter", "nfs_start_io_read", "nfs_start_io_write", "fuse_file_write_iter",
        "fuse_cache_write_iter", "blkdev_write_iter", "blkdev_fallocate", "f2fs_file_write_iter", "generic_file_llseek", "__do_sys_swapon", "ovl_write_iter", "simple_setattr"]),
    each("i_data_sem", Of::File, R, &["ext4_map_blocks", "ext4_truncate", "ext4_ext_truncate", "ext4_da_map_blocks", "ext4_map_query_blocks", "ext4_map_create_blocks", "ext4_insert_range"]),
    each("xattr_sem", Of::File, R, &["ext4_xattr_get", "ext4_xattr_set_handle", "ext4_listxattr", "ext4_write_lock_xattr"]),
    each("invalidate_lock", Of::File, R, &["filemap_fault", "filemap_invalidate_lock", "filemap_create_folio", "page_cache_ra_unbounded", "page_cache_ra_order", "ext4_setattr",
        "do_read_cache_folio", "force_page_cache_ra", "ext4_break_layouts", "filemap_get_pages", "page_cache_sync_ra", "page_cache_async_ra"]),
    each("f_pos_lock", Of::File, M, &["__fdget_pos", "fdget_pos", "__f_unlock_pos"]),
    each("lock of a seq_file (m->lock)", Of::Host, M, &["seq_read_iter", "seq_read", "seq_lseek", "traverse"]),
    host("lock of a pipe", M, &["pipe_read", "anon_pipe_read", "pipe_write", "anon_pipe_write", "pipe_lock", "pipe_double_lock", "pipe_release", "pipe_ioctl", "fifo_open",
        "splice_to_pipe", "splice_from_pipe", "do_splice", "do_tee", "splice_file_to_pipe", "fifo_pipe_read", "fifo_pipe_write", "pipe_wait_readable", "pipe_wait_writable"]),
    host("lock of an epoll (ep->mtx)", M, &["do_epoll_ctl", "ep_send_events", "ep_start_scan", "ep_scan_ready_list", "__ep_eventpoll_poll", "ep_eventpoll_poll",
        "eventpoll_release_file", "ep_clear_and_put", "ep_free", "ep_poll", "ep_try_send_events", "ep_loop_check_proc"]),
    host("iolock of a unix socket", M, &["unix_stream_read_generic", "__unix_dgram_recvmsg", "unix_dgram_recvmsg", "unix_stream_sendpage", "unix_read_skb"]),
    host("bindlock of a unix socket", M, &["unix_bind", "unix_autobind", "unix_bind_bsd"]),
    host("j_checkpoint_mutex", M, &["jbd2_log_do_checkpoint", "__jbd2_log_wait_for_space", "jbd2_journal_flush", "jbd2_mark_journal_empty", "jbd2_journal_destroy"]),
    host("s_sync_lock of a file system", M, &["wait_sb_inodes", "sync_inodes_sb"]),
    host("open_mutex of a disk", M, &["blkdev_get_by_dev", "blkdev_put", "bdev_open", "bdev_release", "disk_scan_partitions", "blkdev_get_whole"]),
    host("lock of a queue (sysfs_lock)", M, &["queue_attr_store", "queue_attr_show", "elevator_change", "blk_mq_sysfs_show"]),
    host("lo_mutex of a loop device", M, &["lo_open", "lo_release", "lo_ioctl", "__loop_clr_fd", "loop_configure"]),
    // Processes. fs/exec.c, kernel/ptrace.c, kernel/fork.c
    each("cred_guard_mutex", Of::Process, M, &["prepare_bprm_creds", "bprm_execve", "ptrace_attach", "proc_pid_attr_write", "seccomp_set_mode_filter", "do_seccomp"]),
    each("exec_update_lock", Of::OtherProcess, R, &["mm_access", "proc_mem_open", "lock_trace", "proc_pid_stack", "proc_pid_personality", "proc_pid_syscall", "do_io_accounting",
        "__do_sys_kcmp", "kcmp_lock", "perf_event_open", "__do_sys_perf_event_open", "proc_fd_access_allowed", "__pidfd_fget"]),
    each("exec_update_lock", Of::Process, R, &["begin_new_exec", "exec_mmap"]),
    // ipc/util.c, kernel/utsname.c, kernel/user.c
    host("rwsem of System V ids", R, &["ipcget", "ipcget_public", "ipcget_new", "msgctl_down", "shmctl_down", "semctl_down", "free_ipcs", "shm_close", "exit_shm", "do_shm_rmid",
        "ipc_addid", "newary", "newseg", "newque", "sysvipc_proc_start", "shm_destroy_orphaned", "shm_try_destroy_orphaned"]),
    host("uts_sem", R, &["__do_sys_newuname", "__x64_sys_newuname", "__do_sys_sethostname", "__do_sys_setdomainname", "proc_do_uts_string", "gethostname"]),
    // Hotplug, modules, code patching, workqueues, RCU.
    host("cpu_hotplug_lock", P, &["cpus_read_lock", "cpus_write_lock", "_cpu_up", "_cpu_down", "cpu_hotplug_disable", "static_key_slow_inc", "static_key_enable", "static_key_disable",
        "kmem_cache_create", "stop_machine", "apply_wqattrs_lock", "synchronize_rcu_tasks_rude", "rebuild_sched_domains", "static_key_slow_dec"]),
    host("cpu_add_remove_lock", M, &["cpu_maps_update_begin", "cpu_up", "cpu_down", "remove_cpu", "add_cpu"]),
    host("jump_label_mutex", M, &["jump_label_lock", "static_key_slow_inc_cpuslocked", "static_key_enable_cpuslocked", "static_key_disable_cpuslocked", "__static_key_slow_dec_cpuslocked",
        "__static_key_slow_dec_deferred", "jump_label_update_timeout", "static_key_slow_inc", "static_key_slow_dec", "static_key_enable", "static_key_disable"]),
    host("text_mutex", M, &["arch_jump_label_transform_queue", "arch_jump_label_transform_apply", "ftrace_arch_code_modify_prepare", "bpf_arch_text_poke", "bpf_arch_text_copy",
        "arch_static_call_transform", "arch_arm_kprobe", "kprobe_optimizer", "text_poke_copy", "__bpf_arch_text_poke"]),
    host("tracepoints_mutex", M, &["tracepoint_probe_register", "tracepoint_probe_register_prio", "tracepoint_probe_unregister", "tracepoint_probe_register_prio_may_exist",
        "register_tracepoint_module_notifier"]),
    host("event_mutex", M, &["perf_trace_init", "perf_trace_destroy", "perf_uprobe_init", "perf_kprobe_init", "event_enable_write", "event_filter_write", "trace_event_set", "system_enable_write",
        "__ftrace_set_clr_event", "ftrace_set_clr_event", "trace_remove_event_call", "dyn_event_release", "create_dyn_event", "dyn_event_seq_start", "perf_kprobe_destroy", "perf_uprobe_destroy"]),
    host("trace_types_lock", M, &["tracing_set_tracer", "tracing_open", "tracing_read_pipe", "tracing_release", "trace_array_get", "tracing_open_pipe", "tracing_resize_ring_buffer"]),
    host("ftrace_lock", M, &["register_ftrace_function", "unregister_ftrace_function", "ftrace_set_hash", "ftrace_set_filter_ip", "t_start", "ftrace_regex_release"]),
    host("pmus_lock of perf", M, &["perf_pmu_register", "perf_pmu_unregister", "perf_swevent_init"]),
    host("lock of a perf context", M, &["perf_event_ctx_lock_nested", "perf_event_release_kernel", "perf_event_for_each", "_perf_ioctl", "perf_event_exit_task", "perf_event_exit_task_context"]),
    host("lock of a BPF trampoline", M, &["bpf_trampoline_link_prog", "bpf_trampoline_unlink_prog", "bpf_trampoline_get", "bpf_trampoline_put"]),
    host("module_mutex", M, &["load_module", "m_start", "__do_sys_delete_module", "init_module_from_file", "module_kallsyms_on_each_symbol", "free_module", "do_init_module", "resolve_symbol"]),
    host("wq_pool_mutex", M, &["alloc_workqueue", "__alloc_workqueue", "destroy_workqueue", "apply_wqattrs_lock", "apply_workqueue_attrs", "workqueue_apply_unbound_cpumask", "wq_unbound_cpumask_store"]),
    host("mutex of a workqueue (wq->mutex)", M, &["__flush_workqueue", "flush_workqueue", "drain_workqueue"]),
    host("wq_pool_attach_mutex", M, &["worker_attach_to_pool", "worker_detach_from_pool", "create_worker", "wq_worker_comm", "workqueue_online_cpu", "set_pf_worker", "rescuer_thread"]),
    host("barrier_mutex of RCU", M, &["rcu_barrier"]),
    host("exp_mutex of RCU", M, &["exp_funnel_lock", "synchronize_rcu_expedited"]),
    host("sched_domains_mutex", M, &["partition_sched_domains", "rebuild_sched_domains_locked", "sched_domains_mutex_lock", "build_sched_domains"]),
    // Devices. drivers/base, drivers/cpufreq, drivers/tty, crypto.
    host("lock of a device", M, &["__driver_attach", "__device_attach", "device_release_driver_internal", "device_release_driver", "__device_driver_lock", "device_del", "bus_reset", "device_lock",
        "uevent_show", "online_store", "device_driver_attach", "usb_disconnect", "usb_lock_device"]),
    each("rwsem of a cpufreq policy", Of::CpufreqFile, ANY, &["show", "store"]),
    host("rwsem of a cpufreq policy", R, &["cpufreq_update_policy", "cpufreq_get", "cpufreq_cpu_acquire", "handle_update", "refresh_frequency_limits", "od_dbs_update"]),
    host("lock of a terminal", M, &["tty_lock", "tty_lock_interruptible", "tty_open", "tty_release", "tty_set_lock_subclass"]),
    host("write lock of a terminal", M, &["tty_write_lock", "iterate_tty_write", "file_tty_write", "tty_send_xchar", "do_tty_write"]),
    host("read lock of a terminal", M, &["n_tty_read"]),
    host("termios_rwsem of a terminal", R, &["n_tty_read", "n_tty_write", "n_tty_poll", "tty_set_termios", "n_tty_receive_buf_common", "tty_mode_ioctl", "tty_unthrottle", "tty_throttle_safe"]),
    host("console_sem", &[LockKind::Semaphore], &["console_lock", "console_unlock", "vt_ioctl", "con_write", "do_con_write", "fb_flashcursor", "console_device", "console_callback"]),
    host("crypto_alg_sem", R, &["crypto_alg_lookup", "crypto_larval_lookup", "crypto_larval_add", "crypto_register_alg", "c_start"]),
    host("tty_mutex", M, &["tty_init_dev", "tty_open_by_driver", "ptmx_open", "tty_kopen", "tty_release_struct"]),
];
