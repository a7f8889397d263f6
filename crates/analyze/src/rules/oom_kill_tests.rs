use whyslow_model::Kind;
use whyslow_model::table::CgroupMemory;

use super::*;
use crate::evidence::fixture::Fixture;

const LOG: &str = "6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/old,task=sh,pid=7,uid=0\n\
    3,2,2,-;Out of memory: Killed process 7 (sh) total-vm:10kB, anon-rss:1kB\n\
    6,3,3,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/web,task_memcg=/web/app,task=java,pid=1234,uid=0\n\
    3,4,4,-;Memory cgroup out of memory: Killed process 1234 (java) total-vm:900kB, anon-rss:500kB, file-rss:0kB\n";

fn host(kills: u64) -> Fixture {
    Fixture::second()
        .start("proc/vmstat", "oom_kill 3\n")
        .end("proc/vmstat", &format!("oom_kill {}\n", 3 + kills))
}

fn group(id: u64, parent: u64, path: &str, oom_kills: u64) -> Cgroup {
    let memory = CgroupMemory { limit: Some(512 << 20), oom_kills, ..CgroupMemory::default() };
    let files = Some(format!("/sys/fs/cgroup{path}"));
    Cgroup { id, parent, path: path.into(), files, memory: Some(memory), ..Cgroup::default() }
}

#[test]
fn fires_and_the_log_names_the_victim_of_the_window() {
    let found = check(&host(1).end("dev/kmsg", LOG).ev()).unwrap();
    assert_eq!((found[0].kind, found[0].lost), (Kind::Cause, None));
    assert_eq!(found[0].victim.id, "/web/app");
    assert_eq!(found[0].title, "the kernel killed a process, java (pid 1234): /web reached its memory limit");
}

/// Before it kills, the kernel prints what fills the limit (Linux 6.18, shortened).
#[test]
fn shared_memory_share_is_taken_from_the_stats_of_the_same_kill() {
    let stats = |shmem: u32| {
        format!(
            "6,1,1,-;memory: usage 524288kB, limit 524288kB, failcnt 22\n6,1,1,-;Memory cgroup stats for /web:\n\
             6,1,1,-;cache {shmem}\n6,1,1,-;total_cache {shmem}\n6,1,1,-;total_rss 94842880\n6,1,1,-;total_shmem {shmem}\n\
             6,1,1,-;Tasks state (memory values in pages):\n6,1,1,-;total_rss 9\n"
        )
    };
    let titles = |log: &str| {
        let host = host(1)
            .end("dev/kmsg", log)
            .with(|t| t.cgroups = Some(vec![group(1, 0, "/web", 0), group(2, 1, "/web/app", 1)]));
        let found = check(&host.ev()).unwrap().remove(0);
        (found.title, found.fixes.into_iter().map(|fix| fix.text).collect::<Vec<_>>())
    };
    let (title, fixes) = titles(&format!("{}{LOG}", stats(7)));
    assert!(
        title.ends_with("reached its memory limit of 512 MiB"),
        "the memory.stat is that of an older kill: {title}"
    );
    let (before, last) = LOG.split_at(LOG.find("6,3,3").unwrap());
    assert!(fixes[0].starts_with("double the limit"), "{fixes:?}");
    let (title, fixes) = titles(&format!("{before}{}{last}", stats(400 << 20)));
    assert!(
        title.ends_with("reached its memory limit of 512 MiB (400 MiB are files in tmpfs or shared memory)"),
        "{title}"
    );
    assert_eq!(fixes[0], SHARED_ADVICE);
    assert!(fixes[1].ends_with(": echo 1073741824 > /sys/fs/cgroup/web/memory.max"), "{fixes:?}");
    // Linux 6.1: one record, cut.
    let old = "6,1,1,-;memory: usage 524288kB, limit 524288kB, failcnt 22\n6,1,1,-;Memory cgroup stats for /web:\n\
               6,1,1,-;anon 94842880\\x0afile 419430400\\x0akernel_stack 16384\\x0apagetables 8192\\x0apercpu 0\\x0asock 0\\x0ashmem 419430400\\x0afile_map\n";
    let (title, _) = titles(&format!("{before}{old}{last}"));
    assert!(title.ends_with("(400 MiB are files in tmpfs or shared memory)"), "{title}");
    let torn = format!("{before}{}{last}", stats(400 << 20)).replace("total_cache", "total_cac");
    assert!(titles(&torn).0.ends_with("reached its memory limit of 512 MiB"));
}

