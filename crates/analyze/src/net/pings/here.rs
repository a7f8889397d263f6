//! Late answers that waited on this host: each came right behind a stall of packets on one of its CPUs.
//!
//! The CPU that takes an answer is not recorded, so a stall of any CPU may hold it. By chance one ends in the milliseconds before a late answer and
//! lasts as long as the answer is late only where this host stalls for much of the window.

use std::collections::BTreeMap;

use whyslow_model::Missing;
use whyslow_model::ping::Explained;
use whyslow_model::stall::{StallCulprit, StallKind};

use super::times::{Timed, Usual};
use crate::Evidence;
use crate::net::stalls::{self, Told};

/// A stall is what made an answer late if it lasted for so much of what the answer is late, in per cent.
const MOST: u64 = 80;
/// A stall with interrupts off is up to one tick too short (250 Hz), in ns.
const TICK: u64 = 4_000_000;
/// However short a stall looks: at least half.
const LEAST: u64 = 2;
/// The end of a stall and the answer behind it are two readings of the clock, and the answer may be among the packets of
/// the first poll, in ns.
const BEFORE_END: u64 = 1_000_000;
/// Packets in front of the answer take time behind the stall, in ns.
const BEHIND_END: u64 = 2_000_000;
/// Behind a long stall more of them wait: so much of what the answer is late, in per cent.
const BEHIND_LONG: u64 = 20;
/// Stalls that are looked at on either side of an answer: those that end nearest. A hypervisor that stops hundreds of CPUs makes more, and
/// the nearest ones tell it.
const LOOKED_AT: usize = 32;

/// Other times, in ns: no multiples of each other, nor of the periods of timers.
const OTHER_TIMES: [u64; 5] = [61_300_000, 137_900_000, 293_700_000, 571_100_000, 907_300_000];
/// No answer is tied to a stall if more than a third of the matches may be chance.
const CHANCE: u64 = 3;

/// Late answers, and the stalls of this host behind which they came.
#[derive(Debug, Default)]
pub(super) struct Here {
    pub explained: Vec<Explained>,
    /// So many answers came right behind a stall, but about as many would at other times: none is tied to one.
    pub by_chance: u64,
}

/// The late answers that waited here, or why that is not known.
pub(super) fn explained(ev: &Evidence<'_>, late: &[Timed], usual: &Usual) -> Result<Here, Missing> {
    ev.stalls()?;
    let told = stalls::all(ev);
    let waits = Waits::of(&told);
    let held = |one: &Timed, later: u64| {
        let (sent, answered) = (one.sent.saturating_add(later), one.answered.saturating_add(later));
        waits.cause(sent, answered, usual.excess(one)).map(|wait| wait.told)
    };
    let mut by_stall: BTreeMap<usize, u64> = BTreeMap::new();
    late.iter().filter_map(|one| held(one, 0)).for_each(|told| *by_stall.entry(told).or_default() += 1);
    let matches: u64 = by_stall.values().sum();
    // What the same answers would match at other times, they match by chance.
    let at = |later: &u64| late.iter().filter(|one| held(one, *later).is_some()).count() as u64;
    let by_chance: u64 = OTHER_TIMES.iter().map(at).sum();
    if by_chance.saturating_mul(CHANCE) > matches.saturating_mul(OTHER_TIMES.len() as u64) {
        return Ok(Here { explained: Vec::new(), by_chance: matches });
    }
    let found = by_stall.into_iter().filter_map(|(at, late)| Some((told.get(at)?, late)));
    Ok(Here { explained: by_cause(found), by_chance: 0 })
}

fn by_cause<'t>(found: impl Iterator<Item = (&'t Told, u64)>) -> Vec<Explained> {
    let mut by_cause: BTreeMap<(u32, Option<StallCulprit>, Option<&str>), (u64, Explained)> = BTreeMap::new();
    for (one, late) in found {
        let culprit = one.culprit.as_ref().ok().cloned();
        let cause = culprit.clone().map(|culprit| StallCulprit { stack: Vec::new(), ..culprit });
        let unknown = one.culprit.as_ref().err();
        let none =
            || Explained { cpu: one.cpu, late: 0, stalls: 0, culprit: None, unknown: unknown.cloned() };
        let key = (one.cpu, cause, unknown.map(String::as_str));
        let (longest, sum) = by_cause.entry(key).or_insert_with(|| (0, none()));
        sum.late = sum.late.saturating_add(late);
        sum.stalls += 1;
        // The stack is that of the longest.
        if sum.stalls == 1 || one.ns > *longest {
            (sum.culprit, *longest) = (culprit, one.ns);
        }
    }
    let mut all: Vec<Explained> = by_cause.into_values().map(|(_, sum)| sum).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.late));
    all
}

