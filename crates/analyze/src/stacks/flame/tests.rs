use proptest::prelude::*;
use whyslow_model::table::{Sample, Tables, Task, Wait};
use whyslow_model::timeline::{Command, Context, Span, Stack, State, StateTimes, Waker, Watched};
use whyslow_model::{Meta, Recording};

use super::{fold, picture};

const MS: u64 = 1_000_000;

fn recording(watched: Option<Watched>, spans: Vec<Span>, samples: Vec<Sample>) -> Recording {
    let stack = Stack {
        id: 1,
        kernel: vec!["schedule".into(), "io_schedule".into(), "fsync;odd\nname".into()],
        user: Vec::new(),
    };
    Recording {
        meta: Meta { window_ns: 1000 * MS, own_pids: vec![77], watched, ..Meta::default() },
        tables: Tables {
            spans: Some(spans),
            samples: Some(samples),
            stacks: Some(vec![stack]),
            ..Tables::default()
        },
        ..Recording::default()
    }
}

/// `dd`, which ran from 100 ms to 900 ms.
fn command() -> Option<Watched> {
    let command = Command {
        argv: vec!["dd".into(), "of=x".into()],
        pid: 7,
        from_ns: 100 * MS,
        to_ns: 900 * MS,
        ..Command::default()
    };
    Some(Watched { command: Some(command), ..Watched::default() })
}

fn sample(pid: u32, ns: u64, user: &[&str]) -> Sample {
    let frames = user.iter().map(|name| (*name).to_owned()).collect();
    Sample { pid, comm: "dd".into(), ns, user: frames, kernel: vec!["copy".into()], ..Sample::default() }
}

/// 100 ms of mixed time, of which 60 running and 30 disk, then 200 ms of disk, then 20 ms ready.
fn span(pid: u32, from: u64) -> Span {
    Span {
        pid,
        comm: "dd".into(),
        from_ns: from,
        at_ns: from + 100 * MS,
        woken_ns: from + 300 * MS,
        to_ns: from + 320 * MS,
        mixed: StateTimes {
            running_ns: 60 * MS,
            io_ns: 30 * MS,
            unknown_ns: 10 * MS,
            ..StateTimes::default()
        },
        state: State::Io,
        cpu: 1,
        stack: Some(1),
        sampled_wait_ns: 220 * MS,
        waker: Some(Waker { pid: 9, comm: "jbd2".into(), context: Context::Task, ..Waker::default() }),
        ..Span::default()
    }
}

fn sum(lines: &[(String, u64)]) -> u64 {
    lines.iter().map(|(_, ns)| ns).sum()
}

fn of(lines: &[(String, u64)], end: &str) -> u64 {
    lines.iter().filter(|(frames, _)| frames.ends_with(end)).map(|(_, ns)| ns).sum()
}

#[test]
fn a_command_is_as_wide_as_its_wall_time() {
    let samples = vec![sample(7, 30 * MS, &["write", "main"]), sample(7, 10 * MS, &[]), sample(8, MS, &[])];
    let got = picture(&recording(command(), vec![span(7, 100 * MS), span(8, 0)], samples));
    assert_eq!(sum(&got.lines), 800 * MS, "{:#?}", got.lines);
    assert!(got.lines.iter().all(|(frames, _)| frames.starts_with("dd of=x 800 ms wall;")));
    assert_eq!(of(&got.lines, "on CPU;dd;main;write;copy"), 45 * MS, "60 ms of running in parts of 3 and 1");
    assert_eq!(of(&got.lines, "on CPU;dd;copy"), 15 * MS);
    let off = got.lines.iter().filter(|(frames, _)| frames.contains(";off CPU;dd;"));
    assert_eq!(off.map(|(_, ns)| ns).sum::<u64>(), 250 * MS, "230 of disk, 20 ready for a CPU");
    assert_eq!(of(&got.lines, ";unexplained"), 490 * MS, "480 without rows, 10 unknown");
    assert!(
        got.lines.iter().any(|(f, _)| f.contains(";dd;fsync:odd name;io_schedule;schedule;-- waits for "))
    );
    assert!(got.subtitle.contains("800 ms"), "{}", got.subtitle);
}

#[test]
fn time_before_the_command_began_is_left_out() {
    let lines = fold(&recording(command(), vec![span(7, 0)], Vec::new()));
    assert_eq!(sum(&lines), 800 * MS);
    // The mixed part of the row was before the command's end; the wait and the 20 ms after it were not.
    assert_eq!(of(&lines, "unexplained"), 580 * MS, "{lines:#?}");
}

