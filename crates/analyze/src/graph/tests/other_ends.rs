//! Waits that last: who has the other end tells what is waited for.

use whyslow_model::chain::Chain;
use whyslow_model::timeline::{Asked, Context, Delivery, OtherEnd, Role, Span, Watched};
use whyslow_model::wait::WaitTarget;

use super::host::{Does, Host, MS, Wait, interrupted, locked, woken_by};
use crate::graph::chains;
use Asked::{No, Sent, Unknown};
use Does::{Runs, Waits};

const CLIENT: u32 = 11;
const SERVICE: u32 = 21;
const POOL: u32 = 22;
const BUSY: u32 = 23;
const HOLDER: u32 = 31;

fn open(on: &'static str) -> Wait {
    Wait { on, open: true, ..Wait::default() }
}

/// At a mutex that the holder has.
fn at_lock() -> Wait {
    Wait { open: true, ..locked(7, HOLDER, HOLDER) }
}

/// The other end of the last wait of a task.
fn at_end(host: &mut Host, pid: u32, processes: &[u32], asked: Asked) {
    let end = OtherEnd { processes: processes.to_vec(), asked, ..OtherEnd::default() };
    host.spans.iter_mut().rfind(|span| span.pid == pid).unwrap().other_end = Some(Box::new(end));
}

/// At an epoll, until an event comes.
fn at_epoll() -> Wait {
    Wait { syscall: Some(232), args: [5, 0, 8, 0xffff_ffff], ..open("ep_poll") }
}

/// A client that has asked, or not, and a service that waits like this.
fn host(asked: Asked, service: Wait) -> Host {
    let mut host = Host::window(100);
    host.task(CLIENT, "client", 0, &[Runs(5), Waits(95, open("pipe_read"))])
        .task(SERVICE, "service", 0, &[Waits(100, service)])
        .task(HOLDER, "holder", 0, &[Runs(100)]);
    at_end(&mut host, CLIENT, &[SERVICE], asked);
    host
}

/// Other threads of the service.
fn thread(host: &mut Host, pid: u32, comm: &str, waits: Wait) {
    host.task(pid, comm, 0, &[Waits(100, waits)]);
    host.spans.iter_mut().filter(|span| span.pid == pid).for_each(|span| span.tgid = SERVICE);
    host.rec.tables.tasks.as_mut().unwrap().last_mut().unwrap().tgid = SERVICE;
}

/// The ways down from the client: of those who are watched, or on a whole host.
fn ways(host: &mut Host, watched: &[u32]) -> Vec<Vec<String>> {
    let pids = watched.to_vec();
    host.rec.meta.watched = (!pids.is_empty()).then(|| Watched { pids, ..Watched::default() });
    let names = |chain: Chain| chain.hops.iter().map(|hop| hop.who.to_string()).collect();
    let mut ways: Vec<Vec<String>> = chains::chains(&host.graph()).into_iter().map(names).collect();
    ways.retain(|way| way[0] == "client" || watched.contains(&SERVICE));
    ways
}

#[test]
fn a_client_that_has_asked_waits_for_what_keeps_its_service() {
    for watched in [&[][..], &[CLIENT]] {
        let mut host = host(Sent, at_lock());
        assert_eq!(ways(&mut host, watched), [["client", "service", "holder"]], "{watched:?}");
        let time = chains::chains(&host.graph())[0].time;
        assert_eq!(time.as_nanos(), u128::from(95 * MS));
    }
}

#[test]
fn a_service_that_has_nothing_to_do_keeps_nobody_on_a_whole_host() {
    assert!(ways(&mut host(Sent, open("ep_poll")), &[]).is_empty());
    // Who asks about this client is told for whom it waits.
    assert_eq!(ways(&mut host(Sent, open("ep_poll")), &[CLIENT]), [["client", "service"]]);
    let pool = || host(Sent, open("futex_wait"));
    assert!(ways(&mut pool(), &[]).is_empty(), "a pool without a job");
}

#[test]
fn who_has_not_asked_waits_for_nobody() {
    for service in [at_lock(), open("ep_poll")] {
        assert!(ways(&mut host(No, service.clone()), &[]).is_empty());
        assert!(ways(&mut host(No, service), &[CLIENT, HOLDER]).is_empty(), "it rests");
    }
}

