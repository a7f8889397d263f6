//! Children started one after another, as many as time allows: whyslow answers, uses little memory, and can be ended.
//!
//! On 2 otherwise idle CPUs of 2.4 GHz, 6,000 to 8,000 a second are started under whyslow.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::cgroup::Group;
use whyslow_faults::{Draw, Fence, sys};

use super::births::{command_of, nice, stat};
use super::signals::signal;
use super::{document, status, text, whyslow};

/// Set in the process that starts the children: "count seconds procs-file,...".
const ORDER: &str = "WHYSLOW_TEST_MANY_BIRTHS";
/// Largest number of children, and longest time in seconds.
const RUN: (u64, u64) = (200_000, 45);
const BESIDE: (u64, u64) = (60_000, 20);
/// Fewer children prove nothing: with 20,000 all was right where 160,000 did not come to an end.
const FEW: u64 = 30_000;
/// A build that kept a row for each child took 200 MiB for 160,000, and more for more.
const MOST_BYTES: u64 = 300 << 20;
/// From the end of the window to the end of whyslow: for ended children only sums remain to be reported, which takes a second.
const ANSWER_CPU: Duration = Duration::from_secs(4);

/// For the other tests, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn it_makes_many_children() {
    let order = std::env::var(ORDER).unwrap();
    let mut words = order.split(' ');
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (count, seconds) = (number(), number());
    for procs in words.next().unwrap().split(',') {
        std::fs::write(procs, "0").unwrap();
    }
    std::fs::write("/proc/self/oom_score_adj", "1000").unwrap();
    sys::die_after(60);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: takes numbers. The test's signals must end whyslow, not this process.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    println!("\nup");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (until, mut born) = (Instant::now() + Duration::from_secs(seconds), 0);
    while born < count && Instant::now() < until {
        bear();
        born += 1;
    }
    println!("\nborn {born}");
}

/// vfork(2), and _exit(2) in the child: they share memory and stack, so no compiled code may run between the two.
fn bear() {
    let flags = i64::from(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD);
    let pid: i64;
    // SAFETY: the child makes one system call, in registers of its own; the parent continues when the child has ended, and waits for it.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone => pid,
            inlateout("rdi") flags => _,
            in("rsi") 0,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
        assert_eq!(libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0), pid as libc::pid_t);
    }
}

/// The program that starts them, as words of a command line, and its order.
fn parent(group: &Group, (count, seconds): (u64, u64)) -> ([String; 5], String) {
    let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let args = ["--exact", "run::many_births::it_makes_many_children", "--ignored", "--nocapture"]
        .map(str::to_owned);
    let [exact, name, ignored, nocapture] = args;
    let procs: Vec<String> = group.procs_files().iter().map(|file| file.display().to_string()).collect();
    ([me, exact, name, ignored, nocapture], format!("{count} {seconds} {}", procs.join(",")))
}

/// Start it; returns when the parent of the children waits for its word.
fn up(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    until(&mut out, "up");
    (child, out)
}

/// The line with this prefix, or a panic.
fn until(out: &mut BufReader<ChildStdout>, begins: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "it ended before it said {begins}");
        if line.starts_with(begins) {
            return line;
        }
    }
}

fn born(line: &str) -> u64 {
    line.trim().rsplit(' ').next().unwrap().parse().unwrap()
}

/// CPU time so far, to the tick, also of a process that has ended and was not waited for.
fn cpu(pid: u32) -> Duration {
    // SAFETY: takes a number.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_millis(nice(pid).unwrap().1 * 1_000 / hertz)
}

/// Wait for whyslow, whose window ends now, and check its peak of memory. Returns the CPU time of the answer.
fn ends(child: &Child, said: &str) -> Duration {
    let before = cpu(child.id());
    assert!(sys::ends_within(child.id(), Duration::from_secs(20)).unwrap(), "it does not end: {said}");
    let answer = cpu(child.id()) - before;
    let (mut status, mut used) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: a child of ours that no other code waits for, and places for the answer.
    let peak = unsafe {
        libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, used.as_mut_ptr());
        used.assume_init().ru_maxrss as u64 * 1024
    };
    println!("{said}: {answer:?} of CPU for the answer, {} MiB", peak >> 20);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) <= 1, "{status:#x}: {said}");
    assert!(peak < MOST_BYTES, "{} MiB: {said}", peak >> 20);
    answer
}

/// Read all that it writes meanwhile: its document may be longer than a pipe holds.
fn read_on(mut out: BufReader<ChildStdout>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut all = String::new();
        out.read_to_string(&mut all).unwrap();
        all
    })
}

/// The part of the wall time that a leaf explains.
fn explained(document: &Value) -> f64 {
    let wall = &document["wall"];
    1.0 - wall["unexplained_s"].as_f64().unwrap() / wall["wall_s"].as_f64().unwrap()
}

/// The part that is explained by command and parent: the action of a child that is waited for belongs to the child, whether or not each of
/// its waits of some microseconds has a stack.
fn explained_by_command(document: &Value) -> f64 {
    fn nobodys(part: &Value) -> f64 {
        match part["reason"].as_str() {
            Some("vfork" | "child") => 0.0,
            Some("unexplained") => part["time_s"].as_f64().unwrap(),
            _ => part["parts"].as_array().into_iter().flatten().map(nobodys).sum(),
        }
    }
    let wall = &document["wall"];
    let nobodys: f64 = wall["parts"].as_array().unwrap().iter().map(nobodys).sum();
    1.0 - nobodys / wall["wall_s"].as_f64().unwrap()
}

#[test]
fn root_of_a_command_with_two_hundred_thousand_births_it_answers_in_little_memory() {
    two_hundred_thousand_births();
}

