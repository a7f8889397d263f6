//! Who held a kernel lock while somebody waited for it.
//!
//! Known are: the owner in the lock word when the wait began and when it was read again, those who got the lock after
//! waiting for it, and who woke the waiter: whoever lets a lock go wakes the first in its queue. Between two of these the
//! lock may have changed hands unseen; such a stretch is nobody's.

use whyslow_model::timeline::{Context, LockWait, Span, Waker};
use whyslow_model::wait::WaitTarget;

use super::facts::{Behind, Graph, OwnerSample};
use super::node::{Node, merged, note};
use super::walk::Walk;

/// A stretch in which one held the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HoldInterval {
    from: u64,
    to: u64,
    /// `None`: not known.
    pid: Option<u32>,
    /// Known from what readers leave in the lock word only.
    hint: bool,
}

/// So many holders in one wait are a convoy.
const CONVOY: usize = 3;

impl Graph<'_> {
    /// The wait of `span` for `lock`, in `from..to`, by what its holders did.
    pub fn by_holders(
        &self,
        walk: &mut Walk,
        row: usize,
        span: &Span,
        lock: &LockWait,
        from: u64,
        to: u64,
    ) -> Behind {
        let hold_intervals = clipped(&self.hold_intervals(row, span, lock), from, to);
        let mut pids: Vec<u32> = hold_intervals.iter().filter_map(|interval| interval.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut notes = if pids.len() >= CONVOY { note::CONVOY } else { 0 };
        let mut nodes: Vec<Node> = Vec::new();
        for interval in hold_intervals {
            let ns = interval.to.saturating_sub(interval.from);
            let Some(pid) = interval.pid else {
                let nobody = self.no_one();
                let (why, is) = match pids.is_empty() {
                    true => (WaitTarget::HolderNotSeen, 0),
                    false => (WaitTarget::ChangedHands, note::HAND_OFF),
                };
                notes |= is;
                nodes.push(self.unexplained(nobody, why, ns));
                continue;
            };
            notes |= if interval.hint { note::STALE } else { 0 };
            let work = span.waker.as_ref().filter(|w| w.pid == pid).and_then(|w| w.work.as_deref());
            let (parts, is) = self.follow(walk, pid, interval.from, interval.to, work);
            notes |= is;
            nodes.extend(parts.iter().cloned());
        }
        (merged(nodes, &self.rests), notes)
    }

    /// Who held the lock over the whole wait of this row.
    fn hold_intervals(&self, row: usize, span: &Span, lock: &LockWait) -> Vec<HoldInterval> {
        let (begin, end) = (span.at_ns, span.woken_ns.max(span.at_ns).min(self.window));
        let lets_go = |w: &&Waker| w.context == Context::Task && w.pid != 0 && !self.kills(w);
        let releaser = span.waker.as_ref().filter(lets_go);
        let releaser = releaser.map(|w| w.pid).filter(|pid| !span.open && *pid != span.pid);
        let owner_samples = self.seen(row, span, lock, end);
        let mut hold_intervals: Vec<HoldInterval> = Vec::new();
        let mut push = |from: u64, to: u64, pid, hint| {
            if from < to {
                hold_intervals.push(HoldInterval { from, to, pid, hint });
            }
        };
        // Readers let a writer wait until the last of them goes: he is the one who wakes it, and the word's is a hint.
        // A reader that was seen to get in is sure for another reader, who waits for a writer among them.
        let is_hint = |sample: &OwnerSample| sample.reader && (sample.word || lock.write);
        let sure = owner_samples.iter().any(|sample| !is_hint(sample));
        match (releaser, owner_samples.first()) {
            (Some(pid), _) if !sure => push(begin, end, Some(pid), false),
            (None, None) => push(begin, end, None, false),
            (_, first) => {
                push(begin, first.map_or(end, |sample| sample.at.max(begin)), None, false);
                for (at, sample) in owner_samples.iter().enumerate() {
                    let next = owner_samples.get(at + 1);
                    let (from, until) = (sample.at.max(begin), next.map_or(end, |next| next.at.min(end)));
                    let known = Some(sample.pid).filter(|pid| *pid != 0);
                    // Had the releaser waited for it, it would have been seen: it took the lock unseen.
                    match releaser.filter(|pid| next.is_none() && *pid != sample.pid) {
                        None => push(from, until, known, is_hint(sample)),
                        Some(_) => push(from, until, None, false),
                    }
                }
            }
        }
        hold_intervals
    }

    /// Holders as seen, in order: what was seen before the wait counts only if it still holds when it begins.
    fn seen(&self, row: usize, span: &Span, lock: &LockWait, end: u64) -> Vec<OwnerSample> {
        let mut seen: Vec<OwnerSample> = Vec::new();
        let woken_before = self.woken_before(row, span, lock);
        let word = |at, pid| OwnerSample { at, pid, reader: lock.reader_owned, word: true };
        if lock.owner != 0 && woken_before.is_none() {
            seen.push(word(lock.since_ns.min(span.at_ns), lock.owner));
        }
        let all = self.owner_samples(lock.address);
        let since = woken_before.unwrap_or(lock.since_ns);
        let begin = all.partition_point(|sample| sample.at < since);
        seen.extend(all.get(begin..).unwrap_or_default().iter().take_while(|sample| sample.at < end));
        if lock.owner_again != 0 && seen.iter().all(|sample| sample.pid != lock.owner_again) {
            // It has another owner since some moment in the wait: from when, nobody knows.
            seen.push(OwnerSample { at: span.at_ns, pid: 0, reader: false, word: true });
        }
        seen.retain(|sample| sample.pid != span.pid);
        seen.sort_by_key(|sample| sample.at);
        seen.dedup_by(|next, before| next.pid == before.pid && next.reader == before.reader);
        let old = seen.partition_point(|sample| sample.at <= span.at_ns).saturating_sub(1);
        seen.split_off(old.min(seen.len()))
    }

    /// When it was woken without getting this lock: who held it before has let it go, and somebody else was faster.
    fn woken_before(&self, row: usize, span: &Span, lock: &LockWait) -> Option<u64> {
        let line = self.lines.get(&span.pid)?;
        let before = line.rows_before(span.at_ns).find(|at| *at != row).and_then(|at| self.spans.get(at))?;
        let same = before.lock.as_ref()?;
        (same.address == lock.address && same.since_ns == lock.since_ns).then_some(before.woken_ns)
    }
}

fn clipped(hold_intervals: &[HoldInterval], from: u64, to: u64) -> Vec<HoldInterval> {
    let mut inside: Vec<HoldInterval> = hold_intervals
        .iter()
        .map(|r| HoldInterval { from: r.from.max(from), to: r.to.min(to), ..*r })
        .filter(|r| r.from < r.to)
        .collect();
    // Whatever the rows say, the parts cover the stretch.
    let (first, last) = (inside.first().map_or(to, |r| r.from), inside.last().map_or(to, |r| r.to));
    let gaps = [(from, first), (last, to)];
    inside.extend(gaps.iter().filter(|(a, b)| a < b).map(|(a, b)| HoldInterval {
        from: *a,
        to: *b,
        pid: None,
        hint: false,
    }));
    inside
}
