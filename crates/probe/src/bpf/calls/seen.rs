//! The calls that the probe saw, with names in place of file ids.

use std::mem::{offset_of, size_of};

use whyslow_model::timeline::StateTimes;

use super::names::{Names, OTHER_FILES};
use super::skel::types::{call_entry, call_slow};
use super::{SPARE, text};
use crate::bpf::value;

// SAFETY: generated from the C structs; integers and bytes only.
unsafe impl plain::Plain for call_entry {}
// SAFETY: as above.
unsafe impl plain::Plain for call_slow {}

/// Calls of one number on one file, by one task.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Thread, or process where sums of several are together; 0: all tasks, because there was no room for more.
    pub pid: u32,
    /// Process.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// The system call, by number (`COMPAT` may be set).
    pub nr: u32,
    pub path: Option<String>,
    /// Calls that ended.
    pub count: u64,
    /// ... with an error.
    pub errors: u64,
    pub total_ns: u64,
    /// The longest.
    pub worst_ns: u64,
    /// By state.
    pub split: StateTimes,
}

/// One call.
#[derive(Debug, Clone, Default)]
pub struct Single {
    /// Thread.
    pub pid: u32,
    /// Process.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// The system call, by number (`COMPAT` may be set).
    pub nr: u32,
    pub path: Option<String>,
    /// When it began, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// How long it took, or has taken.
    pub ns: u64,
    /// It has not returned.
    pub open: bool,
    /// By state.
    pub split: StateTimes,
    /// The caller's user stack, innermost first.
    pub frames: Vec<u64>,
}

/// What the probe saw.
#[derive(Debug, Default)]
pub struct RawCalls {
    /// Sums of calls that ended.
    pub rows: Vec<Row>,
    /// Slow calls, calls whose stack was taken, and all that are open.
    pub singles: Vec<Single>,
    /// How long a slow call is, at least; `None`: not requested.
    pub slow_ns: Option<u64>,
    /// Single calls that were dropped: others took longer.
    pub untold: u64,
}

/// Single calls while the window lasts: the slowest.
#[derive(Default)]
pub struct Slowest {
    kept: Vec<call_slow>,
    let_go: u64,
}

impl Slowest {
    /// Twice as many as are reported: when they are full, the faster half goes.
    const MOST: usize = 20_000;

    /// One more.
    pub fn note(&mut self, one: call_slow) {
        self.kept.push(one);
        if self.kept.len() >= Self::MOST {
            self.kept.select_nth_unstable_by_key(Self::MOST / 2, |one| std::cmp::Reverse(one.ns));
            self.kept.truncate(Self::MOST / 2);
            self.let_go = self.let_go.saturating_add(Self::MOST as u64 / 2);
        }
    }

    /// All single calls, and how many were dropped.
    pub fn take(&mut self) -> (Vec<call_slow>, u64) {
        (std::mem::take(&mut self.kept), self.let_go)
    }
}

/// A record of the ring `slow_calls`, or of the closing walk. It is as long as its frames.
pub fn single(record: &[u8]) -> call_slow {
    let mut whole = [0; size_of::<call_slow>()];
    let size = record.len().min(whole.len());
    whole[..size].copy_from_slice(&record[..size]);
    value(&whole)
}

/// Bytes of a record without frames.
pub const SINGLE_BYTES: usize = offset_of!(call_slow, frames);

impl Row {
    pub(super) fn of(at: u32, e: &call_entry, names: &Names) -> Self {
        let own = at >= SPARE;
        Row {
            pid: e.pid,
            tgid: e.tgid,
            comm: if e.tgid != 0 { text(&e.comm) } else { "[other tasks]".to_owned() },
            nr: if own { e.nr } else { at - 1 },
            path: if own { names.of(e.file) } else { Some(OTHER_FILES.to_owned()) },
            count: e.count,
            errors: e.errors,
            total_ns: e.total_ns,
            worst_ns: e.worst_ns,
            split: mix(e.total_ns, &e.split),
        }
    }
}

impl Single {
    pub(super) fn of(s: &call_slow, names: &Names) -> Self {
        let depth = usize::try_from(s.depth).unwrap_or(0) / size_of::<u64>();
        Single {
            pid: s.pid,
            tgid: s.tgid,
            comm: text(&s.comm),
            nr: s.nr,
            path: names.of(s.file),
            at_ns: s.start,
            ns: s.ns,
            open: s.open != 0,
            split: mix(s.ns, &s.split),
            frames: s.frames.iter().copied().take(depth).collect(),
        }
    }

    /// An open call, as a row: its time is time in system calls, too.
    pub(super) fn row(&self) -> Row {
        Row {
            pid: self.pid,
            tgid: self.tgid,
            comm: self.comm.clone(),
            nr: self.nr,
            path: self.path.clone(),
            total_ns: self.ns,
            worst_ns: self.ns,
            split: self.split,
            ..Row::default()
        }
    }
}

/// Time that was not spent off the CPU was spent on it.
fn mix(ns: u64, [runnable_ns, io_ns, blocked_ns, sleep_ns]: &[u64; 4]) -> StateTimes {
    let waits = StateTimes {
        runnable_ns: *runnable_ns,
        io_ns: *io_ns,
        blocked_ns: *blocked_ns,
        sleep_ns: *sleep_ns,
        ..StateTimes::default()
    };
    StateTimes { running_ns: ns.saturating_sub(waits.total_ns()), ..waits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_single_calls_the_slowest_stay_and_the_rest_are_counted() {
        let mut slowest = Slowest::default();
        for n in 0..100_000u64 {
            slowest.note(call_slow { ns: n.wrapping_mul(7919) % 100_000, ..call_slow::default() });
        }
        let (kept, let_go) = slowest.take();
        assert_eq!(kept.len() as u64 + let_go, 100_000);
        assert!(kept.len() < Slowest::MOST && kept.iter().filter(|one| one.ns >= 90_001).count() == 9_999);
    }
}
