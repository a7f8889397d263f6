//! What each CPU delivers: a row a CPU, rows that are alike as one.

use whyslow_model::{CpuAccount, Document, Share};

use crate::Style;
use crate::page::{Ink, Page};
use crate::safe::{columns, plain, shortened};

/// Up to so many CPUs each has its own row.
const EACH: usize = 16;
/// Columns of a governor's name.
const GOVERNOR: usize = 11;
/// Columns of an idle state's name.
const IDLE: usize = 6;

/// Rows that are reported in one line.
struct Fold<'d> {
    first: &'d CpuAccount,
    last: u32,
    /// The slowest of them is shown for all.
    shown: &'d CpuAccount,
    many: bool,
}

pub(super) fn section(page: &mut Page, doc: &Document, style: &Style) {
    page.gap();
    if doc.cpus.is_empty() {
        page.say("", "No CPU was measured.", Ink::Heading);
        return;
    }
    page.say("", "What each CPU delivers (1M: time that a task gets for a million additions)", Ink::Heading);
    let heading = format!(
        "{:>7}{:>8}{:>6}{:>6}{:>6}{:>6}{:>6}{:>6}{:>6} {:<IDLE$} {:<GOVERNOR$}{:>4}",
        "CPU", "1M", "ratio", "MHz", "busy", "C0", "hi", "si", "st", "idle", "governor", "node"
    );
    page.row(&heading, Ink::Faint);
    for fold in folds(&doc.cpus, style) {
        row(page, &fold);
    }
    page.say("  ", "MHz: while the loop ran; busy: mean MHz while not idle; C0, hi, si, st: % of the window busy, in hard \
        and soft interrupts, stolen", Ink::Faint);
    for slow in doc.cpus.iter().filter(|cpu| cpu.slow.is_some()).take(EACH) {
        why(page, slow);
    }
}

fn folds<'d>(cpus: &'d [CpuAccount], style: &Style) -> Vec<Fold<'d>> {
    let mut folds: Vec<Fold<'d>> = Vec::new();
    let fold = cpus.len() > EACH && !style.verbose;
    for cpu in cpus {
        match folds.last_mut().filter(|last| fold && alike(last.first, cpu)) {
            Some(last) => {
                last.last = cpu.cpu;
                last.many = true;
                if cpu.million > last.shown.million {
                    last.shown = cpu;
                }
            }
            None => folds.push(Fold { first: cpu, last: cpu.cpu, shown: cpu, many: false }),
        }
    }
    folds
}

fn alike(a: &CpuAccount, b: &CpuAccount) -> bool {
    let healthy = a.slow.is_none() && b.slow.is_none();
    healthy && a.node == b.node && a.governor == b.governor && a.not_measured == b.not_measured
}

fn row(page: &mut Page, fold: &Fold<'_>) {
    let cpu = fold.shown;
    let name = match fold.many {
        true => format!("{}-{}", fold.first.cpu, fold.last),
        false => cpu.cpu.to_string(),
    };
    let mark = if cpu.slow.is_some() { "!" } else { " " };
    let ink = if cpu.slow.is_some() { Ink::Cause } else { Ink::Plain };
    if let Some(why) = &cpu.not_measured {
        page.tell(&format!("{mark}{name:>6}  "), 9, &format!("not measured: {why}"), Ink::Plain);
        return;
    }
    let million =
        cpu.million.map_or_else(|| "-".to_owned(), |time| format!("{:.0} us", time.as_secs_f64() * 1e6));
    let ratio = cpu.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mhz = |mhz: Option<f64>| mhz.map_or_else(|| "-".to_owned(), |mhz| format!("{mhz:.0}"));
    let idle = padded(cpu.idle_state.as_deref(), IDLE);
    let governor = padded(cpu.governor.as_deref(), GOVERNOR);
    let node = cpu.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
    let shares: String = [cpu.busy, cpu.hardirq, cpu.softirq, cpu.steal].into_iter().map(percent).collect();
    let numbers = format!("{million:>8}{ratio:>6}{:>6}{:>6}{shares}", mhz(cpu.mhz), mhz(cpu.busy_mhz));
    page.row(&format!("{mark}{name:>6}{numbers} {idle} {governor}{node:>4}"), ink);
}

fn percent(share: Option<Share>) -> String {
    let text = match share.map(|share| share.ratio() * 100.0) {
        None => "-".to_owned(),
        Some(percent) if percent < 9.95 => format!("{percent:.1}"),
        Some(percent) => format!("{percent:.0}"),
    };
    format!("{text:>6}")
}

fn padded(name: Option<&str>, width: usize) -> String {
    let name = shortened(&plain(name.unwrap_or("-")), width);
    format!("{name}{}", " ".repeat(width.saturating_sub(columns(&name))))
}

fn why(page: &mut Page, cpu: &CpuAccount) {
    let (Some(slow), Some(against)) = (cpu.slow, &cpu.slow_against) else { return };
    let reasons = cpu.reasons.join("; ");
    let words = format!("CPU {} is {slow:.1} times slower than {against}: {reasons}", cpu.cpu);
    page.tell("! ", 2, &words, Ink::Plain);
}

/// "CPU 2 is slow", "no CPU is slow".
pub(super) fn answer(doc: &Document) -> (String, Ink) {
    let slow: Vec<String> = doc.cpus.iter().filter(|c| c.slow.is_some()).map(|c| c.cpu.to_string()).collect();
    let measured = doc.cpus.iter().filter(|cpu| cpu.not_measured.is_none()).count();
    match (slow.len(), measured) {
        (0, 0) => ("No CPU was measured.".to_owned(), Ink::Heading),
        (0, n) => (format!("No CPU is slow: {n} of {} measured.", doc.cpus.len()), Ink::Heading),
        (1, _) => (format!("CPU {} is slow.", slow.join("")), Ink::Cause),
        (n, of) if n == of => ("All CPUs are slow.".to_owned(), Ink::Cause),
        (n, _) => {
            let named = slow.iter().take(EACH).cloned().collect::<Vec<_>>().join(", ");
            let more = if n > EACH { format!(" and {} more", n - EACH) } else { String::new() };
            (format!("{n} CPUs are slow: {named}{more}."), Ink::Cause)
        }
    }
}
