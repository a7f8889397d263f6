//! After the findings: what could not be answered, what it is not, what was not seen, what looking cost.

use whyslow_model::{Bytes, Document, Kind, Missing, MissingNote, seconds};

use super::{count, of_kind};
use crate::Style;
use crate::page::{Ink, Page};

/// What is ruled out is said with its evidence up to so many; more would push the causes off the screen.
const IN_FULL: usize = 4;
/// Missing things named without -v; the others are counted.
const NAMED: usize = 4;

pub(super) fn print(page: &mut Page, doc: &Document, style: &Style) {
    page.gap();
    contradictions(page, doc);
    ruled_out(page, doc, style);
    cannot_tell(page, doc, style);
    missing(page, doc, style);
    own_cost(page, doc);
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

fn ruled_out(page: &mut Page, doc: &Document, style: &Style) {
    if style.verbose || doc.ruled_out.len() <= IN_FULL {
        for not in &doc.ruled_out {
            page.say("Ruled out: ", &format!("{}: {}", not.what, not.evidence), Ink::Plain);
        }
        return;
    }
    let names: Vec<_> = doc.ruled_out.iter().map(|not| not.what.as_str()).collect();
    page.say("Ruled out: ", &format!("{} (-v gives the evidence)", names.join(", ")), Ink::Plain);
}

fn cannot_tell(page: &mut Page, doc: &Document, style: &Style) {
    let unknown: Vec<_> = of_kind(doc, Kind::CannotTell).collect();
    match unknown.len() {
        0 => {}
        n if style.verbose => {
            page.say("", &format!("Cannot tell: {}", count(n, "question")), Ink::Plain);
            for finding in unknown {
                page.say("  ", &format!("{}: {}", finding.rule, finding.title), Ink::Plain);
            }
        }
        n => page.say("", &format!("Cannot tell: {} (-v lists them)", count(n, "question")), Ink::Plain),
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
    let cost = &doc.own_cost;
    let bpf = match cost.bpf_s.map(std::time::Duration::try_from_secs_f64) {
        Some(Ok(time)) => format!("its BPF programs {}", seconds(time)),
        _ => "its BPF programs an unknown time".to_owned(),
    };
    let rss = if cost.rss_bytes == 0 { "unknown".to_owned() } else { Bytes(cost.rss_bytes).to_string() };
    let lost = match cost.lost_events {
        0 => "no event lost".to_owned(),
        1 => "1 event lost".to_owned(),
        n => format!("{n} events lost"),
    };
    let line = format!("whyslow itself took {} of CPU, {bpf}; memory {rss}; {lost}", seconds(cost.cpu));
    page.say("", &line, Ink::Faint);
}
