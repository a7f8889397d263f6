//! An opened recording equals the saved one: from the file, and from its unpacked folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use whyslow::store;
use whyslow_model::table::{Cgroup, CgroupCpu, Cpu, Tables, Task, Wait};
use whyslow_model::{FORMAT, FileSnapshot, Meta, Missing, MissingNote, Recording};

use crate::store::sample;

fn through_file(rec: &Recording) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    store::save(rec, &path).unwrap();
    store::open(&path).unwrap()
}

pub fn unpack(file: &Path, folder: &Path) {
    let unzstd = zstd::Decoder::new(fs::File::open(file).unwrap()).unwrap();
    tar::Archive::new(unzstd).unpack(folder).unwrap();
}

fn through_folder(rec: &Recording) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    store::save(rec, &path).unwrap();
    unpack(&path, &folder.path().join("host"));
    store::open(&folder.path().join("host")).unwrap()
}

fn frame(at_ms: u64, name: &str, text: &str) -> FileSnapshot {
    FileSnapshot { at: Duration::from_millis(at_ms), name: name.to_owned(), bytes: text.into() }
}

#[test]
fn a_large_host_comes_back_as_it_was() {
    let rec = sample::recording(2_000, 7);
    assert_eq!(through_file(&rec), rec);
    assert_eq!(through_folder(&rec), rec);
}

/// Another order, folders as members, "./" before names, one zstd frame of several megabytes with a large window. Uses the name of older
/// recordings for the list of snapshots.
#[test]
fn a_folder_of_before_keeps_names_and_times() {
    let folder = tempfile::tempdir().unwrap();
    let (path, host) = (folder.path().join("a.why"), folder.path().join("host"));
    store::save(&sample::recording(200, 7), &path).unwrap();
    unpack(&path, &host);
    fs::rename(host.join("snapshots.ndjson"), host.join("frames.ndjson")).unwrap();
    assert_eq!(store::open(&host).unwrap().snapshots, store::open(&path).unwrap().snapshots);
}

#[test]
fn a_folder_packed_again_by_hand_is_the_same_recording() {
    let rec = sample::recording(4_000, 9);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    store::save(&rec, &path).unwrap();
    unpack(&path, &folder.path().join("host"));
    let mut zstd = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    zstd.window_log(23).unwrap();
    let mut tar = tar::Builder::new(zstd);
    tar.append_dir_all("./", folder.path().join("host")).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    assert_eq!(store::open(&path).unwrap(), rec);
}

#[test]
fn files_deleted_from_a_folder_are_reported_missing() {
    let rec = sample::recording(50, 9);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    store::save(&rec, &path).unwrap();
    unpack(&path, folder.path());
    fs::remove_file(folder.path().join("earlier/0000000/proc/vmstat")).unwrap();
    fs::remove_file(folder.path().join("tables/tasks.ndjson")).unwrap();
    let less = store::open(folder.path()).unwrap();
    let why = |what: &str| less.why_missing(what).to_string();
    assert_eq!((less.torn.as_deref(), less.tables.tasks.is_none()), (None, true));
    assert_eq!(why("proc/vmstat"), "cannot read proc/vmstat: it is not in the recording");
    assert_eq!(less.last("proc/vmstat").unwrap_err().to_string(), why("proc/vmstat"));
    assert_eq!(why("table tasks"), "cannot read table tasks: it is not in the recording");
}

#[test]
fn an_empty_recording_comes_back_too() {
    assert_eq!(through_file(&Recording::default()), Recording::default());
}

