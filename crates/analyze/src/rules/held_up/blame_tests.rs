//! Tests: which ends of chains are to blame.

use whyslow_model::table::Task;
use whyslow_model::timeline::{Asked, Context, OtherEnd, Run, Span, Stack, State, StateTimes, Target, Waker};
use whyslow_model::{Kind, Meta, Recording};

use super::super::super::answer_fixture::answer_of;
use super::super::*;

const MS: u64 = 1_000_000;
/// Kernel functions in which the threads sleep.
const FUTEX: u32 = 1;
const NAPS: u32 = 2;
const POLLS: u32 = 3;
const FIFO: u32 = 4;
const RECEIVES: u32 = 5;
const LOGS: u32 = 7;
const SENDS: u32 = 8;
const STACKS: [(u32, &[&str]); 7] = [
    (FUTEX, &["schedule", "futex_do_wait", "__futex_wait", "futex_wait", "do_futex", "__x64_sys_futex"]),
    (NAPS, &["schedule", "do_nanosleep", "hrtimer_nanosleep", "__x64_sys_nanosleep"]),
    (POLLS, &["schedule", "do_poll", "do_sys_poll", "__x64_sys_poll"]),
    (LOGS, &["schedule_timeout", "unix_wait_for_peer", "unix_dgram_sendmsg", "__sys_sendto"]),
    (SENDS, &["wait_woken", "sk_stream_wait_memory", "tcp_sendmsg_locked", "tcp_sendmsg", "__sys_sendto"]),
    (FIFO, &["wait_for_partner", "fifo_open", "do_dentry_open", "vfs_open", "path_openat"]),
    (
        RECEIVES,
        &["schedule", "wait_woken", "sk_wait_data", "tcp_recvmsg_locked", "tcp_recvmsg", "inet_recvmsg"],
    ),
];

/// On a CPU until `at` ms, then asleep until `woken`.
fn row((pid, tgid): (u32, u32), (from, at, woken): (u64, u64, u64), stack: u32) -> Span {
    let (from_ns, at_ns, woken_ns) = (from * MS, at * MS, woken * MS);
    Span {
        pid,
        tgid,
        comm: format!("t{pid}"),
        from_ns,
        at_ns,
        woken_ns,
        to_ns: woken_ns,
        state: if at == woken { State::Running } else { State::Sleep },
        stack: Some(stack),
        mixed: StateTimes { running_ns: at_ns - from_ns, ..StateTimes::default() },
        ..Span::default()
    }
}

/// A wait at a futex word of its process, until thread `by` of that process wakes it up.
fn at_word(own: (u32, u32), times: (u64, u64, u64), by: u32) -> Span {
    let waker = Waker { pid: by, tgid: own.1, context: Context::Task, ..Waker::default() };
    // A wait at a semaphore or a condition variable: FUTEX_WAIT_BITSET for the value 0, with CLOCK_REALTIME.
    Span { syscall: Some(202), args: [1, 393, 0, 0], waker: Some(waker), ..row(own, times, FUTEX) }
}

/// A second of these rows.
fn host(spans: Vec<Span>) -> Recording {
    let mut rec =
        Recording { meta: Meta { window_ns: 1000 * MS, ..Meta::default() }, ..Recording::default() };
    let mut tasks: Vec<Task> = Vec::new();
    for span in &spans {
        let at = tasks.iter().position(|task| task.pid == span.pid).unwrap_or(tasks.len());
        if at == tasks.len() {
            tasks.push(Task {
                pid: span.pid,
                tgid: span.tgid,
                ppid: 1,
                comm: span.comm.clone(),
                lived_ns: 1000 * MS,
                ..Task::default()
            });
        }
        tasks[at].sleep_ns += span.woken_ns - span.at_ns;
        tasks[at].exec_ns += span.at_ns - span.from_ns;
    }
    let stack = |(id, kernel): (u32, &[&str])| Stack {
        id,
        kernel: kernel.iter().map(|f| (*f).to_owned()).collect(),
        user: Vec::new(),
    };
    rec.tables.tasks = Some(tasks);
    rec.tables.spans = Some(spans);
    rec.tables.stacks = Some(STACKS.map(stack).to_vec());
    rec.tables.cgroups = Some(Vec::new());
    rec
}

