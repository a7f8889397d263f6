//! Saving fails: the disk is full, the file gets too large, the process is killed. The earlier file stays, or there is none.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whyslow::store;
use whyslow_model::Recording;

use crate::store::sample::{self, Draw};

/// The path to which a child of a test saves; unset in the test itself.
const CHILD: &str = "WHYSLOW_TEST_SAVE_TO";

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// This very test again, in a process of its own.
fn child(test: &str, save_to: &Path) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, save_to);
    child
}

/// Ends with the test, however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_at_any_moment_it_leaves_a_whole_file_or_none() {
    if let Some(path) = std::env::var_os(CHILD) {
        let rec = sample::recording(1_000, 1);
        loop {
            println!("save");
            std::io::stdout().flush().unwrap();
            store::save(&rec, Path::new(&path)).unwrap();
        }
    }
    let rec = sample::recording(1_000, 1);
    let took = {
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        store::save(&rec, &folder.path().join("host.why")).unwrap();
        start.elapsed()
    };
    let seed = crate::store::seed();
    println!("seed {seed}, a save takes {took:?}");
    let mut draw = Draw::new(seed);
    let (mut none, mut whole) = (0, 0);
    for round in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.why");
        let mut run = child("store::crash::killed_at_any_moment_it_leaves_a_whole_file_or_none", &path);
        let mut saver = Killed(run.stdout(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(saver.0.stdout.take().unwrap()).lines();
        // The first save makes the file, the later ones replace it.
        for _ in 0..=round % 3 {
            assert!(said.by_ref().any(|line| line.unwrap().contains("save")));
        }
        // The drawn moment is the point of the test; there is no event to wait for.
        std::thread::sleep(Duration::from_nanos(draw.below(1 + took.as_nanos() as u64)));
        drop(saver);
        if path.exists() {
            assert_eq!(store::open(&path).unwrap(), rec, "seed {seed}, round {round}");
            whole += 1;
        } else {
            none += 1;
        }
        let left = names(folder.path());
        let strays = left.iter().filter(|n| *n != "host.why").count();
        // A kill between the link and the rename, which take microseconds, leaves the link: it is a whole file, too.
        assert!(strays <= 1, "seed {seed}, round {round}: {left:?}");
        for stray in left {
            assert_eq!(store::open(&folder.path().join(stray)).unwrap(), rec);
        }
    }
    println!("killed 30 times: {none} without a file, {whole} with a whole one");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_leaves_what_was_there() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        store::save(&Recording::default(), &path).unwrap();
        let limit = libc::rlimit { rlim_cur: 20_000, rlim_max: 20_000 };
        // SAFETY: the struct is whole; the limit is this child's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        let why = store::save(&sample::recording(1_000, 1), &path).unwrap_err();
        fs::write(path.with_extension("said"), format!("{why:#}")).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.why");
    let test = "store::crash::a_limit_of_file_sizes_is_an_error_and_leaves_what_was_there";
    let done = child(test, &path).output().unwrap();
    assert!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stdout));
    assert_eq!(
        fs::read_to_string(path.with_extension("said")).unwrap(),
        format!(
            "cannot save recording {}: File too large (os error 27); \
             raise the limit of file sizes (ulimit -f), or save to another disk",
            path.display()
        )
    );
    assert_eq!(store::open(&path).unwrap(), Recording::default());
}

#[test]
fn a_folder_that_is_not_there_is_an_error_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/host.why");
    let why = store::save(&Recording::default(), &path).unwrap_err();
    let said = format!(
        "cannot save recording {}: No such file or directory (os error 2); make the folder first",
        path.display()
    );
    assert_eq!(format!("{why:#}"), said);
}

/// A tmpfs that belongs to the test.
struct SmallDisk(tempfile::TempDir);

/// When a process started, in ticks since boot: field 22 of its stat file.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit(") ").next()?.split(' ').nth(19)?.to_owned())
}

impl SmallDisk {
    /// Unmount the leftovers of killed tests.
    fn clean_up() {
        for name in names(&std::env::temp_dir()) {
            let Some(owner) = name.strip_prefix("whyslow-test-disk-") else { continue };
            let mut parts = owner.split('-');
            if let (Some(pid), Some(start)) = (parts.next(), parts.next())
                && started(pid).as_deref() != Some(start)
            {
                let path = std::env::temp_dir().join(&name);
                // SAFETY: the string ends in NUL.
                unsafe { libc::umount2(Self::c(&path).as_ptr(), libc::MNT_DETACH) };
                let _ = fs::remove_dir(path);
            }
        }
    }

    fn new(size: &str) -> Self {
        Self::clean_up();
        let start = started("self").unwrap();
        let prefix = format!("whyslow-test-disk-{}-{start}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
        let (path, options) = (Self::c(folder.path()), CString::new(format!("size={size}")).unwrap());
        let tmpfs = c"tmpfs".as_ptr();
        // SAFETY: all strings end in NUL and outlive the call.
        let done =
            unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, libc::MS_NOSUID, options.as_ptr().cast()) };
        assert_eq!(done, 0, "cannot mount a tmpfs: {}; run as root", std::io::Error::last_os_error());
        SmallDisk(folder)
    }

    fn c(path: &Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // SAFETY: the string ends in NUL.
        unsafe { libc::umount2(Self::c(self.0.path()).as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn root_a_full_disk_is_an_error_and_leaves_what_was_there() {
    let disk = SmallDisk::new("256k");
    let path = disk.0.path().join("x.why");
    let small = sample::recording(20, 1);
    store::save(&small, &path).unwrap();
    for _ in 0..3 {
        let why = store::save(&sample::recording(5_000, 1), &path).unwrap_err();
        let said = format!(
            "cannot save recording {}: No space left on device (os error 28); free some space, or save to another disk",
            path.display()
        );
        assert_eq!(format!("{why:#}"), said);
        assert_eq!(store::open(&path).unwrap(), small);
        assert_eq!(names(disk.0.path()), ["x.why"]);
    }
    // The space of the failed saves is free again.
    store::save(&small, &path).unwrap();
}
