//! `whyslow blocked` on the live host: processes that wait in D state for a drawn part of the window, since before it.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::Draw;

use super::exam::{document, status, text, whyslow};
use super::work::{looked_at_by, number};

/// A process whose thread waits in vfork() until its child ends. Dropped, both are gone.
struct Parent(std::process::Child);

impl Parent {
    /// Returns when it waits.
    fn start() -> Self {
        // vfork() of the libc itself: a child that has begun its sleep shares its parent's memory, and the parent waits for it.
        let script = "import ctypes, os, time\nlibc = ctypes.CDLL(None)\n\
                      if libc.syscall(56, 0x4111, 0, 0, 0, 0) == 0:\n  libc.sleep(600)\n  os._exit(0)\n";
        let child = Command::new("python3").args(["-c", script]).spawn().unwrap();
        let parent = Parent(child);
        for _ in 0..2000 {
            // Before it has a child it waits for its files, in D state, too.
            if parent.child().is_some() && parent.state() == Some('D') {
                return parent;
            }
            sleep(Duration::from_millis(5));
        }
        panic!("it never waited: {:?}", parent.state());
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn child(&self) -> Option<String> {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    fn end(&mut self) {
        if let Some(child) = self.child() {
            let _ = Command::new("kill").args(["-9", &child]).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
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
