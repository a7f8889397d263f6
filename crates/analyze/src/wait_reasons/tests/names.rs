//! Names of locks, from their waiters.

use super::*;
use whyslow_model::Recording;
use whyslow_model::timeline::Lock;

fn named(kind: LockKind, write: bool, text: &str, target: Option<Target>) -> String {
    let (mut span, rows) = waits(State::Blocked, text);
    span.comm = "postgres".into();
    span.lock = Some(LockWait { address: 0xffff_0010, kind, write, ..LockWait::default() });
    span.target = target;
    of(&span, &Stacks::of(&rows)).detail.to_string()
}

#[test]
fn locks_are_named_by_who_takes_them() {
    const MUTEX: &str = "schedule_preempt_disabled __mutex_lock.constprop.0 mutex_lock";
    const READ: &str = "schedule_preempt_disabled rwsem_down_read_slowpath down_read";
    const WRITE: &str = "schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable";
    let mutex = |site: &str| named(LockKind::Mutex, true, &format!("{MUTEX} {site}"), None);
    let read = |site: &str| named(LockKind::Rwsem, false, &format!("{READ} {site}"), None);
    let write = |site: &str| named(LockKind::Rwsem, true, &format!("{WRITE} {site}"), None);
    assert_eq!(mutex("cgroup_kn_lock_live cgroup_mkdir kernfs_iop_mkdir"), "mutex cgroup_mutex");
    assert_eq!(mutex("css_killed_work_fn process_one_work"), "mutex cgroup_mutex");
    assert_eq!(mutex("register_nexthop_notifier ops_init setup_net copy_net_ns"), "mutex rtnl_mutex");
    assert_eq!(mutex("anon_pipe_write vfs_write"), "mutex lock of a pipe");
    assert_eq!(mutex("frob gadget_ioctl"), "mutex taken by frob");
    // A caller further out gives only a probable name, and a caller that can call any code gives none.
    assert_eq!(
        mutex("cgroup_frob cgroup_procs_write kernfs_fop_write_iter"),
        "mutex taken by cgroup_frob, probably cgroup_mutex"
    );
    assert_eq!(
        mutex("foo_show dev_attr_show sysfs_kf_seq_show seq_read_iter kernfs_fop_read_iter vfs_read"),
        "mutex taken by foo_show"
    );
    assert_eq!(mutex("seq_read_iter vfs_read"), "mutex lock of a seq_file (m->lock)");
    assert_eq!(
        read("lock_mm_and_find_vma exc_page_fault asm_exc_page_fault"),
        "rwsem mmap_lock of postgres (7), to read"
    );
    assert_eq!(write("vm_mmap_pgoff do_syscall_64"), "rwsem mmap_lock of postgres (7), to write");
    assert_eq!(
        read("__access_remote_vm get_mm_cmdline proc_pid_cmdline_read"),
        "rwsem mmap_lock of another process, to read"
    );
    assert_eq!(write("do_renameat2 __x64_sys_rename"), "rwsem i_rwsem of a directory, to write");
    assert_eq!(write("ext4_buffered_write_iter vfs_write"), "rwsem i_rwsem of a file, to write");
    assert_eq!(read("copy_net_ns create_new_namespaces"), "rwsem pernet_ops_rwsem, to read");
    assert_eq!(write("namespace_lock do_umount path_umount"), "rwsem namespace_sem, to write");
    assert_eq!(write("prealloc_shrinker alloc_super sget_fc"), "rwsem shrinker_rwsem, to write");
    assert_eq!(read("shrink_slab shrink_node"), "rwsem shrinker_rwsem, to read");
    let percpu =
        named(LockKind::PercpuRwsem, false, "percpu_rwsem_wait __percpu_down_read copy_process", None);
    assert_eq!(percpu, "percpu rwsem cgroup_threadgroup_rwsem, to read");
}

#[test]
fn one_function_takes_locks_of_several_sorts() {
    let sites = [
        (LockKind::Rwsem, "copy_process", "rwsem taken by copy_process, to write"),
        (LockKind::Mutex, "do_epoll_ctl", "mutex lock of an epoll (ep->mtx)"),
        (LockKind::Mutex, "n_tty_read", "mutex read lock of a terminal"),
        (LockKind::Rwsem, "n_tty_read", "rwsem termios_rwsem of a terminal, to write"),
    ];
    for (kind, site, want) in sites {
        assert_eq!(named(kind, true, site, None), want);
    }
}