#[test]
fn unpacked_by_hand_it_is_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.why");
    let snapshots = vec![
        frame(0, "proc/loadavg", "1.0"),
        frame(10, "dev/kmsg", "boot"),
        frame(9_999, "proc/loadavg", "2.0"),
    ];
    let tables = Tables { tasks: Some(vec![Task { pid: 7, ..Task::default() }]), ..Tables::default() };
    store::save(&Recording { snapshots, tables, ..Recording::default() }, &file).unwrap();
    unpack(&file, folder.path());

    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(text("proc/loadavg"), "2.0");
    assert_eq!(text("earlier/0000000/proc/loadavg"), "1.0");
    assert_eq!(text("dev/kmsg"), "boot");
    assert!(text("tables/tasks.ndjson").starts_with(r#"{"pid":7,"#));
    assert!(text("whyslow.json").contains("\"format\": 0"));
    assert!(!folder.path().join("tables/cgroups.ndjson").exists());
}

#[test]
fn a_tree_of_copies_is_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/sys/kernel/hostname", "web-3\n");
    write("proc/version", "Linux version 5.10.0-30-amd64 (debian-kernel) ...\n");
    write("sys/kernel/mm/ksm/run", "0\n");
    write("earlier/0000000/proc/version", "x");
    write("tables/tasks.ndjson", "{\"pid\":7}\n");
    write("home/secret", "not ours");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("proc/link")).unwrap();
    let rec = store::open(folder.path()).unwrap();
    assert_eq!((rec.meta.host.as_str(), rec.meta.kernel.as_str()), ("web-3", "5.10.0-30-amd64"));
    let names: Vec<&str> = rec.snapshots.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["proc/sys/kernel/hostname", "proc/version", "proc/version", "sys/kernel/mm/ksm/run"]);
    assert_eq!(rec.tables.tasks.map(|t| t.len()), Some(1));
    assert_eq!(rec.torn, None);
    assert!(rec.missing[0].text.contains("1 symbolic link in"));
    assert_eq!(rec.missing.len(), 1);
}

#[test]
fn torn_recording_stays_torn_after_another_save() {
    let rec = Recording { torn: Some("the file ends early".to_owned()), ..Recording::default() };
    assert_eq!(through_file(&rec), rec);
}

/// `format-0.why` was written when the format was new; its content stays readable forever.
#[test]
fn a_recording_of_format_0_opens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/offline/store/format-0.why");
    let rec = store::open(&path).unwrap();
    assert_eq!((rec.meta.format, rec.meta.host.as_str(), rec.torn.as_deref()), (0, "web-3", None));
    assert_eq!((rec.snapshots.len(), rec.missing.len()), (38, 1));
    assert_eq!(rec.first("proc/stat").unwrap().at, Duration::ZERO);
    assert_eq!(rec.last("proc/stat").unwrap().at, Duration::from_secs(10));
    let tasks = rec.tables.tasks.unwrap();
    assert_eq!((tasks[3].pid, tasks[3].comm.as_str(), tasks[3].weight), (1003, "worker/3", 1024));
    assert!(!rec.tables.samples.unwrap()[1].user.is_empty());
}

/// Recorded here, reported elsewhere: without /proc, home or rights, only with the file.
#[test]
fn root_a_recording_opens_in_an_empty_chroot_by_nobody() {
    const CHILD: &str = "WHYSLOW_TEST_CHROOT";
    const NOBODY: libc::uid_t = 65534;
    if let Some(folder) = std::env::var_os(CHILD) {
        std::os::unix::fs::chroot(folder).unwrap();
        std::env::set_current_dir("/").unwrap();
        // SAFETY: plain calls that change this child alone; the list of groups is empty.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setgid(NOBODY), 0);
            assert_eq!(libc::setuid(NOBODY), 0);
        }
        let denied = format!("{:#}", store::open(Path::new("secret.why")).unwrap_err());
        assert_eq!(
            denied,
            "cannot open recording secret.why: Permission denied (os error 13); \
             only its owner may read it: chmod it, or run as its owner"
        );
        assert_eq!(store::open(Path::new("host.why")).unwrap(), sample::recording(100, 4));
        println!("opened");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    store::save(&sample::recording(100, 4), &path).unwrap();
    fs::copy(&path, folder.path().join("secret.why")).unwrap();
    for (path, mode) in [(path.as_path(), 0o644), (folder.path(), 0o755)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::round_trip::root_a_recording_opens_in_an_empty_chroot_by_nobody"])
        .args(["--nocapture", "--test-threads=1"])
        .env_clear()
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(said.contains("opened"), "{} {said} {}", child.status, String::from_utf8_lossy(&child.stderr));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z/.%\\n\\x00]{0,40}".prop_map(String::from)]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "(proc|sys|netns|dev)/[a-c]{1,2}(/[a-b])?",
        1 => "(/|[.]{1,2}/){0,3}(proc|tables|earlier|whyslow[.]json)?[a./%\\n]{0,9}",
        1 => any::<String>(),
        1 => "sys/[a-z]{150}(/[x%\u{fc}]{200}){0,6}",
    ]
}

