//! Tasks in D state, by samples: what they waited for, and the holders behind them.

use whyslow_model::blocked::{BlockedAccount, BlockedChain, BlockedHolder, BlockedRoot, BlockedWait};
use whyslow_model::counted;
use whyslow_model::wait::{Reason, TaskState};

use super::cells;
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns as columns_of, plain, shortened};

/// Rows of a list without -v.
const SHOWN: usize = 15;
/// Ends of chains without -v.
const ENDS: usize = 5;
/// Things waited for in full without -v: the ones that a reader came for.
const IN_FULL: usize = 5;
/// Chains of one without -v.
const CHAINS: usize = 3;
/// Columns of a name in the table.
const NAME: usize = 38;

/// "371 samples in 100 passes: on average 3.7 tasks waited in D state, 64 % of them for mutex cgroup_mutex".
pub(super) fn headline(all: &BlockedAccount) -> String {
    let most = all.waits.first().map(|most| format!(", {} of them for {}", share(most.share), most.what));
    let samples = counted(all.samples.saturating_sub(all.idle), "sample");
    let average = if all.tasks < 10.0 { format!("{:.1}", all.tasks) } else { format!("{:.0}", all.tasks) };
    format!(
        "{samples} in {}: on average {average} tasks waited in D state{}",
        passes(all.passes),
        most.unwrap_or_default()
    )
}

/// "No task waited in D state in 100 passes over all tasks."
pub(super) fn none(passes_made: u64) -> String {
    format!("No task waited in D state in {} over all tasks.", passes(passes_made))
}

fn passes(n: u64) -> String {
    if n == 1 { "1 pass".to_owned() } else { format!("{n} passes") }
}

fn share(share: Option<whyslow_model::Share>) -> String {
    share.unwrap_or(whyslow_model::Share::NONE).to_string()
}

/// The ends of the chains, the table, then the things with the most samples in full.
pub(super) fn section(page: &mut Page, all: &BlockedAccount, style: &Style) {
    if all.idle > 0 {
        let idle = counted(all.idle, "sample");
        page.say("", &format!("{idle} of idle kernel threads are not among them."), Ink::Faint);
    }
    let shown = |len: usize, most: usize| if style.verbose { len } else { most.min(len) };
    ends(page, &all.roots, shown(all.roots.len(), ENDS));
    table(page, &all.waits, shown(all.waits.len(), SHOWN));
    for wait in all.waits.iter().take(shown(all.waits.len(), IN_FULL)) {
        page.gap();
        print(page, wait, style);
    }
}

fn ends(page: &mut Page, roots: &[BlockedRoot], shown: usize) {
    if roots.iter().all(|root| root.behind == 0) {
        return; // the ends are the waits themselves
    }
    page.gap();
    page.say("", "At the end of the chains of holders", Ink::Heading);
    for root in roots.iter().take(shown) {
        page.tell(
            &format!("  {:>5}  ", share(root.share)),
            9,
            &format!("{}{}", end(root), doubt(root)),
            Ink::Plain,
        );
    }
    more(page, roots.len() - shown);
}

/// The last reader of a lock is known, and not whether it still has it.
fn doubt(root: &BlockedRoot) -> &'static str {
    if root.uncertain { " (if the last reader that a lock on the way noted still held it)" } else { "" }
}

/// "rwsem shrinker_rwsem: 180 samples waited for it, 120 more for a lock of a task that did".
fn end(root: &BlockedRoot) -> String {
    let samples = |n| counted(n, "sample");
    let itself = root.samples.saturating_sub(root.behind);
    if root.what.is_empty() {
        let pid = if root.pid == 0 { String::new() } else { format!(" ({})", root.pid) };
        return format!("{}{pid}, which {}: {}", root.who, did(root.did), samples(root.samples));
    }
    match (itself, root.behind) {
        (itself, 0) => format!("{}: {}", root.what, samples(itself)),
        (0, behind) => format!("{}: {} of tasks behind its waiters", root.what, samples(behind)),
        (itself, behind) => {
            format!("{}: {}, and {} of tasks behind its waiters", root.what, samples(itself), samples(behind))
        }
    }
}

fn table(page: &mut Page, waits: &[BlockedWait], shown: usize) {
    if waits.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Waits in D state, by what was waited for", Ink::Heading);
    let columns = cells::headings(&["samples", "share", "waits", "threads"]);
    page.row(&format!("  {:NAME$}{columns}", "waited for"), Ink::Faint);
    for wait in waits.iter().take(shown) {
        let name = shortened(&plain(&wait.what), NAME);
        let pad = " ".repeat(NAME.saturating_sub(columns_of(&name)));
        let part = format!("{:>9}", share(wait.share));
        let counts = [wait.waits, wait.threads].map(cells::count).concat();
        page.row(&format!("  {name}{pad}{}{part}{counts}", cells::count(wait.samples)), Ink::Plain);
    }
    more(page, waits.len() - shown);
}

fn more(page: &mut Page, left: usize) {
    if left > 0 {
        page.say("  ", &format!("and {left} more (-v lists them)"), Ink::Faint);
    }
}

fn print(page: &mut Page, wait: &BlockedWait, style: &Style) {
    page.tell("", 2, &wait.what, Ink::Heading);
    let left = wait.threads.saturating_sub(wait.examples.len() as u64);
    let others = if left > 0 { format!(", and {left} more") } else { String::new() };
    page.tell("  threads   ", 12, &format!("{}{others}", wait.examples.join(", ")), Ink::Plain);
    if !wait.site.is_empty() {
        page.tell("  in        ", 12, &wait.site, Ink::Plain);
    }
    if wait.reason != Reason::Lock {
        return;
    }
    let shown = if style.verbose { wait.chains.len() } else { CHAINS.min(wait.chains.len()) };
    for chain in wait.chains.iter().take(shown) {
        print_chain(page, chain);
    }
    more(page, wait.chains.len() - shown);
}

fn print_chain(page: &mut Page, chain: &BlockedChain) {
    let samples = format!("  {:<10}", chain.samples);
    if chain.holders.is_empty() {
        page.tell(&samples, 12, "cannot tell which task held it", Ink::Plain);
    }
    for (at, holder) in chain.holders.iter().enumerate() {
        let begin = if at == 0 { samples.as_str() } else { "            " };
        page.tell(begin, 14, &held(holder), Ink::Plain);
    }
    if chain.cycle {
        page.tell("            ", 14, "(they waited for each other)", Ink::Plain);
    }
}

/// "held by kworker/1:2 (css_killed_work_fn) (77): it waited for rwsem shrinker_rwsem".
fn held(holder: &BlockedHolder) -> String {
    let pid = if holder.pid == 0 { String::new() } else { format!(" ({})", holder.pid) };
    let by = if holder.reader { "its last reader was" } else { "held by" };
    let gone = if holder.reader { ", perhaps gone" } else { "" };
    let did = match (holder.did, holder.what.as_str()) {
        (state, "") => did(state).to_owned(),
        (_, what) => format!("waited for {what}"),
    };
    format!("{by} {}{pid}{gone}: it {did}", holder.who)
}

/// In the moment of the sample.
fn did(state: TaskState) -> &'static str {
    match state {
        TaskState::Running => "ran",
        TaskState::Runnable => "was ready for a CPU",
        TaskState::IoWait | TaskState::Uninterruptible => "waited in D state, too",
        TaskState::Sleeping => "slept, not in D state",
        _ => "did what is not known",
    }
}