fn found(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

/// Kind, victim, culprit.
fn told(rec: &Recording) -> Vec<(Kind, String, Option<String>)> {
    let party =
        |finding: Finding| (finding.kind, finding.victim.id, finding.culprit.map(|culprit| culprit.id));
    found(rec).into_iter().map(party).collect()
}

/// Three threads: each sleeps for 10 ms while it holds a futex word of the program, wakes up the next, and sleeps for 5 ms without the word. Or
/// the first thread of the process wakes up each of them in turn.
fn turns(by_turns: bool) -> Recording {
    let mut spans = vec![row((10, 10), (0, 5, 1000), NAPS)];
    for thread in 0..3 {
        let (own, last) = ((11 + thread, 10), 11 + (thread + 2) % 3);
        let mut at = 10 * u64::from(thread);
        while at + 30 <= 1000 {
            let [with, without] =
                [(at, at, at + 10), (at + 10, at + 10, at + 15)].map(|times| row(own, times, NAPS));
            let waits = at_word(own, (at + 15, at + 15, at + 30), if by_turns { last } else { 10 });
            spans.extend([with, without, waits]);
            at += 30;
        }
    }
    host(spans)
}

#[test]
fn threads_that_sleep_with_a_word_that_goes_from_hand_to_hand_hold_up_each_other() {
    let rec = turns(true);
    let found = found(&rec);
    assert_eq!(found.len(), 1, "{found:#?}");
    let lost = found[0].lost.unwrap().as_millis();
    assert!((1300..=1500).contains(&lost), "each waits for half of its time: {lost}");
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "10", "the process");
    assert!(found[0].title.contains("user-space lock"), "{}", found[0].title);
}

#[test]
fn threads_that_are_woken_for_a_job_wait_for_no_lock() {
    assert_eq!(found(&turns(false)), Vec::new());
}

/// Thread 20 of a service answers the client 7. It waits for 21, another thread of the service, which ran.
fn internal(began: u64) -> Recording {
    let mut asks = row((7, 7), (0, 10, 610), POLLS);
    (asks.syscall, asks.args, asks.waker) =
        (Some(7), [3, 1, 1, 20], Some(answer_of(20, "t20", 600 * MS, true)));
    let idle = Span {
        waker: Some(Waker { pid: 7, tgid: 7, ..Waker::default() }),
        ..row((20, 20), (0, 0, 10), POLLS)
    };
    let mut rec = host(vec![
        asks,
        row((7, 7), (610, 1000, 1000), 0),
        idle,
        at_word((20, 20), (10, 12, 605), 21),
        row((20, 20), (605, 1000, 1000), 0),
        row((21, 20), (0, 1000, 1000), 0),
    ]);
    rec.tables.runs = Some(vec![Run { cpu: 0, pid: 21, from_ns: began * MS, to_ns: 1000 * MS }]);
    rec.tables.tasks.iter_mut().flatten().for_each(|task| task.sleep_ns = task.sleep_ns.max(1));
    rec
}

#[test]
fn a_thread_that_was_at_other_work_before_holds_up_whom_its_process_answers() {
    let rec = internal(0);
    assert_eq!(told(&rec), [(Kind::Cause, "7".to_owned(), Some("21".to_owned()))]);
    assert!(
        found(&rec)[0].title.ends_with("at other work when the request came"),
        "{}",
        found(&rec)[0].title
    );
}

#[test]
fn a_thread_that_began_when_it_was_asked_is_busy_and_no_cause() {
    let mut rec = internal(12);
    let spans = rec.tables.spans.as_mut().unwrap();
    spans.retain(|span| span.pid != 21);
    spans.extend([at_word((21, 20), (0, 0, 11), 20), row((21, 20), (11, 1000, 1000), 0)]);
    assert_eq!(told(&rec), [(Kind::Busy, "21".to_owned(), None)]);
    assert!(found(&rec)[0].title.contains("works on what was requested"), "{}", found(&rec)[0].title);
}

/// The same, but thread 20 wakes up by timeout while it waits. The other thread was seen once to end the last such wait, which is otherwise too
/// short for a row.
fn looks(seen: bool) -> Recording {
    let look = |times| {
        let timer = Waker { context: Context::Hardirq, ..Waker::default() };
        Span { syscall: Some(202), args: [1, 137, 5, 1], waker: Some(timer), ..row((20, 20), times, FUTEX) }
    };
    let mut rec = internal(0);
    let spans = rec.tables.spans.as_mut().unwrap();
    spans.retain(|span| span.pid != 20 || span.from_ns < 10 * MS);
    spans.extend((0..11).map(|at| look((10 + 50 * at, 11 + 50 * at, 60 + 50 * at))));
    let mut works = row((20, 20), (560, 700, 700), 0);
    works.mixed.sleep_ns = MS;
    spans.push(works);
    let by = if seen { 21 } else { 9 };
    let short =
        |from: u64| Span { args: [1, 137, 6, 1], ..at_word((20, 20), (from, from + 10, from + 20), by) };
    spans.extend([700, 720, 740].map(short));
    spans.push(row((20, 20), (760, 1000, 1000), 0));
    rec
}

