//! Days on which a service keeps its clients waiting.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::Crowd;
use whyslow_faults::ledger::Word;
use whyslow_faults::spec::{Direct, Network, Place, Work};
use whyslow_faults::{Victim, host};

use crate::days::stage::{Ground, Stage, names};

/// A service at work, and one or more clients.
struct Service {
    server: Victim,
    group: Group,
    at: Place,
    stage: Stage,
}

fn answer(at: &Place, burst_us: u64) -> Work {
    Work::Answer { at: at.clone(), burst_us, sleep_us: 0, upstream: None }
}

fn service(
    ground: &mut Ground<'_>,
    threads: u64,
    rules: &'static [&'static str],
    work: impl FnOnce(&Place) -> Work,
) -> io::Result<Service> {
    let port = ground.draw.one_in(2);
    service_at(ground.place(port), ground, threads, rules, work)
}

fn service_at(
    at: Place,
    ground: &mut Ground<'_>,
    threads: u64,
    rules: &'static [&'static str],
    work: impl FnOnce(&Place) -> Work,
) -> io::Result<Service> {
    let [own, group] = [ground.group()?, ground.group()?];
    let server = ground.process(&group, 1, work(&at))?;
    server.go();
    let clients = ground.process(&own, threads, Work::Ask { at: at.clone() })?;
    let mut stage = ground.stage(clients, own, rules);
    stage.blame = names(&server, &group);
    Ok(Service { server, group, at, stage })
}

/// The service is stopped.
pub fn stopped(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (threads, burst_us) = (ground.draw.between(5, 9), ground.draw.between(50, 300));
    let Service { server, mut stage, .. } =
        service(ground, threads, &["held-up"], |at| answer(at, burst_us))?;
    stage.said = format!("{threads} clients, answers of {burst_us} us");
    let is_fault = ground.is_fault();
    stage.begin = Box::new(move || {
        server.signal_stop(is_fault);
        Ok(())
    });
    Ok(stage)
}

/// The service answers one client after the other; the others wait.
pub fn one_thread(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let is_fault = ground.is_fault();
    let (others, burst_us) = (ground.draw.between(3, 7), ground.draw.between(20_000, 60_000));
    let at = ground.place(true);
    let service = service_at(at, ground, 1, &["request-queue"], |at| answer(at, burst_us))?;
    let Service { server, at, mut stage, .. } = service;
    let all = ground.process(&stage.group, others, Work::Ask { at })?;
    stage.said = format!("1 and {others} clients, answers of {burst_us} us");
    if is_fault {
        // Clients take turns, but unevenly: the last client to ask is left out of every other round of `epoll_wait`.
        stage.alike = Some(all.ledger().clone());
    }
    stage.whose.extend(names(&all, &stage.group));
    stage.keep.push(Box::new(server));
    stage.begin = Box::new(move || {
        if is_fault {
            all.go();
        }
        Ok(())
    });
    Ok(stage)
}

fn slow_from_now_on(server: Victim, is_fault: bool) -> Box<dyn FnMut() -> io::Result<()>> {
    Box::new(move || {
        server.ledger().word(Word::Mode).store(u64::from(is_fault), Ordering::Release);
        Ok(())
    })
}

/// The service sleeps before each answer.
pub fn sleeps(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (threads, sleep_us) = (ground.draw.between(1, 3), ground.draw.between(20, 200) * 1_000);
    let work = |at: &Place| Work::Answer { at: at.clone(), burst_us: 200, sleep_us, upstream: None };
    // For a unix socket only an unread request is visible, and with one client the service reads half of the requests at once.
    let port = threads == 1 || ground.draw.one_in(2);
    let rules = &["held-up", "request-queue"];
    let Service { server, mut stage, .. } = service_at(ground.place(port), ground, threads, rules, work)?;
    stage.said = format!("{threads} clients, a sleep of {sleep_us} us");
    stage.begin = slow_from_now_on(server, ground.is_fault());
    Ok(stage)
}

/// The service sends a request to another service, which sleeps before each answer.
pub fn upstream(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (threads, sleep_us) = (ground.draw.between(1, 3), ground.draw.between(20, 200) * 1_000);
    // The service is the only client of the one behind it.
    let (behind, front, group) = (ground.place(true), ground.place(true), ground.group()?);
    let work = Work::Answer { at: behind.clone(), burst_us: 100, sleep_us, upstream: None };
    let last = ground.process(&group, 1, work)?;
    last.go();
    let work =
        |at: &Place| Work::Answer { at: at.clone(), burst_us: 100, sleep_us: 0, upstream: Some(behind) };
    let rules = &["held-up", "request-queue"];
    let Service { server, mut stage, .. } = service_at(front, ground, threads, rules, work)?;
    server.ledger().word(Word::Mode).store(1, Ordering::Release);
    stage.blame = names(&last, &group);
    stage.said = format!("{threads} clients, a sleep of {sleep_us} us behind the service");
    stage.keep.push(Box::new(server));
    stage.begin = slow_from_now_on(last, ground.is_fault());
    Ok(stage)
}

