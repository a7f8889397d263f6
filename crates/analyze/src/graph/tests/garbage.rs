//! Rows that make no sense: nothing panics, and what is said still adds up.

use proptest::prelude::*;
use whyslow_model::table::{Sample, Task};
use whyslow_model::timeline::{
    Asked, Command, Context, Hold, HoldSeen, LockKind, LockWait, OtherEnd, Run, Span, State, StateTimes,
    Waker, Watched,
};

use super::host::{Host, adds_up, classify};
use crate::graph::facts::Graph;
use crate::graph::walk::Walk;
use crate::graph::{chains, flames, wall};

const WINDOW_MS: u64 = 1;

/// Any time: mostly near the window, sometimes anything.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..1_200_000u64, 1 => any::<u64>()]
}

fn pid() -> impl Strategy<Value = u32> {
    0..7u32
}

fn mix() -> impl Strategy<Value = StateTimes> {
    (time(), time(), time(), time()).prop_map(|(running_ns, runnable_ns, sleep_ns, unknown_ns)| StateTimes {
        running_ns,
        runnable_ns,
        sleep_ns,
        blocked_ns: sleep_ns,
        io_ns: runnable_ns,
        unknown_ns,
    })
}

fn waker() -> impl Strategy<Value = Option<Waker>> {
    let contexts =
        prop_oneof![5 => Just(Context::Task), 1 => Just(Context::Softirq), 1 => Just(Context::Unknown)];
    let stack = prop::option::of(0..12u32);
    proptest::option::of((pid(), contexts, stack).prop_map(|(pid, context, stack)| Waker {
        pid,
        context,
        stack,
        work: (pid == 3).then(|| "work".to_owned()),
        ..Waker::default()
    }))
}

fn lock() -> impl Strategy<Value = Option<LockWait>> {
    let lock = (0..3u64, time(), pid(), pid(), any::<bool>(), any::<bool>());
    proptest::option::of(lock.prop_map(|(address, since_ns, owner, owner_again, write, reader_owned)| {
        LockWait { address, kind: LockKind::Rwsem, write, since_ns, owner, owner_again, reader_owned }
    }))
}

fn state() -> impl Strategy<Value = State> {
    use State::*;
    prop::sample::select(vec![None, Running, Runnable, Io, Blocked, Sleep, Sleep, Blocked])
}

fn span() -> impl Strategy<Value = Span> {
    let times = (time(), time(), time(), time(), time(), time());
    let flags = (any::<bool>(), prop::bool::weighted(0.1), any::<bool>());
    let asked = prop::sample::select(vec![Asked::Unknown, Asked::No, Asked::Sent, Asked::Unread]);
    let ends = (proptest::collection::vec(pid(), 0..3), asked);
    let end = (ends, any::<bool>(), prop::option::of(any::<u64>()), prop::option::of(any::<bool>()));
    let end = prop::option::of(end.prop_map(|((processes, asked), queued, sent_before_ns, watched)| {
        Box::new(OtherEnd { processes, asked, queued, sent_before_ns, watched })
    }));
    let rest = (lock(), end);
    (times, flags, pid(), mix(), state(), waker(), rest, prop::option::of(0..10u32)).prop_map(
        |(
            (a, b, c, d, sampled_wait_ns, throttled_ns),
            (open, ended, sorted),
            pid,
            mixed,
            state,
            waker,
            (lock, other_end),
            stack,
        )| {
            let mut times = [a, b, c, d];
            if sorted {
                times.sort_unstable();
            }
            let [from_ns, at_ns, woken_ns, to_ns] = times;
            let comm = format!("t{pid}");
            Span {
                pid,
                comm,
                from_ns,
                at_ns,
                woken_ns,
                to_ns,
                mixed,
                state,
                open,
                ended,
                waker,
                stack,
                sampled_wait_ns,
                lock,
                throttled_ns,
                other_end,
                ..Span::default()
            }
        },
    )
}