/// When packets waited on some CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    to: u64,
    from: u64,
    /// Which stall.
    told: usize,
}

impl Wait {
    /// The part of it between these times.
    fn within(&self, from: u64, to: u64) -> u64 {
        self.to.min(to).saturating_sub(self.from.max(from))
    }
}

/// The least time of a stall that holds an answer so long.
fn enough(excess: u64) -> u64 {
    (excess / 100).saturating_mul(MOST).saturating_sub(TICK).max(excess / LEAST).max(1)
}

/// In order of their ends.
struct Waits(Vec<Wait>);

impl Waits {
    fn of(told: &[Told]) -> Self {
        let wait = |(at, one): (usize, &Told)| Wait {
            to: one.at_ns,
            from: one.at_ns.saturating_sub(one.ns),
            told: at,
        };
        // A queue is no stall of all packets: nothing ties an answer to it.
        let alone = told.iter().enumerate().filter(|(_, one)| one.kind != StallKind::Queued);
        let mut all: Vec<Wait> = alone.map(wait).collect();
        all.sort_unstable();
        Waits(all)
    }

    fn until(&self, to: u64) -> usize {
        self.0.partition_point(|wait| wait.to <= to)
    }

    /// The stall that held an answer: of those that lasted long enough the one that ended nearest to it. Else the longer one of two: the request
    /// waited for the one, and its answer for the other.
    fn cause(&self, sent: u64, answered: u64, excess: u64) -> Option<&Wait> {
        let enough = enough(excess);
        let ended = self.ended_near(answered, excess);
        let distance = |wait: &Wait| (wait.to.abs_diff(answered), *wait);
        let alone = ended.iter().filter(|wait| wait.within(sent, answered) >= enough);
        if let Some(wait) = alone.min_by_key(|wait| distance(wait)) {
            return Some(wait);
        }
        let held = ended.iter().filter(|wait| wait.within(sent, answered) > 0);
        let last =
            held.max_by_key(|wait| (wait.within(sent, answered), std::cmp::Reverse(distance(wait))))?;
        self.with_another(last, sent, answered, enough)
    }

    /// Those that may have held an answer.
    fn ended_near(&self, answered: u64, excess: u64) -> &[Wait] {
        let behind = BEHIND_END.max((excess / 100).saturating_mul(BEHIND_LONG));
        let first = answered.saturating_sub(behind);
        let (at, end) = (self.until(answered), self.until(answered.saturating_add(BEFORE_END)));
        let begin = self.0.partition_point(|wait| wait.to < first);
        let (begin, end) = (begin.max(at.saturating_sub(LOOKED_AT)), end.min(at.saturating_add(LOOKED_AT)));
        self.0.get(begin..end).unwrap_or_default()
    }

    fn with_another<'w>(&'w self, last: &'w Wait, sent: u64, answered: u64, enough: u64) -> Option<&'w Wait> {
        let (begin, end) = (self.until(sent), self.until(answered));
        let others = self.0.get(begin.max(end.saturating_sub(LOOKED_AT))..end).unwrap_or_default();
        let own = last.within(sent, answered);
        let both = |other: &Wait| {
            let (from, to) = (last.from.max(sent), last.to.min(answered));
            let shared = other.within(from, to);
            own.saturating_add(other.within(sent, answered)).saturating_sub(shared)
        };
        let other = others.iter().max_by_key(|other| (both(other), **other))?;
        let longer = if other.within(sent, answered) > own { other } else { last };
        Some(longer).filter(|_| both(other) >= enough)
    }
}

#[cfg(test)]
#[path = "here_tests.rs"]
mod tests;
