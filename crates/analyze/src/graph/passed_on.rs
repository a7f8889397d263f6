//! Futex words that go from hand to hand: the thread that is woken at one wakes the next waiter there. That is a lock (a semaphore of one,
//! as Python's are), whatever its value says. A job queue's waiters are woken by another thread, and a parked thread has a word of its own.

use whyslow_model::timeline::{Span, Waker};
use whyslow_model::wait::{Reason, WaitTarget};

use super::facts::{Behind, Graph, Kind};
use super::node::{Node, merged};
use super::owners::word;
use super::timeline::What;
use super::walk::Walk;
use crate::hashing::{Set, Table};
use crate::wait_reasons::{Class, ended_by_timer};

/// With fewer hands it may be chance.
const ENOUGH: usize = 6;

/// One thread let the word go, and woke the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hand {
    at: u64,
    to: u32,
    by: u32,
    /// The wait that ended so had begun then.
    since: u64,
}

/// Those in line that are looked at.
const MOST_IN_LINE: usize = 64;
/// Seen less often it is no custom.
const USUAL: usize = 3;

/// A word, by process.
pub(super) type Word = (u32, u64);

impl Graph<'_> {
    /// What a wait for a signal is, at a word that is passed on.
    pub fn as_lock(&self, row: usize, kind: Kind) -> Option<Kind> {
        if kind.class != Class::Idle || kind.reason != Reason::Futex {
            return None;
        }
        let word = word(self.spans.get(row)?)?;
        let is_lock = self.passed_on().contains_key(&word);
        is_lock.then(|| Kind {
            what: self.details.id(WaitTarget::UserLock.into()),
            class: Class::Lock,
            ..kind
        })
    }

    /// What those did who had it in turn: each of them until it let it go.
    pub fn by_hands(&self, walk: &mut Walk, span: &Span, from: u64, to: u64) -> Option<Behind> {
        let hands = word(span).and_then(|word| self.passed_on().get(&word))?;
        let begin = hands.partition_point(|hand| hand.at <= from);
        let (mut at, mut notes) = (from, 0);
        let mut nodes: Vec<Node> = Vec::new();
        for hand in hands.get(begin..).unwrap_or_default() {
            let until = hand.at.min(to);
            if at < until && hand.by != span.pid {
                let (parts, is) = self.follow(walk, hand.by, at, until, None);
                notes |= is;
                nodes.extend(parts.iter().cloned());
                at = until;
            }
            if hand.at >= to {
                break;
            }
        }
        if at < to {
            nodes.push(self.unexplained(self.no_one(), WaitTarget::HolderNotSeen, to - at));
        }
        (nodes.len() > usize::from(at < to)).then(|| (merged(nodes, &self.rests), notes))
    }

    /// The last of many looks at a word was too short for a row: the thread that ended all others that were seen there. A thread that answers after
    /// its timeout has waited for nobody.
    pub fn usual_waker(&self, row: usize) -> Option<&Waker> {
        let span = self.spans.get(row).filter(|span| ended_by_timer(span, &self.stacks))?;
        let line = self.lines.get(&span.pid)?;
        let is_look = |other: &Span| word(other) == word(span);
        let next = line.waits_after(span.woken_ns).next().and_then(|row| self.spans.get(row));
        let is_last = next.is_none_or(|next| !is_look(next));
        let after = line.clip(span.to_ns, span.to_ns.saturating_add(1)).next();
        let slept = after.is_some_and(|piece| match piece.what {
            What::Mixed(row) => self.spans.get(row).is_some_and(|span| span.mixed.sleep_ns > 0),
            _ => false,
        });
        let is_one_of_many = self.first_look(span) < span.at_ns || !is_last;
        let wakers = self.wakers.get_or_init(|| self.wakers_of_words());
        let (waker, times) = wakers.get(&word(span)?).copied()?;
        let is_usual = times >= USUAL && is_one_of_many && (!is_last || slept);
        self.spans.get(waker?)?.waker.as_ref().filter(|waker| is_usual && waker.pid != span.pid)
    }

    /// By word: a row that the only thread ended that was seen to do so, and how many it did.
    fn wakers_of_words(&self) -> Table<Word, (Option<usize>, usize)> {
        let mut all: Table<Word, (Option<usize>, usize)> = Table::default();
        let thread =
            |row: usize| self.spans.get(row).and_then(|span| span.waker.as_ref()).map(|waker| waker.pid);
        let is_own = |span: &Span| span.waker.as_ref().is_some_and(|waker| waker.tgid == span.tgid);
        for (row, span) in
            self.spans.iter().enumerate().filter(|(_, span)| is_own(span) && self.was_let_go(span))
        {
            let Some(word) = word(span) else { continue };
            let (known, times) = all.entry(word).or_insert((Some(row), 0));
            *known = known.filter(|known| thread(*known) == thread(row));
            *times += 1;
        }
        all
    }

    fn passed_on(&self) -> &Table<Word, Vec<Hand>> {
        self.passed_on.get_or_init(|| self.words_passed_on())
    }

    fn words_passed_on(&self) -> Table<Word, Vec<Hand>> {
        let mut all: Table<Word, Vec<Hand>> = Table::default();
        for span in self.spans.iter().filter(|span| self.was_let_go(span)) {
            let waker = span.waker.as_ref().filter(|waker| waker.tgid == span.tgid);
            if let Some((word, waker)) = word(span).zip(waker) {
                all.entry(word).or_default().push(Hand {
                    at: span.woken_ns,
                    to: span.pid,
                    by: waker.pid,
                    since: span.at_ns,
                });
            }
        }
        all.retain(|_, hands| {
            hands.sort_unstable();
            is_lock(hands)
        });
        all
    }
}

