//! Whether a wait was the waiter's own work. The waits are reported as chains in all tests; the tests differ in which task wrote meanwhile.

use std::time::Duration;

use whyslow_model::table::{Disk, Sample};
use whyslow_model::timeline::{Context, Stack, State, StateTimes, Waker};
use whyslow_model::{Finding, Meta, Recording};

use super::written::{disk_of, is_of};
use super::*;
use crate::rules::ALL;

const MS: u64 = 1_000_000;
const COMMIT: u32 = 1;
const BUFFER: u32 = 2;
const IDLE: u32 = 3;
const VFORK: u32 = 4;
const SYNC: u32 = 5;
const PAGES: u32 = 6;

fn lock_wait(rec: &Recording) -> Vec<Finding> {
    let rule = ALL.iter().find(|rule| rule.id == "lock-wait").unwrap();
    (rule.check)(&Evidence::of(rec)).unwrap()
}

fn stack(id: u32, frames: &str) -> Stack {
    Stack { id, kernel: frames.split(' ').map(str::to_owned).collect(), user: vec![] }
}

fn task(pid: u32, ppid: u32, comm: &str) -> Task {
    let kthread = ppid == 2;
    Task { pid, tgid: pid, ppid, comm: comm.into(), kthread, lived_ns: 1000 * MS, ..Task::default() }
}

/// Waits of `pid` in `state` with this stack: `ms` of every ten, all of a second.
fn waits(pid: u32, comm: &str, state: State, stack: u32, ms: u64, waker: Option<u32>) -> Vec<Span> {
    let row = |at: u64| Span {
        pid,
        tgid: pid,
        comm: comm.into(),
        from_ns: at * MS,
        at_ns: (at + 10 - ms) * MS,
        woken_ns: (at + 10) * MS,
        to_ns: (at + 10) * MS,
        mixed: StateTimes { running_ns: (10 - ms) * MS, ..StateTimes::default() },
        state,
        stack: Some(stack),
        device: (stack == BUFFER).then(|| "254:0".to_owned()),
        waker: waker.map(|pid| Waker {
            pid,
            tgid: pid,
            comm: "jbd2/vda-8".into(),
            context: Context::Task,
            ..Waker::default()
        }),
        ..Span::default()
    };
    (0..100).map(|n| row(n * 10)).collect()
}

/// A program that syncs small writes, and the journal's thread that waits for the disk meanwhile.
fn syncs() -> Recording {
    let mut spans = waits(10, "logger", State::Blocked, COMMIT, 7, Some(300));
    spans.extend(waits(300, "jbd2/vda-8", State::Io, BUFFER, 9, None));
    let stacks = vec![
        stack(COMMIT, "jbd2_log_wait_commit jbd2_complete_transaction ext4_sync_file do_fsync"),
        stack(BUFFER, "io_schedule bit_wait_io __wait_on_buffer jbd2_journal_commit_transaction kjournald2"),
        stack(IDLE, "hrtimer_nanosleep common_nsleep __x64_sys_nanosleep"),
        stack(VFORK, "wait_for_vfork_done kernel_clone __do_sys_vfork"),
        stack(SYNC, "wb_wait_for_completion sync_inodes_sb iterate_supers ksys_sync"),
        stack(PAGES, "io_schedule folio_wait_bit folio_wait_writeback __filemap_fdatawait_range do_fsync"),
    ];
    let logger = Task { blocked_ns: 700 * MS, unified_cgroup: 7, ..task(10, 5, "logger") };
    let disk = Disk {
        dev: "254:0".into(),
        device: "vda".into(),
        op: "write".into(),
        bytes: 1 << 30,
        ..Disk::default()
    };
    Recording {
        meta: Meta { window_ns: 1000 * MS, ..Meta::default() },
        tables: Tables {
            tasks: Some(vec![logger, task(300, 2, "jbd2/vda-8")]),
            spans: Some(spans),
            stacks: Some(stacks),
            disk: Some(vec![disk]),
            ..Tables::default()
        },
        ..Recording::default()
    }
}

