//! `whyslow jobs` on the live host: jobs that wait for drawn times before, in and after their program.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::Draw;

use super::work::{Parent, looked_at_by, number};

/// Most of the time that a step of the test may take.
const PATIENCE: Duration = Duration::from_secs(10);

fn await_value<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = get() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not come");
        sleep(Duration::from_millis(1));
    }
}

/// The children of a process of one thread.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn is_zombie(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// A job in a PID namespace of its own.
struct Job {
    outer: Child,
    /// A process in it that this process traces. The first process of the namespace ends only when this one is reaped (kernel/pid_namespace.c,
    /// zap_pid_ns_processes).
    traced: u32,
}

impl Job {
    /// It sleeps for `setup` ms before it executes anything, and its program for `program` ms.
    fn start(setup: u64, program: u64) -> Self {
        let mut command = Command::new("unshare");
        let script = format!("sleep 60 & exec sleep {}", program as f64 / 1e3);
        command.args(["--pid", "--fork", "sh", "-c", &script]).stdin(Stdio::null());
        // SAFETY: one system call, which needs nothing of this process.
        unsafe {
            command.pre_exec(move || {
                let time = libc::timespec { tv_sec: 0, tv_nsec: setup as i64 * 1_000_000 };
                match libc::nanosleep(&raw const time, std::ptr::null_mut()) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let outer = command.spawn().unwrap();
        let traced = await_value("the second process", || {
            let first = children(outer.id()).into_iter().next()?;
            children(first).into_iter().find(|pid| comm(*pid) == "sleep")
        });
        // SAFETY: concerns a child of a child of ours, and passes no memory.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, traced as i32, 0, 0) };
        assert_eq!(seized, 0, "{}", io::Error::last_os_error());
        Job { outer, traced }
    }

    /// The program ends, and the job for `teardown` ms does not.
    fn end(mut self, teardown: u64) {
        await_value("the end of the program", || is_zombie(self.traced).then_some(()));
        sleep(Duration::from_millis(teardown));
        let mut status = 0;
        // SAFETY: waits for a process that this thread traces.
        let reaped = unsafe { libc::waitpid(self.traced as i32, &raw mut status, libc::__WALL) };
        assert_eq!(reaped, self.traced as i32, "{}", io::Error::last_os_error());
        assert!(self.outer.wait().unwrap().success());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.outer.kill();
        }
    }
}

/// Jobs of this process with this command.
fn job<'d>(document: &'d Value, command: &str) -> &'d Value {
    let mine = |job: &&Value| job["tgid"] == std::process::id() && job["command"] == command;
    let jobs = document["jobs"].as_array().unwrap();
    jobs.iter().find(mine).unwrap_or_else(|| panic!("no {command} in {}", document["jobs"]))
}

fn waited(job: &Value, phase: &str) -> f64 {
    let phases = job["phases"].as_array().unwrap();
    phases.iter().filter(|one| one["phase"] == phase).map(|one| number(&one["waited_s"])).sum()
}

/// How often this process and its children did it.
fn churned(document: &Value, what: &str) -> f64 {
    let mine = |row: &&Value| row["tgid"] == std::process::id() && row["what"] == what;
    let rows = document["churn"].as_array().unwrap();
    rows.iter().filter(mine).map(|row| number(&row["count"])).sum()
}

fn is_near(got: f64, wanted: u64, what: &str) {
    let wanted = wanted as f64 / 1e3;
    assert!((wanted * 0.95..wanted * 1.2 + 0.02).contains(&got), "{what}: {got} s, {wanted} s were drawn");
}

