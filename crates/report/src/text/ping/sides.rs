//! Where late answers waited, and which source ports stalls held.

use whyslow_model::counted;
use whyslow_model::ping::{PingAccount, PingHow, PingPorts, PortsHeld, Where};

use super::NEARLY_ALL;

/// The end of the headline: the place where nearly all late answers waited.
pub(super) fn waited(pings: &PingAccount) -> &'static str {
    match nearly_all(pings) {
        Some(Where::There) => "; they waited before the target's kernel took the request",
        Some(Where::Target) => "; they waited at the target's server",
        Some(Where::Back) => "; they waited behind the answer of the target's server",
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
                "waited behind the answer of the target's server: in the target's send queue, on the way back, or for a CPU of this host"
            }
            None => "waited in several places, or the clocks do not tell",
        };
        let label = if at == 0 { "waited" } else { "" };
        line(label, &format!("{} of {} late answers {waited}", one.late, pings.late));
    }
}

pub(super) fn ports(line: &mut impl FnMut(&str, &str), pings: &PingAccount) {
    let is_one = pings.how == PingHow::Icmp.word();
    match &pings.ports {
        Some(ports) => line(
            "ports",
            &format!("{}{}", seen(ports), if is_known(pings) { "" } else { means(ports, pings) }),
        ),
        None if is_one && pings.stalls.iter().any(|stall| stall.late > 0) => {
            line(
                "ports",
                "cannot tell whether one receive queue stalls, or all: ICMP has no ports (add --tcp PORT)",
            );
        }
        None => {}
    }
}

/// The place is known already: ports can tell no more about it.
fn is_known(pings: &PingAccount) -> bool {
    let here: u64 = pings.explained.iter().map(|one| one.late).sum();
    here * 100 >= pings.late * NEARLY_ALL || matches!(nearly_all(pings), Some(Where::Target | Where::Back))
}

/// "during the stalls 14 requests (6 source ports) came late, and 17 requests (10 source ports) in time".
fn seen(ports: &PingPorts) -> String {
    let of = |requests: u64, ports: u64| {
        let from = if ports > 0 { format!(" ({})", counted(ports, "source port")) } else { String::new() };
        format!("{}{from}", counted(requests, "request"))
    };
    let which = match ports.held {
        PortsHeld::Same => ", the same ports in each stall",
        PortsHeld::Changing => ", other ports in each stall",
        PortsHeld::All | PortsHeld::Some | PortsHeld::Unknown => "",
    };
    let icmp = match (ports.icmp_late, ports.icmp_in_time) {
        (0, 0) => String::new(),
        (late, in_time) => format!("; of ICMP {late} came late, and {in_time} in time"),
    };
    let late = of(ports.late, ports.late_ports);
    let in_time = of(ports.in_time, ports.in_time_ports);
    format!("during the stalls {late} came late, and {in_time} in time{which}{icmp}")
}

fn means(ports: &PingPorts, pings: &PingAccount) -> &'static str {
    let is_icmp_in_time = ports.icmp_in_time > ports.icmp_late;
    match ports.held {
        PortsHeld::All if is_icmp_in_time => {
            ": a receive queue stalls that ICMP does not use, or what answers for the port"
        }
        PortsHeld::All if pings.how == PingHow::Udp.word() => {
            ": the target as a whole, a path that all take, this host, or one receive queue (many devices spread UDP by addresses alone; ask by \
             --tcp PORT)"
        }
        PortsHeld::All => {
            ": the target as a whole, a path that all take, this host, or a device with one receive queue"
        }
        PortsHeld::Some | PortsHeld::Same => {
            ": one receive queue stalls, one of several paths, or one of several servers behind the port"
        }
        PortsHeld::Changing => ": receive queues stall in turn, or paths, or servers behind the port",
        PortsHeld::Unknown if ports.late == 0 && ports.icmp_late > 0 => {
            ": the receive queue of ICMP stalls, or ICMP is held alone"
        }
        PortsHeld::Unknown => ": too few to tell whether one receive queue stalls, or all",
    }
}
