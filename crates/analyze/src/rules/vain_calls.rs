//! A process does nothing but calls that fail, one after the other.
//!
//! Signal: system calls of one sort that failed alike 64 times and more without another call between them, and samples of the CPU in that call.
//! Lost: that CPU time, less what the process's sleeps absorb. Not this rule: calls that fail for want of something (`failed-calls`), or because
//! there is nothing to do yet (`spin`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::shell::Command;
use whyslow_model::table::{FailedCall, Sample};
use whyslow_model::{Culprit, Finding, Missing, Probe, SubjectKind, command};

use super::Rule;
use super::spent::{self, Spent, Time};
use crate::Evidence;
use crate::stacks::doing::{InCall, in_call};
use crate::stacks::syscalls::syscall_name;

pub const RULE: Rule = Rule {
    id: "vain-calls",
    question: "Do processes spend their time on calls that fail?",
    what: "A program closes each descriptor up to its limit on open files before it starts another, a million of which are not open; looks for a file \
           in each of thousands of folders; asks a dead socket or process again and again. Each call is cheap, and none does anything.",
    how: "System calls that failed alike 64 times or more, one after the other; samples of the CPU time in that call, and of the function of the \
          program that calls nothing else. Counterfactual: no such call; time lost = that CPU time, less what the task's sleeps absorb. Reported from \
          15 % of its time on.",
    limits: "Answers that say that there is nothing to do yet (EAGAIN, EINTR, EINPROGRESS, ETIMEDOUT) are no failures. Where a CPU makes more than \
             60,000 calls a second it looks at a twentieth of the time: then there are more than it says. Streaks that another task or another \
             call breaks each 64 times are not seen; nor calls of 32-bit programs, nor what io_uring does. Some programs have to try: a build that \
             asks for thousands of files that are not there yet. Of a program that makes all its calls in one function the CPU time outside the kernel is not told. \
             `run` and `attach` tell it as system calls.",
    sources: "include/uapi/asm-generic/errno-base.h; close(2), close_range(2).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Findings that are reported.
const MOST_REPORTED: usize = 4;

/// Calls of one sort that processes of one name made in vain.
#[derive(Default)]
struct Vain<'r> {
    rows: Vec<&'r FailedCall>,
}

impl Vain<'_> {
    fn count(&self) -> u64 {
        self.rows.iter().map(|row| row.count).fold(0, u64::saturating_add)
    }

    /// Which part of their calls it was, at least: others of their CPUs are counted as theirs.
    fn part(&self) -> f64 {
        let others = self.rows.iter().map(|row| row.others).fold(0, u64::saturating_add);
        self.count() as f64 / self.count().saturating_add(others).max(1) as f64
    }

    /// The error of most of them.
    fn error(&self) -> u32 {
        let mut by_error: BTreeMap<u32, u64> = BTreeMap::new();
        for row in &self.rows {
            let sum = by_error.entry(row.error).or_default();
            *sum = sum.saturating_add(row.count);
        }
        by_error.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(error, _)| error)
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.tasks()?;
    let mut vain: BTreeMap<(String, u32), Vain<'_>> = BTreeMap::new();
    let rows = ev.failed_calls()?.iter();
    for row in rows.filter(|row| row.streak_ns > 0 && !ev.is_own(row.pid, row.tgid)) {
        vain.entry((spent::name(ev, row.tgid, &row.comm), row.syscall)).or_default().rows.push(row);
    }
    if vain.is_empty() {
        return Ok(Vec::new());
    }
    let mut by_name: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    for sample in ev.samples()?.iter().filter(|one| one.tgid != 0 && !ev.is_own(one.pid, one.tgid)) {
        by_name.entry(spent::name(ev, sample.tgid, &sample.comm)).or_default().push(sample);
    }
    let samples = |name: &String| by_name.get(name).map_or(&[][..], Vec::as_slice);
    let found = vain.iter().filter_map(|((name, call), vain)| finding(ev, *call, vain, samples(name)));
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.lost));
    found.truncate(MOST_REPORTED);
    Ok(found)
}

