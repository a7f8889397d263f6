//! Calls fail because a resource is used up: room on a file system, open files, ports, tasks.
//!
//! Signal: system calls of any process that returned such an error in the window. No time measures the loss of a failed call, so these
//! findings stand below kills and above all losses of time.
//!
//! One failed call is a cause. Calls for open files of one process, ports, tasks or a service are a cause from three failures on. The title
//! adds the time that threads slept for a set time between two calls that failed alike, if they did not wait for something else first.

mod want;

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::{FailedCall, Task};
use whyslow_model::{Culprit, Finding, Missing, Probe, RuledOut, Subject, SubjectKind, command, seconds};

use self::want::Want;
use super::Rule;
use super::homes::Homes;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "failed-calls",
    question: "Do calls fail because a resource is used up?",
    what: "A file system is full or has no inode left; a process, a user or the host has reached its limit on open files, watched files or \
           tasks; all local ports for connections to one address are taken. Or the listen queue of a unix socket is full, or no process \
           listens there. The program gets an error: it tries again, gives up, or loses the data that it had to write.",
    how: "System calls that end with ENOSPC, EDQUOT, EMFILE or ENFILE; connect(2) with EADDRNOTAVAIL, or on unix sockets with EAGAIN or \
          ECONNREFUSED; fork(2) and clone(2) with EAGAIN: by process, call and file system. One failed call is a cause; for open files of a \
          process, ports, tasks and services it takes three. No time lost is computed; the sleeps between retries are reported beside.",
    limits: "Sleeps between retries: a program with a rhythm of its own sleeps as long where nothing fails. Sleeps of an event loop (epoll) \
             or at a futex (Java, Go), and sleeps where calls of two sorts fail in turn: not reported. More than 60,000 calls a second on a \
             CPU: only a twentieth of the time is observed, and the counts are lower bounds. More than 10,000 threads: no call is observed. \
             `run` and `attach`: no call is observed. 32-bit programs and io_uring: not seen. A call with a path: its file system is not \
             known, so its folder is reported. Limits on tasks: which limit was reached is not known. Several users or containers whose calls \
             lack the same resource: which of them reached its limit is not known. IPv6 connections: a missing address gives the same error as a \
             missing port, so they are left out. A program that opens files until it gets no more, on purpose and three times: reported like a \
             program that needs them. A program that connects from a taken port of its own choice: reported, too.",
    sources: "write(2), open(2), connect(2), fork(2), inotify_add_watch(2); include/uapi/asm-generic/errno.h.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A program that fails less often than this may only find out how many open files, ports or tasks it can get.
const RECURS: u64 = 3;
/// Shorter sleeps are not worth a word.
const LEAST_SLEPT: Duration = Duration::from_millis(100);
const UNIX_SOCKETS: &str = "ss -lxnp";
/// Findings that are reported: those with most failed calls.
const MOST_REPORTED: usize = 8;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let rows = ev.failed_calls()?;
    let mut wants: BTreeMap<Want, Vec<&FailedCall>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !ev.is_own(row.pid, row.tgid)) {
        if let Some(want) = Want::of(row) {
            wants.entry(want).or_default().push(row);
        }
    }
    wants.retain(|want, calls| !want.may_be_probed() || count(calls) >= RECURS);
    let tasks = ev.tasks().unwrap_or_default();
    let homes = Homes::of(ev, tasks);
    let mut found: Vec<Finding> =
        wants.iter().map(|(want, calls)| finding(ev, &homes, tasks, want, calls)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.failed_calls));
    super::first_few(&mut found, MOST_REPORTED);
    Ok(found)
}

fn count(calls: &[&FailedCall]) -> u64 {
    calls.iter().map(|row| row.count).fold(0, u64::saturating_add)
}

/// ", and its threads slept 4.2 s in all before they tried again": such a sleep looks voluntary, but is a wait for the used-up resource.
fn slept_between(calls: &[&FailedCall]) -> String {
    let slept = Duration::from_nanos(calls.iter().map(|row| row.slept_ns).fold(0, u64::saturating_add));
    match slept >= LEAST_SLEPT {
        true => format!(", and its threads slept {} in all before they tried again", seconds(slept)),
        false => String::new(),
    }
}

