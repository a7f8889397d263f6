//! Connects get no answer: they neither succeed nor are they refused.
//!
//! Signal: connects whose SYN was retransmitted while their client waited (`Connect`), to a port whose listener on this host dropped none. Lost: as
//! in `listen-overflow`. Not this rule: a full listen queue; refused connections (`service-away`); packets of established connections
//! (`retransmits`).
//!
//! The loss is the client tasks' time in these connects beyond the time of a prompt connect. Overlapping connects of a task count once. Connects
//! that no task waits for do not count. The culprit is the table of tracked connections of the client's network namespace, if it is full (95 %)
//! and dropped at least as many packets as there were such connects. It is a listener of another network namespace, if that listens at this very
//! address and its queue was full.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command, counted, table};

use super::Rule;
use super::full_listeners;
use super::retried::{Connects, Paid, paid};
use super::tracked::{self, Dropping};
use crate::Evidence;
use crate::hashing::Set;

pub const RULE: Rule = Rule {
    id: "unanswered-connects",
    question: "Did clients wait for connects that got no answer?",
    what: "TCP retransmits a SYN that gets no answer after 1 s, then after 2, 4 and more, for two minutes. The host is down, a packet filter silently \
           drops the SYN (a firewall, a security group), the table of tracked connections is full, or the network loses the SYN.",
    how: "TCP connects whose SYN was retransmitted while their client waited, and that no full listen queue of the same network namespace explains. \
          Time lost = the client tasks' time in these connects beyond the time of a prompt one, from 5 % of their time and 1 % of the window on. The \
          culprit is a full table of tracked connections or a full listen queue, if one explains the connects; else the address.",
    limits: "The packets that the table dropped: its counters do not identify them. A SYN that a filter dropped and a SYN that the network lost: not \
             distinguished. A filter or a full listen queue on another host: not seen. Tables and listeners that may be on the way (those of the host, for \
             a container): named in the advice. A prober that connects to a dead host on purpose: reported, too. An event loop (epoll): the purpose of \
             its connects is not known, so without a table or queue to blame it is a risk.",
    sources: "net/ipv4/tcp_timer.c (tcp_retransmit_timer), net/netfilter/nf_conntrack_core.c (__nf_conntrack_alloc); tcp(7), tcp_syn_retries.",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// A smaller part of the clients' time goes unnoticed, ...
const OF_THEIR_TIME: f64 = 0.05;
/// ... and so does a smaller part of the window.
const OF_THE_WINDOW: f64 = 0.01;
/// Findings that are reported.
const MOST_REPORTED: usize = 4;

/// An address in a network namespace.
type Place<'r> = (u32, &'r str);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let all = ev.connects()?;
    let mut places: BTreeMap<Place<'_>, Vec<&table::Connect>> = BTreeMap::new();
    let is_it = |row: &&table::Connect| waited_for_its_syn(row) && !ev.is_own(row.pid, row.tgid);
    for row in all.iter().filter(is_it) {
        places.entry((row.netns, &row.peer)).or_default().push(row);
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (connects, listeners) = (Connects::of(all), ev.listeners()?);
    let full = full_listeners::full(ev, listeners);
    let to_full: Set<Place<'_>> = full
        .iter()
        .flat_map(|one| connects.reaching(one))
        .map(|row| (row.netns, row.peer.as_str()))
        .collect();
    places.retain(|place, _| !to_full.contains(place));
    let mut found = Vec::new();
    let tables = tracked::dropping(ev);
    for table in &tables {
        found.extend(of_table(ev, table, &mut places));
    }
    found.extend(places.iter().filter_map(|(place, rows)| of_place(ev, *place, rows, &tables, &full)));
    found.sort_by_key(|one| std::cmp::Reverse(one.lost));
    super::first_few(&mut found, MOST_REPORTED);
    Ok(found)
}

/// Whether the client waited for its SYN. False for retransmitted data of established connections, and for connects that no task waits for.
fn waited_for_its_syn(row: &table::Connect) -> bool {
    row.retried > row.abandoned && row.retried_ns >= row.unanswered_ns
}

/// The finding about a full table, for all addresses of its network namespace that gave no answer: the table dropped at least one packet of each
/// such connect.
fn of_table(
    ev: &Evidence<'_>,
    table: &Dropping,
    places: &mut BTreeMap<Place<'_>, Vec<&table::Connect>>,
) -> Option<Finding> {
    let full = table.full.as_ref()?;
    let is_its = |place: &Place<'_>| place.0.to_string() == table.netns;
    let rows: Vec<&table::Connect> =
        places.iter().filter(|(place, _)| is_its(place)).flat_map(|(_, rows)| rows).copied().collect();
    let first = *rows.iter().max_by_key(|row| row.retried_ns)?;
    let peers: Set<&str> = rows.iter().map(|row| row.peer.as_str()).collect();
    let tried = sum(&rows, |row| row.count);
    let paid = paid(ev, rows);
    if table.packets < paid.retried || !is_felt(ev, &paid) {
        return None;
    }
    places.retain(|place, _| !is_its(place));
    let to = match peers.len() {
        1 => first.peer.clone(),
        more => format!("{} and {} more addresses", first.peer, more - 1),
    };
    let dropped = counted(table.packets, "packet");
    let title = format!(
        "{} of {} to {to} had to be tried again: the table of tracked connections is full ({full}), and dropped {dropped}",
        paid.retried,
        counted(tried, "connect")
    );
    let culprit = Culprit::new(SubjectKind::Limit, &table.netns, "conntrack table");
    let found = cause(&paid, &to).titled(title).by(culprit).on(resource::conntrack_of(&table.netns));
    Some(tracked::with_advice(found))
}

