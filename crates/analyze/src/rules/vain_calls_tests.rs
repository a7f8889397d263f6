use whyslow_model::Kind;
use whyslow_model::table::Task;

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;
const CLOSE: u32 = 3;
const STAT: u32 = 4;

fn row(syscall: u32, error: u32, count: u64) -> FailedCall {
    FailedCall {
        tgid: 7,
        pid: 7,
        comm: "deployer".into(),
        syscall,
        error,
        count,
        streak_ns: 1000 * MS,
        ..FailedCall::default()
    }
}

fn sample(kernel: &[&str], user: &str, ms: u64) -> Sample {
    let frames = |all: &[&str]| all.iter().map(|frame| (*frame).to_owned()).collect();
    Sample {
        pid: 7,
        tgid: 7,
        comm: "deployer".into(),
        ns: ms * MS,
        kernel: frames(kernel),
        user: frames(&[user, "main"]),
        ..Sample::default()
    }
}

const IN_CLOSE: [&str; 4] =
    ["file_close_fd", "__x64_sys_close", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
const IN_READ: [&str; 3] = ["vfs_read", "__x64_sys_read", "do_syscall_64"];
const ON_THE_WAY: [&str; 2] = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];

/// A process that is busy for all of a second.
fn host(rows: Vec<FailedCall>, samples: Vec<Sample>) -> Fixture {
    let task =
        Task { pid: 7, tgid: 7, ppid: 1, comm: "deployer".into(), lived_ns: 1000 * MS, ..Task::default() };
    Fixture::second().with(|tables| {
        tables.tasks = Some(vec![Task { exec_ns: 1000 * MS, ..task }]);
        tables.failed_calls = Some(rows);
        tables.samples = Some(samples);
        tables.waits = Some(Vec::new());
        tables.spans = Some(Vec::new());
    })
}

fn closing(ms: u64) -> Vec<Sample> {
    vec![
        sample(&IN_CLOSE, "close", ms / 2),
        sample(&ON_THE_WAY, "close", ms / 4),
        sample(&[], "close", ms / 4),
        sample(&[], "render", 1000 - ms),
    ]
}

fn found(host: &Fixture) -> Vec<Finding> {
    check(&host.ev()).unwrap()
}

fn lost(rows: Vec<FailedCall>, samples: Vec<Sample>) -> Option<u128> {
    found(&host(rows, samples)).first().and_then(|found| found.lost).map(|lost| lost.as_millis())
}

#[test]
fn fires_for_a_process_that_closes_what_is_not_open() {
    let found = found(&host(vec![row(CLOSE, EBADF, 300_000)], closing(600)));
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (only.kind, only.victim.id.as_str(), only.lost),
        (Kind::Cause, "7", Some(Duration::from_millis(600)))
    );
    assert_eq!(
        only.title,
        "300000 calls of close failed one after the other (EBADF: not open) and took 600 ms of its CPU time"
    );
    assert_eq!(only.culprit.as_ref().unwrap().id, "close");
    assert!(only.fixes[0].text.contains("limit on open files"), "{:?}", only.fixes);
}

/// CPU time in a function that also makes other calls may belong to those calls.
#[test]
fn time_of_other_calls_is_not_its() {
    let shared = vec![
        sample(&IN_CLOSE, "Syscall6", 300),
        sample(&IN_READ, "Syscall6", 100),
        sample(&[], "Syscall6", 600),
    ];
    assert_eq!(lost(vec![row(CLOSE, EBADF, 9000)], shared), Some(300));
    let interrupted =
        vec![sample(&IN_CLOSE, "close", 300), sample(&["asm_sysvec_apic_timer_interrupt"], "close", 700)];
    assert_eq!(lost(vec![row(CLOSE, EBADF, 9000)], interrupted), Some(300));
}

#[test]
fn the_kernel_calls_stat_by_another_name() {
    let in_stat = vec![sample(&["path_lookupat", "__x64_sys_newstat", "do_syscall_64"], "stat", 1000)];
    assert_eq!(lost(vec![row(STAT, 2, 9000)], in_stat), Some(1000));
}

/// A program that has failed 64 times, and has made such calls with success ever since.
#[test]
fn no_more_is_lost_than_passed_between_those_that_failed() {
    let of = |streak_ns, away_ns| FailedCall { streak_ns, away_ns, ..row(CLOSE, EBADF, 64) };
    assert_eq!(lost(vec![of(13_000, 0)], closing(1000)), None);
    assert_eq!(lost(vec![of(400 * MS, 0)], closing(1000)), Some(400));
    assert_eq!(
        lost(vec![of(200 * MS, 500 * MS)], closing(1000)),
        Some(400),
        "half of the time was not observed"
    );
    assert_eq!(lost(vec![of(200 * MS, 1000 * MS)], closing(1000)), Some(1000));
}