/// Threads that begin to wake others were mostly woken last themselves, and hardly one of them has never waited there. A holder may take the lock again
/// before the woken thread runs (a lock is seldom fair), and wakes the next one, too: the woken thread is back in line by then. A thread that
/// shares out work to many at once does not wait for that, nor does the last one at a barrier.
fn is_lock(hands: &[Hand]) -> bool {
    let woken: Set<u32> = hands.iter().map(|hand| hand.to).collect();
    let (mut changes, mut on, mut strangers, mut again, mut back) = (0, 0, 0, 0, 0);
    for (at, two) in hands.windows(2).enumerate() {
        let [last, next] = two else { continue };
        if last.by == next.by {
            again += 1;
            back += usize::from(is_back(hands.get(at + 1..).unwrap_or_default(), last, next.at));
        } else {
            changes += 1;
            on += usize::from(last.to == next.by);
            strangers += usize::from(!woken.contains(&next.by));
        }
    }
    // Of two that wake each other in turn each may wait for what the other makes.
    let is_handed = on >= USUAL && on * 2 > changes && strangers * 4 <= changes && woken.len() > 2;
    hands.len() > ENOUGH && is_handed && back * 2 >= again
}

/// The one that was woken by `last` waits there again before `next`: a later wake-up ends that wait.
fn is_back(later: &[Hand], last: &Hand, next: u64) -> bool {
    let again = later.iter().take(MOST_IN_LINE).find(|hand| hand.to == last.to);
    again.is_some_and(|hand| hand.since <= next)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A lock of `threads`, of which each has it for `again` turns at once: it wakes the first in line each time, who finds it taken again.
    fn lock(threads: u32, again: usize, turns: usize) -> Vec<Hand> {
        let mut line: VecDeque<u32> = (2..=threads).collect();
        let (mut by, mut hands, mut since) = (1, Vec::new(), Table::<u32, u64>::default());
        for turn in 0..turns {
            let (to, at) = (line.pop_front().unwrap(), 10 * turn as u64);
            hands.push(Hand { at, to, by, since: since.get(&to).copied().unwrap_or(0) });
            let is_let_go = (turn + 1) % again == 0;
            let waits = if is_let_go { by } else { to };
            since.insert(waits, at + 1);
            line.push_back(waits);
            by = if is_let_go { to } else { by };
        }
        hands
    }

    /// `by` brings work to so many, and each `own` times one that was woken brings some, too.
    fn queue(workers: u32, own: usize, turns: usize) -> Vec<Hand> {
        let worker = |turn: usize| 2 + turn as u32 % workers;
        let by = |turn: usize| if turn % own == own - 1 { worker(turn - 1) } else { 1 };
        (0..turns)
            .map(|turn| Hand {
                at: 10 * turn as u64,
                to: worker(turn),
                by: by(turn),
                since: (10 * turn as u64).saturating_sub(1),
            })
            .collect()
    }

    #[test]
    fn a_lock_goes_from_hand_to_hand_also_where_who_has_it_takes_it_again() {
        for again in [1, 2, 7, 30] {
            assert!(is_lock(&lock(6, again, 200)), "{again}");
        }
        assert!(!is_lock(&lock(6, 300, 200)), "nobody else has had it: it may be a queue");
        assert!(!is_lock(&lock(2, 1, 200)), "two in turn");
    }

    #[test]
    fn a_queue_does_not_whoever_fills_it() {
        for own in [2, 3, 10, usize::MAX] {
            for turns in [8, 9, 200, 201] {
                assert!(!is_lock(&queue(5, own, turns)), "{own} {turns}");
            }
        }
        // Two that bring work in turn.
        let two =
            |at: u64| Hand { at, to: 3 + at as u32 % 5, by: 1 + at as u32 % 2, since: at.saturating_sub(1) };
        let two: Vec<Hand> = (0..100).map(two).collect();
        assert!(!is_lock(&two));
    }

    /// One wakes all the others at once, each works, and the last of them, which is drawn, wakes the first; or the last that comes wakes all.
    #[test]
    fn work_that_is_shared_out_is_no_lock() {
        let last = |turn: u64| 2 + (turn * 7 / 3 % 4) as u32;
        let mut forks = Vec::new();
        let mut barriers = Vec::new();
        for turn in 0..60_u64 {
            let (at, since) = (turn * 1000, (turn * 1000).saturating_sub(400));
            forks.extend((2..6).map(|to| Hand { at: at + u64::from(to), to, by: 1, since }));
            forks.push(Hand { at: at + 500, to: 1, by: last(turn), since: at + 10 });
            let others = (2..6).filter(|to| *to != last(turn));
            barriers.extend(others.map(|to| Hand { at: at + u64::from(to), to, by: last(turn), since }));
        }
        assert!(!is_lock(&forks));
        assert!(!is_lock(&barriers));
    }
}