fn is_felt(ev: &Evidence<'_>, paid: &Paid) -> bool {
    let lost = paid.blocked + paid.watched_share;
    let is_felt = |of: Duration, part: f64| lost.as_secs_f64() > part * of.as_secs_f64();
    is_felt(paid.wall, OF_THEIR_TIME) && is_felt(ev.window(), OF_THE_WINDOW)
}

/// Full listeners of other network namespaces: one at this very address, and one at this port.
fn elsewhere<'r>(
    netns: u32,
    peer: &str,
    full: &[&'r table::Listener],
) -> (Option<&'r table::Listener>, Option<&'r table::Listener>) {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    let others = || full.iter().filter(|one| one.netns != netns);
    let at = others().find(|one| one.local == peer).copied();
    (at, others().find(|one| port(&one.local) == port(peer)).copied())
}

/// The finding about clients that got no answer from one address.
fn of_place(
    ev: &Evidence<'_>,
    (netns, peer): Place<'_>,
    rows: &[&table::Connect],
    tables: &[Dropping],
    full: &[&table::Listener],
) -> Option<Finding> {
    let (tried, made) = (sum(rows, |row| row.count), sum(rows, |row| row.done));
    let connects = counted(tried, "connect");
    let title = |paid: &Paid| format!("{} of {connects} to {peer} had to be tried again", paid.retried);
    let name = |one: &table::Listener| format!("{} ({})", ev.process_name(one.tgid, &one.comm), one.local);
    let (at, at_port) = elsewhere(netns, peer, full);
    if let Some(listener) = at {
        let paid = paid(ev, rows.to_vec());
        let of = format!("{}, in another network namespace,", name(listener));
        let found = cause(&paid, peer).titled(format!("{}: the listen queue of {of} was full", title(&paid)));
        let found = full_listeners::with_advice(found.by(full_listeners::culprit(listener)), listener);
        return is_felt(ev, &paid).then_some(found);
    }
    // An event loop may have nothing else to do, and its connects may serve no request.
    let sleepers: Vec<&table::Connect> =
        rows.iter().filter(|row| row.watched < row.retried).copied().collect();
    let slept = paid(ev, sleepers);
    let answers = if made == 0 { "no answer came" } else { "answers were late" };
    let found = match is_felt(ev, &slept) {
        true => cause(&slept, peer).titled(format!("{}: {answers}", title(&slept))),
        false => {
            let all = paid(ev, rows.to_vec());
            let risk = Finding::risk(RULE.id, all.clients.clone());
            let told = risk
                .titled(format!("{}, and hardly any of its threads slept on them: {answers}", title(&all)));
            is_felt(ev, &all).then_some(told)?
        }
    };
    let client = rows.first()?.tgid;
    let found = found
        .by(Culprit::new(SubjectKind::Socket, peer, peer))
        .check("its connects without an answer", command!("nsenter -n -t {} ss -tnpo state syn-sent", client))
        .check("the route of its packets", command!("nsenter -n -t {} ip route get {}", client, host(peer)));
    // Possible culprits that are not proven.
    let found = match at_port {
        Some(listener) => found.advice(format!(
            "if these connects go to it: the listen queue of {} in another network namespace was full",
            name(listener)
        )),
        None => found,
    };
    let found = match tables.iter().map(|table| table.packets).sum::<u64>() {
        0 => found,
        n => found.advice(format!(
            "if their packets pass through them: tables of tracked connections of this host dropped {}",
            counted(n, "packet")
        )),
    };
    Some(found.advice(ADVICE))
}

const ADVICE: &str = "check whether that host is up, and whether a packet filter drops the packets on the way there or back (a firewall, a \
                      security group); let the client give up sooner and connect elsewhere";

fn cause(paid: &Paid, peer: &str) -> Finding {
    let lost = paid.blocked + paid.watched_share;
    let syn = format!("{peer} to answer a SYN");
    let hop = Hop {
        worst: paid.worst,
        count: Some(paid.retried),
        ..Hop::new(Reason::Connect, &paid.clients.name, syn, TaskState::Sleeping, lost)
    };
    let found =
        Finding::cause(RULE.id, paid.clients.clone(), lost).raw_wait(paid.raw).share_of(paid.wall).hop(hop);
    match paid.watched.is_zero() {
        true => found,
        false => found.between(paid.blocked, paid.blocked + paid.watched),
    }
}

fn sum(rows: &[&table::Connect], of: fn(&table::Connect) -> u64) -> u64 {
    rows.iter().map(|row| of(row)).fold(0, u64::saturating_add)
}

/// The address without its port.
fn host(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host).trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
#[path = "unanswered_connects_tests.rs"]
mod tests;
