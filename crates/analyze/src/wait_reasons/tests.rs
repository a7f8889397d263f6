use proptest::prelude::*;
use whyslow_model::timeline::{Context, LockKind, LockWait, Polled, Stack, State, Target, Waker};

use super::Class::*;
use super::real_stacks::{CALLED, NO_CALL, OTHER_KERNELS, SLEEPING, STACKS};
use super::*;

fn frames(id: u32, text: &str) -> Stack {
    Stack { id, kernel: text.split_whitespace().map(str::to_owned).collect(), user: Vec::new() }
}

mod names;
mod user;

/// A wait with this stack (innermost first, without the scheduler's own frames).
fn waits(state: State, text: &str) -> (Span, Vec<Stack>) {
    let span = Span {
        pid: 7,
        tgid: 7,
        comm: "t".into(),
        at_ns: 0,
        woken_ns: 100,
        to_ns: 100,
        state,
        stack: Some(1),
        ..Span::default()
    };
    (span, vec![frames(1, &format!("{SLEEPING} {text}"))])
}

fn called(nr: u32, args: [u64; 4], text: &str) -> (Span, Vec<Stack>) {
    let (span, stacks) = waits(State::Sleep, &format!("{text} {CALLED}"));
    (Span { syscall: Some(nr), args, ..span }, stacks)
}

fn reported((span, stacks): &(Span, Vec<Stack>)) -> WaitKind {
    of(span, &Stacks::of(stacks))
}

fn brief(wait: &(Span, Vec<Stack>)) -> (&'static str, Class) {
    let kind = reported(wait);
    (kind.reason.word(), kind.class)
}

fn woken_by(wait: &mut (Span, Vec<Stack>), context: Context, stack: &str) {
    let id = (!stack.is_empty()).then_some(2);
    wait.0.waker = Some(Waker { pid: 9, context, stack: id, ..Waker::default() });
    wait.1.push(frames(2, stack));
}

#[test]
fn stacks_of_waits_that_were_made_on_purpose() {
    for (what, state, call, args, text, word, class) in STACKS {
        let (span, stacks) = waits(*state, &format!("{text} {CALLED}"));
        let wait = (Span { syscall: *call, args: *args, ..span }, stacks);
        assert_eq!(brief(&wait), (*word, *class), "{what}: {:?}", reported(&wait));
    }
    for (what, state, text, word, class) in NO_CALL {
        // The call's register then holds an error code, or zero.
        for call in [None, Some(0), Some(7)] {
            let (span, stacks) = waits(*state, text);
            let wait = (Span { syscall: call, ..span }, stacks);
            assert_eq!(brief(&wait), (*word, *class), "{what}: {:?}", reported(&wait));
        }
    }
}

#[test]
fn a_sleep_after_a_refusal_is_for_the_lock() {
    let nap = "do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep";
    let looks = "schedule_hrtimeout_range_clock do_sys_poll __x64_sys_poll";
    // A nap, and a poll of no descriptor.
    let naps = [(230, [0, 0, 1, 0], nap), (7, [0, 0, 50, 0], looks)];
    for (call, args, text) in naps {
        let mut wait = called(call, args, text);
        woken_by(&mut wait, Context::Hardirq, "hrtimer_wakeup __hrtimer_run_queues");
        assert_eq!(brief(&wait), ("timer", Timer), "{text}");
        wait.0.refused = true;
        assert_eq!(brief(&wait), ("file-lock", Lock), "{text}");
        assert_eq!(reported(&wait).detail.to_string(), "a file lock (retried)");
        wait.0.target = Some(Target { name: "lk".into(), ..Target::default() });
        assert_eq!(reported(&wait).detail.to_string(), "a file lock on lk (retried)");
    }
    // A task that polls descriptors meanwhile has other things to do; so has a task that sleeps for long.
    let mut wait = called(7, [1, 3, 50, 0], looks);
    wait.0.refused = true;
    woken_by(&mut wait, Context::Hardirq, "hrtimer_wakeup __hrtimer_run_queues");
    assert_eq!(brief(&wait), ("timer", Timer));
    let mut wait = called(230, [0, 0, 1, 0], nap);
    (wait.0.refused, wait.0.woken_ns, wait.0.to_ns) = (true, 3_000_000_000, 3_000_000_000);
    assert_eq!(brief(&wait), ("timer", Timer));
    // A read of a pipe is no lock, whatever was refused before.
    let mut wait = called(0, [3, 0, 1, 0], "pipe_read vfs_read");
    wait.0.refused = true;
    assert_eq!(brief(&wait), ("pipe", Idle));
}

#[test]
fn stacks_of_other_kernels() {
    for (state, text, word, class) in OTHER_KERNELS {
        let wait = waits(*state, &format!("{text} {CALLED}"));
        assert_eq!(brief(&wait), (*word, *class), "{text}: {:?}", reported(&wait));
    }
}

