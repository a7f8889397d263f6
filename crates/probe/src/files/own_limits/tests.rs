use std::fs;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const PID: u32 = 4711;

/// A host with these files.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let at = dir.path().join(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    dir
}

fn limits(files: &[(&str, &str)]) -> OwnLimits {
    OwnLimits::shown(host(files).path(), PID, true).0
}

fn of(cgroup: &str, limit: u64, left: u64) -> MemoryLimit {
    MemoryLimit { cgroup: cgroup.to_owned(), limit, left, is_hidden: false }
}

const V1: &str = "4:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/\n0::/\n";

#[test]
fn version_1_the_tightest_of_all_that_are_above_counts() {
    let found = limits(&[
        ("proc/self/cgroup", V1),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n"),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "94371840\n"),
        (
            "sys/fs/cgroup/memory/a/memory.stat",
            "cache 9\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n",
        ),
        ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "52428800\n"),
        ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "1048576\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "10000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
    ]);
    // The outer group has the larger limit, but less is left of it.
    assert_eq!(found.memory, Ok(Some(of("/a", 100 * MIB, 12 * MIB))));
    assert_eq!(found.cpu, Ok(Some(CpuLimit { cgroup: "/a".into(), cpus: 0.1 })));
    assert!(!found.hides_memory && !found.hides_cpu);
}

fn v2<'a>(max: &'a str, high: &'a str, cpu: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/fs/cgroup/a/b/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/a/memory.max", max),
        ("sys/fs/cgroup/a/memory.high", high),
        ("sys/fs/cgroup/a/memory.current", "1048576\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 3\ninactive_file 4096\nactive_file 4096\n"),
        ("sys/fs/cgroup/a/b/cpu.max", cpu),
    ]
}

#[test]
fn version_2_has_max_and_high_and_cpu_max() {
    let found = limits(&v2("52428800\n", "max\n", "10000 100000\n"));
    let left = 49 * MIB + 8192;
    assert_eq!(found.memory, Ok(Some(of("/a", 50 * MIB, left))));
    assert_eq!(found.cpu, Ok(Some(CpuLimit { cgroup: "/a/b".into(), cpus: 0.1 })));
    let high = limits(&v2("52428800\n", "20971520\n", "150000 100000\n"));
    assert_eq!(high.memory.unwrap().unwrap().limit, 20 * MIB);
    assert_eq!(high.cpu.unwrap().unwrap().cpus, 1.5);
}

#[test]
fn without_limits_there_are_none() {
    let found = limits(&v2("max\n", "max\n", "max 100000\n"));
    assert_eq!((found.memory, found.cpu, found.hides_memory), (Ok(None), Ok(None), false));
    let bare = limits(&[("proc/self/stat", "")]);
    assert_eq!((bare.memory, bare.cpu), (Ok(None), Ok(None)), "a kernel without cgroups");
}

#[test]
fn garbage_is_not_reported_as_none_and_hides_no_other_limit() {
    for (max, cpu) in
        [("", ""), ("fifty\n", "10000\n"), ("-3\n", "0 100000\n"), ("99999999999999999999\n", "x y\n")]
    {
        let found = limits(&v2(max, "max\n", cpu));
        assert!(matches!(found.memory, Err(Missing::Unclear { .. })), "{max:?}: {:?}", found.memory);
        assert!(matches!(found.cpu, Err(Missing::Unclear { .. })), "{cpu:?}: {:?}", found.cpu);
    }
    let mut files = v2("x", "max\n", "x");
    files.push(("sys/fs/cgroup/a/b/memory.max", "1048576\n"));
    files.push(("sys/fs/cgroup/a/cpu.max", "50000 100000\n"));
    let found = limits(&files);
    assert_eq!(found.memory.unwrap().unwrap().cgroup, "/a/b");
    assert_eq!(found.cpu.unwrap().unwrap().cgroup, "/a");
}

#[test]
fn a_file_that_cannot_be_read_is_neither_no_limit_nor_no_use() {
    let unclear = |files: &[(&str, &str)]| matches!(limits(files).memory, Err(Missing::Unclear { .. }));
    assert!(unclear(&v2("max\n", "garbage\n", "max 1\n")), "memory.high may hold us");
    let found = limits(&v2("52428800\n", "garbage\n", "max 1\n"));
    assert_eq!(found.memory.unwrap().unwrap().limit, 50 * MIB, "the limit that is known is reported");
    let found = limits(&v2("garbage\n", "20971520\n", "max 1\n"));
    assert_eq!(found.memory.unwrap().unwrap().limit, 20 * MIB);
    let mut files = v2("52428800\n", "max\n", "max 1\n");
    files
        .iter_mut()
        .filter(|(name, _)| name.ends_with("memory.current"))
        .for_each(|file| file.1 = "garbage\n");
    assert!(unclear(&files), "else all used memory would pass for free");
}

/// Docker on version 1: the mount is that of our group, our path is the host's.
#[test]
fn a_mount_of_our_own_group_is_known_by_our_process() {
    let files = |procs| {
        vec![
            ("proc/self/cgroup", "4:memory:/docker/f00\n2:cpu:/docker/f00\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "52428800\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n"),
            ("sys/fs/cgroup/memory/cgroup.procs", procs),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cgroup.procs", procs),
        ]
    };
    let ours = limits(&files("1\n4711\n"));
    assert_eq!(ours.memory.unwrap().unwrap().limit, 50 * MIB);
    assert!(ours.hides_memory && ours.hides_cpu);
    let others = limits(&files("1\n47\n"));
    assert!(matches!(others.memory, Err(Missing::Unclear { .. })), "{:?}", others.memory);
    assert!(matches!(others.cpu, Err(Missing::Unclear { .. })), "{:?}", others.cpu);
}

/// In a cgroup namespace our path is "/": ours, or that of a mount from outside.
#[test]
fn in_a_namespace_only_a_group_with_our_process_is_ours() {
    let of = |procs| {
        let dir = host(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/cgroup.procs", procs),
            ("sys/fs/cgroup/memory.max", "52428800\n"),
        ]);
        OwnLimits::shown(dir.path(), PID, false).0
    };
    let ours = of("4711\n");
    assert_eq!(ours.memory.unwrap().unwrap().limit, 50 * MIB);
    assert_eq!(ours.cpu, Ok(None));
    assert!(ours.hides_memory && ours.hides_cpu);
    assert!(matches!(of("1\n").memory, Err(Missing::Unclear { .. })));
    let outside = limits(&[
        ("proc/self/cgroup", "0::/../../x\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/x/memory.max", "1\n"),
    ]);
    assert!(matches!(outside.memory, Err(Missing::Unclear { .. })), "{:?}", outside.memory);
}

#[test]
fn this_host_can_be_asked() {
    let found = OwnLimits::read();
    assert!(found.memory.is_ok() && found.cpu.is_ok() || found.hides_cpu, "{found:?}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(own in any::<String>(), max in any::<String>(), cpu in any::<String>(), path in "[./a-c]{0,12}") {
        let own = format!("{own}\n0::/{path}\n");
        let mut files = v2(&max, &max, &cpu);
        files[0].1 = &own;
        limits(&files);
    }
}