#[test]
fn the_thread_that_ends_waits_at_a_word_is_who_ended_one_whose_end_had_no_row() {
    let title = |seen: bool| found(&looks(seen)).remove(0).title;
    assert!(
        title(true).ends_with("t21 (on CPU), which was at other work when the request came"),
        "{}",
        title(true)
    );
    assert!(!title(false).contains("t21"), "no thread was seen to end a wait: {}", title(false));
}

#[test]
fn short_work_that_was_begun_before_is_no_queue() {
    let (mut spans, mut at) = (vec![row((21, 20), (0, 1000, 1000), 0)], 0);
    while at + 20 <= 1000 {
        let mut asks = row((7, 7), (at, at, at + 10), POLLS);
        (asks.syscall, asks.args, asks.waker) =
            (Some(7), [3, 1, 1, 20], Some(answer_of(21, "t21", 10 * MS, true)));
        spans.extend([asks, row((7, 7), (at + 10, at + 20, at + 20), 0)]);
        at += 20;
    }
    let mut rec = host(spans);
    rec.tables.runs = Some(vec![Run { cpu: 0, pid: 21, from_ns: 0, to_ns: 1000 * MS }]);
    assert_eq!(told(&rec), [(Kind::Busy, "21".to_owned(), None)]);
}

/// A client that sends the next request at once, and a service that computes 60 ms for each answer and sleeps too briefly for a row. TCP knows the
/// time of a request to a tick: the request may have come 2 ms later than that.
fn asks_again(runs: impl Iterator<Item = (u64, u64)>) -> Recording {
    let (mut spans, mut at) = (vec![row((21, 20), (0, 1000, 1000), 0)], 0);
    while at + 61 <= 1000 {
        let mut asks = row((7, 7), (at, at, at + 60), POLLS);
        (asks.syscall, asks.args, asks.waker) =
            (Some(7), [3, 1, 1, 20], Some(answer_of(21, "t21", 62 * MS, true)));
        spans.extend([asks, row((7, 7), (at + 60, at + 61, at + 61), 0)]);
        at += 61;
    }
    spans[0].mixed.sleep_ns = MS;
    let mut rec = host(spans);
    let run = |(from, to): (u64, u64)| Run { cpu: 0, pid: 21, from_ns: from * MS, to_ns: to * MS };
    rec.tables.runs = Some(runs.map(run).collect());
    rec.tables.tasks.as_mut().unwrap().iter_mut().for_each(|task| task.sleep_ns += MS);
    rec
}

#[test]
fn service_that_starts_on_each_request_had_no_other_work() {
    let each = (0..17).map(|at| (at * 61, at * 61 + 60));
    assert_eq!(told(&asks_again(each)), [(Kind::Busy, "21".to_owned(), None)]);
    let other = told(&asks_again([(0, 1000)].into_iter()));
    assert_eq!(other, [(Kind::Cause, "7".to_owned(), Some("21".to_owned()))], "it never slept");
}

/// Process 20 does not answer a client. It has threads that wait in these functions.
fn unanswered(threads: &[u32]) -> Recording {
    let mut asks = row((7, 7), (0, 100, 1000), POLLS);
    let end = OtherEnd {
        processes: vec![20],
        asked: Asked::Sent,
        sent_before_ns: Some(900 * MS),
        ..OtherEnd::default()
    };
    (asks.syscall, asks.args, asks.open, asks.other_end) =
        (Some(7), [3, 1, 1, 20], true, Some(Box::new(end)));
    let lasting =
        |(at, stack): (usize, &u32)| Span { open: true, ..row((20 + at as u32, 20), (0, 0, 1000), *stack) };
    let threads = [POLLS].iter().chain(threads).enumerate().map(lasting);
    host(std::iter::once(asks).chain(threads).collect())
}

#[test]
fn a_pool_of_which_all_wait_for_one_thing_holds_up_who_is_not_answered() {
    let rec = unanswered(&[FIFO, FIFO]);
    assert_eq!(told(&rec), [(Kind::Cause, "7".to_owned(), Some("21".to_owned()))], "{:#?}", found(&rec));
    assert!(found(&rec)[0].title.contains("the other end of a FIFO"), "{}", found(&rec)[0].title);
}

#[test]
fn idle_service_that_does_not_answer_holds_up_no_client() {
    assert_eq!(found(&unanswered(&[FUTEX, FUTEX])), Vec::new());
    assert_eq!(found(&unanswered(&[])), Vec::new());
}

