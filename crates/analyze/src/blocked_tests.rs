use proptest::prelude::*;
use whyslow_model::timeline::{LockKind, LockWait, Stack, State};

use super::*;

const MKDIR: &str = "__schedule schedule schedule_preempt_disabled __mutex_lock cgroup_kn_lock_live cgroup_mkdir kernfs_iop_mkdir \
                     vfs_mkdir do_syscall_64 entry_SYSCALL_64_after_hwframe";
const KILLED: &str = "__schedule schedule rwsem_down_write_slowpath down_write unregister_shrinker css_killed_work_fn \
                      process_one_work worker_thread kthread ret_from_fork";
const FREE_IPC: &str = "__schedule schedule schedule_timeout __wait_for_common synchronize_rcu kern_unmount free_ipc process_one_work \
                        worker_thread kthread";
const CGROUP: u64 = 1;
const SHRINKER: u64 = 2;

fn recording(rows: Vec<Blocked>) -> Recording {
    let mut recording = Recording::default();
    let stack = |(id, text): (u32, &str)| Stack {
        id,
        kernel: text.split_whitespace().map(str::to_owned).collect(),
        user: Vec::new(),
    };
    recording.meta.window_ns = 10_000_000_000;
    recording.tables.stacks = Some([(1, MKDIR), (2, KILLED), (3, FREE_IPC)].map(stack).to_vec());
    recording.tables.blocked = Some(rows);
    recording
}

fn row(id: u32, pid: u32, samples: u64, stack: u32) -> Blocked {
    let state = State::Blocked;
    let stack = Some(stack);
    let comm = format!("t{pid}");
    Blocked { id, pid, tgid: pid, comm, state, samples, waits: 2, passes: 100, stack, ..Blocked::default() }
}

fn locked(row: Blocked, address: u64, owner: u32, behind: Option<u32>) -> Blocked {
    let kind = if address == CGROUP { LockKind::Mutex } else { LockKind::Rwsem };
    let lock = LockWait { address, kind, write: true, owner, ..LockWait::default() };
    let owner_comm = if owner == 0 { String::new() } else { format!("o{owner}") };
    let owner_state = if behind.is_some() { State::Blocked } else { State::Running };
    Blocked { lock: Some(lock), owner_comm, owner_state, behind, ..row }
}

fn account_of(recording: &Recording) -> BlockedAccount {
    account(recording, &Stacks::in_recording(recording)).expect("there were passes")
}

/// Two threads wait for a mutex, whose holder, a worker, waits for an rwsem, whose holder runs.
fn convoy() -> Vec<Blocked> {
    let worker = Blocked {
        comm: "kworker/1:2".to_owned(),
        work: Some("css_killed_work_fn".to_owned()),
        ..locked(row(3, 30, 60, 2), SHRINKER, 40, None)
    };
    vec![
        locked(row(1, 10, 60, 1), CGROUP, 30, Some(3)),
        locked(row(2, 11, 40, 1), CGROUP, 30, Some(3)),
        worker,
        row(4, 50, 40, 3),
    ]
}

#[test]
fn samples_are_told_by_what_was_waited_for_with_the_holders_down_to_the_end() {
    let all = account_of(&recording(convoy()));
    assert_eq!((all.samples, all.passes, all.tasks, all.idle), (200, 100, 2.0, 0));
    let [first, second, third] = &all.waits[..] else { panic!("{:?}", all.waits) };
    assert_eq!(
        (first.what.as_str(), first.samples, first.threads, first.waits),
        ("mutex cgroup_mutex", 100, 2, 4)
    );
    assert_eq!(first.share, Some(Share::percent(50)));
    assert_eq!(first.examples, ["t10 (10)", "t11 (11)"]);
    assert_eq!(first.site, "cgroup_kn_lock_live < cgroup_mkdir < kernfs_iop_mkdir < vfs_mkdir");
    let [chain] = &first.chains[..] else { panic!("{:?}", first.chains) };
    let told: Vec<_> = chain.holders.iter().map(|one| (one.who.to_string(), one.pid, one.did)).collect();
    let worker = "kworker/1:2 (css_killed_work_fn)".to_owned();
    assert_eq!(told, [(worker, 30, TaskState::Uninterruptible), ("o40".to_owned(), 40, TaskState::Running)]);
    assert!(chain.holders[0].what.starts_with("rwsem ") && chain.holders[1].what.is_empty() && !chain.cycle);
    assert_eq!((second.samples, third.samples), (60, 40));
    assert_eq!(third.what, "an RCU grace period for kern_unmount");
    assert!(third.chains.iter().all(|chain| chain.holders.is_empty()));
    let [running, rcu] = &all.roots[..] else { panic!("{:?}", all.roots) };
    assert_eq!((running.who.to_string().as_str(), running.samples, running.behind), ("o*", 160, 160));
    assert_eq!((running.pid, running.did, running.what.as_str()), (40, TaskState::Running, ""));
    assert_eq!((rcu.samples, rcu.behind, rcu.who.is_nobody()), (40, 0, true));
}

