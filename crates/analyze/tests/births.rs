//! A command that created more children than rows are kept for: the account names the children whose time it was.

use whyslow_model::chain::{Part, WallAccount};
use whyslow_model::table::{Tables, Task};
use whyslow_model::timeline::{Command, Context, Span, State, StateTimes, Waker, Watched};
use whyslow_model::{Meta, Recording};

const MS: u64 = 1_000_000;
/// vfork on x86-64.
const VFORK: u32 = 58;

/// Children of one name that are reported together.
fn folded(comm: &str, count: u64, ran: u64, ready: u64) -> Task {
    Task {
        pid: 901,
        comm: comm.to_owned(),
        parent: "make".to_owned(),
        ppid: 7,
        born: true,
        ended: true,
        folded: count - 1,
        traced_ns: ran,
        runnable_ns: ready,
        lived_ns: ran + ready,
        ..Task::default()
    }
}

/// A wait of the parent from `at`, ended by a task of this name; it stands for `stands` ns of waiting.
fn wait(at: u64, ns: u64, comm: &str, stands: u64) -> Span {
    let waker = Waker { pid: 900, comm: comm.to_owned(), context: Context::Task, ..Waker::default() };
    Span {
        pid: 7,
        tgid: 7,
        comm: "make".to_owned(),
        from_ns: at,
        at_ns: at,
        woken_ns: at + ns,
        to_ns: at + ns,
        state: State::Blocked,
        syscall: Some(VFORK),
        waker: Some(waker),
        sampled_wait_ns: stands,
        ..Span::default()
    }
}

fn account(spans: Vec<Span>, tasks: Vec<Task>) -> WallAccount {
    let to_ns = spans.iter().map(|span| span.to_ns).max().unwrap_or(0);
    let command =
        Command { argv: vec!["make".to_owned()], pid: 7, to_ns, status: Some(0), ..Command::default() };
    let watched = Watched { pids: vec![7], command: Some(command), ..Watched::default() };
    let parent = Task { pid: 7, tgid: 7, comm: "make".to_owned(), lived_ns: to_ns, ..Task::default() };
    let tasks = std::iter::once(parent).chain(tasks).collect();
    let recording = Recording {
        meta: Meta { window_ns: to_ns, cpus: 1, watched: Some(watched), ..Meta::default() },
        tables: Tables { spans: Some(spans), tasks: Some(tasks), ..Tables::default() },
        ..Recording::default()
    };
    whyslow_analyze::examine(&recording).wall.expect("a command is watched")
}

fn reported(parts: &[Part], words: &str) -> u64 {
    let of = |part: &Part| {
        if format!("{}: {}", part.who, part.detail).starts_with(words) {
            part.time.as_nanos() as u64
        } else {
            reported(&part.parts, words)
        }
    };
    parts.iter().map(of).sum()
}

#[test]
fn waits_for_children_without_rows_are_shared_out_as_all_of_their_name_did() {
    let spans = vec![wait(0, 30 * MS, "cc", 30 * MS), wait(30 * MS, 10 * MS, "ld", 10 * MS)];
    let wall = account(spans, vec![folded("cc", 1_000, 900 * MS, 300 * MS), folded("ld", 10, 50 * MS, 0)]);
    assert_eq!(wall.unexplained.as_nanos(), 0, "{wall:?}");
    let times = [
        reported(&wall.parts, "cc: on CPU"),
        reported(&wall.parts, "cc: a CPU"),
        reported(&wall.parts, "ld: on CPU"),
    ];
    assert_eq!(times, [22_500_000, 7_500_000, 10 * MS], "{wall:?}");
}

#[test]
fn short_waits_of_which_one_row_stands_for_many_are_reported_by_name_too() {
    // 100 ms of waits in the sums; two rows stand for three and one parts of them.
    let mut spans = vec![wait(100 * MS, MS, "cc", 76 * MS), wait(101 * MS, MS, "ld", 26 * MS)];
    spans[0].from_ns = 0;
    spans[0].mixed = StateTimes { blocked_ns: 100 * MS, ..StateTimes::default() };
    let wall = account(spans, vec![folded("cc", 1_000, 900 * MS, 0), folded("ld", 10, 50 * MS, 0)]);
    assert_eq!(wall.unexplained.as_nanos(), 0, "{wall:?}");
    assert_eq!(
        [reported(&wall.parts, "cc: on CPU"), reported(&wall.parts, "ld: on CPU")],
        [76 * MS, 26 * MS],
        "{wall:?}"
    );
}

#[test]
fn of_whom_nothing_is_known_nothing_is_said() {
    let wall = account(vec![wait(0, 30 * MS, "cc", 30 * MS)], vec![folded("ld", 10, 50 * MS, 0)]);
    assert_eq!(wall.unexplained.as_nanos(), 30_000_000, "{wall:?}");
    assert_eq!(reported(&wall.parts, "ld"), 0, "{wall:?}");
}
