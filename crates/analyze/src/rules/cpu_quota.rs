//! A cgroup had work to do, and its CPU quota made it wait.
//!
//! Signal: throttled periods against all periods of the group's `cfs_bandwidth`, read from kernel memory, because reading `cpu.stat`
//! flushes statistics on cgroup v2. Lost: what its tasks would have got without the quota (`cpu_loss.rs`), not
//! `throttled_usec`, which counts run queues. The loss is at most one CPU for each task, and never more than the time that the task was ready
//! and not running, nor than the periods in which the quota ran out. Sleeps that get shorter when the wait before them gets longer absorb
//! that wait: a task that meets its timer's deadlines all the same has lost nothing.
//! Nested quotas that hold back the same tasks are lifted together. A quota is not named if as much would be gained while it stays.
//! Not this rule: a group that shares full CPUs with others.

use std::collections::BTreeSet;
use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::shell::Command;
use whyslow_model::table::{Cgroup, CgroupCpu};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu::loss::{LEFT_OVER, Loss};
use crate::cpu::quota::{Held, HeldBack, WORTH_IT, is_throttled, path, standing, throttled_ratio};
use crate::hashing::Table;
use crate::names;

#[cfg(test)]
mod nested_tests;

pub const RULE: Rule = Rule {
    id: "cpu-quota",
    question: "Did a CPU quota hold back a cgroup that had work to do?",
    what: "A cgroup with a CPU quota (cpu.max, cpu.cfs_quota_us) used it up, and the kernel throttled it: its tasks are taken off \
           all CPUs until the next period, although CPUs are free. The tasks are ready to run and do not run.",
    how: "cfs_bandwidth of each task's cgroup is read from kernel memory at both ends of the window (nothing is \
          flushed). Counterfactual: an ideal fair scheduler with this quota lifted, given what each task wanted; time \
          lost = task time x (1 - CPU got / CPU it would have got), less what the tasks' sleeps absorb, and at most the periods in \
          which the quota ran out; above 1 % of the window. Nested quotas that hold back the same tasks are lifted together.",
    limits: "Waits of a task that never vary: its sleeps may or may not have absorbed them, so the rule reports a range, and \
             a cause only if the lower bound is above the threshold. More than 512 sets of nested quotas: those with the longest \
             waits are examined; for the rest it cannot tell. Saved-up quota (cpu.max.burst): the kernel counts it as quota, so a \
             period in which it was enough is not one in which the quota ran out. Real-time tasks: no quota of this kind holds \
             them back. With a sched_ext scheduler: it cannot tell.",
    sources: "kernel/sched/fair.c (throttle_cfs_rq, sched_cfs_period_timer); Documentation/scheduler/sched-bwc.rst; \
              since v6.18 tasks are throttled on their way to user space (e1fad12dcb66): they count as runnable, as before.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| matches!(reason, Reason::Quota | Reason::CpuQuota),
};

/// If the tasks need less than this part of a quota in the mean, the rest can be saved up.
const ENOUGH: f64 = 0.9;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let HeldBack { held: all_held, are_all: all } = ev.held_back_by_quotas()?;
    let (cgroups, fair) = (ev.cgroups()?, ev.counterfactual()?);
    let least = WORTH_IT * ev.window().as_nanos() as f64;
    let mut found = Vec::new();
    if !*all {
        const MANY: &str = "there are more sets of nested quotas than whyslow examines; it examined those with the longest waits";
        found.push(Finding::cannot_tell(RULE.id, Missing::unclear("what the rest of the quotas cost", MANY)));
    }
    let mut reported: BTreeSet<u64> = BTreeSet::new();
    for held in all_held {
        let loss = fair.loss(&held.tasks, &held.lift());
        let loss = loss.at_most(standing(ev, fair, held));
        if loss.high.as_nanos() as f64 > least {
            reported.extend(std::iter::once(held.group.id).chain(held.with.iter().map(|group| group.id)));
            let need = fair.would_get(&held.tasks, &held.lift());
            found.push(finding(ev, held, &loss, need));
        }
    }
    // Nothing is known about quotas that were not examined. If CPUs were idle, a quota that is not reported cost nothing.
    if *all && fair.idle().as_secs_f64() < LEFT_OVER * ev.window().as_secs_f64() {
        found.extend(beside_full_cpus(ev, cgroups, reported, least));
    }
    Ok(found)
}

