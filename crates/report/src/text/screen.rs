//! The first screen of an exam: one sentence, and at most fifteen lines below it. Everything else is told with -v.

use whyslow_model::{Check, Document, Finding, Fix, Hop, Kind, Share, StateShare, seconds};

use super::{chain, count, finding, of_kind, rest};
use crate::page::{Ink, Page};
use crate::text::account;

/// Lines below the sentence.
const LINES: usize = 15;
/// Other causes with a line each.
const OTHER_CAUSES: usize = 3;
/// Of a sentence that is one of several.
const SENTENCE: usize = 2;
/// Of what would help, with its undo.
const WAY_OUT: usize = 3;
/// Hops that are told.
const HOPS: usize = 3;
/// Lines that the account by cgroup is worth printing in: a heading and two rows.
const LEAST_TABLE: usize = 3;
/// Chains that are told where there is no cause.
const CHAINS: usize = 3;
/// Cells of the bar.
const CELLS: usize = 16;
/// A smaller share of the CPUs' time is not named.
const NAMED: f64 = 0.015;
/// Columns of a label.
const LABEL: usize = 9;

pub(super) fn print(page: &mut Page, doc: &Document) {
    let mut foot = page.part();
    split(&mut foot, doc);
    busy(&mut foot, doc);
    risks(&mut foot, doc);
    doubt(&mut foot, doc);
    rest::in_short(&mut foot, doc);
    page.gap();
    let room = LINES.saturating_sub(foot.lines() + 1);
    let causes: Vec<&Finding> = of_kind(doc, Kind::Cause).collect();
    let body = match causes.split_first() {
        Some((first, others)) => of_causes(page, first, others, room),
        None => without_cause(page, doc, room),
    };
    page.add(&body);
    page.add(&foot);
}

/// A part's line or lines: "check    ...".
fn part(page: &mut Page, label: &str, text: &str, most: usize) {
    page.brief(&format!("{label:LABEL$}"), text, most, Ink::Plain);
}

fn of_causes(page: &Page, first: &Finding, others: &[&Finding], room: usize) -> Page {
    let mut below = page.part();
    let told = others.len().min(OTHER_CAUSES);
    let lines = if others.len() == 1 { SENTENCE } else { 1 };
    for (at, cause) in others.iter().take(told).enumerate() {
        let more = others.len() - told;
        let more = if more > 0 && at + 1 == told { format!(" (+ {more} more: -v)") } else { String::new() };
        let text = format!("{} [{}]{more}", finding::headline(cause), cause.rule);
        below.brief(&format!("{:<LABEL$}", format!("{}.", at + 2)), &text, lines, Ink::Cause);
    }
    let mut body = first_cause(page, first, room.saturating_sub(below.lines()));
    body.add(&below);
    body
}

/// Its chain, how to check it, and a way out: what does not fit is told with -v.
fn first_cause(page: &Page, cause: &Finding, room: usize) -> Page {
    let mut ways = page.part();
    if let Some(check) = cause.check.iter().find(|check| check.command.is_some()).or(cause.check.first()) {
        how(&mut ways, "check", check);
    }
    if let Some(fix) = cause.fixes.iter().find(|fix| fix.command.is_some()).or(cause.fixes.first()) {
        let command = usize::from(fix.command.is_some());
        // The chain has a line at least.
        let text = room.saturating_sub(ways.lines() + command + 1).clamp(1, WAY_OUT);
        way_out(&mut ways, fix, text);
    }
    let mut body = page.part();
    why(&mut body, cause, room.saturating_sub(ways.lines()).max(1));
    body.add(&ways);
    body
}

fn how(page: &mut Page, label: &str, check: &Check) {
    match &check.command {
        Some(command) => page.labelled_command(&format!("{label:LABEL$}"), command),
        None => part(page, label, &check.text, 1),
    }
}

/// A command is told with all of its undo, or not at all.
fn way_out(page: &mut Page, fix: &Fix, most: usize) {
    let mut whole = page.part();
    part(&mut whole, "fix", &fix.text, usize::MAX);
    match &fix.command {
        Some(_) if whole.lines() > most || !page.fits(LABEL, &fix.text) => {
            part(page, "fix", "there is one: -v tells it, and how it is undone", 1);
        }
        Some(command) => {
            page.add(&whole);
            page.command(LABEL, command);
        }
        None => part(page, "fix", &fix.text, most),
    }
}

/// Its chain; without one, who is to blame.
fn why(page: &mut Page, cause: &Finding, room: usize) {
    let hops: Vec<&Hop> = match cause.chain.as_slice() {
        all if all.len() <= HOPS => all.iter().collect(),
        [first, .., before, last] => vec![first, before, last],
        _ => Vec::new(),
    };
    if hops.is_empty() {
        if let Some(culprit) = &cause.culprit {
            part(page, "due to", &finding::culprit_words(culprit), room.min(SENTENCE));
        }
        return;
    }
    let shown = hops.len().min(room);
    let spare = room - shown;
    for (at, hop) in hops.iter().take(shown).enumerate() {
        part(page, if at == 0 { "chain" } else { "" }, &finding::hop_words(hop), 1 + usize::from(at < spare));
    }
}

