//! Ten seconds of a host: clients 11 and 12 in namespace 7, server 20 behind 127.0.0.1:80.

use whyslow_model::{Frame, Kind, Meta, Recording};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn client(pid: u32, blocked_s: u64) -> table::Connect {
    table::Connect {
        pid,
        tgid: pid,
        comm: "client".into(),
        netns: 7,
        peer: "127.0.0.1:80".into(),
        count: 14,
        done: 13,
        retried: 4,
        prompt: 10,
        prompt_ns: 10_000_000,
        retried_ns: blocked_s * SECOND,
        worst_ns: SECOND,
        blocked_ns: blocked_s * SECOND,
        ..Default::default()
    }
}

fn listener(overflows: u64) -> table::Listener {
    let local = "0.0.0.0:80".to_owned();
    table::Listener { netns: 7, local, queue: 3, limit: 8, tgid: 20, comm: "server".into(), overflows }
}

fn host(connects: Vec<table::Connect>, listeners: Option<Vec<table::Listener>>) -> Recording {
    let meta = Meta { window_ns: 10 * SECOND, ..Default::default() };
    let mut rec = Recording { meta, ..Default::default() };
    rec.tables.connects = Some(connects);
    rec.tables.listeners = listeners;
    rec
}

fn asked(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_when_clients_waited_for_a_full_queue() {
    let found = asked(&host(vec![client(11, 5), client(12, 3)], Some(vec![listener(9)])));
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause));
    // 8 s, less 8 prompt connects of 1 ms.
    assert_eq!(found[0].lost, Some(Duration::from_millis(7_992)));
    assert_eq!(
        (found[0].victim.id.as_str(), found[0].victim.name.as_str()),
        ("11", "client and 1 other clients")
    );
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.kind, culprit.id.as_str()), (SubjectKind::Task, "20"));
    assert_eq!(found[0].share.unwrap().to_string(), "40 %");
    assert_eq!(found[0].chain.len(), 2);
}

#[test]
fn counters_alone_make_a_risk() {
    let found = asked(&host(vec![], Some(vec![listener(9)])));
    assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    assert_eq!(found[0].victim.kind, SubjectKind::Socket);
}

#[test]
fn a_client_that_abandons_its_connects_and_goes_on_lost_nothing() {
    let fired = table::Connect { retried: 50, abandoned: 50, blocked_ns: 0, ..client(11, 9) };
    let found = asked(&host(vec![fired], Some(vec![listener(50)])));
    assert!(found.iter().all(|f| f.kind == Kind::Risk), "{found:?}");
}

#[test]
fn other_reasons_for_a_retry_are_not_blamed_on_a_listener() {
    let elsewhere = |peer: &str| table::Connect { peer: peer.into(), ..client(11, 5) };
    let far =
        vec![elsewhere("127.0.0.1:81"), elsewhere("[::1]:80"), table::Connect { netns: 8, ..client(11, 5) }];
    assert!(asked(&host(far.clone(), Some(vec![listener(9)]))).iter().all(|f| f.kind == Kind::Risk));
    assert_eq!(asked(&host(far, Some(vec![]))), []);
}

#[test]
fn drops_without_an_overflow_are_not_a_full_queue() {
    let mut rec = host(vec![client(11, 5)], Some(vec![listener(9)]));
    for (at, overflows) in [(0, 30), (10, 30)] {
        let text = format!("TcpExt: ListenOverflows ListenDrops\nTcpExt: {overflows} {}\n", 40 + at);
        let name = "netns/7/net/netstat".to_owned();
        rec.frames.push(Frame { at: Duration::from_secs(at), name, bytes: text.into() });
    }
    assert_eq!(asked(&rec), []);
}

#[test]
fn a_task_cannot_lose_more_than_it_did_not_run() {
    let mut rec = host(vec![client(11, 9)], Some(vec![listener(9)]));
    let task =
        table::Task { pid: 11, tgid: 11, lived_ns: 6 * SECOND, exec_ns: 4 * SECOND, ..Default::default() };
    rec.tables.tasks = Some(vec![task]);
    assert_eq!(asked(&rec)[0].lost, Some(Duration::from_secs(2)));
}

#[test]
fn a_busy_event_loop_gets_a_range() {
    let busy = table::Connect { watched_ns: 4 * SECOND, watched_share_ns: SECOND, ..client(11, 0) };
    let found = asked(&host(vec![busy], Some(vec![listener(9)])));
    assert_eq!(found[0].lost, Some(Duration::from_secs(1)));
    assert_eq!(found[0].lost_range, Some((Duration::ZERO, Duration::from_secs(4))));
}

#[test]
fn the_chain_says_what_the_server_did() {
    let mut rec = host(vec![client(11, 5)], Some(vec![listener(9)]));
    let server =
        table::Task { pid: 20, tgid: 20, lived_ns: 10 * SECOND, exec_ns: 9 * SECOND, ..Default::default() };
    rec.tables.tasks = Some(vec![server]);
    let found = asked(&rec);
    assert_eq!((found[0].chain[1].state.as_str(), found[0].chain[1].count), ("running", Some(9)));
}

#[test]
fn is_quiet_when_all_connects_are_prompt_and_rules_it_out() {
    let prompt = table::Connect { retried: 0, retried_ns: 0, blocked_ns: 0, ..client(11, 0) };
    let rec = host(vec![prompt], Some(vec![]));
    assert_eq!(asked(&rec), []);
    let not = rules_out(&Evidence::of(&rec)).unwrap().unwrap();
    assert_eq!(not.evidence, "none of 14 connects had to send its SYN again");
}

#[test]
fn says_so_when_it_cannot_tell() {
    let blind = check(&Evidence::of(&Recording::default())).unwrap_err();
    assert_eq!(blind.to_string(), "TCP connects was not recorded");
    let half = check(&Evidence::of(&host(vec![client(11, 5)], None))).unwrap_err();
    assert_eq!(half.to_string(), "listening sockets was not recorded");
}
