use whyslow_model::table::{Cgroup, CgroupCpu, Tables, Task};
use whyslow_model::{Kind, Meta, Recording};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn group(id: u64, path: &str, weight: u64) -> Cgroup {
    let cpu = CgroupCpu { weight, period_ns: 100_000_000, ..CgroupCpu::default() };
    Cgroup {
        id,
        parent: 1,
        path: path.to_owned(),
        cpu: Some(cpu),
        files: Some(format!("/sys/fs/cgroup{path}")),
        ..Cgroup::default()
    }
}

/// A task that wanted a CPU all the time, and had this much of one.
fn busy_task(pid: u32, cpu_cgroup: u64, exec_ns: u64) -> Task {
    Task {
        pid,
        tgid: pid,
        ppid: 1,
        comm: format!("p{pid}"),
        cpu_cgroup,
        lived_ns: SECOND,
        exec_ns,
        runnable_ns: SECOND.saturating_sub(exec_ns),
        weight: 1024,
        allowed_count: 2,
        ..Task::default()
    }
}

fn host(tasks: Vec<Task>, groups: Vec<Cgroup>) -> Recording {
    let root = Cgroup {
        id: 1,
        path: "/".into(),
        cpu: Some(CgroupCpu { weight: 1024, ..CgroupCpu::default() }),
        ..Cgroup::default()
    };
    let cgroups = std::iter::once(root).chain(groups).collect();
    Recording {
        meta: Meta { window_ns: SECOND, cpus: 2, ..Meta::default() },
        tables: Tables { tasks: Some(tasks), cgroups: Some(cgroups), ..Tables::default() },
        ..Recording::default()
    }
}

/// Eight compilers of one group on two CPUs.
fn compilers() -> Vec<Task> {
    (10..18).map(|pid| busy_task(pid, 5, SECOND / 4)).collect()
}

#[test]
fn a_service_that_gets_less_than_it_would_is_a_victim_and_its_weight_is_told() {
    let mut tasks = compilers();
    tasks.iter_mut().for_each(|task| task.exec_ns = 249_500_000);
    tasks.push(busy_task(99, 6, 4_000_000));
    let rec = host(tasks, vec![group(5, "/build", 1024), group(6, "/web", 2)]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!(found[0].victim.id, "/web");
    assert_eq!(found[0].culprit.as_ref().unwrap().id, "/build");
    let lost = found[0].lost.unwrap().as_secs_f64();
    assert!((0.95..1.0).contains(&lost), "it would have had a CPU: {lost}");
    assert!(
        found[0].title.contains("keeps both CPUs full, 4 threads for each: the weight of "),
        "{}",
        found[0].title
    );
    assert!(found[0].fixes[0].text.contains("undo"));
}

#[test]
fn many_equal_tasks_of_one_tree_are_busy() {
    let rec = host(compilers(), vec![group(5, "/build", 1024)]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(
        (found.len(), found[0].kind, found[0].victim.id.as_str()),
        (1, Kind::Busy, "/build"),
        "{found:?}"
    );
    assert!(
        found[0].title.contains("keeps both CPUs full, 4 threads for each; no other group of tasks waited"),
        "{}",
        found[0].title
    );
    assert_eq!(found[0].lost, None);
}

#[test]
fn two_that_both_fill_the_cpus_are_busy_and_none_is_a_victim() {
    let tasks = (10..14).map(|pid| busy_task(pid, 5 + u64::from(pid % 2), SECOND / 2)).collect();
    let rec = host(tasks, vec![group(5, "/a", 1024), group(6, "/b", 1024)]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Busy), "{found:?}");
    assert!(found[0].title.contains("keeps both CPUs full together with /b"), "{}", found[0].title);
}

#[test]
fn a_neighbour_that_got_what_it_wanted_lost_nothing() {
    let mut tasks = compilers();
    tasks.iter_mut().for_each(|task| task.exec_ns = 245_000_000);
    // It sleeps most of the time, and waited a little for a CPU.
    tasks.push(Task {
        exec_ns: 40_000_000,
        runnable_ns: 1_000_000,
        sleep_ns: 959_000_000,
        ..busy_task(99, 6, 0)
    });
    let rec = host(tasks, vec![group(5, "/build", 1024), group(6, "/web", 1024)]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Busy), "{found:?}");
    assert!(
        found[0].title.contains("no other group of tasks lost more than 0 % of its time"),
        "{}",
        found[0].title
    );
}

#[test]
fn is_quiet_where_cpu_time_was_left_over_and_says_how_much() {
    let rec = host(vec![busy_task(10, 5, SECOND)], vec![group(5, "/a", 1024)]);
    // The other CPU was idle.
    let mut rec = rec;
    rec.tables.tasks.as_mut().unwrap()[0].runnable_ns = 0;
    let ev = Evidence::of(&rec);
    assert_eq!(check(&ev), Ok(Vec::new()));
    assert!(rules_out(&ev).unwrap().unwrap().evidence.contains("50 % of the CPUs' time"));
}

