//! Answers of another host: how many, how late, and whether late ones waited there or here.
//!
//! Requests leave at a steady rate. While the receiver takes no packets they queue, and their answers come together at the end: one stall, not
//! as many slow answers. A late answer that came right behind a stall of packets on this host waited here.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::ping::{Answers, NotSent, Ping, PingAccount, PingAnswer, PingHow, PingStall, Pinged};
use whyslow_model::{Recording, counted};

use crate::Evidence;

mod here;
mod places;
mod ports;
mod ruled_out;
mod silences;
#[cfg(test)]
mod simulator;
mod stairs;
mod times;
mod ways;

use here::Here;
use times::{Timed, Usual};
use ways::Way;

#[cfg(test)]
#[path = "pings_tests.rs"]
mod tests;

/// Stalls that are listed: a reader looks at the longest few, and a window of hours with a stall a second stays readable for a program.
const LISTED: usize = 1000;

/// If less than this part of the late answers came together, they did so by chance.
const FEW: u64 = 4;

/// What the answers of the host that was asked show; `None`: none was asked.
pub(crate) fn account(ev: &Evidence<'_>) -> Option<PingAccount> {
    let rec = ev.recording();
    let mut rows: Vec<&Ping> = rec.tables.pings.as_deref()?.iter().collect();
    rows.sort_by_key(|row| (row.sent_ns.saturating_sub(row.late_ns), row.sent_ns, row.answered_ns, row.port));
    let asked = rec.meta.pinged.as_ref()?;
    let Way { pinged, silent, note } = ways::judged(rec, asked, &mut rows);
    let (pinged, rows) = (&pinged, &rows[..]);
    let counts = Counts::of(rec, pinged, rows);
    let timed = times::timed(rows);
    let usual = Usual::of(&timed);
    let late: Vec<Timed> =
        usual.iter().flat_map(|usual| timed.iter().filter(|one| usual.is_late(one)).copied()).collect();
    let mut together = usual.map(|usual| stairs::stalls(&timed, &usual)).unwrap_or_default();
    together.retain(|stall| stall.answers > 1);
    let late_in = |stalls: &[PingStall]| stalls.iter().map(|stall| stall.late).sum::<u64>();
    if late_in(&together) < late.len() as u64 / FEW {
        together.clear();
    }
    let in_stalls = late_in(&together);
    let ports = usual.and_then(|usual| ports::held(&timed, &together, &usual));
    let mut stalls = silences::joined(together, counts.silences(rows, rec, pinged));
    let not_listed = keep_longest(&mut stalls);
    let here = usual.map(|usual| here::explained(ev, &late, &usual));
    let (here, unwatched) = match here.unwrap_or_else(|| ev.stalls().map(|_| Here::default())) {
        Ok(here) => (here, None),
        Err(why) => (Here::default(), Some(why.to_string())),
    };
    let mut account = PingAccount {
        target: asked.target.clone(),
        address: asked.address.clone(),
        how: asked.how.clone(),
        port: Some(asked.port).filter(|port| *port > 0),
        with_icmp: asked.with_icmp,
        silent,
        interval: Duration::from_nanos(asked.interval_ns),
        sent: counts.sent,
        answered: counts.answered,
        lost: counts.lost,
        unreachable: counts.unreachable,
        limited: counts.limited,
        left_out: counts.left_out,
        answers: counts.answers(),
        not_sent: counts.not_sent(),
        times: times::percentiles(&timed),
        late_from: usual.map(|usual| Duration::from_nanos(usual.late_from())),
        late: late.len() as u64,
        alone: (late.len() as u64).saturating_sub(in_stalls),
        stalls,
        places: usual.map(|usual| places::places(&timed, &usual)).unwrap_or_default(),
        ports,
        explained: here.explained,
        unwatched,
        sent_late: counts.sent_late,
        ruled_out: vec![],
        notes: note.into_iter().chain(counts.notes(not_listed, here.by_chance)).collect(),
    };
    account.ruled_out = ruled_out::of(ev, &account);
    Some(account)
}

/// How many stalls were left out; the others are in order of time.
fn keep_longest(stalls: &mut Vec<PingStall>) -> usize {
    let left_out = stalls.len().saturating_sub(LISTED);
    if left_out > 0 {
        stalls.sort_by(|a, b| (b.length, a.at).cmp(&(a.length, b.at)));
        stalls.truncate(LISTED);
    }
    stalls.sort_by_key(|stall| (stall.at, stall.length));
    left_out
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Counts<'r> {
    sent: u64,
    answered: u64,
    lost: u64,
    /// Of these two, ICMP echoes.
    icmp_answered: u64,
    icmp_lost: u64,
    unreachable: u64,
    limited: u64,
    left_out: u64,
    sent_late: u64,
    by_kind: BTreeMap<&'static str, (PingAnswer, u64)>,
    by_error: BTreeMap<&'r str, u64>,
    /// When the last request was due.
    due: Option<u64>,
}

