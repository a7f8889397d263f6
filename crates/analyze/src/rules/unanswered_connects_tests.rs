//! Ten seconds of a host: client 11 in network namespace 7 connects to 10.0.0.9:80.

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

/// A network namespace whose table has room for 42 entries and contains `entries`.
fn with_drops(mut host: Fixture, (netns, entries): (u32, u64), drops: u64) -> Fixture {
    for (at, drops) in [(0, 5), (10, 5 + drops)] {
        let text = format!(
            "entries  insert_failed drop\n{entries:08x}  00000000 {drops:08x}\n{entries:08x} 00000000 00000000\n"
        );
        let name = format!("netns/{netns}/net/stat/nf_conntrack");
        host.0.snapshots.push(FileSnapshot { at: Duration::from_secs(at), name, bytes: text.into() });
    }
    host.end("proc/sys/net/netfilter/nf_conntrack_max", "42\n")
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
fn a_full_table_of_its_own_network_namespace_is_to_blame_if_it_dropped_as_many() {
    let told = |of, drops| found(&with_drops(host(vec![client(6)], Vec::new()), of, drops)).pop().unwrap();
    let full = told((7, 42), 9);
    let says = "the table of tracked connections is full (42 of 42), and dropped 9 packets";
    assert!(full.title.ends_with(says), "{}", full.title);
    let culprit = full.culprit.unwrap();
    assert_eq!((culprit.kind, culprit.id.as_str()), (SubjectKind::Limit, "7"));
    for (of, drops) in [((7, 42), 3), ((7, 20), 9), ((1, 42), 9)] {
        let other = told(of, drops);
        assert!(other.title.ends_with("no answer came"), "{of:?} {drops}: {}", other.title);
        let advice: Vec<&str> = other.fixes.iter().map(|fix| fix.text.as_str()).collect();
        assert!(advice[0].ends_with(&format!("of this host dropped {drops} packets")), "{advice:?}");
    }
}

/// A client waits a moment for each of many addresses.
#[test]
fn drops_of_a_full_table_for_many_addresses_are_one_finding() {
    let to = |n: u64| table::Connect {
        peer: format!("10.0.0.{n}:80"),
        count: 1,
        retried: 1,
        retried_ns: SECOND / 4,
        blocked_ns: SECOND / 4,
        ..client(0)
    };
    let spread = || host((1..=30).map(to).collect(), Vec::new());
    let found_of = found(&with_drops(spread(), (7, 42), 60));
    let [only] = &found_of[..] else { panic!("{found_of:?}") };
    assert!(
        only.title.starts_with("30 of 30 connects to 10.0.0.9:80 and 29 more addresses had to"),
        "{}",
        only.title
    );
    assert_eq!(only.lost, Some(Duration::from_millis(7_500)));
    assert_eq!(found(&with_drops(spread(), (7, 42), 20)), Vec::new(), "it dropped less than there were");
}

#[test]
fn a_full_listen_queue_is_told_by_its_own_rule_or_named_where_it_is_elsewhere() {
    assert_eq!(found(&host(vec![client(6)], vec![listener(7, 9)])), Vec::new());
    let at = |local: &str, netns| {
        let one = table::Listener { local: local.into(), ..listener(netns, 9) };
        found(&host(vec![client(6)], vec![one])).pop().unwrap()
    };
    let there = at("10.0.0.9:80", 8);
    assert!(
        there
            .title
            .contains("the listen queue of server (10.0.0.9:80), in another network namespace, was full")
    );
    assert_eq!(there.culprit.as_ref().unwrap().id, "20");
    // It is not known which address belongs to the other network namespace.
    let any = at("0.0.0.0:80", 8);
    assert_eq!(any.culprit.as_ref().unwrap().id, "10.0.0.9:80");
    assert!(any.fixes[0].text.contains("the listen queue of server (0.0.0.0:80)"), "{:?}", any.fixes);
    let beside = at("127.0.0.1:80", 7);
    assert!(
        beside.title.ends_with("no answer came") && !beside.fixes[0].text.contains("server"),
        "{beside:?}"
    );
}

#[test]
fn an_event_loop_may_try_for_nobody() {
    let watched = || table::Connect { watched: 4, ..client(6) };
    let found_of = |host: &Fixture| found(host).pop().unwrap();
    assert_eq!(found_of(&host(vec![watched()], Vec::new())).kind, Kind::Risk);
    assert_eq!(found_of(&with_drops(host(vec![watched()], Vec::new()), (7, 42), 9)).kind, Kind::Cause);
    let mixed = table::Connect { watched: 3, ..client(6) };
    assert_eq!(found_of(&host(vec![mixed], Vec::new())).kind, Kind::Cause);
    // Another client that slept for a moment does not make it a cause.
    let other = table::Connect { pid: 12, tgid: 12, blocked_ns: SECOND / 30, retried: 1, ..client(0) };
    assert_eq!(found_of(&host(vec![watched(), other], Vec::new())).kind, Kind::Risk);
}

#[test]
fn is_quiet_where_little_was_lost_or_nobody_waited() {
    let little = table::Connect { blocked_ns: SECOND / 20, ..client(6) };
    assert_eq!(found(&host(vec![little], Vec::new())), Vec::new());
    let abandoned = table::Connect { abandoned: 4, ..client(6) };
    assert_eq!(found(&host(vec![abandoned], Vec::new())), Vec::new());
    let answered = table::Connect {
        retried: 1,
        retried_ns: SECOND,
        abandoned: 1,
        unanswered: 9,
        unanswered_ns: 5 * SECOND,
        ..client(6)
    };
    assert_eq!(found(&host(vec![answered], Vec::new())), Vec::new(), "its data were retransmitted");
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
