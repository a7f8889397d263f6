use whyslow_model::table::Wait;
use whyslow_model::timeline::{Context, Delivery, Role, Span, Stack, State, StateTimes, Waker};
use whyslow_model::{Kind, Meta, Recording};

use super::super::answer_fixture::answer_of;
use super::*;

const MS: u64 = 1_000_000;
/// Kernel functions in which the two tasks sleep.
const WAITS: [(u32, &[&str]); 6] = [
    (1, &["schedule", "locks_lock_inode_wait", "__do_sys_flock"]),
    (2, &["schedule", "do_nanosleep", "hrtimer_nanosleep", "__x64_sys_nanosleep"]),
    (3, &["schedule", "do_signal_stop", "get_signal"]),
    (4, &["schedule", "pipe_read", "vfs_read", "__x64_sys_read"]),
    (5, &["schedule", "ptrace_stop", "ptrace_do_notify", "get_signal"]),
    (6, &["schedule_timeout", "wait_woken", "sk_wait_data", "tcp_recvmsg", "sock_read_iter", "vfs_read"]),
];

/// On a CPU until `at` ms, then asleep until `woken`.
fn row(pid: u32, comm: &str, (from, at, woken): (u64, u64, u64), stack: Option<u32>) -> Span {
    let (from_ns, at_ns, woken_ns) = (from * MS, at * MS, woken * MS);
    Span {
        pid,
        tgid: pid,
        comm: comm.into(),
        from_ns,
        at_ns,
        woken_ns,
        to_ns: woken_ns,
        state: State::Sleep,
        stack,
        mixed: StateTimes { running_ns: at_ns - from_ns, ..StateTimes::default() },
        ..Span::default()
    }
}

/// Task 7 waits for task 9 for `held` ms of a second, in wait `wanted` of [`WAITS`]. Meanwhile task 9 is in wait `meanwhile`.
fn host(wanted: u32, held: u64, meanwhile: u32) -> Recording {
    let waker = Waker { pid: 9, context: Context::Task, ..Waker::default() };
    let waits = Span { waker: Some(waker), ..row(7, "php", (0, 10, 10 + held), Some(wanted)) };
    let holds = row(9, "batch", (0, 5, 9 + held), Some(meanwhile));
    let after = |pid, comm, from| Span { state: State::Running, ..row(pid, comm, (from, 1000, 1000), None) };
    let task = |pid: u32, comm: &str, ppid| Task {
        pid,
        tgid: pid,
        ppid,
        comm: comm.into(),
        lived_ns: 1000 * MS,
        sleep_ns: held * MS,
        exec_ns: 1000_u64.saturating_sub(held) * MS,
        ..Task::default()
    };
    let mut rec =
        Recording { meta: Meta { window_ns: 1000 * MS, ..Meta::default() }, ..Recording::default() };
    rec.tables.tasks = Some(vec![task(7, "php", 1), task(9, "batch", 1)]);
    rec.tables.spans = Some(vec![waits, holds, after(7, "php", 10 + held), after(9, "batch", 9 + held)]);
    let stack = |(id, kernel): (u32, &[&str])| Stack {
        id,
        kernel: kernel.iter().map(|f| (*f).to_owned()).collect(),
        user: Vec::new(),
    };
    rec.tables.stacks = Some(WAITS.map(stack).to_vec());
    rec.tables.cgroups = Some(Vec::new());
    rec
}

fn found(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_when_who_has_a_lock_of_a_file_sleeps() {
    let found = found(&host(1, 600, 2));
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!((found[0].victim.id.as_str(), found[0].culprit.as_ref().unwrap().id.as_str()), ("7", "9"));
    let lost = found[0].lost.unwrap().as_millis();
    assert!((590..=600).contains(&lost), "it has no other sleep: {lost}");
    assert!(found[0].title.starts_with("php waited 5"), "{}", found[0].title);
}

#[test]
fn fires_when_who_is_to_answer_is_stopped_and_says_how_it_goes_on() {
    let found = found(&host(1, 600, 3));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].fixes[0].command.as_deref(), Some("kill -CONT 9"));
}

#[test]
fn fires_when_who_has_the_lock_is_traced_and_nobody_lets_it_go_on() {
    let mut rec = host(1, 990, 5);
    for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.from_ns == 0) {
        (span.open, span.waker, span.woken_ns, span.to_ns) = (true, None, 1000 * MS, 1000 * MS);
        span.holder = if span.pid == 7 { 9 } else { 0 };
    }
    rec.tables.spans.as_mut().unwrap().retain(|span| span.from_ns == 0);
    let found = found(&rec);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "9");
    assert!(found[0].title.contains("batch, which waits for its tracer"), "{}", found[0].title);
}

