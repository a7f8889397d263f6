//! A cgroup had work to do, and its CPU quota made it wait.
//!
//! Signal: throttled against all periods of the group's `cfs_bandwidth`, read from kernel memory: reading `cpu.stat`
//! flushes statistics on cgroup v2. Lost: what its tasks would have got without the quota (`cpu_loss.rs`), not
//! `throttled_usec`, which counts run queues. Not this rule: a group that shares full CPUs with others.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::table::Cgroup;
use whyslow_model::{Culprit, Finding, Hop, Missing, Not, Share, SubjectKind, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu_loss::{Lift, Loss, World, subtree};
use crate::names;
use crate::shell::quoted;

/// The rule.
pub const RULE: Rule = Rule {
    id: "cpu-quota",
    question: "Did a CPU quota hold back a cgroup that had work to do?",
    what: "A cgroup with a CPU quota (cpu.max, cpu.cfs_quota_us) used it up and was taken off all CPUs until the next \
           period, although CPUs were free. Its tasks stand still, ready to run.",
    how: "cfs_bandwidth of each task's cgroup is read from kernel memory at both ends of the window (nothing is \
          flushed). Counterfactual: an ideal fair scheduler with this quota lifted, given what each task wanted; time \
          lost = task time x (1 - CPU got / CPU it would have got), at most one CPU a task, never more than it was \
          ready and not running. Sleeps that get shorter when the wait before them gets longer absorb it: a task that \
          meets its timer's deadlines all the same has lost nothing.",
    limits: "If the waits of a task never vary, its sleeps could have absorbed them or not: then a range is given, and \
             a cause only if its lower end is above the threshold. cpu.max.burst is in the kernel's counters already.",
    sources: "kernel/sched/fair.c (throttle_cfs_rq, sched_cfs_period_timer); Documentation/scheduler/sched-bwc.rst; \
              since v6.18 tasks are throttled on their way to user space (e1fad12dcb66): they count as runnable there, too.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
};

/// A quota that runs out less often than this is doing its job unnoticed.
const NOTICEABLE: Share = Share::percent(5);
/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let cgroups = ev.cgroups()?;
    let world = World::of(ev)?;
    let mut found = Vec::new();
    for group in cgroups {
        let Some((quota, bitten)) = quota_that_bit(group) else { continue };
        let inside = subtree(cgroups, group.id);
        let in_it = |(at, task): (usize, &whyslow_model::table::Task)| {
            inside.contains(&task.cpu_cgroup).then_some(at)
        };
        let victims: BTreeSet<usize> = world.tasks().iter().enumerate().filter_map(in_it).collect();
        let lift = Lift { quotas: BTreeSet::from([group.id]), ..Lift::default() };
        let loss = world.loss(&victims, &lift);
        if loss.high.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() {
            found.push(finding(group, quota, bitten, &loss, ev.window()));
        }
    }
    Ok(found)
}

fn quota_that_bit(group: &Cgroup) -> Option<(Duration, Share)> {
    let cpu = group.cpu.as_ref()?;
    let bitten = Share::of(cpu.throttled_periods as f64, cpu.periods as f64);
    (bitten >= NOTICEABLE).then_some((Duration::from_nanos(cpu.quota_ns?), bitten))
}

