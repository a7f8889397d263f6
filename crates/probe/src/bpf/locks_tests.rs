use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whyslow_model::timeline::{HoldSeen, LockKind};

use super::*;
use crate::kallsyms::Kallsyms;
use crate::lock_table;
use crate::stuck::{Stuck, tid};
use crate::symbols::KernelNames;
use crate::test_group::{Group, scratch};

const CPUS: [u32; 2] = [0, 1];

fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn new_file(dir: &Path) -> PathBuf {
    let path = dir.join("file");
    std::fs::write(&path, b"x").unwrap();
    path
}

/// A thread that writes to the file, and its id; it tells how long the write took.
fn writer(path: &Path) -> (u32, JoinHandle<Duration>) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(tid()).unwrap();
        let began = Instant::now();
        file.write_all(b"y").unwrap();
        began.elapsed()
    });
    (told.recv().unwrap(), thread)
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
    let probe = Locks::start(&mut slot, None, &CPUS).unwrap();
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
    let early = Locks::start(&mut first, None, &CPUS).unwrap();
    let (pid, thread) = writer(&path);
    await_wait(&early, pid, 0);
    let begin = now_ns();
    let probe = Locks::start(&mut second, None, &CPUS).unwrap();
    let seen = await_wait(&probe, pid, 20_000_000);
    if seen.wait.since == 0 {
        eprintln!("not run: this kernel does not note who blocks a task");
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

/// Another mapping that `mprotect` walks while `mincore` waits to look at it.
struct Pages(*mut libc::c_void, usize);
// SAFETY: an address; the threads of the test only make system calls with it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(len: usize) -> Self {
        // SAFETY: a new private mapping; populated, so that there is something to walk.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            assert_eq!(libc::madvise(at, len, libc::MADV_POPULATE_WRITE), 0);
            Pages(at, len)
        }
    }

    fn protect(&self, how: i32) {
        // SAFETY: the mapping is ours, and nobody touches its bytes.
        assert_eq!(unsafe { libc::mprotect(self.0, self.1, how) }, 0);
    }

    /// Takes mmap_lock for reading; how long that took, and whether it slept.
    fn look(&self) -> (Duration, bool) {
        let (mut byte, slept, began) = (0u8, sleeps(), Instant::now());
        // SAFETY: asks for one page, whose answer is one byte.
        assert_eq!(unsafe { libc::mincore(self.0, 4096, &raw mut byte) }, 0);
        (began.elapsed(), sleeps() > slept)
    }
}

/// How often this thread has given up the CPU of itself.
fn sleeps() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local of that type, whose bytes may all be zero.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nvcsw
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the threads have ended.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn root_waits_for_mmap_lock_are_as_long_as_the_waiters_clock_says() {
    let pages = Pages::new(128 << 20);
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let probe = Locks::start(&mut slot, None, &CPUS).unwrap();
    let done = AtomicBool::new(false);
    let (holder, waiter, slow) = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pages.protect(libc::PROT_READ);
                pages.protect(libc::PROT_READ | libc::PROT_WRITE);
            }
            tid()
        });
        let waiter = scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(20);
            let mut slow = Vec::new();
            while slow.len() < 200 && Instant::now() < until {
                let (took, slept) = pages.look();
                slow.extend(slept.then_some(took));
            }
            done.store(true, Ordering::Relaxed);
            (tid(), slow)
        });
        let (waiter, slow) = waiter.join().unwrap();
        (holder.join().unwrap(), waiter, slow)
    });
    let (seen, lost) = probe.finish().unwrap();
    assert_eq!((lost, slow.len()), (0, 200));

    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, holds, stacks) = lock_table::tables(&seen, begin, now_ns() - begin, &mut kernel, 0);
    let acquired =
        holds.iter().find(|h| h.pid == waiter && h.seen == HoldSeen::Acquired && h.reader).unwrap();
    let rows = || locks.iter().filter(|l| l.address == acquired.lock && !l.write);
    let total: u64 = rows().map(|l| l.total_ns).sum();
    let worst = rows().map(|l| l.worst_ns).max().unwrap();
    let clock: u64 = slow.iter().map(|took| took.as_nanos() as u64).sum();
    let clock_worst = slow.iter().max().unwrap().as_nanos() as u64;
    let count: u64 = rows().map(|l| l.count).sum();
    let ratio = total as f64 / clock as f64;
    eprintln!(
        "{count} waits of {total} ns, worst {worst}; by the clock {} of {clock} ns, worst {clock_worst}",
        slow.len()
    );
    assert!((0.9..1.1).contains(&ratio), "{total} ns, {clock} ns by the clock");
    assert!(worst <= clock_worst && worst > clock_worst / 2, "{worst} ns, {clock_worst} ns by the clock");
    assert!((180..=220).contains(&count), "{count} waits, {} by the clock", slow.len());
    let site = |l: &whyslow_model::timeline::Lock| {
        stacks.iter().any(|s| Some(s.id) == l.stack && s.kernel.iter().any(|n| n.contains("mincore")))
    };
    let named: u64 = rows().filter(|l| site(l)).map(|l| l.total_ns).sum();
    assert!(named > total * 9 / 10, "{named} of {total} ns have a call site: {stacks:?}");
    let words: Vec<_> =
        holds.iter().filter(|h| h.lock == acquired.lock && h.seen == HoldSeen::Word && !h.reader).collect();
    let right = words.iter().filter(|h| h.pid == holder).count();
    assert!(right > 50 && right * 20 > words.len() * 19, "{right} of {} owners are the holder", words.len());
}

#[test]
fn root_cgroup_mutex_is_seen_where_cgroups_are_made_and_removed() {
    let Some(group) = Group::new("memory") else { return };
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let mut probe = Locks::start(&mut slot, None, &CPUS).unwrap();
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
        while probe.rows().unwrap().iter().filter(|row| row.kind == 1).map(|row| row.count).sum::<u64>() < 200
        {
            assert!(Instant::now() < until, "no contention in 20 s");
            std::thread::sleep(Duration::from_millis(20));
            probe.poll().unwrap();
        }
        enough.store(true, Ordering::Relaxed);
    });
    let (seen, _) = probe.finish().unwrap();
    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, _, stacks) = lock_table::tables(&seen, begin, now_ns() - begin, &mut kernel, 0);
    let called = |l: &whyslow_model::timeline::Lock, by: &str| {
        stacks.iter().any(|s| Some(s.id) == l.stack && s.kernel.iter().any(|name| name == by))
    };
    let mutex = locks
        .iter()
        .find(|l| l.kind == LockKind::Mutex && l.write && called(l, "cgroup_kn_lock_live"))
        .unwrap_or_else(|| panic!("no call site in {locks:?}"));
    let count: u64 = locks.iter().filter(|l| l.address == mutex.address).map(|l| l.count).sum();
    assert!(count >= 3, "{locks:?}");
}
