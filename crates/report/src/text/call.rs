//! System calls of the watched tasks: by file, and the slow ones one by one.

use std::time::Duration;

use whyslow_model::chain::{CallAccount, SlowCallAccount, StateTime};
use whyslow_model::{Document, seconds};

use super::{cells, count};
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Rows of either table without -v.
const SHOWN: usize = 12;
/// Columns of a call and its file.
const NAME: usize = 78;

/// System calls by file, the most expensive first. Nothing if none were counted.
pub(super) fn table(page: &mut Page, doc: &Document, style: &Style) {
    if doc.calls.is_empty() {
        return;
    }
    page.gap();
    page.say("", "System calls by file, and how their time was spent", Ink::Heading);
    let names = ["calls", "time", "worst", "on CPU", "runnable", "io-wait", "D state", "sleeping"];
    page.row(&cells::headings(&names), Ink::Faint);
    // Calls of less than a thousandth of the wall time are no answer to why it took so long.
    let least = doc.wall.as_ref().map_or(Duration::ZERO, |wall| wall.wall / 1000);
    let worth = doc.calls.iter().take_while(|call| call.time >= least).count().max(1);
    let shown = if style.verbose { doc.calls.len() } else { SHOWN.min(worth) };
    for call in doc.calls.iter().take(shown) {
        row(page, call);
    }
    more(page, doc.calls.len() - shown);
}

fn row(page: &mut Page, call: &CallAccount) {
    let mut about = Vec::new();
    if call.files > 1 {
        about.push(format!("{} files", call.files));
    }
    if call.errors > 0 {
        about.push(format!("{} failed", call.errors));
    }
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
    let room = NAME.saturating_sub(columns(&about));
    let name = shortened(&plain(&named(&call.syscall, call.path.as_deref())), room);
    page.row(&format!("  {name}{about}"), Ink::Plain);
    let split = [
        call.time,
        call.worst,
        call.running,
        call.runnable,
        call.io_wait,
        call.uninterruptible,
        call.sleeping,
    ];
    page.row(&(cells::count(call.count) + &split.map(cells::time).concat()), Ink::Plain);
}

fn named(syscall: &str, path: Option<&str>) -> String {
    let syscall = if syscall.is_empty() { "an unknown call" } else { syscall };
    path.map_or_else(|| syscall.to_owned(), |path| format!("{syscall} {path}"))
}

/// The slowest single calls, in order of time. Nothing if none were slow.
pub(super) fn slow(page: &mut Page, doc: &Document, style: &Style) {
    let all = &doc.slow_calls;
    if all.is_empty() {
        return;
    }
    page.gap();
    page.say("", &format!("Slow system calls: {}", count(all.len(), "call")), Ink::Heading);
    let mut slowest: Vec<&SlowCallAccount> = all.iter().collect();
    if !style.verbose {
        slowest.sort_by_key(|call| std::cmp::Reverse(call.time));
        slowest.truncate(SHOWN);
        slowest.sort_by_key(|call| call.at);
    }
    for call in &slowest {
        let open = if call.open { ", and had not come back" } else { "" };
        let name = named(&call.syscall, call.path.as_deref());
        let took = seconds(call.time);
        let there = call.host_path.as_ref().filter(|_| style.verbose);
        let there = there.map_or_else(String::new, |path| format!("; on the host {path}"));
        let words =
            format!("{} (pid {}): {name} took {took}{open}{}{there}", call.who, call.pid, split(&call.split));
        let at = format!("{:.3} s", call.at.as_secs_f64());
        page.tell(&format!("{at:>11}  "), 15, &words, Ink::Plain);
    }
    more(page, all.len() - slowest.len());
}

/// " (uninterruptible 58 ms, running 1 ms)".
fn split(parts: &[StateTime]) -> String {
    let all: Vec<_> = parts
        .iter()
        .filter(|part| !part.time.is_zero())
        .map(|part| format!("{} {}", part.state, seconds(part.time)))
        .collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

fn more(page: &mut Page, left: usize) {
    if left > 0 {
        page.say("  ", &format!("and {left} more (-v lists them)"), Ink::Faint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_directory_are_counted_once() {
        let call = CallAccount {
            syscall: "unlink".into(),
            path: Some("/var/spool/*".into()),
            files: 25,
            ..CallAccount::default()
        };
        let mut page = Page::new(&crate::Style::default());
        row(&mut page, &call);
        let text = page.finish();
        assert!(text.contains("  unlink /var/spool/* (25 files)\n"), "{text}");
    }
}
