use proptest::prelude::*;
use whyslow_model::timeline::Stack;

use super::*;

const MS: u64 = 1_000_000;
const FREE_IPC: &str = "__schedule schedule schedule_timeout __wait_for_common wait_for_completion synchronize_rcu kern_unmount mq_put_mnt \
                        free_ipc_ns free_ipc process_one_work worker_thread kthread ret_from_fork";
const EXIT: &str = "__schedule schedule synchronize_rcu_expedited namespace_unlock free_nsproxy do_exit do_group_exit x64_sys_call";
const MUTEX: &str = "__schedule schedule schedule_preempt_disabled __mutex_lock cgroup_lock css_killed_work_fn process_one_work \
                     worker_thread kthread";

fn recording(works: Vec<Work>, spans: Vec<Span>) -> Recording {
    let mut recording = Recording::default();
    let stack = |(id, text): (u32, &str)| Stack {
        id,
        kernel: text.split_whitespace().map(str::to_owned).collect(),
        user: Vec::new(),
    };
    recording.tables.stacks = Some([(1, FREE_IPC), (2, EXIT), (3, MUTEX)].map(stack).to_vec());
    recording.tables.works = Some(works);
    recording.tables.spans = Some(spans);
    recording
}

fn wait(pid: u32, stack: u32, work: Option<&str>, ms: u64) -> Span {
    Span {
        pid,
        comm: format!("t{pid}"),
        woken_ns: ms * MS,
        to_ns: ms * MS,
        state: State::Blocked,
        stack: Some(stack),
        sampled_wait_ns: ms * MS,
        work: work.map(str::to_owned),
        ..Span::default()
    }
}

fn ran(function: &str, count: u64, ms: u64) -> Work {
    Work { function: function.to_owned(), count, ran_ns: ms * MS, ran_worst_ns: ms * MS, ..Work::default() }
}

fn works_of(recording: &Recording) -> Vec<WorkAccount> {
    works(recording, &Stacks::in_recording(recording))
}

fn grace_periods_of(recording: &Recording) -> Vec<GraceWaits> {
    grace_periods(recording, &Stacks::in_recording(recording))
}

#[test]
fn what_workers_waited_for_is_with_their_function() {
    let spans = vec![
        wait(1, 1, Some("free_ipc"), 30),
        wait(1, 1, Some("free_ipc"), 50),
        wait(2, 3, Some("css_killed_work_fn"), 7),
        // A system call is no work item.
        wait(3, 2, None, 90),
    ];
    let works = works_of(&recording(vec![ran("css_killed_work_fn", 1, 9), ran("free_ipc", 2, 90)], spans));
    let names: Vec<&str> = works.iter().map(|work| work.function.as_str()).collect();
    assert_eq!(names, ["free_ipc", "css_killed_work_fn"], "the longest first");
    let inside = &works[0].inside[0];
    assert_eq!(inside.what, "an RCU grace period for kern_unmount");
    assert_eq!((inside.count, inside.total.as_millis(), inside.worst.as_millis()), (2, 80, 50));
    assert!(works[1].inside[0].what.contains("mutex"), "{:?}", works[1].inside);
    assert_eq!((works[0].inside.len(), works[1].inside.len()), (1, 1));
}

#[test]
fn grace_periods_are_told_by_who_needed_them() {
    let spans = vec![
        wait(1, 1, Some("free_ipc"), 30),
        wait(7, 2, None, 4),
        wait(8, 2, None, 9),
        wait(8, 2, None, 2),
        wait(9, 3, Some("css_killed_work_fn"), 99),
    ];
    let all = grace_periods_of(&recording(vec![], spans));
    let told: Vec<_> = all
        .iter()
        .map(|one| (one.caller.as_str(), one.expedited, one.work.as_str(), one.tasks, one.count))
        .collect();
    assert_eq!(told, [("kern_unmount", false, "free_ipc", 1, 1), ("namespace_unlock", true, "", 2, 3)]);
    assert_eq!((all[1].who.as_str(), all[1].total.as_millis(), all[1].worst.as_millis()), ("t8", 15, 9));
}

#[test]
fn times_are_ranges_with_their_bounds() {
    let row = Work { queued_count: 3, queued_times: vec![1, 0, 2], ..ran("f", 3, 1) };
    let works = works_of(&recording(vec![row], vec![]));
    let ranges: Vec<_> =
        works[0].queued.times.iter().map(|range| (range.below.as_nanos(), range.count)).collect();
    assert_eq!(ranges, [(1024, 1), (4096, 2)]);
}

#[test]
fn without_items_there_is_nothing() {
    assert!(works_of(&recording(vec![ran("f", 0, 0)], vec![])).is_empty());
    assert!(works_of(&Recording::default()).is_empty() && grace_periods_of(&Recording::default()).is_empty());
}

proptest! {
    #[test]
    fn no_numbers_make_it_panic(ns: u64, worst: u64, count: u64, times in prop::collection::vec(any::<u64>(), 0..70), at: u64, woken: u64) {
        let row = Work {
            function: "free_ipc".to_owned(),
            count,
            queued_ns: ns,
            ran_ns: ns,
            ran_worst_ns: worst,
            ran_times: times.clone(),
            queued_times: times,
            ..Work::default()
        };
        let odd = Span { at_ns: at, woken_ns: woken, sampled_wait_ns: ns, ..wait(1, 1, Some("free_ipc"), 1) };
        let recording = recording(vec![row.clone(), row], vec![odd.clone(), odd]);
        for work in works_of(&recording) {
            prop_assert!(work.ran.below(0.99).is_none_or(|below| below <= work.ran.worst));
        }
        grace_periods_of(&recording);
    }
}
