//! Small hosts whose truth can be read off.

use std::time::Duration;

use whyslow_model::SubjectKind;
use whyslow_model::chain::{Chain, Part};
use whyslow_model::table::Task;
use whyslow_model::timeline::{LockWait, Run, State};
use whyslow_model::wait::{Note, Reason, Who};

use super::host::{Does, Host, MS, Wait, adds_up, interrupted, leaves, locked, said, woken_by};
use crate::graph::walk::Walk;
use crate::graph::{chains, flames, wall};
use Does::{Ready, Runs, Short, Waits};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn reported(host: &mut Host) -> Vec<Chain> {
    chains::chains(&host.graph())
}

fn who(chain: &Chain) -> Vec<String> {
    chain.hops.iter().map(|hop| hop.who.to_string()).collect()
}

fn lost(chain: &Chain) -> Vec<u64> {
    chain.hops.iter().map(|hop| hop.lost.as_millis() as u64).collect()
}

/// a waits for b, b for c, c for d, who sleeps: each got its lock before the one above wanted it.
fn lock_chain(last: Wait) -> Host {
    let mut host = Host::window(200);
    host.task(1, "a", 0, &[Runs(30), Waits(90, locked(0xb, 2, 2)), Runs(80)])
        .task(2, "b", 0, &[Runs(20), Waits(100, locked(0xc, 3, 3)), Runs(80)])
        .task(3, "c", 0, &[Runs(10), Waits(108, locked(0xd, 4, 4)), Runs(82)])
        .task(4, "d", 0, &[Runs(5), Waits(110, last), Runs(85)]);
    host
}

#[test]
fn a_lock_chain_of_four_is_reported_in_order_with_its_times() {
    let mut host = lock_chain(Wait { on: "nanosleep", ..Wait::default() });
    let chains = reported(&mut host);
    assert_eq!(chains.len(), 1, "its lower ends are not told again: {chains:#?}");
    assert_eq!(who(&chains[0]), ["a", "b", "c", "d"]);
    assert_eq!(lost(&chains[0]), [90, 90, 88, 85]);
    assert_eq!(chains[0].hops[1].worst, Some(ms(100)), "the whole of b's own wait");
    assert_eq!(chains[0].hops[3].detail.to_string(), "its own sleep");
    assert_eq!((chains[0].leaf.kind, chains[0].leaf.name.as_str()), (SubjectKind::Task, "d"));
    assert_eq!(
        chains[0].tasks,
        (1..5).zip(["a", "b", "c", "d"]).map(|(p, n)| vec![(p, Who::task(n))]).collect::<Vec<_>>()
    );
}

#[test]
fn a_device_at_the_end_is_the_culprit() {
    let mut host = lock_chain(Wait { on: "io_schedule", ..Wait::default() });
    let chains = reported(&mut host);
    assert_eq!((chains[0].leaf.kind, chains[0].leaf.name.as_str()), (SubjectKind::Device, "vda"));
    assert_eq!(chains[0].hops.len(), 4);
}

#[test]
fn a_deadlock_ends_and_is_named() {
    let open = |address, owner| Wait { open: true, ..locked(address, owner, 0) };
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Runs(10), Waits(90, open(2, 2))]).task(
        2,
        "b",
        0,
        &[Runs(20), Waits(80, open(1, 1))],
    );
    let chains = reported(&mut host);
    assert_eq!(chains[0].notes[0], Note::Deadlock, "{chains:#?}");
    assert_eq!(who(&chains[0]), ["a", "b", "a"]);
    assert_eq!(lost(&chains[0]), [90, 80, 80]);
}

#[test]
fn who_only_read_is_a_hint_and_who_let_go_is_sure() {
    let reader = |owner, waker| {
        let mut wait = locked(7, owner, waker);
        wait.lock.as_mut().unwrap().reader_owned = true;
        wait
    };
    let mut host = Host::window(100);
    host.task(1, "w", 0, &[Runs(10), Waits(50, reader(3, 2)), Runs(40)]).task(2, "r", 0, &[Runs(100)]).task(
        3,
        "s",
        0,
        &[Runs(5), Waits(95, Wait { on: "ep_poll", open: true, ..Wait::default() })],
    );
    let chains = reported(&mut host);
    assert_eq!(
        (who(&chains[0]), chains[0].notes.len()),
        (vec!["w".to_owned(), "r".to_owned()], 0),
        "{chains:#?}"
    );
    host.spans[1].waker = None;
    host.spans.retain(|span| span.pid != 1);
    host.task(1, "w", 0, &[Runs(10), Waits(90, Wait { open: true, ..reader(3, 2) })]);
    assert_eq!(reported(&mut host)[0].notes, [Note::Open, Note::StaleOwner]);
}

