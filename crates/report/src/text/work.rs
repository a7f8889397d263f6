//! Work that the kernel puts off: work items by function, and RCU grace periods that threads waited for.

use std::time::Duration;

use whyslow_model::work::{GraceWaits, InnerWait, WorkAccount, WorkTimes};
use whyslow_model::{Document, counted, seconds, times};

use super::cells;
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Functions and callers in a table without -v.
const SHOWN: usize = 15;
/// Functions in full without -v: the ones that a reader came for.
const IN_FULL: usize = 3;
/// Waits of a function without -v.
const INSIDE: usize = 3;
/// Columns of a name in a table.
const NAME: usize = 32;
/// Columns of the bar of the largest count.
const BAR: u64 = 30;

/// "free_ipc took 4.8 s in 3 work items, worst 4.2 s: 4.7 s of it an RCU grace period for kern_unmount".
pub(super) fn headline(work: &WorkAccount) -> String {
    let (items, function) = (counted(work.count, "work item"), named(&work.function));
    if work.queued.total > work.ran.total {
        let why = held_back(work).map(|why| format!(": {why}")).unwrap_or_default();
        let (total, worst) = (seconds(work.queued.total), seconds(work.queued.worst));
        return format!("{items} of {function} waited {total} to start, worst {worst}{why}");
    }
    let inside = work.inside.first().filter(|wait| wait.total > work.ran.total / 2);
    let inside = inside.map(|wait| format!(": it waited {} for {}", seconds(wait.total), wait.what));
    let (total, worst) = (seconds(work.ran.total), seconds(work.ran.worst));
    format!("{function} took {total} in {items}, worst {worst}{}", inside.unwrap_or_default())
}

/// A function of a module that is gone has no name.
fn named(function: &str) -> &str {
    if function.is_empty() { "a function without a name" } else { function }
}

fn held_back(work: &WorkAccount) -> Option<String> {
    let workqueue = match work.workqueue.as_str() {
        "" => "their workqueue".to_owned(),
        name => format!("workqueue {name}"),
    };
    let held = seconds(work.held_back);
    (work.held_back > Duration::ZERO)
        .then(|| format!("{held} of it because {workqueue} ran as many items as it may (max_active)"))
}

/// Both tables, then the functions with the most time in full.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style) {
    tables(page, doc, style);
    let shown = if style.verbose { doc.works.len() } else { IN_FULL.min(doc.works.len()) };
    for work in doc.works.iter().take(shown) {
        page.gap();
        print(page, work, style);
    }
}

/// One line a function. Nothing where nothing was put off.
fn tables(page: &mut Page, doc: &Document, style: &Style) {
    let shown = |len: usize| if style.verbose { len } else { SHOWN.min(len) };
    works(page, &doc.works, shown(doc.works.len()));
    grace_periods(page, &doc.grace_periods, shown(doc.grace_periods.len()));
}

fn works(page: &mut Page, works: &[WorkAccount], shown: usize) {
    if works.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Work items: time in the queue, and at work", Ink::Heading);
    let columns = cells::headings(&["items", "queued", "worst", "ran", "worst"]);
    page.row(&format!("  {:NAME$}{columns}", "function"), Ink::Faint);
    for work in works.iter().take(shown) {
        let (queued, ran) = (&work.queued, &work.ran);
        let times = [queued.total, queued.worst, ran.total, ran.worst].map(cells::time).concat();
        row(page, named(&work.function), &format!("{}{times}", cells::count(work.count)));
    }
    more(page, works.len() - shown);
}

fn row(page: &mut Page, name: &str, numbers: &str) {
    let name = shortened(&plain(name), NAME);
    let pad = " ".repeat(NAME.saturating_sub(columns(&name)));
    page.row(&format!("  {name}{pad}{numbers}"), Ink::Plain);
}

fn more(page: &mut Page, left: usize) {
    if left > 0 {
        page.say("  ", &format!("and {left} more (-v lists them)"), Ink::Faint);
    }
}