#[test]
fn a_lock_without_a_name_in_it_has_no_holder() {
    let all = account_of(&recording(vec![locked(row(1, 10, 9, 1), CGROUP, 0, None), row(2, 11, 1, 1)]));
    let [wait] = &all.waits[..] else { panic!("{:?}", all.waits) };
    let [chain] = &wait.chains[..] else { panic!("{:?}", wait.chains) };
    assert_eq!((wait.samples, chain.samples, chain.holders.len()), (10, 10, 0));
    assert_eq!((all.roots.len(), all.roots[0].behind), (1, 0));
    // A wait for something else that is open beside a lock is not behind that lock's holder.
    let beside = account_of(&recording(vec![locked(row(1, 10, 9, 3), 0, 30, None)]));
    assert!(beside.waits[0].chains[0].holders.is_empty(), "{beside:?}");
}

#[test]
fn tasks_that_wait_for_each_other_are_a_cycle() {
    let rows = vec![
        locked(row(1, 10, 5, 1), CGROUP, 11, Some(2)),
        locked(row(2, 11, 5, 2), SHRINKER, 10, None),
        locked(row(3, 12, 5, 1), CGROUP, 12, None),
    ];
    let all = account_of(&recording(rows));
    let chains: Vec<_> = all.waits.iter().flat_map(|wait| &wait.chains).collect();
    assert_eq!(chains.iter().filter(|chain| chain.cycle).count(), 1, "{chains:?}");
    let own = chains.iter().filter(|chain| chain.holders.is_empty()).map(|chain| chain.samples);
    assert_eq!(own.collect::<Vec<_>>(), [5], "a task does not wait for itself");
}

#[test]
fn behind_a_reader_that_may_be_gone_the_end_is_uncertain() {
    let mut rows = convoy();
    let ends = |rows: &[Blocked]| {
        let all = account_of(&recording(rows.to_vec()));
        all.roots.iter().map(|root| (root.samples, root.uncertain)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&rows), [(160, false), (40, false)]);
    rows[2].lock.as_mut().unwrap().reader_owned = true;
    assert_eq!(ends(&rows), [(160, true), (40, false)]);
}

#[test]
fn workers_of_a_pool_are_one_holder() {
    let holds =
        |row: Blocked, n: u32| Blocked { owner_comm: format!("pool-{n}"), ..locked(row, CGROUP, n, None) };
    let all = account_of(&recording(vec![holds(row(1, 10, 5, 1), 70), holds(row(2, 11, 6, 1), 71)]));
    let [chain] = &all.waits[0].chains[..] else { panic!("{:?}", all.waits) };
    let holder = &chain.holders[0];
    assert_eq!((chain.samples, holder.who.to_string().as_str(), holder.pid), (11, "pool-*", 0));
}

#[test]
fn without_passes_nothing_is_said_and_whyslow_does_not_count_itself() {
    assert_eq!(account(&Recording::default(), &Stacks::default()), None);
    let none = recording(vec![Blocked { passes: 7, ..Blocked::default() }]);
    let all = account_of(&none);
    assert_eq!((all.passes, all.samples, all.waits.len(), all.tasks), (7, 0, 0, 0.0));
    let mut own = recording(convoy());
    own.meta.own_pids = vec![50];
    assert_eq!(account_of(&own).samples, 160);
}

#[test]
fn the_flame_graph_is_as_wide_as_the_time_that_tasks_waited() {
    let picture = blocked_picture(&recording(convoy()));
    assert_eq!(picture.lines.iter().map(|(_, ns)| ns).sum::<u64>(), 200 * 100_000_000);
    let (line, _) = picture.lines.iter().find(|(line, _)| line.starts_with("t*;entry")).unwrap();
    assert!(line.contains(";cgroup_mkdir;cgroup_kn_lock_live;"), "{line}");
    assert!(
        line.contains(
            ";-- waits for mutex cgroup_mutex;kworker/*:* (css_killed_work_fn);-- waits for rwsem "
        ),
        "{line}"
    );
    assert!(line.ends_with(";o*"), "{line}");
}

proptest! {
    #[test]
    fn no_rows_make_it_panic(
        rows in prop::collection::vec((0..5u32, 0..5u32, any::<u64>(), any::<u64>(), 0..5u32, 0..6u32, 0..6u32), 0..12)
    ) {
        let made = rows.iter().map(|&(id, pid, samples, passes, stack, owner, behind)| Blocked {
            passes,
            waits: samples,
            ..locked(row(id, pid, samples, stack), u64::from(stack), owner, Some(behind))
        });
        let recording = recording(made.collect());
        let drawn = blocked_picture(&recording);
        prop_assert!(drawn.lines.len() <= rows.len());
        if let Some(all) = account(&recording, &Stacks::in_recording(&recording)) {
            let sum = all.waits.iter().map(|wait| wait.samples).fold(0, u64::saturating_add);
            prop_assert_eq!(sum.saturating_add(all.idle), all.samples);
            let ended = all.roots.iter().map(|root| root.samples).fold(0, u64::saturating_add);
            prop_assert_eq!(ended, sum);
            prop_assert!(all.tasks.is_finite());
        }
    }
}