#[test]
fn without_tasks_it_cannot_tell() {
    assert!(check(&Evidence::of(&Recording::default())).is_err());
}

#[test]
fn cgroup_with_a_third_of_the_cpu_time_but_little_demand_is_a_victim() {
    let mut tasks: Vec<Task> =
        (10..26).map(|pid| busy_task(pid, 5 + u64::from(pid % 2), SECOND / 12)).collect();
    tasks.push(busy_task(99, 7, 2 * SECOND / 3));
    let rec = host(tasks, vec![group(5, "/a", 1024), group(6, "/b", 1024), group(7, "/web", 1024)]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(
        (found.len(), found[0].kind, found[0].victim.id.as_str()),
        (1, Kind::Cause, "/web"),
        "{found:?}"
    );
}

#[test]
fn of_many_that_want_little_each_nobody_is_accused() {
    let tasks = (10..16).map(|pid| busy_task(pid, 0, SECOND / 3)).collect();
    let rec = host(tasks, Vec::new());
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Busy), "{found:?}");
    assert!(
        found[0]
            .title
            .contains("keeps both CPUs full together with p11, p12 and 3 others, 3 threads for each"),
        "{}",
        found[0].title
    );
    assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
}

#[test]
fn small_task_beside_a_busy_kernel_thread_does_not_fill_the_cpus() {
    let worker = Task { kthread: true, ..busy_task(3, 0, 19 * SECOND / 10) };
    let rec = host(vec![worker, busy_task(10, 5, SECOND / 10)], vec![group(5, "/web", 1024)]);
    assert_eq!(check(&Evidence::of(&rec)), Ok(Vec::new()));
    assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None), "nor were they free");
}

#[test]
fn a_little_of_many_is_no_loss_and_who_chose_to_yield_has_none() {
    let crowd = || -> Vec<Task> {
        let tasks = compilers().into_iter();
        tasks.map(|task| Task { exec_ns: 249_000_000, runnable_ns: 751_000_000, ..task }).collect()
    };
    let nice = Task { weight: 15, ..busy_task(99, 6, 8_000_000) };
    let groups = || vec![group(5, "/build", 1024), group(6, "/boinc", 2)];
    let rec = host(crowd().into_iter().chain([nice.clone()]).collect(), groups());
    assert_eq!(check(&Evidence::of(&rec)).unwrap()[0].kind, Kind::Busy);
    let other = Task { weight: 1024, ..nice };
    let rec = host(crowd().into_iter().chain([other]).collect(), groups());
    assert_eq!(check(&Evidence::of(&rec)).unwrap()[0].kind, Kind::Cause);
}

/// Twenty equal processes and a service that one parent has started, all in one group.
fn one_job() -> Vec<Task> {
    let crowd =
        (10..30).map(|pid| Task { ppid: 3, comm: "yes".into(), ..busy_task(pid, 5, 99 * SECOND / 1000) });
    let mut tasks: Vec<Task> = crowd.collect();
    // The service computes for half a millisecond at a time, and sleeps for one.
    let service = Task { sleep_ns: 40_000_000, sleep_count: 40, ..busy_task(99, 5, 20_000_000) };
    tasks.push(Task { ppid: 3, comm: "svc".into(), runnable_ns: 940_000_000, ..service });
    tasks
}

fn told(tasks: Vec<Task>, path: &str, spans: Vec<whyslow_model::timeline::Span>) -> Vec<Finding> {
    let mut rec = host(tasks, vec![group(5, path, 1024)]);
    rec.tables.spans = Some(spans);
    check(&Evidence::of(&rec)).unwrap()
}

#[test]
fn a_service_beside_equal_processes_that_its_parent_has_started_is_a_victim() {
    let found = told(one_job(), "/job", Vec::new());
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!(found[0].victim.id, "99");
    assert!(found[0].culprit.as_ref().unwrap().name.contains("yes"), "{found:?}");
    assert!(found[0].title.contains("19 more of this name"), "{}", found[0].title);
}

