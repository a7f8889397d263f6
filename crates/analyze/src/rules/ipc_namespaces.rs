//! The kernel frees IPC namespaces one RCU grace period at a time, and cannot keep up with those that end.
//!
//! Signal: grace periods that the work function `free_ipc` waited for inside the unmount of each namespace's own mount (mqueue), not once for
//! all that have ended. Measured, not told by the version: kernels with a backport free them in batches. It is told where others wait for it:
//! for the table of shrinkers, which the superblocks that are left make longer.

use std::time::Duration;

use whyslow_model::timeline::Span;
use whyslow_model::work::{GraceWaits, Work};
use whyslow_model::{Culprit, Finding, Missing, Probe, RuledOut, Share, Subject, SubjectKind, seconds};

use super::Rule;
use super::expedite::expedite;
use crate::Evidence;
use crate::works::grace_periods;

pub const RULE: Rule = Rule {
    id: "ipc-namespaces",
    question: "Does the kernel free IPC namespaces one grace period at a time?",
    what: "The end of an IPC namespace (of a container, a sandbox, a judged program) is left to one work item, free_ipc. Before Linux 6.3 it waits for an RCU \
           grace period for each of them, 10 to 40 ms. If more end than that, they pile up, each with a superblock and its shrinker: each new cgroup or mount has to \
           go through a larger table of shrinkers under a lock (shrinker_rwsem) that cgroup_mutex waits for, and everything that makes or removes a cgroup becomes slow.",
    how: "Grace periods for which free_ipc waited in the window, by the function that needed them: the unmount of one namespace (kern_unmount), or free_ipc itself, once for all \
          namespaces that have ended. Reported from 20 grace periods of single namespaces on, if free_ipc was at work for half of the window or more: \
          then it cannot keep up; and if other threads waited for shrinkers (functions with this word in their stack) for 5 % of the window or more, summed over all. No time lost of its own: the tasks that wait for the locks are findings of lock-wait.",
    limits: "Timelines that were lost hide grace periods.",
    sources: "ipc/namespace.c (free_ipc; da27f796a832, v6.3: batches); fs/namespace.c (kern_unmount); mm/shrinker.c and, before v6.7, mm/vmscan.c \
              (expand_shrinker_info).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// The work function that frees them.
const FREES: &str = "free_ipc";
/// Fewer grace periods show no rule: one batch may be one namespace.
const FEW: u64 = 20;
/// Below it, the work item has time to spare.
const AT_WORK: Share = Share::percent(50);

/// A part of their names: prealloc_shrinker, reparent_shrinker_deferred, unregister_shrinker (mm/vmscan.c, mm/shrinker.c).
const SHRINKERS: &str = "shrinker";
/// Namespaces that pile up where nothing walks the table of shrinkers cost memory alone.
const LEAST_BEHIND: Share = Share::percent(5);

/// What was measured.
struct Freed {
    /// Grace periods of one namespace each, and the time in them.
    periods: u64,
    waited: Duration,
    /// Of all that had ended.
    shared: u64,
    at_work: Share,
    /// Of other threads, for shrinkers.
    behind: Duration,
    behind_share: Share,
}

fn measured(ev: &Evidence<'_>) -> Result<Freed, Missing> {
    let works = ev.works()?;
    let spans = ev.spans()?;
    ev.has_stacks()?;
    let behind = waits_for_shrinkers(ev, spans);
    let of = |function| works.iter().filter(move |row: &&Work| row.function == function);
    let ran = of(FREES).map(|row| row.ran_ns).fold(0, u64::saturating_add);
    let waits = grace_periods(ev.recording(), ev.stacks());
    let waits = waits.iter().filter(|one| one.work == FREES);
    let (shared, each): (Vec<&GraceWaits>, Vec<&GraceWaits>) = waits.partition(|one| one.caller == FREES);
    let count = |waits: &[&GraceWaits]| waits.iter().map(|one| one.count).fold(0, u64::saturating_add);
    Ok(Freed {
        periods: count(&each),
        waited: each.iter().map(|one| one.total).fold(Duration::ZERO, Duration::saturating_add),
        shared: count(&shared),
        at_work: Share::of(ran as f64 / 1e9, ev.window().as_secs_f64()),
        behind,
        behind_share: Share::of(behind.as_secs_f64(), ev.window().as_secs_f64()),
    })
}

fn waits_for_shrinkers(ev: &Evidence<'_>, spans: &[Span]) -> Duration {
    let is_behind = |span: &&Span| {
        span.work.as_deref() != Some(FREES)
            && span.sampled_wait_ns > 0
            && ev.stacks().kernel(span.stack).iter().any(|frame| frame.contains(SHRINKERS))
    };
    let waits = spans.iter().filter(is_behind).map(|span| span.sampled_wait_ns);
    Duration::from_nanos(waits.fold(0, u64::saturating_add))
}

impl Freed {
    fn one_by_one(&self) -> bool {
        self.periods >= FEW
    }

    fn is_felt(&self) -> bool {
        self.at_work >= AT_WORK && self.behind_share >= LEAST_BEHIND
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let freed = measured(ev)?;
    if freed.one_by_one()
        && freed.behind_share >= LEAST_BEHIND
        && ev.lacks_a_part(Probe::WorkItems)
        && freed.at_work < AT_WORK
    {
        let why = "work items were not timed for a part of the window";
        return Err(Missing::unclear("how long free_ipc was at work", why));
    }
    Ok(if freed.one_by_one() && freed.is_felt() { vec![finding(&freed)] } else { Vec::new() })
}

fn finding(freed: &Freed) -> Finding {
    let Freed { periods, at_work, waited, behind, .. } = freed;
    let found = Finding::risk(RULE.id, Subject::host())
        .titled(format!(
            "the kernel frees IPC namespaces one at a time: free_ipc waited for {periods} RCU grace periods ({}), one for each namespace, and was at work \
             for {at_work} of the window; other threads waited {} for shrinkers",
            seconds(*waited),
            seconds(*behind)
        ))
        .by(Culprit::new(SubjectKind::Kernel, FREES, "free_ipc, a work item that waits for a grace period for each IPC namespace"))
        .check("the grace periods of free_ipc, and what waits behind it", "whyslow work --for 10s")
        .advice("use Linux 6.3 or newer, which frees all IPC namespaces that have ended in one grace period (da27f796a832)")
        .advice(
            "start jobs without an IPC namespace of their own (no CLONE_NEWIPC: unshare without --ipc, PrivateIPC=no), or let several jobs share one; undo: \
             as before",
        );
    expedite(found).advice("more CPUs will not help: one work item frees all of them")
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let freed = measured(ev)?;
    if freed.one_by_one() {
        return Ok(None); // it does, and no thread waits for it now
    }
    let evidence = format!(
        "{FREES} waited for {} of single namespaces, and for {} of all that had ended",
        whyslow_model::counted(freed.periods, "grace period"),
        freed.shared
    );
    Ok(Some(RuledOut { what: "IPC namespaces that are freed one by one".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::{Stack, State};

    use super::*;
    use crate::evidence::fixture::Fixture;

    const MS: u64 = 1_000_000;
    /// Before v6.3, and after.
    const EACH: &[&str] = &[
        "schedule",
        "__wait_for_common",
        "synchronize_rcu",
        "kern_unmount",
        "free_ipc_ns",
        "free_ipc",
        "process_one_work",
    ];
    const BATCH: &[&str] =
        &["schedule", "__wait_for_common", "synchronize_rcu_normal", "free_ipc", "process_one_work"];

    const BEHIND: &[&str] =
        &["schedule", "rwsem_down_read_slowpath", "reparent_shrinker_deferred", "css_killed_work_fn"];

    /// One second in which free_ipc ran for `ran_ms`, in `periods` grace periods, and others waited 60 ms for shrinkers.
    fn host(stack: &[&str], periods: u64, ran_ms: u64) -> Fixture {
        let work = |function: &str, count, ran_ns| Work {
            function: function.to_owned(),
            count,
            ran_ns,
            ..Work::default()
        };
        let wait = |at: u64| Span {
            pid: 7,
            at_ns: at * 10 * MS,
            woken_ns: (at + 1) * 10 * MS,
            to_ns: (at + 1) * 10 * MS,
            state: State::Blocked,
            stack: Some(1),
            sampled_wait_ns: 10 * MS,
            work: Some(FREES.to_owned()),
            ..Span::default()
        };
        Fixture::second().with(|tables| {
            tables.works = Some(vec![work(FREES, 1, ran_ms * MS)]);
            let behind = (0..6).map(|at| Span {
                pid: 8,
                stack: Some(2),
                work: Some("css_killed_work_fn".into()),
                ..wait(at)
            });
            tables.spans = Some((0..periods).map(wait).chain(behind).collect());
            let kernel = |stack: &[&str]| stack.iter().map(|frame| (*frame).to_owned()).collect();
            let stacks = [(1, stack), (2, BEHIND)];
            let stacks = stacks.map(|(id, stack)| Stack { id, kernel: kernel(stack), user: vec![] });
            tables.stacks = Some(stacks.to_vec());
        })
    }

    #[test]
    fn fires_where_each_namespace_has_a_grace_period_of_its_own() {
        let found = check(&host(EACH, 40, 990).ev()).unwrap();
        assert!(
            found[0].title.contains("40 RCU grace periods (400 ms), one for each namespace"),
            "{}",
            found[0].title
        );
        assert_eq!((found.len(), found[0].lost), (1, None));
        assert_eq!(found[0].fixes.iter().filter(|fix| fix.command.is_some()).count(), 1);
    }

    #[test]
    fn is_quiet_where_a_batch_shares_one() {
        let host = host(BATCH, 40, 990);
        assert!(check(&host.ev()).unwrap().is_empty());
        let ruled_out = rules_out(&host.ev()).unwrap().unwrap();
        let evidence =
            "free_ipc waited for 0 grace periods of single namespaces, and for 40 of all that had ended";
        assert_eq!(ruled_out.evidence, evidence);
    }

    /// Namespaces without cgroups pile up, and no thread is slow for it.
    #[test]
    fn is_quiet_where_nothing_waits_behind_them() {
        let of_five = |tables: &mut whyslow_model::table::Tables| {
            let spans = tables.spans.as_mut().unwrap();
            spans.truncate(44);
        };
        let host = host(EACH, 40, 990).with(of_five);
        assert!(check(&host.ev()).unwrap().is_empty());
        assert!(rules_out(&host.ev()).unwrap().is_none(), "it frees them one by one all the same");
    }

    #[test]
    fn is_quiet_where_it_keeps_up_or_hardly_any_ended() {
        assert!(check(&host(EACH, 40, 400).ev()).unwrap().is_empty(), "it has time to spare");
        assert!(check(&host(EACH, 19, 990).ev()).unwrap().is_empty());
    }

    #[test]
    fn cannot_tell_where_work_items_were_not_timed_all_the_time() {
        let skipped = || {
            Missing::skipped(
                Probe::WorkItems.word(),
                "for 600 ms a CPU started too many work items to time each",
            )
        };
        let in_part = host(EACH, 40, 400).missing(skipped());
        assert!(check(&in_part.ev()).is_err());
        assert_eq!(
            check(&host(EACH, 40, 990).missing(skipped()).ev()).unwrap().len(),
            1,
            "it was at work long enough"
        );
    }

    #[test]
    fn cannot_tell_without_work_items_or_stacks() {
        assert!(check(&Fixture::second().ev()).is_err());
        let without = host(EACH, 40, 990).with(|tables| tables.stacks = None);
        assert!(check(&without.ev()).is_err());
    }
}
