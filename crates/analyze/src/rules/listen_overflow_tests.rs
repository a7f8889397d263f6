//! Ten seconds of a host: clients 11 and 12 in namespace 7, server 20 behind 127.0.0.1:80.

use whyslow_model::timeline::{Span, Stack};
use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

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
        ("11", "client and 1 other client")
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
fn a_dropped_third_ack_counts_like_a_dropped_syn() {
    let ghost = table::Connect {
        retried: 0,
        retried_ns: 0,
        unanswered: 2,
        unanswered_ns: 3 * SECOND,
        ..client(11, 3)
    };
    let found = asked(&host(vec![ghost], Some(vec![listener(9)])));
    assert_eq!((found[0].kind, found[0].lost), (Kind::Cause, Some(Duration::from_millis(2_998))));
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
        rec.snapshots.push(FileSnapshot { at: Duration::from_secs(at), name, bytes: text.into() });
    }
    assert_eq!(asked(&rec), []);
}

#[test]
fn a_task_that_went_on_working_cannot_have_waited() {
    let mut rec = host(vec![client(11, 9)], Some(vec![listener(9)]));
    let task = table::Task {
        pid: 11,
        tgid: 11,
        lived_ns: 6 * SECOND,
        exec_ns: 3 * SECOND,
        run_delay_ns: SECOND,
        ..Default::default()
    };
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
    assert_eq!((found[0].chain[1].state.word(), found[0].chain[1].count), ("running", Some(9)));
}

/// A healthy server sleeps most of the time, too; one that is stopped now and then is reported as that.
#[test]
fn a_server_that_was_kept_from_running_is_reported_with_what_kept_it() {
    for (function, part, reported) in [
        ("do_signal_stop", 10, "SIGCONT (stopped by a signal), for 1.0 s"),
        ("do_signal_stop", 100, "something else than connections, most of the window"),
        ("inet_csk_accept", 10, "something else than connections, most of the window"),
    ] {
        let mut rec = host(vec![client(11, 5)], Some(vec![listener(9)]));
        let sleep_ns = 9 * SECOND;
        let server =
            |pid| table::Task { pid, tgid: 20, lived_ns: 10 * SECOND, sleep_ns, ..Default::default() };
        rec.tables.tasks = Some(vec![server(20), server(21)]);
        let kernel = ["schedule", function].map(str::to_owned).to_vec();
        rec.tables.stacks = Some(vec![Stack { id: 3, kernel, user: Vec::new() }]);
        let (woken_ns, stack) = (10 * SECOND / part, Some(3));
        rec.tables.spans =
            Some(vec![Span { pid: 21, woken_ns, to_ns: woken_ns, stack, ..Default::default() }]);
        assert_eq!(asked(&rec)[0].chain[1].detail.to_string(), reported, "{function}");
        for task in rec.tables.tasks.iter_mut().flatten() {
            (task.exec_ns, task.sleep_ns) = (9 * SECOND / 2, 0);
        }
        let hop = asked(&rec)[0].chain[1].clone();
        assert_eq!(hop.state.word(), "running", "it had no time to be idle");
        let is_kept = reported.starts_with("SIGCONT");
        assert_eq!(
            hop.detail.to_string().contains("and SIGCONT (stopped by a signal), for 1.0 s"),
            is_kept,
            "{hop:?}"
        );
    }
}

#[test]
fn is_quiet_when_all_connects_are_prompt_and_rules_it_out() {
    let prompt = table::Connect { retried: 0, retried_ns: 0, blocked_ns: 0, ..client(11, 0) };
    let rec = host(vec![prompt], Some(vec![]));
    assert_eq!(asked(&rec), []);
    let not = rules_out(&Evidence::of(&rec)).unwrap().unwrap();
    assert_eq!(not.evidence, "none of 14 connects had to send its SYN or first data again");
}

#[test]
fn says_so_when_it_cannot_tell() {
    let blind = check(&Evidence::of(&Recording::default())).unwrap_err();
    assert_eq!(blind.to_string(), "TCP connects was not recorded");
    let half = check(&Evidence::of(&host(vec![client(11, 5)], None))).unwrap_err();
    assert_eq!(half.to_string(), "listening sockets was not recorded");
}