#[test]
fn cost_of_the_answer_to_two_hundred_thousand_births() {
    let answer = two_hundred_thousand_births();
    assert!(answer < ANSWER_CPU, "{answer:?} of CPU after the window");
}

fn two_hundred_thousand_births() -> Duration {
    let fence = Fence::enter().unwrap();
    let (command, order) = parent(&fence.group("born").unwrap(), RUN);
    let args: Vec<&str> =
        ["run", "--json", "--as-root", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    let (mut child, mut out) = up(whyslow(&args).env(ORDER, order));
    drop(child.stdin.take());
    let born = born(&until(&mut out, "born"));
    let reads = read_on(out);
    let answer = ends(&child, &format!("run, {born} births"));
    let page = reads.join().unwrap();
    let document = document(page.lines().next_back().unwrap());
    assert!(born >= FEW, "{born} births prove nothing");
    assert!(explained_by_command(&document) > 0.95, "{born} births: {}", document["wall"]);
    assert!(explained(&document) > 0.9, "{born} births: {}", document["wall"]);
    fence.check_time().unwrap();
    answer
}

/// Beside a parent that existed before, and on the whole host.
#[test]
fn root_beside_thousands_of_births_it_records_in_little_memory() {
    let fence = Fence::enter().unwrap();
    let (command, order) = parent(&fence.group("born").unwrap(), BESIDE);
    let mut parent = Command::new(&command[0]);
    let (mut parent, mut reported) = up(parent.args(&command[1..]).env(ORDER, order));
    let file = fence.dir().join("births.why");
    let file = file.to_str().unwrap();
    let (child, out) = looking(&["record", "--for", "50s", "-o", file]);
    drop(parent.stdin.take());
    let born = born(&until(&mut reported, "born"));
    let reads = read_on(out);
    signal(&child, libc::SIGINT, false);
    ends(&child, &format!("record, {born} births"));
    parent.wait().unwrap();
    reads.join().unwrap();
    assert!(born >= FEW, "{born} births prove nothing");
    let report = whyslow(&["report", "--json", file]).output().unwrap();
    assert!(status(&report) <= 1, "{}", text(&report.stderr));
    document(&text(&report.stdout));
    fence.check_time().unwrap();
}

/// Ended children's pids are soon reused: there are more births than pids.
#[test]
fn root_attached_to_a_parent_of_thousands_it_tells_of_nobody_else() {
    let fence = Fence::enter().unwrap();
    let (command, order) = parent(&fence.group("born").unwrap(), BESIDE);
    let mut parent = Command::new(&command[0]);
    let (mut parent, mut reported) = up(parent.args(&command[1..]).env(ORDER, order));
    let pid = parent.id().to_string();
    let names = names_of(parent.id());
    let (child, out) = looking(&["attach", &pid, "--for", "50s", "--json"]);
    drop(parent.stdin.take());
    let born = born(&until(&mut reported, "born"));
    let reads = read_on(out);
    ends(&child, &format!("attach, {born} births"));
    parent.wait().unwrap();
    let document = document(&reads.join().unwrap());
    assert!(born >= FEW, "{born} births prove nothing");
    let is_ours = |task: &Value| names.iter().any(|name| task[1] == **name);
    let is_strangers = |chain: &&Value| !chain["tasks"][0].as_array().unwrap().iter().all(is_ours);
    let chain = document["chains"].as_array().unwrap().iter().find(is_strangers);
    assert!(chain.is_none(), "{born} births of {names:?}: {}", chain.unwrap());
    assert!(explained(&document) > 0.95, "{born} births: {}", document["wall"]);
    fence.check_time().unwrap();
}

/// The names of its threads; its children have the name of the thread that starts them.
fn names_of(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).unwrap();
    threads.map(|thread| name(thread).trim().to_owned()).collect()
}

/// Start whyslow; returns when its window has begun.
fn looking(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = whyslow(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking, ") {
        line.clear();
        assert_ne!(progress.read_line(&mut line).unwrap(), 0, "it ended before it observed");
    }
    // Otherwise SIGPIPE would end it at its next line of progress.
    std::thread::spawn(move || std::io::copy(&mut progress, &mut std::io::sink()));
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// The command ignores the first signal, and there is always one more child to account.
#[test]
fn root_births_without_end_are_left_by_a_second_signal_within_two_seconds() {
    let mut draw = Draw::of_run("births-without-end", 0);
    let (first, second) =
        (draw.pick(&[libc::SIGINT, libc::SIGTERM]), draw.pick(&[libc::SIGINT, libc::SIGTERM]));
    let fence = Fence::enter().unwrap();
    let (command, order) = parent(&fence.group("born").unwrap(), (u64::MAX, 60));
    let args: Vec<&str> =
        ["run", "--as-root", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    let (mut child, _out) = up(whyslow(&args).env(ORDER, order));
    let command = command_of(child.id());
    drop(child.stdin.take());
    std::thread::sleep(Duration::from_secs(4));
    signal(&child, first, false);
    assert!(child.try_wait().unwrap().is_none(), "the first is the command's");
    signal(&child, second, false);
    let asked = Instant::now();
    let ended = sys::ends_within(child.id(), Duration::from_secs(10)).unwrap();
    let took = asked.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    let goes_on = stat(command).is_some_and(|fields| fields[0] != "Z");
    // SAFETY: the kernel gave us its pid: its parent was our child until now, and no other process waits for it.
    unsafe { libc::kill(command as i32, libc::SIGKILL) };
    assert!(ended && took < Duration::from_secs(2), "signals {first} and {second}: {took:?}");
    assert!(goes_on, "signals {first} and {second}: the command is left alone");
}
