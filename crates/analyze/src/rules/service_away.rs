//! Connections are refused because their service is away, and the clients sleep until they try again.
//!
//! Signal: connections that ended with ECONNREFUSED; the client's only sleep between that and its next attempt; the processes that began or ceased
//! to listen at this address. Lost: these sleeps, if the client rests less after connections that succeed. Not this rule: a client that connects to
//! another address at once; a client that waits for its own clients meanwhile; a full listen queue.
//!
//! Sleeps count if they are in nanosleep(2), and on average at least twice as long as the thread's rests at this address after connections that
//! succeeded (with fewer than three rests: in any case). Above 5 % of a thread's time, and from 100 ms of all threads on, they are time lost. Else
//! the refused connections are failed calls, because their loss is no time: from three on, if their service was seen to go or to come; from ten
//! on, if it was not, and no client's process had a connection to that port in the window.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::syscall::SLEEPS;
use whyslow_model::table::{Connect, Server, Task};
use whyslow_model::timeline::Span;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{
    Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds, times,
};

use super::Rule;
use super::homes::Homes;
use crate::hashing::Table;
use crate::{Evidence, names};

pub const RULE: Rule = Rule {
    id: "service-away",
    question: "Are connections refused because a service is away?",
    what: "A service has ended, is restarting, or does not listen yet. The kernel refuses a client's connection at once. The client sleeps and tries \
           again until the service is back, or returns an error to its own clients.",
    how: "Refused TCP connections, the thread's sleep in nanosleep(2) until its next attempt at that address, and the sockets that began or ceased to \
          listen there. Time lost = these sleeps, if they are twice as long as the thread's usual rests there, and from 5 % of its time on. Else the \
          connections count as failed calls: from three on if the service was seen to go or to come, else from ten on if the clients reach that port nowhere.",
    limits: "Unix sockets: see failed-calls. An event loop (Node, nginx): its sleeps until the next attempt cannot be distinguished from its sleeps until \
             the next request, so its connections are failed calls. Sleeps of more than 2 s: not seen. Go: sleeps not seen, because its threads are not \
             its goroutines. A client that starts a new process for each attempt: not seen. A sleep that has not ended when the window ends: not seen. \
             A prober whose connections never succeed in the window: looks like a client that is stuck. A service in another network namespace or on \
             another host: only its address is known, and a packet filter may refuse in its place.",
    sources: "net/ipv4/tcp_input.c (tcp_reset), net/ipv4/inet_connection_sock.c (inet_csk_listen_start); connect(2), wait(2).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less than this is not worth a line.
const LEAST_LOST: Duration = Duration::from_millis(100);
/// Less than this share of a thread's time is not worth a line.
const WORTH_IT: f64 = 0.05;
/// Sleeps this many times as long as the usual rests are sleeps before a retry.
const LONGER: u64 = 2;
/// With fewer rests there is no mean.
const ENOUGH: u64 = 3;
/// Fewer refused connections may be a check whether the service is there.
const RECURS: u64 = 3;
/// The same, if no process was seen to begin or to cease to listen there.
const OFTEN: u64 = 10;
/// Fewer connections rule nothing out.
const LEAST_CONNECTS: u64 = 10;
/// Further findings are counted only: a report is read by people.
const MOST_REPORTED: usize = 8;

/// An address in a network namespace.
type Place<'r> = (u32, &'r str);

