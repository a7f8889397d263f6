use whyslow_model::timeline::{Span, State, StateTimes, Target, Waker};
use whyslow_model::{Kind, Recording};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn thread(pid: u32, tgid: u32, comm: &str, ran_ms: u64) -> Task {
    Task {
        pid,
        tgid,
        comm: comm.into(),
        exec_ns: ran_ms * MS,
        lived_ns: 1000 * MS,
        sleep_ns: (1000 - ran_ms) * MS,
        weight: 1024,
        ..Task::default()
    }
}

fn sample(pid: u32, count: u64, user: &[&str]) -> Sample {
    let user = user.iter().map(|frame| (*frame).to_owned()).collect();
    Sample { pid, count, user, ..Sample::default() }
}

/// A second of 24 CPUs: a process of 24 schedulers, of which `full` ran for `ran_ms` each.
fn host(full: u32, ran_ms: u64) -> Recording {
    let ran = |at: u32| if at < full { ran_ms } else { 5 };
    let tasks = (0..24).map(|at| thread(100 + at, 100, "sched", ran(at))).collect();
    let mut host = Fixture::second().with(|tables| {
        tables.tasks = Some(tasks);
        tables.cgroups = Some(Vec::new());
        tables.samples = Some(vec![sample(100, 90, &["parse", "handle", "main"]), sample(100, 9, &["free"])]);
        tables.spans = Some(Vec::new());
    });
    host.0.meta.cpus = 24;
    host.0
}

#[test]
fn fires_when_two_of_24_threads_are_full() {
    let rec = host(2, 985);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind, found[0].lost), (1, Kind::Risk, None));
    let title = &found[0].title;
    for words in [
        "2 of its 24 threads",
        "thread 100 (98 % of a CPU), 101 (",
        "91 % of that was user code (parse), most often called by handle, called by main. ",
    ] {
        assert!(title.contains(words), "{words}: {title}");
    }
    assert_eq!(found[0].culprit.clone().unwrap().function.as_deref(), Some("parse"));
}

#[test]
fn the_only_thread_of_a_process_is_reported_without_a_list() {
    let mut rec = host(1, 990);
    rec.tables.tasks.as_mut().unwrap().truncate(1);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(found[0].title.starts_with("it had 99 % of a CPU; 96 % of the host's"), "{}", found[0].title);
}

#[test]
fn is_quiet_when_no_thread_is_full() {
    let rec = host(8, 700);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    let not = rules_out(&Evidence::of(&rec)).unwrap().unwrap();
    assert!(not.evidence.contains("70 %"), "{}", not.evidence);
}

#[test]
fn is_quiet_when_the_averages_show_that_the_host_is_busy() {
    let rec = host(20, 990);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
}

#[test]
fn does_not_tell_of_itself() {
    let mut rec = host(1, 990);
    rec.meta.own_pids = vec![100];
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
}

/// A thread 7 of another process waits for the futex that thread 100 releases after `held` ms. It slept `sleep` ms besides.
fn with_waiter(held: u64, sleep: u64) -> Recording {
    let mut rec = host(1, 990);
    let ran = |pid, comm: &str, from, to| Span {
        pid,
        comm: comm.into(),
        from_ns: from * MS,
        at_ns: to * MS,
        woken_ns: to * MS,
        to_ns: to * MS,
        mixed: StateTimes { running_ns: (to - from) * MS, ..StateTimes::default() },
        ..Span::default()
    };
    let waker = Waker { pid: 100, comm: "sched".into(), context: Context::Task, ..Waker::default() };
    let wait = Span {
        woken_ns: (10 + held) * MS,
        to_ns: (10 + held) * MS,
        state: State::Sleep,
        waker: Some(waker),
        lock: None,
        target: None::<Target>,
        syscall: Some(202),
        // FUTEX_LOCK_PI: a waiter waits for the owner.
        args: [0, 6, 0, 0],
        ..ran(7, "client", 0, 10)
    };
    let spans = vec![ran(100, "sched", 0, 1000), wait, ran(7, "client", 10 + held, 1000)];
    rec.tables.spans = Some(spans);
    let mut waiter = thread(7, 7, "client", 50);
    waiter.sleep_ns = (held + sleep) * MS;
    rec.tables.tasks.as_mut().unwrap().push(waiter);
    rec
}

#[test]
fn is_a_cause_when_somebody_loses_time_to_it() {
    let rec = with_waiter(900, 0);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    let lost = found[0].lost.unwrap();
    assert!(lost > Duration::from_millis(800) && lost <= Duration::from_millis(900), "{lost:?}");
    assert_eq!((found[0].victim.id.as_str(), found[0].culprit.clone().unwrap().id.as_str()), ("7", "100"));
}

#[test]
fn is_no_cause_when_the_waits_are_short_or_the_waiter_sleeps_anyway() {
    for (held, sleep) in [(20, 0), (400, 550)] {
        let rec = with_waiter(held, sleep);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found.len(), found[0].kind), (1, Kind::Risk), "{held} {sleep}");
    }
}
