//! A vicious circle on the live host, and steady contention beside the same growth: cgroups that are made faster than they are removed, and a
//! lock that each removal needs.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{Builder, Scope, scope, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::Draw;

use super::exam::{document, text, whyslow};
use super::work::{Parent, looked_at_with};

/// More than these are not made.
const MOST_CGROUPS: u64 = 300;
/// No thread goes on for longer, whatever happens.
const LONGEST: Duration = Duration::from_secs(30);
const WINDOW: &str = "6s";

/// What is drawn.
#[derive(Debug, Clone, Copy)]
struct Load {
    removers: u64,
    /// A process that removes nothing waits, too.
    innocent: bool,
    /// Cgroups at first.
    first: u64,
    /// Between two new cgroups.
    gap: Duration,
    /// For which a remover holds the lock ...
    base: Duration,
    /// ... and for each cgroup that there is.
    each: Duration,
}

impl Load {
    /// At first a removal takes about as long as two new cgroups, so that there are more and more.
    fn drawn(draw: &mut Draw) -> Self {
        let (first, gap) = (draw.between(15, 25), draw.between(14, 18));
        Load {
            removers: draw.between(3, 5),
            innocent: false,
            first,
            gap: Duration::from_millis(gap),
            base: Duration::from_millis(draw.between(1, 4)),
            each: Duration::from_micros(draw.between(15, 20) * gap * 100 / first),
        }
    }

    /// The same contention with holds of one length: that of the middle of the circle.
    fn steady(self) -> Self {
        Load { base: self.base + self.each * 100, each: Duration::ZERO, ..self }
    }
}

/// A file in memory that no folder has, and that each thread opens for itself: a lock is of the open file.
struct Lock(OwnedFd);