#[test]
fn a_few_waits_of_which_there_is_only_a_hint_do_not_make_the_others_doubtful() {
    let notes = |sure, hinted| {
        let mut wait = locked(7, 2, 2);
        wait.lock.as_mut().unwrap().reader_owned = true;
        let hint = Wait { open: true, waker: None, ..wait.clone() };
        let mut host = Host::window(100);
        host.task(1, "w", 0, &[Runs(10), Waits(sure, wait), Runs(10), Waits(hinted, hint)]);
        host.task(2, "r", 0, &[Runs(100)]);
        let chain = reported(&mut host).remove(0);
        assert_eq!((who(&chain), chain.count), (vec!["w".to_owned(), "r".to_owned()], 2), "{chain:#?}");
        chain.notes
    };
    assert_eq!(notes(50, 30), [Note::Open]);
    assert_eq!(notes(30, 50), [Note::Open, Note::StaleOwner]);
}

#[test]
fn a_lock_that_changed_hands_unseen_is_nobodys() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Waits(60, locked(7, 2, 3)), Runs(40)]).task(2, "b", 0, &[Runs(100)]).task(
        3,
        "c",
        0,
        &[Runs(100)],
    );
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 100 * MS, None);
    adds_up(&parts, 100 * MS);
    assert_eq!(
        leaves(&graph, &parts),
        [(String::new(), "unexplained".into(), 60), ("a".into(), "running".into(), 40)]
    );
    drop(graph);
    host.got(7, 20, 3);
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 100 * MS, None);
    let all: Vec<_> = leaves(&graph, &parts).into_iter().map(|(who, _, ms)| (who, ms)).collect();
    assert_eq!(all, [("a".to_owned(), 40), ("b".to_owned(), 20), ("c".to_owned(), 40)]);
}

#[test]
fn whom_a_softirq_interrupted_is_not_blamed() {
    let mut host = Host::window(100);
    host.rec.tables.stacks.as_mut().unwrap().push(whyslow_model::timeline::Stack {
        id: 50,
        kernel: vec!["try_to_wake_up".into(), "hrtimer_wakeup".into()],
        user: vec![],
    });
    for (stack, want) in [(None, "unexplained"), (Some(50), "timer")] {
        host.spans.clear();
        host.task(1, "a", 0, &[Runs(10), Waits(80, interrupted("schedule", 2, stack)), Runs(10)]).task(
            2,
            "innocent",
            0,
            &[Runs(100)],
        );
        let chains = reported(&mut host);
        assert_eq!(chains[0].hops[1].reason.word(), want);
        assert!(
            chains.iter().all(|chain| chain.hops.iter().all(|hop| hop.who.comm() != "innocent")),
            "{chains:#?}"
        );
    }
}

#[test]
fn a_work_item_names_its_function() {
    let mut host = Host::window(100);
    let mut flush = woken_by("flush_work", 9);
    flush.waker.as_mut().unwrap().work = Some("free_fn".into());
    host.task(1, "rmdir", 0, &[Runs(10), Waits(80, flush), Runs(10)]).task(9, "kworker/1:2", 0, &[Runs(100)]);
    host.sampled(9, "free_fn");
    let function = whyslow_model::work::Work {
        function: "free_fn".into(),
        count: 8,
        ran_ns: 80 * MS,
        ..Default::default()
    };
    host.rec.tables.works = Some(vec![function]);
    let chains = reported(&mut host);
    assert_eq!(who(&chains[0]), ["rmdir", "kworker/1:2 (free_fn)"]);
    let leaf = &chains[0].hops[1];
    assert_eq!((leaf.reason.word(), leaf.count, leaf.per_call), ("running", Some(8), Some(ms(10))));
}

#[test]
fn a_command_waits_for_its_child_from_birth_to_exit() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Runs(10), Waits(80, woken_by("do_wait", 2)), Runs(10)])
        .task(2, "cc1", 15, &[Runs(60), Waits(10, Wait { on: "io_schedule", ..Wait::default() }), Runs(5)])
        .ends()
        .watch(1);
    let account = wall::account(&host.graph()).unwrap();
    assert_eq!((account.wall, account.off_cpu), (ms(100), ms(80)));
    let parts: Vec<_> = account.parts.iter().map(|part| (part.reason.word(), part.time)).collect();
    assert_eq!(parts, [("child", ms(80)), ("running", ms(20))]);
    let inside = reported_parts(&account.parts[0].parts);
    assert_eq!(inside, ["cc1: on CPU, 65", "cc1: vda, 10", "cc1: it had not begun, 5"]);
    assert_eq!(account.unexplained, ms(5), "whoever had to start it was not seen");
}

