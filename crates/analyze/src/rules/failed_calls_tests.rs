use whyslow_model::Kind;
use whyslow_model::table::FailedCall;

use super::*;
use crate::evidence::fixture::Fixture;

const WRITE: u32 = 1;
const CONNECT: u32 = 42;
const OPENAT: u32 = 257;

fn row(syscall: u32, error: u32, count: u64) -> FailedCall {
    FailedCall { tgid: 7, pid: 8, comm: "writer".into(), syscall, error, count, ..FailedCall::default() }
}

fn on_disk(row: FailedCall) -> FailedCall {
    FailedCall {
        dev: "254:1".into(),
        file_system: "ext4".into(),
        device: "vda1".into(),
        file: "big.log".into(),
        ..row
    }
}

fn host(rows: Vec<FailedCall>) -> Fixture {
    let task = |pid: u32| Task { pid, tgid: pid, comm: format!("t{pid}"), lived_ns: 1, ..Task::default() };
    Fixture::second().with(|tables| {
        tables.tasks = Some(vec![task(7), task(9)]);
        tables.failed_calls = Some(rows);
    })
}

fn titles(rows: Vec<FailedCall>) -> Vec<String> {
    let found = check(&host(rows).ev()).unwrap();
    assert!(found.iter().all(|finding| finding.kind == Kind::Cause && finding.lost.is_none()));
    found.into_iter().map(|finding| finding.title).collect()
}

#[test]
fn fires_where_a_file_system_is_full() {
    let found = check(&host(vec![on_disk(row(WRITE, 28, 80))]).ev()).unwrap();
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(only.title, "80 of its calls failed: no room is left on vda1 (ext4), for big.log");
    assert_eq!((only.victim.id.as_str(), only.failed_calls), ("7", 80));
    assert_eq!(only.culprit.as_ref().unwrap().id, "254:1");
}

#[test]
fn the_sleep_before_a_retry_is_told_with_what_is_used_up() {
    let slept = |slept_ns, count| FailedCall { slept_ns, ..on_disk(row(WRITE, 28, count)) };
    let want = "80 of its calls failed, and its threads slept 4.2 s in all before they tried again: no room is left on vda1 (ext4), for big.log";
    assert_eq!(titles(vec![slept(4_200_000_000, 80)]), [want]);
    let other = FailedCall { tgid: 9, pid: 9, ..slept(2_100_000_000, 40) };
    assert_eq!(titles(vec![slept(2_100_000_000, 40), other]), [want], "threads of two processes");
    let moment = titles(vec![slept(90_000_000, 80)]).pop().unwrap();
    assert!(!moment.contains("slept"), "{moment}");
    titles(vec![slept(u64::MAX, 80), slept(u64::MAX, 80)]);
}

#[test]
fn calls_for_one_thing_are_one_finding() {
    let rows = vec![on_disk(row(WRITE, 28, 80)), FailedCall { tgid: 9, pid: 9, ..on_disk(row(18, 28, 3)) }];
    let found = check(&host(rows).ev()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].failed_calls, 83);
}

#[test]
fn each_want_has_its_words() {
    let said = |row| titles(vec![row]).pop().unwrap();
    let path = FailedCall { file: "/srv/data/new".into(), ..row(OPENAT, 28, 1) };
    assert_eq!(
        said(path),
        "one of its calls failed: no room or no inode is left on the file system of /srv/data, for new"
    );
    let quota = said(on_disk(row(WRITE, 122, 2)));
    assert_eq!(quota, "2 of its calls failed: its disk quota is used up on vda1 (ext4), for big.log");
    assert!(said(row(254, 28, 1)).contains("inotify"));
    assert!(said(row(294, 24, 1)).contains("inotify instances"));
    assert!(said(row(OPENAT, 24, 3)).contains("it has reached its limit on open files"));
    assert!(said(row(OPENAT, 23, 1)).contains("this host has reached its limit on open files"));
    assert!(said(row(56, 11, 3)).contains("tasks"));
    let unix = |error, count| FailedCall { file: "/run/fpm.sock".into(), ..row(CONNECT, error, count) };
    assert_eq!(said(unix(11, 3)), "3 of its calls failed: the listen queue of /run/fpm.sock is full");
    assert_eq!(said(unix(111, 3)), "3 of its calls failed: no process listens at /run/fpm.sock");
    let connects = FailedCall { peer: "10.0.0.1:80".into(), ..row(CONNECT, 99, 5) };
    assert!(said(connects).contains("all local ports for connections to 10.0.0.1:80"));
}

#[test]
fn is_quiet_where_a_call_may_fail_so_though_nothing_is_used_up() {
    let none = |row| assert_eq!(titles(vec![row]), [""; 0]);
    none(FailedCall { file_system: "cgroup2".into(), ..on_disk(row(WRITE, 28, 80)) });
    // A program that only tests for a listener; a connection to an address that is not known.
    none(FailedCall { file: "/run/nscd/socket".into(), ..row(CONNECT, 111, 2) });
    none(row(CONNECT, 11, 9));
    // /dev/full.
    none(FailedCall { dev: String::new(), ..on_disk(row(WRITE, 28, 80)) });
    none(FailedCall { peer: "[::1]:80".into(), ..row(CONNECT, 99, 5) });
    none(row(OPENAT, 28, 1));
    none(FailedCall { file: "/sys/fs/cgroup/new".into(), ..row(83, 28, 9) });
    // A linker that tests how many files it can open.
    none(row(OPENAT, 24, 2));
    assert_eq!(titles(vec![]), [""; 0]);
}

#[test]
fn failed_calls_counted_in_part_are_reported_as_a_minimum() {
    let away = Missing::skipped(Probe::FailedCalls.word(), "for 900 ms a CPU had too many system calls");
    let found = check(&host(vec![on_disk(row(WRITE, 28, 80))]).missing(away).ev()).unwrap();
    assert!(found[0].title.starts_with("at least 80 of its calls failed"), "{}", found[0].title);
}

#[test]
fn a_path_below_a_folder_that_is_not_named_is_told_without_it() {
    let path = FailedCall { file: "src/main.c".into(), ..row(OPENAT, 28, 2) };
    let want =
        "2 of its calls failed: no room or no inode is left on the file system of its folder, for main.c";
    assert_eq!(titles(vec![path]), [want]);
}

#[test]
fn our_own_are_left_out() {
    let mut host = host(vec![on_disk(row(WRITE, 28, 80))]);
    host.0.meta.own_pids = vec![7];
    assert_eq!(check(&host.ev()).unwrap(), []);
}

#[test]
fn rules_out_only_what_was_looked_at_all_the_time() {
    assert!(rules_out(&host(vec![]).ev()).unwrap().is_some());
    let unknown = row(OPENAT, 28, 1);
    assert_eq!(rules_out(&host(vec![unknown]).ev()).unwrap(), None);
    let away = Missing::skipped(Probe::FailedCalls.word(), "for 900 ms a CPU had too many system calls");
    assert_eq!(rules_out(&host(vec![]).missing(away).ev()).unwrap(), None);
}

#[test]
fn cannot_tell_without_the_table() {
    assert!(check(&Fixture::second().ev()).is_err());
}
