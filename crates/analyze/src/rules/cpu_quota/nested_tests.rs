//! Trees of groups with quotas, run through a small model of a scheduler: it knows what each task got, and what it would have got.

use proptest::prelude::*;
use whyslow_model::table::{CgroupCpu, Span, Tables, Task};
use whyslow_model::timeline::{State, StateTimes};
use whyslow_model::{Finding, Kind, Meta, Recording};

use super::*;
use crate::cpu::loss::FairShareModel;
use crate::cpu::quota::MOST_CLASSES;

const MS: u64 = 1_000_000;
const PERIOD: u64 = 100;
const PERIODS: u64 = 30;
const CPUS: u32 = 8;

/// A group: its parent (an earlier one; itself: the root), its quota in ms each period, and the quota that it may save up.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    parent: usize,
    quota: Option<u64>,
    burst: u64,
}

fn group(parent: usize, quota: u64) -> Drawn {
    Drawn { parent, quota: Some(quota), burst: 0 }
}

/// The CPU time that each task got (ms), and the periods in which each group's quota ran out.
fn run(groups: &[Drawn], tasks: &[usize], luck: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut had, mut out, mut saved) =
        (vec![0; tasks.len()], vec![0; groups.len()], vec![0u64; groups.len()]);
    for period in 0..PERIODS {
        let mut left: Vec<u64> = groups
            .iter()
            .zip(&saved)
            .map(|(g, saved)| g.quota.map_or(u64::MAX, |quota| quota + saved))
            .collect();
        let mut noted = vec![false; groups.len()];
        for tick in 0..PERIOD {
            for n in 0..tasks.len() {
                // The order changes, because the last task more often finds no quota left.
                let at = (n + tick as usize + period as usize) % tasks.len();
                let way = way(groups, tasks[at]);
                let empty: Vec<usize> = way.iter().copied().filter(|g| left[*g] == 0).collect();
                if empty.is_empty() {
                    had[at] += 1;
                    way.iter().for_each(|g| left[*g] = left[*g].saturating_sub(1));
                } else {
                    // If several quotas are used up, the kernel finds one of them first, and does not check the others.
                    noted[empty[(luck + period / 4) as usize % empty.len()]] = true;
                }
            }
        }
        for at in 0..groups.len() {
            out[at] += u64::from(noted[at]);
            saved[at] = if groups[at].quota.is_some() { left[at].min(groups[at].burst) } else { 0 };
        }
    }
    (had, out)
}

/// From a group up to the root.
fn way(groups: &[Drawn], of: usize) -> Vec<usize> {
    let mut way = vec![of];
    while groups[way[way.len() - 1]].parent != way[way.len() - 1] {
        way.push(groups[way[way.len() - 1]].parent);
    }
    way
}

fn recorded(groups: &[Drawn], tasks: &[usize], luck: u64, hierarchy: u64) -> Recording {
    let (had, out) = run(groups, tasks, luck);
    let id = |at: usize| hierarchy << 56 | (at as u64 + 2);
    let path = |at: usize| way(groups, at).iter().rev().map(|g| format!("/g{g}")).collect::<String>();
    let cgroups = groups.iter().zip(0..).map(|(drawn, at)| Cgroup {
        id: id(at),
        parent: if drawn.parent == at { 1 } else { id(drawn.parent) },
        files: Some(format!("/sys/fs/cgroup{}", path(at))),
        path: path(at),
        cpu: Some(CgroupCpu {
            weight: 1024,
            quota_ns: drawn.quota.map(|quota| quota * MS),
            period_ns: PERIOD * MS,
            periods: PERIODS,
            throttled_periods: out[at],
            ..CgroupCpu::default()
        }),
        ..Cgroup::default()
    });
    let window = PERIOD * PERIODS * MS;
    let task = |(group, had): (&usize, u64)| Task {
        cpu_cgroup: id(*group),
        lived_ns: window,
        exec_ns: had * MS,
        runnable_ns: window - had * MS,
        weight: 1024,
        ..Task::default()
    };
    let tables = Tables {
        tasks: Some(tasks.iter().zip(had).map(task).collect()),
        cgroups: Some(cgroups.collect()),
        ..Tables::default()
    };
    let meta = Meta { window_ns: window, cpus: CPUS, ..Meta::default() };
    Recording { meta, tables, ..Recording::default() }
}

