//! Tasks that are made to sleep because their group is above memory.high. No page need come back for that: a heap that grows
//! is enough.
//!
//! The kernel charges first and makes the task sleep on its way back to user space, the longer the further the group is
//! above its limit, up to 2 s a time (mm/memcontrol.c, mem_cgroup_handle_over_high). Of nested groups that one decides
//! which is furthest above its own (mem_find_max_overage).

use std::collections::{BTreeMap, HashMap};

use whyslow_model::table::{Cgroup, Memory, Task};
use whyslow_model::timeline::{Span, State};
use whyslow_model::{Bytes, Culprit, Finding, Hop, Missing, SubjectKind, command};

use super::nested::{RAISED, with_others};
use super::{RULE, WORTH_IT, file_of, files};
use crate::memory_loss::{Limited, Miss, limit_of};
use crate::{Evidence, kinds, names, spread};

/// Levels of cgroups that are searched.
const MAX_DEPTH: usize = 64;

/// Waits of tasks that a memory limit held back.
pub(super) fn waits<'r>(ev: &Evidence<'r>, spans: &'r [Span]) -> impl Iterator<Item = &'r Span> {
    let stacks = ev.stacks().clone();
    let blocked = spans.iter().filter(|span| span.state == State::Blocked);
    blocked.filter(move |span| kinds::of(span, &stacks).word == "memory-limit")
}

/// Whether any task was held. Without timelines that is known where no group has a limit that holds.
pub(super) fn was_anybody(ev: &Evidence<'_>) -> Result<bool, Missing> {
    let holds = |group: &Cgroup| group.memory.as_ref().is_some_and(|memory| memory.high.is_some());
    match ev.spans() {
        Ok(spans) => Ok(waits(ev, spans).next().is_some()),
        Err(missing) if ev.recording().tables.cgroups.iter().flatten().any(holds) => Err(missing),
        Err(_) => Ok(false),
    }
}

/// A finding for each limit that held somebody.
pub(super) fn findings(ev: &Evidence<'_>) -> Vec<Finding> {
    let mut held: HashMap<u32, (u64, u64)> = HashMap::new();
    for span in waits(ev, ev.spans().unwrap_or_default()) {
        let ns = span.woken_ns.saturating_sub(span.at_ns);
        let (sum, worst) = held.entry(span.pid).or_default();
        *sum = sum.saturating_add(ns.max(span.stands_ns));
        *worst = ns.max(*worst);
    }
    let mut by_group: BTreeMap<u64, Vec<&Task>> = BTreeMap::new();
    for task in held.keys().filter_map(|pid| ev.task(*pid)) {
        if let Some(group) = furthest_above(ev, task.memory_cgroup) {
            by_group.entry(group.id).or_default().push(task);
        }
    }
    let of = |(id, tasks): (u64, Vec<&Task>)| finding(ev, ev.cgroup(id)?, &tasks, &held);
    by_group.into_iter().filter_map(of).collect()
}

/// Of a group and those above it the one that is furthest above its limit, for the size of that.
fn furthest_above<'r>(ev: &Evidence<'r>, from: u64) -> Option<&'r Cgroup> {
    let up = |group: &&'r Cgroup| ev.cgroup(group.parent);
    let groups = std::iter::successors(ev.cgroup(from), up).take(MAX_DEPTH);
    let over = |group: &Cgroup| {
        let used = group.memory.as_ref().map_or(0, |memory| memory.usage) as f64;
        limit_of(group).map(|(limit, high)| (high, used / limit.max(1) as f64))
    };
    let limited = groups.filter_map(|group| Some((group, over(group)?)));
    // Who is held at memory.high is not held by a hard limit beside it.
    let most = limited.max_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    most.map(|(group, _)| group)
}

