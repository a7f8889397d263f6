//! A live test leaves nothing behind, however it ends, and its victims stay inside the fence.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whyslow_faults::cgroup::Hierarchies;
use whyslow_faults::leftovers::Owner;
use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, FaultKind, Fence, Form, Scenario, host};

whyslow_faults::may_become_victim!();

/// Cgroups, files and swap with this name.
fn traces_of(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let roots = Hierarchies::here().unwrap();
    let groups = roots.places().iter().map(|place| place.root.join(name));
    for path in groups.chain([Path::new("/var/tmp").join(name)]).filter(|path| path.exists()) {
        found.push(path.display().to_string());
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap();
    found.extend(swaps.lines().filter(|line| line.contains(name)).map(str::to_owned));
    found
}

fn zram_devices() -> usize {
    let block = fs::read_dir("/sys/block").unwrap();
    block.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("zram")).count()
}

#[test]
fn root_a_killed_test_is_cleaned_up_by_the_next() {
    if !host::is_root() {
        return println!("not run: needs root");
    }
    let devices = zram_devices();
    let mut test = Command::new(env!("CARGO_BIN_EXE_fault"))
        .args(["swap-in", "fault", "30"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok) {
        said += &line;
        if line.starts_with("on for") {
            break;
        }
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", test.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
    let name = format!("whyslow-test-{}-{started}", test.id());
    assert!(!traces_of(&name).is_empty(), "the test was not there: {said}");
    test.kill().unwrap();
    test.wait().unwrap();

    drop(Fence::enter().unwrap());

    assert_eq!(traces_of(&name), Vec::<String>::new());
    assert_eq!(zram_devices(), devices);
}

#[test]
fn root_a_panic_leaves_nothing() {
    if !host::is_root() {
        return println!("not run: needs root");
    }
    let mut pid = 0;
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let fence = Fence::enter().unwrap();
        let mut draw = Draw::of_run("panic", 0);
        let scenario =
            Scenario::set(&TestBed::alone(&fence), FaultKind::CpuQuota, Form::Fault, &mut draw).unwrap();
        pid = scenario.victim().pid();
        panic!("on purpose");
    }));
    assert!(ended.is_err());
    // Hold the lock during the check: another test of this process has the same name.
    let _fence = whyslow_faults::fence::wait_for_others().unwrap();
    assert_eq!(traces_of(&Owner::me().name()), Vec::<String>::new());
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "its victim lives on");
}

#[test]
fn root_victims_stay_inside_the_fence() {
    if !host::is_root() {
        return println!("not run: needs root");
    }
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("inside", 0);
    let scenario =
        Scenario::set(&TestBed::alone(&fence), FaultKind::ListenOverflow, Form::Twin, &mut draw).unwrap();
    for process in scenario.processes() {
        let proc = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", process.pid())).unwrap();
        assert_eq!(proc("oom_score_adj").trim(), "1000");
        let inside = proc("cgroup").lines().filter(|line| line.contains(&Owner::me().name())).count();
        let roots: std::collections::BTreeSet<_> =
            Hierarchies::here().unwrap().places().iter().map(|place| place.root.clone()).collect();
        assert_eq!(inside, roots.len(), "{}", proc("cgroup"));
        let own = fs::read_link(format!("/proc/{}/ns/net", process.pid())).unwrap();
        assert_ne!(own, fs::read_link("/proc/self/ns/net").unwrap());
    }
}

#[test]
fn root_tests_wait_for_each_other() {
    if !host::is_root() {
        return println!("not run: needs root");
    }
    let fence = Fence::enter().unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            drop(Fence::enter().unwrap());
            began.elapsed()
        });
        std::thread::sleep(Duration::from_millis(300));
        drop(fence);
        assert!(second.join().unwrap() >= Duration::from_millis(300));
    });
}