#[test]
fn where_it_is_not_known_who_asks_about_the_client_is_told_what_keeps_the_service() {
    assert!(ways(&mut host(Unknown, at_lock()), &[]).is_empty());
    assert_eq!(ways(&mut host(Unknown, at_lock()), &[CLIENT]), [["client", "service", "holder"]]);
    assert!(ways(&mut host(Unknown, open("ep_poll")), &[CLIENT, HOLDER]).is_empty(), "it rests");
}

/// A database's backend waits for a lock at an epoll of its own; another one looks at its client's connection.
#[test]
fn a_service_that_waits_where_it_looks_at_no_client_keeps_who_has_asked() {
    let at = |host: &mut Host, watched: bool| {
        let ends = host.spans.iter_mut().filter_map(|span| span.other_end.as_mut());
        ends.for_each(|end| end.watched = Some(watched));
    };
    let parked = |asked| {
        let mut host = host(asked, at_epoll());
        at(&mut host, false);
        host
    };
    for asked in [Sent, Unknown] {
        assert_eq!(ways(&mut parked(asked), &[]), [["client", "service", ""]], "{asked:?}");
        let chains = chains::chains(&parked(asked).graph());
        assert_eq!(chains[0].hops[1].detail, WaitTarget::EpollElsewhere.into());
    }
    assert!(ways(&mut parked(No), &[]).is_empty(), "it has not asked");
    let mut threads = parked(Sent);
    thread(&mut threads, POOL, "looks", at_epoll());
    assert!(ways(&mut threads, &[]).is_empty(), "which of them was to look is not known");
    let mut others = parked(Sent);
    others.task(51, "other", 0, &[Waits(100, open("pipe_read"))]);
    at_end(&mut others, 51, &[SERVICE], Sent);
    assert_eq!(ways(&mut others, &[]).len(), 1, "of another client, in its queue, nothing is known");
    others.spans.last_mut().unwrap().other_end.as_mut().unwrap().watched = Some(true);
    assert!(ways(&mut others, &[]).is_empty(), "it looks at another client");
    let mut shared = parked(Sent);
    at_end(&mut shared, CLIENT, &[SERVICE, BUSY], Sent);
    at(&mut shared, false);
    assert!(ways(&mut shared, &[]).is_empty(), "another process may be the one that serves");
    let mut watched = parked(Sent);
    at(&mut watched, true);
    assert!(ways(&mut watched, &[]).is_empty(), "it looks at this one");
}

#[test]
fn a_service_that_does_not_wait_at_another_epoll_is_as_it_was() {
    let parked = |asked, service| {
        let mut host = host(asked, service);
        let ends = host.spans.iter_mut().filter_map(|span| span.other_end.as_mut());
        ends.for_each(|end| end.watched = Some(false));
        host
    };
    assert!(ways(&mut parked(Unknown, at_lock()), &[]).is_empty(), "that it was asked is not known");
    assert_eq!(ways(&mut parked(Sent, at_lock()), &[]), [["client", "service", "holder"]]);
    let timed = Wait { args: [5, 0, 8, 60_000], ..at_epoll() };
    assert!(ways(&mut parked(Sent, timed), &[]).is_empty(), "it may sleep as it was asked to");
    let siblings_at_work = |ns: u64| {
        let mut host = parked(Sent, at_epoll());
        host.task(51, "worker", 0, &[Runs(100)]);
        for task in host.rec.tables.tasks.as_mut().unwrap() {
            (task.ppid, task.exec_ns) = match task.pid {
                SERVICE => (40, 0),
                51 => (40, ns * MS),
                _ => (1, 0),
            };
        }
        ways(&mut host, &[]).len()
    };
    assert_eq!(
        (siblings_at_work(20), siblings_at_work(80)),
        (1, 0),
        "they may work for what its client asked"
    );
    let compat = Wait { syscall: Some(256), ..at_epoll() };
    assert!(ways(&mut parked(Sent, compat), &[]).is_empty(), "of 32-bit programs it is not known");
}