#[test]
fn threads_are_as_wide_as_their_lives_together() {
    let watched = Watched { subject: "nginx".into(), pids: vec![7, 8], ..Watched::default() };
    let mut rec = recording(Some(watched), vec![span(7, 0), span(9, 0)], vec![sample(7, MS, &[])]);
    let idle = Task { pid: 8, lived_ns: 1000 * MS, ..Task::default() };
    rec.tables.tasks = Some(vec![idle, Task { pid: 9, lived_ns: 1000 * MS, ..Task::default() }]);
    let got = picture(&rec);
    assert_eq!(sum(&got.lines), 1320 * MS);
    assert_eq!(of(&got.lines, "unexplained"), 1010 * MS);
    assert!(got.lines[0].0.starts_with("nginx 1.3 s wall, all threads;"), "{:?}", got.lines);
    assert!(got.subtitle.contains("2 threads, 1.3 s in all"), "{}", got.subtitle);
}

#[test]
fn a_host_is_as_wide_as_its_cpu_time_and_losses() {
    let mut idle = span(8, 0);
    (idle.state, idle.mixed, idle.stack) = (State::Sleep, StateTimes::default(), None);
    let samples = vec![sample(7, 5 * MS, &[]), sample(0, 900 * MS, &[]), sample(77, MS, &[])];
    let lines = fold(&recording(None, vec![span(7, 0), idle, span(77, 0)], samples));
    assert_eq!(of(&lines, "on CPU;dd;copy"), 5 * MS, "neither the idle task nor whyslow: {lines:#?}");
    let off: u64 = lines.iter().filter(|(f, _)| f.contains(";off CPU;dd;")).map(|(_, ns)| ns).sum();
    assert_eq!(off, 200 * MS, "the one wait for a disk: {lines:#?}");
    assert!(!lines.iter().any(|(frames, _)| frames.ends_with("unexplained") || frames.contains("(sleep)")));
}

#[test]
fn without_timelines_the_sums_by_stack_are_drawn() {
    let wait = |state: &str| Wait {
        pid: 7,
        comm: "dd".into(),
        state: state.into(),
        ns: 3 * MS,
        kernel: vec!["b".into(), "a".into()],
        ..Wait::default()
    };
    let tables = Tables { waits: Some(vec![wait("io"), wait("sleep")]), ..Tables::default() };
    let lines = fold(&Recording { tables, ..Recording::default() });
    assert_eq!(lines, [("3 ms of CPU and waits;off CPU;dd;a;b".to_owned(), 3 * MS)]);
}

#[test]
fn nothing_seen_is_nothing_and_a_command_without_rows_is_unexplained() {
    assert!(fold(&Recording::default()).is_empty());
    let lines = fold(&recording(command(), Vec::new(), Vec::new()));
    assert_eq!(lines, [("dd of=x 800 ms wall;unexplained".to_owned(), 800 * MS)]);
}

#[test]
fn a_long_command_is_cut() {
    let mut watched = command();
    if let Some(command) = watched.as_mut().and_then(|w| w.command.as_mut()) {
        command.argv = vec!["ü".repeat(500)];
    }
    let title = picture(&recording(watched, Vec::new(), Vec::new())).title;
    assert_eq!(title, format!("Wall time of {}..", "ü".repeat(60)));
}

fn any_span() -> impl Strategy<Value = Span> {
    let times = (any::<u64>(), any::<u64>(), 0..u64::MAX / 2, 0..MS * 2000, 0..MS * 2000, 0..MS * 2000);
    let states =
        prop::sample::select(vec![State::None, State::Runnable, State::Io, State::Blocked, State::Sleep]);
    (7..9u32, times, states, ".{0,12}").prop_map(|(pid, (a, b, c, from, at, to), state, comm)| Span {
        pid,
        comm,
        from_ns: from,
        at_ns: at,
        woken_ns: if a % 3 == 0 { c } else { at },
        to_ns: to,
        mixed: StateTimes {
            running_ns: a,
            io_ns: b,
            runnable_ns: to / 3,
            sleep_ns: at / 5,
            ..StateTimes::default()
        },
        state,
        sampled_wait_ns: b,
        stack: Some(1),
        ..Span::default()
    })
}

proptest! {
    #[test]
    fn widths_add_up_for_any_rows(
        spans in prop::collection::vec(any_span(), 0..20),
        samples in prop::collection::vec((7..9u32, any::<u64>(), "[;\\n ]?.{0,9}"), 0..9),
    ) {
        let samples = samples.into_iter().map(|(pid, ns, name)| sample(pid, ns, &[&name])).collect::<Vec<_>>();
        let rec = recording(command(), spans.clone(), samples.clone());
        let lines = fold(&rec);
        prop_assert_eq!(sum(&lines), 800 * MS);
        prop_assert!(lines.iter().all(|(frames, _)| !frames.contains(char::is_control)));
        let watched = Watched { pids: vec![7, 8], ..Watched::default() };
        let rec = recording(Some(watched), spans.clone(), samples.clone());
        prop_assert!(sum(&fold(&rec)) <= 2000 * MS);
        let _ = fold(&recording(None, spans, samples));
    }
}
