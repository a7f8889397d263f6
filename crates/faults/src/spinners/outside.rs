//! A program of another project or language inside the fence. Its output is its account.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::account::Account;
use crate::cgroup::Group;
use crate::{Fence, sys, thresholds};

/// It runs until this is dropped, the thread that started it ends, or the time of the test is up.
pub struct Outside {
    child: Child,
    printed: PathBuf,
}

/// A runtime needs some seconds to start on a busy host.
const READY_WITHIN: Duration = Duration::from_secs(20);

impl Outside {
    /// Start it in a cgroup of the fence.
    pub fn start(fence: &Fence, group: &Group, command: &mut Command, label: &str) -> io::Result<Self> {
        let printed = fence.dir().join(format!("{label}.out"));
        let said = File::create(fence.dir().join(format!("{label}.err")))?;
        command.stdin(Stdio::null()).stdout(File::create(&printed)?).stderr(said);
        Ok(Outside { child: spawn(fence, group, command)?, printed })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    #[must_use]
    pub fn text(&self) -> String {
        fs::read_to_string(&self.printed).unwrap_or_default()
    }

    /// The account that its threads printed.
    #[must_use]
    pub fn accounts(&self) -> Vec<Account> {
        Account::of_lines(&self.text())
    }

    /// Bytes that it has read, or was about to read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", self.pid())).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap_or(0)
    }

    /// Wait until `done` holds.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        let began = Instant::now();
        while !done(self) {
            let (kind, trouble) = match self.child.try_wait()? {
                Some(status) => (io::ErrorKind::Other, format!("ended early: {status}")),
                None if began.elapsed() > thresholds::patient(READY_WITHIN) => {
                    (io::ErrorKind::TimedOut, "takes too long".to_owned())
                }
                None => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            };
            let said = fs::read_to_string(self.printed.with_extension("err")).unwrap_or_default();
            return Err(io::Error::new(kind, format!("{what}: {trouble}: {}", said.trim())));
        }
        Ok(())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // A child that has not been waited for: no other process can have its pid.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(fence: &Fence, group: &Group, command: &mut Command) -> io::Result<Child> {
    let files = group.procs_files();
    let procs: Vec<CString> = files.iter().map(|path| sys::c_path(path)).collect::<io::Result<_>>()?;
    let lifetime_s = fence.left().as_secs().max(1) as u32;
    let parent = std::process::id();
    // SAFETY: between fork and exec the code makes only system calls, it allocates and locks nothing.
    unsafe {
        command.pre_exec(move || {
            sys::die_with_parent()?;
            if std::os::unix::process::parent_id() != parent {
                return Err(io::ErrorKind::NotFound.into());
            }
            // Kept over exec.
            sys::die_after(lifetime_s);
            procs.iter().try_for_each(|path| sys::write_file(path, b"0"))?;
            sys::write_file(c"/proc/self/oom_score_adj", b"1000")
        });
    }
    command.spawn()
}

/// Find a program in PATH. `Unsupported`: this host does not have it.
pub fn find(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/go/bin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("there is no {name} here")))
}

/// Path of a source file beside this crate.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Run a compiler to its end.
pub fn build(command: &mut Command) -> io::Result<()> {
    let done = command.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{}: {}", command.get_program().to_string_lossy(), said.trim())))
}