fn finding(
    ev: &Evidence<'_>,
    group: &Cgroup,
    tasks: &[&Task],
    held: &HashMap<u32, (u64, u64)>,
) -> Option<Finding> {
    let of = |task: &Task| held.get(&task.pid).copied().unwrap_or_default();
    let all: u64 = tasks.iter().map(|task| of(task).0).fold(0, u64::saturating_add);
    let worst = tasks.iter().map(|task| of(task).1).max().unwrap_or(0);
    let loss = spread::lost(tasks, |task| of(task).0, all as f64);
    if loss.low.as_secs_f64() <= WORTH_IT * ev.window().as_secs_f64() {
        return None;
    }
    let (bytes, high) = limit_of(group)?;
    let (limit, victim) = (Bytes(bytes), names::cgroup_subject(group));
    let file = file_of(group, high);
    let undo = command!("echo {} > {}", bytes, file);
    let hop = Hop {
        edge: "memory-limit".into(),
        who: format!("{} tasks of {}", tasks.len(), victim.name),
        waits_for: format!("its group to be below its memory limit of {limit}"),
        state: "blocked".into(),
        lost: loss.likely,
        worst: Some(std::time::Duration::from_nanos(worst)),
        count: None,
        per_call: None,
        grows_with: None,
    };
    let found = Finding::cause(RULE.id, victim, loss.likely)
        .titled(format!("its tasks were made to sleep: it is above its memory limit of {limit}"))
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .by(Culprit::new(SubjectKind::Limit, file.clone(), format!("memory limit of {limit}"))
            .at_file(file.clone()))
        .hop(hop)
        .check("high rises", command!("cat {}", format!("{}/memory.events", files(group))))
        .fix(
            format!("raise the limit to what it uses, or make it use less (undo: {})", &*undo),
            command!("echo {} > {}", bytes.saturating_mul(RAISED), file),
        );
    let met = Limited {
        cgroup: group,
        limit: bytes,
        high,
        tasks: tasks.to_vec(),
        work: Memory::default(),
        refill: Miss::default(),
        swap: Miss::default(),
    };
    Some(with_others(found, ev, &met))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{CgroupMemory, Stack, Tables};
    use whyslow_model::{Kind, Meta, Recording};

    use super::super::{check, rules_out};
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    /// Groups one below the other, from the top: usage, memory.high, memory.max, in MiB. A task of the last was held `held_ms` of 3 s.
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

    fn told(groups: &[(u64, Option<u64>, Option<u64>)], held_ms: u64) -> Vec<Finding> {
        check(&Evidence::of(&host(groups, held_ms, 0))).unwrap()
    }

    #[test]
    fn fires_where_a_group_is_above_its_high_limit() {
        let found = told(&[(68, Some(64), Some(256))], 1500);
        assert_eq!((found.len(), found[0].kind, found[0].victim.id.as_str()), (1, Kind::Cause, "/g0"));
        let lost = found[0].lost.unwrap().as_secs_f64();
        assert!((lost - 1.5).abs() < 0.05, "{lost}");
        assert_eq!(found[0].title, "its tasks were made to sleep: it is above its memory limit of 64 MiB");
        assert_eq!(found[0].culprit.as_ref().unwrap().file.as_deref(), Some("/sys/fs/cgroup/g0/memory.high"));
        let commands: Vec<&str> = found[0].fixes.iter().filter_map(|fix| fix.command.as_deref()).collect();
        assert_eq!(commands, [format!("echo {} > /sys/fs/cgroup/g0/memory.high", 128 * MIB)]);
    }

    #[test]
    fn of_nested_groups_the_one_that_is_furthest_above_is_named_and_those_it_would_meet_next() {
        for (groups, named, with) in [
            ([(70, Some(64), None), (66, None, None)], "/g0", 0),
            ([(70, Some(256), None), (66, Some(64), None)], "/g0/g1", 0),
            ([(66, Some(64), None), (66, Some(64), None)], "/g0", 1),
            ([(66, Some(96), None), (66, Some(60), None)], "/g0/g1", 1),
        ] {
            let found = told(&groups, 1500);
            assert_eq!(found.len(), 1, "{groups:?}");
            let (id, fixes) = (found[0].victim.id.as_str(), found[0].fixes.len());
            assert!(fixes == 1 + with, "{groups:?}: {:?}", found[0].fixes);
            assert!(id == named || with == 1 && id.starts_with("/g0"), "{groups:?}: {id}");
        }
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
    fn cannot_tell_without_timelines_that_nobody_was_held() {
        let mut rec = host(&[(68, Some(64), None)], 1500, 0);
        rec.tables.spans = None;
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&rec)).is_err());
    }
}
