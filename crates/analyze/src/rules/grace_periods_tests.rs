use whyslow_model::Kind;
use whyslow_model::table::Tables;
use whyslow_model::timeline::{Stack, State};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

/// Moves into a cgroup, on Linux 6.1; an unmount, and one that interrupts all CPUs.
const MOVES: &[&str] = &[
    "schedule",
    "schedule_timeout",
    "__wait_for_common",
    "__wait_rcu_gp",
    "synchronize_rcu",
    "rcu_sync_enter",
    "percpu_down_write",
    "cgroup_procs_write_start",
    "__cgroup_procs_write",
    "cgroup_procs_write",
];
const UNMOUNTS: &[&str] =
    &["schedule", "__wait_for_common", "synchronize_rcu", "namespace_unlock", "path_umount"];
/// The end of a mount namespace.
const ENDS: &[&str] =
    &["schedule", "__wait_for_common", "synchronize_rcu", "namespace_unlock", "put_mnt_ns", "do_exit"];
/// A tracer.
const TRACES: &[&str] = &[
    "schedule",
    "__wait_for_common",
    "__wait_rcu_gp",
    "synchronize_rcu_tasks_generic",
    "unregister_ftrace_function",
];
/// A controller is enabled.
const ENABLES: &[&str] = &[
    "schedule",
    "synchronize_rcu",
    "percpu_down_write",
    "cgroup_update_dfl_csses",
    "cgroup_subtree_control_write",
];
const EXPEDITED: &[&str] = &["schedule", "synchronize_rcu_expedited", "namespace_unlock", "path_umount"];
const LOCK: &[&str] = &["schedule", "percpu_down_write", "cgroup_attach_lock", "cgroup_procs_write"];

fn wait(pid: u32, from: u64) -> Span {
    Span {
        pid,
        comm: "runc".into(),
        at_ns: from * MS,
        woken_ns: (from + 10) * MS,
        to_ns: (from + 10) * MS,
        state: State::Blocked,
        stack: Some(1),
        sampled_wait_ns: 10 * MS,
        ..Span::default()
    }
}

fn task(pid: u32, lived: u64, blocked: u64) -> Task {
    Task {
        pid,
        tgid: pid,
        comm: "runc".into(),
        lived_ns: lived * MS,
        blocked_ns: blocked * MS,
        ..Task::default()
    }
}

/// One second in which each of `count` short-lived threads waited once for 10 of its 40 ms.
fn host(frames: &[&str], count: u32) -> Fixture {
    Fixture::second().with(|tables| {
        tables.spans = Some((0..count).map(|at| wait(100 + at, u64::from(at) * 20)).collect());
        tables.tasks = Some((0..count).map(|at| task(100 + at, 40, 10)).collect());
        let kernel = frames.iter().map(|frame| (*frame).to_owned()).collect();
        tables.stacks = Some(vec![Stack { id: 1, kernel, user: vec![] }]);
    })
}

fn found(host: &Fixture) -> Vec<Finding> {
    check(&host.ev()).unwrap()
}

