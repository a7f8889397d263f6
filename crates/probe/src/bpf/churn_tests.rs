use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use whyslow_model::churn::Thing;

use super::*;
use crate::bpf::failed::Failed;
use crate::test_group::{Group, Victim};

/// Counts while `load` runs, by both halves: rows of this process.
fn counted(load: impl FnOnce()) -> Vec<Churn> {
    let (mut slot, mut other) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut churn = Probed::load(&mut slot).expect("root may load it");
    let mut failed = Failed::load(&mut other).expect("root may load it");
    Probe::begin(&mut churn).unwrap();
    Probe::begin(&mut failed).unwrap();
    load();
    let mut rows = rows(&churn.skel.maps.churns, 0);
    rows.extend(failed.churn());
    rows.retain(|row| row.tgid == std::process::id());
    rows
}

fn count(rows: &[Churn], what: ChurnKind) -> u64 {
    rows.iter().filter(|row| row.what == what.word()).map(|row| row.count).sum()
}

/// A child that calls unshare(2) with these flags before it executes.
fn unsharing(flags: i32) -> Command {
    unsharing_before(flags, "true")
}

fn unsharing_before(flags: i32, program: &str) -> Command {
    let mut command = Command::new(program);
    // SAFETY: one system call, which needs nothing of this process.
    unsafe {
        command.pre_exec(move || match libc::unshare(flags) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

#[test]
fn root_namespaces_of_children_count_as_the_older_process_above_them() {
    const UTS: u64 = 7;
    const IPC: u64 = 5;
    let rows = counted(|| {
        for _ in 0..UTS {
            assert!(unsharing(libc::CLONE_NEWUTS).status().unwrap().success());
        }
        for _ in 0..IPC {
            assert!(unsharing(libc::CLONE_NEWIPC | libc::CLONE_NEWUTS).status().unwrap().success());
        }
        // A call that fails makes none.
        assert!(unsharing(1).status().is_err());
    });
    assert_eq!(count(&rows, ChurnKind::UtsNamespace), UTS + IPC, "{rows:?}");
    assert_eq!(count(&rows, ChurnKind::IpcNamespace), IPC);
    assert_eq!(count(&rows, ChurnKind::NetNamespace), 0);
    assert!(rows.iter().all(|row| row.begun_ns > 0 && row.away_ns == 0 && !row.comm.is_empty()), "{rows:?}");
}

/// A child that does this before it executes.
fn doing(act: fn() -> libc::c_int) -> Command {
    let mut command = Command::new("true");
    // SAFETY: `act` makes system calls only.
    unsafe {
        command.pre_exec(move || match act() {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

/// In a mount namespace of its own: a new mount on /tmp, with the number that old programs add to the flags, a change of it, which is none, a
/// copy of it on top, and both removed.
fn mounts() -> libc::c_int {
    let (tmp, tmpfs, empty) = (c"/tmp".as_ptr(), c"tmpfs".as_ptr(), c"".as_ptr());
    let none = std::ptr::null();
    /// include/uapi/linux/mount.h
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
    // SAFETY: the strings live for ever, and no memory is written.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) != 0
            || libc::mount(tmpfs, tmp, tmpfs, libc::MS_MGC_VAL, none.cast()) != 0
            || libc::mount(none, tmp, none, libc::MS_REMOUNT | libc::MS_NOSUID, none.cast()) != 0
        {
            return -1;
        }
        let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, tmp, OPEN_TREE_CLONE);
        let moved =
            libc::syscall(libc::SYS_move_mount, tree, empty, libc::AT_FDCWD, tmp, MOVE_MOUNT_F_EMPTY_PATH);
        // A mount that is open is busy.
        let closed = libc::close(tree as libc::c_int);
        if tree < 0 || moved != 0 || closed != 0 || libc::umount2(tmp, 0) != 0 {
            return -1;
        }
        libc::umount2(tmp, 0)
    }
}

/// Its own UTS namespace, again.
fn enters() -> libc::c_int {
    // SAFETY: the string lives for ever, and no memory is written.
    unsafe {
        let own = libc::open(c"/proc/self/ns/uts".as_ptr(), libc::O_RDONLY);
        libc::setns(own, libc::CLONE_NEWUTS)
    }
}

/// A child in an IPC namespace of its own, made by clone(2).
fn clones() -> libc::c_int {
    // SAFETY: without a stack of its own the child is a copy, as of fork(2), and ends at once.
    unsafe {
        let flags = libc::CLONE_NEWIPC | libc::SIGCHLD;
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            0 => libc::_exit(0),
            child => {
                let reaped = libc::waitpid(child as i32, std::ptr::null_mut(), 0);
                i32::from(i64::from(reaped) != child)
            }
        }
    }
}

#[test]
fn root_mounts_entered_namespaces_and_clones_are_counted() {
    const TIMES: u64 = 3;
    let rows = counted(|| {
        for act in [mounts, enters, clones] {
            for _ in 0..TIMES {
                assert!(doing(act).status().unwrap().success());
            }
        }
    });
    let counts = [
        (ChurnKind::MountNamespace, TIMES),
        (ChurnKind::Mounted, 2 * TIMES),
        (ChurnKind::Unmounted, 2 * TIMES),
        (ChurnKind::NamespaceJoined, TIMES),
        (ChurnKind::IpcNamespace, TIMES),
        (ChurnKind::UtsNamespace, 0),
    ];
    assert_eq!(counts.map(|(what, _)| (what, count(&rows, what))), counts, "{rows:?}");
}

#[test]
fn root_cgroups_that_are_made_and_removed_and_moves_into_them_are_counted() {
    const GROUPS: u64 = 6;
    let Some(group) = Group::new("cpu") else { return };
    let rows = counted(|| {
        for n in 0..GROUPS {
            let made = group.file(&format!("g{n}"));
            std::fs::create_dir(&made).unwrap();
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            std::fs::write(made.join("cgroup.procs"), child.id().to_string()).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            while std::fs::remove_dir(&made).is_err() {
                std::thread::yield_now();
            }
        }
    });
    let counts = [ChurnKind::CgroupMade, ChurnKind::CgroupRemoved, ChurnKind::CgroupJoined];
    assert_eq!(counts.map(|what| count(&rows, what)), [GROUPS; 3], "{rows:?}");
}

/// Cgroups that go when this is dropped.
struct Dirs(Vec<PathBuf>);

impl Dirs {
    fn make(&mut self, group: &Group, count: usize) {
        for _ in 0..count {
            let dir = group.file(&format!("p{}", self.0.len()));
            std::fs::create_dir(&dir).unwrap();
            self.0.push(dir);
        }
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        self.0.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

/// Children in a UTS namespace of their own each, which live until this is dropped.
struct Held(Vec<Victim>);

impl Held {
    fn start(&mut self, count: usize) {
        for _ in 0..count {
            let mut command = unsharing_before(libc::CLONE_NEWUTS, "sleep");
            self.0.push(Victim(command.arg("60").spawn().unwrap()));
        }
    }
}

/// How much it grew from the first row to the last.
fn grew(rows: &[Population], thing: Thing) -> i64 {
    let counts: Vec<u64> = rows.iter().filter(|row| row.what == thing.word()).map(|row| row.count).collect();
    let [first, .., last] = counts[..] else { panic!("{thing} in fewer than two rows of {rows:?}") };
    last as i64 - first as i64
}

#[test]
fn root_populations_are_the_kernels_own_counts() {
    const MORE: usize = 8;
    let Some(group) = Group::new("cpu") else { return };
    let (mut slot, mut other) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut churn = Probed::load(&mut slot).expect("root may load it");
    let mut failed = Failed::load(&mut other).expect("root may load it");
    Probe::begin(&mut churn).unwrap();
    Probe::begin(&mut failed).unwrap();
    let (mut dirs, mut held) = (Dirs(Vec::new()), Held(Vec::new()));
    for (second, count) in [(1, 1), (2, MORE)] {
        dirs.make(&group, count);
        held.start(count);
        churn.poll(Duration::from_secs(second));
        Probe::poll(&mut failed, Duration::from_secs(second));
    }
    let rows: Vec<Population> = churn.populations.rows().into_iter().chain(failed.populations()).collect();
    for thing in [Thing::Cgroups, Thing::UtsNamespaces] {
        // Others may have made or removed some meanwhile.
        assert!((grew(&rows, thing) - MORE as i64).abs() <= 2, "{rows:?}");
    }
}
