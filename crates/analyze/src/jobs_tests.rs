use whyslow_model::churn::{Churn, ChurnKind};
use whyslow_model::job::{Phase, PhaseAccount};
use whyslow_model::task::Phases as Marks;
use whyslow_model::timeline::{Span, Stack, State, StateTimes};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;
const RUNNER: u32 = 10;
const RMDIR: u32 = 84;
const CLONE: u32 = 56;
const WAIT4: u32 = 61;
const IN_CGROUP: u32 = 1;
const STACKS: [&[&str]; 5] = [
    &[
        "schedule",
        "__mutex_lock",
        "cgroup_kn_lock_live",
        "cgroup_rmdir",
        "kernfs_iop_rmdir",
        "vfs_rmdir",
        "do_rmdir",
    ],
    &["schedule", "do_wait", "kernel_wait4"],
    &["schedule", "wait_on_buffer", "ext4_rmdir", "vfs_rmdir", "do_rmdir"],
    &["schedule", "down_write", "do_rmdir"],
    &["schedule", "down_write", "create_new_namespaces", "copy_process", "kernel_clone"],
];

/// A process that is older than the window.
fn runner() -> Task {
    Task { pid: RUNNER, tgid: RUNNER, ppid: 1, comm: "runner".into(), begun_ns: 5, ..Task::default() }
}

/// Begun at `from` ms of the window; set-up, program and teardown of so many ms each, all asleep.
fn job(pid: u32, parent: u32, comm: &str, from: u64, [setup, program, teardown]: [u64; 3]) -> Task {
    let asleep = |ms: u64| StateTimes { sleep_ns: ms * MS, ..StateTimes::default() };
    let lived = (setup + program + teardown) * MS;
    Task {
        pid,
        tgid: pid,
        ppid: parent,
        creator: parent,
        comm: comm.into(),
        parent: "runner".into(),
        begun_ns: 1_000 * MS + from * MS,
        born: true,
        ended: true,
        lived_ns: lived,
        sleep_ns: lived,
        exec_ns: 2 * MS,
        phases: Some(Box::new(Marks {
            executed_at_ns: Some((from + setup) * MS),
            setup: asleep(setup),
            ending_at_ns: (from + setup + program) * MS,
            teardown: asleep(teardown),
        })),
        ..Task::default()
    }
}

fn wait(pid: u32, syscall: u32, from: u64, ms: u64) -> Span {
    Span {
        pid,
        tgid: pid,
        at_ns: from * MS,
        woken_ns: (from + ms) * MS,
        to_ns: (from + ms) * MS,
        state: State::Blocked,
        stack: Some(IN_CGROUP),
        sampled_wait_ns: ms * MS,
        syscall: Some(syscall),
        ..Span::default()
    }
}

fn made(what: ChurnKind, count: u64) -> Churn {
    Churn { tgid: RUNNER, begun_ns: 5, comm: "runner".into(), what: what.word().into(), count, away_ns: 0 }
}

fn of(tasks: Vec<Task>, spans: Vec<Span>, churn: Vec<Churn>) -> (Vec<JobAccount>, Vec<ChurnAccount>) {
    let stacks = STACKS.iter().zip(1..).map(|(stack, id)| {
        let kernel = stack.iter().map(|frame| (*frame).to_owned()).collect();
        Stack { id, kernel, user: Vec::new() }
    });
    let fixture = Fixture::second().with(|tables| {
        tables.tasks = Some(tasks);
        tables.spans = Some(spans);
        tables.stacks = Some(stacks.collect());
        tables.churn = Some(churn);
    });
    jobs(&fixture.ev())
}

/// Three jobs: a wrapper, and a program in it.
fn three() -> Vec<Task> {
    let pairs = (0..3_u32).flat_map(|n| {
        let from = u64::from(n) * 100;
        let wrapper = job(20 + n, RUNNER, "wrap", from, [10, 80, 0]);
        [wrapper, job(30 + n, 20 + n, "prog", from + 20, [5, 40, 5])]
    });
    [runner()].into_iter().chain(pairs).collect()
}

fn waited(job: &JobAccount, phase: Phase) -> u128 {
    job.phases.iter().filter(|one| one.phase == phase).map(|one| one.waited.as_millis()).sum()
}

