use whyslow_model::table::{Cgroup, Task};

use super::*;

const MS: u64 = 1_000_000;

fn call(tgid: u32, syscall: u32, path: &str, count: u64, ns: u64) -> Call {
    Call {
        tgid,
        syscall,
        path: (!path.is_empty()).then(|| path.to_owned()),
        count,
        errors: 1,
        total_ns: ns,
        worst_ns: ns,
        split: StateTimes { running_ns: ns / 2, sleep_ns: ns - ns / 2, ..StateTimes::default() },
        ..Call::default()
    }
}

fn reported(rows: Vec<Call>) -> Vec<CallAccount> {
    let mut recording = Recording::default();
    recording.tables.calls = Some(rows);
    calls(&recording)
}

#[test]
fn files_of_all_cpus_are_one_row_with_the_sum() {
    let rows: Vec<_> = (0..8)
        .map(|cpu| call(1, 0, &format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"), 2, MS))
        .collect();
    let reported = reported(rows);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].syscall, "read");
    assert_eq!(reported[0].path.as_deref(), Some("/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"));
    assert_eq!((reported[0].files, reported[0].count, reported[0].errors), (8, 16, 8));
    assert_eq!((reported[0].time, reported[0].worst), (Duration::from_millis(8), Duration::from_millis(1)));
    assert_eq!(reported[0].running + reported[0].sleeping, reported[0].time);
}

#[test]
fn the_costliest_comes_first_and_calls_without_a_file_are_reported() {
    let reported = reported(vec![
        call(1, 0, "/a", 1, MS),
        call(1, 202, "", 1, 9 * MS),
        call(2, 0, "/a", 1, MS),
        call(1, 999, "/a", 1, 0),
    ]);
    let rows: Vec<_> =
        reported.iter().map(|row| (row.syscall.as_str(), row.path.as_deref(), row.files)).collect();
    assert_eq!(rows, [("futex", None, 0), ("read", Some("/a"), 1), ("syscall 999", Some("/a"), 1)]);
    assert_eq!(reported[1].count, 2, "of all processes");
}

#[test]
fn a_crowded_directory_becomes_one_row_and_an_ordinary_one_does_not() {
    let crowd = FILES_OF_A_DIRECTORY + 4;
    let files = |n: usize, call_nr| {
        (0..n).map(move |i| call(1, call_nr, &format!("/var/spool/m{i}"), 1, MS)).collect::<Vec<_>>()
    };
    let of_crowd = reported([files(crowd, 0), files(3, 1)].concat());
    assert_eq!(of_crowd[0].path.as_deref(), Some("/var/spool/*"), "the files are counted beside it");
    assert_eq!(of_crowd[0].files, crowd as u64);
    assert_eq!(of_crowd.len(), 4, "three files were written");
    assert_eq!(reported(files(FILES_OF_A_DIRECTORY, 0)).len(), FILES_OF_A_DIRECTORY);
}

#[test]
fn slow_calls_keep_their_path_and_say_where_their_time_went() {
    let mut recording = Recording::default();
    let slow = |ns, path: &str| SlowCall {
        ns,
        path: Some(path.to_owned()),
        split: StateTimes { blocked_ns: ns, ..StateTimes::default() },
        ..SlowCall::default()
    };
    recording.tables.slow_calls = Some(vec![slow(MS, "/proc/1/stat"), slow(3 * MS, "/proc/2/stat")]);
    let reported = slow_calls(&recording);
    assert_eq!(reported[0].path.as_deref(), Some("/proc/2/stat"));
    assert_eq!(reported[0].split.len(), 1);
    assert_eq!(
        (reported[0].split[0].state, reported[0].split[0].share),
        (TaskState::Uninterruptible, Some(Share::of(1.0, 1.0)))
    );
}

#[test]
fn a_containers_file_has_a_path_on_the_host_too() {
    let id = "0123456789abcdef".repeat(4);
    let mut recording = Recording::default();
    let group = |id, path: &str| Cgroup { id, path: path.to_owned(), ..Cgroup::default() };
    let task = |pid, home| Task { pid, tgid: pid, unified_cgroup: home, ..Task::default() };
    let slow = |pid, path: &str| SlowCall { pid, ns: MS, path: Some(path.to_owned()), ..SlowCall::default() };
    recording.tables.cgroups =
        Some(vec![group(5, &format!("/docker/{id}/sub")), group(6, "/system.slice/a.service")]);
    recording.tables.tasks = Some(vec![task(1, 5), task(2, 6)]);
    recording.tables.slow_calls = Some(vec![
        slow(1, "/srv/x"),
        slow(1, "pipe"),
        slow(1, "/srv/y (deleted)"),
        slow(1, "/srv/../x"),
        slow(1, "/proc/self/stat"),
        slow(1, "/srv/[unnamed]"),
        slow(2, "/srv/x"),
        slow(3, "/srv/x"),
    ]);
    let told: BTreeMap<(u32, String), Option<String>> = slow_calls(&recording)
        .into_iter()
        .map(|call| ((call.pid, call.path.unwrap_or_default()), call.host_path))
        .collect();
    assert_eq!(told.len(), 8);
    assert_eq!(told.values().flatten().count(), 1);
    assert_eq!(told[&(1, "/srv/x".to_owned())].as_deref(), Some("/proc/1/root/srv/x"));
}

#[test]
fn nothing_recorded_is_no_rows_and_impossible_numbers_are_no_panic() {
    assert_eq!(calls(&Recording::default()), []);
    assert_eq!(slow_calls(&Recording::default()), []);
    let huge = reported(vec![
        call(1, u32::MAX, "/x", u64::MAX, u64::MAX),
        call(1, u32::MAX, "/x", u64::MAX, u64::MAX),
    ]);
    assert_eq!(huge[0].count, u64::MAX);
}
