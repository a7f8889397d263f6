use whyslow_model::table::{Cgroup, CgroupCpu, Cpu, Gap, Run, Span, Tables};
use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

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

/// Tasks that are bound to the CPU of a real-time task get the time that it leaves.
#[test]
fn a_real_time_task_that_has_their_cpu_is_who_they_wait_for() {
    let found = |ms: u64| {
        let mut rec = host(2, "1", 1, 1000 - ms);
        let urgent = Task {
            policy: 1,
            pid: 6,
            tgid: 6,
            comm: "hog".into(),
            cpu_cgroup: 0,
            runnable_ns: 0,
            ..host(1, "1", 1, ms).tables.tasks.unwrap().remove(0)
        };
        rec.tables.tasks.as_mut().unwrap().push(urgent);
        check(&Evidence::of(&rec)).unwrap().remove(0)
    };
    let told = found(950);
    assert_eq!((told.culprit.as_ref().unwrap().id.as_str(), told.victim.id.as_str()), ("6", "/batch"));
    assert!(told.title.starts_with("hog, a real-time task, had CPU 1 for 0.9 s"), "{}", told.title);
    assert_eq!(found(300).culprit.unwrap().id, "cpu1", "it leaves them most of it");
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

/// Three tasks share one CPU and two the other: without the mask the queue would move, not get shorter. Sixteen and two tasks are
/// reported.
#[test]
fn of_full_cpus_only_a_gross_difference_is_reported() {
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
    assert!(found[0].title.contains("fewer tasks shared each of the other CPUs"), "{}", found[0].title);
}

/// Two tasks that wait for a disk, and sometimes for each other, leave a sixth of their CPU idle: they may use it, but do not.
#[test]
fn idle_time_left_by_unpinned_tasks_is_room_for_pinned_tasks() {
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

/// One task shares its CPU with half of the tasks of a crowd; the other half is on the other CPU. Both groups have the same weight.
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

/// The same two tasks run at nice 19: without the mask the sixteen would have most of CPU 0.
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

/// Sixteen tasks of a cgroup have CPU 1, eight tasks of one session have CPU 0: each side is due half of the host, unless the
/// session is nice.
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
    let frame = |node: u32, cpus: &str| FileSnapshot {
        at: Duration::from_secs(1),
        name: format!("sys/devices/system/node/node{node}/cpulist"),
        bytes: cpus.as_bytes().to_vec(),
    };
    rec.snapshots = vec![frame(0, "0\n"), frame(1, "1\n")];
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(found[0].title.contains("CPU 1 (all of NUMA node 1)"), "{}", found[0].title);
    rec.snapshots = vec![frame(0, "0-1\n")];
    assert!(!check(&Evidence::of(&rec)).unwrap()[0].title.contains("node"));
}

/// A kernel worker that had CPU 1 while the task that is bound to CPU 1 waited.
fn worker() -> Task {
    Task { pid: 9, exec_ns: 330_000_000, kthread: true, ..host(1, "1", 1, 0).tables.tasks.unwrap().remove(0) }
}

/// The task on CPU 1 waits 330 ms, 300 ms of it behind a worker that has interrupts off.
#[test]
fn is_quiet_when_they_waited_behind_one_that_could_not_be_preempted() {
    const MS: u64 = 1_000_000;
    let mut rec = host(1, "1", 1, 670);
    rec.tables.tasks.as_mut().unwrap().push(worker());
    let reported = |rec: &Recording| check(&Evidence::of(rec)).unwrap().len();
    assert_eq!(reported(&rec), 1);
    let ready = |from: u64| Span { cpu: 1, woken_ns: from * MS, to_ns: (from + 150) * MS, ..Span::default() };
    let run = |from: u64| Run { cpu: 1, pid: 9, from_ns: from * MS, to_ns: (from + 150) * MS };
    rec.tables.spans = Some(vec![ready(100), ready(600)]);
    rec.tables.runs = Some(vec![run(100), run(600)]);
    assert_eq!(reported(&rec), 1, "a long time slice of an equal task counts for the mask");
    rec.tables.cpus = Some(vec![Cpu { cpu: 1, worst_gap_ns: 148 * MS, gaps: 2, ..Cpu::default() }]);
    assert_eq!(reported(&rec), 0);
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
    rec.tables.tasks.as_mut().unwrap().push(worker());
    rec.tables.gaps = Some(gaps(15, 20));
    let ready = |n: u64| Span { cpu: 1, woken_ns: n * 66 * MS, to_ns: (n * 66 + 24) * MS, ..Span::default() };
    rec.tables.spans = Some((0..15).map(ready).collect());
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    // Now only the sum of its waits is known.
    rec.tables.spans = None;
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    for gap in rec.tables.gaps.iter_mut().flatten() {
        gap.cpu = 0;
    }
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1, "interrupts were off on another CPU");
}