fn reported(groups: &[Drawn], tasks: &[usize], luck: u64) -> Vec<Finding> {
    check(&Evidence::of(&recorded(groups, tasks, luck, 0))).unwrap()
}

/// Groups whose quotas the commands lift.
fn named(groups: &[Drawn], found: &[Finding]) -> BTreeSet<usize> {
    let commands: Vec<&str> =
        found.iter().flat_map(|f| &f.fixes).filter_map(|fix| fix.command.as_deref()).collect();
    let is_named = |at: &usize| {
        let file = way(groups, *at).iter().rev().map(|g| format!("/g{g}")).collect::<String>() + "/cpu.max";
        commands.iter().any(|command| command.ends_with(&format!("/sys/fs/cgroup{file}")))
    };
    (0..groups.len()).filter(is_named).collect()
}

fn lost(found: &[Finding]) -> f64 {
    found.iter().filter(|f| f.kind == Kind::Cause).filter_map(|f| f.lost).map(|lost| lost.as_secs_f64()).sum()
}

/// As Kubernetes sets them: the pod's quota is its container's. A regression: the rule blamed no quota.
#[test]
fn of_two_that_are_alike_both_must_change() {
    let groups = [group(0, 20), group(0, 20)];
    for luck in 0..2 {
        let found = reported(&groups, &[1], luck);
        assert_eq!((found.len(), found[0].kind, found[0].victim.id.as_str()), (1, Kind::Cause, "/g0/g1"));
        assert!((lost(&found) - 2.4).abs() < 0.05, "{}", lost(&found));
        assert_eq!(named(&groups, &found), BTreeSet::from([0, 1]));
        assert!(found[0].title.ends_with("; that of /g0 must change with it"), "{}", found[0].title);
        assert!(found[0].fixes[1].text.contains("(undo: echo '20000 100000' > /sys/fs/cgroup/g0/cpu.max)"));
    }
    let v1 = check(&Evidence::of(&recorded(&groups, &[1], 0, 3))).unwrap();
    let commands: Vec<&str> = v1[0].fixes.iter().filter_map(|fix| fix.command.as_deref()).collect();
    assert_eq!(
        commands,
        ["echo -1 > /sys/fs/cgroup/g0/g1/cpu.cfs_quota_us", "echo -1 > /sys/fs/cgroup/g0/cpu.cfs_quota_us"]
    );
}

#[test]
fn the_one_that_binds_is_the_victim() {
    let none = Drawn { parent: 0, quota: None, burst: 0 };
    for (groups, binds, all) in [
        (vec![group(0, 20), none], "/g0", vec![0]),
        (vec![none, group(0, 20)], "/g0/g1", vec![1]),
        (vec![group(0, 20), group(0, 50)], "/g0", vec![0, 1]),
        (vec![group(0, 50), group(0, 20)], "/g0/g1", vec![0, 1]),
        (vec![group(0, 300), group(0, 20)], "/g0/g1", vec![1]),
        (vec![none, group(0, 40), group(1, 30), group(2, 30)], "/g0/g1/g2/g3", vec![1, 2, 3]),
    ] {
        let found = reported(&groups, &[groups.len() - 1], 1);
        assert_eq!((found.len(), found[0].victim.id.as_str()), (1, binds), "{groups:?}");
        assert_eq!(named(&groups, &found), BTreeSet::from_iter(all), "{groups:?}");
    }
}

/// One child has a quota of its own within the parent's, the other has none: each loses its own part, and is reported once.
#[test]
fn siblings_that_share_the_parents_quota_are_reported_apart() {
    let groups = [group(0, 50), group(0, 10), Drawn { parent: 0, quota: None, burst: 0 }];
    let found = reported(&groups, &[1, 2], 0);
    let victims: Vec<&str> = found.iter().map(|f| f.victim.id.as_str()).collect();
    assert_eq!(victims, ["/g0", "/g0/g1"]);
    assert!((lost(&found) - (3.0 - 0.3 + 3.0 - 1.2)).abs() < 0.1, "{}", lost(&found));
}

