use whyslow_model::Kind;

use whyslow_model::timeline::State;

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn client(pid: u32, comm: &str) -> Task {
    Task { pid, tgid: pid, comm: comm.into(), lived_ns: 1000 * MS, sleep_ns: 900 * MS, ..Task::default() }
}

/// A client whose connections were refused 20 times, and that slept for `slept_ms` in between.
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
        own: true,
        server,
        ..Connect::default()
    }
}

fn pricing() -> Server {
    Server { tgid: 9, comm: "pricing".into(), closed: 3, ended: 3, status: 256, absent_ns: 600 * MS }
}

/// A sleep of its own accord, or in epoll_wait(2).
fn sleep(call: u32, ms: u64) -> Span {
    let ns = ms * MS;
    Span {
        pid: 7,
        tgid: 7,
        comm: "basket".into(),
        woken_ns: ns,
        to_ns: ns,
        state: State::Sleep,
        syscall: Some(call),
        ..Span::default()
    }
}

const NANOSLEEP: u32 = 230;
const EPOLL_WAIT: u32 = 232;

fn host(rows: Vec<Connect>) -> Fixture {
    Fixture::second().with(|t| {
        t.connects = Some(rows);
        t.spans = Some(vec![sleep(NANOSLEEP, 800)]);
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
    let far = only(vec![Connect { peer: "10.9.8.7:80".into(), own: false, ..refused(500, None) }]);
    assert_eq!(far.title, "connections to 10.9.8.7:80 were refused 20 times");
    assert_eq!(far.check, [], "no process of this host is to be checked");
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
        ": pricing, which listens there, closed its socket 2 times and was away for 600 ms"
    );
    let begun = Server { ended: 0, closed: 0, ..pricing() };
    assert_eq!(said(begun), ": pricing began to listen there only after 600 ms of the window");
    let gone = Server { ended: 0, closed: 0, absent_ns: 1000 * MS, ..pricing() };
    assert_eq!(said(gone), ": pricing, which listened there, was gone when the window began");
    let there = Server { ended: 0, closed: 0, absent_ns: 0, ..pricing() };
    assert_eq!(said(there), ", though pricing listens there");
}

/// A proxy that answers with an error sleeps until its next request.
#[test]
fn refused_connects_without_a_nanosleep_are_failed_calls() {
    let failed = |row: Connect| {
        let mut host = host(vec![row]);
        host.0.tables.spans = Some(vec![sleep(EPOLL_WAIT, 800)]);
        let found = check(&host.ev()).unwrap();
        assert!(found.iter().all(|one| one.kind == Kind::Cause && one.lost.is_none()), "{found:?}");
        found.into_iter().map(|one| one.failed_calls).collect::<Vec<_>>()
    };
    let gone = |count| Connect { refused: count, ..refused(500, Some(pricing())) };
    let unseen = |count| Connect { refused: count, done: 0, ..refused(500, None) };
    assert_eq!([failed(gone(3)), failed(gone(2))], [vec![3], vec![]]);
    assert_eq!(
        [failed(unseen(10)), failed(unseen(9))],
        [vec![10], vec![]],
        "a check whether the service is there"
    );
}

/// The other address of a name: a client that is refused there tries the next address.
#[test]
fn client_that_connects_at_another_address_loses_nothing() {
    let six = Connect { peer: "[::1]:8080".into(), naps: 0, ..refused(0, None) };
    let four = Connect { refused: 0, naps: 0, done: 20, ..refused(0, None) };
    assert_eq!(check(&host(vec![six, four]).ev()), Ok(vec![]));
}

/// A prober that checks 20 times a second whether the service is there.
#[test]
fn client_that_rests_over_half_as_long_after_success_loses_no_time() {
    let prober = |rests| Connect { rests, rested_ns: rests * 14 * MS, ..refused(500, None) };
    assert_eq!(only(vec![prober(2)]).lost, Some(Duration::from_millis(500)), "two rests have no mean");
    let found = check(&host(vec![prober(3)]).ev()).unwrap();
    assert!(found.iter().all(|one| one.lost.is_none()), "{found:?}");
    let hurried = Connect { rests: 3, rested_ns: 3 * 13 * MS, ..refused(500, None) };
    assert_eq!(only(vec![hurried]).lost, Some(Duration::from_millis(500)), "26 ms each");
}

#[test]
fn client_loses_no_more_than_it_slept_or_lived() {
    let long = refused(5000, Some(pricing()));
    assert_eq!(only(vec![long.clone()]).lost, Some(Duration::from_millis(800)));
    let mut host = host(vec![long]);
    host.0.tables.spans = Some(vec![sleep(NANOSLEEP, 9000)]);
    let found = check(&host.ev()).unwrap();
    assert_eq!((found[0].lost, found[0].share.unwrap().ratio()), (Some(Duration::from_secs(1)), 1.0));
}

#[test]
fn is_quiet_where_it_cost_little_or_nothing_was_refused() {
    let little = Connect { refused: 9, ..refused(40, None) };
    assert_eq!(check(&host(vec![little]).ev()), Ok(vec![]));
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
    host.0.tables.connects = Some(vec![refused(500, None)]);
    host.0.tables.spans = None;
    assert!(check(&host.ev()).is_err());
}

#[test]
fn a_client_that_is_gone_is_named_by_its_row() {
    let mut host = host(vec![refused(500, None)]);
    host.0.tables.tasks = Some(Vec::new());
    assert_eq!(check(&host.ev()).unwrap()[0].victim.name, "basket");
}