impl<'r> Counts<'r> {
    fn of(rec: &Recording, pinged: &Pinged, rows: &[&'r Ping]) -> Self {
        let mut counts = Counts::default();
        for row in rows {
            counts.add(row, rec, pinged);
        }
        let closed = counts.count(PingAnswer::PortUnreachable);
        let is_udp = pinged.how == PingHow::Udp.word();
        if is_udp && closed > 0 && closed == counts.answered - counts.icmp_answered {
            counts.limited = counts.lost - counts.icmp_lost;
            counts.lost = counts.icmp_lost;
        }
        counts
    }

    fn add(&mut self, row: &'r Ping, rec: &Recording, pinged: &Pinged) {
        let due = row.sent_ns.saturating_sub(row.late_ns);
        let before = self.due.replace(due).unwrap_or(due);
        // Half of an interval is nearer to the next request than to none.
        let intervals =
            due.saturating_sub(before).saturating_add(pinged.interval_ns / 2) / pinged.interval_ns.max(1);
        self.left_out = self.left_out.saturating_add(intervals.saturating_sub(1));
        if let Some(error) = &row.error {
            *self.by_error.entry(error).or_default() += 1;
            return;
        }
        if is_open(row, rec, pinged) {
            return;
        }
        self.sent += 1;
        self.sent_late += u64::from(row.late_ns >= pinged.interval_ns.max(1));
        let is_icmp = pinged.with_icmp && row.port == 0;
        if row.answered_ns.is_none() {
            self.lost += 1;
            self.icmp_lost += u64::from(is_icmp);
            return;
        }
        // `None`: a kind of answer that a newer whyslow knows.
        let kind = kind(row);
        let count =
            if kind == Some(PingAnswer::Unreachable) { &mut self.unreachable } else { &mut self.answered };
        *count += 1;
        self.icmp_answered += u64::from(is_icmp && kind != Some(PingAnswer::Unreachable));
        if let Some(kind) = kind {
            self.by_kind.entry(kind.word()).or_insert((kind, 0)).1 += 1;
        }
    }

    /// Requests without an answer in a row, unless the limit on ICMP errors tells that.
    fn silences(&self, rows: &[&Ping], rec: &Recording, pinged: &Pinged) -> Vec<PingStall> {
        if self.lost == 0 {
            return Vec::new();
        }
        let share = self.lost as f64 / self.sent.max(1) as f64;
        let asked = |icmp: bool| {
            let of = rows.iter().filter(move |row| (pinged.with_icmp && row.port == 0) == icmp);
            let asked = of.filter(|row| row.error.is_none() && !is_open(row, rec, pinged));
            asked.map(move |row| (*row, row.answered_ns.is_none() && (icmp || self.limited == 0)))
        };
        let of = |icmp| silences::silences(asked(icmp), share, self.sent);
        silences::joined(of(false), of(true))
    }

    fn count(&self, kind: PingAnswer) -> u64 {
        self.by_kind.get(kind.word()).map_or(0, |(_, count)| *count)
    }

    fn answers(&self) -> Vec<Answers> {
        let kinds = self.by_kind.values();
        let mut all: Vec<Answers> =
            kinds.map(|(answer, count)| Answers { answer: *answer, count: *count }).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.count));
        all
    }

    fn not_sent(&self) -> Vec<NotSent> {
        let errors = self.by_error.iter();
        let mut all: Vec<NotSent> =
            errors.map(|(error, count)| NotSent { error: (*error).to_owned(), count: *count }).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.count));
        all
    }

    fn notes(&self, not_listed: usize, by_chance: u64) -> Vec<String> {
        let (silent, refused) = (self.sent > 0 && self.answered == 0, self.unreachable > 0);
        let late = counted(self.sent_late, "request");
        let notes = [
            (silent && !refused, "The host is down, a firewall drops the requests, or the port does not answer".to_owned()),
            (refused, "ICMP errors come from routers, or from this host if the target does not answer to ARP: requests with one have no time".to_owned()),
            (self.limited > 0, "A closed UDP port answers about once a second (net.ipv4.icmp_ratelimit): what has no answer does not count as lost".to_owned()),
            (self.sent_late > 0, format!("{late} left an interval late or more, because whyslow had no CPU: stalls that began then may be longer than listed")),
            (by_chance > 0, format!("Packets wait so often on this host that late answers meet a stall by chance: {} did, and is tied to none", counted(by_chance, "answer"))),
            (not_listed > 0, format!("Not listed: {}", counted(not_listed as u64, "shorter stall"))),
        ];
        notes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect()
    }
}

/// An interrupted prober did not wait for the answers to its last requests.
fn is_open(row: &Ping, rec: &Recording, pinged: &Pinged) -> bool {
    let waited_until = row.sent_ns.saturating_add(pinged.timeout_ns);
    row.answered_ns.is_none() && rec.meta.interrupted && waited_until > rec.meta.window_ns
}

/// What came back, where this whyslow knows the word.
fn kind(row: &Ping) -> Option<PingAnswer> {
    PingAnswer::ALL.iter().copied().find(|kind| kind.word() == row.answer)
}