/// Clients whose connections to one address were refused, and what that cost them.
struct Refused<'r> {
    rows: Vec<&'r Connect>,
    lost: Vec<(&'r Connect, Duration)>,
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let (all, tasks) = (ev.connects()?, ev.tasks()?);
    let mut places: BTreeMap<Place<'_>, Vec<&Connect>> = BTreeMap::new();
    for row in all.iter().filter(|row| row.refused > 0 && !ev.is_own(row.pid, row.tgid)) {
        places.entry((row.netns, &row.peer)).or_default().push(row);
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let naps = naps(ev.spans()?);
    let homes = Homes::of(ev, tasks);
    let refused = places.into_values().map(|rows| Refused::of(ev, rows, &naps));
    let mut found: Vec<Finding> = refused
        .filter(|one| one.is_cause() || one.is_failing(all))
        .map(|one| finding(ev, &homes, tasks, &one))
        .collect();
    found.sort_by_key(|one| std::cmp::Reverse((one.lost, one.failed_calls)));
    super::first_few(&mut found, MOST_REPORTED);
    Ok(found)
}

/// How long each thread slept of its own accord (x86-64: nanosleep, clock_nanosleep).
fn naps(spans: &[Span]) -> Table<u32, Duration> {
    let mut all: Table<u32, Duration> = Table::default();
    for span in spans.iter().filter(|span| span.syscall.is_some_and(|call| SLEEPS.contains(&call))) {
        let sum = all.entry(span.pid).or_default();
        *sum = sum.saturating_add(Duration::from_nanos(span.woken_ns.saturating_sub(span.at_ns)));
    }
    all
}

impl<'r> Refused<'r> {
    fn of(ev: &Evidence<'_>, rows: Vec<&'r Connect>, naps: &Table<u32, Duration>) -> Self {
        let lost = |row: &&'r Connect| {
            let napped = naps.get(&row.pid).copied().unwrap_or_default();
            let lost = slept_for_it(row).min(napped).min(lived(ev, row));
            (lost > lived(ev, row).mul_f64(WORTH_IT)).then_some((*row, lost))
        };
        Refused { lost: rows.iter().filter_map(lost).collect(), rows }
    }

    fn time(&self) -> Duration {
        self.lost.iter().map(|(_, lost)| *lost).fold(Duration::ZERO, Duration::saturating_add)
    }

    fn count(&self) -> u64 {
        self.rows.iter().map(|row| row.refused).fold(0, u64::saturating_add)
    }

    fn server(&self) -> Option<&'r Server> {
        self.rows.iter().find_map(|row| row.server.as_ref())
    }

    fn is_cause(&self) -> bool {
        self.time() >= LEAST_LOST
    }

    fn is_failing(&self, all: &[Connect]) -> bool {
        match self.server() {
            Some(server) if server.closed > 0 || server.absent_ns > 0 => self.count() >= RECURS,
            // A client may know another address of the same name.
            _ => self.count() >= OFTEN && !self.rows.iter().any(|row| has_another_address(all, row)),
        }
    }

    /// Whether this task is a victim: a thread that lost time, or the process if no thread did.
    fn is_victim(&self, task: &Task) -> bool {
        match self.is_cause() {
            true => self.lost.iter().any(|(row, _)| row.pid == task.pid),
            false => task.pid == task.tgid && self.rows.iter().any(|row| row.tgid == task.tgid),
        }
    }
}

/// A thread's sleeps before it tried again, if they were longer than its usual rests. A prober that connects every second sleeps as long after a
/// connection that succeeded, and has lost nothing.
fn slept_for_it(row: &Connect) -> Duration {
    let usual = if row.rests >= ENOUGH { row.rested_ns / row.rests } else { 0 };
    let nap = row.slept_ns / row.naps.max(1);
    Duration::from_nanos(if nap >= usual.saturating_mul(LONGER) { row.slept_ns } else { 0 })
}

fn lived(ev: &Evidence<'_>, row: &Connect) -> Duration {
    ev.task(row.pid).map_or(ev.window(), |task| Duration::from_nanos(task.lived_ns)).min(ev.window())
}

/// Whether the client's process had a connection to the same port: it may know several addresses of one name.
fn has_another_address(all: &[Connect], row: &Connect) -> bool {
    let port = |row: &Connect| row.peer.rsplit_once(':').map(|(_, port)| port.to_owned());
    all.iter().any(|other| other.tgid == row.tgid && other.done > 0 && port(other) == port(row))
}

