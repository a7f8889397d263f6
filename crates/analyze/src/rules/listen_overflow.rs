//! A server did not accept connections as fast as they came, and its clients waited for a SYN to be retransmitted.
//!
//! Signal: connects whose SYN or first data were retransmitted while a task waited (`Connect`), to a port whose listening socket
//! dropped connections in the window or has a full accept queue (`Listener`), in the same network namespace.
//! Lost: for each client task, the time in which it only waited for such connects, less a prompt connect each, and at most the time
//! that it lived and neither ran nor was ready for a CPU. Overlapping connects of one task count once. Counterfactual: with room in
//! the queue, a connect takes as long as the prompt connects to the same port.
//! Not this rule: a SYN that a firewall or a bad network dropped (`unanswered-connects`: no drop at the listener); counters that rose
//! while no task on this host waited (a risk).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Finding, Hop, Missing, RuledOut, Subject, SubjectKind, counted, seconds, table};

use super::Rule;
use super::full_listeners::{culprit, full, server, with_advice};
use super::retried::{Connects, Paid};
use crate::hashing::{Set, Table};
use crate::{Evidence, wait_reasons};

pub const RULE: Rule = Rule {
    id: "listen-overflow",
    question: "Did clients wait because a server's listen queue was full?",
    what: "A connection waits in the accept queue of the listening socket until the server accepts it. When the queue is full, the kernel \
           drops new SYNs without an answer. The client sends its SYN again after 1 s, then after 2 s, 4 s and more.",
    how: "Connects whose SYN or first data were retransmitted, to a listener of the same network namespace that dropped connections or \
          whose accept queue is full. Counterfactual: a connect takes as long as a prompt one to the same port; time lost = the client \
          tasks' time in those connects beyond that, from 50 ms on. Overlapping connects of a task count once, connects that no task waits \
          for do not count, and an event loop that did other work meanwhile gets a range.",
    limits: "Clients on other hosts, or in another network namespace than the listener: not seen, so the finding is a risk, or comes from \
             `unanswered-connects`. The time for which data went unanswered: known to one retry. A listener that drops connections for \
             another reason (no memory): it looks the same where the namespace's ListenOverflows was not recorded. A listener that closed \
             within the window: not seen. Connects of io_uring and MPTCP: may be missed.",
    sources: "net/ipv4/tcp_input.c (tcp_conn_request), tcp_ipv4.c (tcp_v4_syn_recv_sock), include/net/sock.h \
              (sk_acceptq_is_full); tcp_syn_linear_timeouts since v6.5",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// One retry takes longer than this: a smaller loss was cut by the window's edge. It stays a risk.
const LEAST_LOST: Duration = Duration::from_millis(50);
/// Fewer connects than this do not rule out anything.
const LEAST_CONNECTS: u64 = 10;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let connects = ev.connects()?;
    let waited = |c: &&table::Connect| c.blocked_ns > 0 || c.watched_ns > 0;
    let waiting: Vec<_> = connects.iter().filter(waited).collect();
    let listeners = match ev.listeners() {
        Err(missing) if !waiting.is_empty() => return Err(missing),
        listeners => listeners.unwrap_or_default(),
    };
    let mut connects = Connects::of(connects);
    let full = full(ev, listeners);
    let kept = kept_from_running(ev, &full);
    Ok(full.into_iter().map(|one| finding(ev, one, &connects.paid(ev, one), kept.get(&one.tgid))).collect())
}

fn finding(ev: &Evidence<'_>, l: &table::Listener, paid: &Paid, kept: Option<&Halted>) -> Finding {
    let l = &table::Listener { comm: ev.process_name(l.tgid, &l.comm), ..l.clone() };
    let lost = paid.blocked + paid.watched_share;
    if lost < LEAST_LOST {
        let who = Subject::new(SubjectKind::Socket, l.local.clone(), server(l));
        let title = format!("connections dropped: {}; no task on this host was seen to wait", l.overflows);
        return with_advice(Finding::risk(RULE.id, who).titled(title), l);
    }
    let title = format!(
        "{} had to be tried again: the listen queue of {} was full ({} of {}, {} dropped)",
        counted(paid.retried, "connect"),
        server(l),
        l.queue,
        l.limit,
        l.overflows
    );
    let syn = format!("a SYN to {} to be retransmitted", l.local);
    let mut found = Finding::cause(RULE.id, paid.clients.clone(), lost)
        .titled(title)
        .on(format!("listen queue of {}", server(l)))
        .raw_wait(paid.raw)
        .share_of(paid.wall)
        .by(culprit(l))
        .hop(Hop {
            worst: paid.worst,
            count: Some(paid.retried),
            ..Hop::new(Reason::Connect, &paid.clients.name, syn, TaskState::Sleeping, lost)
        })
        .hop(accept_hop(ev, l, kept, lost));
    if !paid.watched.is_zero() {
        found = found.between(paid.blocked, paid.blocked + paid.watched);
    }
    with_advice(found, l)
}

