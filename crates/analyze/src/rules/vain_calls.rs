//! A process makes calls that fail, one after the other, and does nothing else.
//!
//! Signal: system calls of one sort that failed alike 64 times or more in a row, each within 50 us of the one before, for a reason that stays; and
//! samples of the CPU in that call. Lost: that CPU time, less what the process's sleeps absorb. Not this rule: calls that fail because a
//! resource is used up (`failed-calls`), or because there is nothing to do yet (`spin`).
//!
//! The CPU time counts the samples in that call, and the samples in functions of the program that make no other call. It is capped at the time
//! that passed between the first and the last of the failed calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::shell::Command;
use whyslow_model::table::{FailedCall, Sample};
use whyslow_model::{Culprit, Finding, Missing, Probe, SubjectKind, command, counted};

use super::Rule;
use super::spent::works::work_of;
use super::spent::{Spent, Time};
use crate::Evidence;
use crate::stacks::doing::{InCall, in_call};
use crate::stacks::syscalls::syscall_name;

pub const RULE: Rule = Rule {
    id: "vain-calls",
    question: "Do processes spend their time on calls that fail?",
    what: "A program closes each descriptor up to its limit on open files before it starts another program, and a million of them are not \
           open; or it looks for a file in each of thousands of folders; or it calls a dead socket or process again and again. Each call is \
           cheap, and none has an effect.",
    how: "System calls that failed alike 64 times or more in a row, each within 50 us of the one before, for a reason that stays; and samples of the \
          CPU in that call, or in functions that make no other call. Counterfactual: no such call. Time lost = that CPU time, at most the time \
          between the first and the last failure, less what the task's sleeps absorb, from 15 % of the task's time on.",
    limits: "Errors that mean \"nothing to do yet\" or \"taken\": no failures. More than 60,000 calls a second on a CPU: only a twentieth of \
             the time is observed, the counts are lower bounds, and only the samples show the time of the calls. Streaks that another task or \
             another call breaks before 64 failures: not seen. Calls that take longer, calls of 32-bit programs, and io_uring: not seen. \
             Programs that have to try, such as a build that looks for thousands of files that do not exist yet: reported, too. A program that \
             makes all its calls in one function: its CPU time outside the kernel is not reported. Children of a process that live for less \
             than a second: reported together. `run` and `attach`: reported as system calls.",
    sources: "include/uapi/asm-generic/errno-base.h; close(2), close_range(2).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Findings that are reported.
const MOST_REPORTED: usize = 4;

/// Failed calls of one sort: of a process, or of its short-lived children. The parts: pid of the process, whether its children made the calls,
/// number of the system call.
type Key = (u32, bool, u32);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.tasks()?;
    let mut vain: BTreeMap<Key, Vec<&FailedCall>> = BTreeMap::new();
    let rows = ev.failed_calls()?.iter();
    for row in rows.filter(|row| row.streak_ns > 0 && !ev.is_own(row.pid, row.tgid)) {
        vain.entry((row.tgid, row.of_children, row.syscall)).or_default().push(row);
    }
    if vain.is_empty() {
        return Ok(Vec::new());
    }
    let mut by_process: BTreeMap<(u32, bool), Vec<&Sample>> = BTreeMap::new();
    for sample in ev.samples()?.iter().filter(|one| one.tgid != 0 && !ev.is_own(one.pid, one.tgid)) {
        by_process.entry((sample.tgid, false)).or_default().push(sample);
        if let Some(child) = ev.task(sample.tgid).filter(|task| task.born) {
            by_process.entry((child.ppid, true)).or_default().push(sample);
        }
    }
    let samples = |tgid, children| by_process.get(&(tgid, children)).map_or(&[][..], Vec::as_slice);
    let found = vain
        .iter()
        .filter_map(|((tgid, children, call), rows)| finding(ev, *call, rows, samples(*tgid, *children)));
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    super::first_few(&mut found, MOST_REPORTED);
    Ok(found)
}

/// stat(2) is `newstat` in the kernel, umount2(2) `umount`, sendfile(2) `sendfile64`.
fn is_call(kernel: &str, call: &str) -> bool {
    let plain =
        |name: &str| name.trim_start_matches("new").trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    plain(kernel) == plain(call)
}

