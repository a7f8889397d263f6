//! Where the wall time of a command, or of watched threads, went: the answer, the sums, the tree of parts.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::chain::{Part, WallAccount};
use whyslow_model::wait::{Detail, Reason, WaitTarget};
use whyslow_model::{Share, seconds};

use super::cells;
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened_by_words};

/// Columns of a command in the answer.
const SUBJECT: usize = 44;
/// Parts named in the answer.
const NAMED: usize = 3;
/// Parts smaller than this share of the wall time are folded without -v, and not named in the answer.
const SMALL: f64 = 0.01;
/// A larger share that is our own doing is told on its own: what was watched is faster when nobody looks.
const SLOWED: f64 = 0.1;
/// Columns of the numbers before a part's words.
const NUMBERS: usize = 35;
/// Small parts have rows of their own where together they were the largest, as long as there are no more than a reader looks
/// through.
const MOST_ROWS: usize = 16;
/// Deeper parts are printed no further to the right: their words need room.
const DEEPEST: usize = 12;
/// Deeper than any chain is followed; a document made by hand cannot exhaust our stack.
const END: usize = 64;

/// "cargo build took 12.3 s: 62 % user code of rustc, 20 % waiting for vda."
pub(super) fn answer(wall: &WallAccount) -> String {
    let of = shortened_by_words(&plain(&wall.of), SUBJECT);
    let of = if of.is_empty() { "It".to_owned() } else { of };
    let verb = if wall.is_sum { "spent" } else { "took" };
    let share = |time: Duration| Share::of(time.as_secs_f64(), wall.wall.as_secs_f64());
    let (rests, others): (Vec<_>, Vec<_>) = wall.parts.iter().partition(|part| is_rest(part));
    let is_idle = share(others.iter().map(|part| part.time).sum()).ratio() < SMALL;
    let own = share(own_tracing(&wall.parts, 0));
    let is_slowed = own.ratio() >= SLOWED;
    let leaves = leaves_of(if is_idle { rests } else { others });
    let is_told = |what: &str| !is_slowed || !what.ends_with(WaitTarget::OwnTracing.words());
    let named: Vec<_> = leaves
        .iter()
        .filter(|(what, _)| is_told(what))
        .take(NAMED)
        .enumerate()
        .filter(|(at, (_, time))| *at == 0 || share(*time).ratio() >= SMALL)
        .map(|(_, (what, time))| format!("{} {what}", share(*time)))
        .collect();
    let took = format!("{of} {verb} {}", seconds(wall.wall));
    let slowed = match is_slowed {
        true => format!(" Looking slowed it: {own} of that was whyslow's own tracing."),
        false => String::new(),
    };
    if named.is_empty() {
        return format!("{took}; where it went is not known.{slowed}");
    }
    format!("{took}: {}.{slowed}", named.join(", "))
}

/// What our own programs took of these.
fn own_tracing(parts: &[Part], depth: usize) -> Duration {
    let of = |part: &Part| match part.detail {
        Detail::Target(WaitTarget::OwnTracing) => part.time,
        _ if depth < END => own_tracing(&part.parts, depth + 1),
        _ => Duration::ZERO,
    };
    parts.iter().map(of).fold(Duration::ZERO, Duration::saturating_add)
}

/// A thread that has nothing to do: no answer, as long as there is another.
fn is_rest(part: &Part) -> bool {
    part.reason == Reason::Handed || part.detail == Detail::Target(WaitTarget::AsleepThroughout)
}

/// The leaves of these, the largest first.
fn leaves_of(parts: Vec<&Part>) -> Vec<(String, Duration)> {
    let mut leaves = BTreeMap::new();
    parts.into_iter().for_each(|part| add_leaves(part, "", 0, &mut leaves));
    let mut leaves: Vec<_> = leaves.into_iter().collect();
    leaves.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    leaves
}

/// The leaves of the tree, those that say the same together. A part that does not say whose it is is that of the part
/// that it belongs to.
fn add_leaves(part: &Part, whose: &str, depth: usize, leaves: &mut BTreeMap<String, Duration>) {
    let who = part.who.to_string();
    let whose = if part.who.is_nobody() { whose } else { &who };
    // That no task ended a wait, that one of many is to, or that its end was not seen says less than what it was for.
    let says_less = |inner: &Part| {
        matches!(inner.reason, Reason::Open | Reason::Unexplained)
            || inner.detail == Detail::Target(WaitTarget::ThreadNotKnown)
    };
    let has_parts = part.parts.iter().any(|inner| !says_less(inner));
    if has_parts && depth < END {
        part.parts.iter().for_each(|inner| add_leaves(inner, whose, depth + 1, leaves));
        return;
    }
    if part.time.is_zero() || matches!(part.reason, Reason::Unexplained | Reason::Other) {
        return;
    }
    // All waits for one device together, whatever was done there.
    let what = match part.detail.device() {
        Some(device) if part.who.is_nobody() => format!("waiting for {device}"),
        Some(device) => format!("{}: waiting for {device}", part.who),
        None => words(part),
    };
    let what = if part.who.is_nobody() && !whose.is_empty() { format!("{whose}: {what}") } else { what };
    let all = leaves.entry(what).or_default();
    *all = all.saturating_add(part.time);
}