/// Another process beside it fills the journal: it syncs, too, or never waits.
fn beside(mut rec: Recording, neighbour: Task, waits_ms: u64, cpu_ms: u64) -> Recording {
    let (pid, comm) = (neighbour.pid, neighbour.comm.clone());
    rec.tables.tasks.as_mut().unwrap().push(neighbour);
    if waits_ms > 0 {
        let rows = waits(pid, &comm, State::Blocked, COMMIT, waits_ms, Some(300));
        rec.tables.spans.as_mut().unwrap().extend(rows);
    }
    let kernel = ["copy_page_from_iter", "generic_perform_write", "ext4_buffered_write_iter", "vfs_write"];
    let kernel = kernel.map(str::to_owned).to_vec();
    let sample =
        Sample { pid, tgid: pid, comm, count: 1, ns: cpu_ms * MS, kernel, user: vec![], ..Sample::default() };
    rec.tables.samples = Some(vec![sample]);
    rec
}

#[test]
fn a_sync_of_ones_own_data_is_no_loss() {
    let rec = syncs();
    assert!(
        crate::graph::chains(&rec).iter().any(|chain| chain.hops[0].reason == Reason::Journal),
        "it is a chain"
    );
    assert_eq!(lock_wait(&rec), vec![]);
}

#[test]
fn a_sync_whose_stack_nobody_took_is_reported_by_its_call() {
    let without = |mut rec: Recording| {
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.stack == Some(COMMIT)) {
            (span.stack, span.syscall) = (None, Some(74));
        }
        rec
    };
    let rec = without(syncs());
    let head = crate::graph::chains(&rec).remove(0).hops.remove(0);
    assert_eq!(
        (head.reason.word(), head.detail.to_string().as_str()),
        ("writeback", "its data to be written (fsync())")
    );
    assert_eq!(lock_wait(&rec), vec![]);
    assert_eq!(lock_wait(&without(beside(syncs(), task(20, 6, "fio"), 0, 700))).len(), 1);
}

#[test]
fn writer_that_fills_the_journal_is_named_with_its_part() {
    let found = lock_wait(&beside(syncs(), task(20, 6, "fio"), 0, 700));
    assert_eq!(found.len(), 1, "{found:?}");
    let culprit = found[0].culprit.clone().unwrap();
    assert_eq!((culprit.id.as_str(), culprit.name.as_str()), ("20", "fio"));
    let lost = found[0].lost.unwrap();
    assert!(lost > Duration::from_millis(300) && lost < Duration::from_millis(400), "{lost:?}");
    assert!(found[0].title.contains("at the end: fio"), "{}", found[0].title);
}

#[test]
fn writer_of_next_to_nothing_is_not_named() {
    assert_eq!(lock_wait(&beside(syncs(), task(20, 6, "cron"), 0, 5)), vec![]);
}

/// Another device that was written to.
fn log_beside(tables: &mut Tables, name: &str, bytes: u64) {
    let row = Disk { dev: name.into(), device: name.into(), op: "write".into(), bytes, ..Disk::default() };
    tables.disk.as_mut().unwrap().push(row);
}

/// One process that streams and then waits until its data are written, beside one that syncs a little, all the time.
#[test]
fn data_are_shared_out_by_bytes_where_the_kernel_counts_them() {
    let reported = |own: Option<u64>, others: Option<u64>, more: fn(&mut Tables)| {
        let mut rec = beside(syncs(), Task { written_bytes: others, ..task(20, 6, "fio") }, 7, 0);
        let tables = &mut rec.tables;
        for span in tables.spans.iter_mut().flatten().filter(|span| span.pid == 10) {
            span.stack = Some(SYNC);
        }
        tables.tasks.as_mut().unwrap()[0].written_bytes = own;
        more(tables);
        lock_wait(&rec).iter().any(|found| found.culprit.as_ref().is_some_and(|one| one.name == "fio"))
    };
    let as_is: fn(&mut Tables) = |_| ();
    assert!(reported(None, None, as_is), "by the time that each took");
    assert!(reported(Some(1 << 20), None, as_is), "what the other wrote is not known");
    assert!(reported(Some(1 << 29), Some(1 << 29), as_is));
    assert!(!reported(Some(1 << 30), Some(1 << 20), as_is));
    assert!(!reported(Some(1 << 30), Some(0), as_is), "a wait for data is for no metadata of others");
    assert!(reported(Some(1 << 22), Some(1 << 10), as_is), "most of what the disk wrote was dirtied before");
    assert!(reported(Some(1 << 33), Some(1 << 20), as_is), "most of what they wrote went elsewhere");
    let dirtied_before: fn(&mut Tables) = |tables| {
        for span in tables.spans.iter_mut().flatten().filter(|span| span.pid == 20) {
            (span.stack, span.state, span.device) = (Some(PAGES), State::Io, Some("254:0".to_owned()));
        }
    };
    assert!(reported(Some(1 << 30), Some(0), dirtied_before), "before the window: by time");
    let two_disks: fn(&mut Tables) = |tables| log_beside(tables, "vdb", 1 << 30);
    let a_log: fn(&mut Tables) = |tables| log_beside(tables, "vdb", 1 << 12);
    let stacked: fn(&mut Tables) = |tables| log_beside(tables, "dm-0", 1 << 30);
    assert!(
        !reported(Some(1 << 30), Some(1 << 20), a_log) && !reported(Some(1 << 30), Some(1 << 20), stacked)
    );
    assert!(
        reported(Some(1 << 30), Some(1 << 20), |tables| tables.disk = None),
        "nothing is known of any disk"
    );
    assert!(
        reported(Some(1 << 30), Some(1 << 20), two_disks),
        "which of the disks the bytes went to is not known"
    );
    let no_stack: fn(&mut Tables) = |tables| {
        for span in tables.spans.iter_mut().flatten().filter(|span| span.pid == 10) {
            (span.stack, span.syscall) = (None, Some(74));
        }
    };
    assert!(reported(Some(1 << 30), Some(1 << 20), no_stack), "it may have been for the journal");
}

