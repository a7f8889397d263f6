//! Jobs: processes that began in the window, by the process that started them.

use std::time::Duration;

use whyslow_model::job::{ChurnAccount, JobAccount, JobTimes, PhaseAccount};
use whyslow_model::{Document, Probe, Share, seconds, times};

use super::cells;
use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns as columns_of, plain, shortened};

/// Rows of a table without -v.
const SHOWN: usize = 15;
/// Jobs in full without -v: the ones that a reader came for.
const IN_FULL: usize = 3;
/// Waits of a phase without -v.
const INSIDE: usize = 3;
/// Columns of a name in the table of jobs.
const NAME: usize = 31;
/// ... and in the other one.
const WHAT: usize = 40;

/// "jobs sh of judged (pid 7): 65 ended (8.1 a second), half within 450 ms, 99 % within 980 ms, with 21 ms of CPU time each".
pub(super) fn headline(jobs: &JobAccount) -> String {
    let cpu = seconds(cells::mean(jobs.cpu.total, jobs.count));
    let (half, most) = (seconds(jobs.wall.half), seconds(jobs.wall.most));
    let (count, rate) = (jobs.count, rate(jobs.rate));
    format!(
        "{}: {count} ended ({rate}), half within {half}, 99 % within {most}, with {cpu} of CPU time each",
        title(jobs)
    )
}

/// There are no rows.
pub(super) fn none(doc: &Document) -> &'static str {
    let is_counted = [Probe::Churn, Probe::FailedCalls].iter().all(|it| doc.why_unseen_by(*it).is_none());
    match is_counted {
        true => "No process ended three jobs, and none made a cgroup or a namespace.",
        false => "No process ended three jobs. Cgroups and namespaces that are made were not all counted.",
    }
}

/// "jobs sh of judged (pid 7)"
fn title(jobs: &JobAccount) -> String {
    let pid = match (jobs.tgid, jobs.starters) {
        (0, 0 | 1) => String::new(),
        (0, several) => format!(" ({several} processes)"),
        (pid, _) => format!(" (pid {pid})"),
    };
    format!("jobs {} of {}{pid}", named(&jobs.command), named(&jobs.starter))
}

fn named(name: &str) -> &str {
    if name.is_empty() { "without a name" } else { name }
}

/// "8.1 a second"
fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1} a second") } else { format!("{rate:.0} a second") }
}

/// Both tables, then the jobs with the most time in full.
pub(super) fn section(page: &mut Page, doc: &Document, style: &Style) {
    let shown = |len: usize, most: usize| if style.verbose { len } else { most.min(len) };
    table(page, &doc.jobs, shown(doc.jobs.len(), SHOWN));
    churn(page, &doc.churn, shown(doc.churn.len(), SHOWN));
    for jobs in doc.jobs.iter().take(shown(doc.jobs.len(), IN_FULL)) {
        page.gap();
        print(page, jobs, style);
    }
}

fn table(page: &mut Page, all: &[JobAccount], shown: usize) {
    if all.is_empty() {
        return;
    }
    page.gap();
    page.say("", "Jobs: processes that began in the window, by the process that started them", Ink::Heading);
    let columns = cells::headings(&["jobs", "half", "99 %", "CPU", "waited"]);
    page.row(&format!("  {:NAME$}{columns}", "job, started by"), Ink::Faint);
    for jobs in all.iter().take(shown) {
        let waited =
            jobs.phases.iter().map(|phase| phase.waited).fold(Duration::ZERO, Duration::saturating_add);
        let times = [jobs.wall.half, jobs.wall.most, jobs.cpu.total, waited].map(cells::time).concat();
        let name = format!("{}, {}", named(&jobs.command), named(&jobs.starter));
        row(page, &name, &format!("{}{times}", cells::count(jobs.count)));
    }
    more(page, all.len() - shown);
}

fn churn(page: &mut Page, all: &[ChurnAccount], shown: usize) {
    if all.is_empty() {
        return;
    }
    page.gap();
    page.say(
        "",
        "Made and removed, by the process at the top, with the time that threads waited in such calls",
        Ink::Heading,
    );
    let columns = cells::headings(&["count", "a second", "waited", "worst"]);
    page.row(&format!("  {:WHAT$}{columns}", "what, by"), Ink::Faint);
    for one in all.iter().take(shown) {
        let worst = one.waited.map(|_| one.worst);
        let waits = [one.waited, worst].map(cells::time_or_none).concat();
        let name = shortened(&plain(&format!("{}, {}", one.what, named(&one.starter))), WHAT);
        let pad = " ".repeat(WHAT.saturating_sub(columns_of(&name)));
        let numbers = format!("{}{}{waits}", cells::count(one.count), cells::rate(one.rate));
        page.row(&format!("  {name}{pad}{numbers}"), Ink::Plain);
    }
    more(page, all.len() - shown);
}

fn row(page: &mut Page, name: &str, numbers: &str) {
    let name = shortened(&plain(name), NAME);
    let pad = " ".repeat(NAME.saturating_sub(columns_of(&name)));
    page.row(&format!("  {name}{pad}{numbers}"), Ink::Plain);
}

fn more(page: &mut Page, left: usize) {
    if left > 0 {
        page.say("  ", &format!("and {left} more (-v lists them)"), Ink::Faint);
    }
}

fn print(page: &mut Page, jobs: &JobAccount, style: &Style) {
    page.tell("", 2, &title(jobs), Ink::Heading);
    let known = match jobs.known < jobs.processes {
        true => format!(", the phases of {} known", jobs.known),
        false => String::new(),
    };
    let open = if jobs.open > 0 { format!(", {} still ran", jobs.open) } else { String::new() };
    let ended = format!(
        "{} ended ({}){open}; {} processes in all{known}",
        jobs.count,
        rate(jobs.rate),
        jobs.processes
    );
    page.tell("  jobs      ", 12, &ended, Ink::Plain);
    page.tell("  wall      ", 12, &words(&jobs.wall, jobs.count), Ink::Plain);
    page.tell("  CPU       ", 12, &words(&jobs.cpu, jobs.count), Ink::Plain);
    for phase in &jobs.phases {
        page.tell(&format!("  {:<10}", phase.phase.word()), 12, &sums(phase), Ink::Plain);
        let shown = if style.verbose { phase.waits.len() } else { INSIDE.min(phase.waits.len()) };
        for wait in phase.waits.iter().take(shown) {
            let said = format!(
                "{}: {}, {}, worst {}",
                wait.what,
                seconds(wait.total),
                times(wait.count),
                seconds(wait.worst)
            );
            page.tell("            ", 14, &said, Ink::Plain);
        }
    }
}

fn words(times: &JobTimes, count: u64) -> String {
    let mean = seconds(cells::mean(times.total, count));
    let (half, most, worst) = (seconds(times.half), seconds(times.most), seconds(times.worst));
    format!("{mean} on average, half of them {half} or less, 99 % {most}, worst {worst}")
}

fn sums(phase: &PhaseAccount) -> String {
    let all = phase.cpu + phase.ready + phase.waited;
    let share = Share::of(phase.waited.as_secs_f64(), all.as_secs_f64());
    format!(
        "{}: CPU {}, waits for a CPU {}, other waits {} ({share})",
        seconds(all),
        seconds(phase.cpu),
        seconds(phase.ready),
        seconds(phase.waited)
    )
}
