//! Signals reach the command, not whyslow.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use super::{rest, run_script, started, whyslow};

/// To the child alone, or, as a terminal does, to its process group; returns when it was delivered.
pub fn signal(child: &Child, signal: i32, group: bool) {
    let pid = child.id() as i32;
    // SAFETY: a child that has not been waited for, in a group of its own: the numbers are its.
    assert_eq!(unsafe { libc::kill(if group { -pid } else { pid }, signal) }, 0);
    let pending = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let sets = status.lines().filter(|l| l.starts_with("SigPnd:") || l.starts_with("ShdPnd:"));
        sets.filter_map(|l| u64::from_str_radix(l.get(7..)?.trim(), 16).ok())
            .any(|set| set >> (signal - 1) & 1 == 1)
    };
    while pending() {
        std::thread::yield_now();
    }
}

fn ended(mut child: Child) -> (i32, String) {
    let said = rest(child.stderr.take().unwrap());
    (child.wait().unwrap().code().expect("it was not killed"), said)
}

#[test]
fn root_ctrl_c_is_the_commands_and_the_report_follows() {
    let script = "trap 'kill $!; exit 7' INT; sleep 300 >/dev/null 2>&1 & echo up; wait";
    let (child, _out) = started(&mut run_script(&[], script));
    signal(&child, libc::SIGINT, true);
    let (status, said) = ended(child);
    assert_eq!(status, 7, "{said}");
    assert!(said.contains("whyslow 0."), "{said}");
}

#[test]
fn root_a_command_that_ctrl_c_ends_is_130() {
    let (child, _out) = started(&mut run_script(&[], "echo up; exec sleep 300"));
    signal(&child, libc::SIGINT, true);
    let (status, said) = ended(child);
    assert_eq!(status, 130, "{said}");
    assert!(said.contains("whyslow 0."), "{said}");
}

#[test]
fn root_a_second_ctrl_c_reports_at_once_and_leaves_the_command_alone() {
    let (mut child, out) = started(&mut run_script(&[], "trap '' INT; echo up; read word; echo $word"));
    let mut to = child.stdin.take().unwrap();
    signal(&child, libc::SIGINT, true);
    signal(&child, libc::SIGINT, true);
    let (status, said) = ended_beside(child);
    assert_eq!(status, 130, "{said}");
    assert!(said.contains("whyslow 0."), "{said}");
    to.write_all(b"still here\n").unwrap();
    assert_eq!(rest(out), "still here\n");
}

/// As `ended`, for a whyslow whose command still has its stderr open.
fn ended_beside(mut child: Child) -> (i32, String) {
    let status = child.wait().unwrap().code().expect("it was not killed");
    let mut said = vec![0; 1 << 16];
    let n = std::io::Read::read(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    said.truncate(n);
    (status, String::from_utf8_lossy(&said).into_owned())
}

const SENT: [(i32, &str); 4] =
    [(libc::SIGTERM, "TERM"), (libc::SIGHUP, "HUP"), (libc::SIGINT, "INT"), (libc::SIGQUIT, "QUIT")];

#[test]
fn root_signal_sent_to_whyslow_alone_is_passed_on() {
    for (number, name) in SENT {
        let script = format!("trap 'kill $!; exit 9' {name}; sleep 300 >/dev/null 2>&1 & echo up; wait");
        let (child, _out) = started(&mut run_script(&[], &script));
        signal(&child, number, false);
        assert_eq!(ended(child).0, 9, "{name}");
    }
    let (child, _out) = started(&mut run_script(&[], "echo up; exec sleep 300"));
    signal(&child, libc::SIGTERM, false);
    assert_eq!(ended(child).0, 143);
}

#[test]
fn root_ctrl_backslash_does_not_cost_the_report() {
    let (child, _out) = started(&mut run_script(&[], "ulimit -c 0; echo up; exec sleep 300"));
    signal(&child, libc::SIGQUIT, true);
    let (status, said) = ended(child);
    assert_eq!(status, 128 + libc::SIGQUIT, "{said}");
    assert!(said.contains("whyslow 0."), "{said}");
}

/// `run -- touch FILE` that gets these signals right after its fork.
fn asked_before_it_began(signals: &[i32]) -> (i32, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    let mut command = whyslow(&["run", "--", "touch", file.to_str().unwrap()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    while std::fs::read_to_string(&children).is_ok_and(|pids| pids.is_empty()) {
        std::thread::yield_now();
    }
    for number in signals {
        signal(&child, *number, false);
    }
    let (status, said) = ended(child);
    (status, said, file.exists())
}

#[test]
fn root_a_command_whose_end_is_asked_for_before_it_began_is_not_started() {
    for signals in [&[libc::SIGINT][..], &[libc::SIGTERM], &[libc::SIGHUP], &[libc::SIGINT, libc::SIGINT]] {
        let (status, said, begun) = asked_before_it_began(signals);
        assert!(!begun, "{signals:?}: the command began: {said}");
        assert_eq!(status, 128 + signals[0], "{signals:?}: {said}");
        let reported =
            ["before the command began", "asked twice to end"].iter().any(|words| said.contains(words));
        assert!(reported && said.lines().count() == 1, "{signals:?}: {said}");
    }
}
