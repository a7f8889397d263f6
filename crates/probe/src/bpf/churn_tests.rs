use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::*;
use crate::bpf::failed::Failed;
use crate::test_group::Group;

/// Counts while `load` runs, by both halves: rows of this process.
fn counted(load: impl FnOnce()) -> Vec<Churn> {
    let (mut slot, mut other) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut churn = Probed::load(&mut slot).expect("root may load it");
    let mut failed = Failed::load(&mut other, 0).expect("root may load it");
    Probe::begin(&mut churn).unwrap();
    Probe::begin(&mut failed).unwrap();
    load();
    let mut rows = merged(rows(&churn.skel.maps.churns, 0), failed.churn());
    rows.retain(|row| row.tgid == std::process::id());
    rows
}

fn count(rows: &[Churn], what: ChurnKind) -> u64 {
    rows.iter().filter(|row| row.what == what.word()).map(|row| row.count).sum()
}

/// A child that calls unshare(2) with these flags before it executes.
fn unsharing(flags: i32) -> Command {
    let mut command = Command::new("true");
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

#[test]
fn namespaces_of_both_halves_are_summed() {
    let row = |tgid, what: &str, count, away_ns| Churn {
        tgid,
        what: what.into(),
        count,
        away_ns,
        ..Churn::default()
    };
    let one = vec![row(1, "a", 2, 0), row(2, "a", 9, 0)];
    let rows = merged(one, vec![row(1, "a", 3, 7), row(1, "b", u64::MAX, 7)]);
    assert_eq!(rows, [row(1, "b", u64::MAX, 7), row(2, "a", 9, 0), row(1, "a", 5, 7)]);
    assert_eq!(merged(rows.clone(), vec![row(1, "b", 1, 0)]), rows, "a sum that is full stays so");
}
