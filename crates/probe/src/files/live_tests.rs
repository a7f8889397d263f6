//! This host, read as root.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::tests::{generous, missing, texts, whole};
use super::*;

const LONG: Duration = Duration::from_secs(20);

fn this_host() -> Files {
    let mut files = Files::open_with(Path::new("/"), generous());
    // Other tests may read this host, too.
    let whose = format!("{}-{:?}", test_name(), std::thread::current().id());
    files.only_one = Some(whose.into_bytes());
    files
}

#[test]
fn root_reads_this_host() {
    let mut files = this_host();
    let own = std::process::id();
    let seen = whole(&mut files, &[own, u32::MAX]);
    for (name, times) in [
        ("proc/stat", 3),
        ("proc/vmstat", 3),
        ("proc/net/softnet_stat", 3),
        ("proc/interrupts", 2),
        ("proc/net/snmp", 2),
        ("proc/sys/vm/swappiness", 1),
        ("sys/devices/system/cpu/online", 1),
        ("proc/self/mountinfo", 1),
        ("proc/buddyinfo", 1),
        (&format!("proc/{own}/schedstat"), 1),
        (&format!("proc/{own}/io"), 1),
    ] {
        assert_eq!(texts(&seen, name).len(), times, "{name}: {:?}", missing(&seen, name));
    }
    let own_namespace = fs::read_link("/proc/self/ns/net").unwrap();
    let inode = own_namespace.to_str().unwrap().trim_start_matches("net:[").trim_end_matches(']').to_owned();
    assert_eq!(texts(&seen, &format!("netns/{inode}/net/snmp")).len(), 2);
    assert!(!seen.snapshots.iter().any(|snapshot| snapshot.name.ends_with("cpuinfo_cur_freq")));
    let kmsg = seen.snapshots.iter().find(|snapshot| snapshot.name == "dev/kmsg");
    assert!(kmsg.is_some_and(|snapshot| !snapshot.bytes.is_empty()), "{:?}", missing(&seen, "dev/kmsg"));
    for path in files.cgroup_mounts().values() {
        assert!(path.join("cgroup.procs").exists(), "{}", path.display());
    }
    // A file that this kernel does not have is reported, not left out.
    if !Path::new("/proc/schedstat").exists() {
        assert!(matches!(missing(&seen, "proc/schedstat"), Some(Missing::NotInKernel { .. })));
    }
}

#[test]
fn root_hazardous_child_leaves_nothing_behind() {
    let mut files = this_host();
    let before = open_pipes();
    let mut seen = RawFiles::default();
    files.read_hazardous(Duration::ZERO, LONG, &mut seen);
    assert!(!seen.snapshots.is_empty(), "{:?}", seen.missing);
    assert!(files.strays.is_empty());
    assert!(no_child_is_called("whyslow-files"));
    // Other tests open and close pipes meanwhile; the pipes of this test must not accumulate.
    for _ in 0..20 {
        files.read_hazardous(Duration::ZERO, LONG, &mut seen);
    }
    assert!(open_pipes() < before + 20);
    // The child is killed at a deadline that has passed already.
    files.read_hazardous(Duration::ZERO, Duration::ZERO, &mut seen);
    let end = Instant::now() + LONG;
    assert!(files.strays.iter().all(|&pid| child::reaped_before(pid, end)));
}

/// No child of this thread carries the reader's name any more.
fn no_child_is_called(comm: &str) -> bool {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    children
        .split_ascii_whitespace()
        .all(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).map_or(true, |found| found.trim() != comm))
}

fn open_pipes() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count()
}

#[test]
fn root_a_second_reader_of_this_host_is_refused_while_one_is_stuck() {
    let mut files = this_host();
    let name = files.only_one.clone().unwrap();
    let holder = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let mut seen = RawFiles::default();
    files.read_hazardous(Duration::ZERO, LONG, &mut seen);
    assert!(seen.snapshots.is_empty());
    assert!(missing(&seen, "proc/buddyinfo").unwrap().to_string().contains("another whyslow"));
    drop(holder);
}

#[test]
fn root_an_unpacked_recording_of_this_host_is_a_host() {
    let own = std::process::id();
    let recorded = whole(&mut this_host(), &[own]);
    let dir = tempfile::tempdir().unwrap();
    for snapshot in &recorded.snapshots {
        let path = dir.path().join(&snapshot.name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &snapshot.bytes).unwrap();
    }
    let again = whole(&mut Files::open_with(dir.path(), generous()), &[own]);
    let names = |seen: &RawFiles| {
        seen.snapshots.iter().map(|snapshot| snapshot.name.clone()).collect::<BTreeSet<String>>()
    };
    assert_eq!(names(&recorded), names(&again));
    let last = |seen: &RawFiles| {
        seen.snapshots.iter().rfind(|snapshot| snapshot.name == "proc/vmstat").cloned().unwrap()
    };
    assert_eq!(last(&recorded).bytes, last(&again).bytes);
}

