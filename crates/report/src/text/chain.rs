//! Chains of waits, one hop a line: the waiter first, the cause of its wait last.

use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::wait::{Detail, Note, Reason, TaskState, WaitTarget};
use whyslow_model::{Document, Hop, counted, seconds, times};

use super::finding::culprit_words;
use crate::Style;
use crate::page::{Ink, Page};

/// Columns before a hop.
const HOP: usize = 5;
/// More threads of a hop are not in the document.
const NAMED_TASKS: usize = 8;
/// The id of a leaf that was not seen.
const UNKNOWN: &str = "unknown";
/// Columns before its further lines.
const HANG: usize = 7;

/// The first `most` chains under a heading; all with -v. Nothing if there is none.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style, most: usize) {
    if doc.chains.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Chains of waits: the waiter first, the cause of the wait last", Ink::Heading);
    let shown = if style.verbose { doc.chains.len() } else { most.min(worth(doc)) };
    for (at, chain) in doc.chains.iter().take(shown).enumerate() {
        print(page, at + 1, chain, style);
    }
    if shown < doc.chains.len() {
        page.say("", &format!("and {} more (-v lists them)", doc.chains.len() - shown), Ink::Faint);
    }
}

/// Number of chains worth printing: those of a hundredth of the wall time or more, and at least the largest.
fn worth(doc: &Document) -> usize {
    let least = doc.wall.as_ref().map_or(Duration::ZERO, |wall| wall.wall / 100);
    doc.chains.iter().take_while(|chain| chain.time >= least).count().max(1)
}

/// The first chain in one line: the waiter, its time, the thing waited for, and the end of the chain with its part of that time.
pub(super) fn headline(chain: &Chain) -> String {
    let waited = match chain.hops.first() {
        Some(hop) => {
            format!("{} waited {} for {}", who(chain, 0), time(whole(chain)), named(&hop.detail, "something"))
        }
        None => format!("a task waited {}", time(chain.time)),
    };
    let said = chain.hops.len() == 1 && end(chain).is_none();
    let part = if time(chain.time) == time(whole(chain)) {
        String::new()
    } else {
        format!("{} of ", time(chain.time))
    };
    match chain.leaf.id.as_str() {
        _ if said || is_cycle(chain) => waited,
        UNKNOWN => format!("{waited}; the culprit of {part}it is not known"),
        _ => format!("{waited}; at the end of {part}it: {}", culprit_words(&chain.leaf)),
    }
}

/// All of the first waits; the chain may explain a part of them only.
fn whole(chain: &Chain) -> Duration {
    chain.hops.first().map_or(chain.time, |hop| hop.lost.max(chain.time))
}

/// With the usual service of a remote peer at its end.
fn with_usual_service(chain: &Chain) -> Option<Chain> {
    let detail = chain.hops.last()?.detail.with_usual_service()?;
    let mut chain = chain.clone();
    chain.hops.last_mut()?.detail = detail;
    Some(chain)
}

fn print(page: &mut Page, number: usize, chain: &Chain, style: &Style) {
    let guessed = with_usual_service(chain);
    let told = guessed.as_ref().unwrap_or(chain);
    page.tell(&format!("{number}. "), 3, &first(told), Ink::Cause);
    pids(page, chain, 0, style);
    for (at, pair) in told.hops.windows(2).enumerate() {
        if let [before, hop] = pair {
            let more = chain.hops.get(at + 2).is_some();
            let open = chain.notes.contains(&Note::Open);
            hop_line(page, &hop_words(before, hop, &who(chain, at + 1), open, more));
            pids(page, chain, at + 1, style);
        }
    }
    if let Some(end) = end(chain) {
        hop_line(page, &end);
    }
    for note in notes(chain) {
        hop_line(page, &format!("({note})"));
    }
}

