//! Ten seconds of a host: client 11 in namespace 7 asks 10.0.0.9:80.

use whyslow_model::{FileSnapshot, Kind};

use super::*;
use crate::evidence::fixture::Fixture;

const SECOND: u64 = 1_000_000_000;

fn client(blocked_s: u64) -> table::Connect {
    table::Connect {
        pid: 11,
        tgid: 11,
        comm: "client".into(),
        netns: 7,
        peer: "10.0.0.9:80".into(),
        count: 4,
        retried: 4,
        retried_ns: blocked_s * SECOND,
        blocked_ns: blocked_s * SECOND,
        worst_ns: SECOND,
        ..table::Connect::default()
    }
}

fn listener(netns: u32, overflows: u64) -> table::Listener {
    let local = "0.0.0.0:80".to_owned();
    table::Listener { netns, local, queue: 9, limit: 8, tgid: 20, comm: "server".into(), overflows }
}

fn host(connects: Vec<table::Connect>, listeners: Vec<table::Listener>) -> Fixture {
    let mut host = Fixture::second().with(|tables| {
        tables.connects = Some(connects);
        tables.listeners = Some(listeners);
    });
    host.0.meta.window_ns = 10 * SECOND;
    host
}

fn with_drops(mut host: Fixture, netns: u32, drops: u64) -> Fixture {
    for (at, drops) in [(0, 5), (10, 5 + drops)] {
        let text = format!("entries  insert_failed drop\n0000002a  00000000 {drops:08x}\n");
        let name = format!("netns/{netns}/net/stat/nf_conntrack");
        host.0.snapshots.push(FileSnapshot { at: Duration::from_secs(at), name, bytes: text.into() });
    }
    host
}

fn found(host: &Fixture) -> Vec<Finding> {
    check(&host.ev()).unwrap()
}

#[test]
fn fires_where_no_answer_comes() {
    let found = found(&host(vec![client(6)], Vec::new()));
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (only.kind, only.victim.id.as_str(), only.lost),
        (Kind::Cause, "11", Some(Duration::from_secs(6)))
    );
    assert_eq!(only.title, "4 of 4 connects to 10.0.0.9:80 had to be tried again: no answer came");
    assert_eq!(only.culprit.as_ref().unwrap().id, "10.0.0.9:80");
    assert!(only.check[1].command.as_deref().unwrap().ends_with("ip route get 10.0.0.9"), "{:?}", only.check);
}

#[test]
fn a_full_table_of_connections_is_to_blame_if_it_dropped_as_many() {
    let told =
        |netns, drops| found(&with_drops(host(vec![client(6)], Vec::new()), netns, drops)).pop().unwrap();
    for netns in [7, 1] {
        let full = told(netns, 9);
        assert!(
            full.title.ends_with("the table of tracked connections is full, and dropped 9 packets"),
            "{}",
            full.title
        );
        let culprit = full.culprit.unwrap();
        assert_eq!((culprit.kind, culprit.id), (SubjectKind::Limit, netns.to_string()));
    }
    assert!(told(7, 3).title.ends_with("no answer came"), "dropped less than was sent");
}

#[test]
fn a_full_listen_queue_is_told_by_its_own_rule_or_named_where_it_is_elsewhere() {
    assert_eq!(found(&host(vec![client(6)], vec![listener(7, 9)])), Vec::new());
    let elsewhere = found(&host(vec![client(6)], vec![listener(8, 9)]));
    assert!(
        elsewhere[0]
            .title
            .contains("the listen queue of server (0.0.0.0:80, in another network namespace) was full")
    );
    assert_eq!(elsewhere[0].culprit.as_ref().unwrap().id, "20");
    let hardly = found(&host(vec![client(6)], vec![listener(8, 3)]));
    assert!(hardly[0].title.ends_with("no answer came"));
}

#[test]
fn an_event_loop_may_try_for_nobody() {
    let watched = || table::Connect { watched: 4, ..client(6) };
    let found_of = |host: &Fixture| found(host).pop().unwrap();
    assert_eq!(found_of(&host(vec![watched()], Vec::new())).kind, Kind::Risk);
    assert_eq!(found_of(&with_drops(host(vec![watched()], Vec::new()), 7, 9)).kind, Kind::Cause);
    let mixed = table::Connect { watched: 3, ..client(6) };
    assert_eq!(found_of(&host(vec![mixed], Vec::new())).kind, Kind::Cause);
}

#[test]
fn is_quiet_where_little_was_lost_or_nobody_waited() {
    let little = table::Connect { blocked_ns: SECOND / 20, ..client(6) };
    assert_eq!(found(&host(vec![little], Vec::new())), Vec::new());
    let abandoned = table::Connect { abandoned: 4, ..client(6) };
    assert_eq!(found(&host(vec![abandoned], Vec::new())), Vec::new());
    let prompt = table::Connect { retried: 0, done: 4, prompt: 4, ..client(0) };
    assert_eq!(found(&host(vec![prompt], Vec::new())), Vec::new());
    let mut own = host(vec![client(6)], Vec::new());
    own.0.meta.own_pids = vec![11];
    assert_eq!(found(&own), Vec::new());
}

#[test]
fn cannot_tell_without_connects_or_listeners() {
    let mut without = host(vec![client(6)], Vec::new());
    without.0.tables.listeners = None;
    assert!(check(&without.ev()).is_err());
    without.0.tables.connects = None;
    assert!(check(&without.ev()).is_err());
}
