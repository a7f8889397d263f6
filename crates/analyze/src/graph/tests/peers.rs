//! Who is at the other end of a connection: through packets, event loops and looks at the watch.

use whyslow_model::Recording;
use whyslow_model::table::{Stack, Task};
use whyslow_model::timeline::{Context, Delivery, Ends, Span, State, StateTimes, Waker};

use super::host::{MS, adds_up};
use crate::graph::chains::{self, HostChain};
use crate::graph::facts::Graph;
use crate::graph::node::Node;
use crate::graph::walk::Walk;
use crate::wait_reasons;

const POLL: u32 = 7;
const EPOLL: u32 = 232;
pub(super) const NANOSLEEP: u32 = 35;
/// What a client's end has that a service's has not.
const CLIENT: &str = "127.0.0.1:40000";

/// A wait of `pid` from `at` to `to`, in ms, in a system call; ended by a timer.
pub(super) fn wait(pid: u32, at: u64, to: u64, call: u32) -> Span {
    Span {
        pid,
        tgid: pid,
        comm: format!("t{pid}"),
        from_ns: at * MS,
        at_ns: at * MS,
        woken_ns: to * MS,
        to_ns: to * MS,
        state: State::Sleep,
        syscall: Some(call),
        args: [3, 1, 1, 20],
        waker: Some(Waker { context: Context::Hardirq, ..Waker::default() }),
        ..Span::default()
    }
}

/// The same, ended by what `sender` sent from its end to `to` of the waiter's.
fn sent(span: Span, sender: u32, from: &str, to: &str) -> Span {
    // An end with a low port is a service's.
    let ends = |local: &str, peer: &str| {
        let port = |end: &str| end.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let serves = port(local).is_some_and(|port| port < 32_768);
        Some(Ends { local: local.to_owned(), peer: peer.to_owned(), serves, ..Ends::default() })
    };
    let waker = Waker {
        pid: sender,
        tgid: sender,
        comm: format!("t{sender}"),
        context: Context::Softirq,
        delivery: Some(Box::new(Delivery {
            ready: ends(to, from),
            sends: ends(from, to),
            syscall: Some(44),
            ..Delivery::default()
        })),
        ..Waker::default()
    };
    Span { waker: Some(waker), ..span }
}

pub(super) fn runs(pid: u32, from: u64, to: u64) -> Span {
    let mixed = StateTimes { running_ns: (to - from) * MS, ..StateTimes::default() };
    let at = to * MS;
    Span {
        from_ns: from * MS,
        at_ns: at,
        woken_ns: at,
        to_ns: at,
        state: State::None,
        mixed,
        waker: None,
        ..wait(pid, 0, 0, 0)
    }
}

pub(super) fn host(spans: Vec<Span>) -> Recording {
    let mut rec = Recording::default();
    rec.meta.window_ns = 100 * MS;
    let task = |pid| Task { pid, tgid: pid, comm: format!("t{pid}"), ..Task::default() };
    rec.tables.tasks = Some((1..6).map(task).collect());
    rec.tables.spans = Some(spans);
    rec
}

/// From the first waiter down, where the most of the time went: threads and words.
fn way(rec: &Recording, pid: u32, to: u64) -> Vec<(u32, String)> {
    let graph = Graph::of(rec, wait_reasons::of).unwrap();
    graph.fuel.set(10_000);
    let nodes = graph.task_parts(&mut Walk::new(false), pid, 0, to * MS, None);
    adds_up(&nodes, to * MS);
    let mut way = Vec::new();
    let mut at: Option<&Node> = nodes.first();
    while let Some(node) = at {
        way.push((node.pid, graph.details.of(node.key.what).to_string()));
        at = node.parts.first();
    }
    way
}

fn words(way: &[(u32, String)]) -> Vec<(u32, &str)> {
    way.iter().map(|(pid, word)| (*pid, word.as_str())).collect()
}

