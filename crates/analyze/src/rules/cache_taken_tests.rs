use whyslow_model::table::{Cgroup, CgroupMemory, Sample, Tables, Wait};
use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

use super::*;

const MS: u64 = 1_000_000;
const GROUP: u64 = 4 << 56 | 9;

fn task(pid: u32, comm: &str) -> Task {
    Task { pid, tgid: pid, ppid: 1, comm: comm.into(), lived_ns: 3000 * MS, ..Task::default() }
}

/// How pages of task 7 left memory.
#[derive(Clone, Copy)]
enum Went {
    Dropped(u64),
    Reclaimed(u64),
    AtLimit(u64),
}

/// Thread 7 read pages of files, of which `went` had left memory, and waited for the disk for 1.5 s of 3 s. Thread 9 read much once.
fn host(went: Went) -> Recording {
    let victim = Task { exec_ns: 1500 * MS, io_ns: 1500 * MS, ..task(7, "db") };
    let mut own = Memory { pid: 7, tgid: 7, pages_added: 100_000, ..Memory::default() };
    match went {
        Went::Dropped(pages) => {
            own.pages_dropped = pages;
            (own.taken_by, own.taker_drops, own.taken_at_least) = (9, true, pages);
        }
        Went::Reclaimed(pages) => own.pages_taken_by_reclaim = pages,
        Went::AtLimit(pages) => {
            own.pages_taken_at_limit = pages;
            (own.taken_by, own.taken_at_least) = (9, pages);
        }
    }
    let other = Memory { pid: 9, tgid: 9, pages_added: 900_000, ..Memory::default() };
    let stack = |frames: &[&str]| frames.iter().map(|f| (*f).to_owned()).collect();
    let reads = Wait {
        pid: 7,
        ns: 700 * MS,
        state: "io".into(),
        kernel: stack(&["folio_wait_bit_common", "filemap_get_pages"]),
        ..Wait::default()
    };
    let tables = Tables {
        tasks: Some(vec![victim, task(9, "backup")]),
        cgroups: Some(Vec::new()),
        samples: Some(vec![Sample { pid: 7, ns: MS, kernel: stack(&["main"]), ..Sample::default() }]),
        waits: Some(vec![reads]),
        memory: Some(vec![own, other]),
        ..Tables::default()
    };
    let meta = Meta { window_ns: 3000 * MS, page_size: 4096, cpus: 2, ..Meta::default() };
    grown_by(Recording { meta, tables, ..Recording::default() }, 0)
}

/// The memory of programs grows by `pages`.
fn grown_by(mut rec: Recording, pages: u64) -> Recording {
    let at = |ms, pages: u64| FileSnapshot {
        at: Duration::from_millis(ms),
        name: "proc/vmstat".into(),
        bytes: format!("nr_anon_pages {pages}\n").into_bytes(),
    };
    rec.snapshots = vec![at(0, 5_000), at(3000, 5_000 + pages)];
    rec
}

/// All tasks are in groups of their own below one limit.
fn below_one_limit(mut rec: Recording) -> Recording {
    let memory = CgroupMemory { limit: Some(1 << 30), limit_hits: 100, ..CgroupMemory::default() };
    let shared = Cgroup { id: GROUP, path: "/shared".into(), memory: Some(memory), ..Cgroup::default() };
    let own = |pid: u32| GROUP + u64::from(pid);
    let below =
        |pid| Cgroup { id: own(pid), parent: GROUP, path: format!("/shared/{pid}"), ..Cgroup::default() };
    rec.tables.cgroups = Some(vec![shared, below(7), below(9)]);
    rec.tables.tasks.as_mut().unwrap().iter_mut().for_each(|task| task.memory_cgroup = own(task.pid));
    rows(&mut rec).iter_mut().for_each(|row| (row.cgroup, row.limit_reclaims) = (own(row.pid), 1));
    rec
}