/// A name that no other test uses, and that names its test.
fn test_name() -> String {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(19).unwrap().to_owned();
    format!("whyslow-test-{}-{started}", std::process::id())
}

/// Two cgroups, one in the other; removed also on failure.
struct Groups(PathBuf);

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("deep"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn root_reads_a_cgroup_and_the_one_in_it() {
    let mounts = Files::open(Path::new("/")).cgroup_mounts().clone();
    let Some(pids) = mounts.get("pids").or(mounts.get("unified")) else { panic!("no cgroups here") };
    let groups = Groups(pids.join(test_name()));
    fs::create_dir(&groups.0).unwrap();
    fs::create_dir(groups.0.join("deep")).unwrap();
    let mut files = this_host();
    let mut seen = RawFiles::default();
    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    let below = groups.0.strip_prefix("/").unwrap().to_str().unwrap();
    let of = |dir: &str| seen.snapshots.iter().filter(|snapshot| snapshot.name.starts_with(dir)).count();
    assert!(of(&format!("{below}/pids.")) + of(&format!("{below}/cgroup.stat")) > 0, "{below}");
    assert!(of(&format!("{below}/deep/")) > 0, "{below}/deep");
}

/// A process in a network namespace of its own, which waits to be killed.
struct Stranger(libc::pid_t);

impl Stranger {
    fn born() -> Stranger {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: the child makes system calls only, and never returns.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let answer = u8::from(libc::unshare(libc::CLONE_NEWNET) == 0);
                    libc::write(ends[1], (&raw const answer).cast(), 1);
                    loop {
                        libc::pause();
                    }
                }
                pid => pid,
            }
        };
        let mut answer = 0_u8;
        // SAFETY: room for one byte; both ends are ours.
        unsafe {
            libc::close(ends[1]);
            assert_eq!(libc::read(ends[0], (&raw mut answer).cast(), 1), 1);
            libc::close(ends[0]);
        }
        assert_eq!(answer, 1, "cannot make a network namespace; run as root");
        Stranger(pid)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: our child, not waited for yet.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn root_reads_another_network_namespace_until_its_last_task_ends() {
    let stranger = Stranger::born();
    let link = fs::read_link(format!("/proc/{}/ns/net", stranger.0)).unwrap();
    let inode = link.to_str().unwrap().trim_start_matches("net:[").trim_end_matches(']').to_owned();
    let name = format!("netns/{inode}/net/dev");
    let mut files = this_host();
    let mut seen = RawFiles::default();
    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    assert!(texts(&seen, &name)[0].contains("lo:"));
    drop(stranger);
    // The inode may be that of a newer namespace by now: the dead task's directory must not answer.
    assert!(files.namespaces.lost_one());
    let path = CString::new(name.as_str()).unwrap();
    let err = files.namespaces.read(&path, 1 << 20, &mut Vec::new()).unwrap_err();
    assert_eq!(err.raw_os_error(), Some(libc::ESRCH));
    let mut after = RawFiles::default();
    files.read(Moment::End, LONG, &[], &mut after);
    assert!(missing(&after, &name).is_none());
}

#[test]
fn cost_of_reading_this_host() {
    // The limit is 60 ms for a whole reading and 3 ms a second; CPU time of this thread, the best of five: a busy
    // host makes the same work more expensive. The child's part is bounded by the file's own limit of 5 ms a read.
    let (mut all, mut second) = (LONG, LONG);
    for _ in 0..5 {
        let before = budget::thread_cpu();
        let mut files = Files::open(Path::new("/"));
        files.only_one = None;
        let mut seen = RawFiles::default();
        files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
        files.read(Moment::End, LONG, &[std::process::id()], &mut seen);
        files.read_hazardous(LONG, LONG, &mut seen);
        all = all.min(budget::thread_cpu().saturating_sub(before));
        for _ in 0..3 {
            files.rest = 0;
            let before = budget::thread_cpu();
            files.read(Moment::Second, LONG, &[], &mut seen);
            second = second.min(budget::thread_cpu().saturating_sub(before));
        }
    }
    println!("reading this host: {all:?}, each second: {second:?}");
    assert!(all < Duration::from_millis(60), "{all:?}");
    assert!(second < SECOND, "{second:?}");
}
