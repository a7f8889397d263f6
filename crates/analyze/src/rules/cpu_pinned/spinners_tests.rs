//! A task that waits for its CPU only to spin there loses nothing. A task that it keeps off the CPU does.

use proptest::prelude::*;
use whyslow_model::Recording;
use whyslow_model::table::{Met, Sample, Spin};

use super::*;
use crate::evidence::fixture::Fixture;

const WINDOW_MS: u64 = 7_300;
/// `1: pause; mov eax, [rip+...]; test eax, eax; je 1b`
const PAUSE: &str = "f3908b05682c000085c074f4c3";
/// One sample in 5 ms.
const PERIOD_MS: u64 = 5;

/// Two CPUs, one of them idle. On the other run `spinners`, with `spun` of 100 samples in a loop that waits, and `workers`: each gets an
/// equal part.
fn host(spinners: u32, spun: u64, workers: u32) -> Recording {
    let got_ms = WINDOW_MS / u64::from(spinners + workers);
    let samples = got_ms / PERIOD_MS;
    let task = |pid: u32, comm: &str| Task {
        pid,
        tgid: pid,
        comm: comm.into(),
        lived_ns: WINDOW_MS * 1_000_000,
        exec_ns: got_ms * 1_000_000,
        runnable_ns: (WINDOW_MS - got_ms) * 1_000_000,
        runnable_count: 100,
        weight: 1024,
        allowed: "1".into(),
        allowed_count: 1,
        ..Task::default()
    };
    let polls = (0..spinners).map(|n| task(100 + n, "poll"));
    let works = (0..workers).map(|n| task(200 + n, "work"));
    let tasks: Vec<Task> = polls.chain(works).collect();
    let sample = |task: &Task| Sample {
        pid: task.pid,
        tgid: task.tgid,
        comm: task.comm.clone(),
        count: samples,
        ns: samples * PERIOD_MS * 1_000_000,
        ..Sample::default()
    };
    let spin = |n: u32| Spin {
        tgid: 100 + n,
        code: PAUSE.into(),
        arch: "x86_64".into(),
        met: vec![Met { pid: 100 + n, offset: 2, count: samples * spun / 100, ..Met::default() }],
        ..Spin::default()
    };
    let host = Fixture::window(Duration::from_millis(WINDOW_MS)).with(|tables| {
        tables.samples = Some(tasks.iter().map(sample).collect());
        tables.spins = Some((0..spinners).map(spin).collect());
        tables.tasks = Some(tasks);
        tables.cgroups = Some(Vec::new());
    });
    host.0
}

fn one(rec: &Recording) -> Finding {
    let mut found = check(&Evidence::of(rec)).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// A regression: the rule reported 17.9 s, of which 12 were the spinners'.
#[test]
fn four_that_poll_a_flag_lose_nothing_and_their_victim_does() {
    let found = one(&host(4, 97, 1));
    let lost = found.lost.unwrap().as_secs_f64();
    assert!((lost - 5.84).abs() < 0.3, "{lost}");
    assert!(found.title.starts_with("a busy task may use CPU 1 only"), "{}", found.title);
    assert_eq!(found.victim.name, "work");
    // As many tasks that work lose all of it.
    assert!(one(&host(4, 0, 1)).lost.unwrap().as_secs_f64() > 17.0);
}

proptest! {
    #[test]
    fn reported_loss_is_that_of_the_workers_alone(spinners in 1u32..8, workers in 1u32..4, spun in 80u64..=100) {
        let found = one(&host(spinners, spun, workers));
        let got = 1.0 / f64::from(spinners + workers);
        // Without the mask the workers have the idle CPU, and their part of their own CPU beside the spinners.
        let would = (2.0 * f64::from(spinners + workers).recip()).max(1.0 / f64::from(workers)).min(1.0);
        let each = WINDOW_MS as f64 / 1000.0 * (1.0 - got / would);
        let most = WINDOW_MS as f64 / 1000.0 * (1.0 - got);
        let lost = found.lost.unwrap().as_secs_f64() / f64::from(workers);
        prop_assert!(lost >= 0.9 * each - 0.05 && lost <= 1.02 * most, "{lost} of {each} to {most}");
        prop_assert!(found.victim.name.contains("work") && !found.victim.name.contains("poll"));
    }

    #[test]
    fn part_time_spinner_loses_in_proportion_to_its_work(spinners in 2u32..7, spun in 10u64..45) {
        let (some, none) = (one(&host(spinners, spun, 1)), one(&host(spinners, 0, 1)));
        let (some, none) = (some.lost.unwrap().as_secs_f64(), none.lost.unwrap().as_secs_f64());
        let parts = f64::from(spinners) * (1.0 - spun as f64 / 100.0) + 1.0;
        let due = none * parts / f64::from(spinners + 1);
        prop_assert!((some - due).abs() < 0.05 * due + 0.1, "{some} of {due}");
    }
}
