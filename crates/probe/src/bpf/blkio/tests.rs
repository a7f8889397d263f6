//! Block I/O of a reader that is held back by a throttle, and of one that is not.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::bpf::sched::{Budget, Layout, Sched};
use crate::test_group::{Group, scratch};

fn running(slot: &mut MaybeUninit<OpenObject>) -> Sched<'_> {
    let mut sched = Sched::load(slot, Layout::default(), Budget::of(1, false)).unwrap();
    sched.begin().unwrap();
    sched
}

#[test]
fn a_device_is_called_as_sysfs_calls_it() {
    let root = scratch();
    fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
    symlink("../../devices/virtio0/block/vda", root.path().join("sys/dev/block/254:0")).unwrap();
    assert_eq!(device_name(root.path(), "254:0"), "vda");
    assert_eq!(device_name(root.path(), "8:16"), "8:16");
}

/// A file of its own on disk, and the number of the whole disk it is on.
fn file_on_disk(dir: &Path, mib: usize) -> (PathBuf, String) {
    let file = dir.join("data");
    fs::write(&file, vec![7; mib << 20]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let dev = fs::metadata(&file).unwrap().dev();
    let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
    let sys = fs::canonicalize(Path::new("/sys/dev/block").join(&number)).unwrap();
    let disk = if sys.join("partition").exists() { sys.parent().unwrap().to_owned() } else { sys };
    (file, fs::read_to_string(disk.join("dev")).unwrap().trim().to_owned())
}

fn of_group(rows: Vec<table::Disk>, group: &Group, op: &str) -> table::Disk {
    let mut own = rows.into_iter().filter(|row| row.cgroup == group.key() && row.op == op);
    own.next().unwrap_or_default()
}

/// Direct reads of 256 KiB, so many; the time they took by the test's clock.
fn read_directly(group: &Group, file: &Path, count: u32) -> Duration {
    let began = Instant::now();
    let script = format!("exec dd if=\"$1\" of=/dev/null bs=256K iflag=direct count={count}");
    let mut dd = group.run(&script, &[file]);
    assert!(dd.0.wait().unwrap().success());
    began.elapsed()
}

#[test]
fn root_a_throttled_reader_is_held_for_as_long_as_it_is_blocked() {
    let Some(group) = Group::new("blkio") else { return };
    let dir = scratch();
    let (file, dev) = file_on_disk(dir.path(), 2);
    group.set("blkio.throttle.read_bps_device", &format!("{dev} {}", 1 << 20));
    let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let sched = running(&mut sched);
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
    assert!(probe.sees_holds());
    let took = read_directly(&group, &file, 8);
    let seen = of_group(probe.rows().unwrap(), &group, "read");
    let held = Duration::from_nanos(seen.held_ns);
    assert!(took > Duration::from_millis(1500), "2 MiB at 1 MiB/s took {took:?}");
    assert!(held > took * 3 / 4 && held <= took, "held {held:?} of {took:?}: {seen:?}");
    assert!(seen.held >= 7 && seen.requests >= 8 && seen.bytes >= 2 << 20, "{seen:?}");
    assert_eq!((seen.dev, probe.lost()), (dev, 0));
}

#[test]
fn root_a_reader_still_held_is_counted_up_to_now() {
    let Some(group) = Group::new("blkio") else { return };
    let dir = scratch();
    let (file, dev) = file_on_disk(dir.path(), 1);
    group.set("blkio.throttle.read_bps_device", &format!("{dev} {}", 16 << 10));
    let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let sched = running(&mut sched);
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
    let _dd = group.run("exec dd if=\"$1\" of=/dev/null bs=256K iflag=direct count=1", &[&file]);
    let began = Instant::now();
    let held = |rows| of_group(rows, &group, "read").held_ns;
    while held(probe.rows().unwrap()) < 200_000_000 {
        assert!(began.elapsed() < Duration::from_secs(20), "the reader is not seen to be held");
    }
    assert!(Duration::from_nanos(held(probe.rows().unwrap())) <= began.elapsed() + Duration::from_millis(50));
    group.set("blkio.throttle.read_bps_device", &format!("{dev} 0")); // release it, or it cannot die
}

#[test]
fn root_a_reader_without_a_limit_is_not_held() {
    let Some(group) = Group::new("blkio") else { return };
    let dir = scratch();
    let (file, _) = file_on_disk(dir.path(), 2);
    let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let sched = running(&mut sched);
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
    let took = read_directly(&group, &file, 8);
    let seen = of_group(probe.rows().unwrap(), &group, "read");
    assert_eq!((seen.held, seen.held_ns, probe.lost()), (0, 0, 0));
    assert!(seen.bytes >= 2 << 20, "{seen:?}");
    assert!(seen.device_ns > 0 && Duration::from_nanos(seen.device_worst_ns) < took, "{seen:?} in {took:?}");
}

/// One reader meets no other; of several at once most requests find another there, or another joins them.
#[test]
fn root_a_request_that_others_join_is_not_alone() {
    let Some(group) = Group::new("blkio") else { return };
    let dir = scratch();
    let (file, _) = file_on_disk(dir.path(), 2);
    let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let sched = running(&mut sched);
    let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
    let read = |script: &str| {
        assert!(group.run(script, &[&file]).0.wait().unwrap().success());
        of_group(probe.rows().unwrap(), &group, "read")
    };
    let one = read("exec dd if=\"$1\" of=/dev/null bs=4K iflag=direct count=500");
    assert!(one.requests >= 400 && one.alone * 2 > one.requests, "{one:?}");
    let all =
        read("for i in 1 2 3 4; do dd if=\"$1\" of=/dev/null bs=4K iflag=direct count=500 & done; wait");
    let (requests, alone) = (all.requests - one.requests, all.alone - one.alone);
    assert!(requests >= 1600 && alone * 4 < requests, "{alone} of {requests} alone");
}
