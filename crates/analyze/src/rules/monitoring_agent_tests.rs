use whyslow_model::table::{Sample, StatRead};

use super::readers::made_by;
use super::*;
use crate::evidence::fixture::Fixture;

const MEMORY_STAT: &[&str] = &[
    "memcg_page_state.isra.0",
    "memcg_stat_show",
    "cgroup_seqfile_show",
    "kernfs_seq_show",
    "seq_read_iter",
    "vfs_read",
];

fn sample(tgid: u32, comm: &str, ms: u64, kernel: &[&str]) -> Sample {
    let kernel = kernel.iter().map(|&frame| frame.to_owned()).collect();
    Sample { pid: tgid, tgid, comm: comm.into(), count: 1, ns: ms * 1_000_000, kernel, ..Sample::default() }
}

fn host(samples: Vec<Sample>) -> Fixture {
    Fixture::second().with(|t| t.samples = Some(samples))
}

#[test]
fn fires_on_whoever_reads_much_whatever_its_name() {
    let found = check(
        &host(vec![sample(7, "my-thing", 80, MEMORY_STAT), sample(7, "my-thing", 500, &["do_fault"])]).ev(),
    )
    .unwrap();
    assert_eq!(
        found[0].title,
        "my-thing (pid 7) spent 80 ms of CPU time reading statistics files, most in memcg_stat_show"
    );
    assert_eq!((found[0].lost, found[0].cpu), (None, Some(Duration::from_millis(80))));
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.id.as_str(), culprit.function.as_deref()), ("7", Some("memcg_stat_show")));
}

#[test]
fn knows_how_to_calm_known_agents() {
    let found = check(&host(vec![sample(9, "cadvisor", 200, MEMORY_STAT)]).ev()).unwrap();
    assert!(found[0].fixes[0].text.contains("--housekeeping_interval"));
}

#[test]
fn processes_that_come_and_go_are_counted_together() {
    let many = (100..140).map(|pid| sample(pid, "ps", 2, &["pid_revalidate", "lookup_fast"])).collect();
    let found = check(&host(many).ev()).unwrap();
    assert!(found[0].title.starts_with("ps (40 processes) spent 80 ms"), "{}", found[0].title);
}

#[test]
fn is_quiet_about_the_known_name_that_reads_little() {
    let host =
        host(vec![sample(9, "cadvisor", 20, MEMORY_STAT), sample(9, "cadvisor", 900, &["tcp_sendmsg"])]);
    assert_eq!(check(&host.ev()), Ok(vec![]));
    assert!(rules_out(&host.ev()).unwrap().unwrap().evidence.contains("20 ms"));
}

#[test]
fn is_quiet_about_itself_and_about_writers() {
    let mut host = host(vec![
        sample(5, "whyslow", 300, MEMORY_STAT),
        sample(6, "runc", 300, &["cgroup_attach_task", "kernfs_fop_write_iter"]),
    ]);
    host.0.meta.own_pids = vec![5];
    assert_eq!(check(&host.ev()), Ok(vec![]));
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "on-CPU samples was not recorded");
}

#[test]
fn the_function_is_the_one_that_makes_the_file() {
    let made = |frames: &[&str]| {
        made_by(&frames.iter().map(|&f| f.to_owned()).collect::<Vec<_>>()).map(str::to_owned)
    };
    assert_eq!(made(MEMORY_STAT).as_deref(), Some("memcg_stat_show"));
    assert_eq!(made(&["show_stat", "seq_read_iter", "proc_reg_read_iter"]).as_deref(), Some("show_stat"));
    assert_eq!(made(&["show_stat+0x1f", "seq_read_iter+0x2/0x90"]).as_deref(), Some("show_stat"));
    assert_eq!(made(&["seq_read_iter"]).as_deref(), Some("seq_read_iter"));
    assert_eq!(made(&["do_idle"]), None);
    assert_eq!(made(&[]), None);
}

/// Reads of a file: how many of 10 ms or more, and how long each.
fn reads(tgid: u32, file: &str, long_reads: u64, ms: u64) -> StatRead {
    let ns = long_reads * ms * 1_000_000;
    StatRead {
        tgid,
        pid: tgid,
        comm: "agent".into(),
        file: file.into(),
        reads: long_reads.max(1),
        ns,
        long_reads,
        long_ns: ns,
        worst_ns: (ms + 2) * 1_000_000,
        ..StatRead::default()
    }
}

fn read(rows: Vec<StatRead>) -> Fixture {
    Fixture::second().with(|tables| {
        tables.samples = Some(Vec::new());
        tables.stat_reads = Some(rows);
    })
}

