//! A program whose threads share its loops: one looks at the watch, and wakes the next, until the answer comes.

use whyslow_model::chain::Chain;
use whyslow_model::timeline::{Context, Delivery, Ends, Waker, Watched};

use super::host::{Does, Host, MS, Wait, interrupted, woken_by};
use crate::graph::chains;
use Does::{Runs, Waits};

const CLIENT: u32 = 11;
const FIRST: u32 = 21;
const SECOND: u32 = 22;
const BACKEND: u32 = 31;
const TIMER: u32 = 5;

/// Data from somebody at a connection that had sent so long before.
fn told(by: u32, before_ms: u64, serves: bool) -> Wait {
    let ends = |local: &str, peer: &str, serves| Ends {
        local: local.to_owned(),
        peer: peer.to_owned(),
        serves,
        ..Ends::default()
    };
    let delivery = Delivery {
        ready: Some(ends("127.0.0.1:40000", "127.0.0.1:5432", serves)),
        sends: Some(ends("127.0.0.1:5432", "127.0.0.1:40000", !serves)),
        sent_before_ns: Some(before_ms * MS),
        ..Delivery::default()
    };
    let waker = Waker {
        pid: by,
        tgid: by,
        context: Context::Softirq,
        delivery: Some(Box::new(delivery)),
        ..Waker::default()
    };
    Wait { on: "ep_poll", waker: Some(waker), ..Wait::default() }
}

/// A client of a program that is told by its backend at 90 ms what it asked for so long before; of two threads, or of one.
fn host(before_ms: u64, serves: bool) -> Host {
    let mut host = Host::window(100);
    let looks = || interrupted("ep_poll", 0, Some(TIMER));
    let loops = [
        Waits(30, looks()),
        Runs(1),
        Waits(29, looks()),
        Runs(1),
        Waits(29, told(BACKEND, before_ms, serves)),
    ];
    host.task(CLIENT, "client", 0, &[Waits(92, woken_by("pipe_read", SECOND)), Runs(8)])
        .task(FIRST, "program", 0, &[&loops[..], &[Runs(10)]].concat())
        .task(SECOND, "program", 0, &[Waits(91, woken_by("futex_wait", FIRST)), Runs(9)])
        .task(BACKEND, "backend", 0, &[Runs(90), Waits(10, woken_by("pipe_read", FIRST))]);
    host.spans
        .iter_mut()
        .filter(|span| [FIRST, SECOND].contains(&span.pid))
        .for_each(|span| span.tgid = FIRST);
    host.rec
        .tables
        .tasks
        .as_mut()
        .unwrap()
        .iter_mut()
        .filter(|t| t.pid == SECOND)
        .for_each(|t| t.tgid = FIRST);
    host
}

/// How long the backend was waited for, in ms.
fn behind(host: &mut Host) -> u128 {
    host.rec.meta.watched = Some(Watched { pids: vec![CLIENT], ..Watched::default() });
    let chains = chains::chains(&host.graph());
    let names = |chain: &Chain| chain.hops.iter().any(|hop| hop.who.to_string() == "backend");
    chains.iter().filter(|chain| names(chain)).map(|chain| chain.time.as_nanos() / u128::from(MS)).sum()
}

#[test]
fn looks_at_the_watch_by_one_of_many_threads_are_for_what_its_process_had_asked() {
    assert!(behind(&mut host(88, false)) >= 88);
    assert!(behind(&mut host(35, false)) <= 35, "what came before was for something else");
    assert!(behind(&mut host(500, false)) <= 35, "for somebody else");
}

#[test]
fn a_message_that_came_last_may_be_what_was_waited_for() {
    assert!(behind(&mut host(88, true)) >= 88);
}