/// Equal tasks queue for a CPU that is sometimes late for its interrupts.
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

/// One task is bound to each CPU. One task is always busy. The other is busy for 60 % of its time, in short pieces of work; when it is
/// woken it waits for its CPU to leave idle. The time left over is on its own CPU.
#[test]
fn idle_time_of_their_own_cpus_is_no_room() {
    let mut rec = host(1, "0", 1, 600);
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.runnable_count, task.sleep_ns) = (100_000_000, 900, 300_000_000);
    }
    rec.tables.tasks.as_mut().unwrap().extend(host(1, "1", 1, 1000).tables.tasks.unwrap());
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    // The same if the other CPU is idle, too: the task would have waited as long there.
    rec.tables.tasks.as_mut().unwrap()[1].exec_ns = 100_000_000;
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

fn with_stat(mut rec: Recording, idle_ms: [u64; 2]) -> Recording {
    rec.meta.clock_ticks = 1000;
    let stat = |idle: [u64; 2]| {
        let row = |name: &str, idle: u64| format!("{name} {} 0 0 {idle} 0 0 0 0 0 0\n", 1000 - idle);
        row("cpu ", (idle[0] + idle[1]).min(1000)) + &row("cpu0", idle[0]) + &row("cpu1", idle[1])
    };
    let frame = |at, bytes: String| FileSnapshot { at, name: "proc/stat".into(), bytes: bytes.into_bytes() };
    let zero = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n".to_owned();
    rec.snapshots.extend([frame(Duration::ZERO, zero), frame(Duration::from_secs(1), stat(idle_ms))]);
    rec
}

/// Four tasks share CPU 1, which is full. Only idle time of CPU 0 counts.
#[test]
fn room_is_counted_on_the_cpus_outside_the_mask() {
    let reported = |idle: [u64; 2]| check(&Evidence::of(&with_stat(host(4, "1", 1, 250), idle))).unwrap();
    assert!(
        reported([900, 0])[0].title.contains("while 900 ms of CPU time was left idle"),
        "{:?}",
        reported([900, 0])[0].title
    );
    assert_eq!(reported([20, 0]), vec![], "CPU 0 was full of interrupts");
}

/// whyslow itself had the other CPU: without whyslow that CPU would have been free. Any other program would have had it all the same.
#[test]
fn cpu_time_of_whyslow_itself_counts_as_room() {
    let mut rec = with_stat(host(4, "1", 1, 250), [20, 0]);
    let looks = Task { tgid: 7, pid: 8, ..host(1, "0-1", 2, 870).tables.tasks.unwrap()[0].clone() };
    rec.tables.tasks.as_mut().unwrap().push(looks);
    let reported = check(&Evidence::of(&rec)).unwrap();
    assert!(
        reported[0].title.ends_with("while fewer tasks shared each of the other CPUs"),
        "{}",
        reported[0].title
    );
    rec.meta.own_pids = vec![7];
    let reported = check(&Evidence::of(&rec)).unwrap();
    assert!(reported[0].title.contains("while 890 ms of CPU time was left idle"), "{}", reported[0].title);
    let lost = reported[0].lost.unwrap().as_secs_f64();
    assert!((0.8..=2.2).contains(&lost), "{lost}");
}

