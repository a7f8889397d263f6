use whyslow_model::table::{Cgroup, CgroupCpu, CgroupMemory, Disk, FailedCall, Task};
use whyslow_model::{Subject, SubjectKind};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn row(host: &Fixture, name: &str) -> Option<Resource> {
    of(&host.ev(), &[]).into_iter().find(|row| row.name == name)
}

fn task(pid: u32, comm: &str, exec_ms: u64, runnable_ms: u64) -> Task {
    Task {
        pid,
        tgid: pid,
        comm: comm.into(),
        cpu_cgroup: 7,
        lived_ns: 1000 * MS,
        exec_ns: exec_ms * MS,
        runnable_ns: runnable_ms * MS,
        ..Task::default()
    }
}

fn group(id: u64, path: &str) -> Cgroup {
    Cgroup { id, path: path.into(), name: path.into(), ..Cgroup::default() }
}

/// Two CPUs for a second: this many of 200 ticks busy.
fn busy(ticks: u32) -> Fixture {
    let stat =
        |user: u32, idle: u32| format!("cpu  {user} 0 0 {idle} 0 0 0 0\ncpu0 {user} 0 0 {idle} 0 0 0 0\n");
    Fixture::second()
        .start("proc/stat", &stat(100, 100))
        .end("proc/stat", &stat(100 + ticks, 300 - ticks))
        .with(|tables| {
            tables.tasks = Some(vec![task(10, "xz", 1400, 0), task(11, "web", 100, 300)]);
            tables.waits = Some(Vec::new());
            tables.spans = Some(Vec::new());
        })
}

#[test]
fn cpus_are_told_with_who_fills_them_and_who_is_ready() {
    let cpus = row(&busy(150), "CPUs").unwrap();
    assert_eq!((cpus.amount.as_str(), cpus.used), ("1.5 of 2", Some(Share::percent(75))));
    assert_eq!(cpus.saturated, None, "a quota or a mask keeps them ready where CPUs are left over");
    assert_eq!(cpus.by.as_deref().map(|by| by.starts_with("xz")), Some(true), "{cpus:?}");
    assert_eq!((cpus.paid_by, cpus.errors), (None, None));
    let full = busy(190);
    let said = row(&full, "CPUs").unwrap().saturated;
    assert_eq!(said.as_deref(), Some("tasks were ready and had none for 300 ms in all"));
}

#[test]
fn unrecorded_or_torn_resource_gets_no_row() {
    assert_eq!(of(&Fixture::second().ev(), &[]), []);
    let torn =
        Fixture::second().start("proc/net/dev", "a\nb\neth0: 1\n").end("proc/net/dev", "a\nb\neth0: 1\n");
    assert_eq!(of(&torn.ev(), &[]), []);
}

#[test]
fn memory_is_told_with_the_deepest_group_that_has_nearly_all_of_it() {
    let with = |path: &str, usage| Cgroup {
        memory: Some(CgroupMemory { usage, ..CgroupMemory::default() }),
        ..group(usage, path)
    };
    let host = Fixture::second()
        .end("proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  250 kB\n")
        .start("proc/pressure/memory", "some avg10=0 avg60=0 avg300=0 total=1000\n")
        .end("proc/pressure/memory", "some avg10=0 avg60=0 avg300=0 total=401000\n")
        .start("proc/vmstat", "oom_kill 3\n")
        .end("proc/vmstat", "oom_kill 5\n")
        .with(|tables| {
            tables.cgroups = Some(vec![
                with("/", 900 << 10),
                with("/jobs", 600 << 10),
                with("/jobs/7", 570 << 10),
                with("/jobs/7/sub", 90 << 10),
                with("/other/deep/er", 560 << 10),
            ]);
        });
    let memory = row(&host, "memory").unwrap();
    assert_eq!((memory.amount.as_str(), memory.used), ("750 KiB of 1000 KiB", Some(Share::percent(75))));
    assert_eq!(
        (memory.saturated.as_deref(), memory.errors),
        (None, None),
        "a group at its limit waits, and is killed, too"
    );
    assert!(
        memory.by.as_deref().is_some_and(|by| by.contains("/jobs/7 ") && by.contains("570 KiB")),
        "{memory:?}"
    );
}

