//! The report as people read it: 80 columns, the answer first.
//!
//! An exam is one sentence and fifteen lines (`screen.rs`). With -v it is all that is known, in this order: host and time; the
//! answer in a line; where the time went; resources; causes by time lost; chains of waits; what the host is busy with; risks; ruled-out causes;
//! open questions; missing evidence; the cost of looking. With watched tasks the answer is where their wall time went, then come the
//! chains and the system calls.

mod account;
mod blocked;
mod call;
mod cells;
mod chain;
mod cpus;
mod finding;
mod job;
mod lock;
mod ping;
mod resources;
mod rest;
mod screen;
mod stall;
mod wall;
mod work;

use whyslow_model::chain::WallAccount;
use whyslow_model::ping::PingAccount;
use whyslow_model::{Document, Finding, Kind, Probe, counted, seconds};

use crate::Style;
use crate::page::{Ink, Page};

/// Lines of the answer.
const SENTENCE: usize = 4;
/// Chains below a wall time account, without -v.
const IN_WALL: usize = 10;
/// Chains where nothing else was asked for, without -v.
const IN_CHAINS: usize = 20;

/// The document as text: with watched tasks their wall time, else the exam.
#[must_use]
pub fn text(document: &Document, style: &Style) -> String {
    if document.is_of_pings_alone() {
        return pings(document, style);
    }
    let mut page = Page::new(style);
    when(&mut page, document);
    if let Some(pings) = &document.pings {
        asked(&mut page, pings, style);
        page.gap();
    }
    match &document.wall {
        Some(wall) => watched(&mut page, document, wall, style),
        None if style.verbose => exam(&mut page, document, style),
        None => {
            answer(&mut page, document);
            screen::print(&mut page, document);
        }
    }
    page.finish()
}

