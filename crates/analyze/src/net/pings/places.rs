//! Where a late answer waited: before the target's kernel took the request, at its server, or behind the server's answer.
//!
//! Times of two clocks have no common zero, and clocks drift. So a late answer is compared with the quick ones right before and behind it: what
//! its way, its stay and its return took longer is where it waited.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use whyslow_model::ping::{PingPlace, Where};

use super::times::{Timed, Usual};

/// A clock that is set right is slewed by 500 ppm at most (adjtimex(2)): in so many times the delay by a fifth of it.
const NEAR: u64 = 400;
/// A part of the delay that is shorter than nothing by more than its fifth: a clock was set meanwhile.
const LESS_THAN_NOTHING: i128 = 5;

/// Late answers by place, the most first; none if the target tells no times.
pub(super) fn places(timed: &[Timed], usual: &Usual) -> Vec<PingPlace> {
    let quick: Vec<&Timed> = timed.iter().filter(|one| one.leg.is_some() && usual.is_quick(one)).collect();
    let late = timed.iter().filter(|one| usual.is_late(one) && one.leg.is_some());
    let mut by_place: BTreeMap<Option<&'static str>, PingPlace> = BTreeMap::new();
    for one in late {
        let place = agreed(&quick, one);
        let sum = by_place.entry(place.map(Where::word)).or_insert(PingPlace { place, late: 0 });
        sum.late += 1;
    }
    let mut all: Vec<PingPlace> = by_place.into_values().collect();
    all.sort_by_key(|one| (one.place.is_none(), Reverse(one.late)));
    all
}

/// What the comparisons with the quick answers before and behind it say; a clock that stood still, or was set between them, makes them disagree.
/// `quick`: in order of time.
fn agreed(quick: &[&Timed], one: &Timed) -> Option<Where> {
    let at = quick.partition_point(|quick| quick.sent < one.sent);
    let beside = [at.checked_sub(1).and_then(|before| quick.get(before)), quick.get(at)];
    let near = |quick: &&&Timed| quick.sent.abs_diff(one.sent) <= one.delay().saturating_mul(NEAR);
    let mut told = beside.into_iter().flatten().filter(near).map(|quick| place(one, quick));
    let first = told.next()??;
    told.all(|other| other == Some(first)).then_some(first)
}

/// The part that took more than half of what the one came later than the other.
fn place(late: &Timed, quick: &Timed) -> Option<Where> {
    let more = |late: u64, quick: u64| i128::from(late) - i128::from(quick);
    let (late_leg, quick_leg) = (late.leg?, quick.leg?);
    let delay = more(late.delay(), quick.delay());
    let (there, stay) = (more(late_leg.0, quick_leg.0), more(late_leg.1, quick_leg.1));
    let parts = [(Where::There, there), (Where::Target, stay), (Where::Back, delay - there - stay)];
    if parts.iter().any(|(_, part)| *part * LESS_THAN_NOTHING < -delay) {
        return None;
    }
    parts.into_iter().find(|(_, part)| part * 2 > delay).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A request each 10 ms: what way, stay and return took, in us; the clock of the target gains so many ppm.
    fn told(parts: &[(u64, u64, u64)], ppm: u64) -> Vec<(Option<Where>, u64)> {
        let one = |(n, (there, stay, back)): (usize, &(u64, u64, u64))| {
            let sent = n as u64 * 10 * MS;
            let arrived = sent + there * 1000;
            let leg = Some((there * 1000 + 7 * MS + arrived * ppm / 1_000_000, stay * 1000));
            Timed { sent, answered: sent + (there + stay + back) * 1000, port: 7, leg }
        };
        let timed: Vec<Timed> = parts.iter().enumerate().map(one).collect();
        let usual = Usual::of(&timed).expect("answers came");
        places(&timed, &usual).into_iter().map(|one| (one.place, one.late)).collect()
    }

    /// Each hundredth request and the one behind it are late.
    fn seldom(late: (u64, u64, u64)) -> Vec<(u64, u64, u64)> {
        (0..600).map(|n| if n % 100 > 97 { late } else { (60, 30, 60) }).collect()
    }

    #[test]
    fn a_late_answer_waited_where_its_time_went() {
        assert_eq!(told(&seldom((50_000, 30, 60)), 0), [(Some(Where::There), 12)]);
        assert_eq!(told(&seldom((60, 50_000, 60)), 0), [(Some(Where::Target), 12)]);
        assert_eq!(told(&seldom((60, 30, 50_000)), 0), [(Some(Where::Back), 12)]);
        assert_eq!(told(&seldom((20_000, 20_000, 20_000)), 0), [(None, 12)], "three places");
        assert_eq!(told(&seldom((60, 30, 60)), 0), []);
    }

    #[test]
    fn a_clock_that_drifts_changes_no_place() {
        assert_eq!(told(&seldom((60, 7_000, 60)), 500), [(Some(Where::Target), 12)]);
        assert_eq!(told(&seldom((60, 30, 7_000)), 500), [(Some(Where::Back), 12)]);
    }

    #[test]
    fn a_clock_that_was_set_tells_no_place() {
        let timed = |set: u64| {
            let one = |n: u64| {
                let is_late = n == 50;
                let (sent, delay) = (n * 10 * MS, if is_late { 20 * MS } else { MS });
                let leg = Some((if is_late { MS + set } else { MS }, MS / 10));
                Timed { sent, answered: sent + delay, port: 7, leg }
            };
            (0..100).map(one).collect::<Vec<_>>()
        };
        let told = |set| {
            let timed = timed(set);
            places(&timed, &Usual::of(&timed).expect("answers came"))
        };
        assert_eq!(told(0), [PingPlace { place: Some(Where::Back), late: 1 }]);
        assert_eq!(told(500 * MS), [PingPlace { place: None, late: 1 }]);
    }

    /// The target was paused with its clock, for 300 ms: each late answer is near to a quick one on one side of the pause.
    #[test]
    fn a_clock_that_stood_still_tells_no_place() {
        let one = |n: u64| {
            let sent = n * 10 * MS;
            let is_held = (100..130).contains(&n);
            let paused = if n >= 100 { 300 * MS } else { 0 };
            let arrived = if is_held { 1300 * MS } else { sent };
            let leg = Some((arrived - paused + 1000 * MS - sent, MS / 10));
            Timed { sent, answered: arrived + MS, port: 7, leg }
        };
        let timed: Vec<Timed> = (0..300).map(one).collect();
        let told = places(&timed, &Usual::of(&timed).expect("answers came"));
        assert_eq!(told.iter().map(|one| one.place).collect::<Vec<_>>(), [None], "{told:?}");
    }

    #[test]
    fn a_long_stall_is_compared_with_what_is_far_away() {
        let one = |n: u64| {
            let sent = n * 10 * MS;
            let stay = if (100..650).contains(&n) { 6500 * MS - sent } else { MS / 10 };
            Timed { sent, answered: sent + stay + MS, port: 7, leg: Some((MS, stay)) }
        };
        let timed: Vec<Timed> = (0..900).map(one).collect();
        let told = places(&timed, &Usual::of(&timed).expect("answers came"));
        let [only] = &told[..] else { panic!("{told:?}") };
        assert!(only.place == Some(Where::Target) && only.late > 540, "{only:?}");
    }

    #[test]
    fn a_target_that_tells_no_times_has_no_places() {
        let timed: Vec<Timed> = (0..100)
            .map(|n| Timed { sent: n * MS, answered: n * MS + n / 90 * 20 * MS, port: 0, leg: None })
            .collect();
        assert_eq!(places(&timed, &Usual::of(&timed).expect("answers came")), []);
    }
}
