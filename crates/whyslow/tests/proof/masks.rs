//! Masks on the live kernel: who waits behind a mask loses only what the CPUs outside it had left, and who spins loses nothing.
//!
//! CPUs, names, groups, shares and numbers are drawn; what came about is reported by the victims' own clocks. `WHYSLOW_SEED`
//! repeats a run. What whyslow said is kept under `target/*/tmp/masks`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use whyslow_faults::cgroup::Group;
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble, Verdict};
use whyslow_faults::said::Sight;
use whyslow_faults::spec::Work;
use whyslow_faults::spinners::{Plan, Shape, Wait};
use whyslow_faults::{Draw, Fence, Victim, Wrong, bars, host};

mod judge;
mod stand_ins;

use judge::Quiet;

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

/// What whyslow says of them, what each had meanwhile, and what their groups used.
fn look(
    victims: &[&Victim],
    groups: &[&Group],
    label: &str,
) -> Result<(Look, Vec<Had>, Vec<Sight>), Trouble> {
    fs::create_dir_all(kept_in())?;
    let used = groups.iter().map(|group| group.cpu_used()).collect::<Result<Vec<_>, _>>()?;
    let before: Vec<_> = victims.iter().map(|victim| victim.ran_and_waited()).collect();
    let began = Instant::now();
    let (length, args) = (Duration::from_secs(bars::WINDOW_S), format!("{}s", bars::WINDOW_S));
    let kept = kept_in().join(format!("{label}.json"));
    let whyslow = whyslow_faults::program!();
    let look = Look::now(&whyslow, &["exam", "--for", &args, "--json"], length, &kept)?;
    let wall = began.elapsed().as_nanos() as f64;
    let share = |(before, victim): (&(u64, u64), &&Victim)| {
        let after = victim.ran_and_waited();
        Had { ran: (after.0 - before.0) as f64 / wall, waited: (after.1 - before.1) as f64 / wall }
    };
    let had = before.iter().zip(victims).map(share).collect();
    let sights = groups.iter().zip(used).map(|(group, used)| look.sight(group, used));
    let sights = sights.collect::<Result<Vec<_>, _>>()?;
    judge::saw(&look, &sights)?;
    Ok((look, had, sights))
}

fn names(of: &[&Victim]) -> Vec<String> {
    of.iter().map(|victim| victim.comm().to_owned()).collect()
}

/// Every CPU but one is filled by a task bound to it; on that one are tasks with hundreds of short sleeps a second, bound
/// to it, too. What it idles is their own, and there is no room elsewhere. `bound` false: the same work without masks.
fn full_elsewhere(draw: &mut Draw, label: &str, bound: bool) -> Result<(Quiet, Look), Trouble> {
    let cpus = host::cpus();
    let fence = Fence::enter()?;
    let theirs = draw.pick(&cpus);
    let burst_us = draw.between(600, 1800);
    let rest_us = burst_us * draw.between(45, 80) / 100;
    let tasks = draw.between(1, 2);
    let group = fence.group(&draw.word(6))?;
    let other = if draw.one_in(2) { Some(fence.group(&draw.word(7))?) } else { None };
    let resting = Victim::spawn(fence.spec(&group, &draw.word(9), tasks, Work::Spin { burst_us, rest_us }))?;
    let fill = |cpu: &usize| -> Result<Victim, Trouble> {
        let (of, work) = (other.as_ref().unwrap_or(&group), Work::Spin { burst_us: 200, rest_us: 0 });
        let filler = Victim::spawn(fence.spec(of, &format!("fill-{cpu}"), 1, work))?;
        filler.pin(if bound { std::slice::from_ref(cpu) } else { &cpus })?;
        Ok(filler)
    };
    let fillers = cpus.iter().filter(|cpu| **cpu != theirs).map(fill).collect::<Result<Vec<_>, _>>()?;
    resting.pin(if bound { std::slice::from_ref(&theirs) } else { &cpus })?;
    let all: Vec<&Victim> = std::iter::once(&resting).chain(&fillers).collect();
    all.iter().for_each(|victim| victim.go());
    std::thread::sleep(bars::SETTLE);
    let groups: Vec<&Group> = std::iter::once(&group).chain(&other).collect();
    let (look, had, sights) = look(&all, &groups, label)?;
    fence.check_time()?;
    let said = format!(
        "{tasks} x {burst_us} us of work, {rest_us} us of rest on CPU {theirs}, bound {bound}: {had:.2?}"
    );
    let has_room = bound && had.iter().skip(1).any(|had| had.ran + had.waited < FULL);
    let is_not_made = has_room.then(|| "the others were not full".to_owned());
    Ok((Quiet { names: names(&all), sights, is_not_made, said }, look))
}

