//! Hosts that no person designed: drawn tables. Whatever they hold, the report is consistent.

use proptest::prelude::*;
use whyslow_analyze::examine;
use whyslow_faults::story;
use whyslow_model::table::{Cgroup, CgroupCpu, Disk, Memory, Sample, Task};
use whyslow_model::timeline::{Context, LockKind, LockWait, Span, Stack, State, StateTimes, Waker, Watched};
use whyslow_model::{Meta, Recording};

const MS: u64 = 1_000_000;
const WINDOW: u64 = 2000 * MS;
const TASKS: u32 = 8;

/// Kernel stacks of all kinds of waits, with the state of the task.
const WAITS: &[(State, &str)] = &[
    (State::Blocked, "jbd2_log_wait_commit jbd2_complete_transaction ext4_sync_file"),
    (State::Io, "io_schedule __wait_on_buffer jbd2_journal_commit_transaction kjournald2"),
    (State::Blocked, "__mutex_lock cgroup_kn_lock_live cgroup_mkdir"),
    (State::Blocked, "__mutex_lock foo_show dev_attr_show sysfs_kf_seq_show seq_read_iter"),
    (State::Blocked, "wait_for_vfork_done kernel_clone __do_sys_vfork"),
    (State::Sleep, "do_wait kernel_wait4 __do_sys_wait4"),
    (State::Sleep, "hrtimer_nanosleep common_nsleep"),
    (State::Io, "io_schedule folio_wait_bit_common do_swap_page"),
    (State::Blocked, "balance_dirty_pages generic_perform_write"),
    (State::Io, "io_schedule __blk_throtl_bio submit_bio"),
    (State::Blocked, "__mem_cgroup_handle_over_high"),
    (State::Io, "io_schedule shrink_node try_to_free_mem_cgroup_pages"),
    (State::Blocked, "throttle_direct_reclaim try_to_free_pages"),
    (State::Sleep, "futex_wait_queue futex_wait do_futex"),
    (State::Runnable, ""),
];

/// One row: (mixed, wait, ready, kind of wait, waker, throttled).
type Row = (u64, u64, u64, usize, u32, bool);

fn rows() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let row = (0..20u64, 0..200u64, 0..30u64, 0..WAITS.len(), 0..=TASKS, any::<bool>());
    prop::collection::vec(prop::collection::vec(row, 0..14), TASKS as usize)
}

fn spans_of(pid: u32, rows: &[Row]) -> Vec<Span> {
    let mut at = 0;
    let mut spans = Vec::new();
    for (mixed, wait, ready, which, waker, throttled) in rows {
        let (state, stack) = WAITS[*which];
        let wait = if state == State::Runnable { 0 } else { *wait };
        let to = at + (mixed + wait + ready) * MS;
        if to > WINDOW {
            break;
        }
        let begins = at + mixed * MS;
        let lock = stack.starts_with("__mutex").then(|| LockWait {
            address: 7 + *which as u64,
            kind: LockKind::Mutex,
            write: true,
            since_ns: begins,
            owner: *waker,
            ..LockWait::default()
        });
        let by = Waker { pid: *waker, tgid: *waker, context: Context::Task, ..Waker::default() };
        spans.push(Span {
            pid,
            tgid: pid,
            comm: format!("task{pid}"),
            from_ns: at,
            at_ns: begins,
            woken_ns: begins + wait * MS,
            to_ns: to,
            mixed: StateTimes { running_ns: mixed * MS, ..StateTimes::default() },
            state,
            stack: (state != State::Runnable).then_some(*which as u32 + 1),
            waker: (*waker != 0 && state != State::Runnable).then_some(by),
            device: (state == State::Io).then(|| "254:0".to_owned()),
            throttled_ns: if *throttled { ready * MS } else { 0 },
            lock,
            ..Span::default()
        });
        at = to;
    }
    spans
}

