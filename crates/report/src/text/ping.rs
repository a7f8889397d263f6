//! Answers of another host: how long they took, in which stalls they came late, and what of it this host explains.

use whyslow_model::ping::{Explained, PingAccount, PingStall, PingTimes};
use whyslow_model::{Share, counted, seconds};

use crate::Style;
use crate::page::{Ink, Page};

mod sides;

/// Stalls without -v: the longest ones.
const SHOWN: usize = 5;
/// Columns of a label.
const LABEL: usize = 13;

/// With fewer answers, a stall may have come between them unseen.
const FEW: u64 = 50;
/// Late answers are this host's own if so many in a hundred of them waited here.
const NEARLY_ALL: u64 = 90;

/// The answer in a sentence, and a way without any.
pub(super) fn headline(pings: &PingAccount) -> (String, Ink) {
    let (words, ink) = answered(pings);
    match (&pings.silent, ink) {
        (None, ink) => (words, ink),
        (Some(way), Ink::Heading) => (format!("{words} No answer came by {way}."), Ink::Risk),
        (Some(way), ink) => (format!("{words} No answer came by {way}."), ink),
    }
}

fn answered(pings: &PingAccount) -> (String, Ink) {
    let target = &pings.target;
    let lost = match pings.lost {
        0 => String::new(),
        lost => format!("; {} of {} lost", lost, counted(pings.sent, "request")),
    };
    let Some(times) = pings.times else { return (unanswered(pings), Ink::Cause) };
    let (answered, worst) = (pings.answered, seconds(times.worst));
    let own: u64 = pings.explained.iter().map(|one| one.late).sum();
    if let Some(longest) = pings.stalls.iter().max_by_key(|stall| stall.length) {
        let stalls = counted(pings.stalls.len() as u64, "stall");
        let stalls = format!("{stalls}, the longest {}", seconds(longest.length));
        let late = pings.late;
        let words = match late {
            0 => format!("{target} gave no answer in {stalls}"),
            late if own * 100 >= late * NEARLY_ALL && pings.stalls.iter().all(|stall| stall.late > 0) => {
                format!("This host kept {own} of {answered} answers of {target} waiting, in {stalls}")
            }
            late => {
                let waited = sides::waited(pings);
                format!("Answers of {target} stalled: {late} of {answered} came late, in {stalls}{waited}")
            }
        };
        return (format!("{words}{lost}."), Ink::Cause);
    }
    let quick = format!("{target} answered in {}, worst {worst}", seconds(times.p50));
    if pings.late > 0 {
        let late = counted(pings.late, "answer");
        let words =
            format!("{quick}: {late} of {answered} came late, one by one (jitter, or a longer path){lost}");
        return (format!("{words}."), Ink::Risk);
    }
    match unseen(pings) {
        Some(why) => (format!("{quick}; cannot tell whether it stalled: {why}{lost}."), Ink::Heading),
        None if pings.lost > 0 => (format!("{quick}{lost}, one by one."), Ink::Risk),
        None => (format!("{quick}, and did not stall."), Ink::Heading),
    }
}

fn unanswered(pings: &PingAccount) -> String {
    let target = &pings.target;
    match (pings.sent, pings.not_sent.first()) {
        (0, Some(refused)) => {
            format!(
                "This host sent no request to {target}: {} (a firewall or a route of this host).",
                refused.error
            )
        }
        (0, None) => format!("No request to {target} was sent."),
        (sent, _) => format!("{target} gave no answer to {}.", counted(sent, "request")),
    }
}

/// Why a stall may have been missed.
fn unseen(pings: &PingAccount) -> Option<String> {
    let refused: u64 = pings.not_sent.iter().map(|one| one.count).sum();
    let unseen = pings.left_out + refused + pings.unreachable + pings.limited;
    if pings.answered < FEW {
        return Some(format!("{} are too few", counted(pings.answered, "answer")));
    }
    (unseen * 10 > pings.answered)
        .then(|| format!("{} had no chance of an answer", counted(unseen, "request")))
}

/// What was asked, the times, the stalls, and what explains them.
pub(super) fn section(page: &mut Page, pings: &PingAccount, style: &Style) {
    page.gap();
    let mut line = |label: &str, words: &str| page.tell(&format!("  {label:<11}"), LABEL, words, Ink::Plain);
    line("asked", &asked(pings));
    if let Some(times) = &pings.times {
        line("times", &percentiles(times));
    }
    for refused in &pings.not_sent {
        line("not sent", &format!("{} ({})", counted(refused.count, "request"), refused.error));
    }
    if pings.left_out > 0 {
        let words = format!("{} that were due while whyslow had no CPU", counted(pings.left_out, "request"));
        line("not sent", &words);
    }
    stalls(&mut line, pings, style);
    sides::places(&mut line, pings);
    sides::ports(&mut line, pings);
    explained(&mut line, pings);
    for not in &pings.ruled_out {
        line("ruled out", &format!("{}: {}", not.what, not.evidence));
    }
    for note in &pings.notes {
        line("note", note);
    }
}

