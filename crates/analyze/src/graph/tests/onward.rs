//! Requests that nobody has answered: on from a loop of events, and from a process of which no thread is known to have been asked.

use whyslow_model::chain::Chain;
use whyslow_model::timeline::{Asked, OtherEnd, Request, Watched};
use whyslow_model::wait::WaitTarget;

use super::host::{Does, Host, MS, Wait, locked};
use crate::graph::chains;
use Asked::{Sent, Unknown, Unread};
use Does::{Runs, Waits};

const CLIENT: u32 = 11;
const PROXY: u32 = 21;
const SERVICE: u32 = 31;
const OTHER: u32 = 41;
const HOLDER: u32 = 51;
/// epoll_wait(2) on x86-64.
const EPOLL_WAIT: u32 = 232;

fn open(on: &'static str) -> Wait {
    Wait { on, open: true, ..Wait::default() }
}

fn at_lock() -> Wait {
    Wait { open: true, ..locked(7, HOLDER, HOLDER) }
}

fn end(processes: &[u32], asked: Asked, before_ms: Option<u64>) -> OtherEnd {
    let sent_before_ns = before_ms.map(|ms| ms * MS);
    OtherEnd { processes: processes.to_vec(), asked, sent_before_ns, ..OtherEnd::default() }
}

/// A client that has asked the proxy so long ago, which waits for events as the window ends, and a service.
fn host(asked_before_ms: u64, service: Wait) -> Host {
    let mut host = Host::window(100);
    host.task(CLIENT, "client", 0, &[Waits(100, open("pipe_read"))])
        .task(PROXY, "proxy", 0, &[Waits(100, open("ep_poll"))])
        .task(SERVICE, "service", 0, &[Waits(100, service)])
        .task(OTHER, "other", 0, &[Waits(100, at_lock())])
        .task(HOLDER, "holder", 0, &[Runs(100)]);
    host.spans.iter_mut().filter(|span| span.pid == PROXY).for_each(|span| span.syscall = Some(EPOLL_WAIT));
    let asked = end(&[PROXY], Sent, Some(asked_before_ms));
    host.spans.iter_mut().find(|span| span.pid == CLIENT).unwrap().other_end = Some(Box::new(asked));
    host
}

/// The proxy has asked somebody, too.
fn asks(host: &mut Host, who: &[u32], asked: Asked, before_ms: Option<u64>) {
    let request = Request {
        tgid: PROXY,
        peer: Some("10.0.0.7:5432".to_owned()),
        connecting: false,
        other_end: end(who, asked, before_ms),
    };
    host.rec.tables.requests.get_or_insert_default().push(request);
}

fn told(host: &mut Host, watched: &[u32]) -> Vec<Chain> {
    let pids = watched.to_vec();
    host.rec.meta.watched = (!pids.is_empty()).then(|| Watched { pids, ..Watched::default() });
    chains::chains(&host.graph())
}

/// The ways down from one.
fn ways(host: &mut Host, watched: &[u32], who: &str) -> Vec<Vec<String>> {
    let names = |chain: &Chain| chain.hops.iter().map(|hop| hop.who.to_string()).collect();
    let mut ways: Vec<Vec<String>> = told(host, watched).iter().map(names).collect();
    ways.retain(|way| way[0] == who);
    ways
}

#[test]
fn who_waits_for_a_loop_waits_for_whom_it_has_asked_since() {
    let whole = [["client", "proxy", "service", "holder"]];
    for watched in [&[][..], &[CLIENT]] {
        let mut since = host(400, at_lock());
        asks(&mut since, &[SERVICE], Sent, Some(390));
        assert_eq!(ways(&mut since, watched, "client"), whole, "{watched:?}");
        assert_eq!(told(&mut since, watched)[0].time.as_nanos(), u128::from(100 * MS));
    }
    let mut before = host(400, at_lock());
    asks(&mut before, &[SERVICE], Sent, Some(500));
    assert!(ways(&mut before, &[], "client").is_empty(), "for somebody else");
    assert_eq!(ways(&mut before, &[CLIENT], "client"), [["client", "proxy"]]);
}