/// CPU time in a call, and in the functions of the program that make this call and no other. It is capped at `most`, the time between the first
/// and the last of the failed calls.
fn spent_in(call: &str, most: Duration, samples: &[&Sample]) -> Spent {
    let mut makes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        if let (InCall::Of(call), Some(function)) = (in_call(sample), sample.user.first()) {
            makes.entry(function).or_default().insert(call);
        }
    }
    let makes_only_it =
        |function: &str| makes.get(function).is_some_and(|calls| calls.iter().all(|one| is_call(one, call)));
    // `extra-work` reports the work inside such calls: for example the rules of a packet filter that refuse each packet.
    let samples = samples.iter().filter(|sample| work_of(&sample.kernel).is_none());
    let samples: Vec<&Sample> = samples.copied().collect();
    let is_in_it = |sample: &&&Sample| match in_call(sample) {
        InCall::Of(one) => is_call(one, call),
        InCall::Untold => sample.user.first().is_some_and(|function| makes_only_it(function)),
        InCall::Other => false,
    };
    let all: Duration = samples.iter().filter(is_in_it).map(|sample| Duration::from_nanos(sample.ns)).sum();
    let part = (most.as_secs_f64() / all.as_secs_f64().max(1e-9)).min(1.0);
    let mut spent = Spent::default();
    for sample in samples.iter().filter(is_in_it) {
        let on_cpu = Duration::from_nanos(sample.ns).mul_f64(part);
        spent.add(sample.pid, "", Time { on_cpu, ..Time::default() });
    }
    spent
}

/// How long the failed calls took, extrapolated to the part of the window that was not observed.
fn at_most(ev: &Evidence<'_>, rows: &[&FailedCall]) -> Duration {
    let seen = rows.iter().map(|row| row.streak_ns).fold(0, u64::saturating_add);
    let away = rows.iter().map(|row| row.away_ns).max().unwrap_or(0);
    let window = ev.window();
    let looked = window.saturating_sub(Duration::from_nanos(away)).max(Duration::from_millis(1));
    Duration::from_nanos(seen)
        .mul_f64(window.as_secs_f64() / looked.as_secs_f64())
        .min(window.saturating_mul(MOST_CPUS))
}

/// No process runs on more CPUs than this: larger numbers come from a broken recording.
const MOST_CPUS: u32 = 65_536;

/// The most frequent error.
fn most_common(rows: &[&FailedCall]) -> u32 {
    let mut by_error: BTreeMap<u32, u64> = BTreeMap::new();
    for row in rows {
        let sum = by_error.entry(row.error).or_default();
        *sum = sum.saturating_add(row.count);
    }
    by_error.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(error, _)| error)
}

fn finding(ev: &Evidence<'_>, call: u32, rows: &[&FailedCall], samples: &[&Sample]) -> Option<Finding> {
    let name = syscall_name(call);
    let felt = spent_in(&name, at_most(ev, rows), samples).felt(ev)?;
    let count = rows.iter().map(|row| row.count).fold(0, u64::saturating_add);
    let error = most_common(rows);
    let at_least = if ev.lacks_a_part(Probe::FailedCalls) { "at least " } else { "" };
    let answer = answer(&name, error);
    let what = format!("calls of {name} that fail ({answer})");
    let title = format!(
        "{at_least}{} of {name} failed one after the other ({answer}) and took {}",
        counted(count, "call"),
        felt.time.words()
    );
    let (text, line) = check_of(ev, &name, error, felt.pid);
    let finding =
        felt.cause(RULE.id).titled(title).by(Culprit::new(SubjectKind::Kernel, name.as_ref(), &what));
    let finding = finding.check(text, line).advice(advice(&name, error)).hop(felt.hop(what));
    Some(Finding { overlaps: ["extra-work", "spin"].map(str::to_owned).to_vec(), ..finding })
}

const EBADF: u32 = 9;

fn closes_what_is_not_open(call: &str, error: u32) -> bool {
    call == "close" && error == EBADF
}

/// "EBADF: not open".
fn answer(call: &str, error: u32) -> String {
    let name = match error {
        1 => "EPERM",
        2 => "ENOENT: it does not exist",
        3 => "ESRCH: no such process",
        9 if call == "close" => "EBADF: not open",
        9 => "EBADF: no such descriptor",
        10 => "ECHILD: it has no child",
        13 => "EACCES",
        14 => "EFAULT",
        20 => "ENOTDIR",
        88 => "ENOTSOCK",
        22 => "EINVAL",
        25 => "ENOTTY",
        32 => "EPIPE: the other end is closed",
        38 => "ENOSYS",
        107 => "ENOTCONN",
        _ => return format!("error {error}"),
    };
    name.to_owned()
}

fn check_of(ev: &Evidence<'_>, call: &str, error: u32, pid: u32) -> (&'static str, Command) {
    // A child that has ended had the limits of its parent, which can still be read.
    let pid = ev.task(pid).filter(|task| task.ended).map_or(pid, |task| task.ppid);
    match closes_what_is_not_open(call, error) {
        true => ("its limit on open files", command!("grep 'open files' /proc/{}/limits", pid)),
        false => ("how busy its threads are", command!("top -H -b -n 1 -p {}", pid)),
    }
}

fn advice(call: &str, error: u32) -> &'static str {
    match closes_what_is_not_open(call, error) {
        true => {
            "lower its limit on open files (LimitNOFILE=, ulimit -n, --ulimit nofile of containers; costs: it can open fewer files; undo: the \
             value as it was), or let it close only open descriptors (close_range(2), /proc/self/fd)"
        }
        false => "find out in its source or its settings why it repeats a call that has failed",
    }
}

#[cfg(test)]
#[path = "vain_calls_tests.rs"]
mod tests;
