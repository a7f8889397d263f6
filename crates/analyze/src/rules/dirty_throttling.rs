//! Writers are paused because too many dirty pages wait to be written back.
//!
//! Signal: the pauses of balance_dirty_pages, by task. Lost: not measured. With more dirty memory allowed, the writer would have waited
//! later or not at all; the pauses do not show which, so this rule makes risks. Not this rule: a writer that waits for its own fsync or
//! direct write (`disk-latency`, `blkio-throttle`).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "dirty-throttling",
    question: "Does the kernel pause writers because there are too many dirty pages?",
    what: "Written data stays in memory as dirty pages until it is on disk. When dirty pages pass half-way between the background \
           and the hard threshold (vm.dirty_background_ratio, vm.dirty_ratio, or those of a cgroup), the kernel pauses each write(), so \
           that writers are no faster than the disk.",
    how: "The pauses that the kernel orders (writeback:balance_dirty_pages) are summed by process. Reported from 200 ms on; there is \
          no time lost and no counterfactual.",
    limits: "Risks only: the pauses are known, the data that the disk could have written is not. A fatal signal: it ends a pause \
             early, but the ordered pause is reported.",
    sources: "mm/page-writeback.c (balance_dirty_pages); Documentation/admin-guide/sysctl/vm.rst (dirty_ratio).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::DirtyThrottling,
};

/// Shorter pauses are the kernel's usual pacing: it aims at 10 to 200 ms each (MAX_PAUSE, mm/page-writeback.c).
const WORTH_TELLING: Duration = Duration::from_millis(200);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let mut by_process: BTreeMap<u32, Duration> = BTreeMap::new();
    for row in ev.memory()? {
        *by_process.entry(row.tgid).or_default() += Duration::from_nanos(row.dirty_pause_ns);
    }
    let told = by_process.into_iter().filter(|(_, paused)| *paused >= WORTH_TELLING);
    Ok(told.map(|(pid, paused)| finding(ev, pid, paused)).collect())
}

fn finding(ev: &Evidence<'_>, pid: u32, paused: Duration) -> Finding {
    let task = ev.task(pid).or_else(|| ev.threads(pid).first().copied());
    let name = task.map_or_else(|| format!("process {pid}"), |t| ev.process_name(pid, &t.comm));
    let hop = Hop {
        reason: Reason::DirtyThrottling,
        who: name.clone().into(),
        detail: "dirty pages to be written back".into(),
        state: TaskState::IoWait,
        lost: Duration::ZERO,
        worst: None,
        count: None,
        grows_with: Some("dirty pages".into()),
        ..Hop::default()
    };
    Finding::risk(RULE.id, Subject::new(SubjectKind::Task, pid.to_string(), name))
        .titled(format!(
            "its writes were paused for {}: dirty pages pile up faster than they are written back",
            seconds(paused)
        ))
        .raw_wait(paused)
        .by(Culprit::new(SubjectKind::Kernel, "vm.dirty_ratio", "limit on dirty pages")
            .in_function("balance_dirty_pages"))
        .hop(hop)
        .check(
            "Dirty is near the threshold",
            command!(
                "grep -E 'Dirty|Writeback:' /proc/meminfo; grep nr_dirty_ /proc/vmstat; cat /proc/{}/io",
                pid
            ),
        )
        .advice("write less, or use a faster disk; more dirty memory (vm.dirty_bytes) only delays the pause")
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let paused = ev.memory()?.iter().any(|row| row.dirty_pause_ns > 0);
    let evidence = "no writer was paused".to_owned();
    Ok((!paused).then(|| RuledOut { what: "too many dirty pages".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Memory, Tables, Task};
    use whyslow_model::{Kind, Recording};

    use super::*;

    /// Two threads of process 40, each paused for `paused_ms`.
    fn host(paused_ms: u64) -> Recording {
        let row = |pid| Memory { pid, tgid: 40, dirty_pause_ns: paused_ms * 1_000_000, ..Memory::default() };
        let task = Task { pid: 40, tgid: 40, comm: "logger".into(), ..Task::default() };
        let tables =
            Tables { memory: Some(vec![row(40), row(41)]), tasks: Some(vec![task]), ..Tables::default() };
        Recording { tables, ..Recording::default() }
    }

    #[test]
    fn tells_of_a_process_whose_writes_are_paused() {
        let found = check(&Evidence::of(&host(150))).unwrap();
        assert_eq!(
            (found[0].kind, found[0].lost, found[0].victim.name.as_str()),
            (Kind::Risk, None, "logger")
        );
        assert_eq!(found[0].raw_wait, Some(Duration::from_millis(300)));
    }

    #[test]
    fn is_quiet_about_short_pauses() {
        assert_eq!(check(&Evidence::of(&host(20))), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&host(20))), Ok(None));
        assert!(rules_out(&Evidence::of(&host(0))).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let unknown = check(&Evidence::of(&Recording::default())).unwrap_err();
        assert_eq!(unknown.to_string(), "memory events was not recorded");
    }
}