impl Lock {
    fn new() -> Self {
        // SAFETY: the name lives for ever; the descriptor that it returns is nobody's yet.
        let made = unsafe { libc::memfd_create(c"circle".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(made >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: as above.
        Lock(unsafe { OwnedFd::from_raw_fd(made) })
    }

    fn opened(&self) -> File {
        File::open(format!("/proc/self/fd/{}", self.0.as_raw_fd())).unwrap()
    }
}

/// A child of this process that wants the lock, too, and removes nothing.
struct Innocent(Child);

impl Innocent {
    fn start(lock: &Lock) -> Self {
        // It ends with this process: there is no such file then.
        let wants =
            format!("while flock /proc/{}/fd/{} true; do :; done", std::process::id(), lock.0.as_raw_fd());
        Innocent(Command::new("sh").args(["-c", &wants]).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The threads of a load: they end when this is dropped.
struct Running<'l> {
    dir: &'l Path,
    load: Load,
    lock: &'l Lock,
    made: AtomicU64,
    removed: AtomicU64,
    ends: AtomicBool,
    until: Instant,
}

impl Running<'_> {
    fn goes_on(&self) -> bool {
        !self.ends.load(SeqCst) && Instant::now() < self.until
    }

    fn there_are(&self) -> u64 {
        self.made.load(SeqCst).saturating_sub(self.removed.load(SeqCst))
    }

    fn make(&self) {
        let number = self.made.load(SeqCst);
        fs::create_dir(self.dir.join(format!("c{number}"))).unwrap();
        self.made.store(number + 1, SeqCst);
    }

    fn makes(&self) {
        while self.goes_on() {
            if self.there_are() < MOST_CGROUPS {
                self.make();
            }
            sleep(self.load.gap);
        }
    }

    /// The work under the lock takes as long as the load says.
    fn removes(&self) {
        let file = self.lock.opened();
        while self.goes_on() {
            file.lock().unwrap();
            let there_are = self.there_are();
            sleep(self.load.base + self.load.each * u32::try_from(there_are).unwrap());
            if there_are > 0 {
                let number = self.removed.load(SeqCst);
                fs::remove_dir(self.dir.join(format!("c{number}"))).unwrap();
                self.removed.store(number + 1, SeqCst);
            }
            file.unlock().unwrap();
        }
    }

    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        (0..self.load.first).for_each(|_| self.make());
        Builder::new().name("maker".into()).spawn_scoped(scope, || self.makes()).unwrap();
        for _ in 0..self.load.removers {
            Builder::new().name("remover".into()).spawn_scoped(scope, || self.removes()).unwrap();
        }
    }
}

/// Also when an assertion fails.
struct Ends<'l>(&'l AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// What whyslow says of a window in which the load runs, and how many cgroups there were when it ended.
fn looked_at(load: Load, args: &[&str]) -> (Value, u64) {
    let (parent, lock) = (Parent::new(), Lock::new());
    let running = Running {
        dir: &parent.dir(),
        load,
        lock: &lock,
        made: AtomicU64::new(0),
        removed: AtomicU64::new(0),
        ends: AtomicBool::new(false),
        until: Instant::now() + LONGEST,
    };
    scope(|scope| {
        let _ends = Ends(&running.ends);
        let _innocent = load.innocent.then(|| Innocent::start(&lock));
        let (seen, _) =
            looked_at_with(&[&["chains", "--for", WINDOW], args].concat(), || running.start(scope));
        (seen, running.there_are())
    })
}

/// Hops behind threads of this name that waited for the file lock.
fn holders<'d>(seen: &'d Value, waiter: &str) -> Vec<&'d Value> {
    let chains = seen["chains"].as_array().unwrap().iter();
    let of_waiters = |chain: &&Value| {
        let first = &chain["hops"][0];
        first["reason"] == "file-lock" && first["who"] == waiter
    };
    chains.filter(of_waiters).flat_map(|chain| chain["hops"].as_array().unwrap().iter().skip(1)).collect()
}

#[test]
fn root_a_drawn_circle_is_called_one() {
    let load = Load::drawn(&mut Draw::of_run("circle", 0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("circle.why").display().to_string();
    let (seen, last) = looked_at(load, &["-o", &file]);
    let told = |hop: &&&Value| hop["circle"] == true;
    let holders = holders(&seen, "remover");
    let hop =
        holders.iter().find(told).unwrap_or_else(|| panic!("{load:?}: no circle in {}", seen["chains"]));
    let count = hop["grows_with"].as_str().and_then(|text| text.strip_suffix(" cgroups"));
    let count: u64 =
        count.and_then(|count| count.replace(',', "").parse().ok()).unwrap_or_else(|| panic!("{hop}"));
    // Those of the host count, too.
    assert!((last..last + 500).contains(&(count + 20)), "{count} cgroups, {last} were made: {hop}");
    let per_call = load.base + load.each * u32::try_from(last).unwrap();
    let said = Duration::from_secs_f64(hop["per_call_s"].as_f64().unwrap());
    assert!((per_call / 2..per_call * 3 / 2).contains(&said), "{said:?}, not {per_call:?}: {hop}");
    let later = whyslow().args(["chains", "-i", &file, "--json"]).output().unwrap();
    assert_eq!(document(&text(&later.stdout))["chains"], seen["chains"]);
}

/// Its only remover does not wait. The child that does is of the same tree.
#[test]
fn root_growth_behind_which_no_remover_waits_is_called_no_circle() {
    let load = Load { removers: 1, innocent: true, ..Load::drawn(&mut Draw::of_run("circle", 0)) };
    let (seen, _) = looked_at(load, &[]);
    let holders = holders(&seen, "flock");
    let grows = |hop: &&&Value| hop["grows_with"].as_str().is_some_and(|text| text.ends_with(" cgroups"));
    assert!(holders.iter().any(|hop| grows(&hop)), "{load:?}: nothing grows in {}", seen["chains"]);
    assert!(holders.iter().all(|hop| hop["circle"].is_null()), "{load:?}: {holders:?}");
}

#[test]
fn root_drawn_steady_contention_is_called_no_circle() {
    let load = Load::drawn(&mut Draw::of_run("circle", 0)).steady();
    let (seen, last) = looked_at(load, &[]);
    let is_made = |row: &Value| row["tgid"] == std::process::id() && row["what"] == "cgroups made";
    assert!(seen["churn"].as_array().unwrap().iter().any(is_made), "{}", seen["churn"]);
    assert!(last > 2 * load.first, "{last} cgroups, {load:?}");
    let holders = holders(&seen, "remover");
    assert!(!holders.is_empty(), "{load:?}: no contention in {}", seen["chains"]);
    for hop in holders {
        assert!(hop["circle"].is_null() && hop["grows_with"].is_null(), "{load:?}: {hop}");
    }
}
