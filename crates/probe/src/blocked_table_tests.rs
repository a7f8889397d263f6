use proptest::prelude::*;

use super::*;
use crate::bpf::constants::shared_h::{BLOCKED, LOCK_MUTEX, RUNNING};
use crate::kallsyms::Kallsyms;

/// A thread that waits for a lock, and the thread that has it.
fn waits(pid: u32, switches: u64, lock: u64, owner: u32) -> blocked_task {
    let mut task = blocked_task { pid, tgid: 1, switches, lock, owner, ..blocked_task::default() };
    (task.state, task.kind, task.depth) = (BLOCKED, LOCK_MUTEX, 16);
    task.frames[..2].copy_from_slice(&[lock + 1, 7]);
    task
}

fn table(samples: &Samples) -> (Vec<Blocked>, Vec<Stack>) {
    blocked(samples, &mut KernelNames::from(&Kallsyms::default()), 40)
}

#[test]
fn samples_of_equal_waits_are_one_row_that_counts_waits_by_switches() {
    let mut samples = Samples::default();
    for switches in [5, 5, 5, 6] {
        samples.pass(&[waits(7, switches, 0, 0), waits(8, 1, 0, 0)]);
    }
    samples.pass(&[]);
    let (rows, stacks) = table(&samples);
    let told: Vec<_> = rows.iter().map(|row| (row.id, row.pid, row.samples, row.waits, row.passes)).collect();
    assert_eq!(told, [(1, 7, 4, 2, 5), (2, 8, 4, 1, 5)]);
    assert_eq!((stacks.len(), stacks[0].id, rows[0].stack, rows[1].stack), (1, 40, Some(40), Some(40)));
    assert!(rows[0].lock.is_none() && rows[0].behind.is_none() && rows[0].work.is_none());
    assert_eq!(samples.lost(), 0);
}

#[test]
fn a_row_points_to_what_its_holder_waited_for_in_the_same_pass() {
    let mut samples = Samples::default();
    // The waiter is met before its holder.
    samples.pass(&[waits(7, 1, 100, 8), waits(8, 1, 200, 9)]);
    let runs = blocked_task { owner_state: RUNNING, ..waits(7, 1, 100, 8) };
    samples.pass(&[runs]);
    let (rows, _) = table(&samples);
    let by = |pid| rows.iter().filter(move |row| row.pid == pid).collect::<Vec<_>>();
    let ([first, second], [holder]) = (&by(7)[..], &by(8)[..]) else { panic!("{rows:?}") };
    assert_eq!((first.behind, second.behind, holder.behind), (Some(holder.id), None, None));
    assert_eq!((first.samples, second.samples, holder.samples), (1, 1, 1));
    assert_eq!((first.owner_state, second.owner_state), (State::None, State::Running));
    let lock = first.lock.as_ref().unwrap();
    assert_eq!((lock.address, lock.owner, lock.kind.word()), (100, 8, "mutex"));
}

#[test]
fn tasks_that_wait_for_each_other_end_where_one_is_met_again() {
    let mut samples = Samples::default();
    samples.pass(&[waits(7, 1, 100, 8), waits(8, 1, 200, 7), waits(9, 1, 300, 9)]);
    let (rows, _) = table(&samples);
    let of = |pid| rows.iter().find(|row| row.pid == pid).unwrap();
    assert_eq!((of(7).behind, of(8).behind, of(9).behind), (Some(of(8).id), None, None));
}

#[test]
fn a_window_without_a_wait_still_tells_its_passes() {
    let mut samples = Samples::default();
    assert_eq!(table(&samples), (vec![], vec![]));
    (0..3).for_each(|_| samples.pass(&[]));
    assert_eq!(table(&samples).0, [Blocked { passes: 3, ..Blocked::default() }]);
}

#[test]
fn threads_beyond_the_first_rows_are_one_and_no_sample_vanishes() {
    let mut samples = Samples::default();
    let many = MOST as u32 * 2;
    // Each has a stack of its own up to the most.
    let all: Vec<blocked_task> = (0..many).map(|pid| waits(pid + 1, 1, u64::from(pid) * 8, 0)).collect();
    samples.pass(&all);
    let (rows, stacks) = table(&samples);
    let told: u64 = rows.iter().map(|row| row.samples).sum();
    assert_eq!((rows.len(), stacks.len()), (MOST, MOST_STACKS));
    assert_eq!(told + samples.lost(), u64::from(many));
    assert!(samples.lost() > 0 && rows.iter().filter(|row| row.pid != 0).count() == MOST_BY_THREAD);
    // Equal waits of further threads have a row.
    let mut samples = Samples::default();
    samples.pass(&(0..many).map(|pid| waits(pid + 1, 1, 0, 0)).collect::<Vec<_>>());
    let (rows, _) = table(&samples);
    assert_eq!((rows.len(), samples.lost()), (MOST_BY_THREAD + 1, 0));
    assert_eq!(
        rows.last().map(|row| (row.pid, row.samples)),
        Some((0, u64::from(many) - MOST_BY_THREAD as u64))
    );
}

proptest! {
    #[test]
    fn no_rows_of_the_kernel_half_make_it_panic(
        tasks in prop::collection::vec((0..6u32, any::<u64>(), 0..6u32, any::<i32>(), any::<u32>()), 0..20)
    ) {
        let task = |&(pid, lock, owner, depth, state): &(u32, u64, u32, i32, u32)| blocked_task {
            depth, state, kind: state, owner_state: state, ..waits(pid, lock, lock.min(u64::MAX - 1), owner)
        };
        let tasks: Vec<blocked_task> = tasks.iter().map(task).collect();
        let mut samples = Samples::default();
        samples.pass(&tasks);
        samples.pass(&tasks);
        let (rows, _) = table(&samples);
        let told: u64 = rows.iter().map(|row| row.samples).sum();
        prop_assert_eq!(told, tasks.len() as u64 * 2);
        for row in &rows {
            prop_assert!(row.waits <= row.samples);
            prop_assert!(row.behind.is_none_or(|id| rows.iter().any(|other| other.id == id && other.id != row.id)));
        }
    }
}
