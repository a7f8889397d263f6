//! Clients at unix sockets: the kernel notes no time there, so that only what lay unread, or a connection of its own, says that they asked.

use whyslow_model::timeline::{Context, Delivery, Role, Span, Target, Waker};

use super::host::MS;
use super::peers::{NANOSLEEP, host, runs, wait};
use crate::graph::chains;
use crate::graph::facts::Graph;
use crate::wait_reasons;

const RECVFROM: u32 = 45;

/// A wait of the client (1) at this socket in ms, ended by the service (2): by an answer, or by no more than that it read the request.
fn ended(at: u64, to: u64, ino: u64, is_answer: bool) -> Span {
    let role = if is_answer { Role::Answers } else { Role::Takes };
    let answer = Delivery { role: Some(role), ..Delivery::default() };
    let waker = Waker {
        pid: 2,
        tgid: 2,
        comm: "t2".into(),
        context: Context::Task,
        delivery: Some(Box::new(answer)),
        ..Waker::default()
    };
    let target = Target { kind: "socket".into(), name: "unix".into(), ino, ..Target::default() };
    Span { waker: Some(waker), target: Some(target), ..wait(1, at, to, RECVFROM) }
}

/// How many waits have a chain to the service, which sleeps.
fn told(mut spans: Vec<Span>) -> (u64, u64) {
    let ends: Vec<(u64, u64)> = spans.iter().map(|span| (span.at_ns / MS, span.woken_ns / MS)).collect();
    spans.extend(ends.into_iter().flat_map(|(at, end)| [wait(2, at, end, NANOSLEEP), runs(2, end, end + 1)]));
    spans.push(wait(1, 0, 1, NANOSLEEP));
    let rec = host(spans);
    let graph = Graph::of(&rec, wait_reasons::of).unwrap();
    let chains = chains::of_host(&graph);
    let ms = chains.iter().map(|one| one.chain.time.as_millis() as u64).sum();
    (chains.iter().map(|one| one.chain.count).sum(), ms)
}

/// So many answers, one after the other.
fn answers(asked: &[bool], socket: impl Fn(usize) -> u64) -> u64 {
    let length = 99 / asked.len() as u64;
    let answer = |(index, asked): (usize, &bool)| {
        let at = 1 + index as u64 * length;
        Span { asked: *asked, ..ended(at, at + length - 1, socket(index), true) }
    };
    told(asked.iter().enumerate().map(answer).collect()).0
}

#[test]
fn whose_request_lay_unread_has_asked() {
    let told = |asked: &[bool]| answers(asked, |_| 7);
    assert_eq!(told(&[true]), 1);
    assert_eq!(told(&[false; 3]), 0, "news, for all that is known");
    assert_eq!(told(&[true, false, true]), 2);
    assert_eq!(told(&[true, false, true, false, true]), 5, "it asks each time");
}

#[test]
fn a_client_that_comes_with_a_connection_for_each_question_asks_each_time() {
    assert_eq!(answers(&[false; 5], |index| 7 + index as u64), 5);
    assert_eq!(answers(&[false; 2], |index| 7 + index as u64), 0, "two are no habit");
    assert_eq!(answers(&[false; 5], |_| 0), 0, "sockets of which no number is known");
    assert_eq!(
        answers(&[false; 12], |index| 7 + index as u64 % 3),
        0,
        "three subscriptions, and news of each"
    );
}

/// The service takes the request after 20 ms, which wakes the client (unix_write_space), and answers after 30 ms more.
#[test]
fn a_wait_goes_on_when_the_service_takes_the_request() {
    let taken = |asked: bool, ino: u64, again: u64| {
        told(vec![Span { asked, ..ended(10, 30, 7, false) }, ended(again, 60, ino, true)])
    };
    assert_eq!(taken(true, 7, 30), (2, 49), "both parts of it, but what the service ran");
    assert_eq!(taken(false, 7, 30), (0, 0), "it was not seen to ask");
    assert_eq!(taken(true, 7, 40).1, 0, "what it did meanwhile is not known");
}
