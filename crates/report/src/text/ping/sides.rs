//! Where late answers waited, and which source ports stalls held.

use whyslow_model::counted;
use whyslow_model::ping::{PingAccount, PingHow, PingPorts, PortsHeld, Where};

use super::NEARLY_ALL;

/// The end of the headline: the place where nearly all late answers waited.
pub(super) fn waited(pings: &PingAccount) -> &'static str {
    match nearly_all(pings) {
        Some(Where::There) => "; they waited before the target's kernel took the request",
        Some(Where::Target) => "; they waited at the target",
        Some(Where::Back) => "; they waited after the target had answered",
        None => "",
    }
}

fn nearly_all(pings: &PingAccount) -> Option<Where> {
    let is_so = |late: u64| late > 0 && late * 100 >= pings.late * NEARLY_ALL;
    pings.places.iter().find(|one| is_so(one.late)).and_then(|one| one.place)
}

pub(super) fn places(line: &mut impl FnMut(&str, &str), pings: &PingAccount) {
    for (at, one) in pings.places.iter().enumerate() {
        let waited = match one.place {
            Some(Where::There) => {
                "waited before the target's kernel took the request: on the way there, or for a CPU of the target (`whyslow net --watch` there tells)"
            }
            Some(Where::Target) => {
                "waited at the target, between its kernel, which had the request, and the answer of its server"
            }
            Some(Where::Back) => {
                "waited after the target had answered: on the way back, or for a CPU of this host"
            }
            None => "waited in several places, or a clock was set: cannot tell",
        };
        let label = if at == 0 { "waited" } else { "" };
        line(label, &format!("{} of {} late answers {waited}", one.late, pings.late));
    }
}

pub(super) fn ports(line: &mut impl FnMut(&str, &str), pings: &PingAccount) {
    let is_one = pings.how == PingHow::Icmp.word();
    match &pings.ports {
        // The server kept them all, whatever queue they came by.
        Some(PingPorts { held: PortsHeld::Unknown, .. }) if nearly_all(pings) == Some(Where::Target) => {}
        Some(ports) => line("ports", &held(ports, pings)),
        None if is_one && pings.stalls.iter().any(|stall| stall.late > 0) => {
            line(
                "ports",
                "cannot tell whether one receive queue stalls, or all: ICMP has no ports (add --tcp PORT)",
            );
        }
        None => {}
    }
}

/// What all ports have in common.
fn what_has_all(pings: &PingAccount) -> &'static str {
    if pings.how == PingHow::Udp.word() {
        "so the target as a whole, a path that all take, or one receive queue: many devices spread UDP by addresses alone (ask by --tcp PORT)"
    } else {
        "so the target as a whole, a path that all take, or the only receive queue of the target's device"
    }
}

fn held(ports: &PingPorts, pings: &PingAccount) -> String {
    let of = |requests: u64, ports: u64, icmp: u64| {
        let mut from = Vec::new();
        from.extend((ports > 0).then(|| counted(ports, "source port")));
        from.extend((icmp > 0).then(|| "ICMP".to_owned()));
        let from = if from.is_empty() { String::new() } else { format!(" ({})", from.join(" and ")) };
        format!("{}{from}", counted(requests, "request"))
    };
    let late = of(ports.late, ports.late_ports, ports.icmp_late);
    let in_time = of(ports.in_time, ports.in_time_ports, ports.icmp_in_time);
    let seen = format!("during the stalls {late} came late, and {in_time} in time");
    match ports.held {
        PortsHeld::All => format!("{seen}: the stalls hold all ports, {}", what_has_all(pings)),
        PortsHeld::Some => format!("{seen}: one receive queue stalls, or one of several paths"),
        PortsHeld::Same => {
            format!("{seen}, the same ports in each stall: one receive queue stalls, or one of several paths")
        }
        PortsHeld::Changing => {
            format!(
                "{seen}, other ports in each stall: several receive queues stall in turn, or several paths"
            )
        }
        PortsHeld::Unknown => format!("{seen}: too few to tell whether one receive queue stalls, or all"),
    }
}
