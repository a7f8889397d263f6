//! The sched probe's timelines, kept small: stacks once each, and fewer when there are too many.

mod compact;

use std::collections::HashMap;
use std::ffi::c_char;
use std::mem::size_of;

use whyslow_model::Missing;
use whyslow_model::timeline::RUNS_IN_PART;

use super::constants::rows_h::{ROW_RUN, ROW_SPAN, ROW_WAKE};
use super::sched::{sched_ends, sched_exit, sched_run, sched_span, sched_span_stack, sched_wake};
use super::value;

/// Rows of spans that are kept, about 370 bytes each. When there are more, short lives and short waits go into the sums.
const MOST: usize = 120_000;
/// Runs, 32 bytes each. When there are more, the shorter half is dropped, and the report says so.
const MOST_RUNS: usize = 200_000;
/// Different stacks of the kernel: a busy host has some thousands. Beyond that a row has no stack.
const MOST_STACKS: usize = 32_768;
/// Names of ended tasks that are remembered, by the low bits of their pid.
const NAMES: usize = 65_536;

/// A task's name, as the kernel has it.
pub type Comm = [c_char; 16];

/// A span and its stack.
#[derive(Clone, Copy, Default)]
pub struct SpanRow {
    /// As the kernel half sent it.
    pub span: sched_span,
    /// Its stack, in `Rows::stack`.
    pub stack: Option<u32>,
    /// Waiting time that it stands for, its own included; 0: for none.
    pub stands: u64,
}

/// A waker.
#[derive(Clone, Default)]
pub struct WakeRow {
    /// The current task.
    pub waker: u32,
    /// Its process; 0: not known.
    pub tgid: u32,
    /// `enum wake_context` of the kernel half.
    pub context: u32,
    /// The function of the work item that it ran.
    pub work: u64,
    pub comm: Comm,
    pub stack: Option<u32>,
    /// What it sent, or a softirq delivered. Few have it: there may be a quarter of a million rows.
    pub sent: Option<Box<SentRow>>,
}

/// The data that a waker sent.
#[derive(Clone, Copy, Default)]
pub struct SentRow {
    /// The socket at which data came.
    pub ready: sched_ends,
    /// The socket that the current task's system call worked on.
    pub sends: sched_ends,
    /// In this system call; -1: none.
    pub call: i32,
    /// Ticks since the socket at which data came had sent, and one; 0: not known.
    pub sent_ticks: u32,
    /// Which end of a unix socket sent (`peers.bpf.h`).
    pub unix_role: u32,
    /// Data that came at a socket wake its waiters.
    pub by_data: bool,
}

/// All that was reported.
#[derive(Default)]
pub struct Rows {
    /// In order of time for each task.
    pub spans: Vec<SpanRow>,
    /// By the woken task, and `key`.
    pub wakes: HashMap<(u32, u64), WakeRow>,
    /// Which task had which CPU.
    pub runs: Vec<sched_run>,
    stacks: Vec<Vec<u64>>,
    known: HashMap<Vec<u64>, u32>,
    names: Vec<(u32, Comm)>,
    /// Spans are compacted when there are so many, if not at `MOST`.
    next: usize,
    /// Records that are in no row.
    dropped: Dropped,
}

/// Records for which there was no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Dropped {
    runs: u64,
    longest_run_ns: u64,
    stacks: u64,
}

impl Rows {
    /// Take one record of the ring buffer. A record that is not one of ours is dropped.
    pub fn note(&mut self, bytes: &[u8]) {
        let kind = bytes.first_chunk().map(|head| u32::from_ne_bytes(*head));
        match (kind, bytes.len()) {
            // The ring rounds sizes up to 8 bytes; so are ours.
            (Some(ROW_SPAN), n) if n == size_of::<sched_span_stack>() => {
                let row: sched_span_stack = value(bytes);
                let stack = self.stack_of(row.span.depth, &row.frames);
                self.keep(SpanRow { stack, ..SpanRow::of(row.span) });
            }
            (Some(ROW_SPAN), n) if n == size_of::<sched_span>() => self.keep(SpanRow::of(value(bytes))),
            (Some(ROW_WAKE), n) if n == size_of::<sched_wake>() => self.note_wake(&value(bytes)),
            (Some(ROW_RUN), n) if n == size_of::<sched_run>() => self.note_run(value(bytes)),
            _ => {}
        }
    }

