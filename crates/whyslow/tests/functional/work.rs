//! `whyslow work` on the live host: work items that the test itself makes the kernel put off.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::Draw;
use whyslow_faults::cgroup::{Group, Hierarchies};
use whyslow_faults::leftovers::Owner;

use super::exam::{document, status, text, whyslow};

/// A cgroup of this test in each hierarchy; those in it go with it.
pub(super) struct Parent(Group);

impl Parent {
    pub fn new() -> Self {
        Parent(Group::make(&Hierarchies::here().unwrap(), &format!("/{}", Owner::me().name())).unwrap())
    }

    pub fn dir(&self) -> PathBuf {
        self.0.procs_files()[0].parent().unwrap().to_owned()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Make cgroups, and remove them at once: the kernel takes each down in work items of queues that run one item at a time.
fn remove_cgroups(parent: &Path, count: u64) {
    let dirs: Vec<PathBuf> = (0..count).map(|number| parent.join(format!("g{number}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    dirs.iter().for_each(|dir| fs::remove_dir(dir).unwrap());
}

/// The kernel frees an IPC namespace in a work item that waits for a grace period.
fn use_up_an_ipc_namespace() {
    let thread = spawn(|| {
        // SAFETY: concerns this thread alone, which ends.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWIPC) }, 0, "{}", std::io::Error::last_os_error());
    });
    thread.join().unwrap();
}

/// What whyslow says of a window that began before `load`, and ended after it.
fn looked_at(load: impl FnOnce()) -> Value {
    looked_at_by("work", load)
}

pub(super) fn looked_at_by(verb: &str, load: impl FnOnce()) -> Value {
    let (seen, code) = looked_at_with(&[verb, "--for", "3s"], load);
    assert_eq!(code, Some(0), "{}", seen["findings"]);
    seen
}

/// ... and its exit status.
pub(super) fn looked_at_with(args: &[&str], load: impl FnOnce()) -> (Value, Option<i32>) {
    let mut command = whyslow();
    command.args(args).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking, ") {
        line.clear();
        assert!(progress.read_line(&mut line).unwrap() > 0, "it ended before it observed");
    }
    load();
    let (mut page, mut said) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut page).unwrap();
    progress.read_to_string(&mut said).unwrap();
    let code = child.wait().unwrap().code();
    assert!(code == Some(0) || code == Some(1), "{code:?}: {said}");
    (document(&page), code)
}

fn work<'d>(document: &'d Value, function: &str) -> &'d Value {
    let works = document["works"].as_array().into_iter().flatten();
    let mut of_function = works.filter(|work| work["function"] == function);
    of_function.next().unwrap_or_else(|| panic!("no {function} in {}", document["works"]))
}

pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Each of the items has its place in the histogram.
fn all_are_counted(times: &Value) {
    let ranges = times["times"].as_array().unwrap();
    let counted: f64 = ranges.iter().map(|range| number(&range["count"])).sum();
    assert_eq!(counted, number(&times["count"]), "{times}");
    let longest = number(&ranges.last().unwrap()["below_s"]);
    assert!(number(&times["worst_s"]) < longest && number(&times["worst_s"]) * 2.05 >= longest, "{times}");
}

#[test]
fn root_work_counts_items_and_tells_a_full_workqueue_and_grace_periods() {
    let mut draw = Draw::of_run("work", 0);
    let (batches, each, namespaces) = (draw.between(3, 6), draw.between(40, 80), draw.between(5, 15));
    let parent = Parent::new();
    let seen = looked_at(|| {
        for _ in 0..batches {
            remove_cgroups(&parent.dir(), each);
            sleep(Duration::from_millis(50));
        }
        (0..namespaces).for_each(|_| use_up_an_ipc_namespace());
    });
    let killed = work(&seen, "css_killed_work_fn");
    let (made, count) = ((batches * each) as f64, number(&killed["count"]));
    // One controller is in this hierarchy: an item for each cgroup. The host may remove some, too.
    assert!((made..=1.05 * made + 5.0).contains(&count), "{count} of {made}: {killed}");
    // css_killed_work_fn runs one at a time: max_active of cgroup_destroy (before v6.15) and cgroup_offline is 1 (kernel/cgroup/cgroup.c).
    let (held, queued) = (number(&killed["held_back_s"]), number(&killed["queued"]["total_s"]));
    assert!(held > 0.0 && held <= queued, "{killed}");
    assert!(killed["workqueue"].as_str().unwrap().starts_with("cgroup_"), "{killed}");
    all_are_counted(&killed["queued"]);
    all_are_counted(&killed["ran"]);
    let freed = work(&seen, "free_ipc");
    assert!((1.0..=namespaces as f64 + 2.0).contains(&number(&freed["count"])), "{freed}");
    assert_eq!(freed["inside"][0]["what"], "an RCU grace period for free_ipc", "{freed}");
    assert!(number(&freed["inside"][0]["total_s"]) > number(&freed["ran"]["total_s"]) / 2.0, "{freed}");
    let needed =
        seen["grace_periods"].as_array().unwrap().iter().find(|one| one["work"] == "free_ipc").unwrap();
    assert_eq!((&needed["caller"], &needed["expedited"]), (&"free_ipc".into(), &false.into()), "{needed}");
}

#[test]
fn root_a_recording_is_read_later_with_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.why");
    let file = file.to_str().unwrap();
    let parent = Parent::new();
    let mut record = whyslow();
    let mut record =
        record.args(["record", "--for", "1s", "-o", file]).stderr(Stdio::piped()).spawn().unwrap();
    while record.try_wait().unwrap().is_none() {
        assert!(Command::new("true").status().unwrap().success());
        remove_cgroups(&parent.dir(), 1);
    }
    let recorded = record.wait_with_output().unwrap();
    assert_eq!(status(&recorded), 0, "{}", text(&recorded.stderr));
    let report = whyslow().args(["report", file, "--json"]).output().unwrap();
    let all = document(&text(&report.stdout));
    for (verb, list) in [
        ("work", "works"),
        ("jobs", "jobs"),
        ("jobs", "churn"),
        ("blocked", "blocked"),
        ("locks", "locks"),
        ("chains", "chains"),
    ] {
        let output = whyslow().args([verb, "--input", file, "--json"]).output().unwrap();
        let listed = &document(&text(&output.stdout))[list];
        assert_eq!(listed, &all[list], "{verb}: {}", text(&output.stderr));
        let is_made_here = ["works", "jobs", "churn"].contains(&list);
        let is_there = listed.as_array().is_some_and(|rows| !rows.is_empty());
        assert!(is_there || !is_made_here, "{verb}: {list}: {listed}");
    }
    for args in [["-i", "/nope"].as_slice(), &["-i", file, "--for", "1s"]] {
        let output = whyslow().arg("work").args(args).output().unwrap();
        assert_eq!((status(&output), output.stdout.is_empty()), (2, true), "{args:?}");
    }
}