/// What the server did instead of accepting.
fn accept_hop(ev: &Evidence<'_>, l: &table::Listener, kept: Option<&Halted>, lost: Duration) -> Hop {
    let threads = || ev.threads(l.tgid).iter().filter(|_| l.tgid != 0);
    let sum = |of: fn(&table::Task) -> u64| threads().map(|t| of(t)).fold(0, u64::saturating_add);
    let (io, blocked) = (sum(|t| t.io_ns), sum(|t| t.blocked_ns));
    let asleep = TaskState::of_uninterruptible(io, blocked);
    let states = [
        (TaskState::Running, "its own work", sum(|t| t.exec_ns)),
        (TaskState::Runnable, "a CPU", sum(|t| t.run_delay_ns)),
        (asleep, "the disk or the kernel", io.saturating_add(blocked)),
        (TaskState::Sleeping, "something else than connections", sum(|t| t.sleep_ns)),
    ];
    let most = states.into_iter().filter(|s| s.2 > 0).max_by_key(|s| s.2);
    let (state, what) = match (kept, most) {
        (Some(by), None) => (TaskState::Sleeping, by.reported()),
        // A server that has nothing to do also sleeps, so the sleep says less.
        (Some(by), _) if by.is_most(ev) => (TaskState::Sleeping, by.reported()),
        (Some(by), Some((state, what, _))) => {
            (state, format!("{what}, most of the window, and {}", by.reported()))
        }
        (None, Some((state, what, _))) => (state, format!("{what}, most of the window")),
        (None, None) => (TaskState::Unknown, "not known".to_owned()),
    };
    Hop { count: Some(l.overflows), ..Hop::new(Reason::Accept, server(l), what, state, lost) }
}

/// Waits in which a thread cannot run, whatever clients want from it.
const KEPT: [Reason; 3] = [Reason::Stopped, Reason::Frozen, Reason::Traced];
/// A thread that was kept from running for a smaller part of the window had time to accept.
const KEPT_LONG: f64 = 0.05;

/// What kept a thread from running.
struct Halted {
    pid: u32,
    waits_for: String,
    time: Duration,
}

impl Halted {
    fn reported(&self) -> String {
        format!("{}, for {}", self.waits_for, seconds(self.time))
    }

    /// Whether the thread did nothing else for as long, apart from sleep, which a thread with nothing to do does, too.
    fn is_most(&self, ev: &Evidence<'_>) -> bool {
        ev.task(self.pid).is_none_or(|task| {
            let others = [task.exec_ns, task.run_delay_ns, task.io_ns.saturating_add(task.blocked_ns)];
            others.iter().all(|ns| self.time >= Duration::from_nanos(*ns))
        })
    }
}

/// What kept a thread of the servers from running for long, by process.
fn kept_from_running(ev: &Evidence<'_>, full: &[&table::Listener]) -> Table<u32, Halted> {
    let servers: Set<u32> = full.iter().map(|listener| listener.tgid).filter(|tgid| *tgid != 0).collect();
    let threads = servers.iter().flat_map(|tgid| ev.threads(*tgid).iter().map(|task| (task.pid, *tgid)));
    let threads: Table<u32, u32> = threads.collect();
    let mut sums: BTreeMap<(u32, u32, String), u64> = BTreeMap::new();
    for span in ev.spans().unwrap_or_default() {
        let Some(tgid) = threads.get(&span.pid) else { continue };
        let kind = wait_reasons::of(span, ev.stacks());
        if KEPT.contains(&kind.reason) {
            let sum = sums.entry((*tgid, span.pid, kind.detail.to_string())).or_default();
            *sum = sum.saturating_add(span.woken_ns.saturating_sub(span.at_ns));
        }
    }
    let mut longest: Table<u32, Halted> = Table::default();
    for ((tgid, pid, waits_for), ns) in sums {
        let time = Duration::from_nanos(ns);
        let is_long = time.as_secs_f64() >= KEPT_LONG * ev.window().as_secs_f64();
        if is_long && longest.get(&tgid).is_none_or(|other| other.time < time) {
            longest.insert(tgid, Halted { pid, waits_for, time });
        }
    }
    longest
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let connects = ev.connects()?;
    let count: u64 = connects.iter().map(|c| c.count).fold(0, u64::saturating_add);
    let retried = connects.iter().any(|c| c.retried > 0 || c.unanswered > 0);
    let clean = !retried && count >= LEAST_CONNECTS;
    Ok(clean.then(|| RuledOut {
        what: "a full listen queue".to_owned(),
        evidence: format!("none of {count} connects had to send its SYN or first data again"),
    }))
}

#[cfg(test)]
#[path = "listen_overflow_tests.rs"]
mod tests;
