use whyslow_model::table::{Cgroup, CgroupCpu, Cpu, Gap, Run, Span, Tables};
use whyslow_model::{Frame, Kind, Meta, Recording};

use super::*;

/// `n` busy threads of /batch for 1 s on two CPUs, allowed on `mask`; each got `got_ms`.
fn host(n: usize, mask: &str, allowed_count: u32, got_ms: u64) -> Recording {
    let batch = Cgroup {
        id: 9,
        path: "/batch".into(),
        cpu: Some(CgroupCpu { weight: 1024, ..CgroupCpu::default() }),
        ..Cgroup::default()
    };
    let task = Task {
        cpu_cgroup: 9,
        lived_ns: 1_000_000_000,
        exec_ns: got_ms * 1_000_000,
        runnable_ns: 1_000_000_000 - got_ms * 1_000_000,
        weight: 1024,
        allowed: mask.into(),
        allowed_count,
        ..Task::default()
    };
    Recording {
        meta: Meta { window_ns: 1_000_000_000, cpus: 2, ..Meta::default() },
        tables: Tables { tasks: Some(vec![task; n]), cgroups: Some(vec![batch]), ..Tables::default() },
        ..Recording::default()
    }
}

#[test]
fn fires_when_sixteen_share_one_cpu_and_the_other_idles() {
    let rec = host(16, "1", 1, 62);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Cause, "/batch"));
    let lost = found[0].lost.unwrap().as_secs_f64();
    assert!((lost - 8.0).abs() < 0.3, "{lost}");
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "cpu1");
}

#[test]
fn is_quiet_when_all_cpus_are_allowed() {
    assert_eq!(check(&Evidence::of(&host(16, "0-1", 2, 125))), Ok(vec![]));
}

#[test]
fn is_quiet_when_the_other_cpu_is_as_full() {
    let mut rec = host(8, "1", 1, 125);
    let other = host(8, "0", 1, 125).tables.tasks.unwrap();
    rec.tables.tasks.as_mut().unwrap().extend(other);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

/// Three share one CPU and two the other: a mask lifted would shift the queue, not shorten it. Sixteen and two are
/// another matter.
#[test]
fn of_full_cpus_only_a_gross_difference_is_told() {
    let full = |n: usize, ms: u64| {
        let mut rec = host(n, "1", 1, ms);
        let other = host(2, "0-1", 2, 500).tables.tasks.unwrap();
        rec.tables.tasks.as_mut().unwrap().extend(other);
        check(&Evidence::of(&rec)).unwrap()
    };
    assert_eq!(full(3, 333), vec![]);
    let found = full(16, 62);
    let lost = found[0].lost.unwrap().as_secs_f64();
    assert!((lost - 16.0 * (1.0 - 62.0 / 111.0)).abs() < 0.2, "{lost}");
    assert!(found[0].title.contains("fewer shared each of the others"), "{}", found[0].title);
}

/// Two that wait for a disk, and now and then for each other, leave a sixth of their CPU idle: they may use it, and do not.
#[test]
fn what_others_left_idle_is_there_for_the_pinned() {
    let mut rec = host(13, "1", 1, 76);
    let swaps = Cgroup { id: 8, path: "/swaps".into(), ..rec.tables.cgroups.as_ref().unwrap()[0].clone() };
    rec.tables.cgroups.as_mut().unwrap().push(swaps);
    let mut others = host(2, "0-1", 2, 400).tables.tasks.unwrap();
    for task in &mut others {
        (task.cpu_cgroup, task.runnable_ns, task.io_ns) = (8, 350_000_000, 250_000_000);
    }
    rec.tables.tasks.as_mut().unwrap().extend(others);
    let found = check(&Evidence::of(&rec)).unwrap();
    let lost = found[0].lost.unwrap().as_secs_f64();
    let gained = 2.0 - 0.8 - 13.0 * 0.076;
    let true_loss = 13.0 * (1.0 - 13.0 * 0.076 / (13.0 * 0.076 + gained));
    assert!((lost - true_loss).abs() < 0.1 * true_loss, "{lost} of {true_loss}");
    assert_eq!(found[0].victim.id, "/batch");
}

/// It shares its CPU with half of a crowd, whose group weighs as much as its own; on the other CPU is the other half.
#[test]
fn is_quiet_about_one_task_that_would_meet_as_many_on_the_other_cpu() {
    for got in [667, 500] {
        let mut rec = host(1, "1", 1, got);
        let crowd =
            Cgroup { id: 8, path: "/crowd".into(), ..rec.tables.cgroups.as_ref().unwrap()[0].clone() };
        rec.tables.cgroups.as_mut().unwrap().push(crowd);
        let others = host(40, "0-1", 2, (2000 - got) / 40).tables.tasks.unwrap().into_iter();
        rec.tables.tasks.as_mut().unwrap().extend(others.map(|task| Task { cpu_cgroup: 8, ..task }));
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "{got} ms of CPU");
    }
}

