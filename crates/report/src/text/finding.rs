//! One finding: victim, loss and cause, the chain one hop a line, checks, fixes.

use whyslow_model::wait::Reason;
use whyslow_model::{Check, Culprit, Finding, Fix, Hop, Subject, SubjectKind, seconds, times};

use crate::page::{Ink, Page};

/// Columns before the words of a finding's part.
const INDENT: usize = 12;

pub(super) fn cause(page: &mut Page, number: usize, finding: &Finding) {
    page.say(&format!("{number}. "), &format!("{} [{}]", headline(finding), finding.rule), Ink::Cause);
    owner(page, &finding.victim);
    if let Some((low, high)) = finding.lost_range.map(|(low, high)| (seconds(low), seconds(high)))
        && low != high
    {
        part(page, "lost", &format!("between {low} and {high}"));
    }
    if let Some(culprit) = &finding.culprit {
        part(page, "due to", &culprit_words(culprit));
    }
    chain(page, &finding.chain);
    if let Some(raw) = finding.raw_wait {
        part(page, "raw wait", &format!("{} of waiting in all", seconds(raw)));
    }
    cpu_time(page, finding);
    if !finding.overlaps.is_empty() {
        part(page, "overlaps", &format!("in part the same time as {}", finding.overlaps.join(", ")));
    }
    checks(page, &finding.check);
    fixes(page, &finding.fixes);
}

pub(super) fn risk(page: &mut Page, finding: &Finding) {
    page.say("-  ", &format!("{} [{}]", risk_words(finding), finding.rule), Ink::Risk);
    owner(page, &finding.victim);
    // A victim that is its own culprit is named already.
    let culprit = finding.culprit.as_ref().map(culprit_words);
    if let Some(culprit) = culprit.filter(|culprit| *culprit != subject(&finding.victim)) {
        part(page, "due to", &culprit);
    }
    if let Some(raw) = finding.raw_wait {
        part(page, "raw wait", &format!("{} of waiting in all", seconds(raw)));
    }
    cpu_time(page, finding);
    chain(page, &finding.chain);
    checks(page, &finding.check);
    fixes(page, &finding.fixes);
}

/// "make keeps both CPUs full; no other group of tasks waited for one".
pub(super) fn busy_words(finding: &Finding) -> String {
    format!("{} {}", subject(&finding.victim), finding.title)
}

pub(super) fn risk_words(finding: &Finding) -> String {
    match finding.victim.kind {
        SubjectKind::Host => finding.title.clone(),
        _ => format!("{}: {}", subject(&finding.victim), finding.title),
    }
}

/// More about the victim: the unit's description, the image, the path.
fn owner(page: &mut Page, victim: &Subject) {
    let image = victim.image.as_ref().map(|image| format!("image {image}"));
    let is_cut = victim.kind == SubjectKind::Cgroup && without_path(&victim.name, &victim.id) != victim.name;
    let path = is_cut.then(|| victim.id.clone());
    let said: Vec<String> = victim.description.iter().cloned().chain(image).chain(path).collect();
    if !said.is_empty() {
        part(page, "about", &said.join(", "));
    }
}

/// Reclaimable CPU time.
fn cpu_time(page: &mut Page, finding: &Finding) {
    let bounds = |(low, high)| format!(", between {} and {}", seconds(low), seconds(high));
    if let Some(cpu) = finding.cpu {
        let range = finding.cpu_range.map(bounds).unwrap_or_default();
        part(page, "CPU", &format!("{} is reclaimable{range}", seconds(cpu)));
    }
}

/// "web.service lost 3.2 s, 23 % of its time: its quota ran out"; of kills "web.service: the kernel killed one of its processes".
pub(super) fn headline(finding: &Finding) -> String {
    let Some(lost) = finding.lost else { return risk_words(finding) };
    let share = finding.share.map(|s| format!(", {s} of its time")).unwrap_or_default();
    format!("{} lost {}{share}: {}", subject(&finding.victim), seconds(lost), finding.title)
}

fn subject(s: &Subject) -> String {
    let mut words = named(s.kind, &s.id, &s.name);
    let others = [&s.unit, &s.container].into_iter().flatten();
    for more in others.filter(|more| !s.name.contains(more.as_str())) {
        words.push_str(&format!(" ({more})"));
    }
    words
}

fn named(kind: SubjectKind, id: &str, name: &str) -> String {
    let name = if name.is_empty() { id } else { name };
    match kind {
        SubjectKind::Task if name != id => format!("{name} (pid {id})"),
        SubjectKind::Task => format!("pid {id}"),
        SubjectKind::Cgroup => without_path(name, id).to_owned(),
        SubjectKind::Cpu if name == id => format!("CPU {id}"),
        _ if name.is_empty() => "something unnamed".to_owned(),
        _ => name.to_owned(),
    }
}

/// A cgroup's name without its path, where it is named by its first command and the path is long.
fn without_path<'n>(name: &'n str, path: &str) -> &'n str {
    const SHORT: usize = 24;
    const LEADS: usize = ": ".len();
    let begin = name.len().saturating_sub(path.len());
    let is_behind = path.len() > SHORT && begin > LEADS && name.get(begin..) == Some(path);
    name.get(..begin.saturating_sub(LEADS)).filter(|_| is_behind).unwrap_or(name)
}

