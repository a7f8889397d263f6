//! What one task did, without overlaps and without holes that are not said.
//!
//! Rows come from the kernel or a file: they may overlap, be torn or make no sense. A timeline is made of what is left
//! after the earlier row of two that overlap has won, and every stretch that no row covers is a piece of its own.

use whyslow_model::timeline::{Span, State, StateTimes};

use super::split::split;

/// What a stretch of a timeline is; rows by their place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Short waits and runs, known by their sums.
    Mixed(usize),
    /// One wait.
    Wait(usize),
    /// Ready for a CPU.
    Ready(usize),
    /// It had not been born.
    Unborn,
    /// It had ended.
    Gone,
    /// Nobody saw what it did.
    Hole,
}

/// A stretch of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub from: u64,
    pub to: u64,
    pub what: What,
}

impl Piece {
    pub fn ns(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The timeline of one thread id; several lives if the id was used again.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// In order, disjoint, none empty; from the first row to the last they touch.
    pieces: Vec<Piece>,
    /// The thread was born in the window.
    born: bool,
    /// Its last row ended it.
    ended: bool,
    /// Lives that ended: the id was used again if there are several.
    ends: usize,
    /// Where among the pieces the waits are, by state: a thread that slept ten thousand times was blocked twice.
    waits: [Vec<u32>; 3],
}

/// Which of the lists of waits it is in.
fn list(state: State) -> Option<usize> {
    [State::Io, State::Blocked, State::Sleep].iter().position(|known| *known == state)
}

impl Line {
    /// From its rows (places in `spans`), clipped to `0..window`.
    pub fn of(spans: &[Span], mut rows: Vec<usize>, born: bool, window: u64) -> Self {
        let row = |at: &usize| spans.get(*at).map_or((0, 0), |s| (s.from_ns, s.to_ns));
        rows.sort_by_key(|at| (row(at), *at));
        let mut line = Line { pieces: Vec::with_capacity(rows.len() * 3), born, ..Line::default() };
        let (mut done, mut gap) = (None, What::Hole);
        for at in rows {
            let Some(span) = spans.get(at) else { continue };
            let from = span.from_ns.max(done.unwrap_or(0));
            let to = span.to_ns.min(window);
            if from < to {
                line.push(Piece { from: done.unwrap_or(from), to: from, what: gap });
                line.add(at, span, from, to);
                done = Some(to);
            }
            if span.ended && done.is_some_and(|done| done <= span.to_ns) {
                gap = What::Unborn; // should the id be used again
                line.ended = true;
                line.ends += 1;
            } else if from < to {
                gap = What::Hole;
                line.ended = false;
            }
        }
        line
    }

    fn add(&mut self, at: usize, span: &Span, from: u64, to: u64) {
        let begins = span.at_ns.clamp(from, to);
        let woken = match span.state {
            State::Io | State::Blocked | State::Sleep => span.woken_ns.clamp(begins, to),
            _ => begins,
        };
        let last = match span.state {
            State::None | State::Running => What::Hole,
            _ => What::Ready(at),
        };
        self.push(Piece { from, to: begins, what: What::Mixed(at) });
        let wait = list(span.state).filter(|_| begins < woken).and_then(|list| self.waits.get_mut(list));
        if let (Some(list), Ok(next)) = (wait, u32::try_from(self.pieces.len())) {
            list.push(next);
        }
        self.push(Piece { from: begins, to: woken, what: What::Wait(at) });
        self.push(Piece { from: woken, to, what: last });
    }

    fn push(&mut self, piece: Piece) {
        if piece.from < piece.to {
            self.pieces.push(piece);
        }
    }

    /// It has so few pieces that looking at all of them costs next to nothing.
    pub fn is_little(&self) -> bool {
        const LITTLE: usize = 16;
        self.pieces.len() <= LITTLE
    }

    /// Whether any row tells of this stretch.
    pub fn tells_of(&self, from: u64, to: u64) -> bool {
        self.clip(from, to).any(|piece| matches!(piece.what, What::Mixed(_) | What::Wait(_) | What::Ready(_)))
    }

