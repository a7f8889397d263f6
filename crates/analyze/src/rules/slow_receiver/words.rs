//! The texts about a chain, and the advice.

use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Finding, Hop, command, seconds};

use super::case::Case;
use crate::Evidence;
use crate::net::receive::{Receiving, State};

/// A softirq that takes a smaller share of its CPU, and never stops at a limit, is no part of the chain.
const TELLING: f64 = 0.05;

/// "sink (pid 7) reads too late: ...; TCP queues were pruned 27 times, ..."; `is_subject`: the reader is named before it.
pub(super) fn title(case: &Case<'_>, is_subject: bool) -> String {
    let symptoms = case.symptoms.words();
    let Some(reader) = &case.reader else {
        let why = if case.sockets_known { "no queue was seen full" } else { "sockets were not sampled" };
        let not = ruled_out(case).map_or_else(String::new, |not| format!("; it is {not}"));
        return format!("{symptoms}; the process that reads these queues is not known: {why}{not}");
    };
    let end = match (&case.slow, &case.memory) {
        (Some(slow), _) => slow.slower(),
        (None, Some((held, limit))) => {
            format!(
                "all TCP sockets together hold {held} pages of memory, and TCP saves memory from {limit} pages on"
            )
        }
        (None, None) => {
            let not = ruled_out(case).map_or_else(String::new, |not| format!(" ({not})"));
            format!("{}{not}", doing(case))
        }
    };
    let who = if is_subject { "it".to_owned() } else { format!("{} (pid {})", reader.comm, reader.tgid) };
    let symptoms = if symptoms.is_empty() { symptoms } else { format!("; {symptoms}") };
    format!("{who} reads too late: {end}{symptoms}")
}

/// "it was busy with user code (parse) for 97 % of its time, on CPU 1"
fn doing(case: &Case<'_>) -> String {
    let Some(why) = &case.why else { return "what it does was not seen".to_owned() };
    let (share, what) = (why.share, &why.what);
    let on = why.cpu.map(|cpu| format!(", on CPU {cpu}")).unwrap_or_default();
    match why.state {
        State::Running => format!("it was busy with {what} for {share} of its time{on}"),
        State::Runnable => format!("it was ready, and waited {share} of its time for {what}"),
        State::Blocked => format!("it was blocked for {share} of its time, waiting for {what}"),
        State::Asleep => format!("it slept for {share} of its time ({what})"),
        State::Unknown => "the reason was not seen".to_owned(),
    }
}

/// "not the CPU's speed, not the packet budget": the reasons that were examined and ruled out.
fn ruled_out(case: &Case<'_>) -> Option<String> {
    let speed = (case.speed_known && case.slow.is_none()).then_some("the CPU's speed");
    let never = |of: fn(&Receiving) -> u64| case.receiving.is_some_and(|r| of(&r) == 0 && r.unseen == 0);
    let budget = never(|r| r.by_budget).then_some("the packet budget");
    let time = never(|r| r.by_time).then_some("the softirq's time limit");
    let memory = (case.symptoms.pressure == 0 && case.memory.is_none()).then_some("TCP's memory limit");
    let not: Vec<_> = [speed, budget, time, memory].into_iter().flatten().collect();
    let not: Vec<String> = not.iter().map(|what| format!("not {what}")).collect();
    (!not.is_empty()).then(|| not.join(", "))
}