/// A task that is stuck in D state in these kernel functions. No task was seen to end the wait.
fn stuck(kernel: &[&str], ms: u64) -> Recording {
    let mut rec = host(1, 600, 2);
    rec.meta.window_ns = 3000 * MS;
    let spans = rec.tables.spans.as_mut().unwrap();
    spans.truncate(1);
    let to = (10 + ms) * MS;
    (spans[0].state, spans[0].waker, spans[0].open) = (State::Blocked, None, true);
    (spans[0].woken_ns, spans[0].to_ns) = (to, to);
    let task = &mut rec.tables.tasks.as_mut().unwrap()[0];
    (task.lived_ns, task.blocked_ns, task.sleep_ns) = (3000 * MS, ms * MS, 0);
    rec.tables.stacks.as_mut().unwrap()[0].kernel = kernel.iter().map(|f| (*f).to_owned()).collect();
    rec
}

#[test]
fn fires_when_a_wait_in_d_state_lasts_whoever_is_behind_it() {
    let found = |kernel: &[&str], ms| found(&stuck(kernel, ms));
    let frozen = ["schedule", "percpu_rwsem_wait", "__percpu_down_read", "mnt_want_write", "do_open"];
    let told = found(&frozen, 2000);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].culprit.as_ref().unwrap().name, "a frozen file system", "{told:?}");
    let other = found(&["schedule", "some_drivers_wait", "vfs_read"], 2000);
    assert_eq!(other.len(), 1, "{other:?}");
    assert!(other[0].title.contains("was not seen"), "{}", other[0].title);
    assert_eq!(found(&frozen, 900), Vec::new(), "less than a second is a crowd");
}

/// Only the stack shows what the task waits for.
#[test]
fn cannot_tell_of_a_wait_in_d_state_where_all_stacks_are_lost() {
    let mut rec = stuck(&["schedule", "some_drivers_wait", "vfs_read"], 2000);
    rec.tables.stacks = None;
    assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "off-CPU stacks was not recorded");
}

#[test]
fn cannot_tell_who_is_a_stranger_where_groups_are_lost() {
    let mut rec = host(1, 30, 2);
    rec.tables.cgroups = None;
    assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "task list was not recorded");
    let mut held = host(1, 400, 2);
    held.tables.cgroups = None;
    assert_eq!(found(&held).len(), 1, "it still reports what it has found");
}

#[test]
fn is_quiet_about_short_waits_and_about_sleeps_that_absorb_them() {
    assert_eq!(found(&host(1, 30, 2)), Vec::new());
    let mut rec = host(1, 200, 2);
    for task in rec.tables.tasks.iter_mut().flatten() {
        // The task sleeps for most of the second anyway.
        (task.sleep_ns, task.exec_ns) = (900 * MS, 100 * MS);
    }
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn a_reader_of_what_somebody_makes_now_and_then_is_not_held_up() {
    assert_eq!(found(&host(4, 600, 2)), Vec::new(), "no request was sent");
}

#[test]
fn lock_holder_on_cpu_holds_up_only_waiters_of_another_tree() {
    let computes = |ppid: u32| {
        let mut rec = host(1, 600, 2);
        let holds =
            rec.tables.spans.as_mut().unwrap().iter_mut().find(|span| span.pid == 9 && span.from_ns == 0);
        *holds.unwrap() = Span { state: State::Running, ..row(9, "batch", (0, 609, 609), None) };
        rec.tables.tasks.as_mut().unwrap()[1].ppid = ppid;
        found(&rec).len()
    };
    assert_eq!((computes(1), computes(7)), (1, 0));
}

#[test]
fn without_waits_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
}

/// A client of a service that sleeps before it answers each request, both started by one shell: reported if the service accepted the connection.
#[test]
fn a_service_that_sleeps_keeps_waiting_whom_it_has_accepted_also_in_its_own_tree() {
    let waits = |serves: bool, parent: u32, session: u32| {
        let mut rec = host(4, 600, 2);
        let asked = &mut rec.tables.spans.as_mut().unwrap()[0];
        (asked.stack, asked.syscall, asked.args) = (None, Some(7), [3, 1, 1, 20]);
        asked.waker = Some(answer_of(9, "batch", 600 * MS, serves));
        let group = whyslow_model::table::Cgroup { id: 5, path: "/jobs".into(), ..Default::default() };
        rec.tables.cgroups = Some(vec![group]);
        let tasks = rec.tables.tasks.as_mut().unwrap();
        tasks.push(Task { pid: 77, tgid: 77, comm: "bash".into(), ..Task::default() });
        for task in tasks.iter_mut() {
            (task.unified_cgroup, task.session, task.ppid) = (5, 77, if task.pid == 77 { 1 } else { 77 });
        }
        tasks[0].ppid = parent;
        tasks[1].session = session;
        found(&rec).into_iter().map(|finding| finding.victim.id).collect::<Vec<_>>()
    };
    assert_eq!(waits(true, 77, 77), ["7"]);
    assert_eq!(waits(true, 77, 9), ["7"], "the shell has given the service a session, and not its client");
    assert!(waits(false, 77, 77).is_empty(), "one end of a socket pair");
    assert!(waits(true, 9, 77).is_empty(), "it has started its client");
}