fn print(page: &mut Page, work: &WorkAccount, style: &Style) {
    let workqueue =
        if work.workqueue.is_empty() { String::new() } else { format!(" (workqueue {})", work.workqueue) };
    page.tell("", 2, &format!("{}{workqueue}", named(&work.function)), Ink::Heading);
    let open = if work.open > 0 {
        format!(", {} of them ran when the window ended", work.open)
    } else {
        String::new()
    };
    page.tell("  items    ", 11, &format!("{}{open}", work.count), Ink::Plain);
    if work.queued.count > 0 {
        page.tell("  queued   ", 11, &words(&work.queued), Ink::Plain);
        histogram(page, &work.queued, style);
    }
    if let Some(why) = held_back(work) {
        page.tell("           ", 11, &why, Ink::Plain);
    }
    page.tell("  ran      ", 11, &words(&work.ran), Ink::Plain);
    histogram(page, &work.ran, style);
    let shown = if style.verbose { work.inside.len() } else { INSIDE.min(work.inside.len()) };
    for (at, wait) in work.inside.iter().take(shown).enumerate() {
        page.tell(if at == 0 { "  waits    " } else { "           " }, 13, &inner(wait), Ink::Plain);
    }
    more(page, work.inside.len() - shown);
}

fn words(times: &WorkTimes) -> String {
    let total = seconds(times.total);
    let share = |share| times.below(share).map(seconds);
    match (share(0.5), share(0.99)) {
        (Some(half), Some(most)) if times.count > 1 => {
            format!(
                "{total} in all, half of them within {half}, 99 % within {most}, worst {}",
                seconds(times.worst)
            )
        }
        _ => format!("{total} in all, worst {}", seconds(times.worst)),
    }
}

fn inner(wait: &InnerWait) -> String {
    format!("{}: {}, {}, worst {}", wait.what, seconds(wait.total), times(wait.count), seconds(wait.worst))
}

/// One line a range, as bpftrace prints them; with -v.
fn histogram(page: &mut Page, times: &WorkTimes, style: &Style) {
    let most = times.times.iter().map(|range| range.count).max().unwrap_or(0);
    if !style.verbose || most == 0 {
        return;
    }
    for range in &times.times {
        let bar = (range.count.saturating_mul(BAR) / most).max(1) as usize;
        let below = seconds(range.below);
        page.row(&format!("           below {below:>8} {:>8} {}", range.count, "@".repeat(bar)), Ink::Faint);
    }
}

fn grace_periods(page: &mut Page, all: &[GraceWaits], shown: usize) {
    if all.is_empty() {
        return;
    }
    page.gap();
    page.say("", "RCU grace periods that threads waited for, by the function that needed them", Ink::Heading);
    let columns = cells::headings(&["waits", "total", "average", "worst", "threads"]);
    page.row(&format!("  {:NAME$}{columns}", "function"), Ink::Faint);
    for one in all.iter().take(shown) {
        let times = [one.total, cells::mean(one.total, one.count), one.worst].map(cells::time).concat();
        row(page, &needed(one), &format!("{}{times}{}", cells::count(one.count), cells::count(one.tasks)));
    }
    more(page, all.len() - shown);
}

/// "kern_unmount in free_ipc", "namespace_unlock (expedited)".
fn needed(one: &GraceWaits) -> String {
    let caller = named(&one.caller);
    let within = if one.work.is_empty() || one.work == one.caller {
        String::new()
    } else {
        format!(" in {}", one.work)
    };
    let expedited = if one.expedited { " (expedited)" } else { "" };
    format!("{caller}{within}{expedited}")
}

/// "synchronize_rcu callers waited 4.7 s for 412 grace periods, worst 31 ms: kern_unmount in free_ipc most".
pub(super) fn grace_headline(one: &GraceWaits) -> String {
    let (total, worst) = (seconds(one.total), seconds(one.worst));
    format!("{} waited {total} for RCU grace periods, {}, worst {worst}", needed(one), times(one.count))
}