/// The hops of the chain, from the senders to its end.
pub(super) fn hops(ev: &Evidence<'_>, case: &Case<'_>, lost: Duration) -> Vec<Hop> {
    let mut hops = Vec::new();
    if let Some(reader) = &case.reader {
        let (full, looks) = reader.full();
        let who = match reader.senders.first() {
            Some(sender) => format!("{} (pid {})", sender.comm, sender.tgid),
            None => "senders that were not seen".to_owned(),
        };
        let room = format!(
            "room in the receive queue of {} (pid {}) at {}, full in {full} of {looks} samples",
            reader.comm,
            reader.tgid,
            reader.place()
        );
        let closed = Some(case.symptoms.closed).filter(|closed| *closed > 0);
        hops.push(Hop {
            count: closed,
            ..Hop::new(Reason::ReceiveQueue, who, room, TaskState::WindowClosed, case.held)
        });
    }
    if let (Some(reader), Some(why)) = (&case.reader, &case.why) {
        let (state, reason) = match why.state {
            State::Running => (TaskState::Running, Reason::Work),
            State::Runnable => (TaskState::Runnable, Reason::Runnable),
            State::Blocked => {
                let (io, blocked) = (why.thread.io_ns, why.thread.blocked_ns);
                (TaskState::of_uninterruptible(io, blocked), Reason::Blocked)
            }
            State::Asleep => (TaskState::Sleeping, Reason::Sleep),
            State::Unknown => (TaskState::Unknown, Reason::Unknown),
        };
        let at = why.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
        let what = if why.what.is_empty() { "something that was not seen" } else { why.what.as_str() };
        let words = format!("{what}, {} of its time{at}", why.share);
        hops.push(Hop::new(reason, format!("{} (pid {})", reader.comm, reader.tgid), words, state, lost));
    }
    hops.extend(case.receiving.and_then(|receiving| softirq(ev.window(), &receiving)));
    if let Some(slow) = &case.slow {
        hops.push(Hop::new(
            Reason::SlowCpu,
            on_slow(case),
            slow.place(),
            TaskState::Running,
            case.lost_by_speed(),
        ));
    }
    hops
}

/// The name of what runs on the slow CPU: the reader, or the softirq alone.
fn on_slow(case: &Case<'_>) -> String {
    match (&case.reader, case.receiving) {
        (Some(reader), _) if !case.lost_by_speed().is_zero() => {
            format!("{} (pid {})", reader.comm, reader.tgid)
        }
        (_, Some(receiving)) => softirq_of(&receiving),
        (Some(reader), None) => format!("{} (pid {})", reader.comm, reader.tgid),
        (None, None) => "the receive softirq".to_owned(),
    }
}

fn softirq_of(receiving: &Receiving) -> String {
    format!("the receive softirq of CPU {}", receiving.cpu)
}

fn softirq(window: Duration, receiving: &Receiving) -> Option<Hop> {
    let share = receiving.share(window);
    if receiving.stops() == 0 && share.ratio() < TELLING {
        return None;
    }
    // Without the time of handlers only the kernel's counts of packets and stops are known.
    let took =
        receiving.per_packet().map(|each| format!(" at {} each, {share} of the CPU's time", seconds(each)));
    let took = took.unwrap_or_default();
    let words = format!("{} packets{took}; {}", receiving.packets, receiving.stops_words(window));
    Some(Hop::new(Reason::Softirq, softirq_of(receiving), words, TaskState::Running, receiving.took))
}

/// The finding with its checks, and with the advice.
pub(super) fn advice(mut found: Finding, case: &Case<'_>) -> Finding {
    if let Some(reader) = &case.reader {
        let look = command!("nsenter -n -t {} ss -tuinmp", reader.tgid);
        found = found.check("Recv-Q that stays high, rb against r in skmem, and d (drops)", look);
    }
    found = found.check(
        "PruneCalled, TCPRcvCollapsed, TCPToZeroWindowAdv and RcvbufErrors must rise",
        "nstat -asz TcpExtPruneCalled TcpExtTCPRcvCollapsed TcpExtTCPToZeroWindowAdv UdpRcvbufErrors",
    );
    match &case.slow {
        Some(slow) => found = slow.fixes(found),
        None if case.is_explained() => {
            found = found.advice(
                "let it read sooner: less work between two reads, more reading threads or processes, or shorten what it waits for",
            );
        }
        None => {}
    }
    let by_budget = case.receiving.is_some_and(|receiving| receiving.by_budget > receiving.by_time);
    if by_budget {
        found = found.advice(
            "the softirq stops at netdev_budget: a higher one helps if the softirq does not reach its time limit next; it costs the \
             tasks on this CPU time",
        );
    }
    found.advice(
        "larger buffers (tcp_rmem, tcp_mem, SO_RCVBUF, netdev_budget) only mask it: the queues take longer to fill, but the reader \
         is as slow as before",
    )
}
