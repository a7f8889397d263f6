//! Where the host's CPU time and the tasks' wait time went, and who paid: one screen.

use std::time::Duration;

use whyslow_model::{CgroupShare, Document, Share, StateShare, seconds};

use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Cgroups in the table, without -v: the account fits on a screen of 24 lines.
const SHOWN: usize = 8;
/// Columns of a cgroup's name.
const NAME: usize = 38;

pub(super) fn print(page: &mut Page, doc: &Document, style: &Style) {
    page.gap();
    page.say("", "Where the time went", Ink::Heading);
    for note in &doc.account.notes {
        page.say("  ", note, Ink::Plain);
    }
    cpu(page, doc);
    waits(page, doc);
    cgroups(page, doc, style);
}

fn of<'d>(doc: &'d Document, what: &str) -> Vec<&'d StateShare> {
    doc.account.by_state.iter().filter(|s| s.of == what && !s.time.is_zero()).collect()
}

fn sum(states: &[&StateShare]) -> Duration {
    states.iter().fold(Duration::ZERO, |all, s| all.saturating_add(s.time))
}

fn cpu(page: &mut Page, doc: &Document) {
    let states = of(doc, "cpu");
    if states.is_empty() {
        page.say("  CPU    ", "not known: the kernel's counters were not read", Ink::Plain);
        return;
    }
    let all = sum(&states).as_secs_f64();
    let shares: Vec<_> =
        states.iter().map(|s| format!("{} {}", s.state, Share::of(s.time.as_secs_f64(), all))).collect();
    page.say(
        "  CPU    ",
        &format!("{} of the host: {}", seconds(doc.account.wall), shares.join(", ")),
        Ink::Plain,
    );
    let mut got = format!("tasks got {}", seconds(doc.account.cpu));
    if !doc.account.unexplained.is_zero() {
        got.push_str(&format!("; {} is unexplained", seconds(doc.account.unexplained)));
    }
    page.say("         ", &got, Ink::Plain);
}

fn waits(page: &mut Page, doc: &Document) {
    let states = of(doc, "wait");
    if doc.account.off_cpu.is_zero() && states.is_empty() {
        return;
    }
    let each: Vec<_> = states.iter().map(|s| format!("{} {}", s.state, seconds(s.time))).collect();
    let wanted = format!("tasks were runnable or blocked, off CPU, for {}", seconds(doc.account.off_cpu));
    let text = if each.is_empty() { wanted } else { format!("{wanted}: {}", each.join(", ")) };
    page.say("  waits  ", &text, Ink::Plain);
}

fn cgroups(page: &mut Page, doc: &Document, style: &Style) {
    let all = &doc.account.by_cgroup;
    let idle =
        |row: &&CgroupShare| row.cpu.is_zero() && row.runnable.is_zero() && row.uninterruptible.is_zero();
    let rows: Vec<_> = all.iter().filter(|row| style.verbose || !idle(row)).collect();
    if rows.is_empty() {
        return;
    }
    page.gap();
    let heading =
        format!("  {:NAME$}{:>7}{:>11}{:>11}{:>11}", "who", "tasks", "on CPU", "runnable", "D state");
    page.row(&heading, Ink::Faint);
    let shown = if style.verbose { rows.len() } else { SHOWN.min(rows.len()) };
    for row in rows.into_iter().take(shown) {
        let name = shortened(&plain(&row.name), NAME - 1);
        let pad = " ".repeat(NAME.saturating_sub(columns(&name)));
        let times = [row.cpu, row.runnable, row.uninterruptible].map(seconds);
        let numbers = format!("{:>7}{:>11}{:>11}{:>11}", row.tasks, times[0], times[1], times[2]);
        page.row(&format!("  {name}{pad}{numbers}"), Ink::Plain);
    }
    if shown < all.len() {
        page.say("  ", &format!("and {} more (-v lists them)", all.len() - shown), Ink::Faint);
    }
}