/// The service forwards each request along a chain of relays; the last service sleeps before each answer, or is stopped.
pub fn relays(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (many, sleep_us) = (ground.draw.between(2, 3), ground.draw.between(20, 200) * 1_000);
    let (at, group, stops) = (ground.place(true), ground.group()?, ground.draw.one_in(3));
    let work = Work::Answer { at: at.clone(), burst_us: 100, sleep_us, upstream: None };
    let last = ground.process(&group, 1, work)?;
    last.go();
    let (mut behind, mut relays) = (at, Vec::new());
    let rules = &["held-up", "request-queue"];
    for _ in 1..many {
        let (front, group) = (ground.place(true), ground.group()?);
        let work = Work::Answer { at: front.clone(), burst_us: 100, sleep_us: 0, upstream: Some(behind) };
        let relay = ground.process(&group, 1, work)?;
        relay.go();
        relay.ledger().word(Word::Mode).store(1, Ordering::Release);
        relays.push(relay);
        behind = front;
    }
    let work =
        |at: &Place| Work::Answer { at: at.clone(), burst_us: 100, sleep_us: 0, upstream: Some(behind) };
    let front = ground.place(true);
    let Service { server, mut stage, .. } = service_at(front, ground, 1, rules, work)?;
    server.ledger().word(Word::Mode).store(1, Ordering::Release);
    relays.push(server);
    stage.blame = names(&last, &group);
    stage.said = format!("{many} relays before a sleep of {sleep_us} us, stopped: {stops}");
    stage.keep.push(Box::new(relays));
    let is_fault = ground.is_fault();
    stage.begin = Box::new(move || {
        last.signal_stop(is_fault && stops);
        last.ledger().word(Word::Mode).store(u64::from(is_fault && !stops), Ordering::Release);
        Ok(())
    });
    Ok(stage)
}

/// A service of several processes, each of which sleeps before its answer (1), waits for a writer of a pipe (2), or waits for an event at
/// another epoll than the one that watches its client (3).
pub fn prefork(ground: &mut Ground<'_>, mode: u64) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let processes = ground.draw.between(2, 5);
    let clients = processes + ground.draw.between(1, 4);
    let (sleep_us, rest_us) = (ground.draw.between(20, 150) * 1_000, ground.draw.between(500, 2_000));
    // Only TCP shows that a request from before the window was read.
    let (port, fifo) = (mode == 2 || ground.draw.one_in(2), ground.fence.dir().join(ground.draw.word(6)));
    let at = ground.place(port);
    host::make_fifo(&fifo)?;
    let fifo = (mode != 3).then_some(fifo);
    let server = ground.process(&group, 1, Work::Prefork { at: at.clone(), processes, sleep_us, fifo })?;
    server.go();
    let victim = ground.process(&own, clients, Work::Visit { at, rest_us })?;
    let mut stage = ground.stage(victim, own, &["held-up", "request-queue"]);
    stage.blame = names(&server, &group);
    stage.said = format!("{clients} clients of {processes} processes, a sleep of {sleep_us} us, mode {mode}");
    let is_fault = ground.is_fault();
    stage.begin = Box::new(move || {
        server.ledger().word(Word::Mode).store(if is_fault { mode.min(2) } else { 0 }, Ordering::Release);
        Ok(())
    });
    Ok(stage)
}

/// The service's cgroup has a CPU quota.
pub fn throttled(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let burst_us = ground.draw.between(500, 3_000);
    let service = service(ground, 1, &["cpu-quota", "held-up"], |at| answer(at, burst_us))?;
    let Service { server, group, mut stage, .. } = service;
    let (period, percent) = (Duration::from_millis(100), ground.draw.between(10, 40) as u32);
    let quota = if ground.is_fault() { period * percent / 100 } else { period * 4 };
    stage.said = format!("answers of {burst_us} us, {quota:?} of {period:?}");
    stage.whose.push(group.path().to_owned());
    stage.keep.push(Box::new(server));
    stage.begin = Box::new(move || group.set_quota(Some((quota, period))));
    Ok(stage)
}

