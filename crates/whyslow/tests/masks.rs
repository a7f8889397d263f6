//! Masks on the live kernel: who waits behind a mask loses only what the CPUs outside it had left, and who spins loses nothing.
//!
//! CPUs, names, groups, shares and numbers are drawn; what came about is told by the victims' own clocks. `WHYSLOW_SEED`
//! repeats a run. What whyslow said is kept under `target/*/tmp/masks`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::said::{self, Verb};
use whyslow_faults::spec::Work;
use whyslow_faults::spinners::{Plan, Shape, Wait};
use whyslow_faults::{Draw, Fence, Victim, bars, host};

whyslow_faults::may_become_victim!();

const RULE: &str = "cpu-pinned";
/// A CPU was full if one task, bound to it, ran there or was ready to for this part of the time.
const FULL: f64 = 0.97;
/// Who waits for less of the time is no victim to be asked for.
const A_LOSS: f64 = 0.3;

fn kept_in() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("masks")
}

/// CPU time of all threads, and the time that they were ready and did not run, of a second of the window: schedstat.
#[derive(Debug, Clone, Copy)]
struct Had {
    ran: f64,
    waited: f64,
}

fn so_far(victim: &Victim) -> (u64, u64) {
    let read = |tid| {
        let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", victim.pid())).ok()?;
        let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u64>().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    let all = victim.tids().into_iter().filter_map(read);
    all.fold((0, 0), |sum, (ran, waited)| (sum.0 + ran, sum.1 + waited))
}

/// What whyslow says of them, and what each had meanwhile.
fn look(victims: &[&Victim], label: &str) -> Result<(Look, Vec<Had>), Trouble> {
    fs::create_dir_all(kept_in())?;
    let (before, began): (Vec<_>, _) =
        (victims.iter().map(|victim| so_far(victim)).collect(), Instant::now());
    let (length, args) = (Duration::from_secs(bars::WINDOW_S), format!("{}s", bars::WINDOW_S));
    let args = ["exam", "--for", &args, "--json"];
    let kept = kept_in().join(format!("{label}.json"));
    let look = Look::now(env!("CARGO_BIN_EXE_whyslow").as_ref(), &args, length, &kept)?;
    let wall = began.elapsed().as_nanos() as f64;
    let share = |(before, victim): (&(u64, u64), &&Victim)| {
        let after = so_far(victim);
        Had { ran: (after.0 - before.0) as f64 / wall, waited: (after.1 - before.1) as f64 / wall }
    };
    let had = before.iter().zip(victims).map(share).collect();
    look.is_sound(Verb::of(&args))?;
    said::could_tell(&look.document, &[RULE])?;
    Ok((look, had))
}

/// Causes by masks that name one of these as who lost.
fn accused<'l>(look: &'l Look, whom: &[&Victim]) -> Vec<&'l Value> {
    let all = look.document["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let of_rule = all.iter().filter(|found| found["rule"] == RULE && found["kind"] == "cause");
    of_rule.filter(|found| whom.iter().any(|victim| found.to_string().contains(victim.comm()))).collect()
}

/// Every CPU but one is filled by a task bound to it; on that one are tasks with hundreds of short sleeps a second, bound
/// to it, too. What it idles is their own, and there is no room elsewhere. `bound` false: the same work without masks.
fn full_elsewhere(draw: &mut Draw, label: &str, bound: bool) -> Result<Outcome, Trouble> {
    let cpus = host::cpus();
    if cpus.len() < 2 {
        return Ok(Outcome::NotRun("one CPU leaves nobody out".into()));
    }
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let theirs = draw.pick(&cpus);
        let burst_us = draw.between(600, 1800);
        let rest_us = burst_us * draw.between(45, 80) / 100;
        let tasks = draw.between(1, 2);
        let group = fence.group(&draw.word(6))?;
        let other = if draw.one_in(2) { fence.group(&draw.word(7))? } else { group.clone() };
        let resting =
            Victim::spawn(fence.spec(&group, &draw.word(9), tasks, Work::Spin { burst_us, rest_us }))?;
        let fill = |cpu: &usize| -> Result<Victim, Trouble> {
            let work = Work::Spin { burst_us: 200, rest_us: 0 };
            let filler = Victim::spawn(fence.spec(&other, &format!("fill-{cpu}"), 1, work))?;
            filler.pin(if bound { std::slice::from_ref(cpu) } else { &cpus })?;
            Ok(filler)
        };
        let fillers = cpus.iter().filter(|cpu| **cpu != theirs).map(fill).collect::<Result<Vec<_>, _>>()?;
        resting.pin(if bound { std::slice::from_ref(&theirs) } else { &cpus })?;
        let all: Vec<&Victim> = std::iter::once(&resting).chain(&fillers).collect();
        all.iter().for_each(|victim| victim.go());
        std::thread::sleep(bars::SETTLE);
        let (look, had) = look(&all, &format!("{label}-{attempt}"))?;
        fence.check_time()?;
        let said = format!(
            "{tasks} x {burst_us} us of work, {rest_us} us of rest on CPU {theirs}, bound {bound}: {had:.2?} (all of it: {})",
            look.kept.display()
        );
        let accused = accused(&look, &all);
        if let Some(found) = accused.first() {
            // What a disturbed host leaves idle is room: only then it may be.
            return Err(format!("accused, {}: {said}", found["title"]).into());
        }
        if bound && had.iter().skip(1).any(|had| had.ran + had.waited < FULL) {
            why = format!("the others were not full: {said}");
            continue;
        }
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::HostNotIdle(why))
}