    /// Its rows are of one task.
    pub fn is_one(&self) -> bool {
        self.ends <= usize::from(self.ended)
    }

    /// From its first row to its last.
    pub fn life(&self) -> Option<(u64, u64)> {
        Some((self.pieces.first()?.from, self.pieces.last()?.to))
    }

    /// Its pieces in `from..to`, clipped: they cover it exactly.
    pub fn clip(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + '_ {
        let (first, last) = self.life().unwrap_or((to, to));
        let before = if self.born { What::Unborn } else { What::Hole };
        let after = if self.ended { What::Gone } else { What::Hole };
        let begin = self.pieces.partition_point(|p| p.to <= from);
        let inside = self.pieces.get(begin..).unwrap_or_default().iter().take_while(move |p| p.from < to);
        let inside = inside.map(move |p| Piece { from: p.from.max(from), to: p.to.min(to), what: p.what });
        let edge = |from: u64, to: u64, what| Some(Piece { from, to, what }).filter(|p| p.from < p.to);
        let head = edge(from, to.min(first), before);
        let tail = edge(from.max(last), to, after);
        head.into_iter().chain(inside).chain(tail.filter(move |_| first < last))
    }

    /// The row of the wait or mixed stretch before the one that begins at `at`, latest first.
    pub fn rows_before(&self, at: u64) -> impl Iterator<Item = usize> + '_ {
        let end = self.pieces.partition_point(|p| p.to <= at);
        self.pieces.get(..end).unwrap_or_default().iter().rev().filter_map(|p| match p.what {
            What::Wait(row) => Some(row),
            _ => None,
        })
    }

    /// Waits that are not over at `from`, in order, with their rows.
    pub fn waits_after(&self, from: u64) -> impl Iterator<Item = usize> + '_ {
        let begin = self.pieces.partition_point(|p| p.to <= from);
        self.pieces.get(begin..).unwrap_or_default().iter().filter_map(|p| match p.what {
            What::Wait(row) => Some(row),
            _ => None,
        })
    }

    /// Rows that waited in `state` and were over at `at`, the last one first.
    pub fn waits_before(&self, state: State, at: u64) -> impl Iterator<Item = usize> + '_ {
        let all = list(state).and_then(|list| self.waits.get(list)).map_or(&[][..], Vec::as_slice);
        let piece = move |index: &u32| self.pieces.get(*index as usize);
        let end = all.partition_point(|index| piece(index).is_some_and(|p| p.to <= at));
        all.get(..end).unwrap_or_default().iter().rev().filter_map(piece).filter_map(|p| match p.what {
            What::Wait(row) => Some(row),
            _ => None,
        })
    }

    /// Rows that wait in `state` around `from..to`: all inside, and the next one after it, which stands for what was before it.
    pub fn waits_around(&self, state: State, from: u64, to: u64) -> impl Iterator<Item = usize> + '_ {
        let all = list(state).and_then(|list| self.waits.get(list)).map_or(&[][..], Vec::as_slice);
        let piece = move |at: &u32| self.pieces.get(*at as usize);
        let begin = all.partition_point(|at| piece(at).is_some_and(|p| p.to <= from));
        let mut is_over = false;
        let waits = all.get(begin..).unwrap_or_default().iter().filter_map(piece);
        let around = waits.take_while(move |p| !std::mem::replace(&mut is_over, p.from >= to));
        around.filter_map(|p| match p.what {
            What::Wait(row) => Some(row),
            _ => None,
        })
    }
}