#[test]
fn suffixes_and_modules_do_not_hide_a_function() {
    for frame in
        ["pipe_read+0x1f/0x30", "pipe_read.isra.0", "pipe_read.part.0.constprop.2", "pipe_read [foo]"]
    {
        let stack = Stack { id: 1, kernel: vec!["schedule+0x2e".into(), frame.into()], user: Vec::new() };
        let span = Span { state: State::Sleep, stack: Some(1), ..Span::default() };
        assert_eq!(of(&span, &Stacks::of(&[stack])).reason.word(), "pipe", "{frame}");
    }
}

#[test]
fn a_ready_task_waits_for_a_cpu_or_for_its_quota() {
    let ready = |throttled_ns| Span { state: State::Runnable, to_ns: 100, throttled_ns, ..Span::default() };
    assert_eq!(of(&ready(0), &Stacks::default()).class, Cpu);
    assert_eq!(of(&ready(10), &Stacks::default()).class, Cpu, "the smaller part");
    assert_eq!(of(&ready(90), &Stacks::default()).class, Limit);
}

#[test]
fn a_device_is_called_by_its_name() {
    let (mut span, rows) =
        waits(State::Io, "io_schedule folio_wait_bit_common filemap_get_pages filemap_read");
    span.device = Some("254:0".into());
    let mut recording = whyslow_model::Recording::default();
    recording.tables.stacks = Some(rows);
    assert_eq!(of(&span, &Stacks::in_recording(&recording)).detail.to_string(), "block device 254:0 (read)");
    let disk = whyslow_model::table::Disk { dev: "254:0".into(), device: "vda".into(), ..Default::default() };
    recording.tables.disk = Some(vec![disk]);
    assert_eq!(of(&span, &Stacks::in_recording(&recording)).detail.to_string(), "vda (read)");
    // A page of a network file system belongs to no device.
    span.device = None;
    span.target = Some(Target { kind: "file".into(), dev: "0:45".into(), ..Target::default() });
    assert_eq!(of(&span, &Stacks::in_recording(&recording)).class, Dependency);
}

#[test]
fn io_uring_is_a_device_only_if_block_io_completed_it() {
    let mut wait = called(426, [3, 0, 1, 1], "io_cqring_wait __do_sys_io_uring_enter");
    woken_by(
        &mut wait,
        Context::Hardirq,
        "io_req_complete_post blkdev_bio_end_io_async bio_endio blk_update_request",
    );
    assert_eq!(reported(&wait).class, Device);
    woken_by(&mut wait, Context::Task, "");
    assert_eq!(reported(&wait).class, Idle);
}

#[test]
fn without_a_stack_the_call_and_the_file_tell() {
    let reported = |nr, args, state, kind: &str, name: &str| {
        let target =
            (!kind.is_empty()).then(|| Target { kind: kind.into(), name: name.into(), ..Target::default() });
        let span = Span { state, syscall: Some(nr), args, target, ..Span::default() };
        let kind = of(&span, &Stacks::default());
        (kind.reason.word(), kind.class)
    };
    let asleep = State::Sleep;
    assert_eq!(reported(0, [0; 4], asleep, "pipe", ""), ("pipe", Idle));
    assert_eq!(reported(1, [0; 4], asleep, "pipe", ""), ("pipe", Dependency));
    assert_eq!(reported(0, [0; 4], asleep, "socket", "unix"), ("unix-socket", Idle));
    assert_eq!(reported(0, [0; 4], asleep, "chr", "tty1"), ("tty", Idle));
    assert_eq!(reported(202, [0, 0x80, 2, 0], asleep, "", ""), ("futex", Lock));
    assert_eq!(reported(61, [0; 4], asleep, "", ""), ("child", Dependency));
    assert_eq!(reported(56, [0x4100, 0, 0, 0], State::Blocked, "", ""), ("vfork", Dependency));
    assert_eq!(reported(56, [0x1_0000, 0, 0, 0], State::Blocked, "", ""), ("unknown", Unknown));
    assert_eq!(reported(35, [0; 4], asleep, "", ""), ("timer", Timer));
    assert_eq!(reported(0, [0; 4], State::Io, "pipe", ""), ("block-io", Device));
    assert_eq!(reported(999, [0; 4], asleep, "", ""), ("unknown", Unknown));
}

#[test]
fn an_idle_worker_has_no_work_and_a_waiting_one_has() {
    let idle = waits(State::Sleep, "worker_thread kthread ret_from_fork");
    assert_eq!(brief(&idle), ("idle", Idle));
    let busy =
        waits(State::Blocked, "frob_wait frob_work process_one_work worker_thread kthread ret_from_fork");
    assert_eq!(brief(&busy), ("unknown", Unknown));
    assert_eq!(reported(&busy).detail.to_string(), "something in frob_wait");
    let commit = waits(State::Blocked, "jbd2_journal_commit_transaction kjournald2 kthread ret_from_fork");
    assert_ne!(reported(&commit).reason.word(), "idle");
}