/// Another process of that name, without a failed call.
#[test]
fn process_without_failed_calls_is_no_victim_despite_the_same_name() {
    let other = |of: Sample| Sample { pid: 8, tgid: 8, ..of };
    let both: Vec<Sample> = closing(600).into_iter().chain(closing(1000).into_iter().map(other)).collect();
    let mut host = host(vec![row(CLOSE, EBADF, 300_000)], both);
    let tasks = host.0.tables.tasks.as_mut().unwrap();
    tasks.push(Task { pid: 8, tgid: 8, ..tasks[0].clone() });
    let found = found(&host);
    assert_eq!(
        (found.len(), found[0].victim.id.as_str(), found[0].lost),
        (1, "7", Some(Duration::from_millis(600)))
    );
}

/// Each child lives for 100 ms; most were not observed.
#[test]
fn children_that_live_for_a_moment_are_told_together() {
    let child = |sample: Sample, pid: u32| Sample { pid, tgid: pid, ns: sample.ns / 10, ..sample };
    let samples = (20..26).flat_map(|pid| closing(800).into_iter().map(move |one| child(one, pid)));
    let of_children =
        FailedCall { of_children: true, streak_ns: 40 * MS, away_ns: 950 * MS, ..row(CLOSE, EBADF, 9000) };
    let mut host = host(vec![of_children], samples.collect());
    let tasks = host.0.tables.tasks.as_mut().unwrap();
    let parent = Task { exec_ns: MS, sleep_ns: 999 * MS, ..tasks[0].clone() };
    let born = (20..26).map(|pid| Task {
        pid,
        tgid: pid,
        ppid: 7,
        born: true,
        ended: true,
        lived_ns: 100 * MS,
        exec_ns: 100 * MS,
        sleep_ns: 0,
        ..parent.clone()
    });
    *tasks = std::iter::once(parent.clone()).chain(born).collect();
    // Some have called execve already.
    tasks[2].comm = "true".into();
    let found = found(&host);
    assert_eq!((found.len(), found[0].lost), (1, Some(Duration::from_millis(480))), "{found:?}");
    let victim = &found[0].victim;
    assert!(victim.id == "7" && victim.name.starts_with("children of deployer"), "{victim:?}");
    assert_eq!(found[0].check[0].command.as_deref(), Some("grep 'open files' /proc/7/limits"));
}

#[test]
fn is_quiet_where_they_take_little_or_are_counted_for_another_reason() {
    assert_eq!(lost(vec![row(CLOSE, EBADF, 9000)], closing(100)), None);
    assert_eq!(lost(Vec::new(), closing(1000)), None);
    let read = vec![sample(&["vfs_read", "ksys_read", "do_syscall_64"], "read", 1000)];
    assert_eq!(lost(vec![row(0, EBADF, 9000)], read), Some(1000), "its entry function is in no stack");
    let in_want = FailedCall { streak_ns: 0, ..row(1, 28, 9000) };
    assert_eq!(
        lost(vec![in_want], vec![sample(&["ext4_file_write_iter", "__x64_sys_write"], "write", 1000)]),
        None
    );
    let elsewhere = vec![sample(&IN_READ, "read", 1000)];
    assert_eq!(lost(vec![row(CLOSE, EBADF, 9000)], elsewhere), None);
}

#[test]
fn our_own_calls_are_nobodys() {
    let mut host = host(vec![row(CLOSE, EBADF, 9000)], closing(600));
    host.0.meta.own_pids = vec![7];
    assert_eq!(found(&host), Vec::new());
}

#[test]
fn a_part_of_the_window_makes_it_a_least_number() {
    let mut host = host(vec![row(CLOSE, EBADF, 9000)], closing(600));
    let away = Missing::skipped(Probe::FailedCalls.word(), "for 900 ms a CPU had too many system calls");
    host.0.missing.push(away.into());
    assert!(found(&host)[0].title.starts_with("at least 9000 calls of close"), "{:?}", found(&host));
}

#[test]
fn cannot_tell_without_the_calls_or_the_samples() {
    let mut without = host(vec![row(CLOSE, EBADF, 9000)], closing(600));
    without.0.tables.samples = None;
    assert!(check(&without.ev()).is_err());
    without.0.tables.failed_calls = None;
    assert!(check(&without.ev()).is_err());
}

#[test]
fn the_work_inside_the_calls_is_told_by_another_rule() {
    let in_filter = ["ipt_do_table", "nf_hook_slow", "file_close_fd", "__x64_sys_close", "do_syscall_64"];
    let rows = || vec![row(CLOSE, EBADF, 300_000)];
    let with = |filter_ms: u64| {
        let own = [sample(&IN_CLOSE, "close", 600 - filter_ms), sample(&[], "render", 400)];
        own.into_iter().chain([sample(&in_filter, "close", filter_ms)]).collect()
    };
    assert_eq!(lost(rows(), with(100)), Some(500));
    assert_eq!(lost(rows(), with(550)), None, "the rest is small");
}
