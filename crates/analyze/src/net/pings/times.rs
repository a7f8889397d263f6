//! The time from a request to its answer: percentiles, and the time from which on an answer is late.

use std::time::Duration;

use whyslow_model::ping::{Ping, PingAnswer, PingTimes};

/// An answer so much later than usual is late: stalls of packets are listed from 5 ms on at the receiver, too (docs/net.md).
pub(super) const LATE: u64 = 5_000_000;
/// Share of the answers that are as quick as usual, in thousandths. Of a receiver that stalls for 80 % of the time a fifth of the answers is
/// quick, and at 90 % still a tenth: a twentieth lies among them. The quickest one alone may be a stray.
const USUAL: u64 = 50;
/// The lower quarter of the answers.
const QUARTER: u64 = 250;
/// An answer is late beyond so many times the usual difference between two requests that follow each other. Where the delay of each answer is
/// an exponential time, 1 % lies above this; of one with a normal distribution nothing does.
const DIFFERENCES: u64 = 10;
/// The same for the distance from a twentieth to a quarter of the answers: of an exponential time it is a third of that difference, of a normal
/// distribution as much.
const DISTANCES: u64 = 20;

/// An answer with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timed {
    pub sent: u64,
    pub answered: u64,
    pub port: u16,
    /// Of the way to the target, and of the stay there, by the target's clock.
    pub leg: Option<(u64, u64)>,
}

impl Timed {
    /// From the request to the answer. An answer before its request is an error of clocks.
    pub fn delay(&self) -> u64 {
        self.answered.saturating_sub(self.sent)
    }
}

/// The answers of the target, in the order in which they were asked for. An "unreachable" is none: a router sent it, or this host itself after
/// it has asked for the target's hardware address in vain, for several requests together.
pub(super) fn timed(rows: &[&Ping]) -> Vec<Timed> {
    let asked = rows.iter().filter(|row| row.error.is_none());
    let answers = asked.filter(|row| super::kind(row) != Some(PingAnswer::Unreachable));
    let timed = |row: &&Ping| {
        let leg = row.leg.as_ref().map(|leg| (leg.there_ns, leg.stay_ns));
        Some(Timed { sent: row.sent_ns, answered: row.answered_ns?, port: row.port, leg })
    };
    let mut all: Vec<Timed> = answers.filter_map(timed).collect();
    all.sort_unstable();
    all
}

/// Nearest rank, of sorted values.
fn at_share(sorted: &[u64], thousandths: u64) -> Option<u64> {
    let rank = (sorted.len() as u64).saturating_mul(thousandths).div_ceil(1000);
    sorted.get(usize::try_from(rank.saturating_sub(1)).ok()?).copied()
}

fn delays(timed: &[Timed]) -> Vec<u64> {
    let mut all: Vec<u64> = timed.iter().map(Timed::delay).collect();
    all.sort_unstable();
    all
}

pub(super) fn percentiles(timed: &[Timed]) -> Option<PingTimes> {
    let sorted = delays(timed);
    let at = |thousandths| at_share(&sorted, thousandths).map(Duration::from_nanos);
    Some(PingTimes {
        least: at(0)?,
        p50: at(500)?,
        p90: at(900)?,
        p99: at(990)?,
        p999: at(999)?,
        worst: at(1000)?,
    })
}

/// How long an answer takes while nothing stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usual {
    pub ns: u64,
    /// From here on it is late.
    late_from: u64,
    /// How much two answers that follow each other differ.
    pub spread: u64,
}

impl Usual {
    /// The median and the 90th percentile belong to the stalls where these are most of the window, and cannot say what is usual. Two other
    /// measures of the spread can: the difference between neighbours, which in a stall is small, however long it lasts, and the distance
    /// between low quantiles. Stalls can only widen either: the first if they are shorter than the interval, the second if they take three
    /// quarters of the window. So the smaller one counts.
    pub fn of(timed: &[Timed]) -> Option<Usual> {
        let sorted = delays(timed);
        let ns = at_share(&sorted, USUAL)?;
        let distance = at_share(&sorted, QUARTER)?.saturating_sub(ns);
        let difference = between_neighbours(timed);
        let wide = distance
            .saturating_mul(DISTANCES)
            .min(difference.map_or(u64::MAX, |difference| difference.saturating_mul(DIFFERENCES)));
        Some(Usual { ns, late_from: ns.saturating_add(wide.max(LATE)), spread: wide / DIFFERENCES })
    }

    pub fn late_from(&self) -> u64 {
        self.late_from
    }

    pub fn is_late(&self, one: &Timed) -> bool {
        one.delay() >= self.late_from
    }

    /// An answer that no stall held.
    pub fn is_quick(&self, one: &Timed) -> bool {
        one.delay() < self.ns.saturating_add(self.late_from.saturating_sub(self.ns) / 2)
    }

    /// How much later than usual it came.
    pub fn excess(&self, one: &Timed) -> u64 {
        one.delay().saturating_sub(self.ns)
    }
}

/// The usual difference between two requests of a port that follow each other. Within a stall their delays differ by the interval, and their
/// answers by nothing: the smaller of these counts. A port has one receive queue, and other ports may have one that does not stall.
fn between_neighbours(timed: &[Timed]) -> Option<u64> {
    let mut by_port = timed.to_vec();
    by_port.sort_unstable_by_key(|one| (one.port, one.sent, one.answered));
    let pairs = by_port.windows(2).filter_map(|pair| match pair {
        [a, b] if a.port == b.port => {
            Some(a.delay().abs_diff(b.delay()).min(a.answered.abs_diff(b.answered)))
        }
        _ => None,
    });
    let mut all: Vec<u64> = pairs.collect();
    all.sort_unstable();
    at_share(&all, 500)
}