/// Findings about quotas beside full CPUs. More would not be read.
const MOST_BESIDE: usize = 8;

/// Quotas that ran out while the CPUs were full: lifting them would have gained hardly anything.
fn beside_full_cpus(
    ev: &Evidence<'_>,
    cgroups: &[Cgroup],
    mut reported: BTreeSet<u64>,
    least: f64,
) -> Vec<Finding> {
    let mut waited: Table<u64, f64> = Table::default();
    for task in ev.tasks().unwrap_or_default().iter().filter(|task| task.runnable_ns > 0) {
        path(ev, task.cpu_cgroup)
            .for_each(|group| *waited.entry(group.id).or_default() += task.runnable_ns as f64);
    }
    let waits = |group: &&Cgroup| waited.get(&group.id).copied().unwrap_or(0.0) > least;
    let mut bitten_ones: Vec<&Cgroup> =
        cgroups.iter().filter(|group| is_throttled(group)).filter(waits).collect();
    bitten_ones.sort_by(|a, b| {
        throttled_ratio(b).ratio().total_cmp(&throttled_ratio(a).ratio()).then(a.id.cmp(&b.id))
    });
    // Groups whose quota is reported are left out, and groups above or below these.
    let above: BTreeSet<u64> = reported.iter().flat_map(|id| path(ev, *id)).map(|group| group.id).collect();
    bitten_ones.retain(|group| !above.contains(&group.id));
    let mut found = Vec::new();
    for group in bitten_ones {
        if found.len() < MOST_BESIDE && path(ev, group.id).all(|above| !reported.contains(&above.id)) {
            reported.insert(group.id);
            found.push(beside_full(ev, group));
        }
    }
    found
}

fn beside_full(ev: &Evidence<'_>, group: &Cgroup) -> Finding {
    let quota = Quota::of(group);
    let title = format!(
        "its CPU quota ran out in {} of its periods; the CPUs were full: lifting the quota would have given its tasks hardly more",
        throttled_ratio(group)
    );
    Finding::risk(RULE.id, ev.names().cgroup(group))
        .titled(title)
        .by(Culprit::new(SubjectKind::Quota, quota.file.clone(), quota.words.clone()).at_file(quota.file))
        .check(
            "nr_throttled rises against nr_periods",
            command!("cat {}", format!("{}/cpu.stat", quota.files)),
        )
}

/// A quota, and how to lift it.
struct Quota {
    files: String,
    file: String,
    /// "20 ms of CPU time each 100 ms, and up to 10 ms saved up".
    words: String,
    lift: Command,
    undo: Command,
}

impl Quota {
    fn of(group: &Cgroup) -> Self {
        let cpu = group.cpu.clone().unwrap_or_default();
        let (quota, period) =
            (Duration::from_nanos(cpu.quota_ns.unwrap_or_default()), Duration::from_nanos(cpu.period_ns));
        let files = group.files.clone().unwrap_or_else(|| format!("<cpu cgroup>{}", group.path));
        // v1 hierarchies have a number, kept in the top byte of the id; the unified one has none.
        let v1 = group.id >> 56 != 0;
        let file = format!("{files}/{}", if v1 { "cpu.cfs_quota_us" } else { "cpu.max" });
        let value = |us: u128| if v1 { format!("{us}") } else { format!("{us} {}", period.as_micros()) };
        let none = if v1 { "-1".to_owned() } else { format!("max {}", period.as_micros()) };
        let saved = match cpu.burst_ns.unwrap_or(0) {
            0 => String::new(),
            ns => format!(", and up to {} saved up", seconds(Duration::from_nanos(ns))),
        };
        Quota {
            words: format!("{} of CPU time each {}{saved}", seconds(quota), seconds(period)),
            lift: command!("echo {} > {}", none, file),
            undo: command!("echo {} > {}", value(quota.as_micros()), file),
            files,
            file,
        }
    }
}