#[test]
fn root_a_mask_that_leaves_out_full_cpus_is_not_accused() {
    rounds::run(
        &"full-elsewhere",
        |_| true,
        &kept_in(),
        |draw| {
            let label = format!("full-elsewhere-{}", draw.seed());
            full_elsewhere(draw, &label, true)
        },
    );
}

#[test]
fn root_the_same_work_without_masks_is_not_accused() {
    rounds::run(
        &"full-without-masks",
        |_| true,
        &kept_in(),
        |draw| {
            let label = format!("full-without-masks-{}", draw.seed());
            full_elsewhere(draw, &label, false)
        },
    );
}

/// Threads that poll a flag, and one that computes, all bound to one CPU: what it loses is told, what they lose is nothing.
/// `healthy`: it is bound to another CPU, and nobody loses anything.
fn spinners(draw: &mut Draw, label: &str, healthy: bool) -> Result<Outcome, Trouble> {
    let cpus = host::cpus();
    if cpus.len() < 2 {
        return Ok(Outcome::NotRun("one CPU leaves no room".into()));
    }
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let drawn = draw.some(2, &cpus);
        let (cpu, other) = (drawn[0], drawn[1]);
        let pairs = draw.between(2, 5);
        let wait = draw.pick(&[Wait::FlagPause, Wait::FlagBare]);
        let plan = Box::new(Plan::draw(wait, Shape::Pure, pairs as usize, draw));
        let group = fence.group(&draw.word(6))?;
        let spin = Victim::spawn(fence.spec(&group, &draw.word(10), 2 * pairs, Work::Spinner(plan)))?;
        let work = Work::Spin { burst_us: draw.between(150, 300), rest_us: 0 };
        let victim = Victim::spawn(fence.spec(&group, &draw.word(9), 1, work))?;
        spin.pin(&[cpu])?;
        victim.pin(&[if healthy { other } else { cpu }])?;
        spin.go();
        victim.go();
        std::thread::sleep(bars::SETTLE);
        let calm = Calm::watch(Some(fence.top()))?;
        let (look, had) = look(&[&victim, &spin], &format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
        fence.check_time()?;
        let told = accused(&look, &[&victim, &spin]);
        let window = look.document["window_s"].as_f64().unwrap_or(0.0);
        let lost = had[0].waited * window;
        let said = format!(
            "{pairs} spinners ({wait:?}) on CPU {cpu}, healthy {healthy}, {had:.2?}, lost {lost:.2} s, {disturbed:?}, told {told:#?} (all of it: {})",
            look.kept.display()
        );
        if healthy {
            return if told.is_empty() {
                Ok(Outcome::Passed)
            } else {
                Err(format!("accused: {said}").into())
            };
        }
        if had[0].waited < A_LOSS || disturbed.is_some() {
            why = said;
            continue;
        }
        let [found] = told[..] else { return Err(format!("{} causes, not one: {said}", told.len()).into()) };
        let by = found["lost_s"].as_f64().unwrap_or(0.0);
        if (by - lost).abs() > bars::EXACT * lost {
            return Err(format!("{by:.2} s, not {lost:.2}: {said}").into());
        }
        if !found["chain"][0]["who"].as_str().is_some_and(|who| who.starts_with(victim.comm())) {
            return Err(format!("it is not {} who lost: {said}", victim.comm()).into());
        }
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::HostNotIdle(why))
}

#[test]
fn root_what_a_victim_loses_to_spinners_on_its_cpu_is_told_without_their_waits() {
    rounds::run(
        &"spinners-and-a-victim",
        |_| true,
        &kept_in(),
        |draw| {
            let label = format!("spinners-and-a-victim-{}", draw.seed());
            spinners(draw, &label, false)
        },
    );
}

#[test]
fn root_spinners_that_wait_for_each_other_lose_nothing_to_their_mask() {
    rounds::run(
        &"spinners-alone",
        |_| true,
        &kept_in(),
        |draw| {
            let label = format!("spinners-alone-{}", draw.seed());
            spinners(draw, &label, true)
        },
    );
}
