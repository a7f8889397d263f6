//! Large pids for a test: a setting of the whole host, which is restored even if the test is killed.

use std::fs::{File, OpenOptions};
use std::io::{PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILE: &str = "/proc/sys/kernel/pid_max";
/// The value that systemd sets.
const LARGE: &str = "4194304\n";

/// While it lives pids may be large. Those of this test are still assigned in the order of their numbers.
pub(crate) struct LargePids {
    guard: Option<Guard>,
    _turn: Turn,
}

/// A lock: one test at a time, in this process and on this host. Each test must see the host's own setting.
struct Turn {
    file: File,
    _here: MutexGuard<'static, ()>,
}

/// A process that outlives the test, however that ends, and restores the setting.
struct Guard {
    pid: libc::pid_t,
    /// Closed by the kernel when the test ends, if not before.
    alive: Option<PipeWriter>,
}

impl LargePids {
    pub(crate) fn new() -> Self {
        let turn = Turn::take();
        let before = before();
        let guard = (before != LARGE).then(|| Guard::start(&turn, &before));
        if guard.is_some() {
            std::fs::write(FILE, LARGE).unwrap();
        }
        LargePids { guard, _turn: turn }
    }
}

impl Turn {
    /// The lock is released when no process has the file open any longer: the guard has it, too.
    fn take() -> Self {
        static HERE: Mutex<()> = Mutex::new(());
        let here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
        let file = File::create(std::env::temp_dir().join("whyslow-test-pids.lock")).unwrap();
        file.lock().unwrap();
        Turn { file, _here: here }
    }
}

fn before() -> String {
    std::fs::read_to_string(FILE).unwrap()
}

impl Guard {
    fn start(turn: &Turn, before: &str) -> Self {
        let (gone, alive) = std::io::pipe().unwrap(); // both are closed on exec
        let setting = OpenOptions::new().write(true).open(FILE).unwrap();
        let kept = [gone.as_raw_fd(), setting.as_raw_fd(), turn.file.as_raw_fd()];
        // SAFETY: the child makes plain system calls only, and never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            put_back_later(kept, before.as_bytes());
        }
        Guard { pid, alive: Some(alive) }
    }
}

/// Waits until all processes have closed the other end of the pipe, and writes. Between fork and exit nothing is allocated:
/// another thread may have held malloc's lock.
fn put_back_later(kept: [RawFd; 3], before: &[u8]) -> ! {
    let mut byte = 0u8;
    // SAFETY: system calls on descriptors of this process alone, with pointers that are good for their lengths.
    unsafe {
        libc::setsid(); // what ends the test's session does not end it
        for (fd, at) in kept.into_iter().zip(0..) {
            libc::dup2(fd, at);
        }
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && *libc::__errno_location() == libc::EINTR {}
        libc::pwrite(1, before.as_ptr().cast(), before.len(), 0);
        libc::_exit(0)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A byte has the same meaning as the end of the pipe: a child of another test may still have the pipe open.
        drop(self.alive.take().map(|mut alive| alive.write_all(b".")));
        // SAFETY: our own child, for which no other thread waits; no status is wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

impl Drop for LargePids {
    fn drop(&mut self) {
        self.guard = None; // before the lock is released
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Set in the process that is killed.
    const VICTIM: &str = "WHYSLOW_TEST_LARGE_PIDS";
    const NAME: &str = "test_pids::tests::root_test_killed_with_large_pids_leaves_pid_max_as_it_was";

    #[test]
    fn root_test_killed_with_large_pids_leaves_pid_max_as_it_was() {
        if std::env::var_os(VICTIM).is_some() {
            let _large = LargePids::new();
            println!("they are large");
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let turn = Turn::take();
        let own = before();
        drop(turn);
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(VICTIM, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reported = Vec::new();
        let mut out = victim.stdout.take().unwrap();
        while !String::from_utf8_lossy(&reported).contains("they are large") {
            let mut some = [0; 512];
            let got = out.read(&mut some).unwrap();
            assert!(got > 0, "it ended");
            reported.extend(&some[..got]);
        }
        let raised = before();
        victim.kill().unwrap();
        victim.wait().unwrap();
        let patience = Instant::now() + Duration::from_secs(10);
        while before() != own && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = before();
        if after != own {
            std::fs::write(FILE, &own).unwrap();
        }
        assert_eq!((raised.as_str(), after), (LARGE, own));
    }

    #[test]
    fn root_pid_max_is_restored_after_large_pids() {
        let turn = Turn::take();
        let own = before();
        drop(turn);
        let large = LargePids::new();
        assert_eq!(before(), LARGE);
        drop(large);
        let _turn = Turn::take();
        assert_eq!(before(), own);
    }
}
