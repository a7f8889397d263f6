//! Stalls in which the target answers nothing, ever: requests that were lost in a row.

use std::time::Duration;

use whyslow_model::ping::{Ping, PingStall};

/// Fewer lost requests in a row show no silence.
const IN_A_ROW: u64 = 3;
/// As many in a row come by chance less often than once in so many windows, where each request is lost as often as all are.
const WINDOWS: f64 = 100_000.0;

/// Runs of lost requests that chance does not explain, in order of time. `asked`: the requests that left, in order; `true`: it was lost.
pub(super) fn silences<'p>(
    asked: impl Iterator<Item = (&'p Ping, bool)>,
    share: f64,
    sent: u64,
) -> Vec<PingStall> {
    let (mut all, mut open) = (Vec::new(), None::<(u64, u64, u64)>);
    for (row, is_lost) in asked {
        open = match (open.take(), is_lost) {
            (None, false) => None,
            (None, true) => Some((row.sent_ns, row.sent_ns, 1)),
            (Some((first, _, lost)), true) => Some((first, row.sent_ns, lost + 1)),
            (Some((first, _, lost)), false) => {
                all.push((first, row.sent_ns, lost));
                None
            }
        };
    }
    all.extend(open);
    let by_chance = |lost: u64| share.powf(lost as f64) * sent as f64 * WINDOWS >= 1.0;
    all.retain(|(_, _, lost)| *lost >= IN_A_ROW && !by_chance(*lost));
    let told = |(from, to, lost): (u64, u64, u64)| PingStall {
        at: Duration::from_nanos(from),
        length: Duration::from_nanos(to.saturating_sub(from)),
        lost,
        ..PingStall::default()
    };
    all.into_iter().map(told).collect()
}

/// Both kinds of stalls, in order of time: requests that were lost while others waited are of one stall.
pub(super) fn joined(mut stalls: Vec<PingStall>, silences: Vec<PingStall>) -> Vec<PingStall> {
    stalls.sort_by_key(|stall| (stall.at, stall.length));
    let mut apart = Vec::new();
    for silence in silences {
        let before = stalls.partition_point(|stall| stall.at <= silence.at);
        match before.checked_sub(1).and_then(|at| stalls.get_mut(at)) {
            Some(stall) if silence.at < stall.at.saturating_add(stall.length) => stall.lost += silence.lost,
            _ => apart.push(silence),
        }
    }
    stalls.append(&mut apart);
    stalls.sort_by_key(|stall| (stall.at, stall.length));
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A request each 10 ms; "x": it was lost.
    fn told(of: &str) -> Vec<(u64, u64, u64)> {
        let rows: Vec<Ping> =
            (0..of.len() as u64).map(|n| Ping { sent_ns: n * 10 * MS, ..Ping::default() }).collect();
        let lost = of.matches('x').count() as f64 / of.len() as f64;
        let all = silences(rows.iter().zip(of.chars().map(|one| one == 'x')), lost, of.len() as u64);
        all.iter().map(|one| (one.at.as_millis() as u64, one.length.as_millis() as u64, one.lost)).collect()
    }

    #[test]
    fn requests_lost_in_a_row_are_a_silence() {
        let quiet = ".".repeat(200);
        assert_eq!(told(&format!("{quiet}xxxxx{quiet}")), [(2000, 50, 5)]);
        assert_eq!(told(&format!("{quiet}xx{quiet}x{quiet}")), []);
        assert_eq!(told(&format!("{quiet}{}", "x".repeat(50))), [(2000, 490, 50)], "it lasts until the end");
        // A third of all is lost: three in a row are no news, thirty are.
        let often = "x..".repeat(50);
        assert_eq!(told(&format!("{often}xxx{often}")), []);
        assert_eq!(told(&format!("{often}{}{often}", "x".repeat(30))).len(), 1);
        assert_eq!(
            (told("xxxxxxxx"), told("")),
            (vec![], vec![]),
            "nothing is known of a host that never answers"
        );
    }

    #[test]
    fn losses_among_late_answers_are_of_their_stall() {
        let ms = Duration::from_millis;
        let stall =
            |at, length, late, lost| PingStall { at: ms(at), length: ms(length), late, answers: late, lost };
        let both = joined(
            vec![stall(500, 100, 9, 0), stall(100, 50, 4, 0)],
            vec![stall(520, 30, 0, 3), stall(700, 40, 0, 4)],
        );
        assert_eq!(both, [stall(100, 50, 4, 0), stall(500, 100, 9, 3), stall(700, 40, 0, 4)]);
    }
}
