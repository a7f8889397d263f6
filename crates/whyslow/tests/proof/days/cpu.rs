//! Days on which other processes keep the CPUs full.

use std::io;
use std::time::Duration;

use whyslow_faults::honest::Crowd;
use whyslow_faults::host;
use whyslow_faults::programs::{self, Programs};
use whyslow_faults::spec::Work;

use crate::days::day::Day;
use crate::days::stage::{Ground, Stage};

/// Many busy processes in one cgroup, beside a few threads that lose time to them, or do not.
pub fn crowd(day: Day, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let cpus = host::cpus().len() as u64;
    let many = cpus * ground.draw.between(4, 9);
    // As many threads as CPUs, with as much weight as all other tasks together, would lose half of their time.
    let is_even = day == Day::Number && ground.is_fault();
    let threads = if is_even { cpus } else { ground.draw.between(1, cpus.clamp(2, 3) - 1) };
    let group = ground.group()?;
    // A victim with a higher nice value is meant to leave the CPUs to other tasks.
    let (part, nice) = (ground.draw.between(20, 400), ground.draw.between(4, 9) as i32);
    let victim = ground.process(&group, threads, Work::Spin { burst_us: 200, rest_us: 0 })?;
    let mut stage = ground.stage(victim, group, &["full-cpus"]);
    stage.said = format!("{many} processes beside {threads} threads, 1/{part}, nice {nice}");
    let is_fault = ground.is_fault();
    if day == Day::Nice {
        // One cgroup, two sessions.
        let line = programs::that_computes(ground.draw)?;
        let (group, dir) = (stage.group.clone(), ground.fence.dir().to_owned());
        let be_nice = move |pid: u32| whyslow_faults::sys::set_nice(pid as i32, 19);
        if is_fault {
            stage.victim.set_nice(nice)?;
        }
        let mut kept = Vec::new();
        stage.blame = vec![programs::first(line).to_owned()];
        stage.begin = Box::new(move || {
            let programs = Programs::start(&group, &dir, many, line)?;
            if !is_fault {
                programs.pids().into_iter().try_for_each(be_nice)?;
            }
            kept.push(programs);
            Ok(())
        });
        return Ok(stage);
    }
    let mob = Crowd::waiting(ground.fence, many as usize, ground.draw)?;
    match (day, is_fault) {
        (Day::Weight, true) => stage.group.set_lighter(part)?,
        (_, true) => {}
        (_, false) => mob.group().set_lighter(part.max(100))?,
    }
    stage.blame = vec![mob.group().path().to_owned()];
    stage.busy = Some(mob.group().path().to_owned());
    stage.begin = Box::new(move || {
        mob.all().go();
        Ok(())
    });
    Ok(stage)
}

/// Two threads whose cgroup has a tight or an ample quota, beside a crowd of little weight that uses the remaining CPU time.
pub fn quota(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let cpus = host::cpus().len();
    let (period, percent) =
        (Duration::from_millis(ground.draw.between(20, 100)), ground.draw.between(20, 60) as u32);
    let group = ground.group()?;
    let mob = Crowd::waiting(ground.fence, cpus, ground.draw)?;
    mob.group().set_lighter(200)?;
    mob.all().go();
    let threads = ground.draw.between(1, cpus.clamp(2, 4) as u64 - 1);
    let victim = ground.process(&group, threads, Work::Spin { burst_us: 200, rest_us: 0 })?;
    let mut stage = ground.stage(victim, group, &["cpu-quota"]);
    let quota = if ground.is_fault() { period * percent / 100 } else { period * 2 * threads as u32 };
    stage.said = format!("{threads} threads, {quota:?} of {period:?}, beside {cpus} of little weight");
    stage.blame = vec![stage.group.path().to_owned()];
    stage.busy = Some(mob.group().path().to_owned());
    stage.keep.push(Box::new(mob));
    let group = stage.group.clone();
    stage.begin = Box::new(move || group.set_quota(Some((quota, period))));
    Ok(stage)
}

/// Real programs, beside threads or beside processes that live for milliseconds.
pub fn programs(day: Day, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let cpus = host::cpus().len() as u64;
    let many = cpus * ground.draw.between(4, 6);
    let burst_us = ground.draw.between(3, 12) * 1_000;
    let [own, others] = [ground.group()?, ground.group()?];
    let work = match day {
        Day::ShortLived => Work::Fork { burst_us },
        // A thread that sleeps beside a crowd waits for a slice of the crowd at each wake-up, however light the crowd is.
        _ => Work::Spin { burst_us, rest_us: if ground.is_fault() { burst_us / 10 } else { 0 } },
    };
    // In a twin the programs have almost a whole CPU for themselves.
    let threads = if ground.is_fault() { cpus.max(2) } else { 1 };
    let victim = ground.process(&own, threads, work)?;
    let mut stage = ground.stage(victim, own, &["full-cpus"]);
    let line = programs::that_computes(ground.draw)?;
    stage.said = format!("{many} x {line} beside {threads} threads, bursts of {burst_us} us");
    if !ground.is_fault() {
        others.set_lighter(200)?;
    }
    stage.blame = vec![others.path().to_owned(), programs::first(line).to_owned()];
    stage.busy = Some(others.path().to_owned());
    let dir = ground.fence.dir().to_owned();
    let mut kept = Vec::new();
    stage.begin = Box::new(move || {
        kept.push(Programs::start(&others, &dir, many, line)?);
        Ok(())
    });
    Ok(stage)
}