#[test]
fn a_disk_is_told_with_whose_requests_it_had_and_a_partition_is_none() {
    let stat = |reads: u32, ms: u32, busy: u32| {
        format!(
            " 254 0 vda {reads} 0 2048 {ms} 0 0 0 0 0 {busy} 10\n 254 1 vda1 {reads} 0 8 {ms} 0 0 0 0 0 {busy} 10\n"
        )
    };
    let disk = |cgroup, device_ns, bytes| Disk {
        dev: "254:0".into(),
        device: "vda".into(),
        cgroup,
        device_ns,
        bytes,
        ..Disk::default()
    };
    let host = Fixture::second()
        .start("proc/diskstats", &stat(0, 0, 0))
        .end("proc/diskstats", &stat(500, 2500, 800))
        .end("sys/block/vda/size", "100\n")
        .with(|tables| {
            tables.cgroups = Some(vec![group(7, "/web"), group(8, "/backup")]);
            tables.disk = Some(vec![disk(7, 10, 5 << 20), disk(8, 90, 1 << 20), disk(99, 1, 1)]);
        });
    let vda = row(&host, "vda").unwrap();
    assert_eq!(
        (vda.used, vda.saturated.as_deref()),
        (Some(Share::percent(80)), Some("2.5 requests at a time, of those that ended"))
    );
    assert!(vda.by.as_deref().is_some_and(|by| by.contains("/web") && by.contains("5.0 MiB")), "{vda:?}");
    assert_eq!(row(&host, "vda1"), None);
    let stuck = Fixture::second()
        .start("proc/diskstats", " 254 0 vda 0 0 0 0 0 0 0 0 64 0 10\n 253 0 dm-0 0 0 0 0 0 0 0 0 9 0 10\n")
        .end(
            "proc/diskstats",
            " 254 0 vda 0 0 0 0 0 0 0 0 64 5000 10\n 253 0 dm-0 0 0 0 0 0 0 0 0 9 900 10\n",
        )
        .end("sys/block/vda/size", "100\n")
        .end("sys/block/dm-0/size", "100\n");
    let vda = row(&stuck, "vda").unwrap();
    assert_eq!(
        (vda.used, vda.saturated.as_deref()),
        (Some(Share::percent(100)), Some("64 requests have not ended"))
    );
    assert_eq!((vda.by, row(&stuck, "dm-0")), (None, None));
}

#[test]
fn a_device_is_told_by_its_rates_and_what_it_lost() {
    let dev = |bytes: u64, drops: u64| {
        format!(
            "Inter-|\n face |\n  eth0: {bytes} 1 0 {drops} 0 0 0 0 0 1 0 0 0 0 0 0\n  eth1: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"
        )
    };
    let host = Fixture::second().start("proc/net/dev", &dev(0, 1)).end("proc/net/dev", &dev(2048, 4));
    let eth0 = row(&host, "eth0").unwrap();
    assert_eq!((eth0.amount.as_str(), eth0.errors), ("2.0 KiB/s in, 0 B/s out", Some(3)));
    assert_eq!(eth0.saturated.as_deref(), Some("3 packets broken, dropped or of no use"));
    assert_eq!(row(&host, "eth1"), None, "nothing went through it");
}