/// What is added to the advice if the quota is enough in the mean: the unused part can be saved up. `need`: the CPU time that its tasks
/// would use without the quota. The kernel accepts no burst above the quota (kernel/sched/core.c, tg_set_cfs_bandwidth).
fn or_save(group: &Cgroup, quota: &Quota, need: f64, window: Duration) -> String {
    let cpu = group.cpu.clone().unwrap_or_default();
    let (Some(most), Some(burst)) = (cpu.quota_ns, cpu.burst_ns) else { return String::new() };
    if burst >= most {
        return String::new();
    }
    if need >= ENOUGH * window.as_nanos() as f64 * most as f64 / cpu.period_ns.max(1) as f64 {
        return String::new();
    }
    let file = if group.id >> 56 != 0 { "cpu.cfs_burst_us" } else { "cpu.max.burst" };
    format!(
        ", or let the group save up unused quota, at most one more quota at a time (in the mean the quota is enough: {} is {}, and may be {})",
        format_args!("{}/{file}", quota.files),
        burst / 1000,
        most / 1000
    )
}

fn finding(ev: &Evidence<'_>, held: &Held<'_>, loss: &Loss, need: f64) -> Finding {
    let window = ev.window();
    let victim = ev.names().cgroup(held.group);
    let quota = Quota::of(held.group);
    // If nested quotas are alike, any of them may be the one that runs out.
    let most = std::iter::once(held.group)
        .chain(held.with.iter().copied())
        .max_by(|a, b| throttled_ratio(a).ratio().total_cmp(&throttled_ratio(b).ratio()));
    let most = most.unwrap_or(held.group);
    let noticed = loss.low.as_secs_f64() > WORTH_IT * window.as_secs_f64();
    let title = title(ev, held, most);
    let f = if noticed {
        Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(title)
            .on(resource::cpu_quota(&most.path))
            .share_of(loss.lived)
            .between(loss.low, loss.high)
    } else {
        Finding::risk(RULE.id, victim.clone())
            .titled(format!("{title}; its tasks sleep enough to have absorbed the delay"))
    };
    // If one of several nested quotas saves up, the others still hold the tasks back.
    let save = if held.with.is_empty() { or_save(held.group, &quota, need, window) } else { String::new() };
    let who = names::tasks_of(loss.tasks, &victim.name);
    let first = format!("the next period: quota {}", quota.words);
    let mut f = f
        .raw_wait(loss.raw)
        .by(Culprit::new(SubjectKind::Quota, quota.file.clone(), quota.words.clone()).at_file(quota.file))
        .hop(
            Hop::new(Reason::CpuQuota, &who, first, TaskState::Runnable, loss.likely)
                .times(loss.waits, loss.worst),
        )
        .check(
            "nr_throttled rises against nr_periods",
            command!("cat {}", format!("{}/cpu.stat", Quota::of(most).files)),
        )
        .fix(
            format!("raise or lift the quota (others may get less CPU), or run fewer threads in it{save} (undo: {})", &*quota.undo),
            quota.lift,
        );
    for group in &held.with {
        let (name, quota) = (ev.names().cgroup(group).name, Quota::of(group));
        let next = format!("the quota of {name}, which holds the tasks back as well: {}", quota.words);
        f = f.hop(Hop::new(Reason::CpuQuota, &who, next, TaskState::Runnable, Duration::ZERO)).fix(
            format!(
                "also raise or lift the quota of {name}, which would hold the tasks back next (undo: {})",
                &*quota.undo
            ),
            quota.lift,
        );
    }
    f
}