/// By weight the three tasks of the parent would be due a whole CPU each, and the two tasks of the child half a CPU each.
#[test]
fn loss_below_one_quota_counts_all_its_tasks_whatever_their_weights() {
    let found = reported(&[group(0, 400), group(0, 400)], &[0, 0, 0, 1, 1], 0);
    assert!((lost(&found) - 3.0).abs() < 0.1, "{}: {found:?}", lost(&found));
}

/// The four CPUs of /g0/g1 are enough for the child's task once its own quota of 20 % is lifted, and for the other tasks as long as
/// that quota stays. They are not enough for both.
#[test]
fn a_quota_that_binds_only_once_anothers_is_lifted_must_change_too() {
    let none = |parent| Drawn { parent, quota: None, burst: 0 };
    let groups = [group(0, 20), group(0, 400), none(1), none(0), group(1, 20)];
    let found = reported(&groups, &[4, 2, 1, 2, 1], 0);
    assert_eq!(named(&groups, &found), BTreeSet::from([0, 1, 4]));
}

/// By weight the child's two tasks would have two of the four CPUs. The kernel gives the quota to any of the five tasks that runs.
#[test]
fn a_quota_that_is_too_small_for_all_holds_back_those_too_whose_weight_would_do() {
    let groups = [group(0, 400), Drawn { parent: 0, quota: None, burst: 0 }, group(0, 20)];
    let found = reported(&groups, &[1, 1, 2, 1, 2], 0);
    assert_eq!(named(&groups, &found), BTreeSet::from([0, 2]));
}

/// Slices of users, each with its own quota, below one quota that is too small for all: the loss of each depends on what all the others
/// would get.
#[test]
fn of_many_quotas_below_one_those_are_looked_at_below_which_most_was_waited() {
    let mut groups = vec![group(0, 5000)];
    groups.extend((0..2 * MOST_CLASSES as u64).map(|at| group(0, 2 + 30 * (at % 2))));
    let mut recording = recorded(&groups, &(1..groups.len()).collect::<Vec<_>>(), 0, 0);
    recording.meta.cpus = 4096;
    let ev = Evidence::of(&recording);
    let fair = FairShareModel::of_losses(&ev).unwrap();
    let HeldBack { held, are_all: all } = HeldBack::of(&ev).unwrap();
    assert!(!all);
    let said = check(&ev).unwrap();
    assert!(said.iter().any(|found| found.kind == whyslow_model::Kind::CannotTell), "the rest is reported");
    let looked: BTreeSet<usize> = held.iter().flat_map(|held| held.tasks.iter().copied()).collect();
    let had = |at: usize| fair.tasks()[at].exec_ns;
    let least_had =
        |looked_at: bool| (0..groups.len() - 1).filter(|at| looked.contains(at) == looked_at).map(had).min();
    println!(
        "{} looked at; least: {:?} of them, {:?} of the rest",
        looked.len(),
        least_had(true),
        least_had(false)
    );
    assert_eq!(looked.len(), MOST_CLASSES);
    assert!((0..groups.len() - 1).filter(|at| looked.contains(at)).map(had).max() <= least_had(false));
}

