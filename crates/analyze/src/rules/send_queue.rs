//! Packets wait in the queue of a network device that has a rate or a delay of its own: a shaper.
//!
//! Signal: samples of sockets whose packets were in such a queue, and the threads of this host that waited meanwhile: for data from such a socket,
//! or for room to write. Lost: these waits, for the part of the window in which packets were queued. Not this rule: queues without a configured
//! rate or delay.
//!
//! A sample shows the bytes of a socket that its device has not taken yet, and the packets in that device's queue. The waits that count are waits
//! for data of connections between the same two hosts, and waits for room to write. The loss is the part of these waits that the share of samples
//! with a queue explains. Its lower bound is the part that the waiters' other sleeps cannot have made up for.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::{Socket, Task};
use whyslow_model::timeline::{Ends, Span, Stack};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command};

use super::Rule;
use super::homes::Homes;
use super::one_end::Waits;
use crate::cpu::spread::Loss;
use crate::hashing::Set;
use crate::stacks::symbol;
use crate::{Evidence, names};

pub const RULE: Rule = Rule {
    id: "send-queue",
    question: "Do packets wait in the queue of a device that has a rate of its own?",
    what: "A queueing discipline of a network device (tc: tbf, htb, hfsc, netem) sends packets at a configured rate, or delays them. Packets that a \
           process sends faster wait in the queue, although the network is idle, and so do the threads that wait for these packets.",
    how: "Samples of all TCP sockets: bytes that the device has not taken yet, and packets in the device's queue. Counterfactual: no such rate. Time \
          lost = the waits of this host's threads for data from these sockets and for room to write, for the share of samples with a queue; reported \
          from five samples on, if at least three of them, and at least a quarter, have a queue.",
    limits: "A client on another host: not seen; then the sender is reported only if it waits itself. The connection of a client's wait: known from \
             Linux 6.3 on. Not seen: a shaper behind the device that the socket sends through (the host's end of a container's device, or below a bridge, \
             a bond or a VLAN), queues below a multi-queue discipline (mq), pacing (fq), policers (they drop), and sockets that their process has closed. \
             A queue with classes (htb, hfsc): it is not known which class the packets are in, nor whether its rate is that of the line. A rate that is \
             intended (for a backup): reported, too; only its owner knows.",
    sources: "tc(8), tc-tbf(8), tc-htb(8), tc-netem(8); net/sched/sch_tbf.c, net/core/sock.c (sk_wmem_alloc), net/ipv4/tcp_output.c (tcp_tsq_handler).",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// Queueing disciplines with a rate or a delay of their own (net/sched/sch_*.c). The probe leaves out all others, too.
const SHAPERS: [&str; 4] = ["tbf", "htb", "hfsc", "netem"];
/// A smaller share of samples with a queue, or fewer of them, may have been a burst.
const LEAST_PART: f64 = 0.25;
const LEAST_QUEUED: u64 = 3;
const LEAST_LOOKS: u64 = 5;

/// A device whose queue holds back packets of sockets.
struct Queue<'r> {
    sockets: Vec<&'r Socket>,
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let mut queues: BTreeMap<(u32, &str), Queue<'_>> = BTreeMap::new();
    for socket in ev.sockets()?.iter().filter(|socket| is_shaped(socket)) {
        let queue =
            queues.entry((socket.netns, &socket.device)).or_insert_with(|| Queue { sockets: Vec::new() });
        queue.sockets.push(socket);
    }
    if queues.is_empty() {
        return Ok(Vec::new());
    }
    let (spans, tasks) = (ev.spans()?, ev.tasks()?);
    let homes = Homes::of(ev, tasks);
    Ok(queues.values().filter_map(|queue| finding(ev, &homes, tasks, spans, queue)).collect())
}

/// Samples in which the device's queue had packets. Many connections last for one request, so a single one is in one sample only.
fn looks_with_queue(socket: &Socket) -> u64 {
    socket.queued.max(socket.device_queued)
}

fn is_shaped(socket: &Socket) -> bool {
    let queued = looks_with_queue(socket);
    let part = queued as f64 / socket.looks.max(1) as f64;
    let is_lasting = part >= LEAST_PART && queued >= LEAST_QUEUED && socket.looks >= LEAST_LOOKS;
    socket.queued > 0 && is_lasting && SHAPERS.contains(&socket.qdisc.as_str())
}

