//! Tasks that are made to sleep because their cgroup is above memory.high. A heap that grows is enough for that: no page has to be
//! read again.
//!
//! The kernel charges the pages first and makes the task sleep afterwards. The further the cgroup is above its limit, the longer
//! is the sleep, up to 2 s at a time (mm/memcontrol.c, mem_cgroup_handle_over_high). With nested cgroups, the one that is furthest
//! above its own limit decides (mem_find_max_overage). A hard limit never makes tasks sleep. memory.swap.high does, and is not
//! reported here.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::resource;
use whyslow_model::table::{Cgroup, Memory, Task};
use whyslow_model::timeline::{Span, State};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Bytes, Culprit, Finding, Hop, Missing, SubjectKind, command};

use super::{RULE, WORTH_IT};
use crate::MAX_DEPTH;
use crate::hashing::Table;
use crate::memory::limit::{RAISED, file_of, files, with_others_by, with_what_fills_it};
use crate::memory::loss::{Limited, Miss, is_v1, limit_of};
use crate::memory::stacks::LIMIT_RECLAIM;
use crate::{Evidence, cpu::spread, names, wait_reasons};

/// Timelines, with the stacks that show what a wait was for.
fn timelines<'r>(ev: &Evidence<'r>) -> Result<&'r [Span], Missing> {
    ev.has_stacks().and_then(|()| ev.spans())
}

/// Sleeps that a memory limit imposed on tasks.
fn waits<'r>(ev: &Evidence<'r>, spans: &'r [Span]) -> impl Iterator<Item = &'r Span> {
    let stacks = ev.stacks().clone();
    let blocked = spans.iter().filter(|span| span.state == State::Blocked);
    blocked.filter(move |span| wait_reasons::of(span, &stacks).reason == Reason::MemoryLimit)
}

/// Whether a memory limit made a task sleep, or made it wait for its own cgroup's reclaim. Without timelines this is known only
/// where no cgroup has a limit.
pub(super) fn was_anybody(ev: &Evidence<'_>) -> Result<bool, Missing> {
    let stacks = ev.stacks().clone();
    let reclaims = |span: &Span| wait_reasons::WaitContext::of(span, &stacks).passes(LIMIT_RECLAIM);
    match timelines(ev) {
        Ok(spans) => Ok(waits(ev, spans).next().is_some() || spans.iter().any(reclaims)),
        Err(missing) if ev.cgroups()?.iter().any(|group| limit_of(group).is_some()) => Err(missing),
        Err(_) => Ok(false),
    }
}

/// A finding for each limit that made tasks sleep.
pub(super) fn findings(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let groups = ev.cgroups().unwrap_or_default();
    let spans = match timelines(ev) {
        Err(missing) if groups.iter().any(|group| high_of(group).is_some()) => return Err(missing),
        spans => spans.unwrap_or_default(),
    };
    let mut held: Table<u32, (u64, u64)> = Table::default();
    for span in waits(ev, spans) {
        let ns = span.woken_ns.saturating_sub(span.at_ns);
        let (sum, worst) = held.entry(span.pid).or_default();
        *sum = sum.saturating_add(ns.max(span.sampled_wait_ns));
        *worst = ns.max(*worst);
    }
    let mut by_group: BTreeMap<u64, Vec<&Task>> = BTreeMap::new();
    let mut nobodys: u64 = 0;
    for (pid, (ns, _)) in &held {
        let task = ev.task(*pid);
        match task.and_then(|task| Some((held_by(ev, task.memory_cgroup)?, task))) {
            Some((group, task)) => by_group.entry(group.id).or_default().push(task),
            None => nobodys = nobodys.saturating_add(*ns),
        }
    }
    by_group.values_mut().for_each(|tasks| tasks.sort_by_key(|task| task.pid));
    let of = |(id, tasks): (u64, Vec<&Task>)| finding(ev, ev.cgroup(id)?, &tasks, &held);
    let mut found: Vec<Finding> = by_group.into_iter().filter_map(of).collect();
    if Duration::from_nanos(nobodys) > ev.window().mul_f64(WORTH_IT) {
        const WHY: &str =
            "no cgroup of these tasks is above its memory.high, and none is known to have been in the window";
        found.push(Finding::cannot_tell(
            RULE.id,
            Missing::unclear("which limit on memory made tasks sleep", WHY),
        ));
    }
    Ok(found)
}