/// A chain ends with the quota that the finding is about, whether the outer or the inner quota binds.
#[test]
fn chains_end_with_the_quota_that_the_finding_names() {
    for (outer, inner, binds) in [(20, 50, "/g0"), (20, 300, "/g0"), (50, 20, "/g0/g1"), (300, 20, "/g0/g1")]
    {
        let mut rec = recorded(&[group(0, outer), group(0, inner)], &[1], 1, 0);
        let window = rec.meta.window_ns;
        for task in rec.tables.tasks.iter_mut().flatten() {
            (task.pid, task.tgid, task.comm) = (5, 5, "web".into());
        }
        let row = |at: u64| Span {
            pid: 5,
            tgid: 5,
            comm: "web".into(),
            from_ns: at * PERIOD * MS,
            at_ns: (at * PERIOD + 20) * MS,
            woken_ns: (at * PERIOD + 20) * MS,
            to_ns: (at + 1) * PERIOD * MS,
            mixed: StateTimes { running_ns: 20 * MS, ..StateTimes::default() },
            state: State::Runnable,
            throttled_ns: 80 * MS,
            ..Span::default()
        };
        rec.tables.spans = Some((0..window / MS / PERIOD).map(row).collect());
        rec.meta.watched = Some(whyslow_model::timeline::Watched { pids: vec![5], ..Default::default() });
        let found = check(&Evidence::of(&rec)).unwrap();
        let ends: Vec<String> = crate::graph::chains(&rec).into_iter().map(|chain| chain.leaf.id).collect();
        assert_eq!((found[0].victim.id.as_str(), &ends[..]), (binds, &[binds.to_owned()][..]));
    }
}

/// The kernel counts only the quota that it finds first: each of the two counters may stay below the threshold.
#[test]
fn two_that_are_alike_share_out_their_counter() {
    let groups = [group(0, 20), group(0, 20)];
    let found = |out: [u64; 2]| {
        let mut rec = recorded(&groups, &[1], 0, 0);
        for (group, out) in rec.tables.cgroups.iter_mut().flatten().zip(out) {
            group.cpu.as_mut().unwrap().throttled_periods = out;
        }
        for task in rec.tables.tasks.iter_mut().flatten() {
            (task.exec_ns, task.runnable_ns, task.io_ns) = (40 * MS, 160 * MS, 2800 * MS);
        }
        check(&Evidence::of(&rec)).unwrap().len()
    };
    assert_eq!([found([2, 0]), found([0, 2]), found([1, 1]), found([1, 0])], [1, 1, 1, 0]);
}

#[test]
fn is_quiet_where_all_are_ample() {
    assert_eq!(reported(&[group(0, 300), group(0, 200)], &[1, 1], 0), vec![]);
}

proptest! {
    #[test]
    fn lost_time_is_reported_once_and_the_fixes_give_it_back(
        drawn in prop::collection::vec((0usize..6, prop::option::weighted(0.7, prop::sample::select(vec![20u64, 20, 50, 80, 120, 400])), any::<bool>()), 1..6),
        tasks in prop::collection::vec(0usize..6, 1..7),
        luck in 0u64..9,
    ) {
        let groups: Vec<Drawn> = drawn.iter().enumerate().map(|(at, (parent, quota, saves))| Drawn {
            parent: if at == 0 { 0 } else { parent % (at + 1) },
            quota: *quota,
            burst: if *saves { quota.unwrap_or(0) / 2 } else { 0 },
        }).collect();
        let tasks: Vec<usize> = tasks.iter().map(|group| group % groups.len()).collect();
        let (had, out) = run(&groups, &tasks, luck);
        let bites = |at: usize| way(&groups, at).iter().map(|g| out[*g]).sum::<u64>() * 20 >= PERIODS;
        let whole = PERIOD * PERIODS;
        let truth: f64 = tasks.iter().zip(&had).filter(|(g, _)| bites(**g)).map(|(_, had)| (whole - had) as f64 / 1000.0).sum();
        let found = reported(&groups, &tasks, luck);
        prop_assert!((lost(&found) - truth).abs() <= 0.1 * truth + 0.06, "{} of {truth}: {groups:?} {tasks:?}", lost(&found));
        let lifted: Vec<Drawn> = named(&groups, &found).into_iter().fold(groups.clone(), |mut groups, at| {
            groups[at].quota = None;
            groups
        });
        let (with, _) = run(&lifted, &tasks, luck);
        for (at, group) in tasks.iter().enumerate().filter(|(at, group)| bites(**group) && had[*at] * 20 < whole * 19) {
            prop_assert!(with[at] * 10 >= whole * 9, "task {at} of {group}: {} of {whole}: {groups:?}", with[at]);
        }
    }
}
