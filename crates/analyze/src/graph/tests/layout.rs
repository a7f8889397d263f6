//! How an account is laid out.

use whyslow_model::chain::Part;
use whyslow_model::table::Sample;
use whyslow_model::timeline::{State, Watched};
use whyslow_model::wait::{Reason, Who};

use super::host::{Does, Host, MS, Wait, said, woken_by};
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

/// Of a task that was seen `n` times in as many functions of a call.
fn sampled_in(host: &mut Host, pid: u32, n: u32, call: &str) {
    for at in 0..n {
        let kernel = vec![format!("{call}_part_{at}"), format!("__x64_sys_{call}")];
        let sample = Sample { pid, comm: "t".into(), count: 1, kernel, ..Sample::default() };
        host.rec.tables.samples.get_or_insert_default().push(sample);
    }
}

/// (what, share of all of it), of leaves.
fn leaves(parts: &[Part]) -> Vec<(String, f64)> {
    let leaf = |part: &Part| {
        let inner = leaves(&part.parts);
        let own = || vec![(part.detail.to_string(), part.share.map_or(0.0, |share| share.ratio()))];
        if inner.is_empty() { own() } else { inner }
    };
    parts.iter().flat_map(leaf).collect()
}

fn share_of(parts: &[Part], what: &str) -> f64 {
    leaves(parts).iter().filter(|(name, _)| name.contains(what)).map(|(_, share)| share).sum()
}

#[test]
fn functions_too_small_to_be_told_stand_under_their_call() {
    let mut host = Host::window(100);
    host.task(1, "t", 0, &[Runs(100)]).watch(1);
    sampled_in(&mut host, 1, 300, "clone");
    sampled_in(&mut host, 1, 100, "munmap");
    let parts = wall::account(&host.graph()).unwrap().parts;
    let all = leaves(&parts);
    assert!((share_of(&parts, "clone") - 0.75).abs() < 0.01, "{all:#?}");
    assert!((share_of(&parts, "munmap") - 0.25).abs() < 0.01, "{all:#?}");
    assert!(share_of(&parts, "other functions in clone (kernel)") > 0.5, "{all:#?}");
}

#[test]
fn of_too_many_calls_the_largest_are_told_and_all_adds_up() {
    let mut host = Host::window(100);
    host.task(1, "t", 0, &[Runs(100)]).watch(1);
    for call in 0..40u32 {
        sampled_in(&mut host, 1, 2 + call, &format!("call{call}"));
    }
    let parts = wall::account(&host.graph()).unwrap().parts;
    let all = leaves(&parts);
    assert!((all.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 0.001, "{all:#?}");
    assert!(all.iter().any(|(name, _)| name.contains("call39")), "{all:#?}");
    assert!(
        all.iter().any(|(name, _)| name.starts_with("smaller") || name.starts_with("other (")),
        "{all:#?}"
    );
}

/// A parent (1) that waits for children, one after the other; each ran, few have a sample.
fn brief_children(n: u32) -> Host {
    let mut host = Host::window(1000);
    let each = 1000 / u64::from(n);
    let does: Vec<Does> = (0..n).map(|at| Waits(each, woken_by("do_wait", 10 + at))).collect();
    host.task(1, "main", 0, &does).watch(1);
    for at in 0..n {
        host.task(10 + at, "child", u64::from(at) * each + 1, &[Runs(each - 1)]).ends();
        let task = host.rec.tables.tasks.as_mut().unwrap().last_mut().unwrap();
        (task.ended, task.lived_ns, task.traced_ns) = (true, (each - 1) * MS, (each - 1) * MS);
    }
    host
}

#[test]
fn what_brief_children_did_is_told_by_the_samples_of_all_of_them() {
    let mut host = brief_children(100);
    // Every tenth was met once, in another function of three.
    for at in 0..10 {
        sampled_in(&mut host, 10 + 10 * at, 1, ["clone", "munmap", "exit"][at as usize % 3]);
    }
    let parts = wall::account(&host.graph()).unwrap().parts;
    let all = leaves(&parts);
    assert!(share_of(&parts, "clone") > 0.3, "{all:#?}");
    assert!(share_of(&parts, "munmap") > 0.2 && share_of(&parts, "exit") > 0.2, "{all:#?}");
    assert!(share_of(&parts, "smaller") < 0.05, "{all:#?}");
}

#[test]
fn children_of_another_parent_say_nothing_of_them() {
    let mut host = brief_children(100);
    for at in 0..10 {
        host.task(900 + at, "child", 1, &[Runs(5)]).ends();
        let task = host.rec.tables.tasks.as_mut().unwrap().last_mut().unwrap();
        (task.ended, task.ppid, task.lived_ns) = (true, 7, 5 * MS);
        sampled_in(&mut host, 900 + at, 1, "unshare");
    }
    let parts = wall::account(&host.graph()).unwrap().parts;
    assert!(share_of(&parts, "unshare") < 0.001, "{:#?}", leaves(&parts));
}