fn task_of(pid: u32, spans: &[Span], kin: (u32, bool, u64)) -> Task {
    let sum = |state: State| {
        let of = spans.iter().filter(|span| span.state == state);
        of.map(|span| span.woken_ns - span.at_ns).sum::<u64>()
    };
    let runnable_ns = spans.iter().map(|span| span.to_ns - span.woken_ns).sum();
    let exec_ns = spans.iter().map(|span| span.mixed.running_ns).sum();
    let (ppid, kthread, group) = kin;
    Task {
        pid,
        tgid: pid,
        ppid,
        kthread,
        comm: format!("task{pid}"),
        cpu_cgroup: group,
        unified_cgroup: group,
        io_cgroup: group,
        lived_ns: WINDOW,
        exec_ns,
        traced_ns: exec_ns,
        runnable_ns,
        run_delay_ns: runnable_ns,
        runnable_count: 1,
        io_ns: sum(State::Io),
        blocked_ns: sum(State::Blocked),
        sleep_ns: sum(State::Sleep),
        allowed: "0-1".into(),
        allowed_count: 2,
        weight: 1024,
        ..Task::default()
    }
}

fn host(rows: &[Vec<Row>], kin: &[(u32, bool, u64)], quota: Option<u64>, watched: &[u32]) -> Recording {
    let mut rec = Recording {
        meta: Meta { window_ns: WINDOW, cpus: 2, clock_ticks: 100, privileged: true, ..Meta::default() },
        ..Recording::default()
    };
    let per_task: Vec<Vec<Span>> = (1..).zip(rows).map(|(pid, rows)| spans_of(pid, rows)).collect();
    let tasks = (1..).zip(per_task.iter().zip(kin)).map(|(pid, (spans, kin))| task_of(pid, spans, *kin));
    rec.tables.tasks = Some(tasks.collect());
    rec.tables.spans = Some(per_task.into_iter().flatten().collect());
    let stack = |(at, (_, text)): (usize, &(State, &str))| Stack {
        id: at as u32 + 1,
        kernel: text.split(' ').map(str::to_owned).collect(),
        user: vec![],
    };
    rec.tables.stacks = Some(WAITS.iter().enumerate().map(stack).collect());
    let group = |id: u64| Cgroup {
        id,
        parent: id - 1,
        path: if id == 1 { "/".into() } else { format!("/g{id}") },
        cpu: Some(CgroupCpu {
            quota_ns: quota.filter(|_| id > 1),
            period_ns: 100 * MS,
            periods: 20,
            ..CgroupCpu::default()
        }),
        ..Cgroup::default()
    };
    rec.tables.cgroups = Some((1..4).map(group).collect());
    let disk = Disk { dev: "254:0".into(), device: "vda".into(), op: "write".into(), ..Disk::default() };
    rec.tables.disk = Some(vec![disk]);
    rec.tables.memory = Some(vec![Memory::default()]);
    rec.tables.samples = Some(vec![Sample { pid: 1, tgid: 1, count: 3, ns: 30 * MS, ..Sample::default() }]);
    rec.tables.runs = Some(vec![]);
    rec.tables.locks = Some(vec![]);
    if !watched.is_empty() {
        rec.meta.watched =
            Some(Watched { subject: "it".into(), pids: watched.to_vec(), ..Watched::default() });
    }
    rec
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_report_of_any_host_holds_together(
        rows in rows(),
        kin in prop::collection::vec((0..=TASKS, any::<bool>(), 1..4u64), TASKS as usize),
        quota in prop::option::of(1..100u64),
        watched in prop::collection::vec(1..=TASKS, 0..3),
    ) {
        let rec = host(&rows, &kin, quota.map(|ms| ms * MS), &watched);
        let document = serde_json::to_value(examine(&rec)).unwrap();
        let mut broken = story::broken(&document);
        // Drawn tables contradict each other, as torn ones do: the report may say so, and is otherwise consistent.
        broken.retain(|wrong| !wrong.starts_with("it contradicts itself"));
        prop_assert!(broken.is_empty(), "{:#?}", broken);
    }
}