fn finding(ev: &Evidence<'_>, homes: &Homes, tasks: &[Task], want: &Want, calls: &[&FailedCall]) -> Finding {
    let count = count(calls);
    let victims: Vec<&Task> = tasks
        .iter()
        .filter(|task| task.pid == task.tgid && calls.iter().any(|row| row.tgid == task.tgid))
        .collect();
    let first = calls.iter().max_by_key(|row| row.count).copied();
    let victim = match (&victims[..], first) {
        ([], Some(row)) => {
            Subject::new(SubjectKind::Task, row.tgid.to_string(), ev.process_name(row.tgid, &row.comm))
        }
        _ => homes.payer(ev, &victims, None),
    };
    // If only a part of the window was observed, there may be more.
    let at_least = if ev.lacks_a_part(Probe::FailedCalls) { "at least " } else { "" };
    let failed = match count {
        1 => format!("{at_least}one of its calls failed"),
        _ => format!("{at_least}{count} of its calls failed{}", slept_between(calls)),
    };
    let row = first.cloned().unwrap_or_default();
    let found = Finding::failed(RULE.id, victim, count);
    let limit = |file: &'static str, name: &str| Culprit::new(SubjectKind::Limit, file, name).at_file(file);
    let device = if row.device.is_empty() { "a file system" } else { &row.device };
    let found = Finding { resource: want.resource(device), ..found };
    match want {
        Want::Room { place, quota } => of_room(found, &failed, &row, place, *quota),
        Want::Watches => found
            .titled(format!("{failed}: its user has reached the limit on watched files (inotify)"))
            .by(limit("/proc/sys/fs/inotify/max_user_watches", "fs.inotify.max_user_watches"))
            .check("the limit on watched files of a user", "cat /proc/sys/fs/inotify/max_user_watches")
            .advice(
                "let its programs watch fewer files, or raise fs.inotify.max_user_watches (costs kernel memory; undo: the value as it was)",
            ),
        Want::WatchQueues => found
            .titled(format!("{failed}: its user has reached the limit on inotify instances"))
            .by(limit("/proc/sys/fs/inotify/max_user_instances", "fs.inotify.max_user_instances"))
            .check("the limit on inotify instances of a user", "cat /proc/sys/fs/inotify/max_user_instances")
            .advice(
                "find the process that leaves them open, or raise fs.inotify.max_user_instances (costs kernel memory; undo: the value as it \
                 was)",
            ),
        Want::Descriptors(pid) => found
            .titled(format!("{failed}: it has reached its limit on open files (RLIMIT_NOFILE)"))
            .by(Culprit::new(SubjectKind::Limit, format!("/proc/{pid}/limits"), "its limit on open files"))
            .check("its limit on open files", command!("grep 'open files' /proc/{}/limits", pid))
            .check("its open files", command!("ls -l /proc/{}/fd 2>/dev/null | sort -k 11", pid))
            .advice(
                "find the files that it leaves open, or raise its limit (LimitNOFILE=, ulimit -n; costs kernel memory; undo: the value as it \
                 was)",
            ),
        Want::Files => found
            .titled(format!("{failed}: this host has reached its limit on open files"))
            .by(limit("/proc/sys/fs/file-max", "fs.file-max"))
            .check("open files, and the limit", "cat /proc/sys/fs/file-nr")
            .advice(
                "find the process that leaves files open, or raise fs.file-max (costs kernel memory; undo: the value as it was)",
            ),
        Want::Ports(peer) => found
            .titled(format!("{failed}: all local ports for connections to {peer} are taken"))
            .by(limit("/proc/sys/net/ipv4/ip_local_port_range", "net.ipv4.ip_local_port_range"))
            .check("the range of local ports", "cat /proc/sys/net/ipv4/ip_local_port_range")
            .check("connections that have ended and still keep a port (tw)", "grep TCP: /proc/net/sockstat")
            .advice(
                "let it keep its connections and use them again, or widen net.ipv4.ip_local_port_range in its network namespace (leaves fewer \
                 ports to listen on; undo: the value as it was)",
            ),
        Want::Accepted(socket) => found
            .titled(format!("{failed}: the listen queue of {socket} is full"))
            .by(Culprit::new(SubjectKind::Socket, socket, socket))
            .check("queued connections (Recv-Q), and the limit (Send-Q)", UNIX_SOCKETS)
            .advice(
                "let its service accept faster (more workers cost memory), or raise its backlog and net.core.somaxconn (clients wait longer \
                 in the queue; undo: the values as they were)",
            ),
        Want::Listener(socket) => found
            .titled(format!("{failed}: no process listens at {socket}"))
            .by(Culprit::new(SubjectKind::Socket, socket, socket))
            .check("listening sockets, with their processes", UNIX_SOCKETS)
            .advice("start its service, or find the reason for its end in its log"),
        Want::Tasks => found
            .titled(format!("{failed}: it has reached a limit on tasks (fork)"))
            .by(Culprit::new(SubjectKind::Limit, "tasks", "a limit on tasks"))
            .check("the limit on tasks of its user", command!("grep processes /proc/{}/limits", row.tgid))
            .advice(
                "find the process that starts so many tasks, or raise the limit (TasksMax=, pids.max, ulimit -u; costs memory; undo: the \
                 value as it was)",
            ),
    }
}

/// "80 of its calls failed: no room is left on vda1 (ext4), for big.log".
fn of_room(found: Finding, failed: &str, row: &FailedCall, place: &str, quota: bool) -> Finding {
    let is_open = !row.dev.is_empty();
    // tmpfs, overlay: they have no device, and give their type in its place.
    let of = match row.device == row.file_system {
        true => format!("its file system ({})", row.file_system),
        false => format!("{} ({})", row.device, row.file_system),
    };
    let (at, id) = match is_open {
        true => (of, row.dev.as_str()),
        false => (format!("the file system of {place}"), place),
    };
    let file = match row.file.rsplit('/').next() {
        Some(name) if !name.is_empty() => format!(", for {name}"),
        _ => String::new(),
    };
    let left = match quota {
        true => "its disk quota is used up",
        // An open file has an inode already.
        false if is_open => "no room is left",
        false => "no room or no inode is left",
    };
    let found =
        found.titled(format!("{failed}: {left} on {at}{file}")).by(Culprit::new(SubjectKind::Device, id, at));
    let found = found.check("free room and free inodes", "df -l --output=source,target,avail,iavail");
    found.advice(if quota {
        "remove files that its user does not need there, or raise the quota (takes room from other users)"
    } else {
        "remove files that are not needed there, or make the file system larger (needs room on its device)"
    })
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    // A part of the window was not observed, or a call failed and the resource that it needed is not known.
    let is_one_left =
        ev.failed_calls()?.iter().any(|row| row.streak_ns == 0 && !ev.is_own(row.pid, row.tgid));
    if is_one_left || ev.lacks_a_part(Probe::FailedCalls) {
        return Ok(None);
    }
    Ok(Some(RuledOut {
        what: "a full disk or table".into(),
        evidence: "no write, open, connect or fork failed because room, files, ports or tasks ran out".into(),
    }))
}

#[cfg(test)]
#[path = "failed_calls_tests.rs"]
mod tests;
