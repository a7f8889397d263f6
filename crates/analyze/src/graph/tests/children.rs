//! Who waits for children whose end is not what ended the wait.

use whyslow_model::timeline::Stack;

use super::host::{Does, Host, MS, Wait, adds_up, interrupted, leaves, woken_by};
use crate::graph::Graph;
use crate::graph::walk::Walk;
use Does::{Runs, Waits};

fn told(graph: &Graph<'_>, pid: u32, to: u64) -> Vec<(String, String, u64)> {
    let parts = graph.task_parts(&mut Walk::new(false), pid, 0, to * MS, None);
    adds_up(&parts, to * MS);
    leaves(graph, &parts)
}

fn text(rows: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
    rows.iter().map(|(who, what, ms)| ((*who).to_owned(), (*what).to_owned(), *ms)).collect()
}

/// The parent `1` of these.
fn parent_of(host: &mut Host, children: &[u32]) {
    for task in host.rec.tables.tasks.iter_mut().flatten().filter(|task| children.contains(&task.pid)) {
        task.ppid = 1;
        task.ended = true;
    }
    for task in host.rec.tables.tasks.iter_mut().flatten().filter(|task| task.pid == 1) {
        task.ppid = 0;
    }
}

#[test]
fn a_deadline_of_the_parent_is_not_why_the_child_took_so_long() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Runs(10), Waits(80, interrupted("do_wait", 9, None)), Runs(10)])
        .task(2, "job", 5, &[Runs(45), Waits(40, Wait { on: "io_schedule", ..Wait::default() })])
        .ends();
    parent_of(&mut host, &[2]);
    let want = [("job", "block-io", 40), ("job", "running", 40), ("sh", "running", 20)];
    assert_eq!(told(&host.graph(), 1, 100), text(&want));
}

#[test]
fn nor_is_the_end_of_the_window() {
    let mut host = Host::window(100);
    let open = Wait { open: true, on: "do_wait", ..Wait::default() };
    host.task(1, "sh", 0, &[Runs(10), Waits(90, open)]).task(2, "job", 5, &[Runs(95)]);
    parent_of(&mut host, &[2]);
    assert_eq!(told(&host.graph(), 1, 100), text(&[("job", "running", 90), ("sh", "running", 10)]));
}

#[test]
fn several_children_share_the_wait_by_how_long_they_were_there() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Runs(10), Waits(90, interrupted("do_wait", 9, None))])
        .task(2, "job2", 10, &[Runs(60)])
        .ends()
        .task(3, "job3", 10, &[Waits(30, Wait { on: "io_schedule", ..Wait::default() })])
        .ends();
    parent_of(&mut host, &[2, 3]);
    let want = [("job2", "running", 60), ("job3", "block-io", 30), ("sh", "running", 10)];
    assert_eq!(told(&host.graph(), 1, 100), text(&want));
}

#[test]
fn the_child_that_is_waited_for_by_number_is_the_one() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Waits(100, interrupted("do_wait", 9, None))])
        .task(2, "busy", 0, &[Runs(100)])
        .task(3, "idle", 0, &[Waits(100, Wait { on: "ep_poll", open: true, ..Wait::default() })]);
    parent_of(&mut host, &[2, 3]);
    let wait = &mut host.spans[0];
    (wait.syscall, wait.args) = (Some(61), [2, 1, 0, 0]);
    assert_eq!(told(&host.graph(), 1, 100), text(&[("busy", "running", 100)]));
}

#[test]
fn a_child_that_ended_the_wait_itself_is_who_was_waited_for() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Waits(50, woken_by("do_wait", 2)), Runs(50)])
        .task(2, "job", 0, &[Runs(50)])
        .ends()
        .task(3, "other", 0, &[Waits(100, Wait { on: "nanosleep", ..Wait::default() })]);
    parent_of(&mut host, &[2, 3]);
    assert_eq!(told(&host.graph(), 1, 100), text(&[("job", "running", 50), ("sh", "running", 50)]));
}

#[test]
fn without_children_an_interrupt_stays_one() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Waits(100, interrupted("do_wait", 9, None))]).task(
        2,
        "stranger",
        0,
        &[Runs(100)],
    );
    host.rec.tables.tasks.as_mut().unwrap()[1].ppid = 7;
    assert_eq!(told(&host.graph(), 1, 100), text(&[("", "unexplained", 100)]));
}

#[test]
fn who_waits_for_its_alarm_is_told_by_its_threads_that_work() {
    assert_eq!(alarm(interrupted("pause", 9, None)), text(&[("worker", "running", 100)]));
    // Where wake-ups are too many they are let go of. What has not ended yet has nobody behind it.
    assert_eq!(alarm(Wait { on: "pause", ..Wait::default() }), text(&[("worker", "running", 100)]));
    assert_eq!(alarm(Wait { on: "pause", open: true, ..Wait::default() }), text(&[("main", "signal", 100)]));
}

fn alarm(wait: Wait) -> Vec<(String, String, u64)> {
    let mut host = Host::window(100);
    host.task(1, "main", 0, &[Waits(100, wait)]).task(2, "worker", 0, &[Runs(100)]).task(
        3,
        "pool",
        0,
        &[Waits(100, Wait { on: "ep_poll", open: true, ..Wait::default() })],
    );
    for task in host.rec.tables.tasks.iter_mut().flatten() {
        task.tgid = 1;
    }
    host.spans.iter_mut().for_each(|span| span.tgid = 1);
    told(&host.graph(), 1, 100)
}

#[test]
fn who_sends_the_signal_is_who_was_waited_for() {
    let mut host = Host::window(100);
    host.task(1, "main", 0, &[Waits(100, woken_by("pause", 4))]).task(2, "job", 0, &[Runs(100)]).task(
        4,
        "killer",
        0,
        &[Waits(100, Wait { on: "nanosleep", ..Wait::default() })],
    );
    parent_of(&mut host, &[2]);
    assert_eq!(told(&host.graph(), 1, 100), text(&[("killer", "timer", 100)]));
}

/// The process 2 has a thread (3) that rests: it is killed when the other one ends the process, and is the last to go.
#[test]
fn of_a_process_the_thread_that_ended_it_is_waited_for_and_not_the_last() {
    let mut host = Host::window(100);
    let kernel = ["signal_wake_up_state", "zap_other_threads", "do_group_exit"].map(str::to_owned).to_vec();
    host.rec.tables.stacks.get_or_insert_default().push(Stack { id: 99, kernel, user: Vec::new() });
    let mut killed = woken_by("futex_wait", 2);
    killed.waker.as_mut().unwrap().stack = Some(99);
    host.task(1, "sh", 0, &[Runs(10), Waits(80, woken_by("do_wait", 3)), Runs(10)])
        .task(2, "job", 5, &[Runs(80)])
        .ends()
        .task(3, "job", 5, &[Waits(80, killed), Runs(5)])
        .ends();
    host.spans.iter_mut().filter(|span| span.pid == 3).for_each(|span| span.tgid = 2);
    parent_of(&mut host, &[2, 3]);
    host.rec.tables.tasks.iter_mut().flatten().filter(|task| task.pid == 3).for_each(|task| task.tgid = 2);
    let told = told(&host.graph(), 1, 100);
    let ran = told.iter().find(|(who, what, _)| who == "job" && what == "running");
    assert!(ran.is_some_and(|(.., ms)| *ms >= 75), "{told:?}");
}
