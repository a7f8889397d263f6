use whyslow_model::table::{Stack, Task};
use whyslow_model::timeline::{Context, StateTimes, Waker};
use whyslow_model::{Kind as Sort, Recording};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn blocked(pid: u32, comm: &str, stack: u32, ms: u64) -> (Task, Span) {
    let task = Task {
        pid,
        tgid: pid,
        comm: comm.into(),
        blocked_ns: ms * MS,
        sleep_ns: (1000 - ms) * MS,
        lived_ns: 1000 * MS,
        ..Task::default()
    };
    let span = Span {
        pid,
        tgid: pid,
        comm: comm.into(),
        woken_ns: ms * MS,
        to_ns: ms * MS,
        state: State::Blocked,
        open: ms == 1000,
        stack: Some(stack),
        sampled_wait_ns: ms * MS,
        ..Span::default()
    };
    (task, span)
}

/// `fuse` tasks wait for a FUSE server and `vfork` for a child, all the second; `ready` run.
fn host(fuse: u32, vfork: u32, ready: u32) -> Fixture {
    let waits = (0..fuse).map(|at| blocked(100 + at, "ls", 1, 1000));
    let waits = waits.chain((0..vfork).map(|at| blocked(500 + at, "make", 2, 1000)));
    let (mut tasks, spans): (Vec<Task>, Vec<Span>) = waits.unzip();
    let run =
        |pid| Task { pid, exec_ns: 500 * MS, runnable_ns: 500 * MS, lived_ns: 1000 * MS, ..Task::default() };
    tasks.extend((0..ready).map(|at| run(900 + at)));
    let stack = |id, frames: &[&str]| Stack {
        id,
        kernel: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        ..Stack::default()
    };
    Fixture::second().end("proc/loadavg", "42.17 20.00 9.00 1/900 4242\n").with(|tables| {
        tables.tasks = Some(tasks);
        tables.spans = Some(spans);
        tables.stacks = Some(vec![
            stack(1, &["schedule", "request_wait_answer", "__fuse_simple_request", "fuse_lookup_name"]),
            stack(2, &["schedule", "wait_for_completion_state", "kernel_clone", "__do_sys_vfork"]),
        ]);
    })
}

#[test]
fn fires_when_forty_tasks_wait_in_d_and_names_what_for() {
    let host = host(30, 10, 1);
    let found = check(&host.ev()).unwrap();
    assert_eq!((found.len(), found[0].kind, found[0].lost), (1, Sort::Risk, None));
    let title = &found[0].title;
    for words in
        ["load average is 42.2", "40.0 tasks", "1.0 on a CPU", "30.0 for a FUSE", "10.0 for a child", "75 %"]
    {
        assert!(title.contains(words), "{words}: {title}");
    }
    assert_eq!(
        found[0].chain.iter().map(|hop| hop.who.to_string()).collect::<Vec<_>>(),
        ["30 tasks, most of them ls", "10 tasks, most of them make"]
    );
}

#[test]
fn names_who_is_at_the_end() {
    let mut host = host(0, 10, 1);
    let spans = host.0.tables.spans.as_mut().unwrap();
    for span in spans.iter_mut() {
        let waker = Waker { pid: 77, comm: "slowpoke".into(), context: Context::Task, ..Waker::default() };
        (span.open, span.woken_ns, span.to_ns, span.waker) = (false, 900 * MS, 900 * MS, Some(waker));
    }
    spans.push(Span {
        pid: 77,
        comm: "slowpoke".into(),
        at_ns: 1000 * MS,
        woken_ns: 1000 * MS,
        to_ns: 1000 * MS,
        mixed: StateTimes { running_ns: 1000 * MS, ..StateTimes::default() },
        ..Span::default()
    });
    let found = check(&host.ev()).unwrap();
    assert!(found[0].title.contains("at the end: slowpoke (77)"), "{}", found[0].title);
}

#[test]
fn is_quiet_when_the_load_is_of_tasks_that_want_cpus() {
    assert_eq!(check(&host(6, 0, 12).ev()), Ok(vec![]));
    assert_eq!(rules_out(&host(6, 0, 12).ev()), Ok(None));
}

#[test]
fn is_quiet_when_few_wait() {
    assert_eq!(check(&host(3, 1, 0).ev()), Ok(vec![]));
    let not = rules_out(&host(0, 0, 2).ev()).unwrap().unwrap();
    assert!(not.evidence.starts_with("0.0 on average"), "{}", not.evidence);
}

#[test]
fn counts_no_more_than_the_kernel_does() {
    let mut host = host(8, 0, 0);
    for span in host.0.tables.spans.iter_mut().flatten() {
        span.sampled_wait_ns = u64::MAX;
    }
    let found = check(&host.ev()).unwrap();
    assert!(found[0].title.contains("8.0 for a FUSE"), "{}", found[0].title);
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
    let mut unseen = host(10, 0, 0);
    unseen.0.tables.spans = None;
    assert_eq!(check(&unseen.ev()).unwrap_err().to_string(), "off-CPU stacks was not recorded");
    // Without recorded waits it cannot rule out waits either.
    let mut refused = host(0, 0, 2).missing(Missing::skipped("off-CPU stacks", "no"));
    refused.0.tables.spans = None;
    assert_eq!(rules_out(&refused.ev()).unwrap_err().to_string(), "off-CPU stacks was skipped: no");
}
