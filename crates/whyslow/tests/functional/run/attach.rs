//! `attach` to processes, cgroups and units.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{document, rest, status, text, whyslow};

/// A process that waits for its input, and ends when its input ends.
struct Waiting(Child);

impl Waiting {
    fn new() -> Self {
        Waiting(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_the_window_ends_with_the_last_process() {
    let mut two = [Waiting::new(), Waiting::new()];
    let both = format!("{},{}", two[0].pid(), two[1].pid());
    let mut command = whyslow(&["attach", &both, "--for", "300s", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking, ") {
        line.clear();
        assert!(progress.read_line(&mut line).unwrap() > 0, "it ended before it observed");
    }
    for waiting in &mut two {
        drop(waiting.0.stdin.take());
    }
    let said = rest(child.stdout.take().unwrap());
    let (status, noted) = (child.wait().unwrap().code(), rest(progress));
    assert_eq!(status, Some(0), "it observed; it said: {noted}");
    let document = document(&said);
    assert!(document["window_s"].as_f64().unwrap() < 200.0, "{}", document["window_s"]);
}

#[test]
fn unattachable_target_is_status_2_with_its_reason() {
    let beyond = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().to_owned();
    let mut dead = Command::new("true").spawn().unwrap();
    let zombie = dead.id().to_string();
    // SAFETY: an all-zero siginfo is valid; WNOWAIT leaves the child to be waited for.
    unsafe {
        let mut info = std::mem::zeroed();
        libc::waitid(libc::P_PID, dead.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT);
    }
    for (args, words) in [
        (vec!["attach", &beyond], format!("cannot attach to process {beyond}: there is no such process; ")),
        (vec!["attach", &zombie], format!("cannot attach to process {zombie}: it has ended")),
        (
            vec!["attach", "--cgroup", "/nope/nope"],
            "cannot attach to cgroup /nope/nope: there is no ".to_owned(),
        ),
        (
            vec!["attach", "--unit", "no-such-unit"],
            "cannot attach: no unit here is called no-such-unit".to_owned(),
        ),
    ] {
        let output = whyslow(&args).output().unwrap();
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(text(&output.stderr).starts_with(&format!("whyslow: {words}")), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    dead.wait().unwrap();
    for args in [["attach"].as_slice(), &["attach", "0"], &["attach", "1", "--unit", "x"], &["attach", "x"]] {
        assert_eq!(status(&whyslow(args).output().unwrap()), 2, "{args:?}");
    }
}

#[test]
fn a_thread_is_refused_with_its_process() {
    let (say, hear) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes nothing.
        say.send(unsafe { libc::gettid() }).unwrap();
        let _ = ends.recv();
    });
    let tid = hear.recv().unwrap().to_string();
    let output = whyslow(&["attach", &tid]).output().unwrap();
    drop(end);
    thread.join().unwrap();
    let me = std::process::id();
    assert_eq!(status(&output), 2);
    let want = format!("cannot attach to {tid}: it is a thread of process {me}; attach to {me}\n");
    assert!(text(&output.stderr).ends_with(&want), "{}", text(&output.stderr));
}

/// Groups of the test, removed with it.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// A group that contains `pid`, and inside it a group with the name of a systemd unit.
    fn with(pid: &str) -> Option<Self> {
        let root = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .find(|root| Path::new(root).join("cgroup.procs").exists())?;
        let me = fs::read_to_string("/proc/self/stat").unwrap();
        let start = me.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().to_owned();
        let outer = Path::new(root).join(format!("whyslow-test-{}-{start}", std::process::id()));
        let inner = outer.join(format!("whyslow-test-{start}.service"));
        fs::create_dir(&outer).ok()?;
        let groups = Groups(vec![inner.clone(), outer]);
        fs::create_dir(&inner).ok()?;
        fs::write(inner.join("cgroup.procs"), pid).ok()?;
        Some(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            // Its last task may still be ending.
            for _ in 0..100_000 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn root_a_cgroup_is_found_by_folder_and_by_path_and_a_unit_by_name() {
    let waiting = Waiting::new();
    let Some(groups) = Groups::with(&waiting.pid()) else {
        eprintln!("not run: no cgroup can be made here");
        return;
    };
    let outer = groups.0[1].to_str().unwrap().to_owned();
    let name = groups.0[1].file_name().unwrap().to_str().unwrap().to_owned();
    let unit = groups.0[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.why");
    for (option, value) in [("--cgroup", outer), ("--cgroup", format!("/{name}")), ("--unit", unit)] {
        let args = ["attach", option, &value, "--for", "300ms", "-o", file.to_str().unwrap()];
        let output = whyslow(&args).output().unwrap();
        assert_eq!(status(&output), 0, "{value}: {}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("whyslow 0."), "{}", text(&output.stdout));
        let recording = whyslow::store::open(&file).unwrap();
        assert_eq!(recording.meta.watched.expect("a task was watched").subject, value);
    }
    drop(waiting);
    let output = whyslow(&["attach", "--cgroup", groups.0[0].to_str().unwrap()]).output().unwrap();
    assert_eq!(status(&output), 2);
    assert!(text(&output.stderr).contains("no process is in it"), "{}", text(&output.stderr));
}

#[test]
fn root_chains_and_locks_look_at_the_whole_host() {
    for verb in ["chains", "locks"] {
        let output = whyslow(&[verb, "--for", "300ms", "--json"]).output().unwrap();
        let document = document(&text(&output.stdout)); // JSON and nothing else
        let reported = document["chains"].as_array().is_some_and(|chains| !chains.is_empty());
        assert_eq!(status(&output), i32::from(verb == "chains" && reported), "{}", text(&output.stderr));
    }
}