#[test]
fn related_or_short_lived_processes_belong_to_the_crowd() {
    use whyslow_model::timeline::{Context, Span, Waker};
    let is_busy = |found: Vec<Finding>| found.len() == 1 && found[0].kind == Kind::Busy;
    let woken = |context| {
        let waker = Some(Waker { pid: 12, tgid: 12, context, ..Waker::default() });
        vec![Span { pid: 99, tgid: 99, waker, ..Span::default() }]
    };
    assert!(is_busy(told(one_job(), "/job", woken(Context::Task))));
    assert!(!is_busy(told(one_job(), "/job", woken(Context::Hardirq))), "its own timer");
    let with = |change: fn(&mut Task)| {
        let mut tasks = one_job();
        change(tasks.last_mut().unwrap());
        told(tasks, "/job", Vec::new())
    };
    assert!(is_busy(with(|task| task.ppid = 10)), "a child of one of them");
    assert!(is_busy(with(|task| task.lived_ns = SECOND / 2)), "a job of a build");
    assert!(is_busy(with(|task| task.comm = "yes".into())));
    assert!(is_busy(told(one_job(), "/system.slice/jobs.service", Vec::new())), "one service");
    let mut build = one_job();
    build.iter_mut().filter(|task| task.pid < 30).for_each(|task| task.lived_ns = SECOND / 2);
    assert!(is_busy(told(build, "/job", Vec::new())), "processes that come and go");
}

#[test]
fn a_long_job_of_a_build_is_a_part_of_it() {
    let mut tasks = one_job();
    let linker = tasks.last_mut().unwrap();
    (linker.sleep_ns, linker.sleep_count, linker.runnable_ns) = (0, 0, 980_000_000);
    assert_eq!(told(tasks, "/job", Vec::new())[0].kind, Kind::Busy);
}

#[test]
fn threads_of_one_process_are_no_crowd_and_without_timelines_nobody_stands_apart() {
    let mut tasks = one_job();
    tasks.iter_mut().filter(|task| task.pid < 30).for_each(|task| task.tgid = 10);
    assert_eq!(told(tasks, "/job", Vec::new())[0].kind, Kind::Busy);
    let rec = host(one_job(), vec![group(5, "/job", 1024)]);
    assert_eq!(check(&Evidence::of(&rec)).unwrap()[0].kind, Kind::Busy);
}

/// The runner has started the job, in a session of its own. A process of the job that lost nothing does not turn the runner into a stranger.
#[test]
fn runner_that_started_the_crowd_is_not_its_victim() {
    let mut tasks = one_job();
    let sibling = tasks.last_mut().unwrap();
    (sibling.exec_ns, sibling.runnable_ns, sibling.sleep_ns) = (1_000_000, 1000, 990_000_000);
    let process = |pid: u32, ppid: u32, exec_ns: u64| Task { ppid, ..busy_task(pid, 5, exec_ns) };
    tasks.push(process(2, 1, 20_000_000));
    tasks.push(Task { runnable_ns: 0, sleep_ns: SECOND, ..process(3, 2, 0) });
    tasks.iter_mut().for_each(|task| task.session = if task.pid == 2 { 2 } else { 3 });
    let found = told(tasks, "/job", Vec::new());
    assert_eq!((found.len(), found[0].kind), (1, Kind::Busy), "{found:?}");
}

/// Another task waits for a file lock of the nice task, which is ready for a CPU all the time.
#[test]
fn nice_lock_holder_is_a_victim_where_a_normal_task_waits_for_it() {
    use whyslow_model::timeline::{Context, Span, Stack, State, StateTimes, Waker};
    let nice = Task { weight: 15, comm: "maps".into(), ..busy_task(99, 6, 8_000_000) };
    let client = |weight| Task {
        weight,
        exec_ns: 1_000_000,
        runnable_ns: 0,
        sleep_ns: 990_000_000,
        sleep_count: 1,
        ..busy_task(70, 7, 0)
    };
    let row = |pid: u32, (at_ns, woken_ns): (u64, u64), state| Span {
        pid,
        tgid: pid,
        at_ns,
        woken_ns,
        to_ns: SECOND,
        state,
        mixed: StateTimes { running_ns: at_ns, ..StateTimes::default() },
        ..Span::default()
    };
    let lock = ["schedule", "locks_lock_inode_wait", "__do_sys_flock"].map(str::to_owned);
    let told = |weight: u64| {
        let tasks = compilers().into_iter().chain([nice.clone(), client(weight)]);
        let groups = [group(5, "/build", 1024), group(6, "/maps", 2), group(7, "/shop", 1024)];
        let mut rec = host(tasks.collect(), groups.to_vec());
        let waker = Some(Waker { pid: 99, tgid: 99, context: Context::Task, ..Waker::default() });
        let waits = Span { waker, stack: Some(1), ..row(70, (1_000_000, 991_000_000), State::Sleep) };
        rec.tables.spans = Some(vec![waits, row(99, (500_000, 500_000), State::Runnable)]);
        rec.tables.stacks = Some(vec![Stack { id: 1, kernel: lock.to_vec(), user: Vec::new() }]);
        check(&Evidence::of(&rec)).unwrap()
    };
    let found = told(1024);
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!(found[0].victim.id, "/maps");
    assert_eq!(told(15)[0].kind, Kind::Busy, "all that wait for it yield, too");
}