fn any_frame() -> impl Strategy<Value = FileSnapshot> {
    (any_name(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..700)).prop_map(|(name, at, bytes)| {
        FileSnapshot { at: Duration::from_nanos(at % 30_000_000_000), name, bytes }
    })
}

fn any_tables() -> impl Strategy<Value = Tables> {
    let task = (any::<u32>(), any_text(), any::<Option<String>>(), any::<u64>(), any::<bool>()).prop_map(
        |(pid, comm, cmdline, exec_ns, born)| Task { pid, comm, cmdline, exec_ns, born, ..Task::default() },
    );
    let cpu = (any::<u32>(), prop::collection::vec((any_text(), any::<u64>(), any::<u64>()), 0..3))
        .prop_map(|(cpu, softirqs)| Cpu { cpu, softirqs, ..Cpu::default() });
    let group = (any::<u64>(), any::<Option<u64>>(), any_text()).prop_map(|(id, quota_ns, path)| {
        let cpu = Some(CgroupCpu { quota_ns, ..CgroupCpu::default() });
        Cgroup { id, cpu, path, ..Cgroup::default() }
    });
    let wait = prop::collection::vec(any_text(), 0..4).prop_map(|kernel| Wait { kernel, ..Wait::default() });
    let some = 0..4usize;
    (
        prop::option::of(prop::collection::vec(task, some.clone())),
        prop::option::of(prop::collection::vec(cpu, some.clone())),
        prop::option::of(prop::collection::vec(group, some.clone())),
        prop::option::of(prop::collection::vec(wait, some)),
    )
        .prop_map(|(tasks, cpus, cgroups, waits)| Tables {
            tasks,
            cpus,
            cgroups,
            waits,
            ..Tables::default()
        })
}

fn any_missing() -> impl Strategy<Value = MissingNote> {
    (any_text(), any_text(), any_text(), 0..5).prop_map(|(text, what, why, kind)| {
        let missing = match kind {
            0 => Missing::not_recorded(what),
            1 => Missing::broken(what, why),
            2 => Missing::skipped(what, why),
            3 => Missing::NotInKernel { what, needs: why },
            _ => Missing::NotAllowed { what, way_out: why },
        };
        MissingNote { text, missing }
    })
}

prop_compose! {
    fn any_recording()(
        snapshots in prop::collection::vec(any_frame(), 0..12),
        tables in any_tables(),
        missing in prop::collection::vec(any_missing(), 0..3),
        (host, boot_id, own_pids, window_ns) in
            (any_text(), any::<Option<String>>(), any::<Vec<u32>>(), any::<u64>()),
    ) -> Recording {
        let meta = Meta { format: FORMAT, host, boot_id, own_pids, window_ns, ..Meta::default() };
        Recording { meta, snapshots, tables, missing, torn: None }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_recording_comes_back_as_it_was(rec in any_recording()) {
        prop_assert_eq!(&through_file(&rec), &rec);
        prop_assert_eq!(&through_folder(&rec), &rec);
    }
}
