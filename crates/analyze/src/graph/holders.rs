//! Who held a kernel lock while somebody waited for it.
//!
//! Known are: the owner in the lock word when the wait began and when it was read again, those who got the lock after
//! waiting for it, and who woke the waiter: whoever lets a lock go wakes the first in its queue. Between two of these the
//! lock may have changed hands unseen; such a stretch is nobody's.

use whyslow_model::timeline::{Context, HoldSeen, LockWait, Span};

use super::explain::Walk;
use super::facts::{Behind, Graph};
use super::node::{Node, merged, note};

/// A stretch in which one held the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reign {
    from: u64,
    to: u64,
    /// `None`: not known.
    pid: Option<u32>,
    /// Known from what readers leave in the lock word only.
    hint: bool,
}

/// One sight of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sight {
    at: u64,
    pid: u32,
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
        let reigns = clipped(&self.reigns(row, span, lock), from, to);
        let mut pids: Vec<u32> = reigns.iter().filter_map(|reign| reign.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut notes = if pids.len() >= CONVOY { note::CONVOY } else { 0 };
        let mut nodes: Vec<Node> = Vec::new();
        for reign in reigns {
            let ns = reign.to.saturating_sub(reign.from);
            let Some(pid) = reign.pid else {
                let nobody = self.no_one();
                let (why, is) = match pids.is_empty() {
                    true => ("who held it was not seen", 0),
                    false => ("it changed hands unseen", note::HAND_OFF),
                };
                notes |= is;
                nodes.push(self.unexplained(nobody, why, ns));
                continue;
            };
            notes |= if reign.hint { note::STALE } else { 0 };
            let work = span.waker.as_ref().filter(|w| w.pid == pid).and_then(|w| w.work.as_deref());
            let (parts, is) = self.follow(walk, pid, reign.from, reign.to, work);
            notes |= is;
            nodes.extend(parts.iter().cloned());
        }
        (merged(nodes, &self.rests), notes)
    }

    /// Who held the lock over the whole wait of this row.
    fn reigns(&self, row: usize, span: &Span, lock: &LockWait) -> Vec<Reign> {
        let (begin, end) = (span.at_ns, span.woken_ns.max(span.at_ns).min(self.window));
        let releaser = span.waker.as_ref().filter(|w| w.context == Context::Task && w.pid != 0);
        let releaser = releaser.map(|w| w.pid).filter(|pid| !span.open && *pid != span.pid);
        let sights = self.sights(row, span, lock, end);
        let mut reigns: Vec<Reign> = Vec::new();
        let mut push = |from: u64, to: u64, pid, hint| {
            if from < to {
                reigns.push(Reign { from, to, pid, hint });
            }
        };
        // Readers let a writer wait until the last of them goes: he is the one who wakes it, and the word's is a hint.
        let sure = sights.iter().any(|sight| !sight.hint);
        match (releaser, sights.first()) {
            (Some(pid), _) if !sure => push(begin, end, Some(pid), false),
            (None, None) => push(begin, end, None, false),
            (_, first) => {
                push(begin, first.map_or(end, |sight| sight.at.max(begin)), None, false);
                for (at, sight) in sights.iter().enumerate() {
                    let next = sights.get(at + 1);
                    let (from, until) = (sight.at.max(begin), next.map_or(end, |next| next.at.min(end)));
                    let known = Some(sight.pid).filter(|pid| *pid != 0);
                    match releaser.filter(|pid| next.is_none() && *pid != sight.pid) {
                        None => push(from, until, known, sight.hint),
                        Some(pid) => match self.took(pid, lock.address, from, until) {
                            None => push(from, until, None, false),
                            Some(taken) => {
                                push(from, taken, known, sight.hint);
                                push(taken, until, Some(pid), false);
                            }
                        },
                    }
                }
            }
        }
        reigns
    }

    /// Holders as seen, in order: what was seen before the wait counts only if it still holds when it begins.
    fn sights(&self, row: usize, span: &Span, lock: &LockWait, end: u64) -> Vec<Sight> {
        let mut sights: Vec<Sight> = Vec::new();
        let woken_before = self.woken_before(row, span, lock);
        if lock.owner != 0 && woken_before.is_none() {
            sights.push(Sight {
                at: lock.since_ns.min(span.at_ns),
                pid: lock.owner,
                hint: lock.reader_owned,
            });
        }
        let holds = self.holds(lock.address);
        let since = woken_before.unwrap_or(lock.since_ns);
        let begin = holds.partition_point(|hold| hold.at_ns < since);
        for hold in holds.get(begin..).unwrap_or_default().iter().take_while(|hold| hold.at_ns < end) {
            // A reader who got in is one of many; one that is seen in the word may be gone.
            let hint = hold.reader && (hold.seen == HoldSeen::Word || lock.write);
            sights.push(Sight { at: hold.at_ns, pid: hold.pid, hint });
        }
        if lock.owner_again != 0 && sights.iter().all(|sight| sight.pid != lock.owner_again) {
            match self.took(lock.owner_again, lock.address, span.at_ns, end) {
                Some(at) => sights.push(Sight { at, pid: lock.owner_again, hint: lock.reader_owned }),
                // It has another owner since some moment in the wait: from when, nobody knows.
                None => sights.push(Sight { at: span.at_ns, pid: 0, hint: false }),
            }
        }
        sights.retain(|sight| sight.pid != span.pid);
        sights.sort_by_key(|sight| sight.at);
        sights.dedup_by(|next, before| next.pid == before.pid && next.hint == before.hint);
        let old = sights.partition_point(|sight| sight.at <= span.at_ns).saturating_sub(1);
        sights.split_off(old.min(sights.len()))
    }

    /// When it was woken without getting this lock: who held it before has let it go, and somebody else was faster.
    fn woken_before(&self, row: usize, span: &Span, lock: &LockWait) -> Option<u64> {
        let line = self.lines.get(&span.pid)?;
        let before = line.rows_before(span.at_ns).find(|at| *at != row).and_then(|at| self.spans.get(at))?;
        let same = before.lock.as_ref()?;
        (same.address == lock.address && same.since_ns == lock.since_ns).then_some(before.woken_ns)
    }

    /// When, in `from..to`, a task got the lock that it had waited for.
    fn took(&self, pid: u32, lock: u64, from: u64, to: u64) -> Option<u64> {
        let rows = self.lines.get(&pid)?.rows_before(to).filter_map(|at| self.spans.get(at));
        let of_lock = |span: &&Span| span.lock.as_ref().is_some_and(|l| l.address == lock);
        let last = rows.take_while(|span| span.to_ns > from).find(of_lock)?;
        Some(last.to_ns).filter(|at| (from..to).contains(at))
    }
}

fn clipped(reigns: &[Reign], from: u64, to: u64) -> Vec<Reign> {
    let mut inside: Vec<Reign> = reigns
        .iter()
        .map(|r| Reign { from: r.from.max(from), to: r.to.min(to), ..*r })
        .filter(|r| r.from < r.to)
        .collect();
    // Whatever the rows say, the parts cover the stretch.
    let (first, last) = (inside.first().map_or(to, |r| r.from), inside.last().map_or(to, |r| r.to));
    let gaps = [(from, first), (last, to)];
    inside.extend(gaps.iter().filter(|(a, b)| a < b).map(|(a, b)| Reign {
        from: *a,
        to: *b,
        pid: None,
        hint: false,
    }));
    inside
}