fn found(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

fn rows(rec: &mut Recording) -> &mut Vec<Memory> {
    rec.tables.memory.as_mut().unwrap()
}

fn culprit(finding: &Finding) -> &str {
    &finding.culprit.as_ref().unwrap().id
}

#[test]
fn fires_when_somebody_drops_what_others_read() {
    let found = found(&host(Went::Dropped(100_000)));
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!((culprit(&found[0]), found[0].victim.id.as_str()), ("9", "7"));
    let lost = found[0].lost.unwrap().as_millis();
    assert!((1400..=1500).contains(&lost), "{lost}");
    assert!(found[0].title.contains("dropped"), "{}", found[0].title);
}

#[test]
fn fires_when_somebody_streams_through_what_others_read() {
    let all = [host(Went::Reclaimed(80_000)), below_one_limit(host(Went::AtLimit(80_000)))];
    for rec in all {
        let found = found(&rec);
        assert!(["9", "/shared/9"].contains(&culprit(&found[0])), "{found:?}");
        assert!(found[0].title.contains("put 3.4 GiB into the page cache"), "{}", found[0].title);
    }
}

/// A task that needs a page at a limit evicts another page itself: because of the tree that has filled the limit.
#[test]
fn own_refaults_below_a_limit_are_the_fault_of_who_streams_below_it() {
    let mut rec = below_one_limit(host(Went::AtLimit(0)));
    rows(&mut rec)[0].pages_refaulted = 90_000;
    let told = found(&rec);
    assert_eq!(culprit(&told[0]), "/shared/9");
    assert!(told[0].title.contains("below the memory limit of 1.0 GiB"), "{}", told[0].title);
    rows(&mut rec)[1].pages_refaulted = 800_000;
    assert_eq!(found(&rec), Vec::new(), "both use again what they read: the limit is too small");
}

#[test]
fn refaulted_pages_do_not_count_as_the_victims_own_need() {
    let mut rec = below_one_limit(host(Went::AtLimit(0)));
    rows(&mut rec)[0].pages_refaulted = 100_000;
    let lost = found(&rec)[0].lost.unwrap().as_millis();
    assert!((1400..=1500).contains(&lost), "{lost}");
}

/// The kernel knows of pages that were evicted before the window, the probe does not.
#[test]
fn pages_that_went_before_the_window_count_by_the_kernels_own_account() {
    let mut rec = below_one_limit(host(Went::AtLimit(0)));
    rows(&mut rec)[0].pages_refaulted = 50_000;
    let lost = |rec: &Recording| found(rec)[0].lost.unwrap().as_secs_f64();
    let seen = lost(&rec);
    let by_the_kernel = |refaults: u64| {
        let mut rec = rec.clone();
        for (snapshot, refaults) in rec.snapshots.iter_mut().zip([7_000, 7_000 + refaults]) {
            snapshot.bytes.extend(format!("workingset_refault_file {refaults}\n").into_bytes());
        }
        rec
    };
    let all = by_the_kernel(100_000);
    let ratio = lost(&all) / seen;
    assert!((1.9..=2.1).contains(&ratio), "{ratio} times {seen}");
    let range = found(&all)[0].lost_range.unwrap();
    assert!(range.0.as_secs_f64() < 1.1 * seen, "{range:?}: at least what was seen");
    let mut unknown = by_the_kernel(70_000);
    rows(&mut unknown)[0].pages_unknown = 40_000;
    let ratio = lost(&unknown) / seen;
    assert!(
        (1.3..=1.5).contains(&ratio),
        "{ratio} times {seen}: the kernel's count has the unknown pages, too"
    );
    let ratio = lost(&by_the_kernel(300_000)) / seen;
    assert!((0.9..=1.1).contains(&ratio), "{ratio} times {seen}: most evictions were not seen");
}

/// A cgroup that evicts pages at a limit that the culprit does not share evicts them for its own needs.
#[test]
fn at_a_limit_that_is_not_shared_nobody_is_accused() {
    assert_eq!(found(&host(Went::AtLimit(80_000))), Vec::new());
}

#[test]
fn is_quiet_where_little_went() {
    assert_eq!(found(&host(Went::Dropped(100))), Vec::new());
    assert_eq!(found(&host(Went::Reclaimed(3_000))), Vec::new(), "3 % of what it read");
}

/// A neighbour that reads little has not taken the pages of a victim that needs more memory than there is. Two services that are alike
/// have not taken each other's pages.
#[test]
fn neighbour_that_did_not_add_most_of_the_pages_is_not_accused() {
    for added in [300, 90_000] {
        let mut rec = host(Went::Reclaimed(80_000));
        rows(&mut rec)[1].pages_added = added;
        assert_eq!(found(&rec), Vec::new(), "{added}");
    }
    let mut alike = host(Went::Reclaimed(15_000));
    rows(&mut alike)[1] = Memory { pid: 9, tgid: 9, ..rows(&mut alike)[0].clone() };
    assert_eq!(found(&alike), Vec::new(), "two services that are alike; few evictions were seen");
}

/// A program that grows needs the room. A program that streams below a limit of its own uses its own room again.
#[test]
fn streamer_beside_growth_or_below_its_own_limit_is_not_accused() {
    assert_eq!(found(&grown_by(host(Went::Reclaimed(80_000)), 60_000)), Vec::new());
    let mut rec = host(Went::Reclaimed(80_000));
    rec.snapshots.clear();
    assert_eq!(found(&rec), Vec::new(), "whether a program grew is not known");
    let mut rec = host(Went::Reclaimed(80_000));
    rows(&mut rec)[1].limit_reclaims = 500;
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn among_several_streams_none_is_accused_alone() {
    let mut rec = host(Went::Reclaimed(80_000));
    for pid in 11..14 {
        rows(&mut rec).push(Memory { pid, tgid: pid, pages_added: 850_000, ..Memory::default() });
        rec.tables.tasks.as_mut().unwrap().push(task(pid, &format!("scan{pid}")));
    }
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn dropped_pages_accuse_only_a_known_other_process_that_took_most() {
    let mut rec = host(Went::Dropped(100_000));
    rows(&mut rec)[0].taken_by = 7;
    assert_eq!(found(&rec), Vec::new());
    rows(&mut rec)[0].taken_by = 999;
    assert_eq!(found(&rec), Vec::new(), "the process that dropped the pages is not known");
    rows(&mut rec)[0].taken_by = 9;
    rows(&mut rec)[0].taken_at_least = 2_000;
    assert_eq!(found(&rec), Vec::new(), "most pages may have left memory in another way");
}

/// A script drops pages with one short process after the other; the last one started after the tasks had been counted.
#[test]
fn a_dropper_that_is_not_known_is_told_by_its_session() {
    let mut rec = host(Went::Dropped(100_000));
    (rows(&mut rec)[0].taken_by, rows(&mut rec)[0].taker_session) = (999, 9);
    assert_eq!(found(&rec), Vec::new(), "no known task is in that session");
    rec.tables.tasks.as_mut().unwrap()[1].session = 9;
    assert_eq!(found(&rec)[0].culprit.as_ref().unwrap().id, "9");
    rec.tables.tasks.as_mut().unwrap()[0].session = 9;
    assert_eq!(found(&rec), Vec::new(), "two trees are in that session");
}

/// Pages that whyslow or kernel threads read do not count for other tasks.
#[test]
fn rows_of_the_look_itself_are_given_to_nobody() {
    let mut rec = host(Went::Reclaimed(80_000));
    rows(&mut rec)[1] = Memory { pid: 50, tgid: 50, pages_added: 900_000, ..Memory::default() };
    rec.meta.own_pids = vec![50];
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn cannot_tell_without_a_probe_or_samples() {
    let mut rec = host(Went::Dropped(100_000));
    rec.tables.samples = None;
    assert!(check(&Evidence::of(&rec)).is_err());
    rec.tables.memory = None;
    assert!(check(&Evidence::of(&rec)).is_err());
}
