//! Days on which a process holds a lock that others need.

use std::io;

use whyslow_faults::ledger::Word;
use whyslow_faults::spec::{FileLock, Work};

use crate::days::stage::{Ground, Stage, names};

/// The kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Flock,
    Record,
    /// A lock without waiters: tasks that do not get it sleep and try again.
    Retried,
}

impl How {
    fn lock(self) -> FileLock {
        match self {
            How::Flock => FileLock::Flock,
            How::Record => FileLock::Record,
            How::Retried => FileLock::Retried,
        }
    }
}

const RULES: &[&str] = &["held-up", "lock-wait"];

/// A victim that needs a file's lock for a moment, and a process that holds it for so long.
fn held(how: How, hold_us: u64, asleep: bool, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let groups = [ground.group()?, ground.group()?];
    let file = ground.file(4096)?;
    let mut rests = [ground.draw.between(100, 1_000), ground.draw.between(500, 3_000)];
    let hold_us = match how {
        // A failed try costs a sleep: few failures cost almost nothing; if the lock is held for longer, every try fails.
        How::Retried if ground.is_fault() => hold_us.max(100_000),
        How::Retried => {
            rests = [2_000, 40_000];
            hold_us
        }
        _ => hold_us,
    };
    let how = how.lock();
    let needs = Work::Lock { file: file.clone(), how, hold_us: 50, asleep: false, rest_us: rests[0] };
    let keeps = Work::Lock { file, how, hold_us, asleep, rest_us: rests[1] };
    let (holder, victim) = (ground.process(&groups[1], 1, keeps)?, ground.process(&groups[0], 1, needs)?);
    let mut stage = ground.stage(victim, groups[0].clone(), RULES);
    stage.blame = names(&holder, &groups[1]);
    stage.said = format!("{how:?} held for {hold_us} us, asleep: {asleep}");
    stage.begin = Box::new(move || {
        holder.go();
        Ok(())
    });
    Ok(stage)
}

/// The holder sleeps while it holds the lock.
pub fn asleep(how: How, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let hold_us = if ground.is_fault() { ground.draw.between(20, 300) * 1_000 } else { 5 };
    held(how, hold_us, true, ground)
}

/// The holder computes while it holds the lock.
pub fn at_work(how: How, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let hold_us = if ground.is_fault() { ground.draw.between(10, 100) * 1_000 } else { 5 };
    held(how, hold_us, false, ground)
}

/// The holder was stopped while it held the lock.
pub fn stopped(how: How, ground: &mut Ground<'_>) -> io::Result<Stage> {
    let is_fault = ground.is_fault();
    let groups = [ground.group()?, ground.group()?];
    let file = ground.file(4096)?;
    let how = how.lock();
    let needs = Work::Lock { file: file.clone(), how, hold_us: 50, asleep: false, rest_us: 300 };
    let keeps = Work::Lock {
        file,
        how,
        hold_us: if is_fault { 30_000_000 } else { 5 },
        asleep: false,
        rest_us: 3_000,
    };
    let (holder, victim) = (ground.process(&groups[1], 1, keeps)?, ground.process(&groups[0], 1, needs)?);
    let mut stage = ground.stage(victim, groups[0].clone(), RULES);
    stage.blame = names(&holder, &groups[1]);
    stage.said = format!("{how:?} of a process that is stopped");
    let mut holder = holder;
    stage.begin = Box::new(move || {
        holder.go();
        holder.until_it_moves()?;
        holder.signal_stop(is_fault);
        Ok(())
    });
    Ok(stage)
}

/// A tracer stops the victim at each of its system calls.
pub fn traced(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let groups = [ground.group()?, ground.group()?];
    let file = ground.file(4096)?;
    let work = Work::Reread { file, block: 512, random: false, burst_us: 0 };
    let victim = ground.process(&groups[0], 1, work)?;
    let tracer = ground.process(&groups[1], 1, Work::Trace { pid: victim.pid() })?;
    let mut stage = ground.stage(victim, groups[0].clone(), &["traced", "held-up"]);
    stage.blame = names(&tracer, &groups[1]);
    stage.said = "a tracer".to_owned();
    let is_fault = ground.is_fault();
    // The twin's tracer exists, and traces no process.
    stage.begin = Box::new(move || {
        tracer.ledger().word(Word::Mode).store(is_fault.into(), std::sync::atomic::Ordering::Release);
        tracer.go();
        Ok(())
    });
    Ok(stage)
}
