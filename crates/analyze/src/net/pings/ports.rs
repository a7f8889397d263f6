//! Do stalls hold all source ports, or some?
//!
//! A receiver with several queues spreads requests over them by addresses and ports. Where answers of some ports come in time while others stall,
//! one queue stalls, one of several paths, or one of several servers behind the port. Where all ports stall, it may be the whole target, a path that
//! all take, this host, or the only queue.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::ping::{PingPorts, PingStall, PortsHeld};

use super::times::{Timed, Usual};

/// Of two queues, so many ports lie in the same one by chance less often than once in a hundred.
const ENOUGH: u64 = 8;
/// All ports are held although such a part of the requests came in time: those that overtook the others right at the beginning.
const STRAYS: u64 = 10;
/// Of eight queues, seven answer in time. Where fewer requests than this part are late, only the same ports in each stall show a queue.
const PART: u64 = 10;
/// So many requests, or stalls, are no strays.
const NOT_ONE: u64 = 3;
/// In one of ten stalls a port is on another side than usual by chance: two stalls ran into each other.
const FEW_CHANGE: u64 = 10;
/// Where several queues stall in turn, each port changes sides, and as often as it is held.
const MANY_CHANGE: u64 = 2;

#[derive(Debug, Default, Clone, Copy)]
struct Port {
    late: u64,
    in_time: u64,
    /// Stalls that held it, and those that did not.
    held: u64,
    not_held: u64,
}

/// `timed`: in order of sending. `None`: no stall, or one port.
pub(super) fn held(timed: &[Timed], stalls: &[PingStall], usual: &Usual) -> Option<PingPorts> {
    // ICMP has no port, and others may treat it otherwise: it is counted apart, and says nothing about ports.
    let first = timed.iter().find(|one| one.port > 0)?.port;
    if stalls.is_empty() || timed.iter().all(|one| one.port == 0 || one.port == first) {
        return None;
    }
    let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
    for times in times(stalls, usual) {
        for (port, seen) in during(timed, times, usual) {
            let sum = ports.entry(port).or_default();
            (sum.late, sum.in_time) = (sum.late + seen.late, sum.in_time + seen.in_time);
            (sum.held, sum.not_held) = (
                sum.held + u64::from(seen.late > 0),
                sum.not_held + u64::from(seen.late == 0 && seen.in_time > 0),
            );
        }
    }
    let icmp = ports.remove(&0).unwrap_or_default();
    let sum = |of: fn(&Port) -> u64| ports.values().map(of).sum::<u64>();
    let told = PingPorts {
        held: PortsHeld::Unknown,
        late: sum(|port| port.late),
        late_ports: sum(|port| u64::from(port.late > 0)),
        in_time: sum(|port| port.in_time),
        in_time_ports: sum(|port| u64::from(port.in_time > 0)),
        icmp_late: icmp.late,
        icmp_in_time: icmp.in_time,
    };
    Some(PingPorts { held: verdict(&told, &ports), ..told })
}

/// When requests were sent that the end of a stall made late; stalls of several queues at the same time are one.
fn times(stalls: &[PingStall], usual: &Usual) -> Vec<(u64, u64)> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let times = |stall: &PingStall| {
        let from = ns(stall.at);
        let end = from.saturating_add(usual.ns).saturating_add(ns(stall.length));
        (from, end.saturating_sub(usual.late_from()))
    };
    let mut all: Vec<(u64, u64)> = stalls.iter().map(times).filter(|(from, to)| from < to).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// By port: requests that were sent in that time.
fn during(timed: &[Timed], (from, to): (u64, u64), usual: &Usual) -> BTreeMap<u16, Port> {
    let sent = |at| timed.partition_point(|one| one.sent < at);
    let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
    for one in timed.get(sent(from)..sent(to)).unwrap_or_default() {
        let port = ports.entry(one.port).or_default();
        port.late += u64::from(usual.is_late(one));
        port.in_time += u64::from(usual.is_quick(one));
    }
    ports
}

fn verdict(told: &PingPorts, ports: &BTreeMap<u16, Port>) -> PortsHeld {
    let all = told.late.saturating_add(told.in_time);
    if told.in_time.saturating_mul(STRAYS) < all {
        return if told.late_ports >= ENOUGH { PortsHeld::All } else { PortsHeld::Unknown };
    }
    if told.in_time < NOT_ONE || told.late < NOT_ONE {
        return PortsHeld::Unknown;
    }
    let again: Vec<&Port> = ports.values().filter(|port| port.held + port.not_held > 1).collect();
    let sum = |of: fn(&Port) -> u64| again.iter().map(|port| of(port)).sum::<u64>();
    let (held, changed) = (sum(|port| port.held), sum(|port| port.held.min(port.not_held)));
    let most = held.min(sum(|port| port.not_held));
    let is_few = told.late.saturating_mul(PART) < all;
    match again.len() as u64 {
        enough if enough >= ENOUGH && held >= NOT_ONE && changed.saturating_mul(FEW_CHANGE) <= most => {
            PortsHeld::Same
        }
        _ if is_few => PortsHeld::Unknown,
        enough if enough >= ENOUGH && changed.saturating_mul(MANY_CHANGE) >= most => PortsHeld::Changing,
        _ => PortsHeld::Some,
    }
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
