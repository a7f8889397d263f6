//! What the sched probe tells of timelines, kept small: stacks once each, and coarser when there is too much.

use std::collections::HashMap;
use std::mem::size_of;

use super::sched::{sched_run, sched_span, sched_span_stack, sched_wake};
use super::value;

/// `enum row_kind` of the kernel half.
const SPAN: u32 = 0;
const WAKE: u32 = 1;
const RUN: u32 = 2;

/// `enum sched_state`.
const READY: usize = 2;

/// Rows of spans that are kept, about 350 bytes each. When there are more, the shortest waits go into the sums.
const MOST: usize = 120_000;
/// Where that begins.
const COARSE_NS: u64 = 1_000_000;
/// A stretch without a wait that is longer than so many of the shortest waits stays apart.
const STRETCH: u64 = 10;

/// A span and its stack.
#[derive(Clone, Copy, Default)]
pub struct SpanRow {
    /// As the kernel half told it.
    pub span: sched_span,
    /// Its stack, in `Rows::stack`.
    pub stack: Option<u32>,
}

/// Who woke.
#[derive(Clone, Copy, Default)]
pub struct WakeRow {
    /// As the kernel half told it; its frames are in `Rows::stack`.
    pub wake: sched_wake,
    /// The waker's stack.
    pub stack: Option<u32>,
}

/// All that was told.
#[derive(Default)]
pub struct Rows {
    /// In order of time for each task.
    pub spans: Vec<SpanRow>,
    /// By who was woken, and `key`.
    pub wakes: HashMap<(u32, u64), WakeRow>,
    /// Who had which CPU.
    pub runs: Vec<sched_run>,
    stacks: Vec<Vec<u64>>,
    known: HashMap<Vec<u64>, u32>,
    coarse_ns: u64,
}

impl Rows {
    /// Take one record of the ring buffer. What is not one of ours is dropped.
    pub fn note(&mut self, bytes: &[u8]) {
        let kind = bytes.first_chunk().map(|head| u32::from_ne_bytes(*head));
        match (kind, bytes.len()) {
            // The ring rounds sizes up to 8 bytes; so are ours.
            (Some(SPAN), n) if n == size_of::<sched_span_stack>() => {
                let row: sched_span_stack = value(bytes);
                let stack = self.stack_of(row.span.depth, &row.frames);
                self.keep(SpanRow { span: row.span, stack });
            }
            (Some(SPAN), n) if n == size_of::<sched_span>() => {
                self.keep(SpanRow { span: value(bytes), stack: None });
            }
            (Some(WAKE), n) if n == size_of::<sched_wake>() => {
                let wake: sched_wake = value(bytes);
                let stack = self.stack_of(wake.depth, &wake.frames);
                self.wakes.insert((wake.pid, wake.key), WakeRow { wake, stack });
            }
            (Some(RUN), n) if n == size_of::<sched_run>() => self.runs.push(value(bytes)),
            _ => {}
        }
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
        let id = u32::try_from(self.stacks.len()).ok()?;
        self.stacks.push(frames.to_vec());
        self.known.insert(frames.to_vec(), id);
        Some(id)
    }

    fn keep(&mut self, row: SpanRow) {
        self.spans.push(row);
        if self.spans.len() >= MOST {
            self.coarsen();
        }
    }

