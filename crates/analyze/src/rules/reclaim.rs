//! Tasks had to free memory themselves because the host had none left.
//!
//! Signal: wall time in direct reclaim, by task. Lost: not measured yet. Only an experiment shows what the task would have done on a
//! host with enough memory, so this rule makes risks only. Not this rule: reclaim at a cgroup's limit.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Memory;
use whyslow_model::wait::{Detail, Reason, TaskState, WaitTarget};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, SubjectKind, seconds};

use super::Rule;
use crate::Evidence;
use crate::names;

pub const RULE: Rule = Rule {
    id: "reclaim",
    question: "Do tasks have to reclaim memory themselves before they get a page?",
    what: "The host is short of memory. kswapd does not free pages fast enough, so a task that needs a page reclaims memory itself \
           (direct reclaim), in the middle of its work.",
    how: "The time in direct reclaim, from its tracepoints, by task. Reported from 1 s a minute on, or from 900 ms at a time on. \
          No time lost is computed.",
    limits: "Risks only: the time in reclaim is known, its cost for the task's work is not. Compaction and the wait for kswapd \
             (throttle_direct_reclaim): not counted.",
    sources: "mm/page_alloc.c (__alloc_pages_direct_reclaim), mm/vmscan.c (try_to_free_pages).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, what| reason == Reason::Reclaim && *what == Detail::Target(WaitTarget::Memory),
};

/// One second a minute: less went unnoticed in practice.
const SHARE_OF_WINDOW: f64 = 1.0 / 60.0;
/// A client that waits for an answer notices one stall of this length.
const LONG_STALL: Duration = Duration::from_millis(900);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let mut by_cgroup: BTreeMap<u64, Vec<&Memory>> = BTreeMap::new();
    for row in ev.memory()?.iter().filter(|row| row.direct_reclaims > 0) {
        by_cgroup.entry(row.cgroup).or_default().push(row);
    }
    let mut found = Vec::new();
    for (id, rows) in by_cgroup {
        let group = ev.cgroup(id);
        let time: Duration = rows.iter().map(|row| Duration::from_nanos(row.direct_reclaim_ns)).sum();
        let worst = rows
            .iter()
            .map(|row| Duration::from_nanos(row.direct_reclaim_worst_ns))
            .max()
            .unwrap_or_default();
        if time < ev.window().mul_f64(SHARE_OF_WINDOW) && worst < LONG_STALL {
            continue;
        }
        let victim = group.map_or_else(whyslow_model::Subject::host, |group| ev.names().cgroup(group));
        let count = rows.iter().map(|row| row.direct_reclaims).fold(0, u64::saturating_add);
        let hop = Hop {
            reason: Reason::Reclaim,
            who: names::tasks_of(rows.len() as u64, &victim.name).into(),
            detail: "pages of the host to be freed".into(),
            state: TaskState::Running,
            lost: Duration::ZERO,
            worst: Some(worst),
            count: Some(count),
            per_call: time.checked_div(u32::try_from(count).unwrap_or(u32::MAX)),
            ..Hop::default()
        };
        found.push(
            Finding::risk(RULE.id, victim)
                .titled(format!(
                    "its tasks reclaimed memory themselves for {}, worst {}",
                    seconds(time),
                    seconds(worst)
                ))
                .raw_wait(time)
                .by(Culprit::new(SubjectKind::Kernel, "direct-reclaim", "direct reclaim")
                    .in_function("try_to_free_pages"))
                .hop(hop)
                .check(
                    "allocstall_* and pgscan_direct rise",
                    "grep -E 'allocstall|pgscan_direct |pgsteal_direct ' /proc/vmstat",
                )
                .advice(
                    "find the cgroup that uses the memory (the account by cgroup), and limit it (costs it reclaim, or a kill), or \
                     give the host more memory",
                ),
        );
    }
    Ok(found)
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let count: u64 = ev.memory()?.iter().map(|row| row.direct_reclaims).fold(0, u64::saturating_add);
    let evidence = "no task had to reclaim memory itself".to_owned();
    Ok((count == 0).then(|| RuledOut { what: "memory pressure on the host".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Cgroup, Tables};
    use whyslow_model::{Kind, Meta, Recording};

    use super::*;

    fn host(total_ms: u64, worst_ms: u64) -> Recording {
        let row = Memory {
            cgroup: 3,
            direct_reclaim_ns: total_ms * 1_000_000,
            direct_reclaim_worst_ns: worst_ms * 1_000_000,
            direct_reclaims: u64::from(total_ms > 0) * 10,
            ..Memory::default()
        };
        let web = Cgroup { id: 3, path: "/web".into(), ..Cgroup::default() };
        Recording {
            meta: Meta { window_ns: 10_000_000_000, ..Meta::default() },
            tables: Tables { memory: Some(vec![row]), cgroups: Some(vec![web]), ..Tables::default() },
            ..Recording::default()
        }
    }

    #[test]
    fn tells_of_tasks_that_free_memory_for_long() {
        let found = check(&Evidence::of(&host(400, 90))).unwrap();
        assert_eq!((found[0].kind, found[0].lost, found[0].victim.id.as_str()), (Kind::Risk, None, "/web"));
        assert_eq!(found[0].title, "its tasks reclaimed memory themselves for 400 ms, worst 90 ms");
    }

    #[test]
    fn is_quiet_when_they_hardly_do() {
        assert_eq!(check(&Evidence::of(&host(100, 20))), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&host(100, 20))), Ok(None));
        assert!(rules_out(&Evidence::of(&host(0, 0))).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let unknown = check(&Evidence::of(&Recording::default())).unwrap_err();
        assert_eq!(unknown.to_string(), "memory events was not recorded");
    }
}