/// The same two at nice 19: the sixteen would have most of CPU 0 but for the mask.
#[test]
fn fires_when_the_other_cpu_went_to_tasks_of_lesser_weight() {
    let mut rec = host(16, "1", 1, 62);
    let other = host(2, "0", 1, 500).tables.tasks.unwrap();
    rec.tables.tasks.as_mut().unwrap().extend(other.into_iter().map(|task| Task { weight: 15, ..task }));
    let found = check(&Evidence::of(&rec)).unwrap();
    let lost = found[0].lost.unwrap().as_secs_f64();
    assert!(found.len() == 1 && (lost - 8.0).abs() < 0.3, "{lost}");
    assert!(found[0].title.contains("lesser weight had 1.0 s"), "{}", found[0].title);
}

/// Sixteen have a cgroup and CPU 1, eight of one session have CPU 0: half of the host each is what they are due, unless
/// the session is nice.
#[test]
fn a_session_of_the_root_cgroup_shares_as_one() {
    let beside = |weight| {
        let mut rec = host(16, "1", 1, 62);
        let of_session = |task| Task {
            cpu_cgroup: 0,
            autogroup: 7,
            autogroup_weight: weight,
            exec_ns: 125_000_000,
            ..task
        };
        let others = host(8, "0-1", 2, 125).tables.tasks.unwrap();
        rec.tables.tasks.as_mut().unwrap().extend(others.into_iter().map(of_session));
        check(&Evidence::of(&rec)).unwrap().len()
    };
    assert_eq!((beside(1024), beside(15)), (0, 1));
}

#[test]
fn is_quiet_about_pinned_tasks_that_need_little() {
    let mut rec = host(16, "1", 1, 10);
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.sleep_ns) = (3_000_000, 987_000_000);
    }
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

#[test]
fn names_the_node_whose_cpus_they_are() {
    let mut rec = host(4, "1", 1, 250);
    let frame = |node: u32, cpus: &str| Frame {
        at: Duration::from_secs(1),
        name: format!("sys/devices/system/node/node{node}/cpulist"),
        bytes: cpus.as_bytes().to_vec(),
    };
    rec.frames = vec![frame(0, "0\n"), frame(1, "1\n")];
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(found[0].title.contains("CPU 1 (all of NUMA node 1)"), "{}", found[0].title);
    rec.frames = vec![frame(0, "0-1\n")];
    assert!(!check(&Evidence::of(&rec)).unwrap()[0].title.contains("node"));
}

/// The task on CPU 1 waits 330 ms, of which 300 ms behind a worker that has interrupts off.
#[test]
fn is_quiet_when_they_waited_behind_one_that_could_not_be_preempted() {
    const MS: u64 = 1_000_000;
    let mut rec = host(1, "1", 1, 670);
    let told = |rec: &Recording| check(&Evidence::of(rec)).unwrap().len();
    assert_eq!(told(&rec), 1);
    let ready = |from: u64| Span { cpu: 1, woken_ns: from * MS, to_ns: (from + 150) * MS, ..Span::default() };
    let run = |from: u64| Run { cpu: 1, pid: 9, from_ns: from * MS, to_ns: (from + 150) * MS };
    rec.tables.spans = Some(vec![ready(100), ready(600)]);
    rec.tables.runs = Some(vec![run(100), run(600)]);
    assert_eq!(told(&rec), 1, "a long slice among equals is the mask's");
    rec.tables.cpus = Some(vec![Cpu { cpu: 1, worst_gap_ns: 148 * MS, gaps: 2, ..Cpu::default() }]);
    assert_eq!(told(&rec), 0);
}

/// `times` gaps of `each_ms` on CPU 1, spread over the second.
fn gaps(times: u64, each_ms: u64) -> Vec<Gap> {
    const MS: u64 = 1_000_000;
    let step = 1000 / times.max(1);
    let at =
        |n: u64| Gap { cpu: 1, at_ns: (n * step + each_ms + 4) * MS, ns: each_ms * MS, ..Gap::default() };
    (0..times).map(at).collect()
}

/// Interrupts were off on CPU 1 for 20 ms, 15 times; a task that is bound to it waited for 330 ms.
#[test]
fn is_quiet_when_interrupts_were_off_there_for_short_times() {
    const MS: u64 = 1_000_000;
    let mut rec = host(1, "1", 1, 670);
    rec.tables.gaps = Some(gaps(15, 20));
    let ready = |n: u64| Span { cpu: 1, woken_ns: n * 66 * MS, to_ns: (n * 66 + 24) * MS, ..Span::default() };
    rec.tables.spans = Some((0..15).map(ready).collect());
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    // Its waits are known by their sum only.
    rec.tables.spans = None;
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    for gap in rec.tables.gaps.iter_mut().flatten() {
        gap.cpu = 0;
    }
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1, "they were off elsewhere");
}

/// A queue of equals on a CPU that now and then is late for its interrupts.
#[test]
fn fires_when_gaps_are_a_small_part_of_the_queue() {
    const MS: u64 = 1_000_000;
    let mut rec = host(4, "1", 1, 250);
    let ready =
        |n: u64| Span { cpu: 1, woken_ns: n * 250 * MS, to_ns: (n * 250 + 187) * MS, ..Span::default() };
    for spans in [None, Some((0..4).map(ready).collect::<Vec<_>>())] {
        (rec.tables.gaps, rec.tables.spans) = (Some(gaps(20, 2)), spans);
        let lost = check(&Evidence::of(&rec)).unwrap()[0].lost.unwrap().as_secs_f64();
        assert!((1.7..2.0).contains(&lost), "{lost}");
    }
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
}
