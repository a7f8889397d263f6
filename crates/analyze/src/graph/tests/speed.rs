//! How much work a large recording is: counted, not timed, so that the test says the same on a busy machine.

use whyslow_model::chain::Chain;
use whyslow_model::table::Run;
use whyslow_model::timeline::State;

use super::host::{Does, Host, MS, Wait, locked, woken_by};
use crate::graph::{chains, flames, wall};

/// 400 threads that fight for four locks, run, sleep and hand each other work: 200,000 rows.
fn busy() -> Host {
    let mut host = Host::window(20_000);
    for pid in 1..=400u32 {
        let mut does = Vec::new();
        for round in 0..125u64 {
            let other = (pid * 7 + round as u32) % 400 + 1;
            does.push(Does::Runs(2));
            does.push(Does::Waits(40, locked(u64::from(pid % 4), other, (other + 3) % 400 + 1)));
            does.push(Does::Ready(3));
            does.push(Does::Waits(5, Wait { on: "io_schedule", ..Wait::default() }));
            does.push(Does::Waits(60, woken_by("pipe_read", other)));
            does.push(Does::Waits(10, woken_by("futex_wait", other)));
            does.push(Does::Runs(40));
        }
        host.task(pid, &format!("worker-{}-{pid}", ["io", "net", "db", "web"][pid as usize % 4]), 0, &does);
    }
    host
}

#[test]
fn a_recording_of_200_000_rows_is_reported_within_its_budget() {
    let mut host = busy();
    assert!(host.spans.len() >= 200_000, "{}", host.spans.len());
    for watched in [false, true] {
        if watched {
            host.watch(1);
            host.rec.meta.watched.as_mut().unwrap().pids = (1..=400).collect();
        }
        let graph = host.graph();
        assert!(!chains::chains(&graph).is_empty());
        let chains = graph.fuel.get();
        assert!(!flames::paths(&graph).is_empty());
        let paths = graph.fuel.get();
        assert_eq!(wall::account(&graph).is_some(), watched);
        let account = graph.fuel.get();
        println!("pieces left: {chains} by chains, {paths} by paths, {account} by the account");
        let left = chains.min(paths).min(account);
        assert!(left > 0, "the budget of pieces is spent");
    }
}

/// A task that slept 5,000 times, and was blocked for short times in between: whoever waits for it asks 5,000 times what those
/// were.
#[test]
fn who_is_blocked_for_short_times_is_not_looked_up_among_all_its_sleeps() {
    const ROUNDS: usize = 5_000;
    let mut host = Host::window(4 * ROUNDS as u64);
    let sleeps = || Does::Waits(1, Wait { on: "nanosleep", ..Wait::default() });
    let serves: Vec<Does> = (0..ROUNDS).flat_map(|_| [Does::Short(State::Blocked, 3), sleeps()]).collect();
    let waits: Vec<Does> =
        (0..ROUNDS).flat_map(|_| [Does::Runs(1), Does::Waits(3, woken_by("do_wait", 2))]).collect();
    host.task(1, "waits", 0, &waits).task(2, "serves", 0, &serves).watch(1);
    let graph = host.graph();
    assert!(!chains::chains(&graph).is_empty());
    let before = graph.fuel.get();
    assert!(before > 1_900_000, "{before} of two million looks are left");
    assert!(wall::account(&graph).is_some());
    assert!(graph.fuel.get() > 5_900_000, "{} of six million looks are left", graph.fuel.get());
}

#[test]
fn each_question_may_look_at_as_much_as_the_first() {
    let mut host = busy();
    let run = |n: u64| Run { cpu: 0, pid: 1000 + n as u32, from_ns: n * MS, to_ns: (n + 110) * MS };
    host.rec.tables.runs = Some((0..180).map(|n| run(n * 110)).collect());
    host.task(7000, "kept-off", 0, &[Does::Runs(1), Does::Ready(500)]);
    let graph = host.graph();
    let first = chains::chains(&graph);
    // As a question leaves it that had more to look at than it may.
    graph.fuel.set(0);
    while graph.runs(0, 0, u64::MAX).is_some_and(|runs| !runs.is_empty()) {}
    let kept_off = |chain: &&Chain| chain.hops[0].who.comm() == "kept-off" && chain.hops.len() > 1;
    assert!(first.iter().find(kept_off).is_some(), "{first:?}");
    assert_eq!(chains::chains(&graph), first);
}

/// What is behind a wait is kept for who asks next, unless the question had no looks left for it.
#[test]
fn what_is_found_without_looks_is_not_kept() {
    let mut host = Host::window(2000);
    host.rec.tables.runs = Some(vec![Run { cpu: 0, pid: 1000, from_ns: 0, to_ns: 2000 * MS }]);
    host.task(1, "waits", 0, &[Does::Runs(100), Does::Waits(500, locked(9, 2, 2)), Does::Runs(1400)]);
    host.task(2, "holds", 0, &[Does::Runs(100), Does::Ready(500), Does::Runs(1400)]);
    let graph = host.graph();
    let first = chains::chains(&graph);
    assert!(
        first.iter().any(|chain| chain.hops[0].who.comm() == "waits" && chain.hops.len() > 2),
        "{first:?}"
    );
    let graph = host.graph();
    graph.refuel(1000);
    while graph.runs(0, 0, u64::MAX).is_some() {}
    assert!(chains::losses(&graph, None).count() > 0);
    assert_eq!(chains::chains(&graph), first);
}
