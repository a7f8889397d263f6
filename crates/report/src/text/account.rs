//! CPU time of the host and wait time of its tasks, by cgroup: one screen.

use std::time::Duration;

use whyslow_model::{CgroupShare, Document, Share, StateShare, seconds};

use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Columns of a cgroup's name.
const NAME: usize = 38;

pub(super) fn print(page: &mut Page, doc: &Document) {
    page.gap();
    page.say("", "Where the time went", Ink::Heading);
    for note in doc.account.notes.iter().chain(&doc.account.doubts) {
        page.say("  ", note, Ink::Plain);
    }
    cpu(page, doc);
    waits(page, doc);
    page.gap();
    by_cgroup(page, doc, usize::MAX);
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
    let got = doc.account.cpu.map_or_else(|| "an unknown part of it".to_owned(), seconds);
    let mut got = format!("tasks got {got}");
    if let Some(unexplained) = doc.account.unexplained.filter(|time| !time.is_zero()) {
        got.push_str(&format!("; {} is unexplained", seconds(unexplained)));
    }
    page.say("         ", &got, Ink::Plain);
}

fn waits(page: &mut Page, doc: &Document) {
    let states = of(doc, "wait");
    let Some(off_cpu) = doc.account.off_cpu else {
        let why = doc.why_waits_unseen().unwrap_or_default();
        return page.say("  waits  ", &format!("not known: {why}"), Ink::Plain);
    };
    if off_cpu.is_zero() && states.is_empty() {
        return;
    }
    let each: Vec<_> = states.iter().map(|s| format!("{} {}", s.state, seconds(s.time))).collect();
    let wanted = format!("tasks were runnable or blocked, off CPU, for {}", seconds(off_cpu));
    let text = if each.is_empty() { wanted } else { format!("{wanted}: {}", each.join(", ")) };
    page.say("  waits  ", &text, Ink::Plain);
}

/// In at most so many lines, its heading among them: those that did something. Where there is room for all, all.
pub(super) fn by_cgroup(page: &mut Page, doc: &Document, room: usize) {
    let all = &doc.account.by_cgroup;
    let none = |time: Option<Duration>| time.is_none_or(|time| time.is_zero());
    let idle = |row: &&CgroupShare| row.cpu.is_zero() && none(row.runnable) && none(row.uninterruptible);
    let rows: Vec<_> = all.iter().filter(|row| room > all.len() || !idle(row)).collect();
    if rows.is_empty() {
        return;
    }
    let heading =
        format!("  {:NAME$}{:>7}{:>11}{:>11}{:>11}", "cgroup", "tasks", "on CPU", "runnable", "D state");
    page.row(&heading, Ink::Faint);
    let room = room.saturating_sub(1);
    // One line tells of the others.
    let shown = if rows.len() > room || rows.len() < all.len() {
        rows.len().min(room.saturating_sub(1))
    } else {
        rows.len()
    };
    for row in rows.into_iter().take(shown) {
        let name = fitting(&plain(&row.name), &plain(&row.id));
        let pad = " ".repeat(NAME.saturating_sub(columns(&name)));
        let times = [Some(row.cpu), row.runnable, row.uninterruptible];
        let times = times.map(|time| time.map_or_else(|| "?".to_owned(), seconds));
        let numbers = format!("{:>7}{:>11}{:>11}{:>11}", row.tasks, times[0], times[1], times[2]);
        page.row(&format!("  {name}{pad}{numbers}"), Ink::Plain);
    }
    if shown < all.len() {
        page.say("  ", &format!("and {} more (-v lists them)", all.len() - shown), Ink::Faint);
    }
}

/// What groups without a name of their own are called by.
const LEADING: &str = "the cgroup of ";

/// In a column. Of a cgroup that is not called by its path alone the path goes first, and what leads to it.
fn fitting(name: &str, path: &str) -> String {
    const LEADS: usize = ": ".len();
    let begin = name.len().saturating_sub(path.len());
    let is_behind = columns(name) >= NAME && begin > LEADS && name.get(begin..) == Some(path);
    let whose = name.get(..begin.saturating_sub(LEADS)).filter(|_| is_behind).unwrap_or(name);
    // Half of a command says less than what it stands for.
    let whose = whose.strip_prefix(LEADING).filter(|_| columns(whose) >= NAME).unwrap_or(whose);
    shortened(whose, NAME - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_group_that_its_command_names_the_path_is_cut_first() {
        let of = |whose: &str, path: &str| fitting(&format!("{whose}{path}"), path);
        assert_eq!(fitting("web.service", "/system.slice/web.service"), "web.service");
        assert_eq!(of("the cgroup of sh (pid 7): ", "/a"), "the cgroup of sh (pid 7): /a");
        assert_eq!(
            of("the cgroup of make (pid 4711): ", "/jobs/0123456789abcdef"),
            "the cgroup of make (pid 4711)"
        );
        let long = of("the cgroup of memfd:sealed-91 (pid 31212): ", "/jobs/17");
        assert_eq!(long, "memfd:sealed-91 (pid 31212)");
        assert!(columns(&of("the cgroup of abcdefghijklmno (pid 4194304): ", "/jobs/17")) < NAME);
        assert!(columns(&fitting(&"x".repeat(90), "/x")) < NAME);
    }
}
