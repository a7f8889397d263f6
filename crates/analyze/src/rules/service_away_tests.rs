use whyslow_model::Kind;

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn client(pid: u32, comm: &str) -> Task {
    Task { pid, tgid: pid, comm: comm.into(), lived_ns: 1000 * MS, sleep_ns: 900 * MS, ..Task::default() }
}

/// A client that was refused 20 times, and slept so long in between.
fn refused(slept_ms: u64, server: Option<Server>) -> Connect {
    Connect {
        pid: 7,
        tgid: 7,
        comm: "basket".into(),
        netns: 1,
        peer: "127.0.0.1:8080".into(),
        count: 30,
        done: 10,
        refused: 20,
        naps: 19,
        slept_ns: slept_ms * MS,
        server,
        ..Connect::default()
    }
}

fn pricing() -> Server {
    Server { tgid: 9, comm: "pricing".into(), closed: 3, ended: 3, status: 256, absent_ns: 600 * MS }
}

fn host(rows: Vec<Connect>) -> Fixture {
    Fixture::second().with(|t| {
        t.connects = Some(rows);
        t.tasks = Some(vec![client(7, "basket")]);
    })
}

fn only(rows: Vec<Connect>) -> Finding {
    let found = check(&host(rows).ev()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn fires_where_a_client_sleeps_until_its_service_is_back() {
    let found = only(vec![refused(500, Some(pricing()))]);
    assert_eq!((found.kind, found.lost), (Kind::Cause, Some(Duration::from_millis(500))));
    let said = "connections to 127.0.0.1:8080 were refused 20 times: pricing, which listens there, ended 3 times (status 1) and was away for 600 ms";
    assert_eq!(found.title, said);
    assert_eq!(found.culprit.map(|culprit| culprit.id).as_deref(), Some("9"));
    assert_eq!(found.share.map(|share| share.ratio()), Some(0.5));
    assert_eq!(found.paid_by.into_iter().collect::<Vec<_>>(), [7]);
}

#[test]
fn the_service_that_nobody_has_started_is_told_by_its_address() {
    let found = only(vec![refused(500, None)]);
    assert_eq!(found.title, "connections to 127.0.0.1:8080 were refused 20 times: no process listens there");
    let far = Connect { peer: "10.9.8.7:80".into(), ..refused(500, None) };
    assert_eq!(only(vec![far]).title, "connections to 10.9.8.7:80 were refused 20 times");
}

#[test]
fn how_the_service_went_or_came_is_told() {
    let said = |server| {
        let title = only(vec![refused(500, Some(server))]).title;
        title.split_once("20 times").map(|(_, rest)| rest.to_owned()).unwrap()
    };
    let killed = Server { ended: 1, closed: 1, status: 9, ..pricing() };
    assert_eq!(said(killed), ": pricing, which listens there, ended once (signal 9) and was away for 600 ms");
    let closed = Server { ended: 0, closed: 2, ..pricing() };
    assert_eq!(
        said(closed),
        ": pricing, which listens there, closed its socket twice and was away for 600 ms"
    );
    let begun = Server { ended: 0, closed: 0, ..pricing() };
    assert_eq!(said(begun), ": pricing has listened there only since 600 ms of the window were over");
    let there = Server { ended: 0, closed: 0, absent_ns: 0, ..pricing() };
    assert_eq!(said(there), ", though pricing listens there");
}

/// A proxy answers with an error at once: nobody sleeps.
#[test]
fn who_does_not_sleep_has_calls_that_failed_if_the_service_went_away() {
    let proxy = Connect { naps: 0, ..refused(0, Some(pricing())) };
    let found = only(vec![proxy.clone()]);
    assert_eq!((found.kind, found.lost, found.failed_calls), (Kind::Cause, None, 20));
    let twice = Connect { refused: 2, ..proxy.clone() };
    assert_eq!(check(&host(vec![twice]).ev()), Ok(vec![]));
    // The other address of a name: who asks there goes on to the next.
    let six = Connect { peer: "[::1]:8080".into(), server: None, ..proxy };
    assert_eq!(check(&host(vec![six]).ev()), Ok(vec![]));
}

#[test]
fn is_quiet_where_it_cost_little_or_nothing_was_refused() {
    assert_eq!(check(&host(vec![refused(40, None)]).ev()), Ok(vec![]));
    let taken = Connect { refused: 0, naps: 0, ..refused(0, None) };
    let host_of = |rows| host(rows);
    assert_eq!(check(&host_of(vec![taken.clone()]).ev()), Ok(vec![]));
    let out = rules_out(&host_of(vec![taken]).ev()).unwrap().unwrap();
    assert_eq!(out.evidence, "none of 30 connections was refused");
    assert_eq!(rules_out(&host_of(vec![refused(0, None)]).ev()), Ok(None));
}

#[test]
fn says_so_when_it_cannot_tell() {
    let mut host = host(Vec::new());
    host.0.tables.connects = None;
    assert_eq!(check(&host.ev()).unwrap_err().to_string(), "TCP connects was not recorded");
}

#[test]
fn a_client_that_is_gone_is_named_by_its_row() {
    let mut host = host(vec![refused(500, None)]);
    host.0.tables.tasks = Some(Vec::new());
    assert_eq!(check(&host.ev()).unwrap()[0].victim.name, "basket");
}