#[test]
fn the_cgroup_that_had_the_kill_is_the_victim_not_its_parent() {
    let groups = vec![group(1, 0, "/web", 2), group(2, 1, "/web/app", 2), group(3, 0, "/calm", 0)];
    let host = host(2).end("dev/kmsg", LOG).with(|t| t.cgroups = Some(groups));
    let found = check(&host.ev()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].title,
        "the kernel killed 2 of its processes, the last java (pid 1234): /web reached its memory limit of 512 MiB"
    );
    assert_eq!(
        found[0].fixes[0].command.as_deref(),
        Some("echo 1073741824 > /sys/fs/cgroup/web/memory.max"),
        "the limit that was reached"
    );
    assert!(found[0].fixes[0].text.contains("undo: echo 536870912"));
}

#[test]
fn a_limit_that_was_not_met_is_not_to_blame() {
    let groups = vec![group(1, 0, "/web", 0), group(2, 1, "/web/app", 1)];
    let of_host = LOG.replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE").replace("oom_memcg=/web,", "");
    assert_ne!(of_host, LOG);
    for (log, says) in [(of_host.as_str(), "the host's memory ran out"), ("", "memory ran out")] {
        let host = host(1).end("dev/kmsg", log).with(|t| t.cgroups = Some(groups.clone()));
        let found = check(&host.ev()).unwrap();
        assert_eq!((found.len(), &found[0].culprit), (1, &None), "{found:?}");
        assert!(found[0].title.ends_with(says) && found[0].fixes[0].command.is_none(), "{found:?}");
    }
}

#[test]
fn hex_escapes_in_the_kernel_log_are_decoded() {
    let read = [r"/a\x1b[2J", r"/ab\x5cx", r"/\x", r"/\xzz", r"/\xc3\xbc", "/plain"].map(unescaped);
    assert_eq!(read, ["/a\x1b[2J", r"/ab\x", r"/\x", r"/\xzz", "/ü", "/plain"]);
}

#[test]
fn kills_of_groups_that_are_no_more_are_told() {
    let host = host(3).with(|t| t.cgroups = Some(vec![group(1, 0, "/web", 1)]));
    let titles: Vec<String> = check(&host.ev()).unwrap().into_iter().map(|found| found.title).collect();
    assert_eq!(
        titles,
        [
            "the kernel killed one of its processes: memory ran out",
            "the kernel killed 2 processes: memory ran out"
        ]
    );
}

#[test]
fn a_kill_without_a_log_has_no_name() {
    let found = check(&host(2).ev()).unwrap();
    assert_eq!(found[0].title, "the kernel killed 2 processes: memory ran out");
    assert_eq!(found[0].victim, Subject::host());
}

#[test]
fn is_quiet_about_kills_of_yesterday() {
    let host = host(0).end("dev/kmsg", LOG);
    assert_eq!(check(&host.ev()), Ok(vec![]));
    assert!(rules_out(&host.ev()).unwrap().is_some());
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "proc/vmstat was not recorded");
    let before_4_13 = Fixture::second().start("proc/vmstat", "pswpin 0\n").end("proc/vmstat", "pswpin 0\n");
    assert!(check(&before_4_13.ev()).is_err());
    let groups = before_4_13.with(|t| t.cgroups = Some(vec![group(1, 0, "/web", 1)]));
    assert_eq!(check(&groups.ev()).unwrap().len(), 1, "the counts of cgroups are enough");
}

#[test]
fn logs_of_older_kernels_and_odd_names_are_read() {
    let old = [
        "Memory cgroup out of memory: Kill process 12 (x) score 1000 or sacrifice child",
        "Killed process 12 (a (b) c) total-vm:1kB",
    ];
    let found = kills(old.into_iter());
    assert_eq!(
        found,
        [Kill { pid: "12".into(), comm: "a (b) c".into(), cgroup: None, limit_of: None, uses: None }]
    );
    assert_eq!(kills(["Killed process 12", "Killed process 1 (", "oom-kill:"].into_iter()), []);
}
