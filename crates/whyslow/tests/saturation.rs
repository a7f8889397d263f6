//! Saturation that averages hide, on the live kernel: full threads among many that sleep, tasks in uninterruptible sleep.
//!
//! All is drawn; what came about is told by the victims' own clocks; each has its healthy twin. `WHYSLOW_SEED` repeats a
//! run. What whyslow said is kept under `target/*/tmp/saturation`, or `WHYSLOW_KEPT`.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::host::Calm;
use whyslow_faults::ledger::Word;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Fence, Victim, bars, host};

whyslow_faults::may_become_victim!();

/// A thread that got this part of a CPU was full.
const FULL: f64 = 0.85;
/// Emulated or shared CPUs, and births of processes, take from the time that is told.
const ABOUT: f64 = 0.75;

fn kept_in() -> PathBuf {
    let asked = std::env::var_os("WHYSLOW_KEPT").map(PathBuf::from);
    asked.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).join("saturation")
}

fn run(cell: &str, make: impl Fn(&mut Draw, &str) -> Result<Outcome, Trouble>) {
    rounds::run(
        &cell,
        |_| true,
        &kept_in(),
        |draw| {
            let label = format!("{cell}-{}", draw.seed());
            make(draw, &label)
        },
    );
}

fn look(label: &str) -> Result<Look, Trouble> {
    fs::create_dir_all(kept_in())?;
    let whyslow = std::env::var_os("WHYSLOW_BIN").unwrap_or(env!("CARGO_BIN_EXE_whyslow").into());
    let length = format!("{}s", bars::WINDOW_S);
    let kept = kept_in().join(format!("{label}.json"));
    Look::now(&whyslow, &["exam", "--for", &length, "--json"], Duration::from_secs(bars::WINDOW_S), &kept)
}

fn findings(look: &Look) -> &[Value] {
    look.document["findings"].as_array().map_or(&[], Vec::as_slice)
}

fn of_rule<'l>(look: &'l Look, rule: &str) -> Vec<&'l Value> {
    findings(look).iter().filter(|finding| finding["rule"] == rule).collect()
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
fn threads(draw: &mut Draw, label: &str, healthy: bool) -> Result<Outcome, Trouble> {
    let cpus = host::cpus().len() as u64;
    if cpus < 2 {
        return Ok(Outcome::NotRun("one thread fills the only CPU".into()));
    }
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let full = if cpus >= 4 { draw.between(1, 2) } else { 1 };
        let sleepers = draw.between(8, 40);
        let work = Work::Few { tasks: sleepers, idle_us: draw.between(50, 400) * 1000 };
        let comm = format!("few-{}", draw.word(5));
        let said = format!("{full} of {sleepers} threads of {comm}, healthy {healthy}");
        let group = fence.group(&draw.word(6))?;
        let victim = Victim::spawn(fence.spec(&group, &comm, full, work))?;
        victim.ledger().word(Word::Mode).store(u64::from(!healthy), Ordering::Release);
        victim.go();
        std::thread::sleep(bars::SETTLE);
        let (calm, before, began) =
            (Calm::watch(Some(fence.top()))?, cpu_of(&victim), std::time::Instant::now());
        let look = look(&format!("{label}-{attempt}"))?;
        let shares = shares(&before, &cpu_of(&victim), began.elapsed());
        let disturbed = calm.disturbed(Some(fence.top()), Duration::from_secs(1))?;
        fence.check_time()?;
        let context = || format!("{said}, {shares:.2?} (all of it: {})", look.kept.display());
        let told = threads_told(&look, &victim, &comm).map_err(|wrong| format!("{wrong}: {}", context()))?;
        if healthy {
            return told.map_or(Ok(Outcome::Passed), |title| Err(format!("{title}: {}", context()).into()));
        }
        if shares.iter().any(|share| *share < FULL) || disturbed.is_some() {
            why = format!("{disturbed:?}; {}", context());
            continue;
        }
        let all = format!("{full} of its {} threads", full + sleepers);
        return match told {
            None => Err(format!("not told: {}", context()).into()),
            Some(title) if !title.contains(&all) => {
                Err(format!("{all} is not what it says, {title}: {}", context()).into())
            }
            Some(_) => Ok(Outcome::Passed),
        };
    }
    Ok(Outcome::HostNotIdle(why))
}

/// What is said of the victim's threads: a statement, before all other risks.
fn threads_told(look: &Look, victim: &Victim, comm: &str) -> Result<Option<String>, String> {
    let id = victim.pid().to_string();
    let told = of_rule(look, "full-thread");
    let mut ours = told.iter().filter(|finding| finding["victim"]["id"] == id.as_str());
    let Some(finding) = ours.next() else { return Ok(None) };
    if finding["kind"] == "cause" {
        return Err(format!("nobody waits for it, and it is accused: {finding}"));
    }
    let first = findings(look).iter().find(|finding| finding["kind"] == "risk");
    if first.is_none_or(|finding| finding["rule"] != "full-thread") {
        return Err(format!("not the first of the risks: {first:?}"));
    }
    if finding["victim"]["name"] != comm {
        return Err(format!("it is not called {comm}: {finding}"));
    }
    Ok(finding["title"].as_str().map(str::to_owned))
}

