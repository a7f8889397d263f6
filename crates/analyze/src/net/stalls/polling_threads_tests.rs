use whyslow_model::Recording;
use whyslow_model::stall::StallAccount;
use whyslow_model::table::{Gap, Task};
use whyslow_model::timeline::State;

use super::*;
use crate::net::stalls::accounts;

const MS: u64 = 1_000_000;
const FIFO: u32 = 1;

fn task(pid: u32, comm: &str, policy: u32) -> Task {
    Task { pid, tgid: pid, comm: comm.into(), policy, weight: 1024, ..Task::default() }
}

/// Thread `pid` is ready for CPU 1, from `from` to `to` ms.
fn ready(pid: u32, from: u64, to: u64) -> Span {
    Span {
        pid,
        tgid: pid,
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

/// Thread 8 has a policy, and runs; threads 20 and 21 poll, and are bound to CPU 1 if `bound`.
fn host(policy: u32, bound: bool, waits: Vec<Span>, runs: Vec<Run>) -> Recording {
    let mut rec = crate::irq::latency::fixture::host();
    let (allowed, allowed_count) = if bound { ("1", 1) } else { ("0-1", 2) };
    let polls = |pid, comm: &str| {
        let allowed = allowed.to_owned();
        Task { kthread: true, allowed, allowed_count, ..task(pid, comm, 0) }
    };
    rec.tables.tasks = Some(vec![
        task(8, "player", policy),
        task(9, "other", policy),
        polls(20, "napi/eth0-1"),
        polls(21, "napi/eth0-2"),
        task(7, "napi/false", 0),
    ]);
    (rec.tables.spans, rec.tables.runs) = (Some(waits), Some(runs));
    (rec.tables.gaps, rec.tables.stalls) = (Some(vec![]), Some(vec![]));
    rec
}

fn told(policy: u32, waits: Vec<Span>, runs: Vec<Run>) -> Vec<StallAccount> {
    accounts(&Evidence::of(&host(policy, true, waits, runs)))
}

fn only(all: &[StallAccount]) -> &StallAccount {
    let [one] = all else { panic!("one cause is one account: {all:?}") };
    one
}

fn cannot_tell(all: &[StallAccount], words: &str) {
    let one = only(all);
    assert!(one.culprit.is_none() && one.unknown.as_ref().is_some_and(|why| why.contains(words)), "{one:?}");
}

#[test]
fn real_time_thread_before_a_polling_thread_is_named() {
    let waits = vec![ready(20, 100, 140), ready(20, 200, 230)];
    let elsewhere = Run { cpu: 0, ..run(9, 90, 240) };
    let runs = vec![elsewhere, run(9, 100, 115), run(8, 115, 139), run(8, 190, 229), run(20, 140, 141)];
    let all = told(FIFO, waits, runs);
    let one = only(&all);
    assert_eq!((one.cpu, one.count, one.total.as_millis(), one.worst.as_millis()), (1, 2, 70, 40));
    assert_eq!((one.at.as_millis(), one.thread.as_deref()), (100, Some("napi/eth0-1 (pid 20)")));
    assert_eq!(one.culprit.as_ref().map(StallCulprit::named).as_deref(), Some("player (pid 8)"));
    assert_eq!(one.work(), ": napi/eth0-1 (pid 20) was ready to poll and did not run");
}

#[test]
fn polling_threads_that_wait_together_lose_the_time_once() {
    let all = told(
        FIFO,
        vec![ready(21, 110, 145), ready(20, 100, 140), ready(21, 102, 139)],
        vec![run(8, 95, 146)],
    );
    let one = only(&all);
    assert_eq!((one.count, one.total.as_millis(), one.worst.as_millis()), (2, 45, 40));
    assert_eq!(
        (one.thread.as_deref(), one.culprit.as_ref().map(|one| one.pid)),
        (Some("napi/eth0-1 (pid 20)"), Some(8))
    );
}

#[test]
fn waits_that_follow_each_other_are_no_long_turn() {
    let waits = (0..5).map(|n| ready(20 + n % 2, 100 + u64::from(n) * 15, 120 + u64::from(n) * 15)).collect();
    cannot_tell(&told(0, waits, vec![run(8, 100, 200)]), "turns look the same");
}

#[test]
fn turns_of_ordinary_threads_accuse_nobody() {
    cannot_tell(&told(0, vec![ready(20, 100, 120)], vec![run(8, 100, 120)]), "turns look the same");
    let long = (vec![ready(20, 100, 180)], vec![run(8, 100, 180)]);
    assert_eq!(only(&told(0, long.0.clone(), long.1.clone())).culprit.as_ref().map(|one| one.pid), Some(8));
    // A limit on real-time tasks looks the same.
    let mut rec = host(0, true, long.0, long.1);
    rec.tables.tasks.as_mut().unwrap()[2].policy = FIFO;
    cannot_tell(&accounts(&Evidence::of(&rec)), "a limit on real-time tasks");
}

#[test]
fn task_that_ran_for_a_part_of_the_wait_or_at_another_time_is_not_named() {
    let of = |runs| cannot_tell(&told(FIFO, vec![ready(20, 100, 180)], runs), "no one task");
    of(vec![run(8, 20, 100), run(8, 180, 280)]);
    of(vec![run(8, 100, 135), run(9, 135, 175)]);
    of(vec![Run { cpu: 0, ..run(8, 100, 180) }]);
    of(vec![]);
}

#[test]
fn thread_that_may_have_moved_accuses_only_where_it_ran_before() {
    let runs = || vec![run(8, 95, 200)];
    let unbound = |waits| accounts(&Evidence::of(&host(FIFO, false, waits, runs())));
    let before = |cpu| Span { cpu, ..ready(20, 10, 11) };
    cannot_tell(&unbound(vec![ready(20, 100, 140)]), "another CPU");
    cannot_tell(&unbound(vec![before(0), ready(20, 100, 140)]), "another CPU");
    cannot_tell(&unbound(vec![before(1), Span { open: true, ..ready(20, 100, 140) }]), "another CPU");
    let all = unbound(vec![before(1), ready(20, 100, 140)]);
    assert_eq!(only(&all).culprit.as_ref().map(|one| one.pid), Some(8));
    // A bound one that has not run in the window has the number of no CPU.
    let open = Span { open: true, cpu: 0, ..ready(20, 100, 190) };
    let all = told(FIFO, vec![open], runs());
    assert_eq!((only(&all).cpu, only(&all).culprit.as_ref().map(|one| one.pid)), (1, Some(8)));
}

#[test]
fn short_waits_and_waits_of_other_threads_are_no_stalls() {
    let waits = vec![ready(20, 100, 104), ready(7, 200, 290), ready(8, 300, 390)];
    assert!(told(FIFO, waits, vec![run(8, 0, 400)]).is_empty());
}

#[test]
fn waits_without_rows_are_not_known() {
    let known = |change: fn(&mut Task)| {
        let mut rec = host(FIFO, true, vec![ready(20, 100, 140)], vec![]);
        change(&mut rec.tables.tasks.as_mut().unwrap()[2]);
        are_known(&Evidence::of(&rec)).map_err(|why| why.to_string())
    };
    assert_eq!(known(|task| task.runnable_worst_ns = 40 * MS), Ok(()));
    let why = known(|task| task.runnable_worst_ns = 90 * MS).unwrap_err();
    assert!(
        why.contains("napi/eth0-1 (pid 20)") && why.contains("rows of its timeline were dropped"),
        "{why}"
    );
    assert!(known(|task| task.unseen = true).is_err());
    assert_eq!(known(|task| task.comm = "kworker/1:0".into()), Ok(()));
}

#[test]
fn long_polls_and_interrupts_off_may_delay_packets_of_polling_threads() {
    let late = |runs, gaps: Vec<Gap>| {
        let mut rec = host(FIFO, true, vec![], runs);
        rec.tables.gaps = Some(gaps);
        may_be_late_otherwise(&Evidence::of(&rec))
    };
    assert!(!late(vec![run(8, 0, 60), run(20, 60, 62)], vec![]));
    assert!(late(vec![run(20, 60, 80)], vec![]));
    assert!(late(vec![], vec![crate::irq::latency::fixture::gap(1, 8, &[])]));
}

#[test]
fn invalid_rows_end() {
    let waits = (0..3000).map(|at| ready(20, at * 10, at * 10 + 9)).collect();
    let runs = (0..5000).map(|_| run(8, 0, u64::MAX / MS)).collect();
    let all = told(FIFO, waits, runs);
    assert_eq!(all.iter().map(|one| one.count).sum::<u64>(), 3000);
}