#[test]
fn ones_own_writers_are_no_strangers_unless_they_were_set_apart() {
    let child = task(20, 10, "writer");
    assert_eq!(lock_wait(&beside(syncs(), child, 0, 700)), vec![]);
    let sibling = Task { unified_cgroup: 7, ..task(20, 5, "dd") };
    assert_eq!(lock_wait(&beside(syncs(), sibling, 0, 700)), vec![]);
    let apart = Task { unified_cgroup: 8, ..task(20, 5, "dd") };
    assert_eq!(lock_wait(&beside(syncs(), apart, 0, 700)).len(), 1);
    let session = Task { autogroup: 4, ..task(20, 5, "dd") };
    let session =
        |ended| Task { ended, unified_cgroup: 7, autogroup: if ended { 0 } else { 4 }, ..session.clone() };
    for (ended, reported) in [(true, 0), (false, 1)] {
        let mut rec = beside(syncs(), session(ended), 0, 700);
        rec.tables.tasks.as_mut().unwrap()[0].autogroup = 9;
        assert_eq!(lock_wait(&rec).len(), reported, "one that has ended ({ended}) is in no session's group");
    }
}

#[test]
fn disk_writes_of_a_cgroup_without_seen_tasks_make_it_the_culprit() {
    let mut rec = syncs();
    let disk = rec.tables.disk.as_mut().unwrap();
    let row = disk[0].clone();
    let of = |cgroup, bytes| Disk { cgroup, bytes, ..row.clone() };
    disk.extend([of(7, 1_000_000), of(9, 9_000_000)]);
    let group = |id, path: &str| whyslow_model::table::Cgroup {
        id,
        parent: 1,
        path: path.into(),
        ..whyslow_model::table::Cgroup::default()
    };
    rec.tables.cgroups = Some(vec![group(7, "/web"), group(9, "/backup.service")]);
    let found = lock_wait(&rec);
    assert_eq!(found[0].culprit.as_ref().unwrap().name, "backup.service");
}

/// The child's id belongs to another task now, or the child is one of many that are reported together: the owner of the work is not known.
#[test]
fn an_id_that_was_two_tasks_says_nothing_of_whose_child_it_was() {
    let why = |rec: &Recording| {
        let rule = ALL.iter().find(|rule| rule.id == "lock-wait").unwrap();
        (rule.check)(&Evidence::of(rec)).map_err(|why| why.to_string())
    };
    let unclear = "cannot tell for which process some tasks did work: ids of tasks that ended were reused";
    let ended = Task { ended: true, born: true, ..task(41, 40, "sh") };
    for (first, second) in [(task(41, 6, "ghost"), ended.clone()), (ended.clone(), task(41, 6, "ghost"))] {
        let mut rec = vforks(first, State::Io, BUFFER);
        rec.tables.tasks.as_mut().unwrap().push(second);
        assert_eq!(why(&rec), Err(unclear.to_owned()));
    }
    let mut again = vforks(ended.clone(), State::Io, BUFFER);
    again.tables.tasks.as_mut().unwrap().push(Task { pid: 41, ..ended.clone() });
    assert_eq!(why(&again), Ok(vec![]), "both were its children");
    let mut folded = vforks(ended, State::Io, BUFFER);
    for task in folded.tables.tasks.iter_mut().flatten().filter(|task| task.pid == 41) {
        (task.pid, task.tgid, task.folded) = (51, 51, 900);
    }
    assert_eq!(why(&folded), Err(unclear.to_owned()));
}