/// The cgroup's memory.high; cgroup v1 has none.
fn high_of(group: &Cgroup) -> Option<u64> {
    group.memory.as_ref().filter(|_| !is_v1(group))?.high
}

/// The cgroup that is furthest above its memory.high, among `from` and its parents. Where the memory was freed before the window
/// ended: the cgroup that was above its memory.high most often.
fn held_by<'r>(ev: &Evidence<'r>, from: u64) -> Option<&'r Cgroup> {
    let up = |group: &&'r Cgroup| ev.cgroup(group.parent);
    let all = std::iter::successors(ev.cgroup(from), up).take(MAX_DEPTH);
    let groups: Vec<(&Cgroup, u64)> = all.filter_map(|group| Some((group, high_of(group)?))).collect();
    let above = |(group, high): &(&'r Cgroup, u64)| {
        let used = used(group);
        (used > *high).then(|| (*group, used as f64 / (*high).max(1) as f64))
    };
    let times = |(group, _): &(&'r Cgroup, u64)| {
        let file = format!("{}/memory.events.local", files(group).trim_start_matches('/'));
        let times = ev.flat_delta(&file, "high").ok()?;
        (times > 0).then_some((*group, times as f64))
    };
    let most = |all: &mut dyn Iterator<Item = (&'r Cgroup, f64)>| all.max_by(|(_, a), (_, b)| a.total_cmp(b));
    let now = most(&mut groups.iter().filter_map(above));
    now.or_else(|| most(&mut groups.iter().filter_map(times))).map(|(group, _)| group)
}

fn used(group: &Cgroup) -> u64 {
    group.memory.as_ref().map_or(0, |memory| memory.usage)
}

/// `None`: no task lost a noticeable time.
fn finding(
    ev: &Evidence<'_>,
    group: &Cgroup,
    tasks: &[&Task],
    held: &Table<u32, (u64, u64)>,
) -> Option<Finding> {
    let of = |task: &Task| held.get(&task.pid).copied().unwrap_or_default();
    let all: u64 = tasks.iter().map(|task| of(task).0).fold(0, u64::saturating_add);
    let worst = tasks.iter().map(|task| of(task).1).max().unwrap_or(0);
    let loss = spread::lost(tasks, |task| of(task).0, all as f64);
    let least = ev.window().mul_f64(WORTH_IT);
    let high = high_of(group).filter(|_| loss.high > least)?;
    let (limit, victim) = (Bytes(high), ev.names().cgroup(group));
    let uses = ev.memory_uses(group).ok();
    let filled = uses.map(|uses| uses.notable()).unwrap_or_default();
    let is = if used(group) > high { "is" } else { "was" };
    let what = format!("its tasks were made to sleep: it {is} above its memory.high of {limit}{filled}");
    let found = match loss.low > least {
        true => Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(what)
            .on(resource::memory_limit(&group.path))
            .share_of(loss.lived)
            .between(loss.low, loss.high),
        false => Finding::risk(RULE.id, victim.clone())
            .titled(format!("{what}; their own sleeps are long enough to absorb it")),
    };
    let file = file_of(group, true);
    let hop = Hop {
        reason: Reason::MemoryLimit,
        who: names::tasks_of(tasks.len() as u64, &victim.name).into(),
        detail: format!("its group to be below its memory.high of {limit}").into(),
        state: TaskState::Uninterruptible,
        lost: loss.likely,
        worst: Some(Duration::from_nanos(worst)),
        count: None,
        ..Hop::default()
    };
    let found = found
        .raw_wait(Duration::from_nanos(all))
        .by(Culprit::new(SubjectKind::Limit, file.clone(), format!("memory limit of {limit}")).at_file(file))
        .hop(hop)
        .check("high rises", command!("cat {}", format!("{}/memory.events", files(group))));
    let raised = |found| with_fixes(found, ev, group, high, tasks);
    Some(with_what_fills_it(found, uses, &files(group), tasks, raised))
}

