//! Waits that look at their watch.

use super::host::{Does, Host, Wait, interrupted, leaves, woken_by};
use crate::graph::explain::Walk;

/// futex(2) on x86-64.
const FUTEX: u32 = 202;

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