/// whyslow had CPU 0 for a moment, and each of the tasks that fill CPU 0 was ready to use that time.
#[test]
fn cpu_time_that_whyslow_took_from_ready_tasks_is_no_room() {
    for mask in ["0-1", "0"] {
        let mut rec = with_stat(host(16, "1", 1, 62), [0, 0]);
        let web = Cgroup { id: 8, path: "/web".into(), ..rec.tables.cgroups.as_ref().unwrap()[0].clone() };
        rec.tables.cgroups.as_mut().unwrap().push(web);
        let others = host(16, mask, mask.len() as u32, 57).tables.tasks.unwrap();
        let others = others.into_iter().zip(100..).map(|(task, pid)| Task { cpu_cgroup: 8, pid, ..task });
        let looks = Task { tgid: 7, pid: 8, ..host(1, "0-1", 2, 80).tables.tasks.unwrap()[0].clone() };
        rec.tables.tasks.as_mut().unwrap().extend(others.chain([looks]));
        rec.meta.own_pids = vec![7];
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "others on {mask}");
    }
}

/// A real-time task has the other CPU, and whyslow had a part of the tasks' own CPU: without whyslow they would have had that part, with or
/// without the mask.
#[test]
fn cpu_time_that_whyslow_took_inside_the_mask_is_no_loss_by_the_mask() {
    let with_own = |own_ms: u64, each_ms: u64, idle: [u64; 2]| {
        let mut rec = with_stat(host(3, "1", 1, each_ms), idle);
        let urgent = Task {
            policy: 1,
            pid: 6,
            runnable_ns: 0,
            ..host(1, "0", 1, 1000 - idle[0]).tables.tasks.unwrap().remove(0)
        };
        let looks = Task { tgid: 7, pid: 8, ..host(1, "0-1", 2, own_ms).tables.tasks.unwrap().remove(0) };
        rec.tables.tasks.as_mut().unwrap().extend([urgent, looks]);
        rec.meta.own_pids = vec![7];
        check(&Evidence::of(&rec))
    };
    for (own_ms, each_ms) in [(400, 200), (600, 133), (100, 300), (0, 333)] {
        assert_eq!(with_own(own_ms, each_ms, [0, 0]), Ok(vec![]), "{own_ms} ms of its own");
    }
    for (own_ms, each_ms) in [(400, 200), (100, 300)] {
        let reported = with_own(own_ms, each_ms, [900, 0]).unwrap();
        let lost = reported[0].lost.unwrap().as_secs_f64();
        assert!((0.5..=1.5).contains(&lost), "{own_ms} ms of its own: {lost}");
    }
}

/// The task is alone on its CPU, apart from whyslow's own thread. On the other CPU it would meet the tasks of lesser weight.
#[test]
fn whyslow_thread_makes_no_mask_crowded() {
    let mut rec = host(1, "1", 1, 667);
    let lesser = host(4, "0-1", 2, 330).tables.tasks.unwrap().into_iter().zip(100..);
    let looks = Task { tgid: 7, pid: 8, ..host(1, "1", 1, 10).tables.tasks.unwrap()[0].clone() };
    let tasks = rec.tables.tasks.as_mut().unwrap();
    tasks.extend(lesser.map(|(task, pid)| Task { weight: 256, pid, ..task }).chain([looks]));
    rec.meta.own_pids = vec![7];
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

#[test]
fn whyslow_is_no_victim() {
    let mut rec = host(2, "1", 1, 250);
    for (task, id) in rec.tables.tasks.iter_mut().flatten().zip(7..) {
        (task.pid, task.tgid) = (id, id);
    }
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1);
    rec.meta.own_pids = vec![7, 8];
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

/// All CPUs outside the mask were taken while the tasks waited; the idle time came after that.
#[test]
fn room_must_have_been_there_while_they_waited() {
    const MS: u64 = 1_000_000;
    let mut rec = host(2, "1", 1, 250);
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.sleep_ns) = (250 * MS, 0);
    }
    let wait = Span { woken_ns: 0, to_ns: 250 * MS, ..Span::default() };
    rec.tables.spans = Some(vec![wait]);
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1);
    rec.tables.runs = Some(vec![Run { cpu: 0, pid: 7, from_ns: 0, to_ns: 400 * MS }]);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