/// The service's cgroup has little weight beside a crowd.
pub fn crowded(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let burst_us = ground.draw.between(500, 3_000);
    let service = service(ground, 1, &["full-cpus"], |at| answer(at, burst_us))?;
    let Service { server, group, mut stage, .. } = service;
    let many = host::cpus().len() * ground.draw.between(4, 9) as usize;
    let mob = Crowd::waiting(ground.fence, many, ground.draw)?;
    match ground.is_fault() {
        true => group.set_lighter(ground.draw.between(50, 400))?,
        false => mob.group().set_lighter(300)?,
    }
    stage.whose.extend(names(&server, &group));
    stage.blame = vec![mob.group().path().to_owned()];
    stage.busy = Some(mob.group().path().to_owned());
    stage.said = format!("answers of {burst_us} us beside {many}");
    stage.keep.push(Box::new(server));
    stage.begin = Box::new(move || {
        mob.all().go();
        Ok(())
    });
    Ok(stage)
}

/// The service reads a disk that another process keeps busy.
pub fn reads(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let (own, others) = (ground.file(64 << 20)?, ground.file(64 << 20)?);
    let block = ground.draw.between(1, 4) << 12;
    let work = |at: &Place| Work::Fetch { at: at.clone(), file: own, block };
    let Service { server, group: of_server, mut stage, .. } = service(ground, 1, &["disk-queue"], work)?;
    let group = ground.group()?;
    let (threads, large) = (ground.draw.between(12, 24), ground.draw.between(1, 4) << 20);
    let work = match ground.is_fault() {
        true => Work::Direct { file: others, block: large, how: Direct::Read },
        false => Work::DirectPaced { file: others, block: 4096, count: 1, every_us: 20_000 },
    };
    let neighbour = ground.process(&group, if ground.is_fault() { threads } else { 1 }, work)?;
    stage.whose.extend(names(&server, &of_server));
    stage.blame = names(&neighbour, &group);
    stage.said = format!("a service that reads {block} bytes beside {threads} of {large}");
    stage.keep.push(Box::new(server));
    stage.begin = Box::new(move || {
        neighbour.go();
        Ok(())
    });
    Ok(stage)
}

/// The reader of a connection sleeps or computes between two messages.
pub fn reader(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let sleeps = ground.draw.one_in(2);
    let [own, group] = [ground.group()?, ground.group()?];
    let (port, every_us) = (ground.draw.between(20_000, 30_000) as u16, ground.draw.between(500, 2_000));
    let pause_us = every_us * ground.draw.between(5, 20);
    let bytes = 4096;
    let spec = |ground: &mut Ground<'_>, group: &Group, work: Work, network: Network| {
        let mut spec = ground.fence.spec(group, &ground.draw.word(9), 1, work);
        spec.network = network;
        Victim::spawn(spec)
    };
    let reader = spec(ground, &group, Work::Pull { port, bytes, sleeps }, Network::Own)?;
    reader.go();
    let network = Network::Of(reader.pid());
    let victim = spec(ground, &own, Work::Push { port, bytes, every_us }, network)?;
    let mut stage = ground.stage(victim, own, &["slow-receiver"]);
    stage.blame = names(&reader, &group);
    stage.said = format!("a message each {every_us} us, {pause_us} us between two reads, asleep: {sleeps}");
    let is_fault = ground.is_fault();
    stage.begin = Box::new(move || {
        let pause = if is_fault { pause_us } else { 10 };
        reader.ledger().word(Word::AcceptPause).store(pause, Ordering::Release);
        Ok(())
    });
    Ok(stage)
}

/// A daemon's file system, which sleeps before it answers a read.
pub fn file_system(ground: &mut Ground<'_>) -> io::Result<Stage> {
    let [own, group] = [ground.group()?, ground.group()?];
    let dir = ground.fence.dir().join(ground.draw.word(6));
    std::fs::create_dir(&dir)?;
    let sleep_us = ground.draw.between(10, 150) * 1_000;
    let daemon = ground.process(&group, 1, Work::Fuse { dir: dir.clone(), sleep_us })?;
    daemon.go();
    let below = dir.strip_prefix("/").unwrap_or(&dir).join(ground.draw.word(5));
    let file = std::path::Path::new("/proc").join(daemon.pid().to_string()).join("root").join(below);
    let victim = ground.process(&own, 1, Work::Reread { file, block: 16, random: false, burst_us: 0 })?;
    let mut stage = ground.stage(victim, own, &["held-up"]);
    stage.blame = names(&daemon, &group);
    stage.said = format!("a sleep of {sleep_us} us over each read");
    stage.begin = slow_from_now_on(daemon, ground.is_fault());
    Ok(stage)
}
