use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;
use whyslow_model::timeline::{HoldSeen, Lock, LockKind};

use super::*;
use crate::bpf::sched::{Budget, Layout, Sched};
pub(super) use crate::host::monotonic_ns as now_ns;
use crate::kallsyms::Kallsyms;
use crate::lock_table;
use crate::symbols::KernelNames;
use crate::test_group::{Group, scratch};
use crate::test_stuck::{Stuck, tid};

pub(super) const CPUS: [u32; 2] = [0, 1];

fn new_file(dir: &Path) -> PathBuf {
    let path = dir.join("file");
    std::fs::write(&path, b"x").unwrap();
    path
}

/// A thread that writes to the file, and its id; it tells how long the write took.
fn writer(path: &Path) -> (u32, JoinHandle<Duration>) {
    writer_to(OpenOptions::new().write(true).open(path).unwrap())
}

fn writer_to(mut file: File) -> (u32, JoinHandle<Duration>) {
    let (tell, reported) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(tid()).unwrap();
        let began = Instant::now();
        file.write_all(b"y").unwrap();
        began.elapsed()
    });
    (reported.recv().unwrap(), thread)
}

/// The wait of `pid`, as soon as there is one of that length.
fn await_wait(probe: &Locks<'_>, pid: u32, ns: u64) -> locks_open {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < patience, "{pid} never waited");
        let open = probe.sample().unwrap().into_iter().find(|open| open.wait.pid == pid);
        if let Some(open) = open
            && now_ns().saturating_sub(open.wait.since) >= ns
        {
            return open;
        }
        std::thread::yield_now();
    }
}

#[test]
fn root_a_wait_for_an_inodes_lock_has_its_length_its_call_site_and_its_owner() {
    let dir = scratch();
    let path = new_file(dir.path());
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let mut probe = Locks::start(&mut slot, None, &CPUS).unwrap();
    probe.begin();
    let mut holder = Stuck::writing(&path);
    let (pid, thread) = writer(&path);
    let seen = await_wait(&probe, pid, 30_000_000);
    assert_eq!((seen.wait.kind, seen.wait.write), (2, 1));
    assert_eq!((seen.wait.owner, seen.wait.owner_again, seen.wait.reader_owned), (holder.tid, holder.tid, 0));
    assert_eq!(seen.owner_tgid, std::process::id());
    holder.let_go();
    let took = thread.join().unwrap();
    let (seen, lost) = probe.finish().unwrap();
    assert_eq!(lost, 0);

    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, holds, stacks) = lock_table::tables(&seen, begin, now_ns() - begin, &mut kernel, 7);
    let acquired =
        holds.iter().find(|h| h.pid == pid && h.seen == HoldSeen::Acquired).expect("it got the lock");
    let lock = locks.iter().find(|l| l.address == acquired.lock).unwrap();
    assert_eq!((lock.kind, lock.write, lock.count), (LockKind::Rwsem, true, 1));
    let ratio = lock.total_ns as f64 / took.as_nanos() as f64;
    assert!((0.8..=1.0).contains(&ratio), "{lock:?} of {took:?}");
    let stack = stacks.iter().find(|s| Some(s.id) == lock.stack).expect("the wait was long");
    assert!(stack.id >= 7 && stack.kernel[0].contains("write"), "{stack:?}");
    assert!(stack.kernel.iter().any(|name| name == "vfs_write"), "{stack:?}");
    let words: Vec<_> = holds.iter().filter(|h| h.lock == lock.address && h.seen == HoldSeen::Word).collect();
    // When the wait began, and by the timer while it lasted.
    assert!(words.len() >= 2 && words.iter().all(|h| h.pid == holder.tid && !h.reader), "{words:?}");
    assert!(words.iter().all(|h| h.at_ns <= acquired.at_ns && h.tgid == std::process::id()), "{words:?}");
}

#[test]
fn root_a_wait_from_before_the_window_that_does_not_end_is_counted_to_the_windows_end() {
    let dir = scratch();
    let path = new_file(dir.path());
    let mut holder = Stuck::writing(&path);
    let (mut first, mut second) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut early = Locks::start(&mut first, None, &CPUS).unwrap();
    early.begin();
    let (pid, thread) = writer(&path);
    await_wait(&early, pid, 0);
    let begin = now_ns();
    let mut probe = Locks::start(&mut second, None, &CPUS).unwrap();
    probe.begin();
    let seen = await_wait(&probe, pid, 20_000_000);
    if seen.wait.since == 0 {
        eprintln!("not run: this kernel does not note the lock holder that blocks a task");
        return;
    }
    let (seen, _) = probe.finish().unwrap();
    let window = now_ns() - begin;
    holder.let_go();
    thread.join().unwrap();

    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, holds, stacks) = lock_table::tables(&seen, begin, window, &mut kernel, 0);
    let open = seen.open.iter().find(|open| open.wait.pid == pid).expect("it still waits");
    let lock = locks.iter().find(|l| l.address == open.wait.lock).unwrap();
    assert_eq!((lock.kind, lock.write, lock.count), (LockKind::Rwsem, true, 1));
    assert!(lock.total_ns >= 20_000_000 && lock.total_ns <= window, "{lock:?} in {window} ns");
    let stack = stacks.iter().find(|s| Some(s.id) == lock.stack).unwrap();
    assert!(stack.kernel.iter().any(|name| name == "vfs_write"), "{stack:?}");
    let words: Vec<_> = holds.iter().filter(|h| h.lock == lock.address).collect();
    assert!(!words.is_empty() && words.iter().all(|h| h.pid == holder.tid), "{words:?}");
}