/// No reported run was on CPU 0, but some runs were dropped: these may have had CPU 0 exactly while the tasks waited.
#[test]
fn runs_that_were_let_go_are_not_taken_for_room() {
    const MS: u64 = 1_000_000;
    let mut rec = host(2, "1", 1, 250);
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.sleep_ns) = (250 * MS, 0);
    }
    rec.tables.spans = Some(vec![Span { woken_ns: 0, to_ns: 250 * MS, ..Span::default() }]);
    let idle = |ms: u64, mut rec: Recording| {
        let of_all = with_stat(rec.clone(), [ms, 500]);
        (rec.snapshots, rec.meta) = (of_all.snapshots, of_all.meta);
        check(&Evidence::of(&rec))
    };
    assert_eq!(idle(400, rec.clone()).unwrap().len(), 1);
    let why = whyslow_model::Missing::skipped(whyslow_model::timeline::RUNS_IN_PART, "too many");
    rec.missing = vec![why.into()];
    let reported = idle(400, rec.clone()).unwrap_err().to_string();
    assert!(reported.starts_with("cannot tell whether other CPUs were free"), "{reported}");
    // CPU 0 was idle for so long that it must have been idle while the tasks waited.
    let found = idle(950, rec.clone()).unwrap();
    let (low, high) = found[0].lost_range.unwrap();
    assert!(found[0].kind == Kind::Cause && low < high, "{found:?}");
    rec.tables.runs = Some(vec![Run { cpu: 0, pid: 7, from_ns: 0, to_ns: 400 * MS }]);
    assert_eq!(idle(400, rec), Ok(vec![]), "the remaining rows show that it was taken");
}

/// 16 tasks run on CPU 1; CPU 0 is isolated, a partition's, or the kubelet's: the tasks are not bound, and CPU 0 is no room for them.
#[test]
fn cpus_that_are_kept_for_somebody_are_no_room() {
    let frame = |name: &str, text: &str| FileSnapshot {
        at: Duration::from_secs(1),
        name: name.into(),
        bytes: text.as_bytes().to_vec(),
    };
    for (file, text) in [
        ("sys/devices/system/cpu/isolated", "0\n"),
        ("sys/devices/system/cpu/nohz_full", "0\n"),
        ("var/lib/kubelet/cpu_manager_state", r#"{"policyName":"static","defaultCpuSet":"1"}"#),
    ] {
        let mut rec = host(16, "1", 1, 62);
        rec.snapshots = vec![frame(file, text)];
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "{file}");
        assert!(
            FairShareModel::of(&Evidence::of(&rec)).unwrap().idle() < Duration::from_millis(20),
            "{file}"
        );
    }
    let mut rec = host(16, "1", 1, 62);
    for (task, pid) in rec.tables.tasks.iter_mut().flatten().zip(1..) {
        task.pid = pid;
    }
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "pid 1 has that mask, and all tasks inherited it");
}

/// Four of eight CPUs are offline, but masks still contain them: 2-5 allows two of the four online CPUs.
#[test]
fn offline_cpus_of_a_mask_do_not_count() {
    let mut rec = host(8, "2-5", 4, 250);
    rec.meta.cpus = 4;
    let online = FileSnapshot {
        at: Duration::from_secs(1),
        name: "sys/devices/system/cpu/online".into(),
        bytes: b"0-3\n".to_vec(),
    };
    rec.snapshots = vec![online];
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(found[0].title.contains("may use CPU 2-3 only, while 2.0 s"), "{}", found[0].title);
    assert!(
        found[0].fixes[0].command.as_deref().unwrap().starts_with("taskset -acp 0-3 "),
        "{:?}",
        found[0].fixes
    );
}

/// Real-time tasks get what they want; nice values and groups of other tasks do not count against them.
#[test]
fn cpu_time_of_real_time_tasks_is_no_room() {
    let mut rec = host(4, "1", 1, 250);
    let other = Task { policy: 1, weight: 15, ..host(1, "0", 1, 1000).tables.tasks.unwrap().remove(0) };
    rec.tables.tasks.as_mut().unwrap().push(other);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    rec.tables.tasks.as_mut().unwrap()[4].policy = 0;
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1, "at nice 19 it would give way");
}

