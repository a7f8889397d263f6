//! Locks of user space whose holder the lock itself tells: while it lasts, and where a timeout ends the wait.

use whyslow_model::timeline::Stack;
use whyslow_model::wait::Note;

use super::host::{Does, Host, MS, Wait, adds_up, interrupted, leaves, woken_by};
use crate::graph::chains;
use crate::graph::walk::Walk;
use Does::{Runs, Waits};

/// The wait in row `at` is for a lock that `pid` holds.
fn held_by(host: &mut Host, at: usize, pid: u32) {
    host.spans[at].holder = pid;
}

fn timed() -> Wait {
    interrupted("futex_wait", 9, None)
}

fn open(on: &'static str) -> Wait {
    Wait { on, open: true, ..Wait::default() }
}

fn told(host: &mut Host, pid: u32, ms: u64) -> Vec<(String, String, u64)> {
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), pid, 0, ms * MS, None);
    adds_up(&parts, ms * MS);
    leaves(&graph, &parts)
}

fn text(rows: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
    rows.iter().map(|(who, what, ms)| ((*who).to_owned(), (*what).to_owned(), *ms)).collect()
}

#[test]
fn a_timeout_leads_to_the_holder() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(80, timed()), Runs(20)]).task(2, "b", 0, &[Runs(100)]);
    held_by(&mut host, 0, 2);
    assert_eq!(told(&mut host, 1, 100), text(&[("a", "running", 20), ("b", "running", 80)]));
}

#[test]
fn a_holder_that_sleeps_while_the_window_ends_is_named() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(100, open("futex_wait"))]).task(2, "b", 0, &[Waits(100, open("nanosleep"))]);
    held_by(&mut host, 0, 2);
    assert_eq!(told(&mut host, 1, 100), text(&[("b", "timer", 100)]));
}

#[test]
fn who_let_it_go_is_surer_than_who_had_it_first() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(100, woken_by("futex_wait", 3))]).task(2, "b", 0, &[Runs(100)]).task(
        3,
        "c",
        0,
        &[Runs(100)],
    );
    held_by(&mut host, 0, 2);
    assert_eq!(told(&mut host, 1, 100), text(&[("c", "running", 100)]));
}

/// A task that sleeps for 80 ms after a lock on a file was refused, and the one that has it, or nobody.
fn retries(wait: Wait, holder: u32) -> Host {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(80, wait), Runs(20)]).task(2, "b", 0, &[Runs(100)]);
    host.spans[0].refused = true;
    held_by(&mut host, 0, holder);
    host
}

#[test]
fn who_sleeps_until_it_tries_again_waits_for_the_holder() {
    let mut host = retries(interrupted("nanosleep", 9, None), 2);
    assert_eq!(told(&mut host, 1, 100), text(&[("a", "running", 20), ("b", "running", 80)]));
    let chains = chains::chains(&host.graph());
    let whole = chains.iter().find(|chain| chain.hops.len() == 2).expect("a loss on a whole host, too");
    assert_eq!(whole.hops[0].detail.to_string(), "a file lock (retried)", "{whole:#?}");
}

#[test]
fn who_was_not_refused_sleeps_for_nobody() {
    let mut host = retries(interrupted("nanosleep", 9, None), 2);
    host.spans[0].refused = false;
    assert_eq!(told(&mut host, 1, 100), text(&[("a", "running", 20), ("a", "timer", 80)]));
    assert!(chains::chains(&host.graph()).is_empty());
}

#[test]
fn a_refusal_by_nobody_that_is_known_accuses_nobody() {
    let mut host = retries(interrupted("nanosleep", 9, None), 0);
    assert_eq!(told(&mut host, 1, 100), text(&[("", "unexplained", 80), ("a", "running", 20)]));
    assert!(chains::chains(&host.graph()).iter().all(|chain| chain.hops.len() == 1));
}

#[test]
fn what_somebody_ended_was_no_sleep_until_the_next_attempt() {
    let mut host = retries(woken_by("pipe_read", 2), 3);
    host.task(3, "c", 0, &[Runs(100)]);
    assert_eq!(told(&mut host, 1, 100), text(&[("a", "running", 20), ("b", "running", 80)]));
}

