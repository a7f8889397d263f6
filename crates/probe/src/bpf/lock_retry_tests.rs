//! A thread of ours is refused locks on files that a child of ours holds, and sleeps before it tries again.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use whyslow_model::syscall::SLEEPS;

use super::other_ends_tests::{Holder, await_call};
use super::*;

/// So long that no pause counts as one before the next attempt (`REFUSED_PAUSE`).
const NAP: Duration = Duration::from_millis(15);

/// A lock on a file, of bytes `from..to` unless it is flock's.
#[derive(Debug, Clone, Copy)]
struct Lock {
    flock: bool,
    write: bool,
    from: i64,
    to: i64,
}

impl Lock {
    /// Without waiting.
    fn take(self, fd: i32) -> bool {
        // SAFETY: the descriptor is open; the struct is ours.
        unsafe {
            if self.flock {
                return libc::flock(
                    fd,
                    libc::LOCK_NB | if self.write { libc::LOCK_EX } else { libc::LOCK_SH },
                ) == 0;
            }
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = if self.write { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
            (lock.l_start, lock.l_len) = (self.from, self.to - self.from);
            libc::fcntl(fd, libc::F_SETLK, &lock) == 0
        }
    }

    fn conflicts(self, held: Lock) -> bool {
        let overlap = self.flock || (self.from < held.to && held.from < self.to);
        (self.write || held.write) && overlap
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A child that holds these locks on the file. It keeps them when it executes: it has one descriptor, which stays open.
fn holder(path: &Path, locks: Vec<Lock>) -> Holder {
    let mut command = std::process::Command::new("sleep");
    drop(open(path));
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: system calls only between fork and exec.
    unsafe {
        command.arg("1000").pre_exec(move || {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR);
            let all = fd >= 0 && locks.iter().all(|lock| lock.take(fd));
            if all { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    Holder(command.spawn().unwrap())
}

/// The result of a thread: its number, whether it was refused, and whether it was refused at once before its second nap.
fn tries(path: PathBuf, wanted: Lock) -> (u32, bool, bool) {
    let thread = std::thread::spawn(move || {
        let file = open(&path);
        let refused = !wanted.take(file.as_raw_fd());
        std::thread::sleep(NAP); // the first time it may do without the lock
        wanted.take(file.as_raw_fd());
        let at = Instant::now();
        std::thread::sleep(NAP); // for the lock, if it was refused
        let in_time = at.elapsed() < NAP + Duration::from_millis(5);
        std::thread::sleep(NAP); // for nothing
        (me(), refused, in_time)
    });
    thread.join().unwrap()
}

/// For naps one after the other, the reported holder of each, 0 if the nap is the thread's own.
fn told_of(rows: &[whyslow_model::table::Span], pid: u32) -> Vec<(bool, u32, Option<String>)> {
    let is_nap = |row: &&whyslow_model::table::Span| {
        row.pid == pid && row.syscall.is_some_and(|call| SLEEPS.contains(&call))
    };
    let file = |row: &whyslow_model::table::Span| row.target.as_ref().map(|file| file.name.clone());
    rows.iter().filter(is_nap).map(|row| (row.refused, row.holder, file(row))).collect()
}

/// A thread that is refused twice, then gets the lock and sleeps with it; and one whose holder releases the lock while it sleeps.
#[test]
fn root_nap_with_own_or_free_lock_is_no_lock_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    let mut all = Vec::new();
    for flock in [false, true] {
        let path = folder.path().join(format!("locked-{flock}"));
        let lock = Lock { flock, write: true, from: 0, to: 10 };
        let holder = holder(&path, vec![lock]);
        let thread = std::thread::spawn(move || {
            let file = open(&path);
            let fd = file.as_raw_fd();
            let refused = (0..3).filter(|_| {
                let refused = !lock.take(fd);
                std::thread::sleep(NAP);
                refused
            });
            assert_eq!(refused.count(), 3);
            assert!(!lock.take(fd));
            drop(holder); // it releases the lock before the nap is over
            std::thread::sleep(NAP);
            while !lock.take(fd) {
                std::thread::yield_now();
            }
            std::thread::sleep(NAP); // with the lock
            me()
        });
        all.push(thread.join().unwrap());
    }
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of_all(&mut seen);
    let mut known = 0;
    for pid in all {
        let told = told_of(&rows, pid);
        let refused: Vec<bool> = told.iter().map(|(refused, ..)| *refused).collect();
        // Some hosts hide a switch of a hundred: then a nap has no call, and no nap counts as refused that was not.
        assert!(refused.len() < 5 || refused == [false, true, true, false, false], "{told:?}");
        known += refused.iter().filter(|refused| **refused).count();
    }
    assert!((1..=4).contains(&known), "{known} naps until the next attempt");
}

/// After two refusals it waits for a pipe, and for a mutex of its own: no wait for the lock on the file.
#[test]
fn root_pipe_and_mutex_waits_after_refusal_are_no_file_lock_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked");
    let lock = Lock { flock: true, write: true, from: 0, to: 0 };
    let _holder = holder(&path, vec![lock]);
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    let (reads, writes) = std::io::pipe().unwrap();
    let mutex = std::sync::Mutex::new(());
    let (pid, guard) = (std::sync::atomic::AtomicU32::new(0), mutex.lock().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Read as _;
            let (file, mut reads) = (open(&path), reads);
            pid.store(me(), std::sync::atomic::Ordering::Relaxed);
            for _ in 0..2 {
                lock.take(file.as_raw_fd());
                std::thread::sleep(NAP);
            }
            lock.take(file.as_raw_fd());
            let _ = reads.read(&mut [0]);
            lock.take(file.as_raw_fd());
            drop(mutex.lock());
        });
        std::thread::sleep(5 * NAP);
        drop(writes);
        std::thread::sleep(2 * NAP);
        drop(guard);
    });
    let (mut seen, _) = sched.finish().unwrap();
    let pid = pid.into_inner();
    let rows = timeline_of_all(&mut seen);
    let others =
        rows.iter().filter(|row| row.pid == pid && !row.syscall.is_none_or(|call| SLEEPS.contains(&call)));
    let others: Vec<_> = others.collect();
    assert!(!others.is_empty(), "it waited for a pipe and for a mutex");
    for row in others {
        let file = row.target.as_ref().map(|file| file.kind.as_str());
        assert!(!row.refused && file != Some("file"), "{row:?}");
    }
}

#[test]
fn root_nap_after_a_repeated_file_lock_refusal_names_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    let mut all = Vec::new();
    for bits in 0..16u32 {
        let bits = bits ^ (drawn & 15);
        let is = |bit: u32| bits >> bit & 1 == 1;
        let path = folder.path().join(format!("locked-{bits}"));
        let flock = is(0);
        let far = Lock { flock, write: true, from: 1000, to: 1010 };
        let held = Lock { flock, write: is(1), from: 100, to: 110 };
        let at = if is(3) { 105 } else { 110 };
        let wanted = Lock { flock, write: is(2), from: at, to: at + 10 };
        let holder = holder(&path, if flock { vec![held] } else { vec![far, held] });
        let (pid, refused, in_time) = tries(path, wanted);
        assert_eq!(refused, wanted.conflicts(held), "{wanted:?}, {held:?}");
        if in_time {
            let told = (wanted, held, holder.0.id(), pid, refused);
            all.push((told, format!("locked-{bits}"), holder));
        }
    }
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of_all(&mut seen);
    let mut judged = 0;
    for ((wanted, held, holder, pid, refused), name, _) in all {
        let naps = told_of(&rows, pid);
        let what = format!("{wanted:?}, {held:?}, seed {drawn}: {naps:?}");
        // Some hosts hide a switch of a hundred: then the nap has no call.
        let [first, second, third] = &naps[..] else { continue };
        assert!(!first.0 && !third.0 && first.1 == 0 && third.1 == 0, "{what}");
        let right = if refused { (true, holder, Some(name)) } else { (false, 0, None) };
        assert_eq!(*second, right, "{what}");
        judged += 1;
    }
    assert!(judged > 8, "only {judged} of 16 were seen");
}

