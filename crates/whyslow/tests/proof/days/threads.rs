//! Services of several threads, and a daemon that grants permission to open files.

use std::io;
use std::sync::atomic::Ordering;

use whyslow_faults::Victim;
use whyslow_faults::ledger::Word;
use whyslow_faults::spec::Work;

use crate::days::stage::{Ground, Stage, names};

/// The fault begins with this mode; its twin stays as it is.
fn from_now_on(server: Victim, is_fault: bool, mode: u64) -> Box<dyn FnMut() -> io::Result<()>> {
    Box::new(move || {
        server.ledger().word(Word::Mode).store(if is_fault { mode } else { 0 }, Ordering::Release);
        Ok(())
    })
}

/// A pool: each of its threads sleeps before its answer (1), or waits for a writer of a pipe (2).
pub fn pool(ground: &mut Ground<'_>, mode: u64) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let threads = ground.draw.between(2, 4);
    let clients = threads + ground.draw.between(1, 4);
    let (at, sleep_us) = (ground.place(true), ground.draw.between(20, 150) * 1_000);
    let fifo = ground.fence.dir().join(ground.draw.word(6));
    whyslow_faults::host::make_fifo(&fifo)?;
    let server = ground.process(&group, 1, Work::Pool { at: at.clone(), threads, sleep_us, fifo })?;
    server.go();
    let victim = ground.process(&own, clients, Work::Ask { at })?;
    let mut stage = ground.stage(victim, own, &["held-up"]);
    stage.blame = names(&server, &group);
    stage.said = format!("{clients} clients of {threads} threads, a sleep of {sleep_us} us, mode {mode}");
    stage.begin = from_now_on(server, ground.is_fault(), mode);
    Ok(stage)
}

/// A thread holds the lock that the answering thread needs.
pub fn interpreter(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let (at, threads) = (ground.place(true), ground.draw.between(1, 3));
    let (hold_us, rest_us) = (ground.draw.between(50, 500) * 1_000, ground.draw.between(5, 50) * 1_000);
    let server = ground.process(&group, 1, Work::Interpreter { at: at.clone(), hold_us, rest_us })?;
    server.go();
    let victim = ground.process(&own, threads, Work::Ask { at })?;
    let mut stage = ground.stage(victim, own, &["held-up"]);
    stage.blame = names(&server, &group);
    stage.said = format!("{threads} clients, work for {hold_us} us, rests of {rest_us} us");
    stage.begin = from_now_on(server, ground.is_fault(), 1);
    Ok(stage)
}

/// Files whose open waits for a daemon's permission.
pub fn guard(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let dir = ground.fence.dir().join(ground.draw.word(6));
    std::fs::create_dir(&dir)?;
    let file = dir.join(ground.draw.word(5));
    std::fs::write(&file, "x")?;
    let (sleep_us, rest_us) = (ground.draw.between(10, 150) * 1_000, ground.draw.between(100, 1_000));
    let daemon = ground.process(&group, 1, Work::Guard { dir, sleep_us })?;
    daemon.go();
    let victim = ground.process(&own, 1, Work::Open { file, rest_us })?;
    let mut stage = ground.stage(victim, own, &["held-up"]);
    stage.blame = names(&daemon, &group);
    stage.said = format!("a sleep of {sleep_us} us before leave is given");
    stage.begin = from_now_on(daemon, ground.is_fault(), 1);
    Ok(stage)
}