/// Fixes that raise the limit above what the cgroup uses. Its memory.max has to stay above the new limit: at memory.max the kernel
/// kills.
fn with_fixes(found: Finding, ev: &Evidence<'_>, group: &Cgroup, high: u64, tasks: &[&Task]) -> Finding {
    const MIB: u64 = 1 << 20;
    let enough = used(group).saturating_add(used(group) / 4).div_ceil(MIB).saturating_mul(MIB);
    let raised = high.saturating_mul(RAISED).max(enough);
    let more = raised.saturating_sub(high);
    let limit = group.memory.as_ref().and_then(|memory| memory.limit);
    let mut found = found;
    if let Some(limit) = limit.filter(|limit| *limit <= raised) {
        let file = file_of(group, false);
        let undo = command!("echo {} > {}", limit, file);
        found = found.fix(
            format!(
                "first raise its memory.max of {}, at which the kernel kills its tasks (undo: {})",
                Bytes(limit),
                &*undo
            ),
            command!("echo {} > {}", limit.saturating_add(more), file),
        );
    }
    let file = file_of(group, true);
    let undo = command!("echo {} > {}", high, file);
    found = found.fix(
        format!(
            "raise the limit above what the cgroup uses (costs memory of the host), or make it use less (undo: {})",
            &*undo
        ),
        command!("echo {} > {}", raised, file),
    );
    let met = Limited {
        cgroup: group,
        limit: high,
        high: true,
        tasks: tasks.to_vec(),
        work: Memory::default(),
        refill: Miss::default(),
        swap: Miss::default(),
    };
    with_others_by(found, ev, &met, more)
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{CgroupMemory, Stack, Tables};
    use whyslow_model::{Kind, Meta, Recording};

    use super::super::{check, is_same, join, rules_out};
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    /// Nested cgroups, from the top: usage, memory.high, memory.max, in MiB. A task of the last one was made to sleep for `held_ms` of
    /// 3 s.
    fn host(groups: &[(u64, Option<u64>, Option<u64>)], held_ms: u64, slept_ms: u64) -> Recording {
        let paths: Vec<String> =
            (0..groups.len()).map(|at| (0..=at).map(|n| format!("/g{n}")).collect::<String>()).collect();
        let group = |(at, (usage, high, limit)): (usize, &(u64, Option<u64>, Option<u64>))| {
            let bytes = |mib: &Option<u64>| mib.map(|mib| mib * MIB);
            let memory = CgroupMemory {
                usage: usage * MIB,
                high: bytes(high),
                limit: bytes(limit),
                ..CgroupMemory::default()
            };
            Cgroup {
                id: at as u64 + 2,
                parent: at as u64 + 1,
                path: paths[at].clone(),
                files: Some(format!("/sys/fs/cgroup{}", paths[at])),
                memory: Some(memory),
                ..Cgroup::default()
            }
        };
        let task = Task {
            pid: 7,
            tgid: 7,
            comm: "heap".into(),
            memory_cgroup: groups.len() as u64 + 1,
            lived_ns: 3000 * MS,
            blocked_ns: held_ms * MS,
            sleep_ns: slept_ms * MS,
            exec_ns: (3000 - held_ms - slept_ms) * MS,
            ..Task::default()
        };
        let kernel = "schedule schedule_timeout schedule_timeout_killable __mem_cgroup_handle_over_high exit_to_user_mode_loop";
        let stack =
            Stack { id: 1, kernel: kernel.split(' ').map(str::to_owned).collect(), ..Stack::default() };
        let span = Span {
            pid: 7,
            tgid: 7,
            state: State::Blocked,
            stack: Some(1),
            woken_ns: held_ms * MS,
            to_ns: 3000 * MS,
            ..Span::default()
        };
        let tables = Tables {
            tasks: Some(vec![task]),
            cgroups: Some(groups.iter().enumerate().map(group).collect()),
            memory: Some(Vec::new()),
            samples: Some(Vec::new()),
            waits: Some(Vec::new()),
            stacks: Some(vec![stack]),
            spans: Some(Vec::from_iter((held_ms > 0).then_some(span))),
            ..Tables::default()
        };
        Recording {
            meta: Meta { window_ns: 3000 * MS, cpus: 2, ..Meta::default() },
            tables,
            ..Recording::default()
        }
    }

    fn reported(groups: &[(u64, Option<u64>, Option<u64>)], held_ms: u64) -> Vec<Finding> {
        check(&Evidence::of(&host(groups, held_ms, 0))).unwrap()
    }

    fn commands(found: &Finding) -> Vec<String> {
        found.fixes.iter().filter_map(|fix| fix.command.as_deref().map(str::to_owned)).collect()
    }

    #[test]
    fn fires_where_a_group_is_above_its_high_limit() {
        let found = reported(&[(68, Some(64), Some(256))], 1500);
        assert_eq!((found.len(), found[0].kind, found[0].victim.id.as_str()), (1, Kind::Cause, "/g0"));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 1.5).abs() < 0.05, "{lost}");
        assert_eq!(found[0].title, "its tasks were made to sleep: it is above its memory.high of 64 MiB");
        assert_eq!(found[0].culprit.as_ref().unwrap().file.as_deref(), Some("/sys/fs/cgroup/g0/memory.high"));
        assert_eq!(commands(&found[0]), [format!("echo {} > /sys/fs/cgroup/g0/memory.high", 128 * MIB)]);
    }

    #[test]
    fn its_fix_raises_the_limit_above_what_is_used_and_keeps_it_below_memory_max() {
        let of = |usage, high, limit| commands(&reported(&[(usage, Some(high), limit)], 1500)[0]);
        let [high, most] = ["high", "max"]
            .map(|name| move |mib: u64| format!("echo {} > /sys/fs/cgroup/g0/memory.{name}", mib * MIB));
        assert_eq!(of(400, 64, None), [high(500)]);
        assert_eq!(of(68, 0, None), [high(85)]);
        assert_eq!(of(68, 64, Some(70)), [most(134), high(128)]);
    }

    #[test]
    fn of_nested_groups_the_one_that_is_furthest_above_is_named_and_those_it_would_meet_next() {
        for (groups, named, with) in [
            ([(70, Some(64), None), (66, None, None)], "/g0", 0),
            ([(70, Some(256), None), (66, Some(64), None)], "/g0/g1", 0),
            ([(66, Some(64), None), (66, Some(64), None)], "/g0", 1),
            ([(66, Some(96), None), (66, Some(60), None)], "/g0/g1", 1),
            ([(200, Some(64), None), (66, Some(64), None)], "/g0", 1),
            ([(66, Some(64), None), (200, Some(64), None)], "/g0/g1", 1),
        ] {
            let found = reported(&groups, 1500);
            assert_eq!(found.len(), 1, "{groups:?}");
            let (id, fixes) = (found[0].victim.id.as_str(), found[0].fixes.len());
            assert!(fixes == 1 + with, "{groups:?}: {:?}", found[0].fixes);
            let are_alike = groups[0] == groups[1];
            assert!(id == named || are_alike && id == "/g0/g1", "{groups:?}: {id}");
        }
    }

    /// A hard limit makes no task sleep, and neither does a cgroup with room.
    #[test]
    fn cannot_tell_where_no_group_is_above_its_high_limit() {
        for groups in [&[(60, None, Some(256))][..], &[(5120, Some(10240), None), (1, Some(64), None)]] {
            let found = reported(groups, 1500);
            assert_eq!((found.len(), found[0].kind), (1, Kind::CannotTell), "{found:?}");
        }
        let mut unknown = host(&[(68, Some(64), None)], 1500, 0);
        unknown.tables.tasks = Some(Vec::new());
        assert_eq!(check(&Evidence::of(&unknown)).unwrap()[0].kind, Kind::CannotTell);
    }

    #[test]
    fn memory_that_was_given_back_is_known_from_events() {
        let mut rec = host(&[(5120, Some(10240), None), (1, Some(64), None)], 1500, 0);
        for (at, high) in [(std::time::Duration::ZERO, 3), (rec.window(), 90)] {
            let name = "sys/fs/cgroup/g0/g1/memory.events.local".to_owned();
            let bytes = format!("low 0\nhigh {high}\nmax 0\noom 0\n").into_bytes();
            rec.snapshots.push(whyslow_model::FileSnapshot { at, name, bytes });
        }
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found.len(), found[0].victim.id.as_str()), (1, "/g0/g1"));
        assert!(found[0].title.contains("it was above its memory.high of 64 MiB"), "{}", found[0].title);
    }

    #[test]
    fn is_quiet_where_nobody_was_held_or_sleeps_absorbed_it() {
        let groups = [(68, Some(64), Some(256))];
        let nobody = host(&groups, 0, 0);
        assert_eq!(check(&Evidence::of(&nobody)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&nobody)).unwrap().is_some());
        let absorbed = host(&groups, 20, 2500);
        assert_eq!(check(&Evidence::of(&absorbed)), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&absorbed)), Ok(None));
    }

    #[test]
    fn is_a_risk_where_sleeps_may_have_absorbed_it() {
        let found = check(&Evidence::of(&host(&[(68, Some(64), None)], 1500, 500))).unwrap();
        assert_eq!((found.len(), found[0].kind, found[0].lost), (1, Kind::Risk, None));
    }

    #[test]
    fn cannot_tell_without_timelines_that_nobody_was_held() {
        let mut rec = host(&[(68, Some(64), None)], 1500, 0);
        rec.tables.spans = None;
        assert!(check(&Evidence::of(&rec)).is_err());
        assert!(rules_out(&Evidence::of(&rec)).is_err());
        rec.tables.cgroups = None;
        assert!(rules_out(&Evidence::of(&rec)).is_err());
    }

    #[test]
    fn tasks_held_above_memory_high_are_reported_without_cpu_samples() {
        let mut rec = host(&[(68, Some(64), None)], 1500, 0);
        rec.tables.memory = Some(vec![Memory { cgroup: 2, pid: 7, limit_reclaims: 1, ..Memory::default() }]);
        rec.tables.samples = None;
        let kinds: Vec<Kind> = check(&Evidence::of(&rec)).unwrap().iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [Kind::CannotTell, Kind::Cause]);
    }

    /// The cgroup's own reclaim may go on for as long as it finds pages, and no task is made to sleep for the limit itself.
    #[test]
    fn reclaim_at_a_limit_is_not_ruled_out() {
        let mut rec = host(&[(64, Some(64), None)], 1500, 0);
        let kernel = "schedule_timeout reclaim_throttle shrink_node try_to_free_mem_cgroup_pages mem_cgroup_handle_over_high";
        rec.tables.stacks.as_mut().unwrap()[0].kernel = kernel.split(' ').map(str::to_owned).collect();
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
    }

    #[test]
    fn pages_that_come_back_and_tasks_that_sleep_at_one_limit_are_one_finding() {
        let held = reported(&[(68, Some(64), None)], 1500).remove(0);
        let mut pages = held.clone();
        assert!(is_same(&pages, &held));
        join(&mut pages, held.clone());
        assert_eq!(pages.lost, held.lost.map(|lost| lost * 2));
        assert!((pages.share.unwrap().ratio() - 1.0).abs() < 0.01, "{:?}", pages.share);
        assert_eq!(pages.chain.len(), 2);
        let other = reported(&[(68, Some(64), None), (200, Some(64), None)], 1500).remove(0);
        assert!(!is_same(&other, &held));
    }
}