#[test]
fn fires_on_single_reads_that_take_long_although_their_share_is_small() {
    let mut host = read(vec![reads(9, "memory.stat", 3, 12), reads(8, "/proc/stat", 0, 0)]);
    host.0.meta.window_ns = 10_000_000_000;
    let found = check(&host.ev()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].title,
        "agent (pid 9) spent 36 ms of CPU time reading statistics files; 3 reads of memory.stat took 12 ms each, the longest 14 ms"
    );
    assert_eq!((found[0].lost, found[0].cpu), (None, Some(Duration::from_millis(36))));
    assert!(found[0].fixes.iter().any(|fix| fix.text.contains("keeps its CPU for up to 14 ms: where")));
    assert_eq!(rules_out(&host.ev()), Ok(None));
    let long = check(&read(vec![reads(9, "memory.stat", 12, 48)]).ev()).unwrap();
    assert!(long[0].fixes.iter().any(|fix| fix.text.contains("for up to 50 ms, which a user notices")));
}

/// With interrupts off a read of 48 ms has one sample, which stands for 5 ms.
#[test]
fn the_time_without_interrupts_is_the_readers() {
    let mut host = read(vec![reads(9, "memory.stat", 12, 48)]);
    host.0.tables.samples = Some(vec![sample(9, "agent", 60, MEMORY_STAT)]);
    let found = check(&host.ev()).unwrap();
    assert_eq!(
        found[0].title,
        "agent (pid 9) spent 576 ms of CPU time reading statistics files, most in memcg_stat_show; \
         12 reads of memory.stat took 48 ms each, the longest 50 ms"
    );
}

#[test]
fn names_the_file_of_many_short_reads() {
    let mut host = host(vec![sample(7, "my-thing", 80, MEMORY_STAT)]);
    let short = StatRead { ns: 75_000_000, reads: 15, ..reads(7, "memory.stat", 0, 0) };
    host.0.tables.stat_reads = Some(vec![short]);
    let found = check(&host.ev()).unwrap();
    assert!(found[0].title.ends_with("most in memcg_stat_show; reads of memory.stat took 75 ms of it"));
}

#[test]
fn is_quiet_about_one_slow_read_by_hand_and_about_its_own() {
    let mut host = read(vec![reads(9, "/proc/PID/smaps_rollup", 1, 40), reads(5, "memory.stat", 9, 20)]);
    host.0.meta.own_pids = vec![5];
    assert_eq!(check(&host.ev()), Ok(vec![]));
    let evidence = rules_out(&host.ev()).unwrap().unwrap().evidence;
    assert!(
        evidence.ends_with("took 40 ms of CPU time, all processes together; the longest read took 42 ms"),
        "{evidence}"
    );
    // At most 10 ms, and not one that is known to be long.
    for worst_ns in [5_000_000, 10_400_000] {
        let short = read(vec![StatRead { worst_ns, ..reads(9, "/proc/stat", 0, 0) }]);
        let evidence = rules_out(&short.ev()).unwrap().unwrap().evidence;
        assert!(evidence.ends_with("; no read was seen to take 10 ms or more"), "{evidence}");
    }
}

#[test]
fn long_reads_of_processes_that_come_and_go_are_counted_together() {
    let one = |tgid| StatRead { comm: "cat".into(), ..reads(tgid, "memory.stat", 1, 15) };
    let found = check(&read((100..103).map(one).collect()).ev()).unwrap();
    assert!(found[0].title.starts_with("cat (3 processes) spent 45 ms"), "{}", found[0].title);
    assert_eq!(check(&read((100..102).map(one).collect()).ev()), Ok(vec![]));
}

/// A hypervisor that does not run the CPU makes a timer as late as interrupts that are off.
#[test]
fn says_so_when_long_reads_may_be_the_hypervisors() {
    let late = StatRead { late_ns: 90_000_000, ..reads(9, "memory.stat", 4, 25) };
    let with = |stolen: u64| {
        let stat = |ticks: u64| format!("cpu 0 0 0 0 0 0 0 {ticks}\ncpu1 0 0 0 0 0 0 0 {ticks}\n");
        read(vec![late.clone()]).start("proc/stat", &stat(10)).end("proc/stat", &stat(10 + stolen))
    };
    assert_eq!(check(&with(0).ev()).unwrap().len(), 1);
    let why = check(&with(8).ev()).unwrap_err().to_string();
    assert!(why.contains("whether reads of memory.stat by agent take long"), "{why}");
}