pub(super) fn culprit_words(c: &Culprit) -> String {
    let mut words = named(c.kind, &c.id, &c.name);
    if let Some(function) = &c.function {
        words.push_str(&format!(", in {function}"));
    }
    let is_said = |file: &&String| c.function.as_ref().is_none_or(|function| !function.contains(*file));
    match (c.kind, &c.file) {
        (SubjectKind::Quota | SubjectKind::Limit | SubjectKind::Kernel, Some(file)) => {
            words.push_str(&format!(", set by {file}"));
        }
        (_, file) => file.iter().filter(is_said).for_each(|file| words.push_str(&format!(", at {file}"))),
    }
    words
}

fn part(page: &mut Page, label: &str, text: &str) {
    page.say(&format!("   {label:<9}"), text, Ink::Plain);
}

fn chain(page: &mut Page, hops: &[Hop]) {
    for (at, hop) in hops.iter().enumerate() {
        part(page, if at == 0 { "chain" } else { "" }, &hop_words(hop));
    }
}

/// The verb of a hop: most are waits.
fn verb(reason: Reason) -> &'static str {
    match reason {
        Reason::IdleState => "woke slowly from",
        Reason::IrqsOff => "kept interrupts off in",
        Reason::Running => "ran",
        Reason::SlowCpu => "ran on",
        Reason::Softirq => "handled",
        Reason::Spin => "spun on",
        Reason::Work => "was busy with",
        _ => "waited for",
    }
}

pub(super) fn hop_words(hop: &Hop) -> String {
    let words = match hop.who.is_nobody() {
        // Without a subject the detail is a sentence of its own.
        true => hop.detail.to_string(),
        false => format!("{} {} {} ({})", hop.who, verb(hop.reason), hop.detail, hop.state),
    };
    let parts = [
        // Zero is no measurement.
        (!hop.lost.is_zero()).then(|| seconds(hop.lost)),
        hop.count.map(times),
        hop.worst.map(|worst| format!("worst {}", seconds(worst))),
        hop.per_call.map(|per_call| format!("{} a call", seconds(per_call))),
        hop.growth(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { words } else { format!("{words}: {}", parts.join(", ")) }
}

fn checks(page: &mut Page, checks: &[Check]) {
    for (at, check) in checks.iter().enumerate() {
        advise(page, if at == 0 { "check" } else { "" }, &check.text, check.command.as_deref());
    }
}

fn fixes(page: &mut Page, fixes: &[Fix]) {
    for fix in fixes {
        advise(page, "fix", &fix.text, fix.command.as_deref());
    }
}

fn advise(page: &mut Page, label: &str, text: &str, command: Option<&str>) {
    part(page, label, text);
    if let Some(command) = command {
        page.command(INDENT, command);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::wait::TaskState;

    use super::*;

    fn reported(reason: Reason, what: &str, lost_ms: u64) -> String {
        hop_words(&Hop::new(reason, "db (pid 7)", what, TaskState::Running, Duration::from_millis(lost_ms)))
    }

    #[test]
    fn a_risk_is_printed_with_its_culprit_unless_that_is_its_subject() {
        let text = |culprit: Culprit| {
            let subject = Subject::new(SubjectKind::Task, "7", "db");
            let mut page = Page::new(&crate::Style::default());
            risk(&mut page, &Finding::risk("spin", subject).titled("it spins").by(culprit));
            page.finish()
        };
        let db = || Culprit::new(SubjectKind::Task, "7", "db");
        assert!(!text(db()).contains("due to"));
        assert!(text(db().in_function("poll")).contains("due to   db (pid 7), in poll"));
        let limit = Culprit::new(SubjectKind::Limit, "x", "a limit").at_file("/f");
        assert!(text(limit).contains("due to   a limit, set by /f"));
    }

    #[test]
    fn hop_that_is_no_wait_is_not_worded_as_a_wait() {
        assert_eq!(
            reported(Reason::WakeupLatency, "CPU 1", 30),
            "db (pid 7) waited for CPU 1 (running): 30 ms"
        );
        assert_eq!(
            reported(Reason::IrqsOff, "sort", 30),
            "db (pid 7) kept interrupts off in sort (running): 30 ms"
        );
        assert_eq!(reported(Reason::Spin, "CPU 1", 30), "db (pid 7) spun on CPU 1 (running): 30 ms");
        assert_eq!(reported(Reason::Running, "user code", 30), "db (pid 7) ran user code (running): 30 ms");
        let nobody = Hop::new(
            Reason::Unknown,
            whyslow_model::wait::Who::Nobody,
            "no wakeup came",
            TaskState::Unknown,
            Duration::ZERO,
        );
        assert_eq!(hop_words(&nobody), "no wakeup came");
    }

    #[test]
    fn hop_without_measured_time_shows_no_duration() {
        assert_eq!(
            reported(Reason::Work, "its own work", 0),
            "db (pid 7) was busy with its own work (running)"
        );
        let counted =
            Hop { count: Some(3), ..Hop::new(Reason::Timer, "a", "b", TaskState::Sleeping, Duration::ZERO) };
        assert_eq!(hop_words(&counted), "a waited for b (sleeping): 3 times");
    }

    #[test]
    fn a_file_sets_limits_and_is_a_place_of_tasks() {
        let of = |kind| culprit_words(&Culprit::new(kind, "7", "db").at_file("/f"));
        assert_eq!(of(SubjectKind::Limit), "db, set by /f");
        assert_eq!(of(SubjectKind::Task), "db (pid 7), at /f");
        let named = Culprit::new(SubjectKind::Task, "7", "db").in_function("wait (/f)").at_file("/f");
        assert_eq!(culprit_words(&named), "db (pid 7), in wait (/f)");
    }
}
