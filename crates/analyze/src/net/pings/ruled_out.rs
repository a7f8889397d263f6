//! What did not keep the late answers waiting.

use whyslow_model::ping::{PingAccount, PortsHeld, Where};
use whyslow_model::{RuledOut, counted};

use crate::Evidence;
use crate::net::stalls::{accounts, are_all_seen};

/// Nine of ten late answers have one cause.
const NEARLY_ALL: u64 = 90;

pub(super) fn of(ev: &Evidence<'_>, pings: &PingAccount) -> Vec<RuledOut> {
    if pings.late == 0 {
        return Vec::new();
    }
    let found = [by_ports(pings), by_place(pings), here(ev)];
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
    let most = pings.places.iter().find(|one| one.place.is_some())?;
    let all = pings.late;
    if most.late.saturating_mul(100) < all.saturating_mul(NEARLY_ALL) {
        return None;
    }
    let what = match most.place? {
        Where::There => "the way back, and the work of the target's server",
        Where::Target => "the network between the two hosts",
        // The target's own send queue is behind its server.
        Where::Back => "the way to the target, and the work of its server",
    };
    let evidence = format!(
        "{} of {all} late answers waited elsewhere for more than half of their delay, by the target's clock",
        most.late
    );
    Some(RuledOut { what: what.into(), evidence })
}

/// No packet of this host waited, late answers or others. Where some did, and none is tied to a late answer, they may have been several short waits.
fn here(ev: &Evidence<'_>) -> Option<RuledOut> {
    if !are_all_seen(ev).unwrap_or(false) || !accounts(ev).is_empty() {
        return None;
    }
    let what = "packets that wait for their CPU on this host".into();
    Some(RuledOut { what, evidence: "none waited for 5 ms or more".into() })
}

#[cfg(test)]
#[path = "ruled_out_tests.rs"]
mod tests;