#[test]
fn cannot_tell_where_a_program_decides_who_runs() {
    let mut rec = host(16, "1", 1, 62);
    let frame = |file: &str, text: &str| FileSnapshot {
        at: Duration::from_secs(1),
        name: format!("sys/kernel/sched_ext/{file}"),
        bytes: text.as_bytes().to_vec(),
    };
    rec.snapshots = vec![frame("state", "enabled\n"), frame("root/ops", "rusty\n")];
    let why = check(&Evidence::of(&rec)).unwrap_err().to_string();
    assert!(why.contains("sched_ext program (rusty) decides which task runs"), "{why}");
    rec.snapshots.push(frame("switch_all", "0\n"));
    assert!(check(&Evidence::of(&rec)).is_ok(), "no task chose it");
    rec.tables.tasks.as_mut().unwrap()[0].policy = 7;
    assert!(check(&Evidence::of(&rec)).is_err());
    rec.snapshots = vec![frame("state", "disabled\n")];
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1);
}

/// Seen on an emulated 6.18: a sched_ext program decided for all tasks, no policy showed that, and the file was skipped because reading
/// it took too long.
#[test]
fn cannot_tell_where_nobody_asked_whether_a_program_decides() {
    const FILES: &str = "sys/kernel/sched_ext/{state,switch_all,root/ops}";
    let mut rec = host(16, "1", 1, 62);
    rec.missing = vec![Missing::skipped(FILES, "reading took too long on this host").into()];
    let why = check(&Evidence::of(&rec)).unwrap_err().to_string();
    assert!(why.contains("sched_ext") && why.contains("took too long"), "{why}");
    assert!(rules_out(&Evidence::of(&rec)).is_err());
    let none = Missing::NotInKernel { what: FILES.into(), needs: "CONFIG_SCHED_CLASS_EXT".into() };
    rec.missing = vec![none.into()];
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1, "a kernel without sched_ext");
}

/// Seen on 5.10 with PREEMPT_RT: tasks and CPU time were known, but their waits were reported as zero.
#[test]
fn cannot_tell_where_nobody_saw_tasks_wait() {
    let mut rec = host(16, "1", 1, 62);
    rec.missing = vec![Missing::NotInKernel { what: "off-CPU stacks".into(), needs: "a lock".into() }.into()];
    rec.tables.spans = None;
    let why = check(&Evidence::of(&rec)).unwrap_err().to_string();
    assert_eq!(why, "this kernel has no off-CPU stacks; it needs a lock");
    assert_eq!(rules_out(&Evidence::of(&rec)).unwrap_err().to_string(), why);
}

#[test]
fn times_that_no_clock_counts_make_no_sum_overflow() {
    let mut rec = host(16, "1", 1, 62);
    rec.meta.window_ns = u64::MAX;
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.lived_ns) = (u64::MAX, u64::MAX);
    }
    // Any answer will do: the test is that no sum overflows.
    drop(check(&Evidence::of(&rec)));
}

/// Two event loops on one CPU: their sleeps may or may not have absorbed their waits. The other CPU is idle.
#[test]
fn waits_that_sleeps_may_have_absorbed_are_not_ruled_out() {
    let mut rec = host(2, "1", 1, 400);
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.runnable_ns, task.sleep_ns) = (300_000_000, 300_000_000);
    }
    let idle = with_stat(rec.clone(), [1000, 200]);
    assert_eq!(check(&Evidence::of(&idle)), Ok(vec![]));
    assert_eq!(rules_out(&Evidence::of(&idle)), Ok(None));
    let full = with_stat(rec, [0, 200]);
    let said = rules_out(&Evidence::of(&full)).unwrap().unwrap().evidence;
    assert!(said.contains("about as full as their own"), "{said}");
}

/// Groups of one task each, bound to one of two full CPUs.
#[test]
fn groups_that_nobody_looked_at_are_not_ruled_out() {
    let of = |groups: usize| {
        let mut rec = host(0, "1", 1, 0);
        for at in 0..groups {
            let mask = if at % 2 == 0 { "0" } else { "1" };
            let task = host(1, mask, 1, 2000 / groups as u64).tables.tasks.unwrap().remove(0);
            let task = Task { cpu_cgroup: 100 + at as u64, ..task };
            rec.tables.tasks.as_mut().unwrap().push(task);
        }
        rules_out(&Evidence::of(&with_stat(rec, [0, 0]))).unwrap()
    };
    assert!(of(MOST_GROUPS).is_some());
    assert_eq!(of(MOST_GROUPS + 2), None);
}
