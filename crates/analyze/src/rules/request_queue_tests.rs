use whyslow_model::table::Task;
use whyslow_model::timeline::{Span, State, StateTimes};
use whyslow_model::{Kind, Meta, Recording};

use super::super::answer_fixture::answer_of;
use super::*;

const MS: u64 = 1_000_000;
const POLL: u32 = 7;

/// A row that begins with running and ends with a sleep. The times are in ms: begin, begin of the sleep, wake-up.
fn row(pid: u32, (from, at, woken): (u64, u64, u64)) -> Span {
    Span {
        pid,
        tgid: pid,
        comm: if pid == 9 { "server" } else { "client" }.into(),
        from_ns: from * MS,
        at_ns: at * MS,
        woken_ns: woken * MS,
        to_ns: woken * MS,
        mixed: StateTimes { running_ns: (at - from) * MS, ..StateTimes::default() },
        ..Span::default()
    }
}

/// A client that has sent a request, and waits until the thread 9 sends the answer.
fn asks(pid: u32, from: u64, each: u64) -> Span {
    Span {
        state: State::Sleep,
        syscall: Some(POLL),
        args: [3, 1, 1, 20],
        waker: Some(answer_of(9, "server", each * MS, true)),
        ..row(pid, (from, from + 10, from + 10 + each))
    }
}

/// `clients` clients wait four times each, for `each` ms; the thread runs for `ran` ms of the second.
fn host(clients: u32, each: u64, ran: u64) -> Recording {
    let mut spans: Vec<Span> =
        (1..=clients).flat_map(|pid| (0..4).map(move |turn| asks(pid, turn * 250, each))).collect();
    spans.push(row(9, (0, 1000, 1000)));
    let task = |pid: u32, comm: &str| Task {
        pid,
        tgid: pid,
        ppid: 1,
        comm: comm.into(),
        lived_ns: 1000 * MS,
        ..Task::default()
    };
    let client =
        |pid| Task { sleep_ns: 4 * each * MS, exec_ns: (1000 - 4 * each) * MS, ..task(pid, "client") };
    let mut tasks: Vec<Task> = (1..=clients).map(client).collect();
    tasks.push(Task { exec_ns: ran * MS, ..task(9, "server") });
    let mut rec =
        Recording { meta: Meta { window_ns: 1000 * MS, ..Meta::default() }, ..Recording::default() };
    rec.tables.tasks = Some(tasks);
    rec.tables.spans = Some(spans);
    rec
}

fn found(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_when_clients_stand_behind_each_other_before_one_thread() {
    let found = found(&host(5, 100, 400));
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "9");
    // 2 s of waits, of which the thread ran 400 ms for the waiters.
    let lost = found[0].lost.unwrap().as_millis();
    assert!((1590..=1600).contains(&lost), "{lost}");
    assert!(found[0].title.contains("5 clients"), "{}", found[0].title);
}

#[test]
fn is_quiet_about_a_client_that_is_alone_and_about_short_requests() {
    assert_eq!(found(&host(1, 100, 400)), Vec::new());
    assert_eq!(found(&host(5, 10, 100)), Vec::new());
    assert_eq!(found(&host(2, 100, 800)), Vec::new(), "each client had the thread nearly to itself");
}

#[test]
fn clients_of_a_sleeping_thread_form_no_queue() {
    let mut rec = host(5, 100, 400);
    let sleeps = Span { state: State::Sleep, syscall: Some(35), ..row(9, (0, 1, 1000)) };
    *rec.tables.spans.as_mut().unwrap().last_mut().unwrap() = sleeps;
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn cannot_tell_without_timelines() {
    let mut rec = host(5, 100, 400);
    rec.tables.spans = None;
    assert!(check(&Evidence::of(&rec)).is_err());
}

/// All tasks are in one job of one terminal, started by its shell.
fn in_one_session() -> Recording {
    let mut rec = host(5, 100, 400);
    let group = whyslow_model::table::Cgroup { id: 5, path: "/jobs".into(), ..Default::default() };
    rec.tables.cgroups = Some(vec![group]);
    let tasks = rec.tables.tasks.get_or_insert_default();
    let shell = Task { pid: 77, tgid: 77, comm: "bash".into(), lived_ns: 1000 * MS, ..Task::default() };
    tasks.push(shell);
    for task in tasks {
        (task.unified_cgroup, task.session, task.ppid) = (5, 77, if task.pid == 77 { 1 } else { 77 });
    }
    rec
}

fn change(rec: &mut Recording, pids: std::ops::RangeInclusive<u32>, change: impl Fn(&mut Task)) {
    rec.tables.tasks.iter_mut().flatten().filter(|task| pids.contains(&task.pid)).for_each(change);
}

#[test]
fn fires_where_one_shell_has_started_the_service_and_its_clients() {
    let told = found(&in_one_session());
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].victim.id.as_str(), told[0].culprit.as_ref().unwrap().id.as_str()), ("1", "9"));
    assert_eq!(told[0].victim.name, "client and 4 more of this name");
    let mut rec = in_one_session();
    change(&mut rec, 2..=2, |task| task.comm = "other".into());
    let told = found(&rec);
    assert_eq!(
        (told[0].victim.id.as_str(), told[0].victim.name.as_str()),
        ("1", "client and 4 more processes")
    );
}

#[test]
fn is_quiet_about_parts_of_one_program() {
    let mut rec = in_one_session();
    for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.waker.is_some()) {
        span.waker = Some(answer_of(9, "server", 100 * MS, false));
    }
    assert_eq!(found(&rec), Vec::new(), "ends of a pair of sockets");
    let mut rec = in_one_session();
    change(&mut rec, 1..=5, |task| task.ppid = 9);
    assert_eq!(found(&rec), Vec::new(), "the service has started the clients");
    let mut rec = in_one_session();
    change(&mut rec, 1..=5, |task| task.ppid = 4000);
    assert_eq!(found(&rec), Vec::new(), "the clients' parent is not known");
    let mut rec = in_one_session();
    change(&mut rec, 9..=9, |task| task.comm = "client".into());
    assert_eq!(found(&rec), Vec::new(), "ranks of one job");
}
