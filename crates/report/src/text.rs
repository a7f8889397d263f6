//! The report as people read it: 80 columns, the answer first.
//!
//! The order is: who and when; the answer in a line; where the time went; causes by time lost; risks; what could not be
//! answered; what it is not; what was not seen; what looking cost.

mod account;
mod finding;
mod rest;

use whyslow_model::{Document, Finding, Kind, seconds};

use crate::Style;
use crate::page::{Ink, Page};

/// The document as text.
#[must_use]
pub fn text(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style.colour);
    head(&mut page, document);
    account::print(&mut page, document, style);
    causes(&mut page, document);
    risks(&mut page, document);
    rest::print(&mut page, document, style);
    page.finish()
}

fn of_kind(document: &Document, kind: Kind) -> impl Iterator<Item = &Finding> {
    document.findings.iter().filter(move |f| f.kind == kind)
}

fn head(page: &mut Page, doc: &Document) {
    let host = if doc.host.is_empty() { "an unnamed host" } else { &doc.host };
    let kernel = if doc.kernel.is_empty() { "an unknown kernel" } else { &doc.kernel };
    let from = if doc.started_at.is_empty() { String::new() } else { format!(" from {}", doc.started_at) };
    let line = format!("whyslow {} on {host}, Linux {kernel}, {}{from}", doc.whyslow, seconds(doc.window));
    page.say("", &line, Ink::Faint);
    let causes = of_kind(doc, Kind::Cause).count();
    let risks = of_kind(doc, Kind::Risk).count();
    let unknown = of_kind(doc, Kind::CannotTell).count();
    let answer = match of_kind(doc, Kind::Cause).next() {
        Some(worst) => {
            let others =
                if causes == 1 { String::new() } else { format!(" ({} in all)", count(causes, "cause")) };
            format!("{}{others}.", finding::headline(worst))
        }
        None if unknown > 0 => format!(
            "No cause found by the questions that could be answered; {} could not be.",
            count(unknown, "other")
        ),
        None => "No cause found: no question asked here found time that somebody lost.".to_owned(),
    };
    page.say("", &answer, if causes > 0 { Ink::Cause } else { Ink::Heading });
    if risks > 0 {
        page.say("", &format!("{}, see below.", count(risks, "risk")), Ink::Risk);
    }
}

/// "1 cause", "3 causes".
fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

fn causes(page: &mut Page, doc: &Document) {
    let mut heading =
        Some("Causes, by time lost (seconds of all victims together; do not add what overlaps)");
    for (at, cause) in of_kind(doc, Kind::Cause).enumerate() {
        page.gap();
        if let Some(words) = heading.take() {
            page.say("", words, Ink::Heading);
        }
        finding::cause(page, at + 1, cause);
    }
}

fn risks(page: &mut Page, doc: &Document) {
    let mut heading = Some("Risks: nobody's loss was measured");
    for risk in of_kind(doc, Kind::Risk) {
        if let Some(words) = heading.take() {
            page.gap();
            page.say("", words, Ink::Heading);
        }
        finding::risk(page, risk);
    }
}
