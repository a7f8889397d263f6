//! What the host's averages hide: single threads and CPUs that are full while the host looks idle.

use std::collections::BTreeMap;

use whyslow_model::Share;
use whyslow_model::table::Task;

use crate::Evidence;

/// With less than this part of the CPUs left over the averages show that the host is busy.
const LOOKS_IDLE: Share = Share::percent(25);
/// A thread or CPU with less than a twentieth to spare has no room for more work.
const FULL: Share = Share::percent(95);
/// Threads, and CPUs, that are named: the largest first.
const MOST: usize = 4;

/// One sentence, for before the averages; `None`: nothing is full, or all is.
#[must_use]
pub fn note(ev: &Evidence<'_>) -> Option<String> {
    let all = ev.cpu_time().ok()?;
    let idle = Share::of((all.idle + all.iowait).as_secs_f64(), all.total().as_secs_f64());
    if idle < LOOKS_IDLE {
        return None;
    }
    let mut full = threads(ev);
    full.extend(cpus(ev));
    (!full.is_empty()).then(|| format!("Full, although the host is {idle} idle: {}.", full.join("; ")))
}

fn threads(ev: &Evidence<'_>) -> Vec<String> {
    let share = |task: &Task| Share::of(task.exec_ns as f64, ev.window().as_nanos() as f64);
    let is_full = |task: &&Task| share(task) >= FULL && task.folded == 0 && !ev.is_own(task.pid, task.tgid);
    let mut full: Vec<&Task> = ev.tasks().unwrap_or_default().iter().filter(is_full).collect();
    full.sort_by_key(|task| (std::cmp::Reverse(task.exec_ns), task.pid));
    let named = full.iter().take(MOST);
    named
        .map(|task| {
            format!("thread {} ({}) had {} of a CPU", ev.called(task.pid, &task.comm), task.pid, share(task))
        })
        .collect()
}

fn cpus(ev: &Evidence<'_>) -> Vec<String> {
    let cpus = ev.cpu_time_by_cpu().unwrap_or_default();
    let busy = cpus
        .iter()
        .map(|(cpu, time)| (*cpu, Share::of(time.busy().as_secs_f64(), time.total().as_secs_f64())));
    let mut full: Vec<(u32, Share)> = busy.filter(|(_, share)| *share >= FULL).collect();
    full.sort_by(|a, b| b.1.ratio().total_cmp(&a.1.ratio()).then(a.0.cmp(&b.0)));
    let reported = full.into_iter().take(MOST).map(|(cpu, share)| match longest(ev, cpu) {
        Some(who) => format!("CPU {cpu} was {share} busy, most of it with {who}"),
        None => format!("CPU {cpu} was {share} busy"),
    });
    reported.collect()
}

/// The thread that had a CPU for most of the window, as far as runs of a millisecond and more show.
fn longest(ev: &Evidence<'_>, cpu: u32) -> Option<String> {
    let runs = ev.recording().tables.runs.as_deref()?;
    let mut had: BTreeMap<u32, u64> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.cpu == cpu) {
        let sum = had.entry(run.pid).or_default();
        *sum = sum.saturating_add(run.to_ns.saturating_sub(run.from_ns));
    }
    let (pid, ns) = had.into_iter().max_by_key(|(_, ns)| *ns)?;
    let task = ev.task(pid)?;
    (u128::from(ns) * 2 > ev.window().as_nanos()).then(|| format!("{} ({pid})", ev.called(pid, &task.comm)))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Run;

    use super::*;
    use crate::evidence::fixture::Fixture;

    /// A second of four CPUs of which CPU 2 was busy for `busy` ticks of 100, all of it with thread 7.
    fn host(busy: u64, others: u64) -> Fixture {
        let zero = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\ncpu3 0 0 0 0 0 0 0 0\n";
        let line = |name: &str, user: u64, idle: u64| format!("{name} {user} 0 0 {idle} 0 0 0 0\n");
        let sum = busy + 3 * others;
        let end = [
            line("cpu ", sum, 400 - sum),
            line("cpu0", others, 100 - others),
            line("cpu1", others, 100 - others),
            line("cpu2", busy, 100 - busy),
            line("cpu3", others, 100 - others),
        ];
        let ns = busy * 10_000_000;
        Fixture::second().start("proc/stat", zero).end("proc/stat", &end.concat()).with(|tables| {
            tables.tasks =
                Some(vec![Task { pid: 7, tgid: 7, comm: "loop".into(), exec_ns: ns, ..Task::default() }]);
            tables.runs = Some(vec![Run { cpu: 2, pid: 7, from_ns: 0, to_ns: ns }]);
        })
    }

    #[test]
    fn a_full_thread_and_its_cpu_are_reported_before_the_averages() {
        let reported = note(&host(99, 2).ev()).unwrap();
        assert!(
            reported.contains("74 % idle: thread loop (7) had 99 % of a CPU; CPU 2 was 99 % busy"),
            "{reported}"
        );
        assert!(reported.contains("most of it with loop (7)"), "{reported}");
    }

    #[test]
    fn nothing_is_hidden_when_nothing_or_everything_is_full() {
        assert_eq!(note(&host(50, 2).ev()), None);
        assert_eq!(note(&host(99, 90).ev()), None);
        assert_eq!(note(&Fixture::second().ev()), None);
    }
}