/// A signal ends the call, and the program goes on to wait: a database looks for deadlocks after a second.
#[test]
fn a_wait_elsewhere_that_signals_have_cut_is_one() {
    let mut host = Host::window(100);
    let first = Wait { open: false, ..at_epoll() };
    let service = [Waits(20, first), Runs(1), Waits(79, at_epoll())];
    host.task(CLIENT, "client", 0, &[Waits(100, open("pipe_read"))]).task(SERVICE, "service", 0, &service);
    at_end(&mut host, CLIENT, &[SERVICE], Sent);
    let ends = host.spans.iter_mut().filter_map(|span| span.other_end.as_mut());
    ends.for_each(|end| end.watched = Some(false));
    let ways = ways(&mut host, &[]);
    assert_eq!(
        ways.first().map(|way| &way[..2]),
        Some(&["client".to_owned(), "service".to_owned()][..]),
        "{ways:?}"
    );
}

/// A queue without jobs: the one who waits for one has asked, others are served meanwhile.
#[test]
fn a_service_that_serves_others_keeps_nobody() {
    let busy = |serves: &[Does]| {
        let mut host = Host::window(100);
        host.task(CLIENT, "client", 0, &[Waits(100, open("pipe_read"))]).task(SERVICE, "service", 0, serves);
        at_end(&mut host, CLIENT, &[SERVICE], Sent);
        host
    };
    let loops = [
        Runs(20),
        Waits(30, woken_by("ep_poll", 51)),
        Runs(20),
        Waits(20, woken_by("ep_poll", 51)),
        Runs(10),
    ];
    assert!(ways(&mut busy(&loops), &[]).is_empty(), "it is idle now and then");
    assert_eq!(ways(&mut busy(&[Runs(100)]), &[]), [["client", "service"]]);
    let mut answers = busy(&[Runs(100)]);
    let mut answered = woken_by("pipe_read", SERVICE);
    answered.waker.as_mut().unwrap().delivery =
        Some(Box::new(Delivery { role: Some(Role::Answers), ..Delivery::default() }));
    answers.task(51, "other", 0, &[Waits(50, answered), Runs(50)]);
    assert!(ways(&mut answers, &[]).is_empty(), "it has answered somebody else meanwhile");
    at_end(&mut answers, CLIENT, &[SERVICE], Asked::Unread);
    assert!(ways(&mut answers, &[]).is_empty(), "it is not known when it was asked");
    answers.spans.iter_mut().filter_map(|span| span.other_end.as_mut()).for_each(|end| end.queued = true);
    assert_eq!(ways(&mut answers, &[]), [["client", "service"]], "it has not come to this one yet");
}

/// Who waits to read may wait for something to do, and does not if whoever is to bring it is kept.
#[test]
fn a_way_through_pipes_goes_on_to_who_is_kept() {
    let mut pipes = host(Unknown, open("pipe_read"));
    at_end(&mut pipes, SERVICE, &[BUSY], Unknown);
    pipes.task(BUSY, "first", 0, &[Waits(100, at_lock())]);
    assert_eq!(ways(&mut pipes, &[CLIENT]), [["client", "service", "first", "holder"]]);
    assert!(ways(&mut pipes, &[]).is_empty(), "it may wait for something to do");
    at_end(&mut pipes, CLIENT, &[SERVICE], Asked::Unread);
    assert_eq!(ways(&mut pipes, &[]), [["client", "service", "first", "holder"]]);
    let mut idle = host(Unknown, open("pipe_read"));
    at_end(&mut idle, SERVICE, &[BUSY], Unknown);
    idle.task(BUSY, "first", 0, &[Waits(100, open("ep_poll"))]);
    assert!(ways(&mut idle, &[CLIENT, HOLDER]).is_empty(), "it rests");
}

#[test]
fn a_service_that_waits_for_requests_waits_for_nobody() {
    let mut host = host(Sent, open("pipe_read"));
    assert!(ways(&mut host, &[SERVICE, HOLDER]).is_empty());
    assert_eq!(ways(&mut host, &[CLIENT]), [["client", "service"]], "no cycle");
}