/// A hop's name, with its thread, or how many there are. A worker's name holds its work: that tells more.
fn who(chain: &Chain, at: usize) -> String {
    let Some(who) = chain.hops.get(at).map(|hop| &hop.who) else { return String::new() };
    let name = who.to_string();
    match chain.tasks.get(at).map(Vec::as_slice) {
        _ if who.is_nobody() && at == 0 => "a task".to_owned(),
        _ if who.is_nobody() || who.work().is_some() => name,
        Some([(pid, _)]) => format!("{name} ({pid})"),
        Some(tasks) if tasks.len() >= NAMED_TASKS => format!("{name} ({NAMED_TASKS} threads or more)"),
        Some(tasks) if !tasks.is_empty() => format!("{name} ({})", counted(tasks.len() as u64, "thread")),
        _ => name,
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
    let long = lasted(whole(chain), hop.count.or(Some(chain.count)), hop.worst.or(Some(chain.worst)));
    let who = who(chain, 0);
    let words = match hop.state {
        TaskState::Running => format!("{who} ran {long}{}", doing(hop)),
        TaskState::Runnable if for_cpu(hop) => format!("{who} was ready for {} for {long}", cpu(hop)),
        _ => format!("{who} waited {} for {}", enclosed(&long), named(&hop.detail, "something")),
    };
    words + &growth(hop) + joint(hop, chain.hops.len() > 1)
}

/// The next hop in words: its part in the wait of `before`.
fn hop_words(before: &Hop, hop: &Hop, who: &str, open: bool, more: bool) -> String {
    if hop.who.is_nobody() {
        return nobody(hop);
    }
    // A task that ran got the CPU instead; an empty quota is the waiter's own.
    if before.reason == Reason::Runnable && hop.state == TaskState::Running {
        let did = if hop.detail == Detail::Target(WaitTarget::HadCpu) { String::new() } else { doing(hop) };
        return format!("{who} had the CPU for {}{did}{}", time(hop.lost), growth(hop));
    }
    if before.reason == Reason::Runnable && hop.state == TaskState::Runnable {
        return format!("{} had run out for {}", named(&hop.detail, "its quota"), time(hop.lost));
    }
    let link = match before.reason {
        Reason::Lock | Reason::FileLock => "held by ",
        Reason::Futex if is_user_lock(&before.detail) => "held by ",
        // The sender of the signal, or, for an alarm of its own, the process.
        Reason::Signal => "meanwhile ",
        Reason::Child | Reason::Vfork => "its child ",
        Reason::Work => "run by ",
        // Nothing has ended it: the peer is known from the connection.
        Reason::Poll | Reason::Epoll | Reason::Socket | Reason::UnixSocket | Reason::Pipe if open => {
            "at the other end "
        }
        _ => "woken by ",
    };
    // What these say is a sentence already.
    match hop.reason {
        Reason::Cycle => return format!("{link}{who}, which {}", named(&hop.detail, "waits in turn")),
        Reason::NotBegun | Reason::Unexplained => {
            return format!("{link}{who}: {} ({})", named(&hop.detail, "not explained"), time(hop.lost));
        }
        _ => {}
    }
    let it = if link == "its child " { "" } else { ": it" };
    format!("{link}{who}{it} {}{}{}", did(hop), growth(hop), joint(hop, more))
}

/// A lock of a program, not a signal of one of its threads.
fn is_user_lock(detail: &Detail) -> bool {
    matches!(detail, Detail::Target(WaitTarget::UserLock | WaitTarget::PiFutex))
}

/// What is no task's doing, or nobody knows.
fn nobody(hop: &Hop) -> String {
    let long = time(hop.lost);
    match hop.reason {
        Reason::Timer | Reason::BlockIo | Reason::Network | Reason::Rcu | Reason::Ipi => {
            format!("ended by {} ({long})", hop.detail)
        }
        Reason::Running => format!("there were {} ({long})", named(&hop.detail, "others")),
        _ => format!("{} ({long})", named(&hop.detail, "what happened is not known")),
    }
}

fn did(hop: &Hop) -> String {
    let long = lasted(hop.lost, hop.count, hop.worst);
    match hop.state {
        TaskState::Running => format!("ran {long}{}", doing(hop)),
        TaskState::Runnable if for_cpu(hop) => format!("was ready for {} for {long}", cpu(hop)),
        _ if hop.detail.is_nothing() => format!("waited {long}"),
        _ => format!("waited {} for {}", enclosed(&long), hop.detail),
    }
}

/// ": user code (main)".
fn doing(hop: &Hop) -> String {
    match &hop.detail {
        Detail::Target(WaitTarget::OnCpu) => String::new(),
        did if did.is_nothing() => String::new(),
        did => format!(": {did}"),
    }
}

/// It waits for a CPU, not for a limit to let it run.
fn for_cpu(hop: &Hop) -> bool {
    hop.reason == Reason::Runnable
}

fn cpu(hop: &Hop) -> String {
    named(&hop.detail, "a CPU")
}

/// A wait for a CPU goes on with the task that ran there.
fn joint(hop: &Hop, more: bool) -> &'static str {
    if more && hop.reason == Reason::Runnable { ", while" } else { "" }
}

