//! Folders that stand for hosts, and the table as a document.

use std::ffi::CString;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// A folder with files in it.
struct Host(tempfile::TempDir);

impl Host {
    fn with(files: &[(&str, &str)]) -> Host {
        let host = Host(tempfile::tempdir().unwrap());
        for (name, text) in files {
            host.file(name, text);
        }
        host
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self) -> Files {
        Files::open_with(self.0.path(), generous())
    }

    fn whole(&self, busiest: &[u32]) -> RawFiles {
        whole(&mut self.open(), busiest)
    }
}

/// A directory in memory where there is one: thousands of directories take seconds on a slow disk.
pub(super) fn roomy() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Tests check what is read, not how fast a busy machine reads it.
pub(super) fn generous() -> Limits {
    Limits { moment: LONG, ..Limits::default() }
}

pub(super) fn whole(files: &mut Files, busiest: &[u32]) -> RawFiles {
    let mut seen = RawFiles::default();
    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    files.read(Moment::Second, Duration::from_secs(1), &[], &mut seen);
    files.read(Moment::End, Duration::from_secs(2), busiest, &mut seen);
    // On a stalled machine a read of the child may look slow, which ends it: then try again.
    for _ in 0..50 {
        let mut tried = RawFiles::default();
        files.noted.retain(|what| what.is_empty());
        files.read_hazardous(Duration::from_secs(2), LONG, &mut tried);
        if !tried.missing.iter().any(|note| note.text.contains("read before it")) {
            seen.snapshots.append(&mut tried.snapshots);
            seen.missing.append(&mut tried.missing);
            return seen;
        }
    }
    panic!("fifty tries, and a read of the child took over 5 ms in each");
}

pub(super) fn texts<'a>(seen: &'a RawFiles, name: &str) -> Vec<&'a str> {
    let named = seen.snapshots.iter().filter(|snapshot| snapshot.name == name);
    named.map(|snapshot| std::str::from_utf8(&snapshot.bytes).unwrap()).collect()
}

pub(super) fn missing<'a>(seen: &'a RawFiles, what: &str) -> Option<&'a Missing> {
    seen.missing.iter().map(|note| &note.missing).find(|missing| missing.what() == what)
}

#[test]
fn rows_are_read_when_their_schedule_says() {
    let host = Host::with(&[
        ("proc/stat", "cpu 1\n"),
        ("proc/softirqs", "TIMER: 1\n"),
        ("proc/version", "Linux\n"),
        ("proc/buddyinfo", "Node 0\n"),
    ]);
    let seen = host.whole(&[]);
    assert_eq!(texts(&seen, "proc/stat").len(), 3);
    assert_eq!(texts(&seen, "proc/softirqs").len(), 2);
    assert_eq!(texts(&seen, "proc/version"), ["Linux\n"]);
    assert_eq!(texts(&seen, "proc/buddyinfo"), ["Node 0\n"]);
    assert_eq!(missing(&seen, "proc/schedstat"), Some(&Missing::not_recorded("proc/schedstat")));
}

#[test]
fn a_host_with_nothing_readable_is_all_missing_and_no_panic() {
    let seen = Host::with(&[]).whole(&[1]);
    assert_eq!(seen.snapshots, []);
    assert!(missing(&seen, "proc/vmstat").is_some());
    assert!(missing(&seen, "sys/fs/cgroup").is_some());
    let nowhere = whole(&mut Files::open_with(Path::new("/nonexistent/whyslow"), generous()), &[]);
    assert_eq!(nowhere.snapshots, []);
}