/// Through a unix socket: it is known when the request woke up the thread that answered.
#[test]
fn a_service_that_a_request_through_a_unix_socket_has_woken_was_asked() {
    let told = |before_ns: Option<u64>| {
        let mut rec = host(4, 600, 2);
        let asked = &mut rec.tables.spans.as_mut().unwrap()[0];
        (asked.stack, asked.syscall, asked.args) = (None, Some(7), [3, 1, 1, 20]);
        let role = Some(Role::Answers);
        let delivery = Delivery { role, sent_before_ns: before_ns, ..Delivery::default() };
        let waker = asked.waker.as_mut().unwrap();
        (waker.tgid, waker.delivery) = (9, Some(Box::new(delivery)));
        found(&rec).len()
    };
    assert_eq!(told(Some(600 * MS)), 1);
    assert_eq!(told(Some(580 * MS)), 0, "while the client slept: another thread of it sent the request");
    assert_eq!(told(None), 0, "the answer may be news that no request asked for");
}

/// Client, relay and service, all started by one shell, in one session.
#[test]
fn a_service_behind_a_relay_keeps_waiting_whom_that_one_has_accepted_also_in_its_own_tree() {
    let waits = |accepted: bool, parent: u32| {
        let mut rec = host(4, 600, 2);
        let spans = rec.tables.spans.as_mut().unwrap();
        let polls = |mut span: Span, waker: Waker| {
            (span.stack, span.syscall, span.args) = (None, Some(7), [3, 1, 1, 20]);
            Span { waker: Some(waker), ..span }
        };
        spans[0] = polls(spans[0].clone(), answer_of(8, "relay", 600 * MS, accepted));
        spans.push(polls(row(8, "relay", (0, 10, 610), None), answer_of(9, "batch", 600 * MS, accepted)));
        let tasks = rec.tables.tasks.as_mut().unwrap();
        tasks.push(Task { pid: 8, tgid: 8, comm: "relay".into(), ..tasks[0].clone() });
        tasks.push(Task { pid: 77, tgid: 77, comm: "bash".into(), ppid: 1, ..Task::default() });
        let group = whyslow_model::table::Cgroup { id: 5, path: "/jobs".into(), ..Default::default() };
        rec.tables.cgroups = Some(vec![group]);
        for task in tasks.iter_mut() {
            (task.unified_cgroup, task.session) = (5, 77);
            task.ppid = if task.pid == 77 { 1 } else { 77 };
        }
        tasks[1].ppid = parent;
        found(&rec).into_iter().map(|finding| finding.victim.id).collect::<Vec<_>>()
    };
    assert_eq!(waits(true, 77), ["7"]);
    assert!(waits(false, 77).is_empty(), "ends of socket pairs");
    assert!(waits(true, 7).is_empty(), "the client has started the service at the end");
}

/// Between long waits a client sends requests so often that its other waits have no rows: the stacks of these waits decide.
#[test]
fn short_waits_for_answers_are_no_rests_that_absorb_the_long_ones() {
    let (_, reads) = WAITS[5];
    let lost = |kernel: &[&str], [short, stacked]: [u64; 2], has_asked: bool| {
        let mut rec = host(6, 500, 2);
        let asked = &mut rec.tables.spans.as_mut().unwrap()[0];
        asked.syscall = Some(0);
        asked.waker = Some(answer_of(9, "batch", if has_asked { 500 * MS } else { 700 * MS }, true));
        rec.tables.spans.as_mut().unwrap()[2].mixed.sleep_ns = short * MS;
        let client = &mut rec.tables.tasks.as_mut().unwrap()[0];
        (client.sleep_ns, client.exec_ns) = (900 * MS, 100 * MS);
        let kernel = kernel.iter().map(|frame| (*frame).to_owned()).collect();
        let wait = Wait { pid: 7, state: "sleep".into(), ns: stacked * MS, kernel, ..Wait::default() };
        rec.tables.waits = Some(vec![wait]);
        found(&rec).iter().filter_map(|finding| finding.lost).map(|lost| lost.as_millis()).collect::<Vec<_>>()
    };
    assert!(matches!(lost(reads, [400, 890], true)[..], [490..=500]), "{:?}", lost(reads, [400, 890], true));
    assert!(lost(reads, [0, 890], true).is_empty(), "waits that have rows: they may be waits for news");
    assert!(lost(reads, [400, 700], true).is_empty(), "nothing is known about the rest");
    assert!(lost(reads, [400, 890], false).is_empty(), "it waits for news");
    let naps = ["do_nanosleep", "hrtimer_nanosleep", "__x64_sys_nanosleep"];
    assert!(lost(&naps, [400, 890], true).is_empty());
}