fn title(ev: &Evidence<'_>, held: &Held<'_>, most: &Cgroup) -> String {
    let whose = match most.id == held.group.id {
        true => "its CPU quota".to_owned(),
        false => format!("its CPU quota, or that of {},", ev.names().cgroup(most).name),
    };
    let names: Vec<String> = held.with.iter().map(|group| ev.names().cgroup(group).name).collect();
    let with = names::must_change(&names);
    let uncounted = std::iter::once(held.group).chain(held.with.iter().copied()).any(|group| group.uncounted);
    if uncounted && !is_throttled(most) {
        return format!(
            "{whose} ran out, how often is not known: the group was empty when the window began{with}"
        );
    }
    format!("{whose} ran out in {} of its periods{with}", throttled_ratio(most))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    // If a task waited for a quota, also for a short time or in a group that is gone now, a quota is not ruled out.
    let groups = ev.cgroups()?;
    let counted =
        |cpu: &CgroupCpu| cpu.quota_ns.is_some() && (cpu.throttled_periods > 0 || cpu.throttled_ns > 0);
    let seen = ev.spans().unwrap_or_default().iter().any(|span| span.throttled_ns > 0);
    let uncounted =
        |group: &Cgroup| group.uncounted && group.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some());
    if seen
        || groups.iter().any(uncounted)
        || groups.iter().filter_map(|group| group.cpu.as_ref()).any(counted)
    {
        return Ok(None);
    }
    let with_quota =
        groups.iter().filter(|c| c.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some())).count();
    let evidence = match with_quota {
        0 => "no cgroup with a task in it has a CPU quota".to_owned(),
        n => format!("cgroups with a CPU quota: {n}; none lost time to it"),
    };
    Ok(Some(RuledOut { what: "a CPU quota".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Span, Tables, Task};
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

    /// Forty tasks of another group fill both CPUs: without the quota the tasks of /web would have got as little.
    #[test]
    fn beside_full_cpus_a_quota_that_ran_out_is_a_risk() {
        let mut rec = host(Some(20), 10, 200);
        let crowd = Cgroup {
            id: 8,
            path: "/crowd".into(),
            cpu: Some(CgroupCpu { weight: 10_240, ..CgroupCpu::default() }),
            ..Cgroup::default()
        };
        rec.tables.cgroups.as_mut().unwrap().push(crowd);
        let one = rec.tables.tasks.as_ref().unwrap()[0].clone();
        let of_crowd = Task { cpu_cgroup: 8, exec_ns: 45_000_000, runnable_ns: 955_000_000, ..one };
        rec.tables.tasks.as_mut().unwrap().extend(vec![of_crowd; 40]);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found.len(), found[0].kind, found[0].victim.id.as_str()), (1, Kind::Risk, "/web"));
        assert!(found[0].title.contains("given its tasks hardly more"), "{}", found[0].title);
        let mut idle = rec.clone();
        idle.tables.tasks.as_mut().unwrap().truncate(5);
        for task in idle.tables.tasks.iter_mut().flatten() {
            // A timer wakes the task: its sleeps absorb all of its waits.
            (task.runnable_ns, task.sleep_ns) = (100_000_000, 850_000_000);
        }
        let found = check(&Evidence::of(&idle)).unwrap();
        assert!(found.iter().all(|found| !found.title.contains("hardly more")), "{found:?}");
        for task in rec.tables.tasks.iter_mut().flatten() {
            task.runnable_ns = 0;
        }
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "no task waited");
    }

    #[test]
    fn is_quiet_when_the_quota_is_ample() {
        let rec = host(Some(300), 0, 2000);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().evidence.contains("none lost time"));
    }

    #[test]
    fn a_quota_that_ran_out_once_is_no_cause_and_not_ruled_out() {
        let mut rec = host(Some(300), 0, 2000);
        let quota = |rec: &mut Recording, periods, throttled_periods| {
            let cpu = rec
                .tables
                .cgroups
                .iter_mut()
                .flatten()
                .filter_map(|group| group.cpu.as_mut())
                .next()
                .unwrap();
            (cpu.periods, cpu.throttled_periods) = (periods, throttled_periods);
        };
        quota(&mut rec, 45, 1);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
        // The group is gone now; the row of its task shows the throttling.
        quota(&mut rec, 45, 0);
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
        rec.tables.spans = Some(vec![Span { throttled_ns: 1, ..Span::default() }]);
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
    }

    /// Two threads compute for 150 ms and rest for 850 ms: a quota of 200 ms per second gives 20 ms in each 100 ms.
    #[test]
    fn a_quota_that_is_enough_in_the_mean_may_be_saved_up() {
        let advice = |burst_ns: Option<u64>, sleep_ms: u64| {
            let mut rec = host(Some(20), 8, 160);
            rec.tables.cgroups.as_mut().unwrap()[0].cpu.as_mut().unwrap().burst_ns = burst_ns;
            for task in rec.tables.tasks.iter_mut().flatten() {
                task.sleep_ns = sleep_ms * 1_000_000;
                task.runnable_ns = task.lived_ns - task.exec_ns - task.sleep_ns;
                // Its sleeps have one length, after waits of any length.
                for k in 0..30u64 {
                    let (wait, rest) = (5000 + 3000 * (k % 7), 10_000);
                    task.cycles += 1;
                    task.awake += wait;
                    task.rest += rest;
                    task.awake_awake += wait * wait;
                    task.awake_rest += wait * rest;
                    task.rest_rest += rest * rest;
                }
            }
            let found = check(&Evidence::of(&rec)).unwrap();
            let culprit = found[0].culprit.clone().unwrap().name;
            (found[0].fixes[0].text.clone(), culprit)
        };
        let (text, words) = advice(Some(5_000_000), 900);
        assert!(text.contains("save up unused quota"), "{text}");
        assert!(text.contains("/cpu.max.burst is 5000, and may be 20000"), "{text}");
        assert_eq!(words, "20 ms of CPU time each 100 ms, and up to 5 ms saved up");
        assert!(!advice(Some(0), 0).0.contains("save up"), "the tasks would use all of the quota");
        assert!(!advice(None, 900).0.contains("save up"), "Linux 5.10 has no such file");
        assert!(!advice(Some(20_000_000), 900).0.contains("save up"), "no more is allowed");
    }

    /// The quota ran out once. The other waits of its tasks were for CPUs that other tasks had, or for each other.
    #[test]
    fn no_more_is_lost_than_the_periods_in_which_it_ran_out() {
        let lost = |throttled| {
            let rec = host(Some(190), throttled, 800);
            let found = check(&Evidence::of(&rec)).unwrap();
            (found[0].lost.unwrap().as_secs_f64(), found[0].lost_range.unwrap().1.as_secs_f64())
        };
        // The period in which the quota ran out, and a part of the period before the window.
        let (likely, high) = lost(1);
        assert!((likely - 4.0 * 0.2).abs() < 0.01 && high < 4.0 * 0.2 + 0.01, "{likely} {high}");
        assert!(lost(9).0 > 1.5);
    }

    /// A group that a runner uses again: it was empty when the window began, and throttled during the window.
    #[test]
    fn where_counters_have_no_beginning_the_tasks_tell() {
        let check = |throttled_ms: u64| {
            let mut rec = host(Some(20), 0, 200);
            let group = &mut rec.tables.cgroups.as_mut().unwrap()[0];
            group.uncounted = true;
            group.cpu.as_mut().unwrap().periods = 0;
            for (task, pid) in rec.tables.tasks.iter_mut().flatten().zip(1..) {
                task.pid = pid;
            }
            let row = |pid| Span { pid, throttled_ns: throttled_ms * 1_000_000, ..Span::default() };
            rec.tables.spans = Some((1..=4).map(row).collect());
            check(&Evidence::of(&rec)).unwrap()
        };
        assert_eq!(check(40), vec![]);
        let found = check(600);
        assert_eq!((found.len(), found[0].kind), (1, Kind::Cause));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 3.6).abs() < 0.01, "{lost}");
        assert!(
            found[0].title.starts_with("its CPU quota ran out, how often is not known"),
            "{}",
            found[0].title
        );
    }

    /// The group was empty when the window began: its counters are about its whole life, so the rule does not report them.
    #[test]
    fn a_group_whose_counters_have_no_begin_is_not_ruled_out() {
        let mut rec = host(Some(20), 0, 200);
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
        rec.tables.cgroups.as_mut().unwrap()[0].uncounted = true;
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
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
