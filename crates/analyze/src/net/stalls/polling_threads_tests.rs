use whyslow_model::stall::StallAccount;
use whyslow_model::table::{Run, Sample, Span, Task};
use whyslow_model::timeline::State;

use crate::Evidence;
use crate::net::stalls::accounts;

const MS: u64 = 1_000_000;
const FIFO: u32 = 1;

fn task(pid: u32, comm: &str, policy: u32) -> Task {
    Task { pid, tgid: pid, comm: comm.into(), policy, weight: 1024, ..Task::default() }
}

/// Thread `pid` is ready for CPU 1, from `from` to `to` ms.
fn ready(pid: u32, comm: &str, from: u64, to: u64) -> Span {
    Span {
        pid,
        tgid: pid,
        comm: comm.into(),
        cpu: 1,
        at_ns: from * MS,
        woken_ns: from * MS,
        to_ns: to * MS,
        state: State::Sleep,
        ..Span::default()
    }
}

fn run(pid: u32, from: u64, to: u64) -> Run {
    Run { cpu: 1, pid, from_ns: from * MS, to_ns: to * MS }
}

/// Thread 8 has a policy, and runs; threads 20 and 21 poll.
fn told(policy: u32, waits: Vec<Span>, runs: Vec<Run>) -> Vec<StallAccount> {
    let mut rec = crate::irq::latency::fixture::host();
    let polls = |pid, comm: &str| Task { kthread: true, ..task(pid, comm, 0) };
    let player = task(8, "player", policy);
    rec.tables.tasks =
        Some(vec![player, polls(20, "napi/eth0-1"), polls(21, "napi/eth0-2"), task(7, "napi/false", 0)]);
    rec.tables.samples = Some(vec![Sample {
        pid: 8,
        tgid: 8,
        count: 9,
        kernel: vec!["sort_rows".into()],
        ..Sample::default()
    }]);
    (rec.tables.spans, rec.tables.runs) = (Some(waits), Some(runs));
    accounts(&Evidence::of(&rec))
}

fn only(policy: u32, waits: Vec<Span>, runs: Vec<Run>) -> StallAccount {
    let [one] = &told(policy, waits, runs)[..] else { panic!("one cause is one account") };
    one.clone()
}

#[test]
fn real_time_thread_before_a_polling_thread_is_named() {
    let waits = vec![ready(20, "napi/eth0-1", 100, 140), ready(20, "napi/eth0-1", 200, 230)];
    let one = only(FIFO, waits, vec![run(8, 95, 139), run(8, 190, 229), run(20, 140, 141)]);
    assert_eq!((one.cpu, one.count, one.total.as_millis(), one.worst.as_millis()), (1, 2, 70, 40));
    assert_eq!((one.at.as_millis(), one.thread.as_deref()), (100, Some("napi/eth0-1 (pid 20)")));
    let culprit = one.culprit.expect("a culprit");
    assert_eq!(
        (culprit.pid, culprit.named().as_str(), culprit.work().as_str()),
        (8, "player (pid 8)", ": sort_rows")
    );
}

#[test]
fn polling_threads_that_wait_together_are_one_stall() {
    let waits = vec![ready(21, "napi/eth0-2", 110, 145), ready(20, "napi/eth0-1", 100, 140)];
    let one = only(FIFO, waits, vec![run(8, 95, 146)]);
    assert_eq!((one.count, one.total.as_millis()), (1, 45));
}

#[test]
fn turns_of_ordinary_threads_accuse_nobody() {
    let one = only(0, vec![ready(20, "napi/eth0-1", 100, 120)], vec![run(8, 100, 120)]);
    assert!(one.culprit.is_none() && one.unknown.is_some_and(|why| why.contains("took turns")));
    let long = only(0, vec![ready(20, "napi/eth0-1", 100, 180)], vec![run(8, 100, 180)]);
    assert_eq!(long.culprit.map(|one| one.pid), Some(8));
}

#[test]
fn who_ran_for_a_part_of_the_wait_or_at_another_time_is_not_named() {
    let waits = || vec![ready(20, "napi/eth0-1", 100, 180)];
    let cannot_tell = |runs| {
        let one = only(FIFO, waits(), runs);
        assert!(one.culprit.is_none() && one.unknown.is_some_and(|why| why.contains("no one task")));
    };
    cannot_tell(vec![run(8, 20, 100), run(8, 180, 280)]);
    cannot_tell(vec![run(8, 100, 130)]);
    cannot_tell(vec![Run { cpu: 0, ..run(8, 100, 180) }]);
    cannot_tell(vec![]);
}

#[test]
fn short_waits_and_waits_of_other_threads_are_no_stalls() {
    let waits = vec![
        ready(20, "napi/eth0-1", 100, 104),
        ready(7, "napi/false", 200, 290),
        ready(8, "player", 300, 390),
    ];
    assert!(told(FIFO, waits, vec![run(8, 0, 400)]).is_empty());
}

#[test]
fn invalid_rows_end() {
    let waits = (0..3000).map(|at| ready(20, "napi/eth0-1", at * 10, at * 10 + 9)).collect();
    let runs = (0..5000).map(|_| run(8, 0, u64::MAX / MS)).collect();
    assert!(told(FIFO, waits, runs).iter().all(|one| one.count > 0));
}