/// "3.2 s, 480 times, worst 59 ms"; "3.2 s" if there is no more to tell.
fn lasted(all: Duration, count: Option<u64>, worst: Option<Duration>) -> String {
    let mut words = time(all);
    match count.filter(|n| *n > 1) {
        Some(n) => words.push_str(&format!(", {}", times(n))),
        None => return words,
    }
    if let Some(worst) = worst.filter(|worst| !worst.is_zero()) {
        words.push_str(&format!(", worst {}", seconds(worst)));
    }
    words
}

/// In the midst of a sentence, what is set off by a comma ends with one.
fn enclosed(words: &str) -> String {
    if words.contains(',') { format!("{words},") } else { words.to_owned() }
}

fn growth(hop: &Hop) -> String {
    let mut words = String::new();
    if let Some(per_call) = hop.per_call {
        words.push_str(&format!(", {} a call", seconds(per_call)));
    }
    if let Some(growth) = hop.growth() {
        words.push_str(&format!(", {growth}"));
    }
    words
}

fn is_cycle(chain: &Chain) -> bool {
    chain.notes.iter().any(|note| matches!(note, Note::Cycle | Note::Deadlock))
}

/// The leaf, if no hop has named it yet. A cycle has none.
fn end(chain: &Chain) -> Option<String> {
    let last = chain.hops.last().filter(|_| !is_cycle(chain))?;
    let leaf = &chain.leaf;
    if leaf.id == UNKNOWN {
        let said =
            matches!(last.reason, Reason::Unexplained | Reason::Open | Reason::Other | Reason::NotBegun);
        return (!said).then(|| "(the end of this chain is not known)".to_owned());
    }
    let (who, what) = (last.who.to_string(), last.detail.to_string());
    let says = |text: &str| who.contains(text) || what.contains(text);
    let name = if leaf.name.is_empty() { &leaf.id } else { &leaf.name };
    let mut rest = [&leaf.function, &leaf.file].into_iter().flatten();
    let said = says(name) && rest.all(|text| says(text));
    (!said).then(|| format!("at the end: {}", culprit_words(leaf)))
}

/// Remarks in words. A deadlock is a cycle that no task left; the last hop may say already that no wakeup came.
fn notes(chain: &Chain) -> impl Iterator<Item = &'static str> {
    let deadlock = chain.notes.contains(&Note::Deadlock);
    let open = chain.notes.contains(&Note::Open);
    let said = chain.hops.last().is_some_and(|hop| hop.reason == Reason::Open);
    let reported = move |note: &&Note| match note {
        Note::Cycle => !deadlock,
        Note::Open => !deadlock && !said,
        Note::Deadlock | Note::StaleOwner | Note::HandOff | Note::Convoy => true,
    };
    chain.notes.iter().filter(reported).map(move |note| match note {
        Note::Deadlock if open => "they wait for each other, and none was woken: a deadlock",
        Note::Deadlock => "they wait for each other until a timeout or a signal: a deadlock",
        Note::Cycle => "they wait for each other",
        Note::Open => "still waiting when the window ended",
        Note::StaleOwner => "the holder is the last reader seen; it may be gone",
        Note::HandOff => "for a part of the wait the holder is not known",
        Note::Convoy => "three or more tasks held the lock in turn while they waited",
    })
}

fn time(d: Duration) -> String {
    if d.is_zero() { "no time".to_owned() } else { seconds(d) }
}

fn named(detail: &Detail, otherwise: &str) -> String {
    if detail.is_nothing() { otherwise.to_owned() } else { detail.to_string() }
}