fn fixes(found: &Finding) -> String {
    found.fixes.iter().map(|fix| fix.text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn fires_where_each_move_into_a_cgroup_waits_for_one() {
    let found = found(&host(MOVES, 40));
    let wanted = "runc (40 threads) waited 400 ms for 40 RCU grace periods in cgroup_procs_write_start at moves into cgroups, 10 ms on \
                  average";
    assert_eq!((found.len(), found[0].title.as_str(), found[0].kind), (1, wanted, Kind::Cause));
    assert_eq!(found[0].lost, Some(Duration::from_millis(400)));
    assert_eq!(found[0].share.map(|share| share.to_string()), Some("25 %".into()));
    assert_eq!(
        found[0].culprit.as_ref().map(|culprit| culprit.id.as_str()),
        Some("cgroup_procs_write_start")
    );
    for way in ["CLONE_INTO_CGROUP", "favordynmods", "undo: write 0"] {
        assert!(fixes(&found[0]).contains(way), "{way}");
    }
    assert!(rules_out(&host(MOVES, 40).ev()).unwrap().is_none());
}

#[test]
fn fires_at_other_calls_with_other_ways_out() {
    let one = |frames| found(&host(frames, 40)).remove(0);
    let unmounts = one(UNMOUNTS);
    assert!(unmounts.title.contains("in namespace_unlock at unmounts, 10 ms"), "{}", unmounts.title);
    assert!(fixes(&unmounts).contains("umount -R"));
    for frames in [UNMOUNTS, ENDS, ENABLES, TRACES, EXPEDITED] {
        assert!(!fixes(&one(frames)).contains("CLONE_INTO_CGROUP"), "{frames:?}");
    }
    assert!(!fixes(&one(ENDS)).contains("umount -R"), "none unmounts");
    for frames in [EXPEDITED, TRACES] {
        assert!(
            !fixes(&one(frames)).contains("make grace periods short"),
            "{frames:?}: they are, or cannot be"
        );
    }
}

/// They were blocked for something else.
#[test]
fn strangers_that_are_summed_up_neither_hide_nor_share_the_loss() {
    let strangers = |tables: &mut Tables| {
        let row = Task { comm: "cc1".into(), folded: 29_999, ..task(1, 1_500_000, 30_000) };
        tables.tasks.as_mut().unwrap().push(row);
    };
    let found = found(&host(MOVES, 40).with(strangers));
    assert_eq!(found[0].share.map(|share| share.to_string()), Some("25 %".into()));
}

#[test]
fn nothing_is_ruled_out_where_waits_have_no_row() {
    let without = |tables: &mut Tables| tables.spans = Some(Vec::new());
    let host = host(MOVES, 40).with(without);
    assert_eq!((found(&host), rules_out(&host.ev())), (vec![], Ok(None)));
}

/// Two rows with the number of one waiter.
#[test]
fn a_number_that_was_used_again_does_not_double_the_loss() {
    let again = |tables: &mut Tables| {
        let rows = tables.tasks.as_mut().unwrap();
        rows.extend(rows.clone());
    };
    assert_eq!(found(&host(MOVES, 40).with(again))[0].lost, Some(Duration::from_millis(400)));
}

/// Threads that ended are summed up by name and parent; the name of a program may have come after the wait.
#[test]
fn waits_of_threads_that_are_summed_up_count() {
    let together = |tables: &mut Tables| {
        let rows = tables.tasks.as_mut().unwrap();
        rows.truncate(10);
        rows.push(Task { comm: "sleep".into(), folded: 29, ..task(110, 30 * 40, 30 * 10) });
    };
    let found = found(&host(MOVES, 40).with(together));
    assert_eq!(found[0].lost, Some(Duration::from_millis(400)));
    assert_eq!(found[0].share.map(|share| share.to_string()), Some("25 %".into()));
}

/// A daemon that sleeps for seconds between its calls.
#[test]
fn is_quiet_about_waits_that_sleeps_may_absorb() {
    let daemon = |tables: &mut Tables| {
        tables.spans.iter_mut().flatten().for_each(|span| span.pid = 100);
        let one = Task { born: false, ended: false, sleep_ns: 500 * MS, ..task(100, 1000, 400) };
        tables.tasks = Some(vec![one]);
    };
    assert_eq!(found(&host(MOVES, 40).with(daemon)), vec![]);
}

#[test]
fn is_quiet_about_a_few() {
    assert_eq!(found(&host(MOVES, 9)), vec![]);
}

#[test]
fn is_quiet_where_the_waiters_hardly_notice() {
    let long =
        |tables: &mut Tables| tables.tasks.iter_mut().flatten().for_each(|task| task.lived_ns = 1000 * MS);
    assert_eq!(found(&host(MOVES, 40).with(long)), vec![]);
}

#[test]
fn is_quiet_about_work_items_and_kernel_threads() {
    let works = |tables: &mut Tables| {
        tables.spans.iter_mut().flatten().for_each(|span| span.work = Some("free_ipc".into()));
    };
    assert_eq!(found(&host(UNMOUNTS, 40).with(works)), vec![]);
    let threads =
        |tables: &mut Tables| tables.tasks.iter_mut().flatten().for_each(|task| task.kthread = true);
    assert_eq!(found(&host(UNMOUNTS, 40).with(threads)), vec![]);
}

#[test]
fn is_quiet_about_waits_of_whyslow() {
    let mut host = host(MOVES, 40);
    host.0.meta.own_pids = (100..140).collect();
    assert_eq!(found(&host), vec![]);
}

#[test]
fn is_quiet_about_writers_that_wait_for_readers() {
    let host = host(LOCK, 40);
    assert_eq!(found(&host), vec![]);
    let ruled_out = rules_out(&host.ev()).unwrap().unwrap();
    assert_eq!(ruled_out.evidence, "threads waited for RCU grace periods for 0 s, all together");
}

#[test]
fn cannot_tell_without_stacks_timelines_or_tasks() {
    assert!(check(&Fixture::second().ev()).is_err());
    for strip in [
        (|tables| tables.stacks = None) as fn(&mut Tables),
        |tables| tables.spans = None,
        |tables| tables.tasks = None,
    ] {
        assert!(check(&host(MOVES, 40).with(strip).ev()).is_err());
    }
    assert!(rules_out(&host(MOVES, 40).with(|tables| tables.stacks = None).ev()).is_err());
}
