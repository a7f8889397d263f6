//! Calls fail because something is used up: room, open files, ports, tasks.
//!
//! Signal: system calls that returned such an error in the window, whoever's. No time measures what is lost with a call that failed: these
//! stand below kills and above all losses of time.

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
    question: "Do calls fail because something is used up?",
    what: "A file system is full, or has no inode left; a process, a user or the host has as many open files, watched files or tasks as it may; \
           all local ports for connections to one place are taken; the listen queue of a unix socket is full, or no process listens there. A program gets an error then, and tries again, gives up or loses what it had \
           to write.",
    how: "System calls that end with ENOSPC, EDQUOT, EMFILE or ENFILE, connect(2) with EADDRNOTAVAIL, or of unix sockets EAGAIN and ECONNREFUSED, and fork(2) and clone(2) with EAGAIN, by \
          process, call and file system. One that failed is a cause, of those that want open files of a process, ports, tasks or a service three: no time \
          measures what was lost with them. What its threads slept for a set time between two that failed alike is said with them, if nothing else \
          was waited for first.",
    limits: "A program that asks in a rhythm of its own sleeps as long where nothing fails; the sleep of an event loop (epoll), or at a futex (Java, Go), is not told, nor where calls of two sorts fail in turn. Where a CPU makes more than 60,000 calls a second it looks at a twentieth of the time: then there are more than it says. Where there are more than 10,000 threads it does not look. `run` and `attach` do not look. Calls of 32-bit \
             programs are not seen; nor is what io_uring does. Of a call with a path it is not known on which file system that is: it is told by its \
             folder. Which of the limits on tasks was met is not known; nor whose of several users or containers, where their calls are in want of the same. Connections of IPv6 that find no address say the same as those that find no \
             port, and are left out. A program that asks for open files until it gets no more, on purpose and three times, is taken for one in need; so is one that connects from \
             a port of its own choice that is taken.",
    sources: "write(2), open(2), connect(2), fork(2), inotify_add_watch(2); include/uapi/asm-generic/errno.h.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A program that is refused open files, ports or tasks less often may find out in this way how many there are.
const RECURS: u64 = 3;
/// Less than this is a moment.
const LEAST_SLEPT: Duration = Duration::from_millis(100);
const UNIX_SOCKETS: &str = "ss -lxnp";
/// Findings that are reported: the wants of most calls.
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

/// ", and its threads slept 4.2 s in all before they tried again": what looks like a sleep of their own is a wait for what is used up.
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
    // Where it was looked at in part there may be more.
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
            .titled(format!("{failed}: its user watches as many files as a user may (inotify)"))
            .by(limit("/proc/sys/fs/inotify/max_user_watches", "fs.inotify.max_user_watches"))
            .check("how many a user may watch", "cat /proc/sys/fs/inotify/max_user_watches")
            .advice("let its programs watch less, or raise fs.inotify.max_user_watches (undo: the value as it was)"),
        Want::WatchQueues => found
            .titled(format!("{failed}: its user has as many inotify instances as a user may"))
            .by(limit("/proc/sys/fs/inotify/max_user_instances", "fs.inotify.max_user_instances"))
            .check("how many a user may have", "cat /proc/sys/fs/inotify/max_user_instances")
            .advice("find out who leaves them open, or raise fs.inotify.max_user_instances (undo: the value as it was)"),
        Want::Descriptors(pid) => found
            .titled(format!("{failed}: it has as many open files as it may (RLIMIT_NOFILE)"))
            .by(Culprit::new(SubjectKind::Limit, format!("/proc/{pid}/limits"), "its limit on open files"))
            .check("how many it may have", command!("grep 'open files' /proc/{}/limits", pid))
            .check("what it has open", command!("ls -l /proc/{}/fd 2>/dev/null | sort -k 11", pid))
            .advice("find out what it leaves open, or raise its limit (LimitNOFILE=, ulimit -n; undo: the value as it was)"),
        Want::Files => found
            .titled(format!("{failed}: this host has as many open files as it may"))
            .by(limit("/proc/sys/fs/file-max", "fs.file-max"))
            .check("open files, and the limit", "cat /proc/sys/fs/file-nr")
            .advice("find out who leaves files open, or raise fs.file-max (undo: the value as it was)"),
        Want::Ports(peer) => found
            .titled(format!("{failed}: all local ports for connections to {peer} are taken"))
            .by(limit("/proc/sys/net/ipv4/ip_local_port_range", "net.ipv4.ip_local_port_range"))
            .check("which ports there are", "cat /proc/sys/net/ipv4/ip_local_port_range")
            .check("connections that have ended and keep theirs (tw)", "grep TCP: /proc/net/sockstat")
            .advice(
                "let it keep its connections and use them again, or widen net.ipv4.ip_local_port_range in its network namespace (undo: the \
                 value as it was)",
            ),
        Want::Accepted(socket) => found
            .titled(format!("{failed}: the listen queue of {socket} is full"))
            .by(Culprit::new(SubjectKind::Socket, socket, socket))
            .check("queued connections (Recv-Q), of how many (Send-Q)", UNIX_SOCKETS)
            .advice("let its service accept faster (more workers), or raise its backlog and net.core.somaxconn (undo: the values as they were)"),
        Want::Listener(socket) => found
            .titled(format!("{failed}: no process listens at {socket}"))
            .by(Culprit::new(SubjectKind::Socket, socket, socket))
            .check("sockets that listen, with their processes", UNIX_SOCKETS)
            .advice("start its service, or find out from its log why it ended"),
        Want::Tasks => found
            .titled(format!("{failed}: there are as many tasks as it may have (fork)"))
            .by(Culprit::new(SubjectKind::Limit, "tasks", "a limit on tasks"))
            .check("how many its user may have", command!("grep processes /proc/{}/limits", row.tgid))
            .advice("find out who starts so many, or raise the limit (TasksMax=, pids.max, ulimit -u; undo: the value as it was)"),
    }
}

/// "80 of its calls failed: no room is left on vda1 (ext4), for big.log".
fn of_room(found: Finding, failed: &str, row: &FailedCall, place: &str, quota: bool) -> Finding {
    let is_open = !row.dev.is_empty();
    // tmpfs, overlay: they have no device, and call it what they are.
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
        // What is open has an inode.
        false if is_open => "no room is left",
        false => "no room or no inode is left",
    };
    let found =
        found.titled(format!("{failed}: {left} on {at}{file}")).by(Culprit::new(SubjectKind::Device, id, at));
    let found = found.check("room and inodes that are left", "df -l --output=source,target,avail,iavail");
    found.advice(if quota {
        "remove what its user does not need there, or raise the quota"
    } else {
        "remove what is not needed there, or make the file system larger"
    })
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    // A part of the window was not looked at, or a call failed of which it is not known what it was in want of.
    let is_one_left =
        ev.failed_calls()?.iter().any(|row| row.streak_ns == 0 && !ev.is_own(row.pid, row.tgid));
    if is_one_left || ev.lacks_a_part(Probe::FailedCalls) {
        return Ok(None);
    }
    Ok(Some(RuledOut {
        what: "a full disk or table".into(),
        evidence: "no write, open, connection or fork failed for want of room, files, ports or tasks".into(),
    }))
}

#[cfg(test)]
#[path = "failed_calls_tests.rs"]
mod tests;