/// What a part was, with its verb: the document says what was waited for.
fn words(part: &Part) -> String {
    let verb = match part.reason {
        Reason::Running
        | Reason::Spinning
        | Reason::Unexplained
        | Reason::Other
        | Reason::Open
        | Reason::NotBegun
        | Reason::Handed
        | Reason::Voluntary => "",
        _ if part.detail.is_nothing() || part.detail == Detail::Target(WaitTarget::AsleepThroughout) => "",
        Reason::Runnable => "ready for ",
        _ => "waiting for ",
    };
    let guessed = part.detail.with_usual_service().filter(|_| part.parts.is_empty());
    let (who, what) = (&part.who, guessed.as_ref().unwrap_or(&part.detail));
    if part.reason == Reason::Cycle {
        return "waiting for each other, in a cycle".to_owned();
    }
    match (who.is_nobody(), what.is_nothing()) {
        (true, true) => part.reason.to_string(),
        (true, false) => format!("{verb}{what}"),
        (false, _) => format!("{who}: {verb}{what}"),
    }
}

/// "wall 12.3 s, CPU 18.2 s, off-CPU 3.1 s; 1 % unexplained".
pub(super) fn sums(page: &mut Page, wall: &WallAccount) {
    let unexplained = match wall.said {
        None => "how much is unexplained is not known".to_owned(),
        Some(_) if wall.unexplained.is_zero() => "nothing is unexplained".to_owned(),
        Some(_) => {
            let share = Share::of(wall.unexplained.as_secs_f64(), wall.wall.as_secs_f64());
            format!("{share} unexplained")
        }
    };
    let times = [wall.wall, wall.cpu, wall.off_cpu].map(seconds);
    let line = format!("wall {}, CPU {}, off-CPU {}; {unexplained}", times[0], times[1], times[2]);
    page.tell("", 0, &line, Ink::Plain);
}

/// Where two clocks disagree.
pub(super) fn mismatches(page: &mut Page, wall: &WallAccount) {
    for mismatch in &wall.mismatches {
        page.tell("", 2, &format!("our tracer and the kernel disagree: {mismatch}"), Ink::Risk);
    }
}

/// The tree of parts, each under the one it is a part of.
pub(super) fn tree(page: &mut Page, wall: &WallAccount, style: &Style) {
    if wall.parts.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Where the wall time went", Ink::Heading);
    let heading = format!("{:>6}{}", "share", cells::headings(&["time", "times", "worst"]));
    page.row(&format!("{heading}  what"), Ink::Faint);
    level(page, &wall.parts, 0, style);
}

fn level(page: &mut Page, parts: &[Part], depth: usize, style: &Style) {
    if depth >= END {
        return;
    }
    // Without a share there is no telling that a part is small.
    let least = if style.verbose { 0.0 } else { least_shown(parts) };
    let small = |part: &&Part| part.share.is_some_and(|share| share.ratio() < least);
    for part in parts.iter().filter(|part| !small(part)) {
        row(page, part, &words(part), depth);
        // Threads that rest share one line.
        let inner = if is_rest(part) && !style.verbose { &[][..] } else { &part.parts };
        level(page, inner, depth + 1, style);
    }
    let folded: Vec<_> = parts.iter().filter(small).collect();
    if folded.is_empty() {
        return;
    }
    let sum = Part {
        time: folded.iter().fold(Duration::ZERO, |all, part| all.saturating_add(part.time)),
        share: folded
            .iter()
            .filter_map(|part| part.share)
            .reduce(|a, b| Share::of(a.ratio() + b.ratio(), 1.0)),
        ..Part::default()
    };
    let what = match folded.as_slice() {
        [one] => words(one),
        all => format!("{} smaller parts (-v lists them)", all.len()),
    };
    row(page, &sum, &what, depth);
}

/// Parts with a smaller share are folded: small ones, unless together they were the largest row.
fn least_shown(parts: &[Part]) -> f64 {
    let mut shares: Vec<f64> =
        parts.iter().filter_map(|part| part.share).map(|share| share.ratio()).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    let together = |least: f64| shares.iter().filter(|share| **share < least).sum::<f64>();
    let largest = shares.first().copied().unwrap_or_default();
    let rows = shares.iter().copied().take(MOST_ROWS);
    let all = rows
        .filter(|share| *share < SMALL)
        .fold(SMALL, |least, share| if together(least) > largest { share } else { least });
    all.min(SMALL)
}

fn row(page: &mut Page, part: &Part, what: &str, depth: usize) {
    let share = part.share.map_or_else(String::new, |share| share.to_string());
    let share = if share.len() > 6 { "> 1 %".to_owned() } else { share };
    let mut first = format!("{share:>6}{}", cells::time(part.time));
    first += &cells::count_or_none(part.count);
    first += &cells::time_or_none(part.worst);
    debug_assert_eq!(columns(&first) + 2, NUMBERS);
    first.push_str(&" ".repeat(2 + (2 * depth).min(DEEPEST)));
    let ink = if depth == 0 { Ink::Heading } else { Ink::Plain };
    page.tell(&first, columns(&first) + 2, what, ink);
}
