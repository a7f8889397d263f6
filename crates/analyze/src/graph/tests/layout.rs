//! How an account is laid out.

use whyslow_model::chain::Part;
use whyslow_model::timeline::{State, Watched};
use whyslow_model::wait::{Reason, Who};

use super::host::{Does, Host, Wait, said, woken_by};
use crate::graph::wall;
use Does::{Ready, Runs, Waits};

fn attached(host: &mut Host, pids: &[u32]) -> Vec<Part> {
    host.rec.meta.watched = Some(Watched { pids: pids.to_vec(), ..Watched::default() });
    wall::account(&host.graph()).unwrap().parts
}

#[test]
fn threads_that_rest_come_last() {
    let mut host = Host::window(100);
    let idle = || Wait { on: "pipe_read", open: true, ..Wait::default() };
    host.task(1, "busy", 0, &[Runs(100)]);
    for pid in 2..10 {
        host.task(pid, "pool", 0, &[Waits(100, idle())]);
    }
    let parts = attached(&mut host, &(1..10).collect::<Vec<_>>());
    let reasons: Vec<_> = parts.iter().map(|part| part.reason).collect();
    assert_eq!(reasons, [Reason::Running, Reason::Handed], "{parts:#?}");
}

#[test]
fn small_parts_together_are_not_the_largest() {
    let mut host = Host::window(100_000);
    let mut does = vec![Runs(40_000)];
    for pid in 2..102 {
        does.push(Waits(600, woken_by("do_wait", pid)));
        host.task(pid, &format!("c{}", "x".repeat(pid as usize)), 0, &[Runs(100_000)]);
    }
    host.task(1, "main", 0, &does).watch(1);
    let parts = wall::account(&host.graph()).unwrap().parts;
    let waits = parts.iter().find(|part| part.reason == Reason::Child).unwrap();
    let largest = waits.parts.iter().filter(|part| part.reason != Reason::Other).count();
    assert!(largest >= 16, "{} rows", waits.parts.len());
}

#[test]
fn who_had_the_cpu_is_said_where_he_is_called_the_same() {
    let mut host = Host::window(100);
    host.task(1, "twin", 0, &[Ready(50), Runs(50)]).task(2, "twin", 0, &[Runs(50), Ready(50)]).watch(1);
    let run = whyslow_model::timeline::Run { pid: 2, to_ns: 50 * super::host::MS, ..Default::default() };
    host.rec.tables.runs = Some(vec![run]);
    let parts = wall::account(&host.graph()).unwrap().parts;
    let ready = parts.iter().find(|part| part.reason == Reason::Runnable).unwrap();
    assert_eq!(said(&ready.parts[0]), "twin: had the CPU", "{parts:#?}");
    assert_eq!(ready.who, Who::Nobody);
}

#[test]
fn short_waits_among_long_ones_keep_their_name() {
    let mut host = Host::window(10_000);
    let mut does = Vec::new();
    for _ in 0..100 {
        does.push(Waits(90, woken_by("pipe_read", 3)));
        does.push(Runs(10));
    }
    host.task(1, "main", 0, &[Waits(10_000, woken_by("do_wait", 2))])
        .task(2, "child", 0, &does)
        .task(3, "other", 0, &[Runs(10_000)])
        .watch(1);
    for span in host.spans.iter_mut().filter(|span| span.pid == 2 && span.state == State::Sleep).step_by(2) {
        span.woken_ns = span.at_ns + 500_000;
        span.to_ns = span.woken_ns;
    }
    let parts = wall::account(&host.graph()).unwrap().parts;
    assert!(!format!("{parts:?}").contains("SmallerParts"), "{parts:#?}");
}
