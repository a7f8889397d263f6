//! Chains of waits: each reads from top to bottom like a sentence, one hop a line, from who waited to who made them wait.

use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::{Document, Hop, seconds};

use super::finding::culprit_words;
use crate::Style;
use crate::page::{Ink, Page};

/// Columns before a hop.
const HOP: usize = 5;
/// Columns before its further lines.
const HANG: usize = 7;

/// The first `most` chains under a heading; all with -v. Nothing if there is none.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style, most: usize) {
    if doc.chains.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Chains of waits, from who waited down to who made them wait", Ink::Heading);
    let shown = if style.verbose { doc.chains.len() } else { most.min(doc.chains.len()) };
    for (at, chain) in doc.chains.iter().take(shown).enumerate() {
        print(page, at + 1, chain, style);
    }
    if shown < doc.chains.len() {
        page.say("", &format!("and {} more (-v lists them)", doc.chains.len() - shown), Ink::Faint);
    }
}

/// The first chain in one line: who waited how long for what, and who is at the end.
pub(super) fn headline(chain: &Chain) -> String {
    let end = culprit_words(&chain.leaf);
    match chain.hops.first() {
        Some(hop) if chain.hops.len() > 1 => {
            format!(
                "{} waited {} for {}; at the end of it is {end}",
                hop.who,
                time(chain.time),
                hop.waits_for
            )
        }
        Some(hop) => format!("{} waited {} for {}", hop.who, time(chain.time), named(&hop.waits_for, &end)),
        None => format!("somebody waited {} for {end}", time(chain.time)),
    }
}

fn print(page: &mut Page, number: usize, chain: &Chain, style: &Style) {
    page.tell(&format!("{number}. "), 3, &first(chain), Ink::Cause);
    pids(page, chain, 0, style);
    for (at, pair) in chain.hops.windows(2).enumerate() {
        if let [before, hop] = pair {
            let more = chain.hops.get(at + 2).is_some();
            hop_line(page, &hop_words(before, hop, more));
            pids(page, chain, at + 1, style);
        }
    }
    if let Some(end) = end(chain) {
        hop_line(page, &end);
    }
    for note in &chain.notes {
        hop_line(page, &format!("({})", note_words(note)));
    }
}

fn hop_line(page: &mut Page, text: &str) {
    page.tell(&" ".repeat(HOP), HANG, text, Ink::Plain);
}

fn pids(page: &mut Page, chain: &Chain, at: usize, style: &Style) {
    let Some(tasks) = chain.tasks.get(at).filter(|tasks| style.verbose && !tasks.is_empty()) else { return };
    let all: Vec<_> = tasks.iter().map(|(pid, name)| format!("{pid} {name}")).collect();
    page.tell(&" ".repeat(HANG), HANG + 2, &format!("pid {}", all.join(", ")), Ink::Faint);
}

/// "runguard (12 threads) waited 3.2 s, 480 times, worst 59 ms, for mutex cgroup_mutex".
fn first(chain: &Chain) -> String {
    let Some(hop) = chain.hops.first() else { return headline(chain) };
    let times = hop.count.unwrap_or(chain.count);
    let long = lasted(chain.time, Some(times), Some(chain.worst));
    let words = match hop.state.as_str() {
        "running" => format!("{} ran {long}{}", hop.who, after(": ", &hop.waits_for)),
        "runnable" if for_cpu(hop) => format!("{} was ready for {} for {long}", hop.who, cpu(hop)),
        _ => format!("{} waited {long} for {}", hop.who, named(&hop.waits_for, "something")),
    };
    words + &growth(hop) + joint(hop, chain.hops.len() > 1)
}

/// What the next in the chain did, said to whoever waited in `before`.
fn hop_words(before: &Hop, hop: &Hop, more: bool) -> String {
    let did = did(hop) + &growth(hop) + joint(hop, more);
    match before.edge.as_str() {
        "runnable" if hop.state == "running" => {
            format!("{} ran there{}{}", hop.who, after(": ", &hop.waits_for), growth(hop))
        }
        "runnable" => format!("{} had it: {did}", hop.who),
        "lock" => format!("held by {}: it {did}", hop.who),
        "child" | "vfork" => format!("its child {} {did}", hop.who),
        "work" => format!("run by {}: it {did}", hop.who),
        _ => format!("woken by {}: it {did}", hop.who),
    }
}

fn did(hop: &Hop) -> String {
    let long = lasted(hop.lost, hop.count, hop.worst);
    match hop.state.as_str() {
        "running" => format!("ran {long}{}", after(": ", &hop.waits_for)),
        "runnable" if for_cpu(hop) => format!("was ready for {} for {long}", cpu(hop)),
        _ if hop.waits_for.is_empty() => format!("waited {long}"),
        _ => format!("waited {long} for {}", hop.waits_for),
    }
}

/// It waits for a CPU, not for a limit to let it run.
fn for_cpu(hop: &Hop) -> bool {
    hop.waits_for.is_empty() || hop.waits_for.starts_with("CPU") || hop.waits_for.starts_with("a CPU")
}

fn cpu(hop: &Hop) -> &str {
    named(&hop.waits_for, "a CPU")
}

/// A wait for a CPU goes on with who ran there.
fn joint(hop: &Hop, more: bool) -> &'static str {
    if more && hop.edge == "runnable" { ", while" } else { "" }
}

/// "3.2 s, 480 times, worst 59 ms,"; "3.2 s" if there is no more to tell.
fn lasted(all: Duration, count: Option<u64>, worst: Option<Duration>) -> String {
    let mut words = time(all);
    match count.filter(|n| *n > 1) {
        Some(n) => words.push_str(&format!(", {n} times")),
        None => return words,
    }
    if let Some(worst) = worst.filter(|worst| !worst.is_zero()) {
        words.push_str(&format!(", worst {}", seconds(worst)));
    }
    words + ","
}

fn growth(hop: &Hop) -> String {
    let mut words = String::new();
    if let Some(per_call) = hop.per_call {
        words.push_str(&format!(", {} a call", seconds(per_call)));
    }
    if let Some(count) = &hop.grows_with {
        words.push_str(&format!(", growing with {count}"));
    }
    words
}

/// The leaf, if no hop has named it yet.
fn end(chain: &Chain) -> Option<String> {
    // A cycle has no end.
    let last = chain.hops.last().filter(|_| !chain.notes.iter().any(|note| note == "cycle"))?;
    let says = |text: &str| last.who.contains(text) || last.waits_for.contains(text);
    let leaf = &chain.leaf;
    let name = if leaf.name.is_empty() { &leaf.id } else { &leaf.name };
    let mut rest = [&leaf.function, &leaf.file].into_iter().flatten();
    let said = says(name) && rest.all(|text| says(text));
    (!said).then(|| format!("at the end: {}", culprit_words(leaf)))
}

/// The stable words of the document, as people say them.
fn note_words(note: &str) -> &str {
    match note {
        "cycle" => "they wait for each other",
        "open" => "nobody had been woken when the window ended",
        "stale-owner" => "the holder is the last reader seen; it may be gone",
        "hand-off" => "the lock was handed on while they waited",
        "convoy" => "the lock went from hand to hand while they waited",
        _ => note,
    }
}

fn time(d: Duration) -> String {
    if d.is_zero() { "no time".to_owned() } else { seconds(d) }
}

fn named<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}

fn after(joint: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{joint}{text}") }
}