#[test]
fn root_chained_lock_waits_are_reported_separately_via_a_shared_map() {
    let dir = scratch();
    let path = new_file(dir.path());
    let mut slot = MaybeUninit::uninit();
    let mut sched_slot = MaybeUninit::uninit();
    let sched = Sched::load(&mut sched_slot, Layout::default(), Budget::of(2, false)).unwrap();
    let mut probe = Locks::start(&mut slot, Some(sched.shared()), &CPUS).unwrap();
    let map = MapHandle::try_from(&probe.skel.maps.lock_waits).unwrap();
    probe.begin();
    let mut holder = Stuck::writing(&path);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let (middle, middle_thread) = writer_to(file.try_clone().unwrap());
    await_wait(&probe, middle, 0);
    let (last, last_thread) = writer_to(file);
    let waits = await_wait(&probe, last, 10_000_000).wait;
    // The last one waits for the lock of the file's position, a mutex, which the middle one holds in its write.
    assert_eq!((waits.kind, waits.owner, waits.owner_again), (1, middle, middle));
    let mutex = waits.lock;
    let waits = await_wait(&probe, middle, 10_000_000).wait;
    assert_eq!((waits.kind, waits.owner, waits.owner_again), (2, holder.tid, holder.tid));
    let lock_now = || {
        let bytes = map.lookup(&(last & 65535).to_ne_bytes(), MapFlags::ANY);
        u64::from_ne_bytes(bytes.unwrap().unwrap()[..8].try_into().unwrap())
    };
    assert_ne!(lock_now(), 0, "the wait is in the shared map");
    holder.let_go();
    middle_thread.join().unwrap();
    last_thread.join().unwrap();
    assert_eq!(lock_now(), 0, "the wait is over");
    let (seen, lost) = probe.finish().unwrap();
    assert_eq!(lost, 0);
    let got: Vec<_> = seen.holds.iter().filter(|h| h.acquired != 0).map(|h| (h.lock, h.pid)).collect();
    let place = |lock, pid| got.iter().position(|at| *at == (lock, pid)).expect("it got its lock");
    assert!(place(waits.lock, middle) < place(mutex, last), "{got:?}");
}

#[test]
fn root_a_lock_for_which_no_row_is_left_is_summed_with_its_like() {
    let dir = scratch();
    let path = new_file(dir.path());
    let mut slot = MaybeUninit::uninit();
    let rest = 2 * u32::from(KINDS);
    let mut probe = Locks::start_with(&mut slot, None, &CPUS, rest).unwrap();
    probe.begin();
    let mut holder = Stuck::writing(&path);
    let (waiter, thread) = writer_to(OpenOptions::new().write(true).open(&path).unwrap());
    await_wait(&probe, waiter, 10_000_000);
    holder.let_go();
    thread.join().unwrap();
    let (seen, lost) = probe.finish().unwrap();
    let rwsems: Vec<_> = seen.rows.iter().filter(|row| row.kind == 2 && row.write).collect();
    assert!(seen.rows.iter().all(|row| row.lock == 0), "{:?}", seen.rows);
    assert!(rwsems.len() == 1 && rwsems[0].worst_ns >= 10_000_000, "{rwsems:?}");
    assert_eq!(lost, seen.rows.iter().map(|row| row.count).sum::<u64>(), "each is counted");
}

#[test]
fn root_cgroup_mutex_is_seen_where_cgroups_are_made_and_removed() {
    let Some(group) = Group::new("memory") else { return };
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let mut probe = Locks::start(&mut slot, None, &CPUS).unwrap();
    probe.begin();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (dir, enough) = (group.file(name), &enough);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    std::fs::create_dir(&dir).unwrap();
                    std::fs::remove_dir(&dir).unwrap();
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(20);
        while probe.rows().unwrap().iter().filter(|row| row.kind == 1).map(|row| row.count).sum::<u64>()
            < 1000
        {
            assert!(Instant::now() < until, "no contention in 20 s");
            std::thread::sleep(Duration::from_millis(20));
            probe.poll(Duration::ZERO);
        }
        enough.store(true, Ordering::Relaxed);
    });
    let (seen, _) = probe.finish().unwrap();
    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, _, stacks) = lock_table::tables(&seen, begin, now_ns() - begin, &mut kernel, 0);
    let called = |l: &Lock| {
        stacks.iter().any(|s| {
            Some(s.id) == l.stack
                && s.kernel.iter().any(|n| n.starts_with("cgroup_") || n.starts_with("css_"))
        })
    };
    let mutex = locks
        .iter()
        .filter(|l| l.kind == LockKind::Mutex && l.write && called(l))
        .max_by_key(|l| l.count)
        .unwrap_or_else(|| panic!("no call site in {locks:?}"));
    let count: u64 = locks.iter().filter(|l| l.address == mutex.address).map(|l| l.count).sum();
    assert!(count >= 3, "{locks:?}");
}