/// Time by state, in the order of [`StateTimes`]; what a row's sums leave of its mixed part, and what they exceed it by, is put
/// right here: the parts of `part` (a stretch of the mixed part) add up to it.
pub(super) fn mixed(span: &Span, part: u64) -> StateTimes {
    let whole = span.at_ns.saturating_sub(span.from_ns);
    let m = &span.mixed;
    let known = m.total_ns();
    if whole == part && known == whole {
        return *m;
    }
    let unknown_ns = m.unknown_ns.saturating_add(whole.saturating_sub(known));
    let weights = [m.running_ns, m.runnable_ns, m.io_ns, m.blocked_ns, m.sleep_ns, unknown_ns];
    let [running_ns, runnable_ns, io_ns, blocked_ns, sleep_ns, unknown_ns] = split(part, weights);
    let mix = StateTimes { running_ns, runnable_ns, io_ns, blocked_ns, sleep_ns, unknown_ns };
    StateTimes { unknown_ns: unknown_ns + part.saturating_sub(mix.total_ns()), ..mix }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from_ns: u64, at_ns: u64, woken_ns: u64, to_ns: u64) -> Span {
        Span { pid: 1, from_ns, at_ns, woken_ns, to_ns, state: State::Sleep, ..Span::default() }
    }

    fn line(rows: &[Span]) -> Line {
        Line::of(rows, (0..rows.len()).collect(), false, 100)
    }

    fn reported(line: &Line, from: u64, to: u64) -> Vec<(u64, u64, What)> {
        line.clip(from, to).map(|p| (p.from, p.to, p.what)).collect()
    }

    #[test]
    fn a_row_is_three_pieces_and_the_window_bounds_them() {
        let line = line(&[row(10, 20, 30, 40), row(40, 60, 200, 300)]);
        use What::*;
        let all = [
            (0, 10, Hole),
            (10, 20, Mixed(0)),
            (20, 30, Wait(0)),
            (30, 40, Ready(0)),
            (40, 60, Mixed(1)),
            (60, 100, Wait(1)),
        ];
        assert_eq!(reported(&line, 0, 100), all);
        assert_eq!(reported(&line, 25, 32), [(25, 30, Wait(0)), (30, 32, Ready(0))]);
    }

    #[test]
    fn of_rows_that_overlap_the_earlier_wins_and_a_hole_is_said() {
        let line =
            line(&[row(10, 10, 20, 20), row(15, 16, 30, 30), row(50, 50, 60, 60), row(52, 53, 54, 55)]);
        use What::*;
        assert_eq!(
            reported(&line, 10, 60),
            [(10, 20, Wait(0)), (20, 30, Wait(1)), (30, 50, Hole), (50, 60, Wait(2))]
        );
    }

    #[test]
    fn birth_and_death_bound_it_and_an_id_may_live_again() {
        let mut rows = [row(10, 10, 20, 20), row(40, 40, 50, 50)];
        rows[0].ended = true;
        rows[1].ended = true;
        let line = Line::of(&rows, vec![1, 0], true, 100);
        use What::*;
        let all = [(0, 10, Unborn), (10, 20, Wait(0)), (20, 40, Unborn), (40, 50, Wait(1)), (50, 100, Gone)];
        assert_eq!(reported(&line, 0, 100), all);
    }

    #[test]
    fn no_row_at_all_is_one_hole() {
        assert_eq!(reported(&line(&[]), 3, 7), [(3, 7, What::Hole)]);
        assert_eq!(reported(&line(&[row(9, 5, 2, 1)]), 3, 7), [(3, 7, What::Hole)]);
    }

    #[test]
    fn sums_that_do_not_fill_their_stretch_leave_something_unknown() {
        let mut span = row(0, 10, 10, 10);
        span.mixed = StateTimes { running_ns: 4, ..StateTimes::default() };
        assert_eq!(mixed(&span, 10), StateTimes { running_ns: 4, unknown_ns: 6, ..StateTimes::default() });
        assert_eq!(mixed(&span, 5), StateTimes { running_ns: 2, unknown_ns: 3, ..StateTimes::default() });
        span.mixed = StateTimes { running_ns: 30, sleep_ns: 10, ..StateTimes::default() };
        assert_eq!(mixed(&span, 10), StateTimes { running_ns: 8, sleep_ns: 2, ..StateTimes::default() });
        span.mixed = StateTimes { running_ns: u64::MAX, sleep_ns: u64::MAX, ..StateTimes::default() };
        assert_eq!(mixed(&span, 10).total_ns(), 10);
    }
}
