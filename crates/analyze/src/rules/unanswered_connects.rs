//! Connections are not answered: neither made nor refused.
//!
//! Signal: connects whose SYN was retransmitted while somebody waited (`Connect`), to a port whose listener dropped none here. Lost: as in
//! `listen-overflow`. Not this rule: a full listen queue; connections that are refused (`service-away`); packets of connections that were made
//! (`retransmits`).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, SubjectKind, command, table};

use super::Rule;
use super::full_listeners;
use super::retried::{Connects, Paid, paid};
use super::tracked;
use crate::Evidence;
use crate::hashing::Set;

pub const RULE: Rule = Rule {
    id: "unanswered-connects",
    question: "Did clients wait for connections that nobody answered?",
    what: "A SYN that gets no answer is retransmitted after 1 s, then after 2, 4 and more, for two minutes. The host is down, a packet filter drops \
           it without a word (a firewall, a security group), the table of tracked connections is full, or the network loses it.",
    how: "TCP connects whose SYN was retransmitted while their client waited, to no listener of the same network namespace whose queue was full; one of another namespace is named, at the same port and as often full. \
          Lost: the client tasks' time in those connects beyond a prompt one; overlapping connects of a task count once; connects that nobody waits for do not \
          count. Reported from 5 % of their time and 1 % of the window on. The table of tracked connections is to blame if it dropped as many packets as \
          there were such connects, in the client's network namespace or in another one of this host.",
    limits: "Which packets the table dropped its counters do not tell. Whether a filter dropped a SYN or the network did is not seen; nor a \
             filter or a full listen queue on another host. Of a prober that asks a dead host on purpose this is told, too. Whom an event loop \
             (epoll) connects for is not known: without a table or queue to blame it is a risk.",
    sources: "net/ipv4/tcp_timer.c (tcp_retransmit_timer), net/netfilter/nf_conntrack_core.c (__nf_conntrack_alloc); tcp(7), tcp_syn_retries.",
    can_be_cause: true,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// A smaller part of the clients' time ...
const OF_THEIR_TIME: f64 = 0.05;
/// ... or of the window is not felt.
const OF_THE_WINDOW: f64 = 0.01;
/// Findings that are reported.
const MOST_REPORTED: usize = 4;

/// A place in a network namespace.
type Place<'r> = (u32, &'r str);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let all = ev.connects()?;
    let mut places: BTreeMap<Place<'_>, Vec<&table::Connect>> = BTreeMap::new();
    for row in all.iter().filter(|row| row.retried > 0 && !ev.is_own(row.pid, row.tgid)) {
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
    let drops = tracked::drops(ev);
    let found = places.into_iter().filter_map(|(place, rows)| finding(ev, place, rows, &drops, &full));
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.lost));
    found.truncate(MOST_REPORTED);
    Ok(found)
}

/// A listener of another network namespace at that port whose queue was full so often.
fn elsewhere<'r>(peer: &str, paid: &Paid, full: &[&'r table::Listener]) -> Option<&'r table::Listener> {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    full.iter().find(|one| port(&one.local) == port(peer) && one.overflows >= paid.retried).copied()
}

/// Whose table dropped so many: the client's own first.
fn dropped(netns: u32, paid: &Paid, drops: &[(String, u64)]) -> Option<(String, u64)> {
    let own = netns.to_string();
    let (first, others): (Vec<_>, Vec<_>) = drops.iter().partition(|(inode, _)| *inode == own);
    first.into_iter().chain(others).find(|(_, drops)| *drops >= paid.retried).cloned()
}

fn finding(
    ev: &Evidence<'_>,
    (netns, peer): Place<'_>,
    rows: Vec<&table::Connect>,
    drops: &[(String, u64)],
    full: &[&table::Listener],
) -> Option<Finding> {
    let (tried, made) = (sum(&rows, |row| row.count), sum(&rows, |row| row.done));
    let (client, watched) = (rows.first()?.tgid, sum(&rows, |row| row.watched));
    let paid = paid(ev, rows);
    let lost = paid.blocked + paid.watched_share;
    let is_felt = |of: Duration, part: f64| lost.as_secs_f64() > part * of.as_secs_f64();
    if !is_felt(paid.wall, OF_THEIR_TIME) || !is_felt(ev.window(), OF_THE_WINDOW) {
        return None;
    }
    let again = format!("{} of {tried} connects to {peer} had to be tried again", paid.retried);
    Some(match (dropped(netns, &paid, drops), elsewhere(peer, &paid, full)) {
        (_, Some(listener)) => {
            let name = ev.process_name(listener.tgid, &listener.comm);
            let of = format!("{name} ({}, in another network namespace)", listener.local);
            let found = cause(&paid, peer).titled(format!("{again}: the listen queue of {of} was full"));
            full_listeners::with_advice(found.by(full_listeners::culprit(listener)), listener)
        }
        (Some((inode, drops)), None) => {
            let packets = if drops == 1 { "a packet".to_owned() } else { format!("{drops} packets") };
            let title = format!("{again}: the table of tracked connections is full, and dropped {packets}");
            let culprit = Culprit::new(SubjectKind::Limit, inode, "conntrack table");
            tracked::with_advice(cause(&paid, peer).titled(title).by(culprit))
        }
        (None, None) => {
            let answers = if made == 0 { "no answer came" } else { "answers were late" };
            // An event loop may have nothing else to do, and try on behalf of nobody.
            let found = match paid.retried > watched {
                true => cause(&paid, peer).titled(format!("{again}: {answers}")),
                false => {
                    let title = format!("{again}, and none of its threads slept on them: {answers}");
                    Finding::risk(RULE.id, paid.clients.clone()).titled(title)
                }
            };
            found
                .by(Culprit::new(SubjectKind::Socket, peer, peer))
                .check("what it waits for", command!("nsenter -n -t {} ss -tnpo state syn-sent", client))
                .check(
                    "which way its packets go",
                    command!("nsenter -n -t {} ip route get {}", client, host(peer)),
                )
                .advice(ADVICE)
        }
    })
}

const ADVICE: &str = "look whether that host is up, and whether a packet filter drops its packets on the way there or back (a firewall, a \
                      security group); let its client give up sooner and go elsewhere";

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

/// Without the port.
fn host(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host).trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
#[path = "unanswered_connects_tests.rs"]
mod tests;