#[test]
fn of_several_the_one_that_was_asked_first_is_meant_and_of_those_at_once_none() {
    let mut two = host(400, at_lock());
    asks(&mut two, &[OTHER], Sent, Some(200));
    asks(&mut two, &[SERVICE], Sent, Some(390));
    assert_eq!(ways(&mut two, &[CLIENT], "client"), [["client", "proxy", "service", "holder"]]);
    let mut at_once = host(400, at_lock());
    asks(&mut at_once, &[OTHER], Sent, Some(391));
    asks(&mut at_once, &[SERVICE], Sent, Some(390));
    assert_eq!(ways(&mut at_once, &[CLIENT], "client"), [["client", "proxy"]]);
}

#[test]
fn who_looks_at_a_loop_is_told_of_what_keeps_it_and_not_of_who_has_nothing_to_do() {
    let looks = |service: Wait, asked: Asked| {
        let mut host = host(400, service);
        asks(&mut host, &[SERVICE], asked, Some(390));
        ways(&mut host, &[PROXY], "proxy")
    };
    for asked in [Sent, Unread] {
        assert_eq!(looks(at_lock(), asked), [["proxy", "service", "holder"]]);
        assert_eq!(looks(open("ep_poll"), asked), [["proxy"]], "a queue without jobs");
    }
    let mut unix = host(400, at_lock());
    asks(&mut unix, &[SERVICE], Unknown, None);
    assert_eq!(ways(&mut unix, &[CLIENT], "client"), [["client", "proxy", "service", "holder"]]);
    let mut idle = host(400, open("ep_poll"));
    asks(&mut idle, &[SERVICE], Unknown, None);
    assert_eq!(ways(&mut idle, &[CLIENT], "client"), [["client", "proxy"]], "each has a journal");
}

#[test]
fn a_peer_elsewhere_is_told_by_its_address() {
    let mut host = host(400, at_lock());
    asks(&mut host, &[], Sent, Some(390));
    assert!(ways(&mut host, &[PROXY], "proxy").iter().all(|way| way.len() == 1));
    let chains = told(&mut host, &[CLIENT]);
    assert_eq!(chains[0].hops.len(), 2);
    assert_eq!(chains[0].hops[1].detail.to_string(), "data from 10.0.0.7:5432");
}

#[test]
fn a_process_of_many_threads_goes_on_by_what_it_has_asked() {
    let many = |service: Wait| {
        let mut host = host(400, service);
        for thread in [22, 23] {
            host.task(thread, "worker", 0, &[Runs(50), Waits(50, open("pipe_read"))]);
            host.spans.iter_mut().filter(|span| span.pid == thread).for_each(|span| span.tgid = PROXY);
            host.rec.tables.tasks.as_mut().unwrap().last_mut().unwrap().tgid = PROXY;
        }
        host
    };
    let mut asked = many(at_lock());
    asks(&mut asked, &[SERVICE], Sent, Some(390));
    for watched in [&[][..], &[CLIENT]] {
        assert_eq!(ways(&mut asked, watched, "client"), [["client", "proxy", "service", "holder"]]);
    }
    let mut none = many(at_lock());
    let chains = told(&mut none, &[CLIENT]);
    assert_eq!(chains[0].hops[1].detail.to_string(), WaitTarget::ThreadNotKnown.to_string());
}

#[test]
fn who_asks_each_other_is_followed_once() {
    let mut host = host(400, open("ep_poll"));
    host.spans.iter_mut().filter(|span| span.pid == SERVICE).for_each(|span| span.syscall = Some(EPOLL_WAIT));
    asks(&mut host, &[SERVICE], Sent, Some(390));
    let back = Request { tgid: SERVICE, other_end: end(&[PROXY], Sent, Some(380)), ..Request::default() };
    host.rec.tables.requests.as_mut().unwrap().push(back);
    assert_eq!(ways(&mut host, &[CLIENT], "client"), [["client", "proxy", "service", "proxy"]]);
    let last = &told(&mut host, &[CLIENT])[0].hops[3];
    assert_eq!(last.detail.to_string(), WaitTarget::InTurn.to_string());
    assert!(ways(&mut host, &[], "client").is_empty(), "nobody is kept");
}
