//! What did not keep the late answers waiting.

use whyslow_model::ping::{PingAccount, PortsHeld, Where};
use whyslow_model::{RuledOut, counted};

use crate::Evidence;
use crate::net::stalls::are_all_seen;

/// Nine of ten late answers have one cause.
const NEARLY_ALL: u64 = 90;

pub(super) fn of(ev: &Evidence<'_>, pings: &PingAccount, by_chance: u64) -> Vec<RuledOut> {
    if pings.late == 0 {
        return Vec::new();
    }
    let found = [by_ports(pings), by_place(pings), here(ev, pings, by_chance)];
    found.into_iter().flatten().collect()
}

fn by_ports(pings: &PingAccount) -> Option<RuledOut> {
    let ports = pings.ports?;
    // All ports may share the only queue of the target's device.
    if matches!(ports.held, PortsHeld::All | PortsHeld::Unknown) {
        return None;
    }
    let what = "a target that stands still as a whole, and a path that all requests take".into();
    let evidence = format!("{} of the same time were answered in time", counted(ports.in_time, "request"));
    Some(RuledOut { what, evidence })
}

fn by_place(pings: &PingAccount) -> Option<RuledOut> {
    let all: u64 = pings.places.iter().map(|one| one.late).sum();
    let most = pings.places.iter().find(|one| one.place.is_some())?;
    if most.late.saturating_mul(100) < all.saturating_mul(NEARLY_ALL) {
        return None;
    }
    let what = match most.place? {
        Where::There => "the way back, and the work of the target's server",
        Where::Target => "the network between the two hosts",
        Where::Back => "the target, and the way to it",
    };
    let evidence = format!(
        "{} of {all} late answers waited elsewhere for more than half of their delay, by the target's clock",
        most.late
    );
    Some(RuledOut { what: what.into(), evidence })
}

/// Packets of this host that waited for a CPU.
fn here(ev: &Evidence<'_>, pings: &PingAccount, by_chance: u64) -> Option<RuledOut> {
    let none = pings.unwatched.is_none() && pings.explained.is_empty() && by_chance == 0;
    if !none || !are_all_seen(ev).unwrap_or(false) {
        return None;
    }
    let what = "packets that wait for their CPU on this host".into();
    let evidence =
        format!("none of the {} came right behind such a wait", counted(pings.late, "late answer"));
    Some(RuledOut { what, evidence })
}

#[cfg(test)]
#[path = "ruled_out_tests.rs"]
mod tests;
