//! What became of the packets of a run, by the clock of its own pinger.

use std::collections::BTreeMap;

use whyslow_faults::clock::Span;
use whyslow_faults::rounds::Trouble;

use super::stall::{LEAST_RATIO, Pinger, QUIET_S, held_up_s, slow, trips};
use super::{median, steady};
use crate::testbed::part::{Facts, Proof};

/// What the pinger must show.
pub(super) enum Least {
    /// No slow round trips.
    Healthy,
    /// Slow round trips of so many times the least that whyslow lists.
    Slow(f64),
}

impl Least {
    pub fn of(is_healthy: bool) -> Self {
        if is_healthy { Least::Healthy } else { Least::Slow(LEAST_RATIO) }
    }
}

/// A fault that comes at this interval delays packets each time; of a healthy host none is slow.
pub(super) fn waited(
    pinger: &Pinger,
    every_ms: u64,
    window: Span,
    without: &[Span],
    least: Least,
    names: BTreeMap<String, String>,
) -> Result<Facts, Trouble> {
    let before = without.first().copied().ok_or("there is no time without the fault")?;
    let pinger = &pinger.actor;
    let slow = |span| slow(pinger, span, every_ms);
    let middle = median(trips(pinger, before));
    let what = format!(
        "slow round trip (longest in each interval), s (middle trip {middle:.5}; {} trips)",
        trips(pinger, window).len()
    );
    let (with, usual) = (slow(window), slow(before).max(QUIET_S));
    let Least::Slow(ratio) = least else {
        return Ok(Facts { proof: steady(what, with, usual, LEAST_RATIO), lost_s: None, names });
    };
    let held_up = held_up_s(pinger, window, middle.max(1e-4));
    let proof = Proof::rises(what, with, usual.min(QUIET_S), ratio);
    Ok(Facts { proof, lost_s: Some((held_up, held_up)), names })
}
