//! A thread of ours is refused locks on files that a child of ours has, and sleeps before it tries again.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use super::other_ends_tests::Holder;
use super::*;

/// So long that no pause counts as one before the next attempt (`REFUSED_PAUSE`).
const NAP: Duration = Duration::from_millis(15);
const NANOSLEEP: [u32; 2] = [35, 230];

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

/// A child that has these locks on the file. It keeps them when it executes: it has one descriptor, which stays open.
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

/// What a thread of ours met: its number, and whether it was refused.
fn tries(path: PathBuf, wanted: Lock) -> (u32, bool) {
    let thread = std::thread::spawn(move || {
        let file = open(&path);
        let refused = !wanted.take(file.as_raw_fd());
        std::thread::sleep(NAP); // for the lock, if it was refused
        std::thread::sleep(NAP); // for nothing
        (me(), refused)
    });
    thread.join().unwrap()
}

#[test]
fn root_who_is_refused_a_lock_on_a_file_and_sleeps_waits_for_who_has_it() {
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
        let (pid, refused) = tries(path, wanted);
        assert_eq!(refused, wanted.conflicts(held), "{wanted:?}, {held:?}");
        all.push((wanted, held, holder.0.id(), pid, refused, format!("locked-{bits}")));
    }
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of_all(&mut seen);
    let mut judged = 0;
    for (wanted, held, holder, pid, refused, name) in all {
        let is_nap = |row: &&whyslow_model::table::Span| {
            row.pid == pid && row.syscall.is_some_and(|call| NANOSLEEP.contains(&call))
        };
        let naps: Vec<_> = rows.iter().filter(is_nap).collect();
        let what = format!("{wanted:?}, {held:?}, seed {drawn}: {naps:?}");
        assert!(naps.len() <= 2, "{what}");
        // Some hosts hide a switch of a hundred: then the nap has no call.
        let Some(first) = naps.first().filter(|_| naps.len() == 2) else { continue };
        assert_eq!(first.refused, refused, "{what}");
        assert!(!naps[1].refused && naps[1].holder == 0, "{what}");
        assert_eq!(first.holder, if refused { holder } else { 0 }, "{what}");
        let file = first.target.as_ref().map(|file| file.name.as_str());
        assert_eq!(file, refused.then_some(name.as_str()), "{what}");
        judged += 1;
    }
    assert!(judged > 8, "only {judged} of 16 were seen");
}
