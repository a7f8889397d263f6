//! Stacks folded for a flame graph: what ran on CPU, and what waited, with the chain on top of the waiter's stack.
//!
//! The scope decides how wide the root is: a command's wall time (its main thread's, whose waits for children lead
//! to what they did), the wall time of all watched threads, or, for a whole host, CPU time and the waits that are losses.

mod off_cpu;
mod on_cpu;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::timeline::Command;
use whyslow_model::{Meta, Recording, seconds};

use crate::process_names;

/// Frames from the root outwards, and the time.
type Line = (Vec<String>, u64);

/// Characters of a command in a frame: arguments may be a program of their own.
const NAME: usize = 60;

/// What a flame graph shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// The scope: the subject of the time.
    pub title: String,
    /// What the width of the root is.
    pub subtitle: String,
    /// (frames from the root outwards with ';' between them, nanoseconds), in the order of frames.
    pub lines: Vec<(String, u64)>,
}

/// The folded stacks of a recording: the lines of its [`picture`].
#[must_use]
pub fn fold(recording: &Recording) -> Vec<(String, u64)> {
    picture(recording).lines
}

/// What the flame graph of a recording shows.
#[must_use]
pub fn picture(recording: &Recording) -> Picture {
    let scope = Scope::of(recording);
    let mut lines = on_cpu::lines(recording, &scope);
    lines.extend(waits(recording, &scope).into_iter().map(|line| under("off CPU", line)));
    if let Some(wall) = scope.wall(recording) {
        let reported = sum(&lines);
        if reported > wall {
            lines = fit(lines, wall);
        } else if reported < wall {
            lines.push((vec!["unexplained".to_owned()], wall - reported));
        }
    }
    let total = sum(&lines);
    let root = scope.root(total);
    let mut folded: Vec<_> = lines
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|line| under(&root, line))
        .map(|(frames, ns)| (frames.iter().map(|f| frame(f)).collect::<Vec<_>>().join(";"), ns))
        .collect();
    folded.sort();
    folded.dedup_by(|next, line| {
        let same = next.0 == line.0;
        if same {
            line.1 = line.1.saturating_add(next.1);
        }
        same
    });
    let (title, subtitle) = scope.titles(total);
    Picture { title, subtitle, lines: folded }
}

/// Waits as stacks: the waiter's name, its stack from the outermost frame, what it waited for, and the chain from there.
fn waits(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    if recording.tables.spans.is_none() {
        return off_cpu::lines(recording, scope);
    }
    let waits = crate::graph::paths(recording).into_iter().filter(|path| path.waits);
    waits.map(|path| (path.labels, path.ns)).collect()
}