#[test]
fn a_job_is_the_child_of_an_older_process_with_all_that_it_started() {
    let (jobs, _) = of(three(), Vec::new(), Vec::new());
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let job = &jobs[0];
    assert_eq!((job.starter.as_str(), job.tgid, job.command.as_str()), ("runner", RUNNER, "wrap"));
    assert_eq!((job.count, job.open, job.processes, job.known), (3, 0, 6, 6));
    assert_eq!((job.wall.half.as_millis(), job.wall.worst.as_millis()), (90, 90), "of the first process");
    assert_eq!(job.cpu.half.as_millis(), 4, "of all its processes");
    assert_eq!(
        [Phase::SetUp, Phase::Program, Phase::Teardown].map(|phase| waited(job, phase)),
        [45, 360, 15]
    );
}

#[test]
fn starters_of_one_name_are_told_together() {
    let mut tasks = three();
    tasks.push(Task { pid: 11, tgid: 11, ..runner() });
    tasks.push(job(50, 11, "wrap", 400, [10, 80, 0]));
    let churn = vec![made(ChurnKind::CgroupMade, 3), Churn { tgid: 11, ..made(ChurnKind::CgroupMade, 1) }];
    let (jobs, churn) = of(tasks, Vec::new(), churn);
    assert_eq!((jobs.len(), jobs[0].starters, jobs[0].tgid, jobs[0].count), (1, 2, 0, 4));
    assert_eq!((churn.len(), churn[0].starters, churn[0].tgid, churn[0].count), (1, 2, 0, 4));
}

#[test]
fn two_jobs_are_no_account_and_what_has_no_older_process_above_is_none() {
    let two: Vec<Task> = three().into_iter().filter(|task| task.pid != 22 && task.pid != 32).collect();
    assert_eq!(of(two, Vec::new(), Vec::new()).0, []);
    let threads = three().into_iter().map(|task| Task { kthread: true, ..task }).collect();
    assert_eq!(of(threads, Vec::new(), Vec::new()).0, []);
}

/// The command began in the window, too.
#[test]
fn a_command_that_whyslow_runs_is_the_starter_of_its_children() {
    let own = Task { pid: 9, tgid: 9, comm: "whyslow".into(), begun_ns: 3, ..Task::default() };
    let command = Task { ended: false, phases: None, ..job(60, 9, "make", 0, [1, 900, 0]) };
    let children = (0..3_u32).map(|n| job(61 + n, 60, "cc", 100, [10, 80, 0]));
    let tasks = [own, command].into_iter().chain(children).collect();
    let mut fixture = Fixture::second().with(|tables| tables.tasks = Some(tasks));
    let started = |fixture: &Fixture| {
        let (jobs, _) = jobs(&fixture.ev());
        jobs.into_iter().map(|job| (job.starter, job.command, job.count)).collect::<Vec<_>>()
    };
    assert_eq!(started(&fixture), [], "all of it is one job of an older process");
    fixture.0.meta.own_pids = vec![9];
    assert_eq!(started(&fixture), [("make".into(), "cc".into(), 3)]);
}

#[test]
fn jobs_that_still_run_count_as_open_and_have_no_length() {
    let mut tasks = three();
    let open = Task { ended: false, phases: None, ..job(40, RUNNER, "wrap", 500, [1, 400, 0]) };
    tasks.push(open);
    tasks.push(job(41, 40, "prog", 500, [1, 100, 0]));
    let waits = vec![wait(41, 0, 520, 50)];
    let (jobs, _) = of(tasks, waits, Vec::new());
    assert_eq!((jobs[0].count, jobs[0].open, jobs[0].wall.worst.as_millis()), (3, 1, 90));
    assert_eq!((jobs[0].processes, waited(&jobs[0], Phase::Program)), (6, 360), "of those that ended");
    assert!(jobs[0].phases.iter().all(|phase| phase.waits.is_empty()), "{jobs:?}");
}

#[test]
fn tasks_that_are_reported_together_count_with_their_mean() {
    let folded = Task {
        folded: 9,
        begun_ns: 0,
        pid: 0,
        tgid: 0,
        creator: 0,
        ..job(0, RUNNER, "true", 0, [10, 20, 0])
    };
    let (jobs, _) = of(vec![runner(), folded.clone()], Vec::new(), Vec::new());
    assert_eq!((jobs[0].count, jobs[0].wall.half.as_millis(), jobs[0].wall.total.as_millis()), (10, 3, 30));
    // Their starters are known by name only.
    let of_several = Task { ppid: 0, ..folded };
    let (jobs, _) = of(vec![runner(), of_several.clone()], Vec::new(), Vec::new());
    assert_eq!((jobs[0].count, jobs[0].starter.as_str(), jobs[0].tgid), (10, "runner", 0));
    let young = Task { comm: "runner".into(), ..job(70, 1, "", 0, [1, 1, 1]) };
    assert_eq!(
        of(vec![runner(), young, of_several], Vec::new(), Vec::new()).0,
        [],
        "it may be of the young one"
    );
}