#[test]
fn root_waits_before_in_and_after_the_program_stand_in_their_phase() {
    let mut draw = Draw::of_run("jobs", 0);
    let count = draw.between(3, 6);
    let mut times = || [draw.between(40, 160), draw.between(40, 160), draw.between(40, 160)];
    let drawn: Vec<[u64; 3]> = (0..count).map(|_| times()).collect();
    let seen = looked_at_by("jobs", || {
        for [setup, program, teardown] in &drawn {
            Job::start(*setup, *program).end(*teardown);
        }
    });
    let job = job(&seen, "unshare");
    assert_eq!((number(&job["count"]), number(&job["open"])), (count as f64, 0.0), "{job}");
    // unshare, the shell that becomes the program, and the process that is killed with it.
    assert_eq!(
        (number(&job["processes"]), number(&job["known"])),
        (3.0 * count as f64, 3.0 * count as f64),
        "{job}"
    );
    let sum = |phase: usize| drawn.iter().map(|times| times[phase]).sum::<u64>();
    let all = format!("of {drawn:?}: {job}");
    is_near(waited(job, "set-up"), sum(0), &format!("set-up {all}"));
    is_near(waited(job, "teardown"), sum(2), &format!("teardown {all}"));
    // Two processes sleep as long as the program.
    is_near(waited(job, "program"), 2 * sum(1), &format!("program {all}"));
    let longest = drawn.iter().map(|times| times.iter().sum::<u64>()).max().unwrap_or(0);
    let worst = number(&job["wall"]["worst_s"]);
    assert!(
        (longest as f64 / 1e3..longest as f64 / 1e3 * 1.3 + 0.1).contains(&worst),
        "{job}, not {longest} ms"
    );
    assert_eq!(churned(&seen, "PID namespaces made"), count as f64, "{}, {}", seen["churn"], seen["missing"]);
}

/// A process that is older than the window. At a word it runs commands, one after the other.
struct Agent {
    name: String,
    shell: Child,
    dir: PathBuf,
}

impl Agent {
    fn start(name: String, commands: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let program = dir.join(&name);
        symlink("/bin/sh", &program).unwrap();
        let mut command = Command::new(program);
        let shell = command.args(["-c", &format!("read word; {commands}")]).stdin(Stdio::piped()).spawn();
        Agent { name, shell: shell.unwrap(), dir }
    }

    /// Until all of its commands have ended.
    fn work(&mut self) {
        self.shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(self.shell.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn root_agent_of_fifty_slow_children_is_the_first_starter() {
    const CHILDREN: u64 = 50;
    let mut draw = Draw::of_run("jobs-agent", 0);
    // Fewer than three of one starter are not listed.
    let (slow, others) = (draw.between(15, 40), draw.between(3, 9));
    let name = format!("agent-{}", draw.word(6));
    let commands = format!("for i in $(seq {CHILDREN}); do sleep {}; done", slow as f64 / 1e3);
    let mut agent = Agent::start(name, &commands);
    let seen = looked_at_by("jobs", || {
        for _ in 0..others {
            assert!(Command::new("sleep").arg("0.01").status().unwrap().success());
        }
        agent.work();
    });
    let first = &seen["jobs"][0];
    assert_eq!(
        (&first["starter"], &first["tgid"], &first["command"]),
        (&agent.name.as_str().into(), &agent.shell.id().into(), &"sleep".into()),
        "{}",
        seen["jobs"]
    );
    assert_eq!((number(&first["count"]), number(&first["known"])), (CHILDREN as f64, CHILDREN as f64));
    is_near(waited(first, "program"), CHILDREN * slow, "the sleeps");
    let half = number(&first["wall"]["half_s"]);
    assert!((slow as f64 / 1e3..slow as f64 / 1e3 * 1.5 + 0.01).contains(&half), "{first}, not {slow} ms");
    assert_eq!(number(&job(&seen, "sleep")["count"]), others as f64, "{}", seen["jobs"]);
}

fn remake_cgroups(parent: &Path, count: u64) {
    for number in 0..count {
        let dir = parent.join(format!("j{number}"));
        fs::create_dir(&dir).unwrap();
        fs::remove_dir(&dir).unwrap();
    }
}

#[test]
fn root_rates_of_cgroups_and_namespaces_are_those_of_the_draw() {
    let mut draw = Draw::of_run("jobs-churn", 0);
    let (cgroups, namespaces) = (draw.between(20, 90), draw.between(10, 40));
    let parent = Parent::new();
    let seen = looked_at_by("jobs", || {
        remake_cgroups(&parent.dir(), cgroups);
        for _ in 0..namespaces {
            assert!(Command::new("unshare").args(["--uts", "true"]).status().unwrap().success());
        }
    });
    for what in ["cgroups made", "cgroups removed"] {
        assert_eq!(churned(&seen, what), cgroups as f64, "{what}: {}", seen["churn"]);
    }
    assert_eq!(churned(&seen, "UTS namespaces made"), namespaces as f64, "{}", seen["churn"]);
    assert_eq!(churned(&seen, "IPC namespaces made"), 0.0, "{}", seen["churn"]);
    assert_eq!(number(&job(&seen, "true")["count"]), namespaces as f64);
}