/// `None`: no task of this host lost time because of it.
fn finding(
    ev: &Evidence<'_>,
    homes: &Homes,
    tasks: &[Task],
    spans: &[Span],
    queue: &Queue<'_>,
) -> Option<Finding> {
    let mut waits = waits_behind(ev, spans, queue);
    waits.retain(|pid, _| !ev.is_own(*pid, *pid));
    let most = queue.sockets.iter().max_by_key(|socket| socket.queued)?;
    let window = ev.window();
    // There are few samples: they show for which share of the window there was a queue, not during which wait.
    let queued = window.as_secs_f64() * looks_with_queue(most) as f64 / most.looks.max(1) as f64;
    let longest = waits.values().max().map_or(0.0, Duration::as_secs_f64);
    let part = (queued / longest.max(f64::MIN_POSITIVE)).min(1.0);
    let mut victims: Vec<&Task> = tasks.iter().filter(|task| waits.contains_key(&task.pid)).collect();
    victims.sort_by_key(|task| std::cmp::Reverse(waits.get(&task.pid)));
    let loss = lost(&victims, &waits, part);
    if victims.is_empty() || !loss.is_felt(window) {
        return None;
    }
    let victim = homes.payer(ev, &victims, None);
    let who = names::tasks_of(victims.len() as u64, &victim.name);
    let sender = ev.process_name(most.tgid, &most.comm);
    let (device, qdisc) = (&most.device, &most.qdisc);
    let hop = Hop::new(
        Reason::Socket,
        who,
        format!("packets of {sender} in the queue of {device}"),
        TaskState::Sleeping,
        loss.likely,
    );
    let finding = Finding::cause(RULE.id, victim, loss.likely)
        .titled(format!(
            "packets that {sender} sends wait in the queue of {device}, which has a rate or a delay of its own ({qdisc}; in {} of {} samples)",
            looks_with_queue(most), most.looks
        ))
        .on(format!("send queue of {device}"))
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(waits.values().sum())
        .by(Culprit::new(SubjectKind::Device, device.clone(), format!("the queue of {device} ({qdisc})")))
        .hop(hop)
        .check(
            "the rate of the queue, and the packets that wait in it (backlog, overlimits)",
            command!("nsenter -n -t {} tc -s qdisc show dev {}", most.tgid, device),
        )
        .check("the rates of its classes, if it has any", command!("nsenter -n -t {} tc -s class show dev {}", most.tgid, device))
        .advice(format!(
            "if the rate is not intended: raise the rate of {device}, or delete its qdisc with its classes and filters (tc qdisc, in the network namespace of {sender}; save `tc filter show` first; undo: set all of them again)"
        ));
    Some(Finding { paid_by: waits.keys().copied().collect(), ..finding })
}

/// The loss: this part of the waits. An answer arrives in pieces, and each piece ends a wait. So no single wait shows how long its reader sleeps
/// after long waits, and the part that sleeps may have made up for only lowers the lower bound.
fn lost(victims: &[&Task], waits: &Waits, part: f64) -> Loss {
    let mut loss = Loss::default();
    for task in victims {
        let waited = waits.get(&task.pid).copied().unwrap_or_default();
        let lived = Duration::from_nanos(task.lived_ns);
        let ns = waited.mul_f64(part).min(lived);
        let rested = Duration::from_nanos(task.sleep_ns).saturating_sub(waited);
        loss.likely += ns;
        loss.high += ns;
        loss.low += ns.saturating_sub(rested);
        loss.lived += lived;
        loss.tasks = loss.tasks.saturating_add(1);
    }
    loss
}

/// Waits for data from such a socket, and for room to write to such a socket.
fn waits_behind(ev: &Evidence<'_>, spans: &[Span], queue: &Queue<'_>) -> Waits {
    let mut waits = Waits::new();
    let mut add = |pid: u32, ns: u64| {
        let sum = waits.entry(pid).or_default();
        *sum = sum.saturating_add(Duration::from_nanos(ns));
    };
    let stacks = ev.recording().tables.stacks.as_deref().unwrap_or_default();
    let is_for_room = |stack: &&Stack| stack.kernel.iter().any(|frame| symbol(frame) == FOR_ROOM);
    let room: Set<u32> = stacks.iter().filter(is_for_room).map(|stack| stack.id).collect();
    let for_room = |span: &Span| span.stack.is_some_and(|id| room.contains(&id));
    for span in spans {
        // The probe reports the oldest of several processes that have the socket open: that may be the client itself.
        let is_late = queue
            .sockets
            .iter()
            .any(|socket| is_for_data_of(span, socket) || (socket.tgid == span.tgid && for_room(span)));
        if is_late {
            add(span.pid, span.woken_ns.saturating_sub(span.at_ns));
        }
    }
    waits
}

const FOR_ROOM: &str = "sk_stream_wait_memory";

/// Whether data of this socket, or of another connection between the same two hosts, ended the wait of a client. A service that waits for
/// requests does not count: it has nothing else to do.
fn is_for_data_of(span: &Span, sender: &Socket) -> bool {
    let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let ready = span.waker.as_ref().and_then(|waker| waker.delivery.as_ref()?.ready.as_ref());
    ready.is_some_and(|Ends { local, peer, serves, .. }| {
        !serves && *peer == sender.local && host(local) == host(&sender.peer)
    })
}

#[cfg(test)]
#[path = "send_queue_tests.rs"]
mod tests;