#[test]
fn of_several_threads_the_one_that_has_something_to_do_is_meant() {
    let pools = |second: Wait| {
        let mut host = host(Sent, open("ep_poll"));
        thread(&mut host, POOL, "pool", open("futex_wait"));
        thread(&mut host, BUSY, "busy", second);
        host
    };
    assert_eq!(ways(&mut pools(at_lock()), &[]), [["client", "busy", "holder"]]);
    assert!(ways(&mut pools(open("futex_wait")), &[]).is_empty());
    let other = |lock: u64| Wait { open: true, ..locked(lock, HOLDER, HOLDER) };
    let mut alike = pools(at_lock());
    thread(&mut alike, BUSY + 1, "busier", other(7));
    assert_eq!(ways(&mut alike, &[]), [["client", "busy", "holder"]], "any will do");
    let mut child = pools(open("do_wait"));
    assert!(ways(&mut child, &[]).is_empty(), "a thread that waits for a child serves nobody");
    let mut two = pools(at_lock());
    thread(&mut two, BUSY + 1, "busier", other(8));
    assert!(ways(&mut two, &[]).is_empty(), "which of them is not known");
    assert_eq!(ways(&mut two, &[CLIENT]), [["client", "service"]]);
    let graph = two.graph();
    let chain = &chains::chains(&graph)[0];
    assert_eq!(chain.hops[1].detail.to_string(), WaitTarget::ThreadNotKnown.to_string());
}

/// A request woke the thread that waited at this connection; of a loop it is not known to whom it hands what comes.
#[test]
fn of_several_threads_the_one_that_was_asked_is_meant() {
    let asked = |at_first: &'static str, then: Does| {
        let mut host = Host::window(100);
        host.task(CLIENT, "client", 0, &[Runs(5), Waits(95, open("pipe_read"))]);
        let mut woken = woken_by(at_first, CLIENT);
        woken.waker.as_mut().unwrap().delivery =
            Some(Box::new(Delivery { role: Some(Role::Asks), ..Delivery::default() }));
        host.task(SERVICE, "service", 0, &[Waits(5, woken), Runs(2), then]);
        thread(&mut host, POOL, "pool", open("futex_wait"));
        at_end(&mut host, CLIENT, &[SERVICE], Sent);
        host
    };
    let computes = || Runs(93);
    assert_eq!(ways(&mut asked("pipe_read", computes()), &[]), [["client", "service"]]);
    assert_eq!(ways(&mut asked("ep_poll", computes()), &[]), [["client", "service"]], "the others rest");
    let mut two = asked("ep_poll", computes());
    thread(&mut two, BUSY, "busy", open("pipe_read"));
    assert!(ways(&mut two, &[]).is_empty(), "it may run another's job");
    let at_lock = || Waits(93, open("futex_wait"));
    assert_eq!(ways(&mut asked("pipe_read", at_lock()), &[CLIENT]), [["client", "service", ""]]);
    assert!(ways(&mut asked("pipe_read", at_lock()), &[]).is_empty(), "it may wait for the next job");
    let rests = || Waits(93, open("pipe_read"));
    assert!(ways(&mut asked("pipe_read", rests()), &[]).is_empty(), "it has handed it on");
}

/// Another thread of the client asked, when this one had waited for long.
#[test]
fn who_was_asked_late_is_not_to_blame_for_what_was_waited_before() {
    for (before_ms, ways_told) in [(95, 1), (60, 0)] {
        let mut host = host(Sent, at_lock());
        host.spans.iter_mut().for_each(|span| {
            if let Some(end) = &mut span.other_end {
                end.sent_before_ns = Some(before_ms * MS);
            }
        });
        assert_eq!(ways(&mut host, &[]).len(), ways_told, "{before_ms}");
    }
}

#[test]
fn of_several_processes_the_parent_only_has_it_open_too() {
    let mut two = host(Sent, at_lock());
    two.task(41, "parent", 0, &[Waits(100, open("do_wait"))]);
    at_end(&mut two, CLIENT, &[41, SERVICE], Sent);
    assert!(ways(&mut two, &[]).is_empty(), "strangers");
    let tasks = two.rec.tables.tasks.as_mut().unwrap();
    tasks.iter_mut().find(|task| task.pid == SERVICE).unwrap().ppid = 41;
    assert_eq!(ways(&mut two, &[]), [["client", "service", "holder"]]);
    two.task(42, "helper", 0, &[Waits(100, open("nanosleep"))]);
    two.rec.tables.tasks.as_mut().unwrap().last_mut().unwrap().ppid = SERVICE;
    at_end(&mut two, CLIENT, &[SERVICE, 42], Sent);
    assert_eq!(ways(&mut two, &[]), [["client", "service", "holder"]], "a child that only inherited it");
    two.task(43, "stranger", 0, &[Waits(100, Wait { open: true, ..locked(8, HOLDER, HOLDER) })]);
    at_end(&mut two, CLIENT, &[SERVICE, 43], Sent);
    assert!(ways(&mut two, &[]).is_empty(), "which of both is not known");
    two.task(44, "another", 0, &[Waits(100, at_lock())]);
    at_end(&mut two, CLIENT, &[SERVICE, 44], Sent);
    assert_eq!(ways(&mut two, &[]), [["client", "service", "holder"]], "both wait for one thing");
    at_end(&mut two, CLIENT, &[CLIENT, 99], Sent);
    assert!(ways(&mut two, &[]).is_empty(), "who is not seen");
}

