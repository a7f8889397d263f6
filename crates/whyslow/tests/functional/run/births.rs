//! A command that starts thousands of children, one after another: whyslow must account their work to the right commands, and must end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::Draw;

use super::signals::signal;
use super::{last_line, started, status, text, whyslow};

/// Set in the process that starts the children: "name count us,...".
const ORDER: &str = "WHYSLOW_TEST_BIRTHS";

/// A command's name, the number of children that run it, and the CPU time of each by its own clock.
#[derive(Debug, Clone)]
struct Births {
    name: String,
    count: u64,
    us: u64,
}

fn drawn(draw: &mut Draw) -> Vec<Births> {
    let one =
        |_| Births { name: draw.word(7), count: draw.between(1_500, 4_000), us: draw.between(120, 600) };
    (0..3).map(one).collect()
}

/// For the next test, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn it_makes_children() {
    let order = std::env::var(ORDER).unwrap();
    let kinds: Vec<Births> = order.split(',').map(kind).collect();
    let mut spent = vec![[0; 3]; kinds.len()];
    let unnamed = shared();
    let mut left: Vec<u64> = kinds.iter().map(|kind| kind.count).collect();
    let began = Instant::now();
    // One of each in turn, so that no moment belongs to a single command.
    while left.iter().any(|left| *left > 0) {
        for (at, kind) in kinds.iter().enumerate().filter(|(at, _)| left[*at] > 0) {
            let born = bear(kind, unnamed);
            spent[at].iter_mut().zip(born).for_each(|(sum, ns)| *sum += ns);
        }
        left.iter_mut().for_each(|left| *left = left.saturating_sub(1));
    }
    let wall = began.elapsed().as_nanos() as u64;
    let of_children: u64 = spent.iter().map(|[all, ..]| all).sum();
    println!("away {}", wall.saturating_sub(of_children + cpu_ns()));
    for (kind, [all, before, beside]) in kinds.iter().zip(spent) {
        println!("truth {} {all} {before} {beside}", kind.name);
    }
}

fn kind(word: &str) -> Births {
    let mut words = word.split(' ');
    let mut next = || words.next().unwrap();
    Births { name: next().to_owned(), count: next().parse().unwrap(), us: next().parse().unwrap() }
}

/// A child that works for so long while its parent waits as in vfork(2), but with memory of its own. The kernel reports its cost to its
/// parent: its own CPU clock at its end, the part before it had its name, and the most that ran beside its parent: the kernel wakes the parent
/// before it frees the child's memory (kernel/fork.c, mm_release), and what the parent does not wait for is not in its wall time.
fn bear(kind: &Births, unnamed: &AtomicU64) -> [u64; 3] {
    let name = std::ffi::CString::new(kind.name.as_str()).unwrap();
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: without CLONE_VM as fork(2); the child makes system calls only.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
        if pid == 0 {
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            unnamed.store(cpu_ns(), Ordering::Relaxed);
            while cpu_ns() < kind.us * 1_000 {}
            libc::_exit(0);
        }
        let (mut status, mut used) = (0, std::mem::zeroed::<libc::rusage>());
        let woken = cpu_ns();
        libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut used);
        let beside = cpu_ns() - woken;
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        [ns(used.ru_utime) + ns(used.ru_stime), unnamed.load(Ordering::Relaxed), beside]
    }
}

/// A word that children share with their parent.
fn shared() -> &'static AtomicU64 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a page of our own, zeroed, never unmapped.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast()
    }
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that an account reports under a name, at its first place on each path.
fn reported(part: &Value, name: &str) -> f64 {
    let works = ["running", "spinning"].contains(&part["reason"].as_str().unwrap_or_default());
    if works && part["who"] == name && part["what"] != "had the CPU" {
        return part["time_s"].as_f64().unwrap();
    }
    part["parts"].as_array().into_iter().flatten().map(|part| reported(part, name)).sum()
}

/// The unexplained part of an account, and why.
fn untold(part: &Value) -> Vec<String> {
    let below = part["parts"].as_array().into_iter().flatten().flat_map(untold);
    let own = (part["reason"] == "unexplained")
        .then(|| format!("{} {} {}", part["who"], part["what"], part["time_s"]));
    own.into_iter().chain(below).collect()
}