#[test]
fn tables_and_limits_are_told_by_how_full_they_are_and_how_often_they_were_met() {
    let throttled = CgroupCpu {
        quota_ns: Some(50 * MS),
        period_ns: 100 * MS,
        periods: 10,
        throttled_periods: 4,
        throttled_ns: 600 * MS,
        ..CgroupCpu::default()
    };
    let memory = |limit_hits, usage| CgroupMemory {
        usage,
        limit: Some(1000),
        limit_hits,
        oom_kills: limit_hits / 2,
        ..CgroupMemory::default()
    };
    let host = Fixture::second()
        .end("proc/sys/fs/file-nr", "950\t0\t1000\n")
        .end("proc/loadavg", "0.1 0.1 0.1 1/300 9\n")
        .end("proc/sys/kernel/pid_max", "3000\n")
        .end("proc/sys/net/netfilter/nf_conntrack_count", "480\n")
        .end("proc/sys/net/netfilter/nf_conntrack_max", "500\n")
        .with(|tables| {
            tables.cgroups = Some(vec![
                Cgroup { cpu: Some(throttled), ..group(1, "/web") },
                Cgroup {
                    cpu: Some(CgroupCpu { quota_ns: Some(1), ..CgroupCpu::default() }),
                    ..group(2, "/idle")
                },
                Cgroup { memory: Some(memory(14, 500)), ..group(3, "/met") },
                Cgroup { memory: Some(memory(0, 950)), ..group(4, "/near") },
                Cgroup { memory: Some(memory(0, 100)), ..group(5, "/far") },
                Cgroup { memory: Some(memory(3, 100)), uncounted: true, ..group(6, "/unknown") },
            ]);
        });
    let all = of(&host.ev(), &[]);
    let told: Vec<(&str, &str)> = all.iter().map(|row| (row.name.as_str(), row.amount.as_str())).collect();
    assert_eq!(
        told,
        [
            ("open files", "950 of 1000"),
            ("tasks", "300 of 3000"),
            ("tracked connections", "480 of 500"),
            ("CPU quota of /web", "0.50 CPUs"),
            ("memory limit of /met", "500 B of 1000 B"),
            ("memory limit of /unknown", "100 B of 1000 B"),
            ("memory limit of /near", "950 B of 1000 B"),
        ]
    );
    let met = |name: &str| all.iter().find(|row| row.name == name).unwrap();
    let quota = met("CPU quota of /web").saturated.as_deref();
    assert!(quota.is_some_and(|said| said.starts_with("it ran out in 4 of 10 periods")), "{quota:?}");
    let limit = met("memory limit of /met");
    assert_eq!(limit.errors, Some(7));
    assert_eq!(limit.saturated.as_deref(), Some("allocations met it 14 times, 7 processes were killed"));
    assert_eq!(
        (met("memory limit of /near").errors, met("memory limit of /unknown").errors),
        (Some(0), None)
    );
    let none = Fixture::second().end("proc/sys/fs/file-nr", "950\t0\t9223372036854775807\n");
    assert_eq!(of(&none.ev(), &[]), [], "a limit that is none");
}

#[test]
fn causes_name_who_pays_and_bring_rows_of_their_own() {
    let victim = |name: &str| Subject::new(SubjectKind::Task, "11", name);
    let found = [
        Finding::cause("full-cpus", victim("web"), Duration::from_secs(1)).on("CPUs"),
        Finding::cause("full-cpus", victim("other"), Duration::from_millis(1)).on("CPUs"),
        Finding::failed("failed-calls", victim("logger"), 80).on("room on vda1"),
        Finding::failed("failed-calls", victim("writer"), 3).on("room on vda1"),
        Finding::risk("disk-latency", victim("web")).on("vda"),
    ];
    let rows = of(&busy(150).ev(), &found);
    let said: Vec<(&str, Option<&str>, Option<u64>)> =
        rows.iter().map(|row| (row.name.as_str(), row.paid_by.as_deref(), row.errors)).collect();
    assert_eq!(said, [("CPUs", Some("web"), None), ("room on vda1", Some("logger"), Some(83))]);
}

#[test]
fn numbers_of_a_broken_recording_are_no_panic() {
    let huge = u64::MAX;
    let host = Fixture::window(Duration::ZERO)
        .start("proc/stat", "cpu  0 0 0 0 0 0 0 0\n")
        .end("proc/stat", &format!("cpu  {huge} {huge} 0 0 0 0 0 0\n"))
        .end("proc/meminfo", "MemTotal:  1 kB\nMemAvailable:  18014398509481983 kB\n")
        .with(|tables| {
            tables.tasks = Some(vec![Task { exec_ns: huge, runnable_ns: huge, ..task(1, "x", 0, 0) }; 2]);
            tables.failed_calls = Some(vec![FailedCall::default()]);
            tables.cgroups = Some(vec![Cgroup {
                cpu: Some(CgroupCpu {
                    quota_ns: Some(huge),
                    throttled_periods: 1,
                    throttled_ns: huge,
                    ..CgroupCpu::default()
                }),
                memory: Some(CgroupMemory {
                    usage: huge,
                    limit: Some(0),
                    limit_hits: huge,
                    ..CgroupMemory::default()
                }),
                ..group(1, "/x")
            }]);
        });
    let rows = of(&host.ev(), &[]);
    assert!(
        rows.len() >= 4 && rows.iter().filter_map(|row| row.used).all(|used| used.ratio().is_finite()),
        "{rows:?}"
    );
}
