//! Waits that look at their watch.

use whyslow_model::syscall::FUTEX;
use whyslow_model::timeline::{Stack, Waker};

use super::host::{Does, Host, Wait, interrupted, leaves, locked, woken_by};
use crate::graph::walk::Walk;

/// One waits 3 x 20 ms with a timeout and then 10 ms until another task, busy all the time, wakes it up.
fn host(pause: u64, last: Wait) -> Host {
    let mut host = Host::window(200);
    let look = || Does::Waits(20, interrupted("nanosleep", 9, None));
    let rests = [Does::Runs(pause), look(), Does::Runs(pause), look(), Does::Runs(pause)];
    let mut does = vec![Does::Runs(1), look()];
    does.extend(rests);
    does.extend([Does::Waits(10, last), Does::Runs(5)]);
    host.task(1, "waits", 0, &does);
    host.task(2, "works", 0, &[Does::Runs(200)]);
    for span in &mut host.spans {
        (span.syscall, span.args[0]) = (Some(FUTEX), 0x1000);
    }
    host.watch(1);
    host
}

fn time_of_works(mut host: Host) -> u64 {
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 110_000_000, None);
    leaves(&graph, &parts).into_iter().filter(|(who, ..)| who == "works").map(|(.., ms)| ms).sum()
}

#[test]
fn looks_at_the_watch_belong_to_the_wait_that_somebody_ends() {
    assert_eq!(time_of_works(host(1, woken_by("futex_wait", 2))), 70);
}

#[test]
fn a_thread_that_does_something_else_between_waits_for_its_timer() {
    assert_eq!(time_of_works(host(8, woken_by("futex_wait", 2))), 10);
}

#[test]
fn a_wait_that_nobody_ends_is_its_own() {
    assert_eq!(time_of_works(host(1, interrupted("nanosleep", 2, None))), 0);
}

/// The same in poll(2) for one descriptor.
fn polls(last: Wait, last_ms: u64) -> Host {
    let mut host = Host::window(200);
    let look = || Does::Waits(20, Wait { on: "ep_poll", ..interrupted("ep_poll", 9, Some(TIMER)) });
    let does = [Does::Runs(1), look(), Does::Runs(1), look(), Does::Runs(1), Does::Waits(last_ms, last)];
    host.task(1, "waits", 0, &[&does[..], &[Does::Runs(5)]].concat());
    host.task(2, "works", 0, &[Does::Runs(200)]);
    let timer = Stack { id: TIMER, kernel: vec!["hrtimer_wakeup".into()], user: vec![] };
    host.rec.tables.stacks.as_mut().unwrap().push(timer);
    for span in host.spans.iter_mut().filter(|span| span.pid == 1) {
        (span.syscall, span.args) = (Some(7), [1, 1, 20, 0]);
    }
    host.watch(1);
    host
}

const TIMER: u32 = 99;

/// Of its waits: (what, ms).
fn waits(mut host: Host) -> Vec<(String, u64)> {
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 53_000_000, None);
    let all = leaves(&graph, &parts).into_iter().filter(|(_, what, _)| what != "running");
    all.map(|(_, what, ms)| (what, ms)).collect()
}

#[test]
fn looks_whose_end_was_not_seen_are_nobodys_that_is_known() {
    let unseen = || Wait { on: "ep_poll", ..Wait::default() };
    assert_eq!(waits(polls(unseen(), 10)), [("unexplained".to_owned(), 50)]);
    // As long as those that the timer ended: so it was, most likely; then nobody has ended any of them.
    let timed_out = waits(polls(unseen(), 20));
    assert!(timed_out.iter().all(|(what, ms)| what != "unexplained" || *ms <= 20), "{timed_out:?}");
}

#[test]
fn a_look_that_timed_out_unseen_does_not_hide_who_ends_the_wait() {
    let mut host = polls(woken_by("ep_poll", 2), 10);
    host.spans.iter_mut().filter(|span| span.pid == 1).nth(1).unwrap().waker = None;
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 60_000_000, None);
    let works = leaves(&graph, &parts).into_iter().filter(|(who, ..)| who == "works");
    assert_eq!(works.map(|(.., ms)| ms).sum::<u64>(), 50);
}

const KILL: u32 = 98;

/// One wait that task 2 ends.
fn waits_once(last: Wait) -> Host {
    let mut host = Host::window(200);
    host.task(1, "waits", 0, &[Does::Runs(1), Does::Waits(50, last), Does::Runs(5)]);
    host.task(2, "works", 0, &[Does::Runs(200)]);
    host
}

/// As timeout(1) ends a command; a signal that it outlives is another matter.
#[test]
fn a_task_that_is_killed_in_its_wait_has_not_waited_for_its_killer() {
    let looks = |last| polls(last, 10);
    let all: [(fn(Wait) -> Host, Wait, u64); 4] = [
        (looks, woken_by("ep_poll", 2), 40),
        (waits_once, woken_by("schedule", 2), 50),
        (waits_once, woken_by("do_wait", 2), 50),
        (waits_once, locked(7, 0, 2), 0),
    ];
    for (host, last, survives) in all {
        let on = last.on;
        let waker = last.waker.clone().map(|waker| Waker { stack: Some(KILL), ..waker });
        let time = |dies: bool| {
            let mut host = host(Wait { waker: waker.clone(), ..last.clone() });
            let kernel = vec!["complete_signal".into(), "kill_something_info".into()];
            host.rec.tables.stacks.as_mut().unwrap().push(Stack { id: KILL, kernel, user: vec![] });
            host.rec.tables.tasks.as_mut().unwrap()[0].ended = dies;
            host.spans.iter_mut().rfind(|span| span.pid == 1).unwrap().ended = dies;
            time_of_works(host)
        };
        assert_eq!((time(true), time(false)), (0, survives), "{on}");
    }
}