/// The chains of waits alone.
#[must_use]
pub fn chains(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    match document.chains.first() {
        Some(worst) => page.tell("", 0, &format!("{}.", chain::headline(worst)), Ink::Cause),
        None => nothing(&mut page, document, "No chain found: no task is known to have kept others waiting."),
    }
    chain::section(&mut page, document, style, IN_CHAINS);
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// The contended kernel locks alone.
#[must_use]
pub fn locks(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    match document.locks.first() {
        Some(most) => page.tell("", 0, &format!("{}.", lock::headline(most)), Ink::Cause),
        None => {
            let none = "No task was seen waiting for a kernel lock (uncontended holds are not seen).";
            nothing(&mut page, document, none);
        }
    }
    lock::section(&mut page, document, style);
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// Work that the kernel puts off.
#[must_use]
pub fn work(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    match (document.works.first(), document.grace_periods.first()) {
        (Some(most), _) => page.tell("", 0, &format!("{}.", work::headline(most)), Ink::Cause),
        (None, Some(most)) => page.tell("", 0, &format!("{}.", work::grace_headline(most)), Ink::Cause),
        (None, None) => nothing(&mut page, document, "No work item ran, and no thread waited for RCU."),
    }
    work::section(&mut page, document, style);
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// Samples of tasks in D state.
#[must_use]
pub fn blocked(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    match (&document.blocked, document.why_unseen_by(Probe::BlockedTasks)) {
        (Some(all), _) if !all.waits.is_empty() => {
            page.tell("", 0, &format!("{}.", blocked::headline(all)), Ink::Cause);
        }
        (Some(all), _) => page.say("", &blocked::none(all.passes), Ink::Heading),
        (None, Some(why)) => page.say("", &format!("Could not look: {why}."), Ink::Heading),
        (None, None) => page.say("", "Tasks in D state were not sampled.", Ink::Heading),
    }
    document.blocked.iter().for_each(|all| blocked::section(&mut page, all, style));
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// Processes that began in the window, and what they make and remove.
#[must_use]
pub fn jobs(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    match (document.jobs.first(), document.churn.is_empty()) {
        (Some(most), _) => page.tell("", 0, &format!("{}.", job::headline(most)), Ink::Cause),
        (None, false) => page.say("", "No process ended three jobs.", Ink::Plain),
        (None, true) => nothing(&mut page, document, job::none(document)),
    }
    job::section(&mut page, document, style);
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// The answers of a host that was asked, and the packets that waited for their CPU here meanwhile.
#[must_use]
pub fn pings(document: &Document, style: &Style) -> String {
    let Some(pings) = &document.pings else { return stalls(document, style) };
    let mut page = Page::new(style);
    when(&mut page, document);
    asked(&mut page, pings, style);
    if pings.unwatched.is_none() {
        stall::section(&mut page, document, style);
    }
    rest::unseen(&mut page, document, style);
    page.finish()
}

fn asked(page: &mut Page, pings: &PingAccount, style: &Style) {
    let (answer, ink) = ping::headline(pings);
    page.tell("", 0, &answer, ink);
    ping::section(page, pings, style);
}

/// The packets that waited for their CPU.
#[must_use]
pub fn stalls(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    let unseen = document.why_unseen_by(Probe::PacketStalls);
    match (document.stalls.first(), unseen) {
        (Some(most), _) => page.tell("", 0, &format!("{}.", stall::headline(most)), Ink::Cause),
        (None, Some(why)) => page.say("", &format!("Could not look: {why}."), Ink::Heading),
        (None, None) => page.say("", &stall::none(document), Ink::Heading),
    }
    stall::section(&mut page, document, style);
    rest::unseen(&mut page, document, style);
    page.finish()
}

/// Nothing was found, or whyslow could not look.
fn nothing(page: &mut Page, doc: &Document, found: &str) {
    match doc.why_waits_unseen() {
        Some(why) => page.say("", &format!("Could not look: {why}."), Ink::Heading),
        None => page.say("", found, Ink::Heading),
    }
}

/// Speed of each CPU, and the tasks that lost time on slow ones.
#[must_use]
pub fn cpus(document: &Document, style: &Style) -> String {
    let mut page = Page::new(style);
    when(&mut page, document);
    let (answer, ink) = cpus::answer(document);
    page.say("", &answer, ink);
    cpus::section(&mut page, document, style);
    let only = Document {
        findings: document.findings.iter().filter(|f| f.rule == whyslow_model::SLOW_CPU).cloned().collect(),
        ..document.clone()
    };
    causes(&mut page, &only);
    risks(&mut page, &only);
    rest::unseen(&mut page, document, style);
    page.finish()
}

fn exam(page: &mut Page, doc: &Document, style: &Style) {
    answer(page, doc);
    let number = of_kind(doc, Kind::Risk).count();
    if number > 0 {
        page.say("", &format!("{}, see below.", count(number, "risk")), Ink::Risk);
    }
    account::print(page, doc);
    resources::print(page, doc);
    causes(page, doc);
    chain::section(page, doc, style, usize::MAX);
    busy(page, doc);
    risks(page, doc);
    rest::print(page, doc, style);
}

fn watched(page: &mut Page, doc: &Document, wall: &WallAccount, style: &Style) {
    page.tell("", 0, &wall::answer(wall), Ink::Cause);
    if let Some(part) = doc.why_in_part() {
        page.tell("", 0, &format!("Not all was seen: {part}."), Ink::Risk);
    }
    wall::sums(page, wall);
    wall::tree(page, wall, style);
    if style.verbose {
        wall::mismatches(page, wall);
    }
    chain::section(page, doc, style, IN_WALL);
    call::table(page, doc, style);
    call::slow(page, doc, style);
    lock::table(page, doc, style);
    causes(page, doc);
    risks(page, doc);
    rest::unseen(page, doc, style);
}

fn of_kind(document: &Document, kind: Kind) -> impl Iterator<Item = &Finding> {
    document.findings.iter().filter(move |f| f.kind == kind)
}

fn when(page: &mut Page, doc: &Document) {
    let host = if doc.host.is_empty() { "an unnamed host" } else { &doc.host };
    let kernel = if doc.kernel.is_empty() { "an unknown kernel" } else { &doc.kernel };
    let from = if doc.started_at.is_empty() { String::new() } else { format!(" from {}", doc.started_at) };
    let line = format!("whyslow {} on {host}, Linux {kernel}, {}{from}", doc.whyslow, seconds(doc.window));
    page.say("", &line, Ink::Faint);
}

/// One sentence.
fn answer(page: &mut Page, doc: &Document) {
    let causes = of_kind(doc, Kind::Cause).count();
    let answer = match of_kind(doc, Kind::Cause).next() {
        Some(worst) => {
            let others =
                if causes == 1 { String::new() } else { format!(" ({} in all)", count(causes, "cause")) };
            format!("{} [{}]{others}.", finding::headline(worst), worst.rule)
        }
        None => no_cause(doc),
    };
    page.brief("", &answer, SENTENCE, if causes > 0 { Ink::Cause } else { Ink::Heading });
}

/// Missing evidence comes before the absence of a cause.
fn no_cause(doc: &Document) -> String {
    let unknown = of_kind(doc, Kind::CannotTell).count();
    if let Some(why) = doc.why_unseen() {
        let open = count(unknown, "question");
        return format!(
            "Could not look: {why}. What files tell shows no cause; {open} could not be answered."
        );
    }
    let of = doc.about.as_ref().map_or_else(String::new, |about| format!(" for {}", about.name));
    if doc.about.as_ref().is_some_and(|about| about.idle) && doc.why_in_part().is_none() {
        return format!("No cause found{of}: it is idle, and no task waits for it.");
    }
    match (of_kind(doc, Kind::Busy).next(), doc.why_in_part()) {
        (Some(busy), None) => format!("No cause found{of}: {}.", finding::busy_words(busy)),
        (Some(busy), Some(part)) => {
            format!("No cause found{of}: {}; not all was seen: {part}.", finding::busy_words(busy))
        }
        (None, Some(part)) => format!("No cause found{of}, and not all was seen: {part}."),
        (None, None) if unknown > 0 => {
            let open = count(unknown, "other");
            format!("No cause found{of} by the questions that could be answered; {open} could not be.")
        }
        (None, None) => format!("No cause found{of}: no rule found lost time."),
    }
}

/// "1 cause", "3 causes".
fn count(n: usize, noun: &str) -> String {
    counted(n as u64, noun)
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

/// What the host is busy with.
fn busy(page: &mut Page, doc: &Document) {
    for finding in of_kind(doc, Kind::Busy) {
        page.gap();
        page.say("Busy: ", &format!("{} [{}]", finding::busy_words(finding), finding.rule), Ink::Plain);
    }
}

fn risks(page: &mut Page, doc: &Document) {
    let mut heading = Some("Risks: no loss was measured");
    for risk in of_kind(doc, Kind::Risk) {
        if let Some(words) = heading.take() {
            page.gap();
            page.say("", words, Ink::Heading);
        }
        finding::risk(page, risk);
    }
}