#[test]
fn who_has_not_begun_is_waited_for_in_its_parent() {
    let mut host = Host::window(100);
    host.task(1, "sh", 0, &[Waits(90, woken_by("do_wait", 3)), Runs(10)])
        .task(2, "make", 0, &[Waits(40, Wait { on: "io_schedule", ..Wait::default() }), Runs(60)])
        .task(3, "ld", 50, &[Runs(40)])
        .ends();
    host.rec.tables.tasks.as_mut().unwrap()[2].ppid = 2;
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 100 * MS, None);
    adds_up(&parts, 100 * MS);
    let all: Vec<_> =
        leaves(&graph, &parts).into_iter().map(|(who, word, ms)| format!("{who} {word} {ms}")).collect();
    assert_eq!(all, ["ld running 40", "make block-io 40", "make running 10", "sh running 10"]);
}

/// A thread's parent is that of its process; it is made by another thread of it.
#[test]
fn a_thread_that_has_not_begun_is_waited_for_in_the_one_that_made_it() {
    let said = |creator| {
        let mut host = Host::window(100);
        host.task(1, "waits", 0, &[Waits(90, woken_by("futex_wait", 4)), Runs(10)])
            .task(2, "shell", 0, &[Waits(100, Wait { on: "nanosleep", ..Wait::default() })])
            .task(3, "holds", 0, &[Waits(40, Wait { on: "io_schedule", ..Wait::default() }), Runs(60)])
            .task(4, "passes", 50, &[Runs(50)]);
        let tasks = host.rec.tables.tasks.as_mut().unwrap();
        (tasks[3].tgid, tasks[3].ppid, tasks[3].creator) = (1, 2, creator);
        let graph = host.graph();
        let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 90 * MS, None);
        adds_up(&parts, 90 * MS);
        let unsaid: u64 = parts.iter().map(|part| part.unsaid / MS).sum();
        let all = leaves(&graph, &parts).into_iter().map(|(who, word, ms)| format!("{who} {word} {ms}"));
        (all.collect::<Vec<_>>(), unsaid)
    };
    let made = ["holds block-io 40", "holds running 10", "passes running 40"].map(str::to_owned).to_vec();
    assert_eq!(said(3), (made, 0));
    let not_seen = ["passes not-begun 50", "passes running 40"].map(str::to_owned).to_vec();
    assert_eq!(said(0), (not_seen, 50), "the shell need not know of it");
}

#[test]
fn a_ping_pong_is_reported_by_those_who_stand_for_it() {
    let mut host = Host::window(1000);
    let pong = |pid| Wait { sampled_wait_ns: 400 * MS, ..woken_by("pipe_read", pid) };
    host.task(1, "ping", 0, &[Runs(500), Short(State::Sleep, 400), Waits(100, pong(2))])
        .task(2, "pong", 0, &[Runs(500), Short(State::Sleep, 400), Waits(100, pong(1))])
        .watch(1);
    let account = wall::account(&host.graph()).unwrap();
    let parts = reported_parts(&account.parts);
    assert_eq!(parts, ["on CPU, 500", "a pipe, in short waits (woken by t*), 400", "a pipe, 100"]);
}

#[test]
fn waits_of_who_bore_thousands_are_none_of_those_called_alike() {
    let mut host = Host::window(909);
    let child = Wait { sampled_wait_ns: 900 * MS, ..woken_by("do_wait", 70) };
    host.task(10, "t70", 0, &[Runs(9), Short(State::Sleep, 890), Waits(10, child)]).ends().watch(10);
    let tasks = host.rec.tables.tasks.as_mut().unwrap();
    tasks[0] = Task {
        born: true,
        ended: true,
        lived_ns: 909 * MS,
        traced_ns: 9 * MS,
        sleep_ns: 900 * MS,
        ..tasks[0].clone()
    };
    let children = Task { pid: 70, comm: "t70".to_owned(), born: true, ended: true, ..Task::default() };
    tasks.push(Task { folded: 1_000, lived_ns: 900 * MS, traced_ns: 900 * MS, ..children });
    let account = wall::account(&host.graph()).unwrap();
    assert_eq!(account.unexplained, ms(0), "{:#?}", account.parts);
    let waits = account.parts.iter().find(|part| part.reason == Reason::Child).unwrap();
    assert_eq!(waits.parts.iter().map(|part| part.reason.word()).collect::<Vec<_>>(), ["running"]);
}