/// A parent that stops in vfork until its child, which computes, execs.
fn vforks(child: Task, child_waits: State, child_stack: u32) -> Recording {
    let mut rec = syncs();
    let (pid, comm) = (child.pid, child.comm.clone());
    let parent = Task { blocked_ns: 700 * MS, ..task(40, 5, "sh") };
    rec.tables.tasks = Some(vec![parent, child, task(300, 2, "jbd2/vda-8")]);
    let mut spans = waits(40, "sh", State::Blocked, VFORK, 7, Some(pid));
    spans.extend(waits(pid, &comm, child_waits, child_stack, 5, None));
    rec.tables.spans = Some(spans);
    rec
}

#[test]
fn the_work_of_ones_own_children_is_no_loss() {
    assert_eq!(lock_wait(&vforks(task(41, 40, "sh"), State::Sleep, IDLE)), vec![]);
    assert_eq!(lock_wait(&vforks(task(41, 40, "sh"), State::Io, BUFFER)), vec![]);
    // An unrelated process is no child: the owner of its work is not known.
    assert!(!lock_wait(&vforks(task(41, 6, "ghost"), State::Io, BUFFER)).is_empty());
    let missed = |child: Task, syscall: Option<u32>| {
        let mut rec = vforks(child, State::Io, BUFFER);
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.stack == Some(VFORK)) {
            (span.stack, span.syscall) = (None, syscall);
        }
        lock_wait(&rec)
    };
    assert_eq!(missed(task(41, 40, "sh"), None), vec![], "a wait whose end was missed");
    assert!(!missed(task(41, 40, "sh"), Some(87)).is_empty(), "in unlink() it was for no child");
    assert!(!missed(task(41, 6, "ghost"), None).is_empty());
    let thread = Task { tgid: 40, ..task(41, 5, "sh") };
    assert!(!missed(thread, None).is_empty(), "a thread may hold a lock that another needs");
}

/// The wait has no stack, and no task ended it.
#[test]
fn a_wait_that_no_child_ended_is_not_ones_own() {
    let mut rec = vforks(task(41, 40, "sh"), State::Io, BUFFER);
    for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.stack == Some(VFORK)) {
        span.stack = None;
    }
    let ev = Evidence::of(&rec);
    let reported = ev.host_chains().iter().find(|reported| reported.head.pid == 40).unwrap();
    let whose = |chain: Chain| {
        let reported = HostChain { chain, heads: reported.heads.clone(), ..*reported };
        SelfInflicted::of(&ev).whose(&reported)
    };
    assert_eq!(whose(reported.chain.clone()), Whose::Own);
    let tasks = reported.chain.tasks.iter().take(1).cloned().collect();
    assert_eq!(whose(Chain { tasks, ..reported.chain.clone() }), Whose::Others);
}

#[test]
fn a_loop_of_parents_ends() {
    let rec = beside(syncs(), task(20, 20, "x"), 0, 700);
    assert_eq!(SelfInflicted::of(&Evidence::of(&rec)).is_family(20, 10), Some(false));
    let mut rec = syncs();
    rec.tables.tasks = Some(vec![task(10, 11, "a"), task(11, 10, "b")]);
    assert_eq!(SelfInflicted::of(&Evidence::of(&rec)).is_below(10, 99), Some(false));
}

/// Names with a common prefix (rbd1 and rbd10, sda and sdaa) are different disks.
#[test]
fn a_disk_whose_name_begins_alike_is_another_one() {
    let by = |here: &str, other: &str| {
        let mut rec = syncs();
        let disk = rec.tables.disk.as_mut().unwrap();
        disk[0].device = here.into();
        let row = disk[0].clone();
        let there = Disk { dev: "254:16".into(), device: other.into(), ..row.clone() };
        disk.push(Disk { cgroup: 7, bytes: 1_000_000, ..row.clone() });
        disk.push(match other == here {
            true => Disk { cgroup: 9, bytes: 9_000_000, ..row },
            false => Disk { cgroup: 9, bytes: 9_000_000, ..there },
        });
        let group = |id, path: &str| whyslow_model::table::Cgroup {
            id,
            parent: 1,
            path: path.into(),
            ..whyslow_model::table::Cgroup::default()
        };
        rec.tables.cgroups = Some(vec![group(7, "/web"), group(9, "/backup.service")]);
        lock_wait(&rec).len()
    };
    for (here, other) in [("rbd10", "rbd1"), ("sdaa", "sda"), ("dm-10", "dm-1")] {
        assert_eq!((by(here, other), by(here, here)), (0, 1), "{here} {other}");
    }
}

