//! After the findings: what could not be answered, what it is not, what was not seen, what looking cost.

use std::time::Duration;

use whyslow_model::{Bytes, Document, Kind, Missing, MissingNote, seconds};

use super::{count, of_kind};
use crate::Style;
use crate::page::{Ink, Page};

/// Missing things named without -v; the others are counted.
const NAMED: usize = 4;

/// All of it.
pub(super) fn print(page: &mut Page, doc: &Document, style: &Style) {
    page.gap();
    contradictions(page, doc);
    ruled_out(page, doc);
    cannot_tell(page, doc);
    missing(page, doc, style);
    own_cost(page, doc);
}

/// A line each.
pub(super) fn in_short(page: &mut Page, doc: &Document) {
    contradictions(page, doc);
    if !doc.ruled_out.is_empty() {
        let names: Vec<_> = doc.ruled_out.iter().map(|not| not.what.as_str()).collect();
        let text = format!("{} (-v says why): {}", names.len(), names.join(", "));
        page.brief("Ruled out: ", &text, 1, Ink::Plain);
    }
    let unknown = of_kind(doc, Kind::CannotTell).count();
    let questions = (unknown > 0).then(|| format!("Cannot tell: {}", count(unknown, "question")));
    let names: Vec<_> = doc.missing.iter().map(|note| note.missing.what()).collect();
    let things = (!names.is_empty()).then(|| format!("not collected: {}: {}", names.len(), names.join(", ")));
    match (questions, things) {
        (Some(questions), things) => {
            let things = things.map_or_else(String::new, |things| format!("; {things}"));
            page.brief("", &format!("{questions} (-v){things}"), 1, Ink::Plain);
        }
        (None, Some(_)) => {
            page.brief(
                "Not collected: ",
                &format!("{} (-v says why): {}", names.len(), names.join(", ")),
                1,
                Ink::Plain,
            );
        }
        (None, None) => {}
    }
    not_allowed(page, doc);
    page.brief("", &cost_in_short(doc), 1, Ink::Faint);
}

/// Where the exam's questions were not what was asked.
pub(super) fn unseen(page: &mut Page, doc: &Document, style: &Style) {
    page.gap();
    contradictions(page, doc);
    missing(page, doc, style);
    own_cost(page, doc);
}

/// A report that says two things of one matter says so, always in full.
pub(super) fn contradictions(page: &mut Page, doc: &Document) {
    for found in &doc.contradictions {
        page.say("contradiction ", &format!("{}: {}", found.rule, found.text), Ink::Risk);
    }
}

fn ruled_out(page: &mut Page, doc: &Document) {
    for not in &doc.ruled_out {
        page.say("Ruled out: ", &format!("{}: {}", not.what, not.evidence), Ink::Plain);
    }
}

fn cannot_tell(page: &mut Page, doc: &Document) {
    let unknown: Vec<_> = of_kind(doc, Kind::CannotTell).collect();
    if !unknown.is_empty() {
        page.say("", &format!("Cannot tell: {}", count(unknown.len(), "question")), Ink::Plain);
    }
    for finding in unknown {
        page.say("  ", &format!("{}: {}", finding.rule, finding.title), Ink::Plain);
    }
}

fn missing(page: &mut Page, doc: &Document, style: &Style) {
    let all = &doc.missing;
    if all.is_empty() {
        return;
    }
    if style.verbose {
        page.say("", &format!("Not collected: {}", count(all.len(), "thing")), Ink::Plain);
        for note in all {
            page.say("  ", &note.text, Ink::Plain);
        }
        return;
    }
    let mut names: Vec<_> = all.iter().take(NAMED).map(|note| note.missing.what()).collect();
    let more = all.len().saturating_sub(NAMED);
    let more = format!("{more} more");
    if all.len() > NAMED {
        names.push(&more);
    }
    page.say("", &format!("Not collected: {} (-v says why)", names.join(", ")), Ink::Plain);
    not_allowed(page, doc);
}

/// One way out is for all of them, as a rule: a kernel that is locked down, capabilities, a container.
fn not_allowed(page: &mut Page, doc: &Document) {
    let way_out = |note: &MissingNote| match &note.missing {
        Missing::NotAllowed { way_out, .. } => Some(way_out.clone()),
        _ => None,
    };
    let all: Vec<String> = doc.missing.iter().filter_map(way_out).collect();
    let alike = |way_out: &String| all.iter().filter(|other| *other == way_out).count();
    // Of several that are as many, the first.
    if let Some(most) = all.iter().rev().max_by_key(|way_out| alike(way_out)) {
        page.say("", &format!("{} of them may not be read: {most}", alike(most)), Ink::Plain);
    }
}

fn own_cost(page: &mut Page, doc: &Document) {
    let [cpu, bpf, waited, memory, lost] = cost(doc);
    let line =
        format!("whyslow itself took {cpu} of CPU, its BPF programs {bpf}{waited}; memory {memory}; {lost}");
    page.say("", &line, Ink::Faint);
}

fn cost_in_short(doc: &Document) -> String {
    let [cpu, bpf, waited, memory, lost] = cost(doc);
    format!("whyslow itself: CPU {cpu}, BPF {bpf}{waited}, memory {memory}; {lost}")
}

/// Shorter waits are of each program's start and end.
const SHOWN_WAIT: Duration = Duration::from_millis(1);

/// CPU time, that of BPF programs, waits for kernel locks, memory, and what was lost.
fn cost(doc: &Document) -> [String; 5] {
    let cost = &doc.own_cost;
    let bpf = match cost.bpf_s.map(Duration::try_from_secs_f64) {
        Some(Ok(time)) => seconds(time),
        _ => "an unknown time".to_owned(),
    };
    let memory = if cost.rss_bytes == 0 { "unknown".to_owned() } else { Bytes(cost.rss_bytes).to_string() };
    let lost = match cost.lost_events {
        0 => "no event lost".to_owned(),
        1 => "1 event lost".to_owned(),
        n => format!("{n} events lost"),
    };
    let waited = cost.blocked.filter(|time| *time >= SHOWN_WAIT);
    let waited = waited.map(|time| format!(", in D state {}", seconds(time))).unwrap_or_default();
    [seconds(cost.cpu), bpf, waited, memory, lost]
}