/// stat(2) is `newstat` in the kernel.
fn is_call(kernel: &str, call: &str) -> bool {
    kernel.trim_start_matches("new") == call.trim_start_matches("new")
}

/// CPU time in a call, and in the functions of the program that make this call and no other.
fn spent_in(call: &str, part: f64, samples: &[&Sample]) -> Spent {
    let mut makes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        if let (InCall::Of(call), Some(function)) = (in_call(sample), sample.user.first()) {
            makes.entry(function).or_default().insert(call);
        }
    }
    let makes_only_it =
        |function: &str| makes.get(function).is_some_and(|calls| calls.iter().all(|one| is_call(one, call)));
    let mut spent = Spent::default();
    for sample in samples {
        let is_in_it = match in_call(sample) {
            InCall::Of(one) => is_call(one, call),
            InCall::Untold => sample.user.first().is_some_and(|function| makes_only_it(function)),
            InCall::Other => false,
        };
        if is_in_it {
            let on_cpu = Duration::from_nanos(sample.ns).mul_f64(part);
            spent.add(sample.pid, "", Time { on_cpu, ..Time::default() });
        }
    }
    spent
}

fn finding(ev: &Evidence<'_>, call: u32, vain: &Vain<'_>, samples: &[&Sample]) -> Option<Finding> {
    let name = syscall_name(call);
    let felt = spent_in(&name, vain.part(), samples).felt(ev)?;
    let (count, error) = (vain.count(), vain.error());
    let at_least = if ev.lacks_a_part(Probe::FailedCalls) { "at least " } else { "" };
    let answer = answer(&name, error);
    let what = format!("calls of {name} that fail ({answer})");
    let title = format!(
        "{at_least}{count} calls of {name} failed one after the other ({answer}) and took {}",
        felt.time.words()
    );
    let (text, line) = check_of(ev, &name, error, felt.pid);
    let finding =
        felt.cause(RULE.id).titled(title).by(Culprit::new(SubjectKind::Kernel, name.as_ref(), &what));
    Some(finding.check(text, line).advice(advice(&name, error)).hop(felt.hop(what)))
}

const EBADF: u32 = 9;

fn closes_what_is_not_open(call: &str, error: u32) -> bool {
    call == "close" && error == EBADF
}

/// "EBADF: not open".
fn answer(call: &str, error: u32) -> String {
    let name = match error {
        1 => "EPERM",
        2 => "ENOENT: there is none",
        3 => "ESRCH: no such process",
        9 if call == "close" => "EBADF: not open",
        9 => "EBADF: no such descriptor",
        10 => "ECHILD: it has no child",
        13 => "EACCES",
        14 => "EFAULT",
        17 => "EEXIST",
        20 => "ENOTDIR",
        22 => "EINVAL",
        25 => "ENOTTY",
        32 => "EPIPE: the other end is closed",
        38 => "ENOSYS",
        104 => "ECONNRESET",
        107 => "ENOTCONN",
        _ => return format!("error {error}"),
    };
    name.to_owned()
}

fn check_of(ev: &Evidence<'_>, call: &str, error: u32, pid: u32) -> (&'static str, Command) {
    // A child that has ended had the limits of its parent.
    let pid = ev.task(pid).filter(|task| task.ended).map_or(pid, |task| task.ppid);
    match closes_what_is_not_open(call, error) {
        true => ("how many descriptors it may have", command!("grep 'open files' /proc/{}/limits", pid)),
        false => ("how busy its threads are", command!("top -H -b -n 1 -p {}", pid)),
    }
}

fn advice(call: &str, error: u32) -> &'static str {
    match closes_what_is_not_open(call, error) {
        true => {
            "lower its limit on open files (LimitNOFILE=, ulimit -n, --ulimit nofile of containers; undo: the value as it was), or let it \
             close only what is open (close_range(2), /proc/self/fd)"
        }
        false => "find out in its source or its settings why it makes again a call that has failed",
    }
}

#[cfg(test)]
#[path = "vain_calls_tests.rs"]
mod tests;
