//! Two ways to ask in turn: ICMP echoes, and requests to a port. What is judged together must be alike.

use whyslow_model::ping::{Ping, PingHow, Pinged};
use whyslow_model::{Recording, counted, seconds};

use super::is_open;
use super::times::{self, LATE, Usual};

/// Ways whose usual times differ by more are no measure for each other: an answer is late from twice as much on.
const ALIKE: u64 = LATE / 2;

/// What is judged.
pub(super) struct Way {
    /// As it was asked.
    pub pinged: Pinged,
    /// The way that had no answer: "icmp", "tcp port 80".
    pub silent: Option<String>,
    pub note: Option<String>,
}

/// Leaves the rows of one way where the other says nothing about it.
pub(super) fn judged(rec: &Recording, pinged: &Pinged, rows: &mut Vec<&Ping>) -> Way {
    let both = Way { pinged: pinged.clone(), silent: None, note: None };
    if !pinged.with_icmp {
        return both;
    }
    // Rows that were not sent, or had no time for an answer, are counted as such.
    let is_sent = |row: &Ping| row.error.is_none() && !is_open(row, rec, pinged);
    let of = |icmp: bool| rows.iter().copied().filter(move |row| (row.port == 0) == icmp);
    let is_answered = |icmp: bool| of(icmp).any(|row| row.answered_ns.is_some());
    let usual = |icmp: bool| Usual::of(&times::timed(&of(icmp).collect::<Vec<_>>())).map(|usual| usual.ns);
    let is_silent = |icmp: bool| !is_answered(icmp) && of(icmp).any(is_sent);
    let (icmp_is_left, silent, note) = match (is_answered(true), is_answered(false)) {
        // A firewall drops it: that says nothing about the others.
        (true, false) if is_silent(false) => {
            (true, Some(format!("{} port {}", pinged.how, pinged.port)), String::new())
        }
        (false, true) if is_silent(true) => (false, Some(PingHow::Icmp.word().to_owned()), String::new()),
        (true, true) => match (usual(true), usual(false)) {
            (Some(icmp), Some(port)) if icmp.abs_diff(port) > ALIKE => {
                let than = if icmp > port { "longer" } else { "shorter" };
                let by = seconds(std::time::Duration::from_nanos(icmp.abs_diff(port)));
                (false, None, format!("took {by} {than} than {}", pinged.how))
            }
            _ => return both,
        },
        _ => return both,
    };
    let all = rows.len();
    rows.retain(|row| (row.port == 0) == icmp_is_left || !is_sent(row));
    let left_out = counted((all - rows.len()) as u64, "request");
    let note = match &silent {
        Some(way) => format!("{left_out} by {way} had no answer: they are left out"),
        None => format!("{left_out} by icmp {note}: they are left out"),
    };
    let how = if icmp_is_left { PingHow::Icmp.word().to_owned() } else { pinged.how.clone() };
    let interval_ns = pinged.interval_ns.saturating_mul(2);
    Way { pinged: Pinged { with_icmp: false, interval_ns, how, ..pinged.clone() }, silent, note: Some(note) }
}
