//! Packets that waited for their CPU, and what ran there meanwhile.

use whyslow_model::stall::{StallAccount, StallKind};
use whyslow_model::{Document, Finding, Kind, PACKET_STALLS, Probe, seconds, times};

use crate::Style;
use crate::page::{Ink, Page};

/// What a probe that was detached does not see.
const LONG_POLLS: &str = "long polls of packets";
/// Causes without -v.
const SHOWN: usize = 10;

/// The longest first; nothing without stalls.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style) {
    let shown = if style.verbose { doc.stalls.len() } else { SHOWN.min(doc.stalls.len()) };
    for stall in doc.stalls.iter().take(shown) {
        page.gap();
        print(page, stall);
    }
    if shown < doc.stalls.len() {
        page.gap();
        page.say("", &format!("and {} more (-v lists them)", doc.stalls.len() - shown), Ink::Faint);
    }
}

/// No stall was seen.
pub(super) fn none(doc: &Document) -> String {
    let is_stall = |what: &str| what.contains(LONG_POLLS) || what.contains(Probe::PacketStalls.word());
    let is_unclear =
        |found: &&Finding| (found.rule.as_str(), found.kind) == (PACKET_STALLS, Kind::CannotTell);
    let unseen = doc.missing.iter().any(|note| is_stall(note.missing.what()));
    match doc.findings.iter().find(is_unclear) {
        Some(why) => {
            format!("No packet was seen to wait for its CPU for 5 ms or more. Cannot tell: {}.", why.title)
        }
        None if unseen => {
            "No packet was seen to wait for its CPU for 5 ms or more; not all stalls could be seen."
                .to_owned()
        }
        None => "No packet waited for its CPU for 5 ms or more.".to_owned(),
    }
}

/// "agent (pid 9) kept CPU 1 from its packets for 430 ms, 3 times, worst 150 ms".
pub(super) fn headline(stall: &StallAccount) -> String {
    let (total, worst) = (seconds(stall.total), seconds(stall.worst));
    if stall.kind == StallKind::Queued {
        return queue(stall);
    }
    let often = format!("for {total}, {}, worst {worst}", times(stall.count));
    match &stall.culprit {
        Some(culprit) => {
            format!("{} kept CPU {} from its packets {often}{}", culprit.named(), stall.cpu, stall.work())
        }
        None => format!("CPU {} left its packets waiting {often}; the culprit is not known", stall.cpu),
    }
}

/// "Packets waited behind each other in the queue of CPU 1 for 4.7 s, 8 ms on average, worst 14 ms: ipt_do_table in a softirq".
fn queue(stall: &StallAccount) -> String {
    let (total, usual, worst) = (seconds(stall.total), seconds(stall.usual()), seconds(stall.worst));
    let by = match &stall.culprit {
        Some(culprit) => format!(": it was busy with {}", culprit.named()),
        None => "; the culprit is not known".to_owned(),
    };
    format!(
        "Packets waited behind each other in the queue of CPU {} for {total}, {usual} on average, worst {worst}{by}",
        stall.cpu
    )
}

fn print(page: &mut Page, stall: &StallAccount) {
    page.tell("", 2, &format!("{}.", headline(stall)), Ink::Heading);
    let thread = stall.thread.as_deref().unwrap_or("a thread");
    let how = match stall.kind {
        StallKind::IrqsOff => "interrupts were off: the interrupt of the packets came late".to_owned(),
        StallKind::Deferred => "the receive softirq was raised, and began late".to_owned(),
        StallKind::Poll => "a poll of the receive softirq took long".to_owned(),
        StallKind::Thread => format!("{thread}, which polls a network device, waited for this CPU"),
        StallKind::Queued => {
            "packets came faster than the receive softirq handled them; no task kept the CPU from it"
                .to_owned()
        }
    };
    let mut line = |label: &str, words: &str| page.tell(&format!("  {label:<9}"), 11, words, Ink::Plain);
    line("how", &how);
    line("first", &format!("{} after the window began", seconds(stall.at)));
    let Some(culprit) = &stall.culprit else {
        line(
            "culprit",
            &format!("cannot tell: {}", stall.unknown.as_deref().unwrap_or("no stack was taken")),
        );
        return;
    };
    if let Some(group) = &culprit.group {
        line("group", group);
    }
    if !culprit.stack.is_empty() {
        line("stack", &culprit.stack.join(" < "));
    }
}