#[test]
fn root_of_thousands_of_births_the_account_says_whose_time_it_was() {
    let mut draw = Draw::of_run("births", 0);
    let kinds = drawn(&mut draw);
    let order: Vec<String> = kinds.iter().map(|k| format!("{} {} {}", k.name, k.count, k.us)).collect();
    let me = std::env::current_exe().unwrap();
    let args = [
        "run",
        "--json",
        "--as-root",
        "--",
        me.to_str().unwrap(),
        "--exact",
        "run::births::it_makes_children",
        "--ignored",
        "--nocapture",
    ];
    let output = whyslow(&args).env(ORDER, order.join(",")).output().unwrap();
    let said = format!("seed {}, {kinds:?}: {}", draw.seed(), text(&output.stderr));
    assert_eq!(status(&output), 0, "{said}");
    let page = text(&output.stdout);
    let number = |word: Option<&str>| word.unwrap().trim().parse::<f64>().unwrap() / 1e9;
    let truth: BTreeMap<&str, [f64; 3]> = page
        .lines()
        .filter_map(|line| line.split("truth ").nth(1))
        .map(|line| line.split(' '))
        .map(|mut words| (words.next().unwrap(), [(); 3].map(|()| number(words.next()))))
        .collect();
    assert_eq!(truth.len(), 3, "{said}: {page}");
    let document = last_line(&output.stdout);
    let wall = &document["wall"];
    // The parent's thread runs the test: the wait for the test is the first part, and everything is below it. Until a child gets its name
    // it has the name of its parent.
    for (name, [all, before, beside]) in &truth {
        let reported: f64 = wall["parts"].as_array().unwrap().iter().map(|part| reported(part, name)).sum();
        assert!(
            reported > 0.9 * (all - before - beside) && reported < 1.1 * all,
            "{name} took {all} s, {before} s of it before it had its name, {beside} s beside its parent, and {reported} s are reported; \
             {said}: {wall}"
        );
    }
    let (unexplained, all) = (wall["unexplained_s"].as_f64().unwrap(), wall["wall_s"].as_f64().unwrap());
    // The command never sleeps. When it had no CPU, another task had the CPU, and some hosts hide tasks from tracing.
    let away = number(page.lines().find_map(|line| line.split("away ").nth(1)));
    let why = format!("{:?}", wall["parts"].as_array().unwrap().iter().flat_map(untold).collect::<Vec<_>>());
    assert!(
        unexplained < 0.05 * all + away,
        "{unexplained} of {all} s, without a CPU {away}: {why}; {said}: {wall}"
    );
}

/// The fields of /proc/PID/stat after the name.
pub fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = text.rsplit_once(')')?.1;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// Niceness, and CPU time in ticks: fields 19, 14 and 15 of proc(5); the first two are cut off.
pub fn nice(pid: u32) -> Option<(i32, u64)> {
    let fields = stat(pid)?;
    let number = |at: usize| fields.get(at - 3).and_then(|word| word.parse::<i64>().ok());
    Some((number(19)? as i32, (number(14)? + number(15)?) as u64))
}

#[test]
fn root_it_goes_before_others_for_a_moment_only_and_a_command_never() {
    let script = "echo up; cut -d' ' -f19 /proc/self/stat; read word";
    let (mut child, mut out) = started(&mut super::run_script(&["--json"], script));
    let own = nice(std::process::id()).unwrap().0;
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line.trim(), own.to_string(), "the command's niceness is its caller's");
    assert_eq!(nice(child.id()).unwrap().0, own, "in the window it is one of many");
    drop(child.stdin.take());
    // The document may be longer than a pipe holds: without a reader whyslow never ends.
    let reads = std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let (mut first, mut last) = (None, 0);
    while let Some((now, ticks)) = nice(child.id()) {
        if now < own {
            first.get_or_insert(ticks);
            last = ticks;
        }
        if child.try_wait().unwrap().is_some() {
            break;
        }
    }
    reads.join().unwrap().unwrap();
    // SAFETY: takes a number.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    let first = first.expect("after the window it goes before others");
    let ms = (last - first) * 1_000 / hertz;
    // 280 ms, plus a tick of the kernel's account at each end and one of its own clock reading.
    assert!(ms <= 280 + 3 * 1_000 / hertz + 20, "it went first for {ms} ms of CPU time");
}

#[test]
fn root_a_second_sigterm_ends_it_within_two_seconds_and_the_command_goes_on() {
    // Endless births, and a shell that ignores SIGTERM.
    let script = "trap '' TERM; echo up; read word; while :; do (:); done";
    let (mut child, _out) = started(&mut super::run_script(&[], script));
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let command = command_of(child.id());
    signal(&child, libc::SIGTERM, false);
    assert!(child.try_wait().unwrap().is_none(), "the first is the command's");
    signal(&child, libc::SIGTERM, false);
    let asked = Instant::now();
    let ended = child.wait().unwrap();
    let took = asked.elapsed();
    let goes_on = stat(command).is_some_and(|fields| fields[0] != "Z");
    // SAFETY: it is ours: its parent was our child until now, and no other process has waited for it.
    unsafe { libc::kill(command as i32, libc::SIGKILL) };
    assert_eq!(ended.code(), Some(143));
    assert!(goes_on, "the command is left alone");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

pub fn command_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(children).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn root_a_second_signal_of_either_sort_ends_an_exam_at_once() {
    let mut child = whyslow(&["--for", "60s"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut lines, &mut line).unwrap(), 0);
    }
    let asked = Instant::now();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
    }
    child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}
