//! Saturation that averages hide, on the live kernel: full threads among many that sleep, tasks in uninterruptible sleep.
//!
//! All is drawn; what came about is reported by the victims' own clocks; each has its healthy twin. `WHYSLOW_SEED` repeats a
//! run. What whyslow said is kept under `target/*/tmp/saturation`, or `WHYSLOW_KEPT`.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use whyslow_faults::host::Calm;
use whyslow_faults::ledger::Word;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Fence, Victim, bars, host};

mod judge;
mod stand_ins;

use judge::{Children, Judged, Threads, Waiters};

fn kept_in() -> PathBuf {
    let asked = std::env::var_os("WHYSLOW_KEPT").map(PathBuf::from);
    asked.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).join("saturation")
}

/// A cell that is made until it came about.
fn run<M: Judged>(cell: &str, make: impl Fn(&mut Draw, &str) -> Result<(M, Look), Trouble>) {
    rounds::run_judged(cell, &kept_in(), |draw, label| {
        let (made, look) = make(draw, label)?;
        Ok(made.judge(&look))
    });
}

fn look(label: &str) -> Result<Look, Trouble> {
    fs::create_dir_all(kept_in())?;
    let whyslow = whyslow_faults::program!();
    let length = format!("{}s", bars::WINDOW_S);
    let kept = kept_in().join(format!("{label}.json"));
    Look::now(&whyslow, &["exam", "--for", &length, "--json"], Duration::from_secs(bars::WINDOW_S), &kept)
}

/// The CPU time, of one CPU, that the busiest of its threads had in a second of the window; by the kernel's clock.
fn shares(before: &[u64], after: &[u64], wall: Duration) -> Vec<f64> {
    let share = |(b, a): (&u64, &u64)| a.saturating_sub(*b) as f64 / wall.as_nanos() as f64;
    before.iter().zip(after).map(share).collect()
}

/// CPU time of each thread so far: the first number of schedstat.
fn cpu_of(victim: &Victim) -> Vec<u64> {
    let read = |tid| {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", victim.pid())).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    victim.tids().into_iter().map(|tid| read(tid).unwrap_or(0)).collect()
}

/// Full threads among many that sleep: `full` of them, at least one CPU is left over.
fn threads(draw: &mut Draw, label: &str, healthy: bool) -> Result<(Threads, Look), Trouble> {
    let fence = Fence::enter()?;
    let full = if host::cpus().len() >= 4 { draw.between(1, 2) } else { 1 };
    let sleepers = draw.between(8, 40);
    let work = Work::Few { tasks: sleepers, idle_us: draw.between(50, 400) * 1000 };
    let comm = format!("few-{}", draw.word(5));
    let group = fence.group(&draw.word(6))?;
    let victim = Victim::spawn(fence.spec(&group, &comm, full, work))?;
    victim.ledger().word(Word::Mode).store(u64::from(!healthy), Ordering::Release);
    victim.go();
    std::thread::sleep(bars::SETTLE);
    let (calm, cpu) = (Calm::watch(Some(fence.top()))?, group.cpu_used()?);
    let (before, began) = (cpu_of(&victim), Instant::now());
    let look = look(label)?;
    let shares = shares(&before, &cpu_of(&victim), began.elapsed());
    let disturbed = calm.disturbed(Some(fence.top()), Duration::from_secs(1))?;
    let sight = look.sight(&group, cpu)?;
    fence.check_time()?;
    Ok((Threads { healthy, pid: victim.pid(), comm, full, sleepers, shares, disturbed, sight }, look))
}

fn run_threads(cell: &str, healthy: bool) {
    if host::cpus().len() < 2 {
        let why = || Ok(Outcome::NotRun("one thread fills the only CPU".into()));
        return rounds::run(&cell, |_| true, &kept_in(), |_| why());
    }
    run(cell, |draw, label| threads(draw, label, healthy));
}

#[test]
fn root_full_threads_among_many_that_sleep_are_reported_first() {
    run_threads("full-threads", false);
}

#[test]
fn root_threads_with_time_to_spare_are_not_reported() {
    run_threads("threads-with-time-to-spare", true);
}

/// Tasks that run or are ready to: in the way of a load that is far above what runs.
fn ready() -> Result<f64, Trouble> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let ready = text.split(['/', ' ']).nth(3).and_then(|field| field.parse().ok());
    Ok(ready.ok_or("expected <ready>/<tasks> in /proc/loadavg")?)
}

/// Many processes that wait for their children: in D state, or (healthy) in a sleep that is no load.
fn waiters(draw: &mut Draw, label: &str, healthy: bool) -> Result<(Waiters, Look), Trouble> {
    let fence = Fence::enter()?;
    let many = draw.between(40, 60);
    let child_us = draw.between(400, 900) * 1000;
    println!("{many} with children of {child_us} us");
    let comm = format!("wait-{}", draw.word(5));
    let group = fence.group(&draw.word(6))?;
    let mut spec = fence.spec(&group, &comm, many, Work::Vfork { child_us });
    spec.apart = true;
    let victim = Victim::spawn(spec)?;
    victim.ledger().word(Word::Mode).store(u64::from(!healthy), Ordering::Release);
    victim.go();
    std::thread::sleep(bars::SETTLE);
    let (before, cpu) = (ready()?, group.cpu_used()?);
    let look = look(label)?;
    let (others, sight) = (before.max(ready()?), look.sight(&group, cpu)?);
    // What is going on when the window ends counts in parts only when it is over.
    std::thread::sleep(Duration::from_micros(child_us) * 2);
    fence.check_time()?;
    let asleep = victim.ledger().rate(look.window) * child_us as f64 / 1e6;
    Ok((Waiters { healthy, comm, many, asleep, others, sight }, look))
}

#[test]
fn root_a_load_of_tasks_in_uninterruptible_sleep_is_explained() {
    run("load-of-waiters", |draw, label| waiters(draw, label, false));
}

#[test]
fn root_sleepers_are_no_load() {
    run("sleepers", |draw, label| waiters(draw, label, true));
}

/// A process that stops until its child has computed: what the child does is its own work.
fn own_children(draw: &mut Draw, label: &str) -> Result<(Children, Look), Trouble> {
    const COMPUTES: u64 = 2;
    let fence = Fence::enter()?;
    let child_us = draw.between(60, 160) * 1000;
    println!("children of {child_us} us");
    let comm = format!("parent-{}", draw.word(5));
    let group = fence.group(&draw.word(6))?;
    let victim = Victim::spawn(fence.spec(&group, &comm, 1, Work::Vfork { child_us }))?;
    victim.ledger().word(Word::Mode).store(COMPUTES, Ordering::Release);
    victim.go();
    std::thread::sleep(bars::SETTLE);
    let cpu = group.cpu_used()?;
    let look = look(label)?;
    let sight = look.sight(&group, cpu)?;
    fence.check_time()?;
    Ok((Children { comm, sight }, look))
}

#[test]
fn root_the_work_of_own_children_is_no_loss() {
    run("own-children", own_children);
}
