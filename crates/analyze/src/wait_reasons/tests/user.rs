//! Futexes, timeouts, sockets: waits of user space.

use super::*;

#[test]
fn futexes_that_somebody_holds_and_those_that_somebody_signals() {
    const WAIT: &str = "futex_do_wait __futex_wait futex_wait do_futex";
    let cases = [
        ([0, 0x80, 2, 0], Lock),
        ([0, 0x80, 2, 0x7f00], Lock),
        ([0, 0x80, 0, 0], Idle),
        ([0, 0x80, 1, 0], Idle),
        // A condition variable of glibc 2.41, whose count happens to be 2.
        ([0, 0x189, 2, 0], Idle),
        // Rust's RwLock, held by a writer; a reader's word of many readers.
        ([0, 0x89, 0x7fff_ffff, 0], Lock),
        ([0, 0x89, 0x4000_0003, 0], Idle),
        // A condition variable of Rust std with a timeout, whose count happens to be 2.
        ([0, 0x89, 2, 0x7f00], Idle),
        // A parked thread of Rust std.
        ([0, 0x89, 0xffff_ffff, 0], Idle),
        // Waiters bit without an owner: an event count.
        ([0, 0x80, 0x8000_0000, 0], Idle),
        ([0, 13, 0, 0], Lock),
    ];
    for (args, class) in cases {
        let wait = called(202, args, WAIT);
        assert_eq!(brief(&wait), ("futex", class), "{args:x?}");
    }
    assert_eq!(brief(&called(455, [0, 2, u64::MAX, 0x82], "futex_do_wait __futex_wait")).1, Lock);
    assert_eq!(brief(&called(449, [0x7f00, 2, 0, 0], "futex_wait_multiple __do_sys_futex_waitv")).1, Idle);
    let owned = called(202, [0, 0, 0xc000_1801, 0], WAIT);
    assert_eq!(futex_owner(&owned.0), Some(0x1801), "the owner-died bit is not the owner's");
    assert_eq!(futex_owner(&called(202, [0, 0x80, 2, 0], WAIT).0), None);
}

#[test]
fn user_functions_say_more_than_the_word() {
    let mut rwlock = called(202, [0, 0x189, 2, 0], "futex_do_wait do_futex");
    rwlock.1[0].user =
        vec!["__futex_abstimed_wait_common".into(), "pthread_rwlock_wrlock@@GLIBC_2.34".into()];
    assert_eq!(reported(&rwlock).class, Lock);
    let mut condvar = called(202, [0, 0x89, 2, 0], "futex_do_wait do_futex");
    condvar.1[0].user =
        vec!["syscall".into(), "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout".into()];
    assert_eq!(reported(&condvar).class, Idle);
}

#[test]
fn a_thread_is_joined_only_if_the_word_may_be_its_number() {
    let mut recording = whyslow_model::Recording::default();
    let task = |pid, tgid| whyslow_model::table::Task { pid, tgid, ..Default::default() };
    recording.tables.tasks = Some(vec![task(7, 7), task(8, 7), task(900, 900)]);
    let stacks = Stacks::in_recording(&recording);
    let joined =
        |args| joined_thread(&Span { pid: 7, tgid: 7, syscall: Some(202), args, ..Span::default() }, &stacks);
    assert_eq!(joined([0, 0x109, 8, 0]), Some(8));
    assert_eq!(joined([0, 0x109, 1234, 0]), Some(1234), "in a pid namespace");
    assert_eq!(joined([0, 0x109, 900, 0]), None, "another process's");
    assert_eq!(joined([0, 0x189, 8, 0]), None, "private: the kernel would not wake it");
    assert_eq!(joined([0, 0x109, 2, 0]), None);
}

#[test]
fn a_timeout_is_a_wish_only_if_a_timer_ended_it() {
    let calls: [(u32, [u64; 4], &str); 4] = [
        (232, [3, 0, 1, 100], "schedule_hrtimeout_range ep_poll do_epoll_wait"),
        (441, [3, 0, 1, 0x7f00], "schedule_hrtimeout_range ep_poll do_epoll_wait"),
        (7, [0x7f00, 1, 100, 0], "schedule_hrtimeout_range poll_schedule_timeout do_sys_poll"),
        (202, [0, 0x89, 0, 0x7f00], "futex_do_wait do_futex"),
    ];
    for (nr, args, text) in calls {
        let mut by_timer = called(nr, args, text);
        woken_by(
            &mut by_timer,
            Context::Hardirq,
            "try_to_wake_up hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt",
        );
        assert_eq!(reported(&by_timer).class, Timer, "{nr}");
        let mut by_device = called(nr, args, text);
        woken_by(&mut by_device, Context::Hardirq, "try_to_wake_up __wake_up vfio_msihandler");
        assert_eq!(reported(&by_device).class, Idle, "{nr}");
        let mut by_task = called(nr, args, text);
        woken_by(&mut by_task, Context::Task, "");
        assert_eq!(reported(&by_task).class, Idle, "{nr}");
        let mut untold = called(nr, args, text);
        woken_by(&mut untold, Context::Hardirq, "");
        assert_eq!(reported(&untold).class, Timer, "{nr}: hard interrupts are timers, as a rule");
    }
    let mut forever = called(232, [3, 0, 1, 0xffff_ffff], "ep_poll do_epoll_wait");
    woken_by(&mut forever, Context::Hardirq, "");
    assert_eq!(reported(&forever).class, Idle);
}

#[test]
fn a_socket_with_a_peer_is_the_peers_and_one_without_is_anybodys() {
    let mut wait =
        called(0, [4, 0, 0, 0], "wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg sock_recvmsg");
    assert_eq!(reported(&wait).class, Idle);
    let peer = Some("10.0.0.1:5432".to_owned());
    wait.0.target = Some(Target { fd: 4, kind: "socket".into(), peer, ..Target::default() });
    let peer = reported(&wait);
    let said = (peer.reason.word(), peer.detail.to_string(), peer.class);
    assert_eq!(said, ("socket", "data from 10.0.0.1:5432".to_owned(), Peer));
    let mut full = called(1, [4, 0, 0, 0], "wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg");
    assert_eq!(reported(&full).detail.to_string(), "its peer to take data");
    full.0.target = wait.0.target.clone();
    assert_eq!(reported(&full).detail.to_string(), "10.0.0.1:5432 to take data");
    let mut connect =
        called(42, [4, 0, 0, 0], "wait_woken __inet_stream_connect inet_stream_connect __sys_connect");
    connect.0.target = wait.0.target;
    assert_eq!(reported(&connect).detail.to_string(), "10.0.0.1:5432 to accept a connection");
}
