//! Connections are refused: the service that they are for is away, and its clients sleep until they try again.
//!
//! Signal: connections that ended with ECONNREFUSED, the client's only sleep between that and its next attempt, and who began or ceased to listen
//! there. Lost: those sleeps. Not this rule: a client that has another address to go to, and does so at once; a listen queue that is full.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::{Connect, Server, Task};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use super::homes::Homes;
use crate::{Evidence, names};

pub const RULE: Rule = Rule {
    id: "service-away",
    question: "Are connections refused because a service is away?",
    what: "A service has ended, is being started again, or does not listen yet. Whoever connects to it is refused at once, sleeps and tries again, \
           until it is back; or gives its own clients an error.",
    how: "TCP connections that were refused; the one sleep that a thread had from there to its next attempt at the same port; sockets that began or \
          ceased to listen in the window, with their process and how it ended. Time lost = those sleeps, from 5 % of a thread's time on. Connections \
          that were refused while their service was seen to go or to come are failed calls, from three on: no time measures what is lost with them.",
    limits: "TCP alone: a unix socket's clients are not seen. Not seen: sleeps of more than 2 s, and of event loops that had other things to do \
             meanwhile; of Go, whose threads are not its goroutines; a client that is a new process for each attempt; the sleep that is not over \
             when the window ends. A service on another host is known by its address alone; a process that has several sockets at one address, as \
             if it had one.",
    sources: "net/ipv4/tcp_input.c (tcp_reset), net/ipv4/inet_connection_sock.c (inet_csk_listen_start); connect(2), wait(2).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Less than this is a moment.
const LEAST_LOST: Duration = Duration::from_millis(100);
/// Less than this share of a thread's time is not worth a line.
const WORTH_IT: f64 = 0.05;
/// Fewer that were refused may be a look whether somebody is there.
const RECURS: u64 = 3;
/// Fewer connections rule nothing out.
const LEAST_CONNECTS: u64 = 10;
/// Findings that are reported.
const MOST_REPORTED: usize = 8;

/// A place in a network namespace.
type Place<'r> = (u32, &'r str);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let (rows, tasks) = (ev.connects()?, ev.tasks()?);
    let mut places: BTreeMap<Place<'_>, Vec<&Connect>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.refused > 0 && !ev.is_own(row.pid, row.tgid)) {
        places.entry((row.netns, &row.peer)).or_default().push(row);
    }
    let homes = Homes::of(ev, tasks);
    let mut found: Vec<Finding> =
        places.values().filter_map(|rows| finding(ev, &homes, tasks, rows)).collect();
    found.sort_by_key(|one| std::cmp::Reverse((one.lost, one.failed_calls)));
    found.truncate(MOST_REPORTED);
    Ok(found)
}

/// `None`: it cost nobody anything that is known.
fn finding(ev: &Evidence<'_>, homes: &Homes, tasks: &[Task], rows: &[&Connect]) -> Option<Finding> {
    let first = rows.iter().max_by_key(|row| (row.slept_ns, row.refused))?;
    let refused = rows.iter().map(|row| row.refused).fold(0, u64::saturating_add);
    let server = rows.iter().find_map(|row| row.server.as_ref());
    let late = |row: &&&Connect| is_late(ev, row);
    let sleepers: Vec<&&Connect> = rows.iter().filter(late).collect();
    let lost = sleepers.iter().map(|row| Duration::from_nanos(row.slept_ns)).sum::<Duration>();
    let is_cause = lost >= LEAST_LOST;
    let is_failing =
        refused >= RECURS && server.is_some_and(|server| server.closed > 0 || server.absent_ns > 0);
    if !is_cause && !is_failing {
        return None;
    }
    let paid = |task: &&Task| match is_cause {
        true => sleepers.iter().any(|row| row.pid == task.pid),
        false => task.pid == task.tgid && rows.iter().any(|row| row.tgid == task.tgid),
    };
    let victims: Vec<&Task> = tasks.iter().filter(paid).collect();
    let victim = match &victims[..] {
        [] => {
            Subject::new(SubjectKind::Task, first.tgid.to_string(), ev.process_name(first.tgid, &first.comm))
        }
        _ => homes.payer(ev, &victims, None),
    };
    let why = server.map_or_else(|| nobody(&first.peer), |server| absent(ev, server));
    let often = times(refused);
    let found = if is_cause {
        let lived = victims.iter().map(|task| Duration::from_nanos(task.lived_ns)).sum();
        let naps = sleepers.iter().map(|row| row.naps).fold(0, u64::saturating_add);
        let who = names::tasks_of(victims.len() as u64, &victim.name);
        let hop = Hop::new(
            Reason::Connect,
            who,
            format!("{} to take connections, between {naps} attempts", first.peer),
            TaskState::Sleeping,
            lost,
        );
        Finding::cause(RULE.id, victim, lost).share_of(lived).raw_wait(lost).hop(hop)
    } else {
        Finding::failed(RULE.id, victim, refused)
    };
    let found = found.titled(format!("connections to {} were refused {often}{why}", first.peer));
    let found = found.by(culprit(ev, &first.peer, server));
    let found = Finding { paid_by: sleepers.iter().map(|row| row.pid).collect(), ..found };
    Some(with_advice(found, first, server))
}

/// Whether a thread lost a part of its time that is worth a line.
fn is_late(ev: &Evidence<'_>, row: &Connect) -> bool {
    let lived = ev.task(row.pid).map_or(ev.window(), |task| Duration::from_nanos(task.lived_ns));
    row.slept_ns > 0 && row.slept_ns as f64 >= WORTH_IT * lived.as_nanos() as f64
}

/// Nobody was seen to listen: on another host nobody could be.
fn nobody(peer: &str) -> String {
    match peer.starts_with("127.") || peer.starts_with("[::1]") {
        true => ": no process listens there".to_owned(),
        false => String::new(),
    }
}

/// ": pricing, which listens there, ended 3 times (status 1) and was away for 4.5 s".
fn absent(ev: &Evidence<'_>, server: &Server) -> String {
    let name = ev.process_name(server.tgid, &server.comm);
    let away = seconds(Duration::from_nanos(server.absent_ns));
    match (server.ended, server.closed, server.absent_ns) {
        (0, 0, 0) => format!(", though {name} listens there"),
        (0, 0, _) => format!(": {name} has listened there only since {away} of the window were over"),
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

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// As of wait(2).
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
    let found = found.check(
        "who listens there now",
        command!("nsenter -n -t {} ss -ltnp {}", first.tgid, format!("sport = :{port}")),
    );
    match server {
        Some(server) if server.ended > 0 && server.status & 0x7f != 0 => found
            .check("whether the kernel killed it", "dmesg | grep -iE 'killed process|segfault|general protection'")
            .advice("find out who or what killed it; let its clients try again sooner, or elsewhere"),
        Some(server) if server.closed > 0 => {
            found.advice("find out from its log why it went; start it again sooner, or keep its socket open meanwhile (systemd.socket)")
        }
        _ => found.advice("start the service before its clients, or let these wait for it; look whether address and port are right"),
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