#[test]
fn a_packet_is_followed_to_who_sent_it() {
    let client = sent(wait(1, 0, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    let rec = host(vec![client, wait(2, 0, 49, NANOSLEEP), runs(2, 49, 60)]);
    assert_eq!(words(&way(&rec, 1, 50)), [(1, "data from 127.0.0.1:80"), (2, "its own sleep")]);
}

#[test]
fn a_packet_that_only_interrupted_somebody_is_nobodys() {
    let mut client = sent(wait(1, 0, 50, POLL), 2, "10.0.0.9:80", "10.0.0.1:40000");
    client.waker.as_mut().unwrap().delivery.as_mut().unwrap().sends = None;
    let rec = host(vec![client, wait(2, 0, 49, NANOSLEEP), runs(2, 49, 60)]);
    assert_eq!(words(&way(&rec, 1, 50)), [(1, "data from 10.0.0.9:80")]);
}

/// A loop (2) is asked by others (4) while it waits for the answer (3) that the first needs.
#[test]
fn requests_of_others_are_not_what_a_loop_is_waited_for() {
    let first = sent(wait(1, 0, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    let asked = |at| sent(wait(2, at, at + 10, EPOLL), 4, "127.0.0.1:50000", "127.0.0.1:80");
    let answered = sent(wait(2, 40, 49, EPOLL), 3, "127.0.0.1:5432", "127.0.0.1:45000");
    let loops = vec![asked(0), asked(10), asked(20), asked(30), answered, runs(2, 49, 60)];
    let others = vec![wait(3, 0, 48, NANOSLEEP), runs(3, 48, 60), wait(4, 0, 60, NANOSLEEP)];
    let rec = host([vec![first], loops, others].concat());
    let way = way(&rec, 1, 50);
    assert_eq!(way.last().map(|(pid, word)| (*pid, word.as_str())), Some((3, "its own sleep")), "{way:?}");
}

#[test]
fn who_looks_at_its_watch_waits_for_who_answers() {
    let looks = |at: u64| wait(1, at, at + 10, POLL);
    let answered = sent(wait(1, 30, 40, POLL), 2, "127.0.0.1:80", CLIENT);
    let server = vec![wait(2, 0, 39, NANOSLEEP), runs(2, 39, 60)];
    let rec = host([vec![looks(0), looks(10), looks(20), answered], server].concat());
    assert_eq!(words(&way(&rec, 1, 40)), [(1, "data from 127.0.0.1:80"), (2, "its own sleep")]);
}

/// A server that sleeps by its loop's timeout, and then answers, did not wait for the next request.
#[test]
fn a_loop_that_answers_when_its_timer_ends_slept() {
    let client = sent(wait(1, 0, 30, POLL), 2, "127.0.0.1:80", CLIENT);
    let next = sent(wait(2, 31, 40, EPOLL), 1, CLIENT, "127.0.0.1:80");
    let rec = host(vec![client, runs(1, 30, 60), wait(2, 0, 29, EPOLL), runs(2, 29, 31), next]);
    assert_eq!(words(&way(&rec, 1, 30)), [(1, "data from 127.0.0.1:80"), (2, "its own timeout (epoll)")]);
}

/// The client (1) looks at its watch while a loop (2) is asked by others (4), and waits for what it had asked for (3).
#[test]
fn behind_a_loop_all_looks_are_for_its_answer() {
    let looks = |at: u64| wait(1, at, at + 10, POLL);
    let last = sent(wait(1, 40, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    let client = vec![looks(0), looks(10), looks(20), looks(30), last];
    let asked = |at| sent(wait(2, at, at + 10, EPOLL), 4, "127.0.0.1:50000", "127.0.0.1:80");
    let answered = sent(wait(2, 40, 49, EPOLL), 3, "127.0.0.1:5432", "127.0.0.1:45000");
    let loops = vec![asked(0), asked(10), asked(20), asked(30), answered, runs(2, 49, 60)];
    let others = vec![wait(3, 0, 48, NANOSLEEP), runs(3, 48, 60), wait(4, 0, 60, NANOSLEEP)];
    let rec = host([client, loops, others].concat());
    let way = way(&rec, 1, 50);
    assert_eq!(way.last().map(|(pid, word)| (*pid, word.as_str())), Some((3, "its own sleep")), "{way:?}");
}

/// The answer (3) came while the loop (2) was awake: it had asked for it.
#[test]
fn whom_a_loop_has_asked_it_waits_for() {
    let first = sent(wait(1, 0, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    let asked = |at, to| sent(wait(2, at, to, EPOLL), 4, "127.0.0.1:50000", "127.0.0.1:80");
    let service = sent(wait(3, 0, 1, EPOLL), 2, "127.0.0.1:45000", "127.0.0.1:5432");
    let loops = vec![runs(2, 0, 2), asked(2, 20), asked(20, 45), runs(2, 45, 60)];
    let others = vec![service, wait(3, 1, 48, NANOSLEEP), runs(3, 48, 60), wait(4, 0, 60, NANOSLEEP)];
    let rec = host([vec![first], loops, others].concat());
    let way = way(&rec, 1, 50);
    assert_eq!(way.last().map(|(pid, word)| (*pid, word.as_str())), Some((3, "its own sleep")), "{way:?}");
}

/// What `whyslow chains` tells of the whole host: who waits, and what the last one does.
fn of_host(rec: &Recording) -> Vec<(u32, String)> {
    let graph = Graph::of(rec, wait_reasons::of).unwrap();
    let told = |one: HostChain<'_>| (one.head.pid, one.chain.hops.last().unwrap().detail.to_string());
    chains::of_host(&graph).into_iter().map(told).collect()
}

/// A client (1) waits for a service (2), which waits in this call, or runs; it has sent so many ms before.
fn asked_before(ms: Option<u64>, service: Option<u32>) -> Recording {
    let mut client = sent(wait(1, 10, 60, POLL), 2, "127.0.0.1:80", CLIENT);
    let delivery = client.waker.as_mut().unwrap().delivery.as_mut().unwrap();
    delivery.sent_before_ns = ms.map(|ms| ms * MS);
    let did = service.map_or_else(|| runs(2, 0, 59), |call| wait(2, 0, 59, call));
    host(vec![wait(1, 0, 5, NANOSLEEP), client, did, runs(2, 59, 70)])
}

#[test]
fn on_a_whole_host_who_has_asked_and_waits_has_a_chain() {
    assert_eq!(of_host(&asked_before(Some(51), None)), [(1, "on CPU".to_owned())]);
    let mut sleeps = asked_before(Some(51), Some(NANOSLEEP));
    assert_eq!(of_host(&sleeps), [(1, "its own sleep".to_owned())], "it has read what it was asked");
    let spans = sleeps.tables.spans.as_mut().unwrap().iter_mut();
    let delivery =
        spans.filter(|span| span.pid == 1).filter_map(|span| span.waker.as_mut()?.delivery.as_mut());
    delivery.filter_map(|delivery| delivery.sends.as_mut()).for_each(|ends| ends.unread = true);
    assert_eq!(of_host(&sleeps), [], "of its own accord, for all that is known");
}

/// The wait for the answer of a file system's daemon is interruptible at first.
#[test]
fn on_a_whole_host_a_call_to_a_daemons_file_system_has_a_chain() {
    let reads =
        Stack { id: 7, kernel: vec!["request_wait_answer".into(), "fuse_direct_io".into()], user: vec![] };
    let mut client = wait(1, 0, 60, 17);
    client.stack = Some(7);
    client.waker =
        Some(Waker { pid: 2, tgid: 2, comm: "t2".into(), context: Context::Task, ..Waker::default() });
    let mut rec = host(vec![client, wait(2, 0, 59, NANOSLEEP), runs(2, 59, 70)]);
    rec.tables.stacks = Some(vec![reads]);
    assert_eq!(of_host(&rec), [(1, "its own sleep".to_owned())]);
}

/// Tracers miss a call now and then: what a timer ends is a sleep all the same.
#[test]
fn a_sleep_whose_call_was_not_seen_is_a_sleep() {
    let told = |unread: bool| {
        let mut rec = asked_before(Some(51), Some(NANOSLEEP));
        let timer = Stack { id: 7, kernel: vec!["hrtimer_wakeup".into()], user: vec![] };
        rec.tables.stacks = Some(vec![timer]);
        let [_, client, sleep, _] = &mut rec.tables.spans.as_mut().unwrap()[..] else { panic!() };
        let delivery = client.waker.as_mut().unwrap().delivery.as_mut().unwrap();
        delivery.sends.as_mut().unwrap().unread = unread;
        sleep.syscall = None;
        sleep.waker.as_mut().unwrap().stack = Some(7);
        of_host(&rec)
    };
    assert_eq!(told(false), [(1, "a timer".to_owned())], "it has read what it was asked");
    assert_eq!(told(true), [], "of its own accord, for all that is known");
}

#[test]
fn who_has_not_asked_waits_for_news() {
    assert_eq!(of_host(&asked_before(Some(95), None)), []);
    assert_eq!(of_host(&asked_before(None, None)), [], "nobody was woken by it");
}

/// A message of a third for a subscriber that has sent a sign of life.
#[test]
fn a_service_without_work_has_kept_nobody_waiting() {
    assert_eq!(of_host(&asked_before(Some(51), Some(EPOLL))), []);
}

/// Of UDP, and before Linux 6.3, only who was woken says who was asked.
#[test]
fn who_woke_the_service_has_asked_it() {
    let mut rec = asked_before(None, Some(NANOSLEEP));
    let woken = sent(wait(2, 0, 8, EPOLL), 1, CLIENT, "127.0.0.1:80");
    let spans = rec.tables.spans.as_mut().unwrap();
    spans.retain(|span| span.pid != 2);
    spans.extend([woken, wait(2, 9, 59, NANOSLEEP), runs(2, 59, 70)]);
    assert_eq!(of_host(&rec), [(1, "its own sleep".to_owned())]);
}

#[test]
fn a_service_that_waits_for_its_client_has_lost_nothing() {
    let request = sent(wait(2, 10, 60, EPOLL), 1, CLIENT, "127.0.0.1:80");
    let rec = host(vec![request, wait(1, 0, 59, NANOSLEEP), runs(1, 59, 70)]);
    assert_eq!(of_host(&rec), []);
}

/// A database on another host, 20 ms away.
#[test]
fn of_a_peer_elsewhere_the_network_has_its_round_trip() {
    let mut client = sent(wait(1, 0, 50, POLL), 0, "10.0.0.7:5432", "10.0.0.1:40000");
    let delivery = client.waker.as_mut().unwrap().delivery.as_mut().unwrap();
    (delivery.sends, delivery.sent_before_ns) = (None, Some(50 * MS));
    delivery.ready.as_mut().unwrap().round_trip_ns = Some(20 * MS);
    let parts = |rec: &Recording| {
        let graph = Graph::of(rec, wait_reasons::of).unwrap();
        graph.fuel.set(10_000);
        let nodes = graph.task_parts(&mut Walk::new(false), 1, 0, 50 * MS, None);
        adds_up(&nodes, 50 * MS);
        let part = |node: &Node| (graph.details.of(node.key.what).to_string(), node.ns / MS);
        nodes[0].parts.iter().map(part).collect::<Vec<_>>()
    };
    let split = [("the peer's own time".to_owned(), 30), ("the round trip to the peer".to_owned(), 20)];
    assert_eq!(parts(&host(vec![client.clone()])), split);
    client.waker.as_mut().unwrap().delivery.as_mut().unwrap().sent_before_ns = Some(5_000 * MS);
    assert_eq!(parts(&host(vec![client])).len(), 0, "it has not asked");
}

/// On a full host a look may begin long after the last has ended: it had to wait for the CPU.
#[test]
fn who_was_kept_from_looking_again_waits_all_the_same() {
    let looks = |at: u64, to: u64| wait(1, at, to, POLL);
    let mut answered = sent(wait(1, 25, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    answered.from_ns = 10 * MS;
    let longer = |mixed: StateTimes| {
        let spans = vec![looks(0, 10), Span { mixed, ..answered.clone() }, wait(2, 0, 49, NANOSLEEP)];
        let rec = host(spans);
        Graph::of(&rec, wait_reasons::of).unwrap().longer_wait(0)
    };
    let kept_off = StateTimes { runnable_ns: 14 * MS, running_ns: MS, ..StateTimes::default() };
    let busy = StateTimes { running_ns: 15 * MS, ..StateTimes::default() };
    assert_eq!(longer(kept_off), Some((0, 50 * MS)));
    assert_eq!(longer(busy), Some((0, 10 * MS)), "it did something else between");
}

/// A queue of jobs: the consumer (1) asks the broker (2), which has nothing until a producer (3) brings something.
#[test]
fn who_brings_a_queue_something_has_kept_nobody_waiting() {
    let asked = sent(wait(2, 0, 8, EPOLL), 1, CLIENT, "127.0.0.1:80");
    let consumer = sent(wait(1, 10, 60, POLL), 2, "127.0.0.1:80", CLIENT);
    let brought = sent(wait(2, 9, 59, EPOLL), 3, "127.0.0.1:50000", "127.0.0.1:80");
    let producer = vec![wait(3, 0, 58, NANOSLEEP), runs(3, 58, 70)];
    let queue = vec![wait(1, 0, 5, NANOSLEEP), consumer, asked, brought, runs(2, 59, 70)];
    assert_eq!(of_host(&host([queue, producer].concat())), []);
}

/// Two namespaces have each a loopback device, and ports of the same numbers.
#[test]
fn a_connection_of_another_namespace_is_another_one() {
    let mut client = sent(wait(1, 0, 50, POLL), 2, "127.0.0.1:80", CLIENT);
    client.waker.as_mut().unwrap().delivery.as_mut().unwrap().sends.as_mut().unwrap().netns = 7;
    let rec = host(vec![client, wait(2, 0, 49, NANOSLEEP), runs(2, 49, 60)]);
    assert_eq!(words(&way(&rec, 1, 50)), [(1, "data from 127.0.0.1:80")]);
}

/// A client's port may be lower than its service's: who has called accept() tells.
#[test]
fn low_ports_of_clients_turn_nothing_round() {
    let mut request = sent(wait(2, 0, 60, EPOLL), 1, "127.0.0.1:5115", "127.0.0.1:12346");
    let delivery = request.waker.as_mut().unwrap().delivery.as_mut().unwrap();
    (delivery.sent_before_ns, delivery.sends.as_mut().unwrap().serves) = (Some(60 * MS), false);
    assert!(wait_reasons::is_asked(&request));
    assert_eq!(of_host(&host(vec![request, wait(1, 0, 59, NANOSLEEP), runs(1, 59, 70)])), []);
}

/// A session (2) waits for a row that another (4) holds, whose client (5) thinks in the middle of its transaction.
#[test]
fn an_idle_session_in_a_transaction_has_kept_others_waiting() {
    let asked = sent(wait(2, 0, 8, EPOLL), 1, CLIENT, "127.0.0.1:80");
    let client = sent(wait(1, 10, 60, POLL), 2, "127.0.0.1:80", CLIENT);
    let mut row = wait(2, 9, 59, EPOLL);
    row.waker = Some(Waker { pid: 4, tgid: 4, context: Context::Task, ..Waker::default() });
    let holder = sent(wait(4, 0, 58, EPOLL), 5, "127.0.0.1:50000", "127.0.0.1:80");
    let thinks = vec![wait(5, 0, 57, NANOSLEEP), runs(5, 57, 70)];
    let spans = vec![wait(1, 0, 5, NANOSLEEP), client, asked, row, runs(2, 59, 70), holder, runs(4, 58, 70)];
    assert_eq!(of_host(&host([spans, thinks].concat())), [(1, "its own sleep".to_owned())]);
}
