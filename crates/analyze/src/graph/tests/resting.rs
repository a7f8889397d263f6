//! Threads that rest beside others have no chain.

use whyslow_model::timeline::{State, Watched};
use whyslow_model::wait::Reason;

use super::host::{Does, Host, Wait, interrupted, woken_by};
use crate::graph::chains;
use Does::{Ready, Runs, Waits};

fn open(on: &'static str) -> Wait {
    Wait { on, open: true, ..Wait::default() }
}

/// Who has a chain: the first of each.
fn heads(host: &mut Host, watched: &[u32]) -> Vec<String> {
    host.rec.meta.watched = Some(Watched { pids: watched.to_vec(), ..Watched::default() });
    let mut heads: Vec<String> =
        chains::chains(&host.graph()).iter().map(|chain| chain.hops[0].who.to_string()).collect();
    heads.sort();
    heads
}

fn pool(host: &mut Host) {
    host.task(3, "loop", 0, &[Waits(100, open("ep_poll"))]).task(
        4,
        "cleans",
        0,
        &[Waits(40, interrupted("nanosleep", 9, None)), Runs(1), Waits(59, open("nanosleep"))],
    );
}

#[test]
fn who_rests_beside_others_has_no_chain() {
    let mut host = Host::window(100);
    host.task(1, "client", 0, &[Waits(90, woken_by("pipe_read", 2)), Runs(10)]).task(
        2,
        "server",
        0,
        &[Runs(100)],
    );
    pool(&mut host);
    assert_eq!(heads(&mut host, &[1, 2, 3, 4]), ["client"]);
}

#[test]
fn beside_one_that_computes_too() {
    let mut host = Host::window(100);
    host.task(2, "server", 0, &[Runs(100)]);
    pool(&mut host);
    assert_eq!(heads(&mut host, &[2, 3, 4]), Vec::<String>::new());
}

/// A daemon's first thread waits for the end of the others.
#[test]
fn who_joins_a_thread_that_rests_rests() {
    let joins = |works: bool| {
        let mut host = Host::window(100);
        host.task(1, "main", 0, &[Waits(100, open("futex_wait"))]);
        let join = host.spans.last_mut().unwrap();
        (join.syscall, join.args) = (Some(202), [64, 0, 3, 0]);
        pool(&mut host);
        host.task(2, "server", 0, &[Runs(100)]);
        if works {
            host.spans.retain(|span| span.pid != 3);
            host.task(3, "loop", 0, &[Runs(100)]);
        }
        host.spans.iter_mut().filter(|span| span.pid == 3).for_each(|span| span.tgid = 1);
        let tasks = host.rec.tables.tasks.as_mut().unwrap().iter_mut();
        tasks.filter(|task| task.pid == 3).for_each(|task| task.tgid = 1);
        heads(&mut host, &[1, 2, 3, 4])
    };
    assert_eq!(joins(false), Vec::<String>::new());
    assert_eq!(joins(true), ["main"]);
}

#[test]
fn the_command_that_was_run_lasted_as_long_as_it_slept() {
    let mut host = Host::window(100);
    host.task(2, "server", 0, &[Runs(100)]);
    pool(&mut host);
    host.watch(3);
    assert_eq!(chains::chains(&host.graph()).len(), 1);
}

#[test]
fn where_all_rest_that_is_the_answer() {
    let mut host = Host::window(100);
    pool(&mut host);
    assert_eq!(heads(&mut host, &[3, 4]), ["cleans", "loop"]);
}

/// The client rests for most of the time, too, and waits for the server now and then.
#[test]
fn who_waits_for_somebody_now_and_then_is_the_answer_where_all_rest() {
    let mut host = Host::window(100);
    let client = [Waits(5, woken_by("pipe_read", 2)), Runs(1), Waits(94, open("nanosleep"))];
    host.task(1, "client", 0, &client).task(2, "server", 0, &[Runs(5), Waits(95, open("nanosleep"))]);
    pool(&mut host);
    let told = heads(&mut host, &[1, 3, 4]);
    assert!(told.contains(&"client".to_owned()) && !told.contains(&"loop".to_owned()), "{told:?}");
}

/// Two waits of housekeeping that nobody is behind: one whose reason is not known, and one that is short beside the client's.
#[test]
fn a_little_that_is_not_rest_makes_no_chain_where_all_rest() {
    let little = |wait: Wait| {
        let mut host = Host::window(1000);
        let client = [Waits(50, woken_by("pipe_read", 2)), Runs(1), Waits(949, open("nanosleep"))];
        let server = [Runs(50), Waits(950, open("nanosleep"))];
        host.task(1, "client", 0, &client).task(2, "server", 0, &server);
        let cleans = [
            Waits(400, interrupted("nanosleep", 9, None)),
            Waits(if wait.waker.is_none() { 40 } else { 3 }, wait),
            Waits(560, open("nanosleep")),
        ];
        host.task(4, "cleans", 0, &cleans);
        // Its stack was not seen, as hosts hide one now and then.
        let unseen = host.spans.iter_mut().filter(|span| span.state == State::Blocked);
        unseen.for_each(|span| (span.state, span.stack) = (State::Sleep, None));
        host.rec.meta.watched = Some(Watched { pids: vec![1, 4], ..Watched::default() });
        let chains = chains::chains(&host.graph()).into_iter();
        let sleeps = chains.filter(|chain| chain.hops[0].reason == Reason::Timer);
        sleeps.map(|chain| chain.hops[0].who.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(little(Wait { on: "schedule", ..Wait::default() }), ["client"]);
    assert_eq!(little(woken_by("pipe_read", 2)), ["client"]);
}

/// Its group has a quota, or the CPUs are full: what it waits for a CPU has chains of its own, and its sleeps have none.
#[test]
fn who_rests_and_is_kept_off_the_cpu_rests() {
    let mut host = Host::window(1000);
    host.task(1, "client", 0, &[Waits(900, woken_by("pipe_read", 2)), Runs(100)]);
    host.task(2, "server", 0, &[Runs(1000)]);
    let cleans =
        [Waits(400, interrupted("nanosleep", 9, None)), Ready(200), Runs(1), Waits(399, open("nanosleep"))];
    host.task(4, "cleans", 0, &cleans);
    host.rec.meta.watched = Some(Watched { pids: vec![1, 4], ..Watched::default() });
    let chains = chains::chains(&host.graph());
    let is_sleep = |chain: &&whyslow_model::chain::Chain| chain.hops[0].reason == Reason::Timer;
    assert_eq!(chains.iter().filter(is_sleep).count(), 0, "{chains:?}");
    assert!(chains.iter().any(|chain| chain.hops[0].reason == Reason::Runnable), "{chains:?}");
}

#[test]
fn who_works_now_and_then_does_not_rest() {
    let mut host = Host::window(100);
    host.task(1, "worker", 0, &[Runs(20), Waits(80, open("ep_poll"))]).task(2, "server", 0, &[Runs(100)]);
    assert_eq!(heads(&mut host, &[1, 2]), ["worker"]);
}

#[test]
fn one_that_no_row_tells_of_changes_nothing() {
    let mut host = Host::window(100);
    pool(&mut host);
    assert_eq!(heads(&mut host, &[3, 4, 77]), ["cleans", "loop"]);
}