fn finding(group: &Cgroup, quota: Duration, bitten: Share, loss: &Loss, window: Duration) -> Finding {
    let cpu = group.cpu.clone().unwrap_or_default();
    let period = Duration::from_nanos(cpu.period_ns);
    let files = group.files.clone().unwrap_or_else(|| format!("<cpu cgroup>{}", group.path));
    // v1 hierarchies have a number, kept in the top byte of the id; the unified one has none.
    let v1 = group.id >> 56 != 0;
    let file = format!("{files}/{}", if v1 { "cpu.cfs_quota_us" } else { "cpu.max" });
    let shown = quoted(&file);
    let victim = names::cgroup_subject(group);
    let limit = format!("{} of CPU time each {}", seconds(quota), seconds(period));
    let noticed = loss.low.as_secs_f64() > WORTH_IT * window.as_secs_f64();
    let mut f = if noticed {
        Finding::cause(RULE.id, victim, loss.likely)
            .titled(format!("its CPU quota ran out in {bitten} of its periods"))
    } else {
        Finding::risk(RULE.id, victim).titled(format!(
            "its CPU quota ran out in {bitten} of its periods; its tasks sleep enough to have absorbed the delay"
        ))
    };
    if noticed {
        f = f.share_of(loss.lived).between(loss.low, loss.high);
    }
    let quota_text = |us: u128| if v1 { format!("{us}") } else { format!("'{us} {}'", period.as_micros()) };
    let undo = quota_text(quota.as_micros());
    let none = if v1 { "-1".to_owned() } else { format!("'max {}'", period.as_micros()) };
    f.raw_wait(loss.raw)
        .by(Culprit::new(SubjectKind::Quota, file.clone(), limit.clone()).at_file(file.clone()))
        .hop(Hop {
            edge: "cpu-quota".into(),
            who: format!("{} tasks of {}", loss.tasks, names::cgroup_subject(group).name),
            waits_for: format!("the next period: quota {limit}"),
            state: "runnable".into(),
            lost: loss.likely,
            worst: Some(loss.worst),
            count: Some(loss.waits),
            per_call: None,
            grows_with: None,
        })
        .check(
            "nr_throttled rises against nr_periods",
            format!("cat {}", quoted(&format!("{files}/cpu.stat"))),
        )
        .fix(
            format!("raise or lift the quota, or run fewer threads in it (undo: echo {undo} > {shown})"),
            format!("echo {none} > {shown}"),
        )
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<Not>, Missing> {
    let with_quota =
        ev.cgroups()?.iter().filter(|c| c.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some()));
    let evidence = match with_quota.count() {
        0 => "no cgroup with a task in it has one".to_owned(),
        n => format!("{n} cgroups have one, and none lost time to it"),
    };
    Ok(Some(Not { what: "a CPU quota".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{CgroupCpu, Tables, Task};
    use whyslow_model::{Kind, Meta, Recording};

    use super::*;

    /// Four busy threads of /web for 1 s on two CPUs; they got `got_ms` of CPU together.
    fn host(quota_ms: Option<u64>, throttled: u64, got_ms: u64) -> Recording {
        let quota_ns = quota_ms.map(|ms| ms * 1_000_000);
        let cpu = CgroupCpu {
            weight: 1024,
            quota_ns,
            period_ns: 100_000_000,
            periods: 10,
            throttled_periods: throttled,
            ..CgroupCpu::default()
        };
        let web = Cgroup { id: 7, path: "/web".into(), cpu: Some(cpu), ..Cgroup::default() };
        let exec_ns = got_ms * 250_000;
        let runnable_ns = 1_000_000_000 - exec_ns;
        let task = Task {
            cpu_cgroup: 7,
            lived_ns: 1_000_000_000,
            exec_ns,
            runnable_ns,
            weight: 1024,
            allowed_count: 2,
            ..Task::default()
        };
        Recording {
            meta: Meta { window_ns: 1_000_000_000, cpus: 2, ..Meta::default() },
            tables: Tables { tasks: Some(vec![task; 4]), cgroups: Some(vec![web]), ..Tables::default() },
            ..Recording::default()
        }
    }

    #[test]
    fn fires_when_the_quota_runs_out() {
        let rec = host(Some(20), 8, 200);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Cause, "/web"));
        // Each would have got half a CPU and got 1/20: 4 x (1 - 0.05 / 0.5).
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 3.6).abs() < 0.01, "{lost}");
        assert_eq!(found[0].title, "its CPU quota ran out in 80 % of its periods");
    }

    #[test]
    fn is_quiet_when_the_quota_is_ample() {
        let rec = host(Some(300), 0, 2000);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().evidence.contains("none lost time"));
    }

    #[test]
    fn is_quiet_when_there_is_no_quota_and_the_cpus_are_full() {
        assert_eq!(check(&Evidence::of(&host(None, 8, 2000))), Ok(vec![]));
    }

    #[test]
    fn is_only_a_risk_when_sleeps_may_have_absorbed_the_wait() {
        let mut rec = host(Some(20), 8, 200);
        for task in rec.tables.tasks.iter_mut().flatten() {
            (task.runnable_ns, task.sleep_ns) = (300_000_000, 650_000_000);
        }
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let unknown = check(&Evidence::of(&Recording::default())).unwrap_err();
        assert_eq!(unknown.to_string(), "task list was not recorded");
    }
}
