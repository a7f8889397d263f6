//! A thread that spins and fills its CPU is one finding: `spin` includes the finding of `full-thread`.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Finding, Hop, Kind, Share};

use super::{RULE, Spinner, processes, spinners};
use crate::Evidence;
use crate::cpu::speed::Places;

/// The rule whose findings become part of the findings of this rule.
pub(super) const FULL_THREAD: &str = "full-thread";
/// A thread that spins for a smaller part of its time fills its CPU with other work.
const MOSTLY: f64 = 0.5;
/// A thread that was on no single CPU for this part of its time was on several CPUs.
const ON_ONE_CPU: f64 = 0.5;
/// Threads of one process that are reported.
const MOST: usize = 4;

/// Removes findings about full threads that all spin, and that no task was seen to wait for. The finding that their process spins includes them.
pub(super) fn fold(ev: &Evidence<'_>, findings: &mut Vec<Finding>) {
    // Only a risk, which has no victim: a measured loss stays a finding of its own.
    let is_full = |found: &Finding| found.rule == FULL_THREAD && found.kind == Kind::Risk;
    if !findings.iter().any(is_full) {
        return;
    }
    let (Ok(full), Ok(spinners)) =
        (ev.full_threads(), processes(ev).and_then(|processes| spinners(ev, processes)))
    else {
        return;
    };
    let places = Places::of(ev);
    for threads in &full.processes {
        let Some(spinner) = spinners.iter().find(|spinner| all_spin(spinner, threads)) else { continue };
        let tgid = spinner.process.tgid.to_string();
        let Some(reported) = findings.iter().position(|found| is_full(found) && found.victim.id == tgid)
        else {
            continue;
        };
        findings.remove(reported);
        let of_spin = findings
            .iter_mut()
            .find(|found| found.rule == RULE.id && found.culprit.as_ref().is_some_and(|c| c.id == tgid));
        if let Some(finding) = of_spin {
            let hops = threads.iter().take(MOST).map(|task| filled(ev, spinner, task, &places, full.idle));
            finding.chain.extend(hops);
        }
    }
}

fn share(spinner: &Spinner<'_>, pid: u32) -> f64 {
    let thread = spinner.process.threads.iter().find(|thread| thread.pid == pid);
    thread.map_or(0.0, |thread| thread.sum.share().1)
}

fn all_spin(spinner: &Spinner<'_>, threads: &[&Task]) -> bool {
    let pids: BTreeSet<u32> = threads.iter().map(|task| task.pid).collect();
    let is_its = threads.first().is_some_and(|task| task.tgid == spinner.process.tgid);
    is_its && pids.iter().all(|pid| share(spinner, *pid) >= MOSTLY)
}

fn filled(ev: &Evidence<'_>, spinner: &Spinner<'_>, task: &Task, places: &Places, idle: Share) -> Hop {
    let most = places.of_task(task).into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let place = match most.filter(|(_, part)| *part >= ON_ONE_CPU) {
        Some((cpu, _)) => format!("CPU {cpu}"),
        None => "a CPU".to_owned(),
    };
    let words =
        format!("{place}, which it had all the time, while {idle} of the host's CPU time was left over");
    let spun = Duration::from_nanos(task.exec_ns).mul_f64(share(spinner, task.pid).clamp(0.0, 1.0));
    Hop::new(
        Reason::Spin,
        format!("{} (pid {})", ev.called(task.pid, &task.comm), task.pid),
        words,
        TaskState::Running,
        spun,
    )
}
