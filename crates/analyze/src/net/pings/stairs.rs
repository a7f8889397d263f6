//! Stalls of the receiver, from late answers that came together.
//!
//! The requests of one queue (a port has one) are answered in their order. While the queue stalls, delays fall by the time between the requests,
//! and all answers come at its end, as fast as the receiver works them off. Late answers in the order in which they *came* show that, however many
//! queues there are and whatever quick answers of other queues lie between them.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::ping::PingStall;

use super::times::{Timed, Usual};

/// Answers come together if the time between them is less than this share of the time between their requests: a receiver that is busy by half
/// works a queue off half as fast as it has filled.
const TOGETHER: u64 = 2;
/// The same for requests of different ports, whose queues may have nothing to do with each other: by chance late answers come so close seldom.
const TOGETHER_ELSEWHERE: u64 = 10;
/// Requests that whyslow sent in one go have no time between them; a receiver works one off in less than this.
const BURST: u64 = 100_000;
/// Twice the usual spread of two answers holds nearly all that stalled together.
const SPREADS: u64 = 4;

/// Stalls, in any order.
pub(super) fn stalls(timed: &[Timed], usual: &Usual) -> Vec<PingStall> {
    let runs = unbroken(timed, usual);
    let mut answers: Vec<(&Timed, &u64)> = timed.iter().zip(&runs).collect();
    answers.sort_unstable_by_key(|(one, _)| (one.answered, one.sent, one.port));
    let (mut all, mut open): (Vec<PingStall>, Option<Stair>) = (Vec::new(), None);
    for (one, run) in answers {
        if !usual.is_late(one) {
            open.iter_mut().for_each(|stair| stair.add_quick(one, usual));
            continue;
        }
        match &mut open {
            Some(stair) if stair.holds(one, *run, usual) => stair.add_late(one, *run),
            _ => all.extend(open.replace(Stair::of(one, *run)).map(|stair| stair.told(usual))),
        }
    }
    all.extend(open.map(|stair| stair.told(usual)));
    all
}

/// For each answer: how many quick ones its port had before. Two late ones with a quick one between them did not wait in one stall.
fn unbroken(timed: &[Timed], usual: &Usual) -> Vec<u64> {
    let mut quick: BTreeMap<u16, u64> = BTreeMap::new();
    let count = |one: &Timed| {
        let before = quick.entry(one.port).or_default();
        *before += u64::from(usual.is_quick(one));
        *before
    };
    timed.iter().map(count).collect()
}

/// Answers that came together, in the order in which they came.
struct Stair {
    first: Timed,
    /// The late one that was asked for first.
    earliest: Timed,
    /// The last late one.
    last: Timed,
    /// The last one.
    tail: Timed,
    /// The last late one of each port, and how many quick ones its port had before.
    by_port: BTreeMap<u16, (Timed, u64)>,
    late: u64,
    answers: u64,
}

impl Stair {
    fn of(one: &Timed, run: u64) -> Self {
        let by_port = BTreeMap::from([(one.port, (*one, run))]);
        Stair { first: *one, earliest: *one, last: *one, tail: *one, by_port, late: 1, answers: 1 }
    }

    fn holds(&self, one: &Timed, run: u64, usual: &Usual) -> bool {
        let is_near = match self.by_port.get(&one.port) {
            Some((last, before)) => *before == run && came_together(last, one, TOGETHER, usual),
            None => came_together(&self.last, one, TOGETHER_ELSEWHERE, usual),
        };
        is_near && waited_beside(&self.last, one, usual) && came_together(&self.first, one, TOGETHER, usual)
    }

    fn add_late(&mut self, one: &Timed, run: u64) {
        self.by_port.insert(one.port, (*one, run));
        (self.last, self.tail) = (*one, *one);
        if one.sent < self.earliest.sent {
            self.earliest = *one;
        }
        self.late += 1;
        self.answers += 1;
    }

    /// The foot of the stair: requests that waited for less than what is late.
    fn add_quick(&mut self, one: &Timed, usual: &Usual) {
        if waited_beside(&self.tail, one, usual) && came_together(&self.tail, one, TOGETHER, usual) {
            self.tail = *one;
            self.answers += 1;
        }
    }

    fn told(&self, usual: &Usual) -> PingStall {
        PingStall {
            at: Duration::from_nanos(self.earliest.sent),
            length: Duration::from_nanos(usual.excess(&self.earliest)),
            late: self.late,
            answers: self.answers,
            lost: 0,
        }
    }
}

/// Without a stall the answer to `one` would have come before that to `other`: both requests waited at the same time.
fn waited_beside(other: &Timed, one: &Timed, usual: &Usual) -> bool {
    one.sent.saturating_add(usual.ns) < other.answered
}

fn came_together(other: &Timed, one: &Timed, share: u64, usual: &Usual) -> bool {
    let jitter = usual.spread.saturating_mul(SPREADS).saturating_add(BURST);
    one.answered.abs_diff(other.answered) <= (one.sent.abs_diff(other.sent) / share).saturating_add(jitter)
}

#[cfg(test)]
#[path = "stairs_tests.rs"]
mod tests;