fn run_full_elsewhere(cell: &str, bound: bool) {
    let make = |draw: &mut Draw| {
        if host::cpus().len() < 2 {
            return Ok(Outcome::NotRun("one CPU leaves nobody out".into()));
        }
        rounds::until_judged(&cell, |attempt| {
            let (made, look) = full_elsewhere(draw, &format!("{cell}-{}-{attempt}", draw.seed()), bound)?;
            Ok(made.judge(&look))
        })
    };
    rounds::run(&cell, |_| true, &kept_in(), make);
}

#[test]
fn root_a_mask_that_leaves_out_full_cpus_is_not_accused() {
    run_full_elsewhere("full-elsewhere", true);
}

#[test]
fn root_the_same_work_without_masks_is_not_accused() {
    run_full_elsewhere("full-without-masks", false);
}

/// Threads that poll a flag, and one that computes, all bound to one CPU: what it loses is reported, what they lose is nothing.
/// `healthy`: it is bound to another CPU, and nobody loses anything.
fn spinners(draw: &mut Draw, label: &str, healthy: bool) -> Result<Outcome, Trouble> {
    let cpus = host::cpus();
    if cpus.len() < 2 {
        return Ok(Outcome::NotRun("one CPU leaves no room".into()));
    }
    rounds::until_judged(&label, |attempt| {
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
        let (look, had, sights) = look(&[&victim, &spin], &[&group], &format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
        fence.check_time()?;
        let names = names(&[&victim, &spin]);
        let reported = judge::accused(&look, &names);
        let window = look.document["window_s"].as_f64().unwrap_or(0.0);
        let lost = had[0].waited * window;
        let said = format!(
            "{pairs} spinners ({wait:?}) on CPU {cpu}, healthy {healthy}, {had:.2?}, lost {lost:.2} s, {disturbed:?}, told {reported:#?} (all of it: {})",
            look.kept.display()
        );
        if healthy {
            return Ok(Quiet { names, sights, is_not_made: None, said }.judge(&look));
        }
        if had[0].waited < A_LOSS || disturbed.is_some() {
            return Ok(Verdict::Again(said));
        }
        let [found] = reported[..] else {
            let what = format!("{} causes, not one: {said}", reported.len());
            let is_none = reported.is_empty();
            return Ok(Verdict::Wrong(if is_none { Wrong::missed(what) } else { Wrong::accused(what) }));
        };
        if !found["chain"][0]["who"].as_str().is_some_and(|who| who.starts_with(victim.comm())) {
            let what = format!("it is not {} who lost: {said}", victim.comm());
            return Ok(Verdict::Wrong(Wrong::accused(what)));
        }
        let by = found["lost_s"].as_f64().unwrap_or(0.0);
        if (by - lost).abs() > bars::EXACT * lost {
            return Ok(Verdict::Wrong(Wrong::inexact(format!("{by:.2} s, not {lost:.2}: {said}"))));
        }
        Ok(Verdict::Passed)
    })
}

#[test]
fn root_what_a_victim_loses_to_spinners_on_its_cpu_is_reported_without_their_waits() {
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