#[test]
fn without_a_holder_nobody_is_accused() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(100, timed())]).task(2, "b", 0, &[Runs(100)]);
    assert_eq!(told(&mut host, 1, 100), text(&[("", "unexplained", 100)]));
}

/// `n` tasks, each of which waits for what the next holds; all give up together.
fn cycle(n: u32, wait: &Wait) -> Host {
    let mut host = Host::window(100);
    for pid in 1..=n {
        host.task(pid, &format!("t{pid}"), 0, &[Runs(10), Waits(90, wait.clone())]);
        let last = host.spans.len() - 1;
        held_by(&mut host, last, pid % n + 1);
    }
    host
}

#[test]
fn a_cycle_is_a_deadlock_also_if_a_timeout_breaks_it() {
    for n in 2..=5 {
        for wait in [open("futex_wait"), timed()] {
            let mut host = cycle(n, &wait);
            let chains = chains::chains(&host.graph());
            let whole = chains.iter().find(|chain| chain.hops.len() > n as usize);
            let whole = whole.unwrap_or_else(|| panic!("{n}, open {}: {chains:#?}", wait.open));
            assert_eq!(whole.notes.first(), Some(&Note::Deadlock), "{n}: {whole:#?}");
        }
    }
}

#[test]
fn two_that_hand_each_other_work_are_no_deadlock() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(40, woken_by("futex_wait", 2)), Runs(60)]).task(
        2,
        "b",
        0,
        &[Runs(40), Waits(40, woken_by("futex_wait", 1)), Runs(20)],
    );
    let chains = chains::chains(&host.graph());
    assert!(chains.iter().all(|chain| !chain.notes.contains(&Note::Deadlock)), "{chains:#?}");
}

/// The first holder (2) let it go to another waiter (3) while the timeout of this one (1) ran.
#[test]
fn a_lock_that_changed_hands_meanwhile_has_no_one_holder() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(80, timed()), Runs(20)]).task(2, "b", 0, &[Runs(100)]).task(
        3,
        "c",
        0,
        &[Waits(30, woken_by("futex_wait", 2)), Runs(70)],
    );
    for span in host.spans.iter_mut().filter(|span| [1, 3].contains(&span.pid)) {
        (span.syscall, span.tgid, span.args[0]) = (Some(202), 1, 64);
        span.holder = if span.pid == 1 { 2 } else { 0 };
    }
    let parts = told(&mut host, 1, 100);
    assert!(parts.iter().all(|(who, _, _)| who != "b"), "{parts:?}");
    host.spans.retain(|span| span.pid != 3);
    assert!(told(&mut host, 1, 100).iter().any(|(who, _, ms)| who == "b" && *ms == 80));
}

/// A database's session (2) lets a row go, and tells the one that waits for it (1) by a signal that is read from a descriptor. A signal
/// that interrupts, also that of a parent's end, tells nothing.
#[test]
fn a_signal_that_is_read_is_an_event_and_others_end_a_wait_in_vain() {
    let ended_by = |frames: &[&str]| {
        let mut host = Host::window(100);
        let kernel = frames.iter().map(|frame| (*frame).to_owned()).collect();
        let stacks = host.rec.tables.stacks.get_or_insert_default();
        stacks.push(Stack { id: 99, kernel, user: Vec::new() });
        let mut wait = woken_by("ep_poll", 2);
        wait.waker.as_mut().unwrap().stack = Some(99);
        host.task(1, "a", 0, &[Waits(80, wait), Runs(20)]).task(2, "b", 0, &[Runs(100)]);
        told(&mut host, 1, 100).iter().any(|(who, _, _)| who == "b")
    };
    let read = ["ep_poll_callback", "__wake_up_common", "__wake_up", "send_signal_locked", "kill_pid_info"];
    assert!(ended_by(&read));
    assert!(!ended_by(&["signal_wake_up_state", "complete_signal", "kill_pid_info"]));
    assert!(!ended_by(&["signal_wake_up_state", "group_send_sig_info", "exit_notify", "do_exit"]));
    assert!(ended_by(&["__wake_up_common", "__wake_up_sync_key", "do_notify_parent", "do_exit"]));
}