/// CPU time and waits by cgroup, and the largest waits.
fn without_cause(page: &Page, doc: &Document, room: usize) -> Page {
    let mut body = page.part();
    for note in &doc.account.notes {
        if body.lines() + LEAST_TABLE < room {
            body.brief("", note, SENTENCE, Ink::Plain);
        }
    }
    let mut chains = page.part();
    for chain in doc.chains.iter().take(CHAINS) {
        let label = if chains.lines() == 0 { "waited" } else { "" };
        part(&mut chains, label, &chain::headline(chain), 1);
    }
    let left = room.saturating_sub(body.lines() + chains.lines());
    if left >= LEAST_TABLE {
        account::by_cgroup(&mut body, doc, left);
    }
    body.add(&chains);
    body
}

/// What the CPUs did: a bar, and the numbers.
fn split(page: &mut Page, doc: &Document) {
    let states: Vec<&StateShare> =
        doc.account.by_state.iter().filter(|state| state.of == "cpu" && !state.time.is_zero()).collect();
    let all: f64 = states.iter().map(|state| state.time.as_secs_f64()).sum();
    if states.is_empty() || all <= 0.0 {
        return part(page, "CPU", "not known: the kernel's counters were not read", 1);
    }
    let mut largest = states.clone();
    largest.sort_by_key(|state| std::cmp::Reverse(state.time));
    largest.retain(|state| state.time.as_secs_f64() >= NAMED * all);
    let word = |state: &&StateShare| format!("{} {}", state.state, Share::of(state.time.as_secs_f64(), all));
    let words: Vec<String> = largest.iter().map(word).collect();
    let shares = format!("{} {}", bar(&states, all), words.join(", "));
    let off_cpu = doc.account.off_cpu.filter(|time| !time.is_zero());
    let both = off_cpu.map(|time| format!("{shares}; tasks waited {}", seconds(time)));
    let told = both.filter(|both| page.is_line(LABEL, both)).unwrap_or(shares);
    part(page, "CPU", &told, 1);
}

/// One letter a cell: u for user, s for system, i for interrupts, t for stolen, a dot for idle.
fn bar(states: &[&StateShare], all: f64) -> String {
    let mut cells = String::new();
    let (mut upto, mut busy) = (0.0, states.iter().filter(|state| !is_idle(state)).collect::<Vec<_>>());
    busy.sort_by_key(|state| std::cmp::Reverse(state.time));
    for state in busy {
        upto += state.time.as_secs_f64() / all * CELLS as f64;
        while (cells.len() as f64) < upto.round() && cells.len() < CELLS {
            cells.push(letter(&state.state));
        }
    }
    format!("[{cells:.<CELLS$}]")
}

fn is_idle(state: &StateShare) -> bool {
    matches!(state.state.as_str(), "idle" | "iowait")
}

fn letter(state: &str) -> char {
    match state {
        "user" | "nice" => 'u',
        "system" => 's',
        "hardirq" | "softirq" => 'i',
        "steal" => 't',
        _ => '#',
    }
}

/// What the host is busy with, where the first line does not say so; or what a reader should know first.
fn busy(page: &mut Page, doc: &Document) {
    if of_kind(doc, Kind::Cause).next().is_none() {
        return;
    }
    let busy = of_kind(doc, Kind::Busy).map(|finding| ("busy", finding::busy_words(finding)));
    let notes = doc.account.notes.iter().map(|note| ("note", note.clone()));
    if let Some((label, text)) = busy.chain(notes).next() {
        part(page, label, &text, 1);
    }
}

/// What may make the answer wrong: two clocks that disagree, or a table that was full.
fn doubt(page: &mut Page, doc: &Document) {
    let cause = of_kind(doc, Kind::Cause).next();
    // Each check of a rule has a command: one without says that a table was full.
    let touched = cause.and_then(|cause| cause.check.iter().rev().find(|check| check.command.is_none()));
    let doubts = touched.map(|check| &check.text).into_iter().chain(&doc.account.doubts);
    if let Some(text) = doubts.into_iter().next() {
        page.brief(&format!("{:LABEL$}", "doubt"), text, 1, Ink::Risk);
    }
}

fn risks(page: &mut Page, doc: &Document) {
    let risks: Vec<&Finding> = of_kind(doc, Kind::Risk).collect();
    let Some(first) = risks.first() else { return };
    let text = match risks.len() {
        1 => format!("{} [{}] (-v)", finding::risk_words(first), first.rule),
        n => {
            let mut rules: Vec<&str> = risks.iter().map(|risk| risk.rule.as_str()).collect();
            rules.dedup();
            format!("{} (-v): {}", count(n, "risk"), rules.join(", "))
        }
    };
    page.brief(&format!("{:LABEL$}", "risk"), &text, 1, Ink::Risk);
}