/// The tasks whose time the graph shows.
enum Scope<'r> {
    /// A command's main thread.
    Command(&'r Command),
    /// These threads.
    Threads { subject: String, pids: BTreeSet<u32> },
    /// All tasks but whyslow's.
    Host(&'r Meta),
}

impl<'r> Scope<'r> {
    fn of(recording: &'r Recording) -> Self {
        match &recording.meta.watched {
            None => Scope::Host(&recording.meta),
            Some(watched) => match &watched.command {
                Some(command) => Scope::Command(command),
                None => {
                    let tasks = recording.tables.tasks.as_deref().unwrap_or_default();
                    let subject = process_names::subject(tasks, &watched.subject);
                    Scope::Threads { subject, pids: watched.pids.iter().copied().collect() }
                }
            },
        }
    }

    fn has(&self, pid: u32) -> bool {
        match self {
            Scope::Command(command) => command.pid == pid,
            Scope::Threads { pids, .. } => pids.contains(&pid),
            Scope::Host(meta) => pid != 0 && !meta.is_own(pid, pid),
        }
    }

    /// The part of a row's time that lies within the scope, and the row's time.
    fn overlap(&self, from: u64, to: u64) -> (u64, u64) {
        let all = to.saturating_sub(from);
        match self {
            Scope::Command(c) => (to.min(c.to_ns).saturating_sub(from.max(c.from_ns)), all),
            _ => (all, all),
        }
    }

    /// The width that the root must have; `None`: the sum of what is reported.
    fn wall(&self, recording: &Recording) -> Option<u64> {
        match self {
            Scope::Command(command) => Some(command.to_ns.saturating_sub(command.from_ns)),
            Scope::Threads { .. } => Some(self.lived(recording)),
            Scope::Host(_) => None,
        }
    }

    /// How long its threads existed in the window, summed up. A thread that did nothing may have no rows.
    fn lived(&self, recording: &Recording) -> u64 {
        let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
        for span in recording.tables.spans.iter().flatten().filter(|span| self.has(span.pid)) {
            let all = rows.entry(span.pid).or_default();
            *all = all.saturating_add(span.to_ns.saturating_sub(span.from_ns));
        }
        for task in recording.tables.tasks.iter().flatten().filter(|task| self.has(task.pid)) {
            let all = rows.entry(task.pid).or_default();
            *all = task.lived_ns.max(*all);
        }
        let window = recording.meta.window_ns;
        rows.into_values().fold(0, |all, ns| all.saturating_add(ns.min(window)))
    }

    fn root(&self, total: u64) -> String {
        let time = seconds(std::time::Duration::from_nanos(total));
        match self {
            Scope::Command(command) => format!("{} {time} wall", name(command)),
            Scope::Threads { subject, .. } => format!("{subject} {time} wall, all threads"),
            Scope::Host(_) => format!("{time} of CPU and waits"),
        }
    }

    fn titles(&self, total: u64) -> (String, String) {
        let time = seconds(std::time::Duration::from_nanos(total));
        match self {
            Scope::Command(command) => (
                format!("Wall time of {}", name(command)),
                format!(
                    "The root is as wide as its wall time, {time}: its main thread on CPU, and its waits"
                ),
            ),
            Scope::Threads { subject, pids } => (
                format!("Wall time of the threads of {subject}"),
                format!("The root is as wide as the wall time of {} threads, {time} in all", pids.len()),
            ),
            Scope::Host(_) => (
                "CPU time and waits of this host".to_owned(),
                format!(
                    "The root is as wide as the CPU time of all tasks and their waits that are losses, {time}"
                ),
            ),
        }
    }
}

fn name(command: &Command) -> String {
    let all = command.argv.join(" ");
    match all.char_indices().nth(NAME) {
        Some((at, _)) => format!("{}..", all.get(..at).unwrap_or_default()),
        None => all,
    }
}

fn sum(lines: &[Line]) -> u64 {
    lines.iter().fold(0, |all, (_, ns)| all.saturating_add(*ns))
}

fn under(root: &str, (mut frames, ns): Line) -> Line {
    frames.insert(0, root.to_owned());
    (frames, ns)
}

/// `lines` scaled so that they add up to `total`, to the nanosecond.
fn fit(mut lines: Vec<Line>, total: u64) -> Vec<Line> {
    let all = lines.iter().map(|(_, ns)| u128::from(*ns)).sum::<u128>();
    let mut left = total;
    for (_, ns) in &mut lines {
        *ns = share(total, u128::from(*ns), all);
        left = left.saturating_sub(*ns);
    }
    if let Some((_, most)) = lines.iter_mut().max_by_key(|(_, ns)| *ns) {
        *most = most.saturating_add(left);
    }
    lines
}

/// `part / all` of `ns`; 0 if `all` is 0.
fn share(ns: u64, part: u128, all: u128) -> u64 {
    let of = u128::from(ns).saturating_mul(part).checked_div(all).unwrap_or(0);
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// A name as one frame: ';' separates frames, and a line break separates lines.
pub(crate) fn frame(text: &str) -> String {
    if text.is_empty() {
        return "?".to_owned();
    }
    text.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}
