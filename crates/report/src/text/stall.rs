//! Packets that waited for their CPU, and what ran there meanwhile.

use whyslow_model::stall::{StallAccount, StallCulprit, StallKind};
use whyslow_model::{Document, Probe, seconds, times};

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
pub(super) fn none(doc: &Document) -> &'static str {
    let is_stall = |what: &str| what.contains(LONG_POLLS) || what.contains(Probe::PacketStalls.word());
    match doc.missing.iter().any(|note| is_stall(note.missing.what())) {
        true => "No packet was seen to wait for its CPU for 5 ms or more; not all stalls could be seen.",
        false => "No packet waited for its CPU for 5 ms or more.",
    }
}

/// "agent (pid 9) kept CPU 1 from its packets for 430 ms, 3 times, worst 150 ms".
pub(super) fn headline(stall: &StallAccount) -> String {
    let (total, worst) = (seconds(stall.total), seconds(stall.worst));
    let often = format!("for {total}, {}, worst {worst}", times(stall.count));
    match &stall.culprit {
        Some(culprit) => {
            format!("{} kept CPU {} from its packets {often}{}", named(culprit), stall.cpu, work(culprit))
        }
        None => format!("CPU {} left its packets waiting {often}; the culprit is not known", stall.cpu),
    }
}

fn named(culprit: &StallCulprit) -> String {
    match (culprit.pid, &culprit.function) {
        (0, Some(function)) => format!("{function} in a {}", culprit.who),
        (0, None) => culprit.who.clone(),
        (pid, _) => format!("{} (pid {pid})", culprit.who),
    }
}

/// ": css_rstat_flush in read(memory.stat)".
fn work(culprit: &StallCulprit) -> String {
    let call =
        culprit.call.as_ref().map(|call| format!("{call}({})", culprit.file.as_deref().unwrap_or_default()));
    match (culprit.function.as_ref().filter(|_| culprit.pid > 0), call) {
        (Some(function), Some(call)) => format!(": {function} in {call}"),
        (Some(work), None) => format!(": {work}"),
        (None, Some(call)) => format!(": {call}"),
        (None, None) => String::new(),
    }
}

fn print(page: &mut Page, stall: &StallAccount) {
    page.tell("", 2, &format!("{}.", headline(stall)), Ink::Heading);
    let how = match stall.kind {
        StallKind::IrqsOff => "interrupts were off: the interrupt of the packets came late",
        StallKind::Deferred => "the receive softirq was raised, and began late",
        StallKind::Poll => "a poll of the receive softirq took long",
    };
    let mut line = |label: &str, words: &str| page.tell(&format!("  {label:<9}"), 11, words, Ink::Plain);
    line("how", how);
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
