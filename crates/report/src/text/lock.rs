//! Contended kernel locks: waiters, call sites, times, and the work of the holders meanwhile.

use whyslow_model::chain::{Holder, LockAccount, LockSite, LockWaits};
use whyslow_model::timeline::LockKind;
use whyslow_model::wait::{Deed, NamedBy};
use whyslow_model::{Document, counted, seconds, times};

use super::cells;
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Locks without -v.
const SHOWN: usize = 10;
/// Call sites and holders of a lock without -v.
const EACH: usize = 3;
/// Columns of a lock's name in the table.
const NAME: usize = 34;

/// The table, then each lock in full. Nothing if nobody waited for a lock.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style) {
    table(page, doc, style);
    for lock in doc.locks.iter().take(shown(doc, style)) {
        page.gap();
        print(page, lock, style);
    }
}

/// One line a lock. Nothing if nobody waited for one.
pub(super) fn table(page: &mut Page, doc: &Document, style: &Style) {
    if doc.locks.is_empty() {
        return;
    }
    page.gap();
    let heading = "Kernel locks that somebody waited for (uncontended holds are not seen)";
    page.say("", heading, Ink::Heading);
    let columns = cells::headings(&["waits", "total", "average", "worst"]);
    page.row(&format!("  {:NAME$}  {columns}", "lock"), Ink::Faint);
    let shown = shown(doc, style);
    for lock in doc.locks.iter().take(shown) {
        row(page, lock);
    }
    if shown < doc.locks.len() {
        page.say("  ", &format!("and {} more (-v lists them)", doc.locks.len() - shown), Ink::Faint);
    }
}

fn shown(doc: &Document, style: &Style) -> usize {
    if style.verbose { doc.locks.len() } else { SHOWN.min(doc.locks.len()) }
}

/// "mutex cgroup_mutex was waited for most: 3.2 s, 480 times, worst 59 ms".
pub(super) fn headline(lock: &LockAccount) -> String {
    let all = both(lock);
    let most = seconds(all.total);
    format!("{} was waited for most: {most}, {}, worst {}", title(lock), times(all.count), seconds(all.worst))
}

fn title(lock: &LockAccount) -> String {
    let name = if lock.name.is_empty() { format!("no. {}", lock.address) } else { lock.name.clone() };
    format!("{} {name}", lock.kind)
}

fn both(lock: &LockAccount) -> LockWaits {
    LockWaits {
        count: lock.read.count.saturating_add(lock.write.count),
        total: lock.read.total.saturating_add(lock.write.total),
        worst: lock.read.worst.max(lock.write.worst),
    }
}

fn numbers(waits: &LockWaits) -> String {
    let mean = cells::time(cells::mean(waits.total, waits.count));
    [cells::count(waits.count), cells::time(waits.total), mean, cells::time(waits.worst)].concat()
}

fn row(page: &mut Page, lock: &LockAccount) {
    let name = shortened(&plain(&title(lock)), NAME);
    let pad = " ".repeat(NAME.saturating_sub(columns(&name)));
    page.row(&format!("  {name}{pad}  {}", numbers(&both(lock))), Ink::Plain);
}

fn print(page: &mut Page, lock: &LockAccount, style: &Style) {
    let how = match lock.named_by {
        NamedBy::Symbol => String::new(),
        NamedBy::Number => " (it has no name that this kernel tells)".to_owned(),
        NamedBy::Inferred => " (the name is a guess: a caller further up takes that lock, too)".to_owned(),
        by @ NamedBy::CallSites => format!(" (named by its {by})"),
    };
    page.tell("", 2, &format!("{}{how}", title(lock)), Ink::Heading);
    for (mode, waits) in [("to read", &lock.read), ("to write", &lock.write)] {
        // A mutex knows one mode only: saying "to write" of it would puzzle.
        let mode = if matches!(lock.kind, LockKind::Mutex | LockKind::Rtmutex) { "waited" } else { mode };
        if waits.count > 0 {
            page.tell(&format!("  {mode:<9}"), 11, &mode_words(waits), Ink::Plain);
        }
    }
    sites(page, &lock.sites, style);
    holders(page, &lock.holders, style);
}

fn mode_words(waits: &LockWaits) -> String {
    let mean = cells::mean(waits.total, waits.count);
    let (total, mean, worst) = (seconds(waits.total), seconds(mean), seconds(waits.worst));
    format!("{}: {total} in all, {mean} on average, worst {worst}", times(waits.count))
}

fn sites(page: &mut Page, sites: &[LockSite], style: &Style) {
    let shown = if style.verbose { sites.len() } else { EACH.min(sites.len()) };
    for (at, site) in sites.iter().take(shown).enumerate() {
        let label = if at == 0 { "in" } else { "" };
        let words = format!("{}: {}, {}", site.site, seconds(site.total), counted(site.count, "wait"));
        page.tell(&format!("  {label:<9}"), 13, &words, Ink::Plain);
    }
    more(page, sites.len() - shown);
}

fn holders(page: &mut Page, holders: &[Holder], style: &Style) {
    if holders.is_empty() {
        page.tell("  held by  ", 13, "cannot tell: no holder was seen", Ink::Plain);
    }
    let shown = if style.verbose { holders.len() } else { EACH.min(holders.len()) };
    for (at, holder) in holders.iter().take(shown).enumerate() {
        let label = if at == 0 { "held by" } else { "" };
        let did = if holder.did.is_empty() { String::new() } else { format!("; it {}", joined(&holder.did)) };
        let pid = if holder.pid == 0 { String::new() } else { format!(" (pid {})", holder.pid) };
        let words = format!("{}{pid}: others waited {}{did}", holder.who, seconds(holder.caused));
        page.tell(&format!("  {label:<9}"), 13, &words, Ink::Plain);
    }
    more(page, holders.len() - shown);
}

fn more(page: &mut Page, left: usize) {
    if left > 0 {
        page.say("           ", &format!("and {left} more (-v lists them)"), Ink::Faint);
    }
}

fn joined(deeds: &[Deed]) -> String {
    deeds.iter().map(Deed::to_string).collect::<Vec<_>>().join(", ")
}
