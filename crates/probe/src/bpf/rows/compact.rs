//! Fewer rows with the same time in total: short lives that have ended are reported by their sums alone, and so are the shortest waits of
//! the others.

use std::collections::HashMap;

use super::super::sched::{READY, sched_span};
use super::{Comm, MOST, Rows, SpanRow};

/// Rows of ended lives that stay: the longest lives.
const ENDED: usize = MOST / 4;
/// All rows that stay.
const STAY: usize = MOST / 2;
/// Rows that stay because they are the only ones of their kind, to stand for those that do not stay.
const STANDING: usize = MOST / 8;
/// A stretch without a wait that is longer than so many of the shortest waits stays apart.
const STRETCH: u64 = 10;

/// From a task's first row to its last.
struct Life {
    from: u64,
    to: u64,
    rows: usize,
    ended: bool,
    stays: bool,
}

/// Waits that are alike: of one task, for one thing, ended by tasks of one name.
#[derive(PartialEq, Eq, Hash)]
struct WaitKey {
    pid: u32,
    state: u32,
    stack: Option<u32>,
    syscall: i32,
    file: (u32, u64),
    lock: u64,
    waker: Comm,
}

/// Rows that stand for others, by their place.
#[derive(Default)]
struct Standing {
    alike: HashMap<WaitKey, usize>,
    of_task: HashMap<(u32, u32), usize>,
    forced: usize,
}

impl Rows {
    /// Drop lives and waits until half of the rows are left. The exit of a dropped life has its sums.
    pub(super) fn compact(&mut self) {
        let (mut lives, life_of) = self.lives();
        choose(&mut lives);
        let bound = self.bound(&lives, &life_of);
        let (mut open, mut standing) = (HashMap::<u32, sched_span>::new(), Standing::default());
        let mut kept = 0;
        for at in 0..self.spans.len() {
            let (Some(row), Some(life)) =
                (self.spans.get(at), life_of.get(at).and_then(|life| lives.get(*life)))
            else {
                continue;
            };
            if life.ended && !life.stays {
                continue;
            }
            let mut row = *row;
            if let Some(before) = open.remove(&row.span.pid) {
                prepend(&mut row.span, &before);
            }
            if row.span.ended == 0
                && weight(&row.span) <= bound
                && self.is_stood_for(&row, &mut standing, kept)
            {
                dissolve(&mut row);
                open.insert(row.span.pid, row.span);
            } else {
                if let Some(place) = self.spans.get_mut(kept) {
                    *place = row;
                }
                kept += 1;
            }
        }
        self.spans.truncate(kept);
        // Each is the last of its task: the order of the others does not matter.
        self.spans.extend(open.into_values().map(|span| SpanRow { span, ..SpanRow::default() }));
        self.forget_wakes();
    }

    fn lives(&self) -> (Vec<Life>, Vec<usize>) {
        let (mut lives, mut life_of) = (Vec::<Life>::new(), Vec::with_capacity(self.spans.len()));
        let mut open: HashMap<u32, usize> = HashMap::new();
        for SpanRow { span, .. } in &self.spans {
            let at = *open.entry(span.pid).or_insert_with(|| {
                lives.push(Life { from: span.from, to: span.to, rows: 0, ended: false, stays: false });
                lives.len() - 1
            });
            life_of.push(at);
            if let Some(life) = lives.get_mut(at) {
                life.to = span.to;
                life.rows += 1;
                life.ended = span.ended != 0;
            }
            if span.ended != 0 {
                open.remove(&span.pid);
            }
        }
        (lives, life_of)
    }

    /// Rows up to this weight go: so many that no more than `STAY` are left.
    fn bound(&self, lives: &[Life], life_of: &[usize]) -> u64 {
        let (mut weights, mut room) = (Vec::with_capacity(self.spans.len()), STAY);
        for (row, life) in self.spans.iter().zip(life_of) {
            match lives.get(*life) {
                Some(life) if life.ended && !life.stays => {}
                _ if row.span.ended != 0 => room = room.saturating_sub(1),
                _ => weights.push(weight(&row.span)),
            }
        }
        let over = weights.len().saturating_sub(room);
        if over == 0 {
            return 0;
        }
        *weights.select_nth_unstable(over - 1).1
    }

    /// Whether a row that stays reports this row's wait, because it is of the same kind; `next` is the place of the next one that stays.
    fn is_stood_for(&mut self, row: &SpanRow, standing: &mut Standing, next: usize) -> bool {
        let waited = row.span.woken.saturating_sub(row.span.at);
        if row.span.state as usize <= READY || waited == 0 {
            return true;
        }
        let more = row.stands.max(waited);
        let task = (row.span.pid, row.span.state);
        let kind = self.kind(row);
        let place = standing.alike.get(&kind).copied();
        let place =
            place.or_else(|| standing.of_task.get(&task).copied().filter(|_| standing.forced >= STANDING));
        match place.and_then(|place| self.spans.get_mut(place)) {
            Some(other) => {
                // A row that stood for none has at least its own wait.
                let own = other.span.woken.saturating_sub(other.span.at);
                other.stands = other.stands.max(own).saturating_add(more);
                true
            }
            None if standing.forced >= STANDING => true,
            None => {
                standing.forced += 1;
                standing.alike.insert(kind, next);
                standing.of_task.insert(task, next);
                false
            }
        }
    }

    fn kind(&self, row: &SpanRow) -> WaitKey {
        let span = &row.span;
        let waker = self.wakes.get(&(span.pid, span.key)).filter(|_| span.woken != 0);
        let named = waker
            .map(|wake| if wake.comm[0] == 0 { self.name_of(wake.waker).copied() } else { Some(wake.comm) });
        WaitKey {
            pid: span.pid,
            state: span.state,
            stack: row.stack,
            syscall: span.syscall,
            file: (span.dev, span.ino),
            lock: span.lock,
            waker: named.flatten().unwrap_or_default(),
        }
    }
}

/// The longest ended lives stay, as long as there is room.
fn choose(lives: &mut [Life]) {
    let mut ended: Vec<&mut Life> = lives.iter_mut().filter(|life| life.ended).collect();
    ended.sort_by_key(|life| std::cmp::Reverse(life.to.saturating_sub(life.from)));
    let mut room = ENDED;
    for life in ended {
        life.stays = life.rows <= room;
        room = room.saturating_sub(life.rows);
    }
}

/// The time that is lost with a row: its wait, or a part of its stretch.
fn weight(span: &sched_span) -> u64 {
    let stretch = span.to.saturating_sub(span.from) / STRETCH;
    span.to.saturating_sub(span.at).max(stretch)
}

/// The row's wait becomes part of its sums.
fn dissolve(row: &mut SpanRow) {
    let span = &mut row.span;
    let state = span.state as usize;
    if (READY + 1..span.mixed.len()).contains(&state) {
        span.mixed[state] = span.mixed[state].saturating_add(span.woken.saturating_sub(span.at));
    }
    span.mixed[READY] = span.mixed[READY].saturating_add(span.to.saturating_sub(span.woken));
    (span.state, span.at, span.woken, span.depth, span.syscall, span.mode, span.lock) =
        (0, span.to, span.to, 0, -1, 0, 0);
    (row.stack, row.stands) = (None, 0);
}

/// The time in `before` becomes part of the row's sums.
fn prepend(span: &mut sched_span, before: &sched_span) {
    span.from = before.from;
    for (sum, more) in span.mixed.iter_mut().zip(before.mixed) {
        *sum = sum.saturating_add(more);
    }
    span.unknown = span.unknown.saturating_add(before.unknown);
}