fn finding(ev: &Evidence<'_>, homes: &Homes, tasks: &[Task], refused: &Refused<'_>) -> Finding {
    let (lost, count, server) = (refused.time(), refused.count(), refused.server());
    let first = refused.rows.iter().max_by_key(|row| (row.slept_ns, row.refused));
    let first = first.map_or_else(Connect::default, |row| (*row).clone());
    let victims: Vec<&Task> = tasks.iter().filter(|task| refused.is_victim(task)).collect();
    let victim = match &victims[..] {
        [] => {
            Subject::new(SubjectKind::Task, first.tgid.to_string(), ev.process_name(first.tgid, &first.comm))
        }
        _ => homes.payer(ev, &victims, None),
    };
    let found = if refused.is_cause() {
        let lived = refused.lost.iter().map(|(row, _)| lived(ev, row));
        let naps = refused.lost.iter().map(|(row, _)| row.naps).fold(0, u64::saturating_add);
        let who = names::tasks_of(refused.lost.len() as u64, &victim.name);
        let what = format!("{} to take connections, in {naps} sleeps", first.peer);
        let hop = Hop::new(Reason::Connect, who, what, TaskState::Sleeping, lost);
        let lived = lived.fold(Duration::ZERO, Duration::saturating_add);
        Finding::cause(RULE.id, victim, lost).share_of(lived).raw_wait(lost).hop(hop)
    } else {
        Finding::failed(RULE.id, victim, count)
    };
    let why = match server {
        Some(server) => absent(ev, server),
        None if first.own => ": no process listens there".to_owned(),
        None => String::new(),
    };
    let found = found
        .titled(format!("connections to {} were refused {}{why}", first.peer, times(count)))
        .by(culprit(ev, &first.peer, server));
    let found = Finding { paid_by: refused.lost.iter().map(|(row, _)| row.pid).collect(), ..found };
    with_advice(found, &first, server)
}

/// ": pricing, which listens there, ended 3 times (status 1) and was away for 4.5 s".
fn absent(ev: &Evidence<'_>, server: &Server) -> String {
    let name = ev.process_name(server.tgid, &server.comm);
    let away = seconds(Duration::from_nanos(server.absent_ns));
    match (server.ended, server.closed, server.absent_ns) {
        (0, 0, 0) => format!(", though {name} listens there"),
        // The service went away while the probes were being loaded.
        (0, 0, _) if Duration::from_nanos(server.absent_ns) >= ev.window() => {
            format!(": {name}, which listened there, was gone when the window began")
        }
        (0, 0, _) => format!(": {name} began to listen there only after {away} of the window"),
        (0, closed, _) => {
            format!(
                ": {name}, which listens there, closed its socket {} and was away for {away}",
                times(closed)
            )
        }
        (ended, ..) => {
            let (often, how) = (times(ended), how_it_ended(server.status));
            format!(": {name}, which listens there, ended {often} ({how}) and was away for {away}")
        }
    }
}

/// The exit status as in wait(2).
fn how_it_ended(status: u32) -> String {
    match status & 0x7f {
        0 => format!("status {}", (status >> 8) & 0xff),
        signal => format!("signal {signal}"),
    }
}

fn culprit(ev: &Evidence<'_>, peer: &str, server: Option<&Server>) -> Culprit {
    match server {
        Some(server) => {
            let name = ev.process_name(server.tgid, &server.comm);
            Culprit::new(SubjectKind::Task, server.tgid.to_string(), name)
        }
        None => Culprit::new(SubjectKind::Socket, peer, peer),
    }
}

fn with_advice(found: Finding, first: &Connect, server: Option<&Server>) -> Finding {
    let port = first.peer.rsplit_once(':').map_or("", |(_, port)| port);
    let found = match first.own {
        true => found.check(
            "the socket that listens there now, with its process",
            command!("nsenter -n -t {} ss -ltnp {}", first.tgid, format!("sport = :{port}")),
        ),
        false => found,
    };
    match server {
        Some(server) if server.ended > 0 && server.status & 0x7f != 0 => found
            .check("whether the kernel killed it", "dmesg | grep -iE 'killed process|segfault|general protection'")
            .advice("find out what killed it; let its clients try again sooner (costs more attempts), or connect elsewhere"),
        Some(server) if server.closed > 0 => found.advice(
            "find out from its log why it ended; restart it sooner, or keep its socket open meanwhile (systemd.socket)",
        ),
        Some(server) if server.absent_ns == 0 => {
            found.advice("look for a packet filter that refuses in its place (REJECT), and check whether the address is right")
        }
        _ => found.advice(
            "start the service before its clients, or let the clients wait for it; check whether address and port are right",
        ),
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let connects = ev.connects()?;
    let count: u64 = connects.iter().map(|row| row.count).fold(0, u64::saturating_add);
    let is_refused = connects.iter().any(|row| row.refused > 0);
    Ok((!is_refused && count >= LEAST_CONNECTS).then(|| RuledOut {
        what: "a service that is away".to_owned(),
        evidence: format!("none of {count} connections was refused"),
    }))
}

#[cfg(test)]
#[path = "service_away_tests.rs"]
mod tests;
