use whyslow_model::timeline::{Context, Delivery, State, StateTimes, Target, Waker};
use whyslow_model::{Kind, Meta, Recording};

use super::*;
use whyslow_model::timeline::{Ends, Span};

const MS: u64 = 1_000_000;
const CLIENT: &str = "10.0.0.5:40000";
const SERVICE: &str = "10.0.0.7:80";

fn ends(local: &str, peer: &str, serves: bool) -> Option<Ends> {
    Some(Ends { local: local.into(), peer: peer.into(), serves, ..Ends::default() })
}

/// A read from a connection, from `at` ms on for 44 ms, which the acknowledgement timer ended. The thread had sent last `sent_before` ms before.
fn read(pid: u32, at: u64, sent_before: u64, held_back: bool) -> Span {
    let (local, peer) = if pid == 7 { (CLIENT, SERVICE) } else { (SERVICE, CLIENT) };
    let delivery = Delivery {
        ready: ends(local, peer, pid != 7),
        sent_before_ns: Some(sent_before * MS),
        ..Delivery::default()
    };
    let waker = Waker { context: Context::Softirq, delivery: Some(Box::new(delivery)), ..Waker::default() };
    Span {
        pid,
        tgid: pid,
        at_ns: at * MS,
        from_ns: (at - 2) * MS,
        woken_ns: (at + 44) * MS,
        to_ns: (at + 44) * MS,
        state: State::Sleep,
        mixed: StateTimes { running_ns: 2 * MS, ..StateTimes::default() },
        syscall: Some(45),
        target: Some(Target { kind: "socket".into(), peer: Some(peer.into()), ..Target::default() }),
        held_back,
        waker: Some(waker),
        ..Span::default()
    }
}

/// A client of the service 7 waits for that service.
#[test]
fn client_of_a_task_with_held_back_writes_pays() {
    use crate::rules::answer_fixture::answer_of;
    let both = |at| {
        let above = Waker { tgid: 7, ..answer_of(7, "checkout", 46 * MS, true) };
        let waits = Span { pid: 5, tgid: 5, waker: Some(above), ..read(5, at - 1, 0, false) };
        vec![Span { woken_ns: (at + 45) * MS, to_ns: (at + 45) * MS, ..waits }, read(7, at, 2, true)]
    };
    let mut rec = host(times(both));
    let shopper =
        Task { pid: 5, tgid: 5, comm: "shopper".into(), ..rec.tables.tasks.as_ref().unwrap()[0].clone() };
    rec.tables.tasks.as_mut().unwrap().push(shopper);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), &found[0].paid_by[..]), (1, &[5][..]), "{found:?}");
}

/// Two threads read from one connection in turn.
#[test]
fn stretches_of_several_threads_are_put_in_their_order() {
    let turns = |at| {
        let pid = if at % 200 > 100 { 9 } else { 10 };
        vec![read(7, at, 50, false), Span { pid, ..read(9, at, 4, true) }]
    };
    let lost = found(times(turns))[0].lost.unwrap().as_millis();
    assert!((340..=362).contains(&lost), "9 times 40 ms: {lost}");
}

/// The client 7 and the service 9, for 1 s.
fn host(spans: Vec<Span>) -> Recording {
    let waits = |pid: u32| spans.iter().filter(|span| span.pid == pid).count() as u64 * 44 * MS;
    let task = |pid: u32, comm: &str| Task {
        pid,
        tgid: pid,
        ppid: 1,
        comm: comm.into(),
        lived_ns: 1000 * MS,
        sleep_ns: waits(pid),
        exec_ns: 1000 * MS - waits(pid),
        ..Task::default()
    };
    let tasks = vec![task(7, "checkout"), task(9, "prices")];
    let mut rec =
        Recording { meta: Meta { window_ns: 1000 * MS, cpus: 2, ..Meta::default() }, ..Recording::default() };
    (rec.tables.tasks, rec.tables.spans) = (Some(tasks), Some(spans));
    (rec.tables.stacks, rec.tables.cgroups) = (Some(Vec::new()), Some(Vec::new()));
    rec
}

/// The rows of `of`, 9 times in 900 ms.
fn times(of: impl Fn(u64) -> Vec<Span>) -> Vec<Span> {
    let mut all: Vec<Span> = (0..9).flat_map(|n| of(n * 100 + 5)).collect();
    all.sort_by_key(|span| (span.pid, span.at_ns));
    all
}

fn found(spans: Vec<Span>) -> Vec<Finding> {
    check(&Evidence::of(&host(spans))).unwrap()
}

#[test]
fn fires_where_a_question_is_held_back_and_names_whose_it_is() {
    let found = found(times(|at| vec![read(7, at, 2, true)]));
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!((found[0].victim.id.as_str(), &found[0].paid_by[..]), ("7", &[7][..]));
    let lost = found[0].lost.unwrap().as_millis();
    assert!((370..=380).contains(&lost), "9 times 42 of 44 ms: {lost}");
    let title = "small writes of checkout on connections to 10.0.0.7:80 wait for an acknowledgement";
    assert!(found[0].title.starts_with(title), "{}", found[0].title);
}

#[test]
fn the_second_part_of_an_answer_counts_while_the_service_holds_it_back() {
    let both = |at| vec![read(7, at, 50, false), read(9, at, 4, true)];
    let found = found(times(both));
    assert_eq!((found.len(), found[0].victim.id.as_str()), (1, "7"), "{found:?}");
    assert!(
        found[0].title.contains("small writes of prices on connections to 10.0.0.7:80"),
        "{}",
        found[0].title
    );
    let lost = found[0].lost.unwrap().as_millis();
    assert!((340..=362).contains(&lost), "9 times 40 ms: {lost}");
}

#[test]
fn is_quiet_where_nothing_is_held_back_or_the_other_end_takes_the_time() {
    assert_eq!(found(times(|at| vec![read(7, at, 44, false)])), Vec::new());
    assert_eq!(found(times(|at| vec![read(7, at, 30, true)])), Vec::new(), "the service answers after 30 ms");
    assert_eq!(
        found(times(|at| vec![read(9, at, 2, true)])),
        Vec::new(),
        "a service waits for the next request"
    );
    let other = |at| vec![Span { pid: 8, tgid: 8, ..read(9, at, 4, true) }, read(7, at + 50, 50, false)];
    assert_eq!(found(times(other)), Vec::new(), "nothing was held back then");
}

#[test]
fn without_timelines_it_cannot_tell() {
    let mut rec = host(Vec::new());
    rec.tables.spans = None;
    assert!(check(&Evidence::of(&rec)).is_err());
}