fn host() -> impl Strategy<Value = Host> {
    let holds = proptest::collection::vec((0..3u64, time(), pid(), any::<bool>()), 0..10);
    let runs = proptest::collection::vec((pid(), time(), time()), 0..10);
    let tasks = proptest::collection::vec((pid(), pid(), pid(), any::<bool>()), 0..7);
    let window = prop_oneof![9 => Just(WINDOW_MS * 1_000_000), 1 => any::<u64>()];
    (proptest::collection::vec(span(), 0..60), holds, runs, tasks, window).prop_map(
        |(spans, holds, runs, tasks, window)| {
            let mut host = Host::window(WINDOW_MS);
            host.rec.meta.window_ns = window;
            host.spans = spans;
            let tables = &mut host.rec.tables;
            let seen = |word| if word { HoldSeen::Word } else { HoldSeen::Acquired };
            let hold = |(lock, at_ns, pid, word)| Hold {
                lock,
                at_ns,
                pid,
                seen: seen(word),
                reader: word,
                ..Hold::default()
            };
            tables.holds = Some(holds.into_iter().map(hold).collect());
            let run = |(pid, from_ns, to_ns)| Run { cpu: 0, pid, from_ns, to_ns };
            tables.runs = Some(runs.into_iter().map(run).collect());
            let task = |(pid, ppid, creator, born)| Task {
                pid,
                tgid: if creator % 2 == 0 { pid } else { ppid },
                ppid,
                creator,
                born,
                lived_ns: u64::MAX,
                ..Task::default()
            };
            tables.tasks = Some(tasks.into_iter().map(task).collect());
            tables.samples = Some(vec![Sample { pid: 2, count: u64::MAX / 2, ..Sample::default() }]);
            host
        },
    )
}

proptest! {
    #[test]
    fn every_stretch_of_every_task_adds_up(mut host in host(), from in time(), to in time()) {
        let rec = host.done();
        let graph = Graph::of(rec, classify).unwrap();
        graph.fuel.set(100_000);
        let (from, to) = (from.min(to).min(1 << 50), from.max(to).min(1 << 50));
        for pid in 0..8 {
            let parts = graph.task_parts(&mut Walk::new(pid % 2 == 0), pid, from, to, None);
            adds_up(&parts, to - from);
        }
    }

    #[test]
    fn an_account_adds_up_and_chains_explain_no_more_than_was_waited(mut host in host(), command: bool) {
        let pids: Vec<u32> = (0..7).collect();
        let command = command.then(|| Command { pid: 1, from_ns: 7, to_ns: u64::MAX, ..Command::default() });
        host.rec.meta.watched = Some(Watched { pids, command, ..Watched::default() });
        for watched in [true, false] {
            if !watched {
                host.rec.meta.watched = None;
            }
            let graph = Graph::of(host.done(), classify).unwrap();
            if let Some(account) = wall::account(&graph) {
                let sum: std::time::Duration = account.parts.iter().map(|part| part.time).sum();
                prop_assert_eq!(sum, account.wall);
                prop_assert!(account.unexplained <= account.wall && account.off_cpu <= account.wall);
                let drawn: u64 = flames::paths(&graph).iter().map(|path| path.ns).sum();
                if graph.rec.meta.watched.as_ref().unwrap().command.is_some() {
                    prop_assert_eq!(u128::from(drawn), account.wall.as_nanos());
                }
            }
            for chain in chains::chains(&graph) {
                prop_assert!(chain.hops.len() == chain.tasks.len() && !chain.hops.is_empty());
                prop_assert!(chain.time <= chain.hops[0].lost, "{chain:?}");
                prop_assert!(chain.hops.windows(2).all(|pair| pair[1].lost <= pair[0].lost), "{chain:?}");
            }
        }
    }
}

/// A window of centuries, in which tens of thousands are watched all the time.
#[test]
fn the_sum_over_all_that_are_watched_fits() {
    let mut host = Host::window(1);
    host.task(1, "first", 0, &[]);
    host.rec.meta.window_ns = u64::MAX;
    let asleep = |pid| Task { pid, tgid: pid, lived_ns: u64::MAX, ..Task::default() };
    host.rec.tables.tasks = Some((1..=40_000).map(asleep).collect());
    host.rec.meta.watched = Some(Watched { pids: (1..=40_000).collect(), ..Watched::default() });
    let account = wall::account(&Graph::of(host.done(), classify).unwrap()).unwrap();
    let sum: std::time::Duration = account.parts.iter().map(|part| part.time).sum();
    assert_eq!(sum, account.wall);
    assert!(account.wall > std::time::Duration::from_secs(1 << 30));
}
