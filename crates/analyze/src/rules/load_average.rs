//! The load average is far above the number of running tasks, because it also counts tasks in uninterruptible sleep.
//!
//! Signal: time of all tasks on a CPU or ready for one (R), and in uninterruptible sleep that counts as load (D), by what
//! the sleeps were for. No time lost is computed here: the rules for locks, disks and limits report the cost of each of these waits.
//! Not this rule: a load of tasks that want CPUs.
//!
//! Sleeps that the kernel does not count as load (TASK_NOLOAD: idle workers) are left out. The stacks show what the tasks wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::syscall::PID_MAX_LIMIT;
use whyslow_model::timeline::{Span, State};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Share, Subject, SubjectKind};

use super::Rule;
use crate::Evidence;
use crate::graph;
use crate::wait_reasons::{self, Stacks};

pub const RULE: Rule = Rule {
    id: "load-average",
    question: "Is the load average far above the number of running tasks, and what do the others wait for?",
    what: "Linux counts tasks in uninterruptible sleep (D) as load. A load of 40 on idle CPUs means that 40 tasks wait in the kernel: for \
           a disk, a lock, a dead file server, another program. More CPUs do not help them, and no counter says what they wait for.",
    how: "R and D are averages over the window: the time of all tasks on a CPU or ready for one, and in uninterruptible sleep, divided by \
          the window. D is split by what the tasks wait for, and by the task or thing at the end of the longest such waits. Reported when D \
          is at least 5 and R + D at least twice R; no time lost is computed.",
    limits: "Never a cause: the rules for locks, disks and limits report the cost of the waits. The load average itself: it is damped over \
             a minute and may lag behind.",
    sources: "kernel/sched/loadavg.c (calc_load_fold_active), include/linux/sched.h (TASK_NOLOAD, v4.2, 80ed87c8a9ca).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Any host that reads from its disks has a few tasks in D. Fewer than this are normal.
const MANY: f64 = 5.0;
/// The load is far above the number of running tasks when it is at least this many times as high.
const FAR_ABOVE: f64 = 2.0;
/// Kinds of waits that are reported.
const MOST: usize = 4;
/// A smaller part of D is not reported.
const WORTH_IT: f64 = 0.05;

/// Averages over the window, in tasks.
struct Load {
    ready: f64,
    waiting: f64,
}

impl Load {
    fn of(ev: &Evidence<'_>) -> Result<Self, Missing> {
        let window = ev.window().as_nanos() as f64;
        if window <= 0.0 {
            return Err(Missing::not_recorded("the length of the window"));
        }
        ev.waits_were_seen()?;
        let (mut ready, mut waiting) = (0.0, 0.0);
        for task in ev.tasks()? {
            ready += task.exec_ns as f64 + task.runnable_ns as f64;
            waiting += task.io_ns as f64 + task.blocked_ns as f64;
        }
        Ok(Load { ready: ready / window, waiting: waiting / window })
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let load = Load::of(ev)?;
    if load.waiting < MANY || load.ready + load.waiting < FAR_ABOVE * load.ready {
        return Ok(Vec::new());
    }
    Ok(vec![finding(ev, &load)?])
}

/// CPU time that no task used.
fn idle(ev: &Evidence<'_>) -> Result<Share, Missing> {
    let got: f64 = ev.tasks()?.iter().map(|task| task.exec_ns as f64).sum();
    let all = ev.window().as_nanos() as f64 * f64::from(ev.recording().meta.cpus.max(1));
    Ok(Share::of((all - got).max(0.0), all))
}

fn finding(ev: &Evidence<'_>, load: &Load) -> Result<Finding, Missing> {
    let kinds = wait_sums(ev, load.waiting)?;
    let now = ev.load().map(|now| format!("the load average is {:.1}: ", now.one)).unwrap_or_default();
    let parts: Vec<String> =
        kinds.iter().map(|kind| format!("{:.1} for {}", kind.tasks, kind.reported())).collect();
    let waits = if parts.is_empty() { "for things that were not seen".to_owned() } else { parts.join(", ") };
    let title = format!(
        "{now}in the window {:.1} tasks on average were in uninterruptible sleep, and {:.1} on a CPU or ready for one; {} \
         of CPU time was left over. They waited: {waits}",
        load.waiting,
        load.ready,
        idle(ev)?,
    );
    let window = ev.window();
    let mut finding = Finding::risk(RULE.id, Subject::host())
        .titled(title)
        .raw_wait(time_of(window, load.waiting))
        .check(
            "the tasks in D state, and in which function of the kernel",
            "ps -eLo pid,lwp,state,wchan:40,comm | awk '$3 == \"D\"'",
        )
        .check("what each task waits for, over some seconds", "whyslow chains --for 10s")
        .advice("repair or speed up what they wait for: more CPUs do not help tasks that wait in the kernel");
    if let Some(most) = kinds.first() {
        finding = finding.by(Culprit::new(SubjectKind::Kernel, most.reason.word(), most.reported()));
    }
    for kind in &kinds {
        finding = finding.hop(kind.hop(window));
    }
    Ok(finding)
}

/// The time of this many tasks over a window.
fn time_of(window: Duration, tasks: f64) -> Duration {
    window.mul_f64(tasks.clamp(0.0, f64::from(PID_MAX_LIMIT)))
}

/// Waits of one kind.
#[derive(Default)]
struct WaitSum {
    reason: Reason,
    state: TaskState,
    what: String,
    /// Tasks that waited for this, on average.
    tasks: f64,
    worst: Duration,
    pids: BTreeSet<u32>,
    /// Time by name of the thread.
    by: BTreeMap<String, u64>,
    /// The task or thing at the end of the longest of these waits.
    end: Option<String>,
}

impl WaitSum {
    fn who(&self) -> &str {
        self.by.iter().max_by_key(|(_, ns)| **ns).map_or("", |(who, _)| who)
    }

    fn reported(&self) -> String {
        match &self.end {
            Some(end) if !self.what.contains(end.as_str()) => format!("{} (at the end: {end})", self.what),
            _ => self.what.clone(),
        }
    }

    fn hop(&self, window: Duration) -> Hop {
        let who = match self.pids.len() {
            1 => format!("one task, {}", self.who()),
            all => format!("{all} tasks, most of them {}", self.who()),
        };
        let time = time_of(window, self.tasks);
        let hop = Hop::new(self.reason, who, self.reported(), self.state, time);
        Hop { worst: Some(self.worst), ..hop }
    }
}

/// What the tasks in D waited for, the kind with most tasks first; `all`: the number of tasks in D, on average.
fn wait_sums(ev: &Evidence<'_>, all: f64) -> Result<Vec<WaitSum>, Missing> {
    let window = ev.window().as_nanos() as f64;
    let stacks = ev.stacks();
    let mut kinds: BTreeMap<(Reason, String), (u64, WaitSum)> = BTreeMap::new();
    for span in ev.spans()?.iter().filter(|span| is_load(span)) {
        let kind = wait_reasons::of(span, stacks);
        let own = span.woken_ns.saturating_sub(span.at_ns);
        // A stack also represents the short waits before it.
        let ns = own.max(span.sampled_wait_ns);
        let (sum, reported) = kinds.entry((kind.reason, kind.detail.to_string())).or_default();
        *sum = sum.saturating_add(ns);
        reported.state = span.state.into();
        reported.worst = reported.worst.max(Duration::from_nanos(own));
        reported.pids.insert(span.pid);
        let by = reported.by.entry(stacks.names().together(span.pid, &span.comm)).or_default();
        *by = by.saturating_add(ns);
    }
    let ends = ends(ev, stacks);
    let seen: f64 = kinds.values().map(|(ns, _)| *ns as f64).sum::<f64>() / window;
    let scale = if seen > all { all / seen } else { 1.0 };
    let mut kinds: Vec<WaitSum> = kinds
        .into_iter()
        .map(|((reason, what), (ns, kind))| {
            let end = ends.get(&what).cloned();
            WaitSum { reason, what, tasks: ns as f64 / window * scale, end, ..kind }
        })
        .filter(|kind| kind.tasks >= WORTH_IT * all)
        .collect();
    kinds.sort_by(|a, b| b.tasks.total_cmp(&a.tasks));
    kinds.truncate(MOST);
    Ok(kinds)
}

fn is_load(span: &Span) -> bool {
    matches!(span.state, State::Io | State::Blocked)
}

/// For each thing that is waited for: the task or thing at the end of the most expensive chain that begins with such a wait.
fn ends(ev: &Evidence<'_>, stacks: &Stacks<'_>) -> BTreeMap<String, String> {
    let mut ends = BTreeMap::new();
    for reported in ev.host_chains().iter().filter(|reported| is_load(reported.head)) {
        let leaf = &reported.chain.leaf;
        if reported.chain.hops.len() > 1 && leaf.id != graph::UNKNOWN {
            let who = match leaf.kind {
                SubjectKind::Task => format!("{} ({})", leaf.name, leaf.id),
                _ => leaf.name.clone(),
            };
            ends.entry(wait_reasons::of(reported.head, stacks).detail.to_string()).or_insert(who);
        }
    }
    ends
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let load = Load::of(ev)?;
    Ok((load.waiting < MANY && load.waiting <= load.ready).then(|| RuledOut {
        what: "tasks in uninterruptible sleep".into(),
        evidence: format!("{:.1} on average, and {:.1} on a CPU or ready for one", load.waiting, load.ready),
    }))
}

#[cfg(test)]
#[path = "load_average_tests.rs"]
mod tests;
