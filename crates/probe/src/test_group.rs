//! A cgroup for one test, removed at its end, and a victim in it.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The prefix of the names of our groups.
const PREFIX: &str = "whyslow-test";

/// A cgroup of a v1 hierarchy. Only one live test at a time has one: it holds the lock as long as the group exists.
pub(crate) struct Group {
    path: PathBuf,
    hierarchy: u64,
    _lock: File,
}

/// A process of the test, killed at the latest when it is dropped.
pub(crate) struct Victim(pub(crate) Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Group {
    /// A group with `controller`; `None` (reported on stderr) where it has no v1 hierarchy in its usual place.
    pub(crate) fn new(controller: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let Some(hierarchy) = hierarchy(controller).filter(|_| root.is_dir()) else {
            eprintln!("not run: no v1 hierarchy with the {controller} controller at {}", root.display());
            return None;
        };
        let lock = File::create(std::env::temp_dir().join(format!("{PREFIX}.lock"))).unwrap();
        // SAFETY: the descriptor is open as long as `lock` is.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
        sweep(&root);
        let path =
            root.join(format!("{PREFIX}-{}-{}", std::process::id(), started(std::process::id()).unwrap()));
        fs::create_dir(&path).unwrap();
        Some(Group { path, hierarchy, _lock: lock })
    }

    /// Its key in tables.
    pub(crate) fn key(&self) -> u64 {
        self.hierarchy << 56 | fs::metadata(&self.path).unwrap().ino()
    }

    /// One of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Set one of its files.
    pub(crate) fn set(&self, file: &str, value: &str) {
        fs::write(self.path.join(file), value)
            .unwrap_or_else(|err| panic!("cannot write {value} to {file}: {err}"));
    }

    /// A number of one of its files: what follows `label`.
    pub(crate) fn statistic(&self, file: &str, label: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap();
        text.lines().find_map(|line| line.strip_prefix(label)).unwrap().trim().parse().unwrap()
    }

    /// Run a shell's command line in it; `$1`... are `args`.
    pub(crate) fn run(&self, script: &str, args: &[&Path]) -> Victim {
        let enter = "echo $$ > \"$0\" && echo 1000 > /proc/self/oom_score_adj || exit 9; ";
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{enter}{script}")).arg(self.path.join("cgroup.procs")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: prctl is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        Victim(command.spawn().unwrap())
    }
}

/// The text of a child that enters this group first.
pub(crate) fn in_group(folder: &Path, tell: impl FnOnce() -> String) -> String {
    let procs = folder.join("cgroup.procs");
    let reported = crate::child::run(Duration::from_secs(60), 1 << 20, |out| {
        let entered = fs::write(&procs, "0");
        let text = entered.map_or_else(|err| format!("cannot enter {}: {err}", procs.display()), |()| tell());
        drop(out.write_all(text.as_bytes()));
    });
    // It has written everything, and may still have to end.
    let patience = Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&procs).is_ok_and(|left| !left.is_empty()) && Instant::now() < patience {
        std::thread::yield_now();
    }
    String::from_utf8(reported.unwrap().bytes).unwrap()
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last task of the group may still be ending.
        for _ in 0..1000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// A directory on the disk where the build is: /tmp may be memory.
pub(crate) fn scratch() -> tempfile::TempDir {
    let exe = std::env::current_exe().unwrap();
    let started = started(std::process::id()).unwrap();
    let prefix = format!("{PREFIX}-{}-{started}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(exe.parent().unwrap()).unwrap()
}

/// Remove the groups of tests that are dead.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, start)) =
            name.strip_prefix(&format!("{PREFIX}-")).and_then(|rest| rest.split_once('-'))
        else {
            continue;
        };
        let alive = pid.parse().ok().and_then(started).is_some_and(|at| start.starts_with(&at.to_string()));
        if !alive {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Start time of a process: with the pid, its identity.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn hierarchy(controller: &str) -> Option<u64> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    cgroups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|name| name == controller).then_some(number)
    })
}