/// Nine processes that the program of a job started, in one row.
#[test]
fn processes_of_a_job_that_are_reported_together_are_no_jobs() {
    let inner = |ppid| Task {
        folded: 8,
        pid: 0,
        tgid: 0,
        creator: 0,
        begun_ns: 0,
        parent: "prog".into(),
        ..job(0, ppid, "true", 0, [1, 2, 0])
    };
    let mut tasks = three();
    tasks.push(inner(30));
    let (jobs, _) = of(tasks, Vec::new(), Vec::new());
    assert_eq!((jobs.len(), jobs[0].count, jobs[0].processes), (1, 3, 15), "{jobs:?}");
    assert_eq!(jobs[0].cpu.total.as_millis(), 7 * 2, "of six processes, and of nine together");
    let mut tasks = three();
    tasks.push(inner(99));
    let (jobs, _) = of(tasks, Vec::new(), Vec::new());
    assert_eq!((jobs.len(), jobs[0].count), (1, 3), "its parent has no row: {jobs:?}");
}

#[test]
fn a_wait_stands_in_the_phase_in_which_it_was() {
    let spans = vec![wait(30, 0, 21, 3), wait(30, 0, 30, 20), wait(30, 0, 66, 4)];
    let (jobs, _) = of(three(), spans, Vec::new());
    let times = |phase: &PhaseAccount| phase.waits.iter().map(|wait| wait.total.as_millis()).sum::<u128>();
    let told: Vec<_> = jobs[0].phases.iter().map(|phase| (phase.phase, times(phase))).collect();
    assert_eq!(told, [(Phase::SetUp, 3), (Phase::Program, 20), (Phase::Teardown, 4)]);
}

#[test]
fn a_wait_of_the_wrapper_for_its_child_is_the_childs_time() {
    let (without, _) = of(three(), Vec::new(), Vec::new());
    let for_child = || Span { stack: Some(2), ..wait(20, WAIT4, 20, 50) };
    let (with, _) = of(three(), vec![for_child()], Vec::new());
    assert_eq!(waited(&without[0], Phase::Program) - waited(&with[0], Phase::Program), 50);
    assert!(with[0].phases.iter().all(|phase| phase.waits.is_empty()));
    let vforks = Span { stack: None, ..wait(20, 58, 20, 50) };
    assert_eq!(waited(&of(three(), vec![vforks], Vec::new()).0[0], Phase::Program), 310);
    // Killed in wait4: the call stays in its registers.
    let mut tasks = three();
    tasks[1] = job(20, RUNNER, "wrap", 0, [10, 20, 60]);
    let killed = Span { at_ns: 35 * MS, ..for_child() };
    assert_eq!(waited(&of(tasks, vec![killed], Vec::new()).0[0], Phase::Teardown), 75);
}

#[test]
fn a_call_that_removes_a_cgroup_is_teardown_where_the_tree_removes_cgroups() {
    let removes = || vec![wait(20, RMDIR, 70, 15)];
    let (before, _) = of(three(), removes(), Vec::new());
    let (jobs, churn) = of(three(), removes(), vec![made(ChurnKind::CgroupRemoved, 3)]);
    let both = |jobs: &[JobAccount]| [Phase::Program, Phase::Teardown].map(|phase| waited(&jobs[0], phase));
    assert_eq!((both(&before), both(&jobs)), ([360, 15], [345, 30]));
    assert_eq!((churn[0].waited.unwrap().as_millis(), churn[0].worst.as_millis()), (15, 15));
}

/// A job that has not ended, and a thread of another one.
#[test]
fn waits_of_open_jobs_and_of_threads_are_their_trees() {
    let mut tasks = three();
    tasks.push(Task { ended: false, phases: None, ..job(40, RUNNER, "hangs", 10, [900, 0, 0]) });
    tasks.push(Task { tgid: 20, phases: None, ..job(41, RUNNER, "wrap", 10, [40, 0, 0]) });
    let spans = vec![wait(40, RMDIR, 100, 800), Span { tgid: 20, ..wait(41, RMDIR, 20, 15) }];
    let (_, churn) = of(tasks, spans, vec![made(ChurnKind::CgroupRemoved, 3)]);
    assert_eq!((churn[0].waited.unwrap().as_millis(), churn[0].worst.as_millis()), (815, 800));
}

