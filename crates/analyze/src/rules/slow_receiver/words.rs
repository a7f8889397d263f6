//! The chain in words, and what would help.

use std::time::Duration;

use whyslow_model::{Finding, Hop, seconds};

use super::case::Case;
use crate::Evidence;
use crate::receive::{Receiving, State};
use crate::rules::slow_cpu;

/// A softirq that takes less of its CPU, and is never stopped, is no part of the chain.
const TELLING: f64 = 0.05;

/// "sink reads too late: ...; TCP queues were pruned 27 times, ..."
pub(super) fn title(case: &Case<'_>) -> String {
    let symptoms = case.symptoms.words();
    let Some(reader) = &case.reader else {
        let whose = if case.sockets_known { "none was seen full" } else { "sockets were not looked at" };
        return format!("{symptoms}: whose queue is not known, {whose}{}", ruled_out(case));
    };
    let end = match (&case.slow, &case.memory) {
        (Some(slow), _) => format!("{}: {}", slow_cpu::slower(slow), slow.why.words()),
        (None, Some((held, limit))) => {
            format!("all TCP sockets together hold {held} pages of memory, and TCP saves from {limit} on")
        }
        (None, None) => format!("{}{}", doing(case), ruled_out(case)),
    };
    format!("{} reads too late: {end}; {symptoms}", reader.comm)
}

/// "it is on CPU 1 for 97 % of its time: user code (parse)"
fn doing(case: &Case<'_>) -> String {
    let Some(why) = &case.why else { return "what it does was not seen".to_owned() };
    let (share, what) = (why.share, &why.what);
    let cpu = why.cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    match why.state {
        State::Running => format!("it is on {cpu} for {share} of its time: {what}"),
        State::Runnable => {
            format!("it is ready and not running for {share} of its time: it waits for {what}")
        }
        State::Blocked => format!("it is blocked for {share} of its time: it waits for {what}"),
        State::Asleep => format!("it sleeps for {share} of its time: {what}"),
        State::Unknown => "why is not seen".to_owned(),
    }
}

/// ", not the CPU's speed, not the packet budget": what was asked and is not.
fn ruled_out(case: &Case<'_>) -> String {
    let speed = (case.speed_known && case.slow.is_none()).then_some("the CPU's speed");
    let never = |of: fn(&Receiving) -> u64| case.receiving.is_some_and(|r| of(&r) == 0 && r.unseen == 0);
    let budget = never(|r| r.by_budget).then_some("the packet budget");
    let time = never(|r| r.by_time).then_some("the softirq's time limit");
    let memory = (case.symptoms.pressure == 0 && case.memory.is_none()).then_some("TCP's memory limit");
    let not: Vec<_> = [speed, budget, time, memory].into_iter().flatten().collect();
    not.iter().map(|what| format!(", not {what}")).collect()
}

fn hop(edge: &str, who: String, waits_for: String, state: &str, lost: Duration) -> Hop {
    Hop {
        edge: edge.to_owned(),
        who,
        waits_for,
        state: state.to_owned(),
        lost,
        worst: None,
        count: None,
        per_call: None,
        grows_with: None,
    }
}

/// From the senders down.
pub(super) fn hops(ev: &Evidence<'_>, case: &Case<'_>, lost: Duration) -> Vec<Hop> {
    let mut hops = Vec::new();
    if let Some(reader) = &case.reader {
        let (full, looks) = reader.full();
        let who = match reader.senders.first() {
            Some(sender) => format!("{} (pid {})", sender.comm, sender.tgid),
            None => "who sends".to_owned(),
        };
        let room = format!(
            "room in the receive queue of {} (pid {}) at {}, full at {full} of {looks} looks",
            reader.comm,
            reader.tgid,
            reader.place()
        );
        let closed = Some(case.symptoms.closed).filter(|closed| *closed > 0);
        hops.push(Hop { count: closed, ..hop("receive-queue", who, room, "window closed", case.held) });
    }
    if let (Some(reader), Some(why)) = (&case.reader, &case.why) {
        let (state, edge) = match why.state {
            State::Running => ("running", "work"),
            State::Runnable => ("runnable", "runnable"),
            State::Blocked => ("disk sleep", "blocked"),
            State::Asleep => ("sleep", "sleep"),
            State::Unknown => ("unknown", "unknown"),
        };
        let at = why.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
        let what = if why.what.is_empty() { "what was not seen" } else { why.what.as_str() };
        let words = format!("{what}, {} of its time{at}", why.share);
        hops.push(hop(edge, format!("{} (pid {})", reader.comm, reader.tgid), words, state, lost));
    }
    hops.extend(case.receiving.and_then(|receiving| softirq(ev.window(), &receiving)));
    if let Some(slow) = &case.slow {
        let words = format!("what a CPU of full speed does at once: it {}", slow.why.words());
        hops.push(hop("slow-cpu", slow_cpu::slower(slow), words, "slow", case.lost_by_speed()));
    }
    hops
}

fn softirq(window: Duration, receiving: &Receiving) -> Option<Hop> {
    let share = receiving.share(window);
    if receiving.stops() == 0 && share.ratio() < TELLING {
        return None;
    }
    let each = receiving.per_packet().map(|each| format!("{} a packet, ", seconds(each))).unwrap_or_default();
    let words = format!("the CPU: {each}{share} of its time, {}", receiving.stops_words(window));
    let who = format!("softirqs of CPU {}", receiving.cpu);
    let count = Some(receiving.packets);
    Some(Hop { count, ..hop("softirq", who, words, "running", receiving.took) })
}

/// How to check, and what would help.
pub(super) fn advice(mut found: Finding, case: &Case<'_>) -> Finding {
    if let Some(reader) = &case.reader {
        let look = format!("nsenter -n -t {} ss -tuinmp", reader.tgid);
        found = found.check("Recv-Q that stays high, rb against r in skmem, and d (drops)", look);
    }
    found = found.check(
        "PruneCalled, TCPRcvCollapsed, TCPToZeroWindowAdv and RcvbufErrors must rise",
        "nstat -z TcpExtPruneCalled TcpExtTCPRcvCollapsed TcpExtTCPToZeroWindowAdv UdpRcvbufErrors",
    );
    match &case.slow {
        Some(slow) => found = slow_cpu::fixes(found, slow),
        None if case.is_explained() => {
            found = found.advice(
                "read sooner: less work between two reads, more reading threads or processes, or what the reader waits for",
            );
        }
        None => {}
    }
    let by_budget = case.receiving.is_some_and(|receiving| receiving.by_budget > receiving.by_time);
    if by_budget {
        found = found.advice(
            "netdev_budget is what stops the softirq: raising it helps if its time limit is not met next",
        );
    }
    found.advice(
        "larger buffers (tcp_rmem, tcp_mem, SO_RCVBUF, netdev_budget) mask it: the queues take longer to fill, the reader is as \
         slow as before",
    )
}