#[test]
fn a_lock_inside_reclaim_is_a_lock_and_a_child_of_a_caller_is_not_its_wait() {
    let lock = waits(
        State::Blocked,
        "__mutex_lock foo_shrink shrink_slab shrink_node try_to_free_pages __alloc_pages_direct_reclaim",
    );
    assert_eq!(brief(&lock), ("lock", Lock));
    let fork = waits(State::Blocked, "frob copy_process kernel_clone __do_sys_clone");
    assert_eq!(brief(&fork), ("unknown", Unknown), "kernel_clone waits for a vfork only itself");
}

#[test]
fn every_function_stands_in_one_table_only() {
    let mut seen = std::collections::HashSet::new();
    for function in table::AREAS.iter().flat_map(|area| area.iter()).flat_map(|row| row.at) {
        assert!(seen.insert(*function), "{function} is in two tables");
    }
}

#[test]
fn the_lock_that_was_traced_needs_no_stack() {
    let lock = LockWait { address: 0xffff_8881, kind: LockKind::Rwsem, write: true, ..LockWait::default() };
    let span = Span { state: State::Blocked, lock: Some(lock), ..Span::default() };
    let kind = of(&span, &Stacks::default());
    assert_eq!((kind.detail.to_string().as_str(), kind.class), ("rwsem no. 4294936705, to write", Lock));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn no_garbage_is_a_panic(
        seen in prop::collection::vec(("[a-z_+. \\[\\]0-9]{0,12}|\\PC{0,6}", any::<prop::sample::Index>(), any::<bool>()), 0..12),
        numbers in any::<([u64; 4], Option<u32>, u64, u64, u64, u64)>(),
        state in 0..6_u8,
        lock in any::<Option<(u64, u8, bool)>>(),
        peer in any::<Option<String>>(),
    ) {
        let known: Vec<&str> = STACKS.iter().flat_map(|row| row.4.split(' ')).collect();
        let kernel = seen.iter().map(|(junk, at, real)| if *real { (*at.get(&known)).to_owned() } else { junk.clone() }).collect();
        let (args, syscall, at_ns, woken_ns, to_ns, throttled_ns) = numbers;
        let states = [State::None, State::Running, State::Runnable, State::Io, State::Blocked, State::Sleep];
        let kinds = [LockKind::Unknown, LockKind::Mutex, LockKind::Rwsem, LockKind::PercpuRwsem];
        let lock = lock.map(|(address, kind, write)| LockWait { address, kind: kinds[usize::from(kind) % 4], write, ..LockWait::default() });
        let target = Some(Target { kind: "socket".into(), peer, ..Target::default() });
        let syscall = syscall.map(|nr| nr % 500);
        let state = states[usize::from(state)];
        let span = Span { at_ns, woken_ns, to_ns, throttled_ns, args, syscall, state, lock, target, stack: Some(1), ..Span::default() };
        let rows = [Stack { id: 1, kernel, user: Vec::new() }];
        let kind = of(&span, &Stacks::of(&rows));
        prop_assert!(!kind.detail.to_string().is_empty());
    }
}

/// 6.1: `percpu_down_write()` reports contention, and waits for a grace period first.
#[test]
fn a_grace_period_on_the_way_to_a_lock_is_no_wait_for_its_holder() {
    const WAY: &str =
        "cgroup_procs_write_start __cgroup_procs_write cgroup_procs_write kernfs_fop_write_iter";
    let lock = LockWait { address: 0x7000, kind: LockKind::PercpuRwsem, write: true, ..LockWait::default() };
    let reported = |inside: &str| {
        let mut wait = waits(State::Blocked, &format!("{inside} percpu_down_write {WAY}"));
        wait.0.lock = Some(lock.clone());
        brief(&wait)
    };
    assert_eq!(reported("__wait_rcu_gp synchronize_rcu rcu_sync_enter"), ("rcu", Dependency));
    let writer = waits(
        State::Blocked,
        &format!("__wait_rcu_gp synchronize_rcu rcu_sync_enter percpu_down_write {WAY}"),
    );
    let caller = Some("cgroup_procs_write_start".to_owned());
    assert_eq!(
        of(&writer.0, &Stacks::of(&writer.1)).detail,
        Detail::GracePeriod { caller },
        "the writer, not the way it takes the lock"
    );
    assert_eq!(reported(""), ("lock", Lock));
}

/// A thread for each connection that checks whether it is to end, while its client has nothing to ask.
#[test]
fn a_service_that_looks_at_its_watch_waits_for_no_answer() {
    let looks = |serves| {
        let polled = Polled { peer: "10.0.0.7:5432".into(), serves, ..Polled::default() };
        let waker = Some(Waker { context: Context::Hardirq, ..Waker::default() });
        let args = [3, 1, 200, 0];
        let polled = Some(Box::new(polled));
        Span { state: State::Sleep, syscall: Some(7), args, polled, waker, ..Span::default() }
    };
    assert_eq!(of(&looks(true), &Stacks::default()).class, Timer);
    let asks = of(&looks(false), &Stacks::default());
    assert_eq!((asks.class, asks.detail.to_string()), (Peer, "data from 10.0.0.7:5432".to_owned()));
}