#[test]
fn ready_for_a_cpu_is_reported_by_who_had_it_and_the_quota() {
    let mut host = Host::window(100);
    host.task(1, "a", 0, &[Runs(10), Ready(90)]).task(
        2,
        "hog",
        0,
        &[Runs(70), Waits(30, interrupted("nanosleep", 9, None))],
    );
    host.rec.tables.runs = Some(vec![Run { cpu: 0, pid: 2, from_ns: 0, to_ns: 70 * MS }]);
    host.spans[0].throttled_ns = 18 * MS;
    host.watch(1);
    let account = wall::account(&host.graph()).unwrap();
    let ready = reported_parts(&account.parts[0].parts);
    assert_eq!(account.parts[0].reason, Reason::Runnable);
    assert_eq!(
        ready,
        ["hog: had the CPU, 60", "its cgroup's CPU quota, 18", "short runs of other tasks, 12"]
    );
}

#[test]
fn short_runs_are_of_those_who_ran_there_then() {
    let mut host = Host::window(200);
    host.task(1, "a", 0, &[Runs(10), Ready(90), Runs(100)])
        .task(
            2,
            "mouse",
            0,
            &[
                Waits(10, interrupted("nanosleep", 9, None)),
                Runs(60),
                Waits(130, interrupted("nanosleep", 9, None)),
            ],
        )
        .task(3, "late", 0, &[Waits(110, interrupted("nanosleep", 9, None)), Runs(90)])
        .task(4, "elsewhere", 0, &[Waits(10, interrupted("nanosleep", 9, None)), Runs(190)]);
    host.spans.iter_mut().filter(|span| span.pid == 4).for_each(|span| span.cpu = 1);
    host.rec.tables.runs = Some(Vec::new());
    host.watch(1);
    let account = wall::account(&host.graph()).unwrap();
    let ready = account.parts.iter().find(|part| part.reason == Reason::Runnable).unwrap();
    assert_eq!(reported_parts(&ready.parts), ["mouse: had the CPU, 52", "short runs of other tasks, 38"]);
}

#[test]
fn a_woken_waiter_that_came_too_late_waits_for_who_was_faster() {
    let mut host = Host::window(100);
    let again = LockWait { since_ns: 0, ..locked(7, 2, 3).lock.unwrap() };
    host.task(
        1,
        "a",
        0,
        &[
            Waits(30, locked(7, 2, 2)),
            Runs(1),
            Waits(60, Wait { lock: Some(again), ..locked(7, 2, 3) }),
            Runs(9),
        ],
    )
    .task(2, "b", 0, &[Runs(100)])
    .task(3, "thief", 0, &[Runs(100)]);
    let second = host.spans.iter().position(|s| s.pid == 1 && s.at_ns == 31 * MS).unwrap();
    host.spans[second].lock.as_mut().unwrap().since_ns = 0;
    let graph = host.graph();
    let parts = graph.task_parts(&mut Walk::new(false), 1, 0, 100 * MS, None);
    let all: Vec<_> = leaves(&graph, &parts).into_iter().map(|(who, _, ms)| (who, ms)).collect();
    assert_eq!(all, [("a".to_owned(), 10), ("b".to_owned(), 30), ("thief".to_owned(), 60)]);
}

#[test]
fn own_tasks_and_waits_by_wish_are_no_victims() {
    let mut host = Host::window(100);
    let wait = |on| Waits(90, woken_by(on, 9));
    for (pid, on) in (1..).zip(["pipe_read", "ep_poll", "nanosleep", "do_wait"]) {
        host.task(pid, "quiet", 0, &[Runs(10), wait(on)]);
    }
    host.task(7, "whyslow", 0, &[Runs(10), wait("mutex_lock")]).task(9, "x", 0, &[Runs(100)]);
    host.rec.meta.own_pids = vec![7];
    assert_eq!(reported(&mut host), []);
}

#[test]
fn a_flame_is_as_wide_as_the_wall_time() {
    let mut host = lock_chain(Wait { on: "nanosleep", ..Wait::default() });
    host.watch(1);
    let paths = flames::paths(&host.graph());
    assert_eq!(paths.iter().map(|path| path.ns).sum::<u64>(), 200 * MS);
    let deepest = paths.iter().max_by_key(|path| (path.labels.len(), path.ns)).unwrap();
    let want = "a;entry;mutex_lock;-- waits for a mutex;b;-- waits for a mutex;c;-- waits for a mutex;d;\
                -- waits for its own sleep";
    assert_eq!((deepest.labels.join(";").as_str(), deepest.ns), (want, 85 * MS));
}

/// What each part was, with its ms.
fn reported_parts(parts: &[Part]) -> Vec<String> {
    parts.iter().map(|part| format!("{}, {}", said(part), part.time.as_millis())).collect()
}