    /// Waits shorter than twice the last bound, and runs likewise, go into the sums of the stretch that follows.
    fn coarsen(&mut self) {
        self.coarse_ns = if self.coarse_ns == 0 { COARSE_NS } else { self.coarse_ns.saturating_mul(2) };
        let bound = self.coarse_ns;
        let mut open: HashMap<u32, sched_span> = HashMap::new();
        let mut kept = Vec::with_capacity(self.spans.len() / 2);
        for mut row in std::mem::take(&mut self.spans) {
            if let Some(before) = open.remove(&row.span.pid) {
                prepend(&mut row.span, &before);
            }
            let span = &row.span;
            let waited = span.to.saturating_sub(span.at);
            let long = span.to.saturating_sub(span.from) > bound.saturating_mul(STRETCH);
            if waited < bound && span.ended == 0 && !long {
                dissolve(&mut row.span);
                open.insert(row.span.pid, row.span);
            } else {
                kept.push(row);
            }
        }
        // In order of their ends, as all rows are.
        kept.extend(open.into_values().map(|span| SpanRow { span, stack: None }));
        kept.sort_by_key(|row| row.span.to);
        self.spans = kept;
        let told: std::collections::HashSet<(u32, u64)> =
            self.spans.iter().map(|row| (row.span.pid, row.span.key)).collect();
        self.wakes.retain(|key, _| told.contains(key));
        self.runs.retain(|run| run.to.saturating_sub(run.from) >= bound);
    }
}

/// The row's wait becomes part of its sums.
fn dissolve(span: &mut sched_span) {
    let state = span.state as usize;
    if (READY + 1..span.mixed.len()).contains(&state) {
        span.mixed[state] = span.mixed[state].saturating_add(span.woken.saturating_sub(span.at));
    }
    span.mixed[READY] = span.mixed[READY].saturating_add(span.to.saturating_sub(span.woken));
    (span.state, span.at, span.woken, span.depth, span.syscall, span.mode, span.lock) =
        (0, span.to, span.to, 0, -1, 0, 0);
}

/// What was `before` it becomes part of the row's sums.
fn prepend(span: &mut sched_span, before: &sched_span) {
    span.from = before.from;
    for (sum, more) in span.mixed.iter_mut().zip(before.mixed) {
        *sum = sum.saturating_add(more);
    }
    span.unknown = span.unknown.saturating_add(before.unknown);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(pid: u32, from: u64, at: u64, woken: u64, to: u64) -> sched_span {
        let mut mixed = [0; 8];
        mixed[1] = at - from;
        sched_span { pid, from, at, woken, to, state: 5, mixed, ..sched_span::default() }
    }

    fn total(rows: &Rows) -> u64 {
        let of = |s: &sched_span| s.mixed.iter().sum::<u64>() + s.to - s.at;
        rows.spans.iter().map(|row| of(&row.span)).sum()
    }

    #[test]
    fn coarser_rows_hold_the_same_time() {
        let mut rows = Rows::default();
        let mut at = 0;
        let mut told = 0;
        for turn in 0..MOST as u64 * 3 {
            // One wait in a hundred is long.
            let wait = if turn % 100 == 0 { 20_000_000 } else { 150_000 };
            rows.keep(SpanRow {
                span: span(7, at, at + 50_000, at + 50_000 + wait, at + 60_000 + wait),
                stack: None,
            });
            at += 60_000 + wait;
            told += 60_000 + wait;
        }
        assert!(rows.spans.len() < MOST);
        assert_eq!(total(&rows), told);
        let long = rows.spans.iter().filter(|row| row.span.woken - row.span.at == 20_000_000).count();
        assert_eq!(long, MOST * 3 / 100, "long waits stay");
        for pair in rows.spans.windows(2) {
            assert_eq!(pair[0].span.to, pair[1].span.from, "rows touch");
        }
    }

    #[test]
    fn a_stack_is_kept_once() {
        let mut rows = Rows::default();
        assert_eq!(rows.stack_of(16, &[1, 2, 9]), Some(0));
        assert_eq!(rows.stack_of(24, &[1, 2, 9]), Some(1));
        assert_eq!(rows.stack_of(16, &[1, 2]), Some(0));
        assert_eq!(rows.stack_of(-14, &[1, 2]), None);
        assert_eq!(rows.stack_of(800, &[1, 2]), Some(0), "deeper than what came");
        assert_eq!(rows.stack(7), &[] as &[u64]);
    }

    #[test]
    fn torn_records_are_dropped() {
        let mut rows = Rows::default();
        for size in 0..700 {
            rows.note(&vec![0; size]);
        }
        assert!(rows.spans.len() <= 2 && rows.runs.len() <= 1);
    }
}
