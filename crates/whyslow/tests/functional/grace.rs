//! Jobs that each need a grace period of RCU on the live host, until the fix that the report gives is applied.

use std::fs;
use std::io::{self, PipeWriter, Read as _, pipe};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::Draw;

use super::work::{looked_at_with, number};

const RULE: &str = "grace-periods";
const SWITCH: &str = "/sys/kernel/rcu_expedited";

fn now() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a structure of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Waits for a grace period (kernel/sched/membarrier.c), and tells how long.
fn need_one(told: i32) -> io::Result<()> {
    let began = now();
    // SAFETY: passes no memory.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    let time = ((now() - began).as_nanos() as u64).to_ne_bytes();
    // SAFETY: the bytes are those of the array.
    let written = unsafe { libc::write(told, time.as_ptr().cast(), time.len()) };
    if done == 0 && written == time.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process that needs a grace period before its program begins, which sleeps.
fn job(told: &PipeWriter, sleeps_ms: u64) {
    let told = told.as_raw_fd();
    let mut command = Command::new("sleep");
    command.arg(format!("0.{sleeps_ms:03}"));
    // SAFETY: system calls alone, which need nothing of the parent but an open file.
    unsafe { command.pre_exec(move || need_one(told)) };
    assert!(command.status().unwrap().success());
}

/// Runs a job for each of these lengths, and adds up how long they say that they waited, in seconds.
fn jobs(lengths: &[u64]) -> f64 {
    let (mut hears, told) = pipe().unwrap();
    lengths.iter().for_each(|sleeps_ms| job(&told, *sleeps_ms));
    drop(told);
    let mut bytes = Vec::new();
    hears.read_to_end(&mut bytes).unwrap();
    let (times, _) = bytes.as_chunks::<8>();
    assert_eq!(times.len(), lengths.len());
    times.iter().map(|time| u64::from_ne_bytes(*time) as f64 / 1e9).sum()
}

fn found(document: &Value) -> Option<&Value> {
    let is_it = |found: &&Value| {
        found["rule"] == RULE && found["title"].as_str().is_some_and(|title| title.contains("membarrier"))
    };
    document["findings"].as_array().unwrap().iter().find(is_it)
}

/// The command that the report gives has run; the end of this undoes it.
struct Applied(String);

impl Applied {
    fn new(found: &Value) -> Self {
        let mut commands =
            found["fixes"].as_array().unwrap().iter().filter_map(|fix| fix["command"].as_str());
        let line = commands.next_back().unwrap_or_else(|| panic!("no command in {found}"));
        let applied = Applied(fs::read_to_string(SWITCH).unwrap());
        assert!(Command::new("sh").args(["-c", line]).status().unwrap().success(), "{line}");
        applied
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, &self.0);
    }
}

#[test]
fn root_jobs_that_need_a_grace_period_each_wait_until_the_fix() {
    let mut draw = Draw::of_run("grace", 0);
    let lengths: Vec<u64> = (0..draw.between(20, 30)).map(|_| draw.between(10, 30)).collect();
    let mut waited = 0.0;
    let (seen, code) = looked_at_with(&["--for", "6s"], || waited = jobs(&lengths));
    let told = format!("{lengths:?}, which waited {waited} s: {}", seen["findings"]);
    let cause = found(&seen).unwrap_or_else(|| panic!("{told}"));
    assert_eq!((code, &cause["kind"]), (Some(1), &"cause".into()), "{told}");
    // A grace period that is over before the job has gone to sleep for it is no wait.
    let count = number(&cause["chain"][0]["count"]);
    assert!((lengths.len() as f64 - 3.0..=lengths.len() as f64).contains(&count), "{told}");
    // Their own clocks include what a job waits for a CPU afterwards.
    for time in ["raw_wait_s", "lost_s"] {
        assert!((0.6 * waited..=1.02 * waited).contains(&number(&cause[time])), "{time} of {told}");
    }

    let applied = Applied::new(cause);
    let mut with_fix = 0.0;
    let (seen, _) = looked_at_with(&["--for", "6s"], || with_fix = jobs(&lengths));
    drop(applied);
    assert!(found(&seen).is_none(), "{with_fix} s: {}", seen["findings"]);
    assert!(with_fix < 0.5 * waited, "{with_fix} s, {waited} s without the fix");
}