/// "1000 requests (tcp, port 80 of 10.0.0.7), one each 10 ms: 998 answered (syn-ack), 2 lost (0.2 %)".
fn asked(pings: &PingAccount) -> String {
    let port = pings.port.map_or_else(String::new, |port| format!("port {port} of "));
    let kinds: Vec<String> = match &pings.answers[..] {
        [only] => vec![only.answer.to_string()],
        all => all.iter().map(|one| format!("{} {}", one.count, one.answer)).collect(),
    };
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let share = |part: u64| Share::of(part as f64, pings.sent as f64);
    let lost = match pings.lost {
        0 => "none lost".to_owned(),
        lost => format!("{lost} lost ({})", share(lost)),
    };
    let others =
        [(pings.unreachable, "unreachable by an ICMP error"), (pings.limited, "without an answer, no loss")];
    let others: String = others
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!(", {count} {what}"))
        .collect();
    let icmp = if pings.with_icmp { " and icmp in turn" } else { "" };
    format!(
        "{} ({}{icmp}, {port}{}), one each {}: {} answered{kinds}, {lost}{others}",
        counted(pings.sent, "request"),
        pings.how,
        pings.address,
        seconds(pings.interval),
        pings.answered
    )
}

fn percentiles(times: &PingTimes) -> String {
    let PingTimes { least, p50, p90, p99, p999, worst } = *times;
    [("least", least), ("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("worst", worst)]
        .map(|(name, time)| format!("{name} {}", seconds(time)))
        .join(", ")
}

fn stalls(line: &mut impl FnMut(&str, &str), pings: &PingAccount, style: &Style) {
    if let Some(late_from) = pings.late_from.filter(|_| pings.late > 0) {
        let alone =
            if pings.alone > 0 { format!(", {} of them one by one", pings.alone) } else { String::new() };
        line(
            "late",
            &format!("{} took {} or more{alone}", counted(pings.late, "answer"), seconds(late_from)),
        );
    }
    let mut longest: Vec<&PingStall> = pings.stalls.iter().collect();
    longest.sort_by_key(|stall| std::cmp::Reverse(stall.length));
    longest.truncate(if style.verbose { usize::MAX } else { SHOWN });
    longest.sort_by_key(|stall| stall.at);
    for stall in &longest {
        let came = match (stall.late, stall.lost) {
            (0, lost) => format!("{} in a row had no answer", counted(lost, "request")),
            (_, 0) => format!("{} came together", counted(stall.answers, "answer")),
            (_, lost) => format!("{} came together, {lost} never", counted(stall.answers, "answer")),
        };
        line("stall", &format!("{} at {} of the window: {came}", seconds(stall.length), seconds(stall.at)));
    }
    if longest.len() < pings.stalls.len() {
        line("", &format!("and {} shorter ones (-v lists them)", pings.stalls.len() - longest.len()));
    }
}

/// Of the late answers, which ones waited on this host.
fn explained(line: &mut impl FnMut(&str, &str), pings: &PingAccount) {
    if pings.late == 0 {
        return;
    }
    if let Some(why) = &pings.unwatched {
        line(
            "explained",
            &format!("cannot tell whether late answers waited on this host: {why} (--watch records them)"),
        );
        return;
    }
    let sum: u64 = pings.explained.iter().map(|one| one.late).sum();
    line(
        "explained",
        &format!("{sum} of {} late answers came right behind a stall of packets on this host", pings.late),
    );
    for one in &pings.explained {
        line("", &culprit(one));
    }
}

/// "14 in 3 stalls of CPU 11: cadvisor (pid 9): css_rstat_flush in read(memory.stat)".
fn culprit(one: &Explained) -> String {
    let of = format!("{} in {} of CPU {}", one.late, counted(one.stalls, "stall"), one.cpu);
    match (&one.culprit, &one.unknown) {
        (Some(culprit), _) => format!("{of}: {}{}", culprit.named(), culprit.work()),
        (None, why) => format!("{of}: cannot tell: {}", why.as_deref().unwrap_or("no stack was taken")),
    }
}