/// Task 7 waits for a lock on a file that task 9 holds while it sleeps. The two tasks have these names.
fn by_file(names: [&str; 2]) -> Recording {
    let waker = Waker { pid: 9, tgid: 9, context: Context::Task, ..Waker::default() };
    let mut waits = Span { waker: Some(waker), ..row((7, 7), (0, 10, 900), 6) };
    waits.comm = names[0].into();
    let mut holds = row((9, 9), (0, 5, 899), NAPS);
    holds.comm = names[1].into();
    let mut rec =
        host(vec![waits, holds, row((7, 7), (900, 1000, 1000), 0), row((9, 9), (899, 1000, 1000), 0)]);
    for task in rec.tables.tasks.iter_mut().flatten() {
        task.cmdline = Some(task.comm.clone());
    }
    let kernel = ["schedule", "locks_lock_inode_wait", "__do_sys_flock"].map(str::to_owned).to_vec();
    rec.tables.stacks.as_mut().unwrap().push(Stack { id: 6, kernel, user: Vec::new() });
    rec
}

/// Task 20 answers the client 7 after `ms` of 3,000 ms, and has waited for this peer meanwhile.
fn behind(peer: &str, ms: u64) -> Recording {
    let mut asks = row((7, 7), (0, 10, 10 + ms), POLLS);
    (asks.syscall, asks.args) = (Some(7), [3, 1, 1, 20]);
    asks.waker = Some(answer_of(20, "t20", ms * MS, true));
    let idle = Span {
        waker: Some(Waker { pid: 7, tgid: 7, ..Waker::default() }),
        ..row((20, 20), (0, 0, 10), POLLS)
    };
    let target = Target { peer: Some(peer.to_owned()), ..Target::default() };
    let receives = Span { target: Some(target), ..row((20, 20), (10, 11, 9 + ms), RECEIVES) };
    let after = |own, from| row(own, (from, 3000, 3000), 0);
    let mut rec = host(vec![asks, after((7, 7), 10 + ms), idle, receives, after((20, 20), 9 + ms)]);
    rec.meta.window_ns = 3000 * MS;
    for task in rec.tables.tasks.iter_mut().flatten() {
        task.lived_ns = 3000 * MS;
    }
    rec
}

#[test]
fn a_service_that_waits_for_another_host_holds_up_its_client_for_as_long() {
    let rec = behind("10.1.2.3:5432", 2000);
    let told = told(&rec);
    assert_eq!((told.len(), told[0].0, &*told[0].1), (1, Kind::Cause, "7"), "{told:?}");
    assert!(found(&rec)[0].title.contains("10.1.2.3:5432"), "{}", found(&rec)[0].title);
    assert_eq!(found(&behind("10.1.2.3:5432", 400)), Vec::new(), "the answer has come");
    assert_eq!(
        found(&behind("127.0.0.1:40001", 2000)),
        Vec::new(),
        "a peer on this host: data that is held back"
    );
}

/// The program 7 logs through a unix socket that is full. The daemon's reader 20 wakes up by timeout before it takes the line. Its writer 21, if
/// there is one, cannot send to 9, which sleeps.
fn logs(has_writer: bool) -> Recording {
    let waker = Waker { pid: 20, tgid: 20, context: Context::Task, ..Waker::default() };
    let sends = Span { waker: Some(waker), syscall: Some(44), ..row((7, 7), (0, 10, 810), LOGS) };
    let timer = Waker { context: Context::Hardirq, ..Waker::default() };
    let look = Span {
        syscall: Some(202),
        args: [1, 393, 0, 1],
        waker: Some(timer),
        ..row((20, 20), (0, 5, 809), FUTEX)
    };
    let end =
        OtherEnd { processes: vec![9], asked: Asked::Unread, sent_before_ns: Some(1), ..OtherEnd::default() };
    let target = Target { peer: Some("127.0.0.1:514".to_owned()), ..Target::default() };
    let writes = Span {
        open: true,
        syscall: Some(44),
        target: Some(target),
        other_end: Some(Box::new(end)),
        ..row((21, 20), (0, 0, 1000), SENDS)
    };
    let sleeps = Span { open: true, ..row((9, 9), (0, 0, 1000), NAPS) };
    let mut rows =
        vec![sends, row((7, 7), (810, 1000, 1000), 0), look, row((20, 20), (809, 1000, 1000), 0), sleeps];
    rows.extend(has_writer.then_some(writes));
    host(rows)
}

#[test]
fn a_reader_that_looks_at_its_watch_waits_for_the_thread_of_its_process_that_is_stuck() {
    let title = |has_writer: bool| found(&logs(has_writer)).remove(0).title;
    assert!(title(true).ends_with("t9, which waits for its own sleep"), "{}", title(true));
    assert!(title(false).ends_with("t20, which waits for its own timeout (futex)"), "{}", title(false));
}

#[test]
fn copies_of_one_program_take_turns_by_a_lock_of_a_file() {
    assert_eq!(told(&by_file(["backup", "report"])).len(), 1);
    assert_eq!(found(&by_file(["backup", "backup"])), Vec::new());
}
