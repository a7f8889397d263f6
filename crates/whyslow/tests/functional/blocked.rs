//! `whyslow blocked` on the live host: processes that wait in D state for a drawn part of the window, since before it.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::Draw;

use super::exam::{document, status, text, whyslow};
use super::work::{looked_at_by, number};

/// Longer than any test.
const MOST_SECONDS: u32 = 60;

/// A process that waits, as after vfork(2), until its child ends. Dropped, both are gone.
struct Parent(libc::pid_t);

impl Parent {
    /// Returns when it waits.
    fn start() -> Self {
        // SAFETY: the child makes system calls only.
        let parent = match unsafe { libc::fork() } {
            0 => wait_for_a_sleeper(),
            pid => Parent(pid),
        };
        assert!(parent.0 > 0, "{}", std::io::Error::last_os_error());
        for _ in 0..2000 {
            // Before it has a child it may wait in D state for something else.
            if parent.child().is_some() && parent.state() == Some('D') {
                return parent;
            }
            sleep(Duration::from_millis(5));
        }
        panic!("it never waited: {:?}", parent.state());
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn child(&self) -> Option<libc::pid_t> {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0)).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    fn end(&self) {
        // SAFETY: of a child of ours that is not yet reaped, and of its own child.
        unsafe {
            self.child().map(|child| libc::kill(child, libc::SIGKILL));
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Without CLONE_VM the child has memory of its own.
fn wait_for_a_sleeper() -> ! {
    // SAFETY: system calls that write no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::syscall(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD, 0, 0, 0, 0) == 0 {
            libc::alarm(MOST_SECONDS);
            libc::pause();
        }
        libc::_exit(0)
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.end();
    }
}

/// The waits for a child of vfork().
fn vforks(seen: &Value) -> &Value {
    let waits = seen["blocked"]["waits"].as_array().unwrap();
    let found = waits.iter().find(|wait| wait["reason"] == "vfork");
    found.unwrap_or_else(|| panic!("no vfork in {}", seen["blocked"]))
}

#[test]
fn root_tasks_that_waited_since_before_the_window_are_in_each_pass() {
    let mut draw = Draw::of_run("blocked", 0);
    let parents = draw.between(2, 6);
    let held: Vec<Parent> = (0..parents).map(|_| Parent::start()).collect();
    let seen = looked_at_by("blocked", || ());
    drop(held);
    let (passes, wait) = (number(&seen["blocked"]["passes"]), vforks(&seen));
    // 3 s: a pass in 100 ms where the host has few tasks, and in 3 s at least one however many it has.
    assert!((1.0..=31.0).contains(&passes), "{passes}");
    let all = parents as f64 * passes;
    assert!(number(&wait["samples"]) >= all && number(&wait["waits"]) >= parents as f64, "{wait}, {all}");
    assert!(number(&wait["threads"]) >= parents as f64, "{wait}");
    assert!(number(&seen["blocked"]["tasks"]) >= parents as f64, "{}", seen["blocked"]);
    assert_eq!(
        wait["chains"][0]["holders"].as_array().map(Vec::len),
        Some(0),
        "a child holds no lock: {wait}"
    );
}

#[test]
fn root_sleepers_are_not_among_the_samples_and_a_recording_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, flame) = (name("host.why"), name("blocked.svg"));
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let held = Parent::start();
    let recorded = whyslow().args(["record", "--for", "1s", "-o", &file]).output().unwrap();
    drop(held);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(status(&recorded), 0, "{}", text(&recorded.stderr));
    let told = |verb: &str| {
        let input =
            if verb == "report" { vec![verb, &file] } else { vec![verb, "-i", &file, "--flame", &flame] };
        let output = whyslow().args(input).arg("--json").output().unwrap();
        document(&text(&output.stdout))
    };
    let seen = told("blocked");
    assert_eq!(seen["blocked"], told("report")["blocked"]);
    let asleep = format!("sleep ({})", sleeper.id());
    assert!(!seen["blocked"].to_string().contains(&asleep), "{}", seen["blocked"]);
    assert!(number(&vforks(&seen)["samples"]) >= 1.0, "{}", seen["blocked"]);
    let drawn = std::fs::read_to_string(&flame).unwrap();
    assert!(drawn.contains("Tasks in D state") && drawn.contains("-- waits for"), "{} bytes", drawn.len());
    let page = text(&whyslow().args(["blocked", "-i", &file]).output().unwrap().stdout);
    assert!(page.contains("waited in D state") && page.contains("Waits in D state"), "{page}");
}