#[test]
fn a_version_1_host_gives_the_files_of_its_groups() {
    let host = Host::with(&[
        ("sys/fs/cgroup/cpu,cpuacct/web/cpu.stat", "nr_periods 1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_quota_us", "1000\n"),
        ("sys/fs/cgroup/memory/web/memory.limit_in_bytes", "4096\n"),
        ("sys/fs/cgroup/memory/web/memory.usage_in_bytes", "4096\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
        ("sys/fs/cgroup/memory/web/memory.stat", "cache 1\n"),
        ("sys/fs/cgroup/blkio/blkio.throttle.io_serviced", "Total 0\n"),
    ]);
    let seen = host.whole(&[]);
    assert_eq!(host.open().cgroup_mounts()["io"], Path::new("/sys/fs/cgroup/blkio"));
    assert_eq!(texts(&seen, "sys/fs/cgroup/cpu,cpuacct/web/cpu.stat").len(), 2);
    assert_eq!(texts(&seen, "sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_quota_us").len(), 1);
    assert_eq!(texts(&seen, "sys/fs/cgroup/memory/web/memory.usage_in_bytes").len(), 2);
    assert_eq!(texts(&seen, "sys/fs/cgroup/blkio/blkio.throttle.io_serviced").len(), 2);
    // These flush on some kernels; and no limit of a group was met.
    assert!(texts(&seen, "sys/fs/cgroup/memory/memory.usage_in_bytes").is_empty());
    assert!(texts(&seen, "sys/fs/cgroup/memory/web/memory.stat").is_empty());
}

#[test]
fn a_version_2_host_gives_the_files_of_its_groups() {
    let host = Host::with(&[
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/fs/cgroup/cgroup.stat", "nr_descendants 1\n"),
        ("sys/fs/cgroup/web.slice/memory.max", "max\n"),
        ("sys/fs/cgroup/web.slice/memory.events", "max 0\n"),
        ("sys/fs/cgroup/web.slice/cpu.stat", "usage_usec 1\n"),
        ("sys/fs/cgroup/web.slice/cpu.pressure", "some total=1\n"),
    ]);
    let seen = host.whole(&[]);
    assert_eq!(host.open().cgroup_mounts()["memory"], Path::new("/sys/fs/cgroup"));
    assert_eq!(texts(&seen, "sys/fs/cgroup/web.slice/memory.max").len(), 1);
    assert_eq!(texts(&seen, "sys/fs/cgroup/web.slice/memory.events").len(), 2);
    assert_eq!(texts(&seen, "sys/fs/cgroup/web.slice/cpu.pressure").len(), 2);
    assert_eq!(texts(&seen, "sys/fs/cgroup/web.slice/cpu.stat").len(), 1, "it flushes: once");
}

#[test]
fn a_hybrid_host_gives_both() {
    let host = Host::with(&[
        (
            "proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/fs/cgroup/memory/web/memory.failcnt", "7\n"),
        ("sys/fs/cgroup/unified/web/cpu.pressure", "some total=1\n"),
    ]);
    let seen = host.whole(&[]);
    assert_eq!(texts(&seen, "sys/fs/cgroup/memory/web/memory.failcnt").len(), 2);
    assert_eq!(texts(&seen, "sys/fs/cgroup/unified/web/cpu.pressure").len(), 2);
    assert_eq!(host.open().cgroup_mounts()["unified"], Path::new("/sys/fs/cgroup/unified"));
}

#[test]
fn of_100_000_cgroups_some_are_read_and_the_rest_is_reported() {
    // 3,000 groups and a cap of 500: the cap makes the difference, not the number beyond it.
    let host = Host(roomy());
    host.file("sys/fs/cgroup/memory/memory.failcnt", "0\n");
    for n in 0..3000 {
        fs::create_dir(host.path(&format!("sys/fs/cgroup/memory/g{n}"))).unwrap();
    }
    let mut files = Files::open_with(host.0.path(), Limits { cgroups: (500, 4), ..generous() });
    let seen = whole(&mut files, &[]);
    let reported = missing(&seen, "some cgroups below sys/fs/cgroup/memory").unwrap().to_string();
    assert!(reported.contains("500 are read, at least 2501 more are there"), "{reported}");
    assert_eq!(files.devices["v1:memory"].len(), 500);
    assert_eq!(files.devices["v1:memory:top"].len(), 4);
}

#[test]
fn a_reading_over_its_budget_names_what_it_skipped() {
    let host = Host::with(&[("proc/stat", "cpu 1\n")]);
    let mut files = Files::open_with(host.0.path(), Limits { moment: Duration::ZERO, ..generous() });
    let mut seen = RawFiles::default();
    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    assert_eq!(seen.snapshots, []);
    assert!(matches!(missing(&seen, "proc/stat"), Some(Missing::Skipped { .. })));
}

#[test]
fn psi_absent_is_missing_and_the_rest_is_read() {
    let seen = Host::with(&[("proc/vmstat", "nr_free_pages 1\n")]).whole(&[]);
    for name in ["proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io", "proc/pressure/irq"] {
        assert_eq!(missing(&seen, name), Some(&Missing::not_recorded(name)));
    }
    assert_eq!(texts(&seen, "proc/vmstat").len(), 3);
}

/// A kernel with PSI compiled in and off: the file is there, reading it fails.
struct Refuses;

impl Reads for Refuses {
    fn read(&self, _: &CStr, _: usize, _: &mut Vec<u8>) -> io::Result<bool> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

#[test]
fn psi_that_refuses_is_missing_with_what_it_needs() {
    let row = ROWS.iter().find(|row| row.id == "psi-memory").unwrap();
    let place = Place { name: row.pattern.to_owned(), path: CString::new(row.pattern).unwrap() };
    let (mut result, mut noted, mut seen) = (RowResult::of(row), Noted::new(), RawFiles::default());
    read_place(&Refuses, place, row, LONG, &mut Vec::new(), &mut result, &mut noted, &mut seen);
    result.settle(true, true, &mut noted, &mut seen);
    assert!(seen.snapshots.is_empty());
    let said = &seen.missing[0].text;
    assert!(said.contains("proc/pressure/memory") && said.contains("psi=1"), "{said}");
}

#[test]
fn files_that_are_no_files_are_broken_and_do_not_block() {
    let host = Host::with(&[("proc/version", "Linux\n")]);
    fs::create_dir_all(host.path("proc/sys/vm/swappiness")).unwrap();
    symlink("loadavg", host.path("proc/loadavg")).unwrap();
    for fifo in ["proc/stat", "proc/buddyinfo"] {
        let path = CString::new(host.path(fifo).as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }
    let seen = host.whole(&[]);
    for name in ["proc/stat", "proc/buddyinfo", "proc/loadavg", "proc/sys/vm/swappiness"] {
        let found = missing(&seen, name);
        assert!(matches!(found, Some(Missing::Broken { .. })), "{name}: {found:?}");
    }
    assert_eq!(texts(&seen, "proc/version"), ["Linux\n"]);
}

#[test]
fn a_huge_file_is_cut_and_the_cut_is_reported() {
    let host = Host::with(&[]);
    fs::create_dir_all(host.path("proc")).unwrap();
    for name in ["proc/loadavg", "proc/modules"] {
        fs::File::create(host.path(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let seen = host.whole(&[]);
    for (name, cap) in [("proc/loadavg", table::SMALL), ("proc/modules", table::LARGE)] {
        assert_eq!(texts(&seen, name)[0].len(), cap);
        assert!(missing(&seen, &format!("the rest of {name}")).is_some());
    }
}

#[test]
fn names_survive_and_cannot_speak_to_a_terminal() {
    let host = Host::with(&[("sys/fs/cgroup/memory/a\nb\x1b[31m/memory.failcnt", "1\n")]);
    let seen = host.whole(&[]);
    let name = "sys/fs/cgroup/memory/a\\012b\\033[31m/memory.failcnt";
    assert_eq!(texts(&seen, name).len(), 2);
    assert_eq!(raw_name(name).as_bytes(), b"sys/fs/cgroup/memory/a\nb\x1b[31m/memory.failcnt");
    assert!(seen.snapshots.iter().all(|snapshot| !snapshot.name.chars().any(char::is_control)));
    assert!(seen.missing.iter().all(|note| !note.text.chars().any(char::is_control)));
}

#[test]
fn network_namespaces_of_a_recording_are_read_from_its_folder() {
    let host =
        Host::with(&[("netns/4026531840/net/snmp", "Tcp: 1\n"), ("netns/not-a-number/net/snmp", "Tcp: 2\n")]);
    let seen = host.whole(&[]);
    assert_eq!(texts(&seen, "netns/4026531840/net/snmp").len(), 2);
    assert!(texts(&seen, "netns/not-a-number/net/snmp").is_empty());
}

#[test]
fn processes_asked_for_are_read_and_vanished_ones_are_left_out() {
    let host = Host::with(&[("proc/7/stat", "7 (web) R\n"), ("proc/7/io", "rchar: 1\n")]);
    let seen = host.whole(&[7, 8]);
    assert_eq!(texts(&seen, "proc/7/stat").len(), 1);
    assert_eq!(texts(&seen, "proc/7/io").len(), 1);
    assert!(missing(&seen, "proc/8/stat").is_none());
}

#[test]
fn frequencies_recorded_elsewhere_are_read_from_a_folder() {
    let host = Host::with(&[
        ("proc/cpuinfo", "processor : 0\n"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_cur_freq", "1\n"),
    ]);
    let seen = host.whole(&[]);
    assert_eq!(texts(&seen, "proc/cpuinfo").len(), 1);
    assert_eq!(texts(&seen, "sys/devices/system/cpu/cpufreq/policy0/scaling_governor").len(), 1);
    assert_eq!(texts(&seen, "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_cur_freq").len(), 1);
}

#[test]
fn a_file_without_permission_says_how_to_be_allowed() {
    // Root may read every file: the reader's error is simulated.
    struct Forbids;
    impl Reads for Forbids {
        fn read(&self, _: &CStr, _: usize, _: &mut Vec<u8>) -> io::Result<bool> {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        }
    }
    let row = ROWS.iter().find(|row| row.id == "kmsg").unwrap();
    let place = Place { name: row.pattern.to_owned(), path: CString::new(row.pattern).unwrap() };
    let (mut result, mut noted, mut seen) = (RowResult::of(row), Noted::new(), RawFiles::default());
    read_place(&Forbids, place, row, LONG, &mut Vec::new(), &mut result, &mut noted, &mut seen);
    result.settle(true, true, &mut noted, &mut seen);
    assert!(matches!(seen.missing[0].missing, Missing::NotAllowed { .. }));
}

/// The table as a document. `BLESS=1` writes it.
#[test]
fn the_document_tells_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/files.md");
    let want = document();
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &want).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == want, "docs/files.md differs from the table; run the test with BLESS=1");
}

fn document() -> String {
    let mut text = String::from(include_str!("document.md"));
    for (title, hazardous) in [("Harmless", false), ("With a hazard", true)] {
        let _ = writeln!(text, "\n## {title}\n");
        let _ = writeln!(text, "| Row | Files | Why | Hazard | Read | Highest rate | Largest |");
        let _ = writeln!(text, "|---|---|---|---|---|---|---|");
        for row in ROWS.iter().filter(|row| row.hazardous() == hazardous) {
            let hazards: Vec<_> = row.hazards.iter().map(Hazard::to_string).collect();
            let hazards = if hazards.is_empty() { "none".to_owned() } else { hazards.join(", ") };
            let files = row.pattern.replace(',', ", ").replace('*', "\\*");
            let (read, highest, kib) = (row.read, row.highest, row.cap >> 10);
            let _ = writeln!(
                text,
                "| {} | {files} | {} | {hazards} | {read} | {highest} | {kib} KiB |",
                row.id, row.why
            );
        }
    }
    text
}