#[test]
fn a_wait_that_was_ended_is_not_asked_about() {
    let mut ended = host(Sent, at_lock());
    let row = ended.spans.iter_mut().rfind(|span| span.pid == CLIENT).unwrap();
    row.open = false;
    assert!(ways(&mut ended, &[]).is_empty());
}

/// A client that looks again and again; the last look begins at `last`, in ms.
fn looking(last: u64) -> Host {
    let mut host = Host::window(100);
    let look = || Waits(last / 2, interrupted("ep_poll", 9, None));
    host.task(CLIENT, "client", 0, &[look(), look()])
        .task(SERVICE, "service", 0, &[Waits(100, at_lock())])
        .task(HOLDER, "holder", 0, &[Runs(100)]);
    let looks = host.spans.iter_mut().filter(|span| span.pid == CLIENT);
    looks.filter_map(|span| span.waker.as_mut()).for_each(|waker| waker.context = Context::Hardirq);
    let (from, end) = (last * MS, 100 * MS);
    let open = host.spans[0].clone();
    host.spans.push(Span {
        from_ns: from,
        at_ns: from,
        woken_ns: end,
        to_ns: end,
        open: true,
        waker: None,
        ..open
    });
    for span in host.spans.iter_mut().filter(|span| span.pid == CLIENT) {
        const POLL: u32 = 7;
        (span.syscall, span.args) = (Some(POLL), [1, 1, 20, 0]);
    }
    at_end(&mut host, CLIENT, &[SERVICE], Sent);
    host
}

#[test]
fn looks_at_the_watch_wait_for_what_the_last_of_them_waits_for() {
    for last in [60, 100] {
        for watched in [&[][..], &[CLIENT]] {
            let mut host = looking(last);
            let what = format!("the last at {last}, {watched:?}");
            assert_eq!(ways(&mut host, watched), [["client", "service", "holder"]], "{what}");
            let time = chains::chains(&host.graph())[0].time;
            assert_eq!(time.as_nanos(), u128::from(100 * MS), "{what}");
        }
    }
}

#[test]
fn a_look_whose_end_was_not_seen_is_one_of_them() {
    for knows_call in [true, false] {
        let mut host = looking(60);
        let unseen = host.spans.iter_mut().filter(|span| span.pid == CLIENT).nth(1).unwrap();
        unseen.waker = None;
        if !knows_call {
            (unseen.syscall, unseen.stack) = (None, None);
        }
        assert_eq!(ways(&mut host, &[]), [["client", "service", "holder"]]);
        let time = chains::chains(&host.graph())[0].time;
        let whole = if knows_call { 100 } else { 70 };
        assert_eq!(time.as_nanos(), u128::from(whole * MS), "without its call it may be another wait");
    }
}

/// A subscriber that says of each message that it has come.
#[test]
fn a_service_that_sleeps_until_there_are_news_keeps_nobody_on_a_whole_host() {
    let mut host = Host::window(100);
    host.task(CLIENT, "client", 0, &[Runs(5), Waits(95, open("pipe_read"))]).task(
        SERVICE,
        "service",
        0,
        &[Runs(15), Waits(85, open("nanosleep"))],
    );
    at_end(&mut host, CLIENT, &[SERVICE], Sent);
    assert!(ways(&mut host, &[]).is_empty());
    assert_eq!(ways(&mut host, &[CLIENT]), [["client", "service"]]);
}

#[test]
fn a_service_that_sleeps_all_the_time_keeps_who_has_asked() {
    let mut host = host(Sent, open("nanosleep"));
    assert_eq!(ways(&mut host, &[]), [["client", "service"]]);
    at_end(&mut host, CLIENT, &[SERVICE], Unknown);
    assert!(ways(&mut host, &[]).is_empty(), "it may have been told");
}