#[test]
fn places_are_a_disk_its_partitions_and_its_journal() {
    for (place, here) in [("vda", "vda"), ("vda", "vda1"), ("rbd1", "rbd1p2"), ("nvme0n1", "nvme0n1p12")] {
        assert!(is_of(place, here), "{place} {here}");
    }
    for (place, here) in [("rbd1", "rbd10"), ("sda", "sdaa"), ("dm-1", "dm-10"), ("", "vda"), ("vda1", "vda")]
    {
        assert!(!is_of(place, here), "{place} {here}");
    }
    assert_eq!(["jbd2/vda-8", "jbd2/dm-1-8", "jbd2/nvme0n1p1-"].map(disk_of), ["vda", "dm-1", "nvme0n1p1"]);
    assert_eq!(
        (disk_of("jbd2/vdb"), disk_of("jbd2/nvme10n1p1")),
        ("vdb", "nvme10n1p1"),
        "no inode, or cut off"
    );
}

/// A pid namespace: kernel threads, and other tasks outside it, have rows but are no tasks of it.
fn in_a_container(mut rec: Recording) -> Recording {
    let outside = |pid: &mut u32| *pid = if *pid == 300 { 10_000_300 } else { *pid };
    rec.tables.tasks.as_mut().unwrap().retain(|task| !task.kthread);
    for span in rec.tables.spans.iter_mut().flatten() {
        outside(&mut span.pid);
        outside(&mut span.tgid);
        for waker in span.waker.iter_mut() {
            outside(&mut waker.pid);
            outside(&mut waker.tgid);
        }
    }
    rec
}

#[test]
fn in_a_container_too_a_sync_of_ones_own_data_is_no_loss() {
    let rec = in_a_container(syncs());
    assert!(
        crate::graph::chains(&rec).iter().any(|chain| chain.hops[0].reason == Reason::Journal),
        "it is a chain"
    );
    assert_eq!(lock_wait(&rec), vec![]);
    assert_eq!(lock_wait(&in_a_container(beside(syncs(), task(20, 6, "fio"), 0, 700))).len(), 1);
    // A thread outside that is no kernel thread, whatever it does: not the waiter's own work.
    let mut rec = in_a_container(syncs());
    for span in rec.tables.spans.iter_mut().flatten() {
        if span.pid == 10_000_300 {
            span.comm = "mysqld".into();
        }
    }
    assert_eq!(lock_wait(&rec).len(), 1);
}

#[test]
fn in_a_container_pid_1_has_children_of_its_own() {
    let all_of_1 = |mut rec: Recording| {
        for task in rec.tables.tasks.iter_mut().flatten().filter(|task| !task.kthread) {
            task.ppid = 1;
        }
        rec.tables.tasks.as_mut().unwrap().push(task(1, 0, "postgres"));
        rec
    };
    let sibling = || Task { unified_cgroup: 7, ..task(20, 5, "checkpointer") };
    let apart = || Task { unified_cgroup: 8, ..sibling() };
    let of = |other: Task| lock_wait(&in_a_container(all_of_1(beside(syncs(), other, 0, 700)))).len();
    assert_eq!((of(sibling()), of(apart())), (0, 1));
    // On a host pid 1 is the parent of all orphans.
    assert_eq!(lock_wait(&all_of_1(beside(syncs(), sibling(), 0, 700))).len(), 1);
}

/// One name for two tenants: their waits are reported together, and one of them makes the other wait.
#[test]
fn a_neighbour_of_the_same_name_is_named() {
    let culprit = |name: &str, cgroup| {
        let other = Task { unified_cgroup: cgroup, ..task(20, 6, name) };
        let found = lock_wait(&beside(syncs(), other, 7, 700));
        let of = |id: &str| {
            found.iter().any(|found| found.culprit.as_ref().is_some_and(|culprit| culprit.id == id))
        };
        (of("20"), of("10"))
    };
    assert!(culprit("fio", 8).0);
    assert_eq!(culprit("logger", 8), (true, false));
    assert_eq!(culprit("logger", 7), (false, false), "of one name in one cgroup: one program");
}