/// The number of a process's parent was another process's before, and the parent itself has no row.
#[test]
fn a_process_that_ended_before_is_no_parent() {
    let others = (0..3).map(|n| job(50 + n, RUNNER, "other", 0, [1, 2, 0]));
    let mut tasks: Vec<Task> = [runner()].into_iter().chain(others).collect();
    tasks.extend((0..3).map(|n| Task { parent: "lost".into(), ..job(60 + n, 50, "prog", 200, [1, 2, 0]) }));
    let (jobs, _) = of(tasks, Vec::new(), Vec::new());
    assert_eq!((jobs.len(), jobs[0].count, jobs[0].processes), (1, 3, 3), "{jobs:?}");
}

#[test]
fn a_call_that_removes_another_folder_is_no_teardown() {
    let teardown = |stack| {
        let span = Span { stack, ..wait(20, RMDIR, 70, 15) };
        waited(&of(three(), vec![span], vec![made(ChurnKind::CgroupRemoved, 3)]).0[0], Phase::Teardown)
    };
    assert_eq!(
        [Some(3), Some(4), None].map(teardown),
        [15, 30, 30],
        "a file system, the folder's lock, not known"
    );
}

#[test]
fn a_clone_that_waits_for_namespaces_is_set_up() {
    let counts = |stack| {
        let span = Span { stack: Some(stack), ..wait(20, CLONE, 20, 50) };
        let (jobs, churn) = of(three(), vec![span], vec![made(ChurnKind::IpcNamespace, 3)]);
        (waited(&jobs[0], Phase::SetUp), churn[0].waited.map(|it| it.as_millis()))
    };
    assert_eq!((counts(5), counts(1)), ((95, Some(50)), (45, Some(0))));
}

#[test]
fn waits_of_the_starter_itself_stand_with_what_it_removed() {
    let spans = vec![wait(RUNNER, RMDIR, 95, 5), wait(RUNNER, RMDIR, 195, 9), wait(RUNNER, 0, 300, 90)];
    let (jobs, churn) = of(three(), spans, vec![made(ChurnKind::CgroupRemoved, 3)]);
    assert_eq!((churn[0].starter.as_str(), churn[0].count), ("runner", 3));
    assert_eq!((churn[0].waited.unwrap().as_millis(), churn[0].worst.as_millis()), (14, 9));
    assert_eq!(waited(&jobs[0], Phase::Teardown), 15, "its waits are not the jobs'");
}

#[test]
fn waits_in_unshare_are_not_told_apart_where_it_makes_several_kinds() {
    let unshares = || vec![wait(RUNNER, 272, 95, 5)];
    let ipc = made(ChurnKind::IpcNamespace, 4);
    let (_, one) = of(three(), unshares(), vec![ipc.clone()]);
    let (_, two) = of(three(), unshares(), vec![ipc, made(ChurnKind::UtsNamespace, 2)]);
    assert_eq!(one[0].waited.unwrap().as_millis(), 5);
    assert_eq!(two.iter().map(|row| (row.count, row.waited)).collect::<Vec<_>>(), [(4, None), (2, None)]);
}

#[test]
fn rate_is_of_the_time_in_which_calls_were_counted() {
    let away = Churn { away_ns: 750 * MS, ..made(ChurnKind::Mounted, 30) };
    let (_, churn) = of(three(), Vec::new(), vec![away, made(ChurnKind::CgroupMade, 3)]);
    assert_eq!(churn.iter().map(|row| row.rate.round() as u64).collect::<Vec<_>>(), [120, 3]);
    let all_away = Churn { away_ns: u64::MAX, ..made(ChurnKind::Mounted, 30) };
    assert_eq!(of(three(), Vec::new(), vec![all_away]).1[0].rate.round() as u64, 600);
    // Both halves count namespaces.
    let cloned = made(ChurnKind::IpcNamespace, 10);
    let unshared = Churn { away_ns: 500 * MS, ..cloned.clone() };
    let (_, both) = of(three(), Vec::new(), vec![cloned, unshared]);
    assert_eq!((both.len(), both[0].count, both[0].rate.round() as u64), (1, 20, 30));
}

#[test]
fn without_a_task_list_there_are_no_jobs() {
    let fixture = Fixture::second().with(|tables| tables.tasks = None);
    assert_eq!(jobs(&fixture.ev()), (Vec::new(), Vec::new()));
}