/// A process and those that it has started.
struct Group(std::process::Child);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: numbers only; the group was made for our child, which is not reaped before.
        unsafe { libc::killpg(self.0.id() as i32, libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// As a script does: flock(1) takes the lock on a file that the script has open, and ends.
#[test]
fn root_a_lock_whose_taker_has_ended_is_that_of_the_oldest_process_that_has_the_file_open() {
    use std::io::Read as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked");
    let mut script = std::process::Command::new("sh");
    script
        .args(["-c", "exec 9> \"$0\"; flock 9; for i in $(seq 20); do sleep 20 & done; echo; exec sleep 20"])
        .arg(&path);
    let mut script = script.process_group(0).stdout(std::process::Stdio::piped()).spawn().unwrap();
    script.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let (pid, script) = (script.id(), Group(script));
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    let (tells, told) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || {
        let file = open(&path);
        tells.send(me()).unwrap();
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    });
    let waiter = told.recv().unwrap();
    await_call(waiter, &["73"]);
    std::thread::sleep(NAP);
    let (mut seen, _) = sched.finish().unwrap();
    drop(script);
    waits.join().unwrap();
    let rows = timeline_of_all(&mut seen);
    let open: Vec<_> = rows.iter().filter(|row| row.pid == waiter && row.open).collect();
    assert_eq!(open.iter().map(|row| row.holder).collect::<Vec<_>>(), [pid], "{open:?}");
    assert!(open[0].other_end.is_none(), "it is no connection");
}