    fn note_wake(&mut self, wake: &sched_wake) {
        let stack = self.stack_of(wake.depth, &wake.frames);
        let &sched_wake { waker, waker_tgid: tgid, context, work, comm, .. } = wake;
        let &sched_wake { ready, sends, call, sent_ticks, unix_role, by_data, .. } = wake;
        let by_data = by_data != 0;
        let is_sent = ready.family != 0 || sends.family != 0 || unix_role != 0;
        let sent = is_sent.then(|| Box::new(SentRow { ready, sends, call, sent_ticks, unix_role, by_data }));
        if self.wakes.len() >= 2 * MOST {
            self.forget_wakes();
        }
        let row = WakeRow { waker, tgid, context, work, comm, stack, sent };
        self.wakes.insert((wake.pid, wake.key), row);
    }

    fn note_run(&mut self, run: sched_run) {
        if self.runs.len() >= MOST_RUNS {
            let mut lengths: Vec<u64> = self.runs.iter().map(|run| run.to.saturating_sub(run.from)).collect();
            let (_, median, longer) = lengths.select_nth_unstable(MOST_RUNS / 2);
            let median = *median;
            // Half goes, also where runs are alike: of runs with the median's length as many stay as the longer ones leave room for.
            let longer = longer.iter().filter(|length| **length > median).count();
            let mut alike = (MOST_RUNS / 2).saturating_sub(longer);
            let before = self.runs.len();
            self.runs.retain(|run| {
                let length = run.to.saturating_sub(run.from);
                let stays = length > median || (length == median && alike > 0);
                alike = alike.saturating_sub(usize::from(length == median && stays));
                stays
            });
            let gone = (before - self.runs.len()) as u64;
            self.dropped.runs = self.dropped.runs.saturating_add(gone);
            self.dropped.longest_run_ns = self.dropped.longest_run_ns.max(median);
        }
        self.runs.push(run);
    }

    /// A task has ended: rows report the tasks that it woke by number, and will need its name.
    pub fn note_name(&mut self, exit: &sched_exit) {
        self.names.resize(NAMES, (0, Comm::default()));
        if let Some(name) = self.names.get_mut(exit.pid as usize % NAMES) {
            *name = (exit.pid, exit.comm);
        }
    }

    /// The name of the last task that ended under this pid.
    #[must_use]
    pub fn name_of(&self, pid: u32) -> Option<&Comm> {
        self.names.get(pid as usize % NAMES).filter(|(of, _)| *of == pid && pid != 0).map(|(_, comm)| comm)
    }

    /// Records that are in no row, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let Dropped { runs, longest_run_ns, stacks } = self.dropped;
        let ms = longest_run_ns as f64 / 1e6;
        let runs = (runs > 0).then(|| {
            let reason =
                format!("{runs} were dropped, none of them longer than {ms:.1} ms, for want of room");
            Missing::skipped(RUNS_IN_PART, reason)
        });
        let stacks = (stacks > 0).then(|| {
            let reason = format!("{stacks} stacks were not kept: there were {MOST_STACKS} others already");
            Missing::skipped("the stacks of some waits and wakers", reason)
        });
        runs.into_iter().chain(stacks).collect()
    }

    /// The frames of a stack, innermost first.
    #[must_use]
    pub fn stack(&self, id: u32) -> &[u64] {
        self.stacks.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Remember a stack of `depth` bytes.
    pub fn stack_of(&mut self, depth: i32, frames: &[u64]) -> Option<u32> {
        let count = usize::try_from(depth).ok().map(|bytes| bytes / 8).filter(|n| *n > 0)?;
        let frames = &frames[..count.min(frames.len())];
        if let Some(id) = self.known.get(frames) {
            return Some(*id);
        }
        if self.stacks.len() >= MOST_STACKS {
            self.dropped.stacks = self.dropped.stacks.saturating_add(1);
            return None;
        }
        let id = u32::try_from(self.stacks.len()).ok()?;
        self.stacks.push(frames.to_vec());
        self.known.insert(frames.to_vec(), id);
        Some(id)
    }

    fn keep(&mut self, row: SpanRow) {
        self.spans.push(row);
        if self.spans.len() >= self.next.max(MOST) {
            self.compact();
            // Rows that cannot be made fewer (a row of each living task) may be many: the next attempt comes only after as many more.
            self.next = self.spans.len() + MOST / 4;
        }
    }

    fn forget_wakes(&mut self) {
        let reported: std::collections::HashSet<(u32, u64)> =
            self.spans.iter().map(|row| (row.span.pid, row.span.key)).collect();
        self.wakes.retain(|key, _| reported.contains(key));
    }
}

impl SpanRow {
    /// As it came.
    #[must_use]
    pub fn of(span: sched_span) -> Self {
        SpanRow { stands: if span.depth > 0 { span.unsampled } else { 0 }, span, stack: None }
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