#[test]
fn root_full_threads_among_many_that_sleep_are_told_first() {
    run("full-threads", |draw, label| threads(draw, label, false));
}

#[test]
fn root_threads_with_time_to_spare_are_not_told() {
    run("threads-with-time-to-spare", |draw, label| threads(draw, label, true));
}

/// Tasks that run or are ready to: in the way of a load that is far above what runs.
fn ready() -> Result<f64, Trouble> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let ready = text.split(['/', ' ']).nth(3).and_then(|field| field.parse().ok());
    Ok(ready.ok_or("expected <ready>/<tasks> in /proc/loadavg")?)
}

/// Many processes that wait for their children: in D state, or (healthy) in a sleep that is no load.
fn waiters(draw: &mut Draw, label: &str, healthy: bool) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let many = draw.between(40, 60);
        let child_us = draw.between(400, 900) * 1000;
        let comm = format!("wait-{}", draw.word(5));
        let said = format!("{many} processes {comm}, children of {child_us} us, healthy {healthy}");
        let group = fence.group(&draw.word(6))?;
        let mut spec = fence.spec(&group, &comm, many, Work::Vfork { child_us });
        spec.apart = true;
        let victim = Victim::spawn(spec)?;
        victim.ledger().word(Word::Mode).store(u64::from(!healthy), Ordering::Release);
        victim.go();
        std::thread::sleep(bars::SETTLE);
        let before = ready()?;
        let look = look(&format!("{label}-{attempt}"))?;
        let others = before.max(ready()?);
        // What is going on when the window ends counts in parts only when it is over.
        std::thread::sleep(Duration::from_micros(child_us) * 2);
        fence.check_time()?;
        let asleep = victim.ledger().rate(look.window) * child_us as f64 / 1e6;
        let told = of_rule(&look, "load-average");
        let context = || format!("{said}, {asleep:.1} in D: {told:#?} (all of it: {})", look.kept.display());
        if healthy {
            let blamed = told.iter().any(|finding| finding.to_string().contains(&comm));
            return if blamed { Err(context().into()) } else { Ok(Outcome::Passed) };
        }
        if asleep < many as f64 * ABOUT {
            why = format!("too few were in D: {}", context());
            continue;
        }
        let Some(hop) = told.first().and_then(|finding| finding["chain"].get(0)) else {
            if others > asleep * ABOUT {
                why = format!("as many others wanted CPUs, {others}: {}", context());
                continue;
            }
            return Err(format!("not told: {}", context()).into());
        };
        waiters_told(&look, hop, &comm, (asleep * ABOUT, many as f64 / ABOUT))
            .map_err(|wrong| format!("{wrong}: {}", context()))?;
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::HostNotIdle(why))
}

/// They are told as what they are, about as many as there are, and as nobody's loss.
fn waiters_told(look: &Look, hop: &Value, comm: &str, bounds: (f64, f64)) -> Result<(), String> {
    let (who, lost) = (hop["who"].as_str().unwrap_or(""), hop["lost_s"].as_f64().unwrap_or(0.0));
    let tasks = lost / look.document["window_s"].as_f64().unwrap_or(1.0).max(1e-3);
    if !who.contains(comm) || hop["edge"] != "vfork" {
        return Err(format!("not {comm} that waits for its children"));
    }
    if tasks < bounds.0 || tasks > bounds.1 {
        return Err(format!("{tasks:.1} tasks are told, not {bounds:.1?}"));
    }
    if of_rule(look, "load-average").iter().any(|finding| finding["kind"] == "cause") {
        return Err("a load is nobody's loss".to_owned());
    }
    Ok(())
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
fn own_children(draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    const COMPUTES: u64 = 2;
    let fence = Fence::enter()?;
    let child_us = draw.between(60, 160) * 1000;
    let comm = format!("parent-{}", draw.word(5));
    let group = fence.group(&draw.word(6))?;
    let victim = Victim::spawn(fence.spec(&group, &comm, 1, Work::Vfork { child_us }))?;
    victim.ledger().word(Word::Mode).store(COMPUTES, Ordering::Release);
    victim.go();
    std::thread::sleep(bars::SETTLE);
    let look = look(label)?;
    fence.check_time()?;
    let context = || format!("{comm}, children of {child_us} us (all of it: {})", look.kept.display());
    let of_comm = |value: &Value| value.to_string().contains(&comm);
    let list = |name: &str| look.document[name].as_array().map_or(&[][..], Vec::as_slice);
    // It could be seen: else that nobody is accused would prove nothing.
    if !list("chains").iter().any(|chain| chain["hops"][0]["edge"] == "vfork" && of_comm(chain)) {
        return Err(format!("its waits are in no chain: {}", context()).into());
    }
    if of_rule(&look, "lock-wait").iter().any(|finding| finding["kind"] == "cannot_tell") {
        return Err(format!("it could not be told: {}", context()).into());
    }
    let accused = findings(&look).iter().find(|finding| finding["rule"] == "lock-wait" && of_comm(finding));
    accused.map_or(Ok(Outcome::Passed), |finding| {
        Err(format!("told as a loss, {finding}: {}", context()).into())
    })
}

#[test]
fn root_the_work_of_own_children_is_no_loss() {
    run("own-children", own_children);
}