#[test]
fn files_name_their_locks() {
    let file =
        |kind: &str, name: &str| Some(Target { kind: kind.into(), name: name.into(), ..Target::default() });
    let read = |site: &str, target| named(LockKind::Rwsem, false, &format!("down_read {site}"), target);
    assert_eq!(read("iterate_dir", file("dir", "spool")), "rwsem i_rwsem of directory spool, to read");
    assert_eq!(read("iterate_dir", file("file", "x")), "rwsem i_rwsem of a directory, to read");
    assert_eq!(read("ext4_dio_read_iter", file("file", "db")), "rwsem i_rwsem of db, to read");
    assert_eq!(read("m_start seq_read_iter", file("file", "mountinfo")), "rwsem namespace_sem, to read");
    assert_eq!(
        read("m_start seq_read_iter", file("file", "maps")),
        "rwsem mmap_lock of another process, to read"
    );
    assert_eq!(
        read("show sysfs_kf_seq_show", file("file", "scaling_cur_freq")),
        "rwsem rwsem of a cpufreq policy, to read"
    );
    assert_eq!(read("show sysfs_kf_seq_show", file("file", "size")), "rwsem taken by show, to read");
}

#[test]
fn all_waiters_of_a_lock_give_it_one_name() {
    let lock = |address| LockWait { address, kind: LockKind::Rwsem, ..LockWait::default() };
    let span = |pid, stack| Span {
        pid,
        tgid: pid,
        comm: format!("p{pid}"),
        state: State::Blocked,
        stack: Some(stack),
        lock: Some(lock(0xa0)),
        ..Span::default()
    };
    let mut recording = Recording::default();
    recording.tables.stacks = Some(vec![
        frames(1, "down_read __access_remote_vm get_mm_cmdline"),
        frames(2, "down_write do_madvise"),
        frames(3, "down_read frob"),
    ]);
    recording.tables.spans = Some(vec![span(10, 3), span(11, 1), span(12, 2)]);
    let stacks = Stacks::in_recording(&recording);
    for row in recording.tables.spans.iter().flatten() {
        assert_eq!(of(row, &stacks).detail.to_string(), "rwsem mmap_lock of p12 (12), to read");
    }
    assert_eq!(lock_name(&stacks, 0xb0, LockKind::Mutex).name, "no. 176");
    // No waiter's stack shows the lock: contention names it, and most of its waiters belong to that process.
    let contended = Lock { address: 0xa0, kind: LockKind::Rwsem, stack: Some(2), ..Lock::default() };
    recording.tables.locks = Some(vec![contended]);
    recording.tables.spans = Some(vec![span(10, 9), span(11, 9), span(11, 9)]);
    let stacks = Stacks::in_recording(&recording);
    assert_eq!(lock_name(&stacks, 0xa0, LockKind::Rwsem).name, "mmap_lock of p11 (11)");
    recording.tables.spans = None;
    let stacks = Stacks::in_recording(&recording);
    assert_eq!(
        lock_name(&stacks, 0xa0, LockKind::Rwsem).name,
        "mmap_lock of a process",
        "contention does not say whose"
    );
}

#[test]
fn lock_release_site_is_reported_only_from_a_stack_that_shows_it() {
    let by = |text: &str| released_by(&frames(1, text).kernel).map(str::to_owned);
    assert_eq!(
        by("try_to_wake_up wake_up_q __mutex_unlock_slowpath mutex_unlock cgroup_kn_unlock"),
        Some("cgroup_kn_unlock".into())
    );
    assert_eq!(by("try_to_wake_up wake_up_q rwsem_wake up_write __vm_munmap"), Some("__vm_munmap".into()));
    assert_eq!(by("try_to_wake_up hrtimer_wakeup"), None);
    assert_eq!(by(""), None);
}

#[test]
fn no_function_names_two_locks_of_one_sort() {
    use super::super::lock_sites::SITES;
    for (at, row) in SITES.iter().enumerate() {
        for other in SITES.iter().skip(at + 1) {
            if !row.kinds.iter().any(|kind| other.kinds.contains(kind)) {
                continue;
            }
            let both: Vec<_> = row.at.iter().filter(|function| other.at.contains(function)).collect();
            assert!(both.is_empty(), "{} and {}: {both:?}", row.name, other.name);
        }
    }
}
