use whyslow_model::Kind;
use whyslow_model::timeline::{Context, Delivery, State, Waker};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

/// A service that sends through a shaped device; its packets are queued in `queued` of 10 samples.
fn service(queued: u64, qdisc: &str) -> Socket {
    Socket {
        netns: 5,
        tcp: true,
        local: "10.0.0.2:80".into(),
        peer: "10.0.0.1:40000".into(),
        tgid: 9,
        comm: "images".into(),
        looks: 10,
        queued,
        device: "veth0".into(),
        qdisc: qdisc.into(),
        ..Socket::default()
    }
}

fn span(pid: u32, at_ms: u64, ms: u64) -> Span {
    let (at_ns, woken_ns) = (at_ms * MS, (at_ms + ms) * MS);
    Span {
        pid,
        tgid: pid,
        from_ns: at_ns,
        at_ns,
        woken_ns,
        to_ns: woken_ns,
        state: State::Sleep,
        ..Span::default()
    }
}

/// Waits of the client 7, which data of the connection from `local` end.
fn waits(local: &str) -> Vec<Span> {
    let ready = Ends { local: local.into(), peer: "10.0.0.2:80".into(), ..Ends::default() };
    let delivery = Some(Box::new(Delivery { ready: Some(ready), ..Delivery::default() }));
    let waker = Waker { context: Context::Softirq, delivery, ..Waker::default() };
    (0..8).map(|n| Span { waker: Some(waker.clone()), ..span(7, n * 100, 90) }).collect()
}

fn host(sockets: Vec<Socket>, spans: Vec<Span>) -> Fixture {
    let task = |pid: u32, comm: &str| Task {
        pid,
        tgid: pid,
        comm: comm.into(),
        lived_ns: 1000 * MS,
        sleep_ns: 750 * MS,
        ..Task::default()
    };
    Fixture::second().with(|t| {
        t.sockets = Some(sockets);
        t.spans = Some(spans);
        t.stacks = Some(Vec::new());
        t.tasks = Some(vec![task(7, "app"), task(9, "images")]);
    })
}

#[test]
fn fires_where_a_client_waits_for_what_a_shaper_holds() {
    let host = host(vec![service(8, "tbf")], waits("10.0.0.1:40000"));
    let found = check(&host.ev()).unwrap();
    assert_eq!((found.len(), found[0].kind, found[0].victim.name.as_str()), (1, Kind::Cause, "app"));
    assert_eq!(found[0].lost, Some(Duration::from_millis(720)));
    let (low, high) = found[0].lost_range.unwrap();
    assert_eq!((low.as_millis(), high.as_millis()), (690, 720), "the client rests for 30 ms");
    let said = "packets that images sends wait in the queue of veth0, which has a rate or a delay of its own (tbf; in 8 of 10 samples)";
    assert_eq!(found[0].title, said);
    assert_eq!(found[0].culprit.as_ref().map(|culprit| culprit.id.as_str()), Some("veth0"));
}

/// curl(1) in a loop: each connection is in one sample at most.
#[test]
fn a_client_that_connects_for_each_request_waits_for_the_device_all_the_same() {
    let met = |port: u16, device_queued| Socket {
        peer: format!("10.0.0.1:{port}"),
        device_queued,
        ..service(1, "tbf")
    };
    let of = |device_queued, client: &str| {
        let sockets = (40_000..40_004).map(|port| met(port, device_queued)).collect();
        check(&host(sockets, waits(client)).ev()).unwrap().first().and_then(|found| found.lost)
    };
    assert_eq!(of(8, "10.0.0.1:50000"), Some(Duration::from_millis(720)));
    assert_eq!(of(2, "10.0.0.1:50000"), None, "a burst");
    assert_eq!(of(8, "10.0.0.7:50000"), None, "between other hosts");
}

/// A parent that still has its child's end of the connection open.
#[test]
fn a_client_that_has_both_ends_open_is_late_for_its_answers() {
    let shared = Socket { tgid: 7, ..service(8, "tbf") };
    assert_eq!(check(&host(vec![shared], waits("10.0.0.1:40000")).ev()).unwrap().len(), 1);
}

#[test]
fn a_queue_at_few_looks_explains_no_more_than_that() {
    let host = host(vec![service(4, "tbf")], waits("10.0.0.1:40000"));
    let lost = check(&host.ev()).unwrap()[0].lost.unwrap();
    assert_eq!(lost.as_millis(), 400);
}

#[test]
fn sender_that_sleeps_for_send_buffer_space_is_a_victim() {
    let spans = (0..8).map(|n| Span { stack: Some(3), ..span(9, n * 100, 90) }).collect();
    let mut host = host(vec![service(9, "htb")], spans);
    assert_eq!(check(&host.ev()), Ok(vec![]), "another stack is no wait for room");
    let kernel =
        ["schedule", "wait_woken", "sk_stream_wait_memory+0x1", "tcp_sendmsg"].map(str::to_owned).to_vec();
    host.0.tables.stacks = Some(vec![Stack { id: 3, kernel, ..Stack::default() }]);
    assert_eq!(check(&host.ev()).unwrap()[0].victim.name, "images");
}

/// A log server has nothing to do but wait for data from its clients.
#[test]
fn a_service_that_waits_for_its_clients_is_not_late() {
    let mut spans = waits("10.0.0.1:40000");
    for span in &mut spans {
        let ready = span.waker.as_mut().and_then(|waker| waker.delivery.as_mut()?.ready.as_mut());
        ready.unwrap().serves = true;
    }
    assert_eq!(check(&host(vec![service(8, "netem")], spans).ev()), Ok(vec![]));
}

#[test]
fn is_quiet_for_other_queues_other_connections_and_bursts() {
    let late = || waits("10.0.0.1:40000");
    for (socket, spans) in [
        (service(8, "fq_codel"), late()),
        (service(2, "tbf"), late()),
        (Socket { looks: 4, ..service(4, "tbf") }, late()),
        (service(8, "cake"), late()),
        (service(8, "tbf"), waits("10.0.0.7:40000")),
        (service(8, "tbf"), Vec::new()),
    ] {
        assert_eq!(check(&host(vec![socket], spans).ev()), Ok(vec![]));
    }
}

#[test]
fn says_so_when_it_cannot_tell() {
    let mut host = host(Vec::new(), Vec::new());
    host.0.tables.sockets = None;
    assert_eq!(check(&host.ev()).unwrap_err().to_string(), "receive queues was not recorded");
}
